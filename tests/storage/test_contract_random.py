"""Random sequences of operations against the most obvious model, reopened in between."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fastlock.storage.rowpack import unpack_rows

from .drivers import entry, write

GROUPS = (0, 1, 7)
KEYS = [
    b"\x01",
    b"\x02k",
    *(b"\x04%d" % number for number in range(12)),
    b"\x04" + b"x" * 600,
    b"\x04" + b"x" * 601,
]


class Group:
    """One group as lists and dicts."""

    def __init__(self) -> None:
        self.seq = 0
        self.hard_state = (0, 0)
        self.cut = 0
        self.entries: list[Any] = []
        self.rows: dict[bytes, bytes] = {}
        self.checkpoint = (0, 0)

    @property
    def last(self) -> int:
        return self.cut + len(self.entries)


class Play:
    """Does the same to a storage and to the model."""

    def __init__(self, driver: Any, seed: int) -> None:
        self.driver = driver
        self.random = Random(seed)
        self.groups = {number: Group() for number in GROUPS}
        self.term = 1

    def step(self) -> None:
        number = self.random.choice(GROUPS)
        actions = (
            [self.append] * 6
            + [self.changes] * 2
            + [self.cut, self.read, self.stream, self.install, self.reopen]
        )
        self.random.choice(actions)(number, self.groups[number])

    def entries(self, group: Group, after: int) -> list[Any]:
        count = self.random.choice((0, 1, 1, 2, 5))
        sizes = (0, 30, 300, 3000)
        return [entry(after + 1 + at, self.term, self.random.choice(sizes)) for at in range(count)]

    def append(self, number: int, group: Group) -> None:
        group.seq += 1
        truncate_from = 0
        hard_state = None
        if self.random.random() < 0.3:
            self.term += 1
            hard_state = group.hard_state = (self.term, self.random.randint(0, 3))
        lowest = max(group.cut, group.checkpoint[0]) + 1
        if self.random.random() < 0.3 and lowest <= group.last:
            truncate_from = self.random.randint(lowest, group.last)
            del group.entries[truncate_from - group.cut - 1 :]
        entries = self.entries(group, group.last)
        group.entries += entries
        self.driver.storage.append(
            number, write(group.seq, entries, truncate_from=truncate_from, hard_state=hard_state)
        )

    def some_rows(self) -> dict[bytes, bytes | None]:
        chosen = self.random.sample(KEYS, self.random.randint(0, len(KEYS)))
        return {
            key: None
            if self.random.random() < 0.3
            else self.random.randbytes(self.random.choice((0, 9, 700)))
            for key in chosen
        }

    def put(self, number: int, whole: bool, rows: dict[bytes, bytes | None]) -> None:
        storage = self.driver.storage
        if self.random.random() < 0.2:
            storage.begin_checkpoint(number, self.random.random() < 0.5)
            storage.put_rows(number, [(b"never", b"seen")])
        storage.begin_checkpoint(number, whole)
        items = list(rows.items())
        half = len(items) // 2
        storage.put_rows(number, items[:half])
        storage.put_rows(number, items[half:])

    def changes(self, number: int, group: Group) -> None:
        self.driver.settle()
        lowest = max(group.cut, group.checkpoint[0])
        if lowest >= group.last:
            return
        index = self.random.randint(lowest + 1, group.last)
        rows = self.some_rows()
        self.put(number, False, rows)
        group.checkpoint = (index, group.entries[index - group.cut - 1].term)
        self.driver.storage.commit_checkpoint(number, *group.checkpoint)
        merged = {**group.rows, **rows}
        group.rows = {key: row for key, row in merged.items() if row is not None}

    def install(self, number: int, group: Group) -> None:
        """A snapshot from another member, and the reset of the log that follows it."""
        index = group.last + self.random.randint(1, 50)
        rows = self.some_rows()
        self.put(number, True, rows)
        group.checkpoint = (index, self.term)
        self.driver.storage.commit_checkpoint(number, *group.checkpoint)
        self.driver.settle()
        group.rows = {key: row for key, row in rows.items() if row is not None}
        group.seq += 1
        group.cut = index
        group.entries = self.entries(group, index)
        self.driver.storage.append(number, write(group.seq, group.entries, reset=group.checkpoint))
        group.entries = list(group.entries)

    def cut(self, number: int, group: Group) -> None:
        self.driver.settle()
        index = self.random.randint(0, group.checkpoint[0])
        self.driver.storage.cut(number, index)
        if index > group.cut:
            del group.entries[: index - group.cut]
            group.cut = index

    def read(self, number: int, group: Group) -> None:
        self.driver.settle()
        first = self.random.randint(max(1, group.cut - 3), group.last + 2)
        last = self.random.randint(first, group.last + 5)
        bytes_max = self.random.choice((1, 400, 1 << 20))
        expected: list[Any] = []
        size = 0
        for found in group.entries if first > group.cut else []:
            if first <= found.index <= last:
                size += len(found.data)
                if expected and size > bytes_max:
                    break
                expected.append(found)
        assert same(self.driver.storage.read(number, first, last, bytes_max), expected)

    def stream(self, number: int, group: Group) -> None:
        self.driver.settle()
        stream = self.driver.storage.open_stream(number)
        if group.checkpoint[0] == 0:
            assert stream is None
            return
        assert (stream.index, stream.term) == group.checkpoint
        rows: list[tuple[bytes, bytes]] = []
        offset, last = 0, False
        while not last:
            chunk, last = stream.chunk(offset, self.random.choice((1, 500, 1 << 20)))
            rows += unpack_rows(chunk)
            offset += len(chunk)
        assert len(rows) == len(group.rows)
        assert dict(rows) == group.rows
        stream.close()

    def reopen(self, number: int, group: Group) -> None:
        self.driver.reopen()
        for other in self.groups.values():
            other.seq = 0
        self.compare()

    def compare(self) -> None:
        for number, group in self.groups.items():
            stored = self.driver.storage.load(number)
            assert (stored.term, stored.vote) == group.hard_state
            assert stored.cut_index == group.cut
            assert same(stored.entries, group.entries)
            assert (stored.checkpoint_index, stored.checkpoint_term) == group.checkpoint
            assert list(self.driver.storage.rows(number)) == sorted(group.rows.items())


def same(left: Any, right: Any) -> bool:
    return [(e.term, e.index, e.kind, e.data) for e in left] == [
        (e.term, e.index, e.kind, e.data) for e in right
    ]


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_operations_leaves_what_the_model_has(driver, seed):
    play = Play(driver, seed)
    for _ in range(150):
        play.step()
    play.driver.reopen()
    play.compare()
