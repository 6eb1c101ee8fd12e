"""The log as Raft sees it: the tail in memory, and how much of it is durable."""

from collections.abc import Iterable
from typing import Final, final

from fastlock._core.raft_message import Entry

@final
class Unconfirmed:
    """A write that storage has not acknowledged."""

@final
class RaftLog:
    base_index: Final[int]
    base_term: Final[int]
    last_index: Final[int]
    last_term: Final[int]
    cut_index: Final[int]
    cut_term: Final[int]
    tail_bytes: Final[int]
    durable_index: Final[int]
    def __init__(self, base_index: int, base_term: int, cut_index: int, entries: Iterable[Entry]) -> None: ...
