"""Forwarded requests and their replies as PeerMessage frames, around the client's own frames as they are."""

from typing import Final

FORWARD: Final[int]
FORWARD_REPLY: Final[int]

def encode_forward(source: int, requests: bytes) -> list[bytes]:
    """The parts of a frame that hands Request frames on."""

def encode_forward_reply(replies: bytes) -> list[bytes]:
    """The parts of a frame that hands Reply frames back."""

def decode_forwarded(
    frame: bytes | bytearray | memoryview, frame_bytes_max: int = 16777216
) -> tuple[int, bytes] | None:
    """(FORWARD or FORWARD_REPLY, the client's frames) of a PeerMessage frame; None if it is another."""
