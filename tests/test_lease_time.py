"""Leases, sessions and delays end on time: never early, at most one tick of the wheel late.

A virtual clock drives the table and a model of deadlines side by side. A node that led before may remember
a later deadline than the log gives a new leader, so the model has an earliest and a latest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import pytest
from commands import CODE_NAMES, CREATE, KIND_NAMES, NO_EXPIRY_TTL_MS, Command, acquire, own
from hypothesis import given, settings
from hypothesis import strategies as st
from lockstep import Lockstep

from fastlock._core.locktable import Due
from fastlock._core.timers import TICK_MS

KEYS = (b"{t}1", b"{t}2", b"a")
LEASES = range(1, 7)
TTLS_MS = (1_000, 50, 57, 200, 5_000, 60_000, 3_600_000, 31_536_000_000, NO_EXPIRY_TTL_MS)
ADVANCES_MS = (1, 0, 7, 8, 9, 50, 300, 1_000, 10_000, 1_000_000, 40_000_000_000)
DELAYS_MS = (0, 1, 300, 60_000)
NOTED_TTL_MS_MIN = 60_000
DUE_BATCHES = (1, 2, 1_000)
SEED_TOTAL = 250
STEP_TOTAL = 80

T = TypeVar("T")
Step = tuple[int, int, int]
Name = tuple[str, int | bytes]


@dataclass
class Timer:
    earliest_ms: int
    latest_ms: int
    is_reported: bool = False
    # A note of what remains was asked for and is under way.
    is_noting: bool = False
    # An outdated proposal was refused while a current one is under way: it may be said again.
    may_repeat: bool = False


class Clocked:
    """A group under a virtual clock, and when each of its timers has to end."""

    def __init__(self) -> None:
        self.group = Lockstep()
        self.timers: dict[Name, Timer] = {}
        self.proposals: list[Command] = []
        self.is_leading = False
        self.run(*own(*KEYS))

    # What the timers should be

    def run(self, *commands: Command) -> None:
        """Applies one entry, then arms what it changed."""
        model = self.group.model
        before = self._marks()
        refused = []
        for command, reply in zip(commands, self.group.run(*commands), strict=True):
            if reply.code == "staleGeneration":
                refused.append(command)
        now_ms = self.group.now_ms
        after = self._marks()
        for name in before.keys() - after.keys():
            del self.timers[name]
        for name, mark in after.items():
            if before.get(name) != mark and not self._only_noted(name, commands):
                deadline_ms = now_ms + self._full_ms(name)
                self.timers[name] = Timer(deadline_ms, deadline_ms)
            elif before.get(name) != mark:
                # An expire of the generation before the note will be refused: it has to be said again.
                self.timers[name].is_noting = self.timers[name].is_reported = False
        for command in refused:
            name = name_of(command)
            timer = self.timers[name]
            timer.may_repeat = timer.is_reported
        assert set(self.timers) == set(after)
        assert all(lease.generation for lease in model.leases.values())

    def _only_noted(self, name: Name, commands: Sequence[Command]) -> bool:
        """What a note says the leader's own timer knows better."""
        noted = {name_of(command) for command in commands if command.kind == "noteRemaining"}
        return self.is_leading and name in noted

    def _marks(self) -> dict[Name, int]:
        """Every timer there should be, with what makes its expiry stale."""
        model = self.group.model
        leases = {("expire", one.id): one.generation for one in model.leases.values()}
        sessions = {("expireSession", one.id): one.uses for one in model.sessions.values()}
        delays = {("endDelay", one.key): one.delay_generation for one in model.rows.values() if one.delay_ms}
        return {**leases, **sessions, **delays}

    def _full_ms(self, name: Name) -> int:
        kind, identity = name
        if kind == "expire":
            lease = self.group.model.leases[int(identity)]
            return lease.remaining_ms or lease.ttl_ms
        if kind == "expireSession":
            return self.group.model.sessions[int(identity)].lifetime_ms
        return self.group.model.rows[bytes(identity)].delay_ms  # type: ignore[arg-type]

    # What happens

    def step(self, step: Step) -> None:
        what, first, second = step
        ACTIONS[what % len(ACTIONS)](self, first, second)

    def advance(self, first: int, second: int) -> None:
        self.group.now_ms += pick(ADVANCES_MS, first)
        if self.is_leading:
            self.drain(pick(DUE_BATCHES, second))

    def drain(self, batch: int) -> None:
        """Takes everything due; checks that it is due, said once, and that nothing else is."""
        now_ms = self.group.now_ms
        marks = self._marks()
        while True:
            due = self.group.table.due(now_ms, batch)
            assert len(due) <= batch
            for one in due:
                command = command_of(one)
                assert one.generation == marks[name_of(command)]
                self._check_due(command, self.timers[name_of(command)])
                self.proposals.append(command)
            if not due and not self.group.table.timers_late(now_ms):
                break
        under_way = {name_of(command) for command in self.proposals}
        late = [
            name for name, timer in self.timers.items() if is_late(timer, now_ms) and name not in under_way
        ]
        assert late == []

    def _check_due(self, command: Command, timer: Timer) -> None:
        now_ms = self.group.now_ms
        assert not timer.is_reported or timer.may_repeat
        if command.kind == "noteRemaining":
            assert timer.earliest_ms <= now_ms + command.remaining_ms <= timer.latest_ms
            assert self.group.model.leases[command.lease].ttl_ms > NOTED_TTL_MS_MIN
            timer.is_noting = True
        else:
            assert timer.earliest_ms <= now_ms
            timer.is_reported = True

    def lead(self, first: int, second: int) -> None:
        self.group.table.follow()
        if first % 3 == 0:
            self.group.now_ms += pick(ADVANCES_MS, second)
        self.group.table.lead(self.group.now_ms)
        self.is_leading = True
        self.proposals.clear()
        for name in self.timers:
            deadline_ms = self.group.now_ms + self._full_ms(name)
            self.timers[name] = Timer(deadline_ms, max(deadline_ms, self.timers[name].latest_ms))

    def follow(self, first: int, second: int) -> None:
        self.group.table.follow()
        self.is_leading = False
        self.proposals.clear()
        assert self.group.table.due(self.group.now_ms, 100) == []

    def skip_time(self, first: int, second: int) -> None:
        """The process stood still; the clock did not."""
        if not self.is_leading:
            return
        gap_ms = pick(ADVANCES_MS, first)
        self.group.now_ms += gap_ms
        self.group.table.skip_time(gap_ms)
        for timer in self.timers.values():
            if not timer.is_reported:
                timer.earliest_ms += gap_ms
                timer.latest_ms += gap_ms

    def keep_alive(self, first: int, second: int) -> None:
        if not self.is_leading:
            return
        lease = pick(LEASES, first)
        timer = self.timers.get(("expire", lease))
        kept = self.group.table.keep_alive(0, lease, self.group.now_ms)
        assert CODE_NAMES[kept.code] == ("ok" if timer else "leaseLost")
        if not timer:
            return
        assert kept.expiring == timer.is_reported or timer.may_repeat
        if kept.expiring:
            return
        held = self.group.model.leases[lease]
        # Once a shorter time is in the log, or on its way there, a new leader would give no more than that.
        assert kept.noted or not (held.remaining_ms or timer.is_noting)
        timer.earliest_ms = timer.latest_ms = self.group.now_ms + held.ttl_ms
        if kept.noted and second % 4:
            self.run(Command("noteRemaining", lease=lease, generation=held.generation, remaining_ms=0))

    def create(self, first: int, second: int) -> None:
        lease = pick(LEASES, first)
        if lease not in self.group.model.leases:
            self.run(Command("createLease", lease=lease, ttl_ms=pick(TTLS_MS, second)))
        else:
            self.run(Command("changeTtl", lease=lease, ttl_ms=pick(TTLS_MS, second)))

    def acquire(self, first: int, second: int) -> None:
        lease = pick(LEASES, first)
        creating = {"lease_use": CREATE, "ttl_ms": pick(TTLS_MS, second)}
        more = {} if lease in self.group.model.leases else creating
        self.run(acquire(pick(KEYS, second), lease, second % 2, lock_delay_ms=pick(DELAYS_MS, first), **more))

    def use_session(self, first: int, second: int) -> None:
        sessions = sorted(self.group.model.sessions)
        if len(sessions) < 2:
            self.run(Command("openSession", lifetime_ms=pick((60_000, 90_000), first)))
            return
        put = Command("putValue", key=KEYS[0], session=pick(sessions, first), sequence=second % 4)
        self.run(put)

    def propose(self, first: int, second: int) -> None:
        """Some of what was due commits, in whatever order; the rest is still under way."""
        while self.proposals and first % 4:
            self.run(self.proposals.pop(second % len(self.proposals)))
            first -= 1


