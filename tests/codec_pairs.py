"""Which struct of the schemas the compiled codec reads and writes with which functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fastlock._core import codec


class Pair(NamedTuple):
    decode: Callable[..., dict[str, Any]]
    encode: Callable[[dict[str, Any]], bytes]
    single_segment: bool  # what is only ever written by ourselves is refused in several segments


def encode_log_entry(fields: dict[str, Any]) -> bytes:
    place = fields["group"], fields["term"], fields["index"]
    if fields["kind"] == "noop":
        return codec.encode_noop_entry(*place)
    if fields["kind"] == "membership":
        return codec.encode_membership_entry(*place, fields["membership"])
    return codec.encode_entry(*place, fields["commands"])


PAIRS: dict[str, Pair] = {
    "Request": Pair(codec.decode_request, codec.encode_request, False),
    "Reply": Pair(codec.decode_reply, codec.encode_reply, False),
    "PeerMessage": Pair(codec.decode_peer_message, codec.encode_peer_message, False),
    "LogEntry": Pair(codec.decode_log_entry, encode_log_entry, True),
    "Membership": Pair(codec.decode_membership, codec.encode_membership, True),
    "LockRow": Pair(codec.decode_lock_row, codec.encode_lock_row, True),
    "LeaseRow": Pair(codec.decode_lease_row, codec.encode_lease_row, True),
    "SessionRow": Pair(codec.decode_session_row, codec.encode_session_row, True),
    "GroupRow": Pair(codec.decode_group_row, codec.encode_group_row, True),
}


def writable(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """What of a random LogEntry our own writer would ever write: only what belongs to its kind."""
    if name != "LogEntry":
        return fields
    fields = dict(fields)
    if fields["kind"] == "batch":
        fields.setdefault("commands", [])
    else:
        fields.pop("commands", None)
    if fields["kind"] == "membership":
        fields.setdefault("membership", {"version": 0})
    else:
        fields.pop("membership", None)
    return fields
