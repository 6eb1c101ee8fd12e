"""What durability costs: the time from a queued write to its acknowledgement, also beside a checkpoint."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Figures
from pytest_benchmark.fixture import BenchmarkFixture

from fastlock._core.raft_message import ENTRY_BATCH, Entry
from fastlock.storage.directory import Identity
from fastlock.storage.lmdb import LmdbStorage

ENTRY_BYTES = 1000  # about a dozen commands
WRITES = 1000
NOTHING_ELSE = dict.fromkeys(("hard_state", "term", "vote", "reset_index", "reset_term", "truncate_from"), 0)
ROW_COUNT = 100_000
ROWS_PER_SLICE = 1024
# Log and table have one disk between them; the design measured 27 ms.
DELAY_MS_MAX = 100.0


class Disk:
    """A storage and one group that writes to it, as the loop of a node would."""

    def __init__(self, directory: Path) -> None:
        self.storage = LmdbStorage(directory, Identity(1, 1, 1))
        self.poll = select.poll()
        self.poll.register(self.storage.fileno(), select.POLLIN)
        self.seq = 0
        self.index = 0
        self.visible: list[tuple[int, int]] = []

    def queue(self, entry_count: int) -> float:
        """Seconds that it takes the loop to queue a write of that many entries."""
        self.seq += 1
        data = os.urandom(ENTRY_BYTES)
        entries = [Entry(1, self.index + 1 + at, ENTRY_BATCH, data) for at in range(entry_count)]
        self.index += entry_count
        made: Any = SimpleNamespace(seq=self.seq, entries=entries, **NOTHING_ELSE)
        started = time.perf_counter()
        self.storage.append(1, made)
        return time.perf_counter() - started

    def settle(self) -> None:
        while not self.storage.take_durable():
            self.visible += self.storage.take_checkpoints()
            self.poll.poll()

    def write(self, entry_count: int) -> float:
        """Seconds until a write of that many entries is durable."""
        started = time.perf_counter()
        self.queue(entry_count)
        self.settle()
        return time.perf_counter() - started


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "data")
    yield made
    made.storage.close()


def quantile_ms(times: list[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)] * 1000


def raw_sync_ms(path: Path) -> float:
    """What the disk itself takes for one small write and its sync."""
    times = []
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        for number in range(200):
            started = time.perf_counter()
            os.pwrite(file.fileno(), bytes(4096), number * 4096)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return quantile_ms(times, 0.5)


@pytest.mark.parametrize("entry_count", [1, 64])
def test_durable_write(
    benchmark: BenchmarkFixture, figures: Figures, disk: Disk, tmp_path: Path, entry_count: int
) -> None:
    times: list[float] = []
    benchmark.pedantic(lambda: times.append(disk.write(entry_count)), rounds=WRITES, warmup_rounds=20)
    name = f"storage: write of {entry_count} × {ENTRY_BYTES} bytes until durable"
    figures.record(f"{name}, p50", quantile_ms(times, 0.5), "ms")
    figures.record(f"{name}, p99", quantile_ms(times, 0.99), "ms")
    figures.record(f"{name}, one after the other", len(times) / sum(times), "/s")
    figures.record("storage: 4 KiB written and synced without LMDB, p50", raw_sync_ms(tmp_path / "raw"), "ms")


def worst_beside(disk: Disk, begin: Callable[[], None]) -> tuple[float, float]:
    """(longest write in seconds, seconds until the checkpoint was visible) while one is written."""
    disk.write(1)
    begin()
    started = time.perf_counter()
    worst = 0.0
    disk.visible.clear()
    while not disk.visible:
        worst = max(worst, disk.write(1))
        disk.visible += disk.storage.take_checkpoints()
    return worst, time.perf_counter() - started


@pytest.mark.parametrize("whole", [False, True], ids=["changes", "whole"])
def test_writes_beside_a_checkpoint(
    benchmark: BenchmarkFixture, figures: Figures, disk: Disk, whole: bool
) -> None:
    rows = [(b"\x04%032x" % number, os.urandom(150)) for number in range(ROW_COUNT)]
    measured: list[tuple[float, float]] = []

    def begin() -> None:
        disk.storage.begin_checkpoint(1, whole)
        for at in range(0, ROW_COUNT, ROWS_PER_SLICE):
            disk.storage.put_rows(1, rows[at : at + ROWS_PER_SLICE])
        disk.storage.commit_checkpoint(1, disk.index, 1)

    benchmark.pedantic(lambda: measured.append(worst_beside(disk, begin)), rounds=3)
    kind = "a whole checkpoint" if whole else "a checkpoint of changes"
    worst_s, took_s = min(measured)
    name = f"storage: {kind} of {ROW_COUNT:,} rows"
    figures.record(f"{name}, longest write beside it", worst_s * 1000, "ms", bar=DELAY_MS_MAX)
    figures.record(f"{name}, until visible", took_s * 1000, "ms")


def test_queueing_a_write(benchmark: BenchmarkFixture, figures: Figures, disk: Disk) -> None:
    times: list[float] = []
    benchmark.pedantic(lambda: times.append(disk.queue(1)), teardown=disk.settle, rounds=300)
    figures.record("storage: queueing a write on the loop, p50", quantile_ms(times, 0.5) * 1e6, "ns")
