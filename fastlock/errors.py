"""Every error a caller of fastlock can meet; each message says what to do next."""

from __future__ import annotations

__all__ = [
    "AddressInUse",
    "ClientClosed",
    "ConfigError",
    "CrossSlot",
    "DirectoryError",
    "DirectoryInUse",
    "DirectoryUnusable",
    "EventsLost",
    "FastlockError",
    "Forbidden",
    "ForeignDirectory",
    "FoundingRefused",
    "FrameTooLarge",
    "HeldByOther",
    "Incompatible",
    "InvalidArgument",
    "LimitExceeded",
    "LockDelayed",
    "LockLost",
    "MalformedFrame",
    "ModeMismatch",
    "NewerFormat",
    "NotAcquired",
    "NotFound",
    "ProtocolError",
    "StaleToken",
    "TtlOutOfRange",
    "Unavailable",
    "UnknownCommand",
    "UnsupportedVersion",
    "WaitTimeout",
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
    """The history no longer reaches back that far: read the state anew and resume after `floor`.

    A client's watch knows itself where to resume: read the state, then go on with the same watch.
    """

    def __init__(self, floor: int) -> None:
        gone = f"events up to revision {floor}" if floor else "events"
        super().__init__(f"{gone} are gone: read the state anew and resume from there")
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


class NotAcquired(FastlockError):
    """Somebody else holds the lock: try again after `retry_after` seconds, or wait in its queue."""

    def __init__(self, retry_after: float, waiters: int = 0) -> None:
        queue = f", {waiters} waiting" if waiters else ""
        super().__init__(f"the lock is held{queue}: try again in {retry_after:g} s, or acquire it with wait=")
        self.retry_after = retry_after
        self.waiters = waiters


class LockDelayed(NotAcquired):
    """The last holder's lease expired and its lock-delay still runs: try again after `retry_after` s."""


class WaitTimeout(NotAcquired):
    """The lock did not become free in the time the caller was ready to wait: wait longer, or go without."""

    def __init__(self, waited: float) -> None:
        FastlockError.__init__(
            self, f"the lock did not become free in {waited:g} s: wait longer, or go without it"
        )
        self.retry_after = 0.0
        self.waiters = 0


class LockLost(FastlockError):
    """The lock is, or may be, no longer held: stop what it protects, and acquire it again."""

    def __init__(self, why: str = "its lease ended") -> None:
        super().__init__(f"the lock may be lost ({why}): stop what it protects, then acquire it again")


class StaleToken(FastlockError):
    """The token is not the current one of the key: another holder came after; give up what it was for."""

    def __init__(self) -> None:
        super().__init__("the token is no longer current: the lock went to somebody else; acquire it again")


class Unavailable(FastlockError):
    """The cluster did not answer in time; whether the request acted may be unknown. Try again later."""


class ClientClosed(FastlockError):
    """The client is not connected, or not any more: the message says what to do."""

    def __init__(self, why: str = "this client is closed: create another one") -> None:
        super().__init__(why)


class LimitExceeded(FastlockError):
    """A limit of the cluster was reached. `setting` names it."""

    def __init__(self, setting: str) -> None:
        super().__init__(f"the limit {setting} is reached: ask for less, or have an operator raise it")
        self.setting = setting


class InvalidArgument(FastlockError, ValueError):
    """An argument makes no sense to the cluster. `argument` names it."""

    def __init__(self, argument: str) -> None:
        super().__init__(f"the argument {argument!r} is not valid here: correct the call")
        self.argument = argument


class TtlOutOfRange(FastlockError, ValueError):
    """The TTL is too short or too long."""

    def __init__(self) -> None:
        super().__init__("the TTL is out of range: choose one from 0.05 s up to the cluster's maximum")


class ModeMismatch(FastlockError):
    """The key is in use as another kind of lock."""

    def __init__(self) -> None:
        super().__init__(
            "the key is in use as another kind of lock, or with another limit: use that kind, or another key"
        )


class CrossSlot(FastlockError, ValueError):
    """Keys that are taken in one step must share a slot."""

    def __init__(self) -> None:
        super().__init__("the keys are in different slots: give them the same {tag}")


class HeldByOther(FastlockError):
    """A write without a token, while somebody holds the lock."""

    def __init__(self) -> None:
        super().__init__("the lock is held, so its value takes only writes of its holder: acquire it first")


class NotFound(FastlockError):
    """There is nothing to act on."""

    def __init__(self) -> None:
        super().__init__("there is no such lock or value: look at it with get first")


class Forbidden(FastlockError):
    """The cluster does not accept these credentials for this."""

    def __init__(self) -> None:
        super().__init__("the cluster refuses these credentials: check them, or ask an operator")


class Incompatible(FastlockError):
    """The cluster and this client are too far apart in version."""

    def __init__(self) -> None:
        super().__init__("the cluster does not know this request: upgrade the older side")
