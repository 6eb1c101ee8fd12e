"""A node's storage on LMDB: the log and the table, each written by a native thread of its own.

The loop never waits for the disk: writes and checkpoints are queued, and the descriptor of `fileno` becomes
readable when something became durable. Only starting reads everything there is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from fastlock._core.raft import Write
from fastlock._core.raft_message import Entry
from fastlock.storage import Row, StorageDamaged, Stored, Stream
from fastlock.storage.directory import DirectoryLock, Identity, claim_directory, open_environment
from fastlock.storage.dump import Dump
from fastlock.storage.log_reader import read_entries, read_groups
from fastlock.storage.log_thread import LogThread
from fastlock.storage.table_reader import RowReader, read_checkpoints, read_generations
from fastlock.storage.table_thread import TableThread

# Dumps of checkpoints at one time; whoever wants another one asks again later.
STREAMS_MAX = 8
# Rows that are read at a time. Longer keys than this share a run (see records.pxd).
_ROWS_PER_READ = 1024
_LONG_KEY_HEAD_BYTES = 464
_EVERYTHING = 1 << 62


class StorageLimits(NamedTuple):
    """How large the files may become. They start small and double; the reserve is for what frees space."""

    log_map_bytes: int = 64 << 20
    log_map_bytes_max: int = 16 << 30
    table_map_bytes: int = 64 << 20
    table_map_bytes_max: int = 64 << 30
    # Below these, commands that add state should be refused.
    map_reserve_bytes: int = 256 << 20
    disk_reserve_bytes: int = 512 << 20


class LmdbStorage:
    """One node's storage in a directory that is made if it is not there.

    Raises a DirectoryError if the directory is another's or in use, StorageDamaged if it cannot be trusted.
    """

    def __init__(
        self, directory: Path | str, identity: Identity, limits: StorageLimits | None = None
    ) -> None:
        self._directory = Path(directory)
        self._limits = limits or StorageLimits()
        with ExitStack() as opened:
            self._open(identity, opened)
            self._opened = opened.pop_all()

    def _open(self, identity: Identity, opened: ExitStack) -> None:
        limits = self._limits
        lock = DirectoryLock(self._directory)
        opened.callback(lock.close)
        self._log_environment = open_environment(
            self._directory / "log", limits.log_map_bytes, limits.log_map_bytes_max
        )
        opened.callback(self._log_environment.close)
        self._table_environment = open_environment(
            self._directory / "table", limits.table_map_bytes, limits.table_map_bytes_max
        )
        opened.callback(self._table_environment.close)
        stored = claim_directory(self._directory, self._log_environment, self._table_environment, identity)
        self.identity = stored.identity
        self._start(stored.secret, opened)

    def _start(self, secret: int, opened: ExitStack) -> None:
        """Starts the two threads on what the environments hold."""
        groups = read_groups(self._log_environment)
        checkpoints = read_checkpoints(self._table_environment)
        visible = {(group, generation) for group, generation, *_ in checkpoints}
        orphans = [pair for pair in read_generations(self._table_environment) if pair not in visible]
        self._cut = {group: cut_index for group, _, _, cut_index, _ in groups}
        self._checkpoints = {group: (index, term) for group, _, index, term, _, _ in checkpoints}
        self._staged_whole: dict[int, bool] = {}
        self._streams: list[Dump] = []
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        opened.callback(os.close, self._event_fd)
        directory_fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, directory_fd)
        self._log = LogThread(self._log_environment, groups, self._event_fd, directory_fd)
        opened.callback(self._log.close)
        self._table = TableThread(self._table_environment, secret, checkpoints, orphans, self._event_fd)
        opened.callback(self._table.close)
        opened.callback(self._close_streams)

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()

    def close(self) -> None:
        """Makes durable what is queued, and lets go of the directory."""
        self._opened.close()

    def fileno(self) -> int:
        """Readable when take_durable or take_checkpoints has something to tell, or to raise."""
        return self._event_fd

    # The log

    def load(self, group: int) -> Stored:
        index, term = self._checkpoints.get(group, (0, 0))
        found = [record for record in read_groups(self._log_environment) if record[0] == group]
        _, hard_term, vote, cut, last = found[0] if found else (group, 0, 0, 0, 0)
        read = read_entries(self._log_environment, group, cut + 1, last, _EVERYTHING)
        if len(read) != last - cut:
            raise StorageDamaged(
                f"{self._log_environment.path}: entry {cut + 1 + len(read)} of group {group} is missing"
            )
        entries = [Entry(*record) for record in read]
        if index > last or (index > cut and entries[index - cut - 1].term != term):
            # An installed checkpoint became visible before the log was reset to it.
            entries, cut = [], index
        if cut > index:
            raise StorageDamaged(
                f"{self._directory}: the log of group {group} starts after {cut}, "
                f"its checkpoint is at {index}"
            )
        return Stored(hard_term, vote, cut, entries, index, term)

    def append(self, group: int, write: Write) -> None:
        self._log.append(group, write)
        if write.reset_index:
            self._cut[group] = write.reset_index

    def take_durable(self) -> list[tuple[int, int]]:
        with suppress(BlockingIOError):
            os.eventfd_read(self._event_fd)
        self._table.raise_if_failed()
        return self._log.take_durable()

    def read(self, group: int, first: int, last: int, bytes_max: int) -> list[Entry]:
        if first <= self._cut.get(group, 0):
            return []
        return [
            Entry(*record) for record in read_entries(self._log_environment, group, first, last, bytes_max)
        ]

    def cut(self, group: int, index: int) -> None:
        assert index <= self._checkpoints.get(group, (0, 0))[0], (
            "the log is cut only behind a visible checkpoint"
        )
        if index > self._cut.get(group, 0):
            self._cut[group] = index
            self._log.cut(group, index)

    # The table

    def rows(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        reader = RowReader(self._table_environment, group)
        try:
            while rows := reader.take(_ROWS_PER_READ):
                for _, run in groupby(rows, lambda row: row[0][:_LONG_KEY_HEAD_BYTES]):
                    yield from sorted(run)
        finally:
            reader.close()

    def begin_checkpoint(self, group: int, whole: bool) -> None:
        self._staged_whole[group] = whole
        self._table.begin(group, whole)

    def put_rows(self, group: int, rows: Iterable[Row]) -> None:
        self._table.put_rows(group, rows)

    def commit_checkpoint(self, group: int, index: int, term: int) -> None:
        durable = max(self._log.durable_index(group), self._checkpoints.get(group, (0, 0))[0])
        assert self._staged_whole[group] or index <= durable, (
            "a checkpoint never gets ahead of the durable log"
        )
        self._table.commit(group, index, term)

    def take_checkpoints(self) -> list[tuple[int, int]]:
        visible = self._table.take_checkpoints()
        self._checkpoints.update((group, (index, term)) for group, index, term in visible)
        return [(group, index) for group, index, _ in visible]

    def open_stream(self, group: int) -> Stream | None:
        self._streams = [stream for stream in self._streams if not stream.closed]
        if not self._checkpoints.get(group, (0, 0))[0] or len(self._streams) >= STREAMS_MAX:
            return None
        file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - the dump closes it
        stream = Dump(self._table_environment, group, file)
        self._streams.append(stream)
        return stream

    # How it is doing

    @property
    def below_reserve(self) -> bool:
        """Space is short: refuse what adds state, and let go of leadership."""
        reserve = self._limits.map_reserve_bytes
        return self._log.disk_free_bytes < self._limits.disk_reserve_bytes or any(
            environment.map_bytes_max - environment.used_bytes < reserve
            for environment in (self._log_environment, self._table_environment)
        )

    def figures(self) -> dict[str, int]:
        """Counters for metrics and status."""
        return {
            "log_commits": self._log.commits,
            "log_commit_ns_total": self._log.commit_ns_total,
            "log_commit_ns_max": self._log.commit_ns_max,
            "log_queued_writes": self._log.queued_writes,
            "log_queued_bytes": self._log.queued_bytes,
            "log_used_bytes": self._log_environment.used_bytes,
            "log_map_bytes": self._log_environment.map_bytes,
            "table_used_bytes": self._table_environment.used_bytes,
            "table_map_bytes": self._table_environment.map_bytes,
            "checkpoint_jobs": self._table.queued_jobs,
            "checkpoint_backlog_bytes": self._table.backlog_bytes,
            "disk_free_bytes": self._log.disk_free_bytes,
        }