ACTIONS = (
    Clocked.advance,
    Clocked.create,
    Clocked.lead,
    Clocked.keep_alive,
    Clocked.acquire,
    Clocked.propose,
    Clocked.advance,
    Clocked.use_session,
    Clocked.skip_time,
    Clocked.propose,
    Clocked.advance,
    Clocked.follow,
)


def pick(options: Sequence[T], number: int) -> T:
    return options[number % len(options)]


def is_late(timer: Timer, now_ms: int) -> bool:
    return timer.latest_ms + TICK_MS <= now_ms


def name_of(command: Command) -> Name:
    if command.kind in ("expire", "noteRemaining"):
        return "expire", command.lease
    if command.kind == "expireSession":
        return command.kind, command.target
    assert command.kind == "endDelay"
    return command.kind, command.key


def command_of(due: Due) -> Command:
    kind = KIND_NAMES[due.kind]
    if kind == "expire":
        return Command(kind, lease=due.lease_high << 64 | due.lease_low, generation=due.generation)
    if kind == "noteRemaining":
        lease = due.lease_high << 64 | due.lease_low
        return Command(kind, lease=lease, generation=due.generation, remaining_ms=due.amount_ms)
    if kind == "expireSession":
        return Command(kind, target=due.session, uses=due.generation)
    assert kind == "endDelay"
    return Command(kind, key=due.key, generation=due.generation)


