"""The two storages under one roof, so that one suite can ask the same of both."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastlock._core.raft_message import ENTRY_BATCH, Entry
from fastlock.storage.directory import Identity
from fastlock.storage.lmdb import LmdbStorage, StorageLimits
from fastlock.storage.memory import MemoryStorage

IDENTITY = Identity(cluster=0xC0FFEE << 64 | 7, node=1, incarnation=1)
SMALL = StorageLimits(log_map_bytes=1 << 20, table_map_bytes=1 << 20)
WAIT_S_MAX = 60.0


def entry(index: int, term: int = 1, size: int = 40) -> Entry:
    return Entry(term, index, ENTRY_BATCH, (b"%d.%d|" % (term, index) * size)[:size] + b"%d" % index)


def write(
    seq: int, entries: Any = (), *, truncate_from: int = 0, hard_state: Any = None, reset: Any = (0, 0)
) -> Any:
    """A write as Raft hands it over."""
    term, vote = hard_state or (0, 0)
    return SimpleNamespace(
        seq=seq,
        hard_state=hard_state is not None,
        term=term,
        vote=vote,
        reset_index=reset[0],
        reset_term=reset[1],
        truncate_from=truncate_from,
        entries=list(entries),
    )


def wait_until(storage: LmdbStorage, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_done():
        assert time.monotonic() < deadline, "the storage does not get on"
        select.select([storage], [], [], 0.01)


class MemoryDriver:
    """The twin: its disk works when told to."""

    def __init__(self) -> None:
        self.storage: Any = MemoryStorage()

    def settle(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        self.storage.sync(self.storage.queued)
        while self.storage.publishing:
            self.storage.sync_checkpoint()
        return self.storage.take_durable(), self.storage.take_checkpoints()

    def reopen(self) -> None:
        self.settle()
        self.storage.crash(kept=0, torn=False)

    def close(self) -> None:
        pass


class LmdbDriver:
    """LMDB in a directory of its own."""

    def __init__(self, directory: Path, limits: StorageLimits = SMALL) -> None:
        self.directory = directory
        self.limits = limits
        self.storage: Any = LmdbStorage(directory, IDENTITY, limits)

    def settle(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Waits until nothing is queued; what was acknowledged meanwhile."""
        storage = self.storage
        durable: dict[int, int] = {}
        visible: list[tuple[int, int]] = []

        def is_done() -> bool:
            durable.update(storage.take_durable())
            visible.extend(storage.take_checkpoints())
            return storage.figures()["log_queued_writes"] == 0 and storage.figures()["checkpoint_jobs"] == 0

        wait_until(storage, is_done)
        return list(durable.items()), visible

    def reopen(self) -> None:
        self.storage.close()
        self.storage = LmdbStorage(self.directory, IDENTITY, self.limits)

    def close(self) -> None:
        self.storage.close()
