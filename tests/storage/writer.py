"""A process that writes a fixed plan to a storage and tells what was acknowledged; made to be killed.

The plan says what the storage holds after each of its steps, so whoever killed the writer can tell whether
what is found is the state after some step, and not after an earlier one than was acknowledged.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fastlock.storage.lmdb import LmdbStorage

from .drivers import IDENTITY, SMALL, entry, write

GROUPS = (1, 2)
CHECKPOINT_EVERY = 25

Log = tuple[tuple[int, int], ...]  # (index, term)


class Step(NamedTuple):
    """One write of the plan; term, vote and the whole log of its group after it."""

    group: int
    write: Any
    hard_state: tuple[int, int]
    log: Log


def plan(seed: int, count: int) -> list[Step]:
    """Writes of two groups: entries of all sizes, terms that rise, tails that are replaced."""
    random = Random(seed)
    logs: dict[int, list[tuple[int, int]]] = {group: [] for group in GROUPS}
    hard_states = dict.fromkeys(GROUPS, (0, 0))
    seqs = dict.fromkeys(GROUPS, 0)
    covered = dict.fromkeys(GROUPS, 0)  # by a checkpoint, perhaps: never replaced
    steps = []
    for number in range(count):
        group = random.choice(GROUPS)
        log = logs[group]
        changed = None
        truncate_from = 0
        if seqs[group] == 0 or random.random() < 0.1:
            changed = hard_states[group] = (hard_states[group][0] + 1, random.randint(1, 3))
            if len(log) > covered[group]:
                truncate_from = random.randint(covered[group] + 1, len(log))
                del log[truncate_from - 1 :]
        added = [(len(log) + 1 + at, hard_states[group][0]) for at in range(random.choice((0, 1, 1, 3)))]
        log += added
        seqs[group] += 1
        entries = [entry(index, term, random.choice((20, 200, 2500))) for index, term in added]
        made = write(seqs[group], entries, truncate_from=truncate_from, hard_state=changed)
        steps.append(Step(group, made, hard_states[group], tuple(log)))
        if number % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            covered = {other: len(logs[other]) for other in GROUPS}
    return steps


def checkpoint_rows(group: int, index: int) -> list[tuple[bytes, bytes]]:
    """What a checkpoint at `index` changes."""
    return [(b"at %d" % (index % 7), b"%d of %d " % (index, group) * 40), (b"row", b"%d" % index)]


class Writer:
    """Writes the steps of a plan with a few writes in flight, with checkpoints and cuts in between."""

    def __init__(
        self, storage: LmdbStorage, steps: list[Step], start: int, tell: Callable[[int], object]
    ) -> None:
        self.storage = storage
        self.steps = steps
        self.issued = start  # steps
        self.told = start
        self.tell = tell
        self.flying: list[int] = []

    def run(self) -> None:
        while self.issued < len(self.steps):
            step = self.steps[self.issued]
            self.flying.append(self.issued)
            self.issued += 1
            self.storage.append(step.group, step.write)
            self.settle(self.issued % 4)
            if self.issued % CHECKPOINT_EVERY == 0:
                self.settle(0)
                self.checkpoint()
        self.settle(0)

    def settle(self, flying_max: int) -> None:
        """Waits until no more writes than that are in flight, and tells how many steps are durable."""
        while len(self.flying) > flying_max:
            select.select([self.storage], [], [])
            durable = dict(self.storage.take_durable())
            self.flying = [at for at in self.flying if not self.is_in(durable, self.steps[at])]
            for group, index in self.storage.take_checkpoints():
                self.storage.cut(group, index)
        done = min(self.flying, default=self.issued)
        if done > self.told:
            self.told = done
            self.tell(done)

    def is_in(self, durable: dict[int, int], step: Step) -> bool:
        return step.write.seq <= durable.get(step.group, 0)

    def checkpoint(self) -> None:
        for group in GROUPS:
            logs = [step.log for step in self.steps[: self.issued] if step.group == group]
            if logs and logs[-1]:
                index, term = logs[-1][-1]
                self.storage.begin_checkpoint(group, False)
                self.storage.put_rows(group, checkpoint_rows(group, index))
                self.storage.commit_checkpoint(group, index, term)


def found_step(storage: LmdbStorage, steps: list[Step], at_least: int) -> int:
    """After how many steps of the plan, `at_least` or more, this is what the storage holds."""
    stored = {group: storage.load(group) for group in GROUPS}
    for group in GROUPS:
        check_rows(storage, group, stored[group])
    state: dict[int, tuple[tuple[int, int], Log]] = dict.fromkeys(GROUPS, ((0, 0), ()))
    for number in range(len(steps) + 1):
        if number >= at_least and all(fits(stored[group], *state[group]) for group in GROUPS):
            return number
        if number < len(steps):
            state[steps[number].group] = (steps[number].hard_state, steps[number].log)
    raise AssertionError(f"{at_least} writes were acknowledged, and this is no state after them: {stored}")


def fits(stored: Any, hard_state: tuple[int, int], log: Log) -> bool:
    return (
        (stored.term, stored.vote) == hard_state
        and [(found.index, found.term) for found in stored.entries] == list(log[stored.cut_index :])
        and all(found.data == entry(found.index, found.term, len_of(found)).data for found in stored.entries)
        and stored.checkpoint_index <= len(log)
        and (stored.checkpoint_index == 0 or log[stored.checkpoint_index - 1][1] == stored.checkpoint_term)
    )


def len_of(found: Any) -> int:
    return len(found.data) - len(b"%d" % found.index)


def check_rows(storage: LmdbStorage, group: int, stored: Any) -> None:
    rows = dict(storage.rows(group))
    possible = {
        row for index in range(1, stored.checkpoint_index + 1) for row in checkpoint_rows(group, index)
    }
    assert rows.items() <= possible
    if stored.checkpoint_index:
        assert dict(checkpoint_rows(group, stored.checkpoint_index)).items() <= rows.items()


def main(directory: str, seed: int, count: int, start: int) -> None:
    storage = LmdbStorage(Path(directory), IDENTITY, SMALL)
    Writer(storage, plan(seed, count), start, lambda done: os.write(1, b"%d\n" % done)).run()
    storage.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
