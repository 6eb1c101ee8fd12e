"""Every error a caller of fastlock can meet; each message says what to do next."""

from __future__ import annotations

__all__ = [
    "AddressInUse",
    "ConfigError",
    "DirectoryError",
    "DirectoryInUse",
    "DirectoryUnusable",
    "EventsLost",
    "FastlockError",
    "ForeignDirectory",
    "FoundingRefused",
    "FrameTooLarge",
    "MalformedFrame",
    "NewerFormat",
    "ProtocolError",
    "UnknownCommand",
    "UnsupportedVersion",
]


class FastlockError(Exception):
    """What all errors of fastlock have in common."""


class ConfigError(FastlockError):
    """A setting is unknown or makes no sense. The message says where it stands and what would do."""


class AddressInUse(FastlockError):
    """A listener's address is taken or cannot be bound: stop who has it, or choose another one."""


class FoundingRefused(FastlockError):
    """An empty directory cannot become this member. The message says why and what to do."""


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


class DirectoryError(FastlockError):
    """The data directory cannot be used. The message names it and says what to do."""


class DirectoryInUse(DirectoryError):
    """Another process works on the directory: stop it, or choose another directory."""


class ForeignDirectory(DirectoryError):
    """The directory belongs to another cluster or node: choose another one."""


class NewerFormat(DirectoryError):
    """The directory was written by a later release: run that release."""


class DirectoryUnusable(DirectoryError):
    """The directory cannot be created, read or written: look at its owner, permissions and file system."""
