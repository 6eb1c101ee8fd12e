"""Checkpoint rows as dicts in the shape of pycapnp's to_dict(). Written with the current version."""

from collections.abc import Mapping
from typing import Any, TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview

def decode_lock_row(frame: _Buffer, frame_bytes_max: int = 16777216) -> dict[str, Any]:
    """A LockRow frame as a dict."""

def encode_lock_row(fields: Mapping[str, Any]) -> bytes:
    """A dict as a LockRow frame."""

def decode_lease_row(frame: _Buffer, frame_bytes_max: int = 16777216) -> dict[str, Any]:
    """A LeaseRow frame as a dict."""

def encode_lease_row(fields: Mapping[str, Any]) -> bytes:
    """A dict as a LeaseRow frame."""

def decode_session_row(frame: _Buffer, frame_bytes_max: int = 16777216) -> dict[str, Any]:
    """A SessionRow frame as a dict."""

def encode_session_row(fields: Mapping[str, Any]) -> bytes:
    """A dict as a SessionRow frame."""

def decode_group_row(frame: _Buffer, frame_bytes_max: int = 16777216) -> dict[str, Any]:
    """A GroupRow frame as a dict."""

def encode_group_row(fields: Mapping[str, Any]) -> bytes:
    """A dict as a GroupRow frame."""
