"""What Raft passes around: log entries, members and messages."""

from collections.abc import Sequence
from typing import Final, final

# EntryKind of log.capnp.
ENTRY_NOOP: Final = 0
ENTRY_BATCH: Final = 1
ENTRY_MEMBERSHIP: Final = 2

# MemberRole of log.capnp.
ROLE_VOTER: Final = 0
ROLE_LEARNER: Final = 1
ROLE_WITNESS: Final = 2

# RaftKind of peer.capnp.
APPEND: Final = 1
APPEND_REPLY: Final = 2
HEARTBEAT: Final = 3
HEARTBEAT_REPLY: Final = 4
PRE_VOTE: Final = 5
PRE_VOTE_REPLY: Final = 6
VOTE: Final = 7
VOTE_REPLY: Final = 8
READ_INDEX: Final = 9
READ_INDEX_REPLY: Final = 10
TIMEOUT_NOW: Final = 11
SNAPSHOT_CHUNK: Final = 12
SNAPSHOT_REPLY: Final = 13

KIND_NAMES: Final[tuple[str, ...]]

@final
class Entry:
    """One entry of the log. `data` is its LogEntry frame: the same bytes for peers and storage."""

    term: Final[int]
    index: Final[int]
    kind: Final[int]
    data: Final[bytes]
    def __init__(self, term: int, index: int, kind: int, data: bytes) -> None: ...

@final
class Member:
    """One member of a group's configuration. Immutable, compared by value."""

    node: Final[int]
    incarnation: Final[int]
    role: Final[int]
    address: Final[str]
    def __init__(self, node: int, role: int = 0, incarnation: int = 1, address: str = "") -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Message:
    """One RaftMessage of peer.capnp. Which fields a kind uses is said there."""

    kind: int
    group: int
    source: int
    target: int
    term: int
    index: int
    log_term: int
    commit: int
    context: int
    hint_index: int
    hint_term: int
    reject: bool
    force: bool
    last: bool
    entries: Sequence[Entry]
    chunk: bytes
    members: tuple[Member, ...] | None
    def __init__(
        self,
        kind: int,
        *,
        group: int = 0,
        source: int = 0,
        target: int = 0,
        term: int = 0,
        index: int = 0,
        log_term: int = 0,
        commit: int = 0,
        context: int = 0,
        hint_index: int = 0,
        hint_term: int = 0,
        reject: bool = False,
        force: bool = False,
        last: bool = False,
        entries: Sequence[Entry] = ...,
        chunk: bytes = b"",
        members: tuple[Member, ...] | None = None,
    ) -> None: ...
