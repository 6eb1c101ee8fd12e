"""Every error a caller of fastlock can meet; each message says what to do next."""

from __future__ import annotations

__all__ = [
    "EventsLost",
    "FastlockError",
    "FrameTooLarge",
    "MalformedFrame",
    "ProtocolError",
    "UnknownCommand",
    "UnsupportedVersion",
]


class FastlockError(Exception):
    """What all errors of fastlock have in common."""


class ProtocolError(FastlockError):
    """Bytes that are not what the schema says. `code` is the schema's Code for it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class MalformedFrame(ProtocolError):
    """The frame is damaged: close the connection, or restore the row or entry from another member."""


class FrameTooLarge(ProtocolError):
    """The frame is larger than its reader takes: split the request."""


class UnsupportedVersion(ProtocolError):
    """The frame is of another format version: upgrade the older side."""


class UnknownCommand(ProtocolError):
    """The frame asks for something this release does not know: upgrade it."""


class EventsLost(FastlockError):
    """The history no longer reaches back that far: read the state anew and resume after `floor`."""

    def __init__(self, floor: int) -> None:
        super().__init__(f"events up to revision {floor} are gone: read the state anew and resume from there")
        self.floor = floor
