"""The in-memory twin of the node's storage: the same contract, and a crash loses what was not synced.

The simulator decides when a sync ends and what a crash leaves behind. Durable records are kept as
the bytes a disk would have, with their checksum, so that a torn write is found the way it would be
found on a disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from fastlock._core.raft import Write
from fastlock._core.raft_message import Entry
from fastlock.storage import Row, StorageDamaged, StorageFailed, Stored
from fastlock.storage.rowpack import pack_row


class _Record:
    """One entry as stored. A torn record has only its first bytes, as a checksum would tell."""

    __slots__ = ("entry", "size")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.size = len(entry.data)

    def tear(self) -> None:
        self.size //= 2

    @property
    def whole(self) -> bool:
        return self.size == len(self.entry.data)


class _Group:
    """What the disk holds of one group."""

    __slots__ = ("checkpoint", "cut", "records", "rows", "staged", "staged_whole", "term", "vote")

    def __init__(self) -> None:
        self.term = 0
        self.vote = 0
        self.cut = 0
        self.records: list[_Record] = []
        self.rows: dict[bytes, bytes] = {}
        self.checkpoint = (0, 0)
        self.staged: list[Row] | None = None
        self.staged_whole = False

    def write(self, write: Write) -> None:
        if write.hard_state:
            self.term, self.vote = write.term, write.vote
        if write.reset_index:
            self.records.clear()
            self.cut = write.reset_index
        if write.truncate_from:
            del self.records[max(0, write.truncate_from - self.cut - 1) :]
        for entry in write.entries:
            assert entry.index == self.cut + len(self.records) + 1, "a gap in the log"
            self.records.append(_Record(entry))

    def publish(self, index: int, term: int, staged: list[Row], whole: bool) -> None:
        rows = {} if whole else dict(self.rows)
        for key, row in staged:
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        self.rows = rows
        self.checkpoint = (index, term)


class MemoryStream:
    """A checkpoint as one packed run of bytes, taken at once: later checkpoints do not touch it."""

    def __init__(self, index: int, term: int, rows: dict[bytes, bytes]) -> None:
        self.index = index
        self.term = term
        self._rows = [pack_row(key, rows[key]) for key in sorted(rows)]
        self._starts: dict[int, int] = {}
        offset = 0
        for position, packed in enumerate(self._rows):
            self._starts[offset] = position
            offset += len(packed)
        self._starts[offset] = len(self._rows)
        self._end = offset

    def chunk(self, offset: int, bytes_max: int) -> tuple[bytes, bool]:
        position = self._starts[offset]
        parts: list[bytes] = []
        size = 0
        while position < len(self._rows) and (not parts or size + len(self._rows[position]) <= bytes_max):
            parts.append(self._rows[position])
            size += len(self._rows[position])
            position += 1
        return b"".join(parts), offset + size == self._end

    def close(self) -> None:
        self._rows = []


class MemoryStorage:
    """All groups of one node. `sync` and `sync_checkpoint` are the disk; `crash` is the power cut."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        self._queue: deque[tuple[int, Write]] = deque()
        self._durable: list[tuple[int, int]] = []
        self._publishing: deque[tuple[int, int, int, list[Row], bool]] = deque()
        self._published: list[tuple[int, int]] = []
        # Set when a crash left less than was acknowledged; the member must not vote again.
        self._damaged: dict[int, None] = {}
        # An error nobody was told of yet, and whether no sync has succeeded since.
        self._sync_error = False
        self._sync_failed = False
        self.writes = 0

    def _group(self, group: int) -> _Group:
        stored = self._groups.get(group)
        if stored is None:
            stored = self._groups[group] = _Group()
        return stored

    def load(self, group: int) -> Stored:
        if group in self._damaged:
            raise StorageDamaged(f"group {group}: acknowledged writes are missing")
        stored = self._group(group)
        for position, record in enumerate(stored.records):
            if not record.whole:
                # Only a write that was never acknowledged can be torn: it and what follows never was.
                del stored.records[position:]
                break
        index, term = stored.checkpoint
        records = stored.records
        if index > stored.cut + len(records) or (
            index > stored.cut and records[index - stored.cut - 1].entry.term != term
        ):
            # An installed checkpoint became visible before the log was reset to it.
            records.clear()
            stored.cut = index
        if stored.cut > index:
            raise StorageDamaged(f"group {group}: log starts after {stored.cut}, checkpoint is at {index}")
        return Stored(stored.term, stored.vote, stored.cut, [r.entry for r in records], index, term)

    def rows(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        rows = self._group(group).rows
        for key in sorted(rows):
            yield key, rows[key]

    def append(self, group: int, write: Write) -> None:
        self._queue.append((group, write))
        self.writes += 1

    def take_durable(self) -> list[tuple[int, int]]:
        if self._sync_error:
            self._sync_error = False
            raise StorageFailed("a sync failed; the node stops, nothing is acknowledged any more")
        durable, self._durable = self._durable, []
        return durable

    def read(self, group: int, first: int, last: int, bytes_max: int) -> list[Entry]:
        stored = self._group(group)
        if first <= stored.cut:
            return []
        found: list[Entry] = []
        size = 0
        for record in stored.records[first - stored.cut - 1 : last - stored.cut]:
            size += len(record.entry.data)
            if found and size > bytes_max:
                break
            found.append(record.entry)
        return found

    def cut(self, group: int, index: int) -> None:
        stored = self._group(group)
        assert index <= stored.checkpoint[0], "the log is cut only behind a visible checkpoint"
        if index > stored.cut:
            assert index - stored.cut <= len(stored.records), "only what is durable can be cut"
            del stored.records[: index - stored.cut]
            stored.cut = index

    def begin_checkpoint(self, group: int, whole: bool) -> None:
        stored = self._group(group)
        stored.staged = []
        stored.staged_whole = whole

    def put_rows(self, group: int, rows: Iterable[Row]) -> None:
        staged = self._group(group).staged
        assert staged is not None, "no checkpoint was begun"
        staged.extend(rows)

    def commit_checkpoint(self, group: int, index: int, term: int) -> None:
        stored = self._group(group)
        assert stored.staged is not None, "no checkpoint was begun"
        self._publishing.append((group, index, term, stored.staged, stored.staged_whole))
        stored.staged = None

    def take_checkpoints(self) -> list[tuple[int, int]]:
        published, self._published = self._published, []
        return published

    def open_stream(self, group: int) -> MemoryStream | None:
        stored = self._group(group)
        index, term = stored.checkpoint
        return MemoryStream(index, term, stored.rows) if index else None

    # The disk, driven by whoever owns the virtual time.

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def publishing(self) -> int:
        return len(self._publishing)

    def sync(self, count: int) -> None:
        """The `count` oldest queued writes reached the disk."""
        self._sync_failed = False
        acknowledged: dict[int, int] = {}
        for _ in range(count):
            group, write = self._queue.popleft()
            self._group(group).write(write)
            acknowledged[group] = write.seq
        self._durable.extend(acknowledged.items())

    def fail_sync(self, count: int) -> None:
        """The sync of the `count` oldest queued writes failed.

        As operating systems do it: the error is told once, the writes are gone, and the next sync succeeds.
        """
        for _ in range(count):
            self._queue.popleft()
        self._sync_error = self._sync_failed = True

    def sync_checkpoint(self) -> None:
        """The oldest committed checkpoint became visible."""
        group, index, term, staged, whole = self._publishing.popleft()
        self._group(group).publish(index, term, staged, whole)
        self._published.append((group, index))

    def crash(self, kept: int, torn: bool) -> None:
        """Power is cut: of the queued writes `kept` had reached the disk unacknowledged, the next is torn.

        A torn hard state leaves the one before; a torn batch is found by its checksum at load. Nothing
        reaches the disk after a failed sync.
        """
        if self._sync_failed:
            self._queue.clear()
        for position, (group, write) in enumerate(self._queue):
            stored = self._group(group)
            if position < kept:
                stored.write(write)
            elif position == kept and torn and write.entries and not write.reset_index:
                before = len(stored.records)
                if not write.truncate_from and write.entries[0].index == stored.cut + before + 1:
                    stored.records.extend(_Record(entry) for entry in write.entries)
                    stored.records[-1].tear()
            else:
                break
        self._queue.clear()
        self._publishing.clear()
        self._durable.clear()
        self._published.clear()
        self._sync_error = self._sync_failed = False
        for stored in self._groups.values():
            stored.staged = None

    def forget(self, group: int) -> None:
        """The disk lost acknowledged writes of a group: load says so from here on."""
        self._damaged[group] = None

    def wipe(self) -> None:
        """A new, empty disk."""
        self.__init__()  # type: ignore[misc]
