"""Numbers of log.capnp that the node switches on; a test holds them against the schema."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """What became of a command or request."""

    OK = 0
    QUEUED = 1
    NOT_ACQUIRED = 2
    LOCK_DELAYED = 3
    LEASE_LOST = 4
    LEASE_EXISTS = 5
    STALE_TOKEN = 6
    MODE_MISMATCH = 7
    WAIT_CANCELLED = 8
    NOT_FOUND = 9
    WRONG_SLOT = 10
    CROSS_SLOT = 11
    SESSION_UNKNOWN = 12
    SEQUENCE_STALE = 13
    LIMIT_EXCEEDED = 14
    TTL_OUT_OF_RANGE = 15
    INVALID_ARGUMENT = 16
    STALE_GENERATION = 17
    HELD_BY_OTHER = 18
    MALFORMED_FRAME = 19
    FRAME_TOO_LARGE = 20
    UNSUPPORTED_VERSION = 21
    UNKNOWN_COMMAND = 22
    WRONG_CLUSTER = 23
    WRONG_NODE = 24
    STALE_INCARNATION = 25
    UNAUTHENTICATED = 26
    FORBIDDEN = 27
    HELLO_EXPECTED = 28
    NOT_LEADER = 29
    OUTCOME_UNKNOWN = 30
    UNAVAILABLE = 31
    BUSY = 32
    STORAGE_FULL = 33
    SHUTTING_DOWN = 34
    DEADLINE_EXCEEDED = 35
    EVENTS_LOST = 36
    GROUP_UNKNOWN = 37


class CommandKind(IntEnum):
    """The discriminant of Command."""

    UNSET = 0
    OPEN_SESSION = 1
    CLOSE_SESSION = 2
    EXPIRE_SESSION = 3
    CREATE_LEASE = 4
    CHANGE_TTL = 5
    NOTE_REMAINING = 6
    REVOKE = 7
    EXPIRE = 8
    ACQUIRE = 9
    ACQUIRE_ALL = 10
    RELEASE = 11
    CANCEL_WAIT = 12
    FORCE_RELEASE = 13
    END_DELAY = 14
    PUT_VALUE = 15
    DELETE_VALUE = 16
    CONFIGURE = 17
    OWN_SLOTS = 18
    EXPORT_SLOTS = 19
    IMPORT_SLOTS = 20
    DROP_SLOTS = 21


class EventKind(IntEnum):
    UNSET = 0
    ACQUIRED = 1
    TRANSFERRED = 2
    RELEASED = 3
    EXPIRED = 4
    REVOKED = 5
    FORCED = 6
    PUT = 7
    DELETED = 8
    DELAY_ENDED = 9