def run_steps(drawn: Sequence[Step]) -> None:
    clocked = Clocked()
    clocked.lead(1, 0)
    for step in drawn:
        clocked.step(step)


@given(st.lists(st.tuples(*(st.integers(0, 255),) * 3), max_size=STEP_TOTAL))
@settings(max_examples=100)
def test_timers_are_on_time_in_drawn_histories(drawn: list[Step]) -> None:
    run_steps(drawn)


@pytest.mark.parametrize("part", range(4))
def test_timers_are_on_time_in_seeded_histories(part: int) -> None:
    for seed in range(part * SEED_TOTAL, (part + 1) * SEED_TOTAL):
        random = Random(seed)
        drawn = [
            (random.randrange(256), random.randrange(256), random.randrange(256)) for _ in range(STEP_TOTAL)
        ]
        try:
            run_steps(drawn)
        except BaseException as error:
            error.add_note(f"seed {seed}: run_steps({drawn})")
            raise


def test_a_lease_is_due_at_its_ttl_and_not_a_millisecond_earlier() -> None:
    clocked = Clocked()
    clocked.lead(1, 0)
    clocked.run(Command("createLease", lease=1, ttl_ms=1_000))
    assert clocked.group.table.due(999, 10) == []
    assert [one.lease_low for one in clocked.group.table.due(1_000 + TICK_MS, 10)] == [1]
    assert clocked.group.table.due(5_000, 10) == []


def test_a_lease_without_expiry_is_never_due() -> None:
    clocked = Clocked()
    clocked.run(Command("createLease", lease=1, ttl_ms=NO_EXPIRY_TTL_MS))
    clocked.group.table.lead(0)
    assert clocked.group.table.due(1 << 50, 10) == []
    assert not clocked.group.table.timers_late(1 << 50)


def test_due_leaves_in_batches() -> None:
    clocked = Clocked()
    clocked.group.table.lead(0)
    clocked.run(*(Command("createLease", lease=lease, ttl_ms=100) for lease in range(1, 21)))
    seen: list[int] = []
    while due := clocked.group.table.due(200, 7):
        assert len(due) <= 7
        seen += [one.lease_low for one in due]
    assert sorted(seen) == list(range(1, 21))
