"""Commands, entries and memberships as dicts in the shape of pycapnp's to_dict()."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview

def decode_log_entry(frame: _Buffer, frame_bytes_max: int = 16777216) -> dict[str, Any]:
    """A LogEntry frame as a dict."""

def encode_entry(group: int, term: int, index: int, commands: Iterable[Mapping[str, Any]]) -> bytes:
    """The LogEntry frame of a batch; each command a dict, its missing fields zero."""

def encode_noop_entry(group: int, term: int, index: int) -> bytes:
    """The LogEntry frame of a leader's first entry."""

def encode_membership_entry(group: int, term: int, index: int, membership: Mapping[str, Any]) -> bytes:
    """The LogEntry frame of a membership change; `membership` is a dict."""

def decode_membership(frame: _Buffer, frame_bytes_max: int = 16777216) -> dict[str, Any]:
    """A Membership frame as a dict."""

def encode_membership(membership: Mapping[str, Any]) -> bytes:
    """A dict as a Membership frame."""
