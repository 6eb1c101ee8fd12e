"""Messages between members as dicts in the shape of pycapnp's to_dict()."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview

def decode_peer_message(frame: _Buffer, frame_bytes_max: int = 16777216) -> dict[str, Any]:
    """A PeerMessage frame as a dict."""

def encode_peer_message(fields: Mapping[str, Any]) -> bytes:
    """A dict as a PeerMessage frame."""

def encode_raft_prefix(fields: Mapping[str, Any], entry_sizes: Sequence[int] | None) -> bytes:
    """What comes before the entries in the frame of a Raft message.

    `fields` is a RaftMessage dict whose entries are ignored. The prefix, and then the bytes of every
    entry, padded to 8 where they are not a multiple of it, make the whole frame.
    """
