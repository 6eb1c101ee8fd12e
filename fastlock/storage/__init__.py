"""What a node keeps across restarts, behind one small interface.

Two stores with one order between them: the log (entries, term, vote) and the table (checkpoint
rows). The log is written in batches that are acknowledged once durable; a checkpoint is staged row
by row and becomes visible in one step; the log is cut only behind a checkpoint that did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from fastlock._core.raft import Write
from fastlock._core.raft_message import Entry

# A row and its key as the lock table encodes them; None deletes the row.
Row = tuple[bytes, bytes | None]


class StorageDamaged(Exception):
    """Something acknowledged cannot be read back: this member must not vote or acknowledge again."""


class StorageFailed(Exception):
    """A write or sync failed. The node stops: a failed sync is never retried."""


class Stored(NamedTuple):
    """One group as it was found at start: hard state, the log, and the checkpoint under it.

    The log continues after `cut_index`, and entries at or below the checkpoint may still be in it.
    """

    term: int
    vote: int
    cut_index: int
    entries: Sequence[Entry]
    checkpoint_index: int
    checkpoint_term: int


class Stream(Protocol):
    """A consistent copy of one checkpoint's rows for a member that lags, whatever is written meanwhile."""

    index: int
    term: int

    def chunk(self, offset: int, bytes_max: int) -> tuple[bytes, bool]:
        """Whole packed rows from an offset a chunk ended at (or 0), and whether they are the last."""

    def close(self) -> None: ...


class Storage(Protocol):
    """One node's storage. Nothing here waits for the disk except `load`, `rows` and `read`."""

    def load(self, group: int) -> Stored:
        """The group as it was last acknowledged; raises StorageDamaged if that cannot be known."""

    def rows(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        """The rows of the newest checkpoint in byte order of their keys."""

    def append(self, group: int, write: Write) -> None:
        """Queue one write; everything queued by all groups becomes durable in order."""

    def take_durable(self) -> list[tuple[int, int]]:
        """(group, write seq) of what became durable since the last call, the highest of each group."""

    def read(self, group: int, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Durable entries from `first` on, at least one if it is there; empty if it was cut."""

    def cut(self, group: int, index: int) -> None:
        """Forget the entries up to `index`, which a visible checkpoint covers, in bounded slices."""

    def begin_checkpoint(self, group: int, whole: bool) -> None:
        """Stage a checkpoint: changes to the one before, or with `whole` all rows anew.

        One that was staged and not committed is forgotten.
        """

    def put_rows(self, group: int, rows: Iterable[Row]) -> None: ...

    def commit_checkpoint(self, group: int, index: int, term: int) -> None:
        """Make the staged rows visible in one step, as the state at (index, term)."""

    def take_checkpoints(self) -> list[tuple[int, int]]:
        """(group, index) of the checkpoints that became durable since the last call."""

    def open_stream(self, group: int) -> Stream | None:
        """The newest durable checkpoint, or None if there is none yet."""
