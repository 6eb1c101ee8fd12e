"""Requests, replies and hellos as dicts in the shape of pycapnp's to_dict()."""

from collections.abc import Mapping
from typing import Any

def check_hello(
    hello: Mapping[str, Any],
    *,
    cluster_high: int = 0,
    cluster_low: int = 0,
    node: int = 0,
    peer_node: int = 0,
    peer_incarnation: int = 0,
) -> int:
    """The Code of a Hello against what this side knows: ok, or why the connection must not go on.

    Zero stands for "not known yet". `node` is our own id, `peer_node` the one expected at the other end,
    and `peer_incarnation` the lowest that is accepted of it.
    """

def decode_request(frame: bytes | bytearray | memoryview, frame_bytes_max: int = 1048576) -> dict[str, Any]:
    """A Request frame as a dict."""

def encode_request(fields: Mapping[str, Any]) -> bytes:
    """A dict as a Request frame."""

def decode_reply(frame: bytes | bytearray | memoryview, frame_bytes_max: int = 1048576) -> dict[str, Any]:
    """A Reply frame as a dict."""

def encode_reply(fields: Mapping[str, Any]) -> bytes:
    """A dict as a Reply frame."""

def encode_outcome(
    id: int,
    group: int,
    leader: int,
    retry_ms: int,
    *,
    code: int | str = 0,
    kind: int = 0,
    count: int = 0,
    detail: int = 0,
    token: int = 0,
    revision: int = 0,
) -> bytes:
    """The Reply frame with which a leader answers a command, by the path that answers whole batches."""
