"""Raft messages as PeerMessage frames, and back."""

from collections.abc import Iterable

from fastlock._core.raft_message import Message

def encode_message(message: Message) -> list[bytes]:
    """The frame in parts, to be sent in this order: what is before the entries, then their own bytes."""

def encode_beats(messages: Iterable[Message]) -> bytes:
    """Heartbeats and their answers, of many groups, from one node to one other, in one frame."""

def decode_messages(frame: bytes) -> list[Message] | None:
    """The Raft messages in a PeerMessage frame; None if it is about something else.

    MalformedFrame (or another ProtocolError) for a frame that cannot be read, before anything came of it.
    """
