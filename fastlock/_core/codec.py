"""Every message of the schemas as a dict in the shape of pycapnp's to_dict(), through the compiled codec.

For tests, tools and cold paths. Hot paths cimport commands, client_messages, peer_messages and rows instead.
"""

from fastlock._core.codec_client import (
    check_hello,
    decode_reply,
    decode_request,
    encode_outcome,
    encode_reply,
    encode_request,
)
from fastlock._core.codec_commands import (
    decode_log_entry,
    decode_membership,
    encode_entry,
    encode_membership,
    encode_membership_entry,
    encode_noop_entry,
)
from fastlock._core.codec_peer import decode_peer_message, encode_peer_message, encode_raft_prefix
from fastlock._core.codec_rows import (
    decode_group_row,
    decode_lease_row,
    decode_lock_row,
    decode_session_row,
    encode_group_row,
    encode_lease_row,
    encode_lock_row,
    encode_session_row,
)
from fastlock._core.framing import frame_size
from fastlock._core.hashing import hash_of
from fastlock._core.slots import slot_of

__all__ = [
    "check_hello",
    "decode_group_row",
    "decode_lease_row",
    "decode_lock_row",
    "decode_log_entry",
    "decode_membership",
    "decode_peer_message",
    "decode_reply",
    "decode_request",
    "decode_session_row",
    "encode_entry",
    "encode_group_row",
    "encode_lease_row",
    "encode_lock_row",
    "encode_membership",
    "encode_membership_entry",
    "encode_noop_entry",
    "encode_outcome",
    "encode_peer_message",
    "encode_raft_prefix",
    "encode_reply",
    "encode_request",
    "encode_session_row",
    "frame_size",
    "hash_of",
    "slot_of",
]
