"""The timer wheel against a plain list of deadlines, and its bounds on the work of one call."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlock._core.timers import NEVER_MS, TICK_MS, TOUCHES_MAX, TimerWheel

TTL_MS_MAX = 2**42

TTLS_MS = st.one_of(
    st.integers(0, 100),
    st.integers(50, 10_000),
    st.sampled_from([0, 50, 511, 512, 513, 32_767, 32_768, 32_769, TTL_MS_MAX]),
    st.integers(0, 42).flatmap(lambda bits: st.integers(0, 2**bits)),
)
JUMPS_MS = st.one_of(st.integers(0, 40), st.integers(0, 42).flatmap(lambda bits: st.integers(0, 2**bits)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), TTLS_MS, st.just(0)),
        st.tuples(st.just("move"), TTLS_MS, st.integers(0, 1000)),
        st.tuples(st.just("remove"), st.just(0), st.integers(0, 1000)),
        st.tuples(st.just("advance"), JUMPS_MS, st.integers(1, 5)),
        st.tuples(st.just("slice"), JUMPS_MS, st.integers(0, 2)),
        st.tuples(st.just("rearm"), st.just(0), st.just(0)),
    ),
    max_size=120,
)


def fires_at_ms(deadline_ms: int) -> int:
    """The first tick that is not before the deadline."""
    return -(-deadline_ms // TICK_MS) * TICK_MS


class WheelAndModel:
    """A wheel, and for each of its timers the deadline and whether it was reported."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.wheel = TimerWheel(now_ms)
        self.deadlines_ms: dict[int, int] = {}
        self.reported: set[int] = set()

    def pick(self, number: int) -> int:
        return sorted(self.deadlines_ms)[number % len(self.deadlines_ms)]

    def advance_once(self, due_max: int) -> int:
        due = self.wheel.advance(self.now_ms, due_max)
        assert len(due) <= due_max
        for node, kind, owner, deadline_ms in due:
            assert (kind, owner) == (node % 7, node * 3)
            assert deadline_ms == self.deadlines_ms[node] <= self.now_ms, "fired early"
            assert node not in self.reported, "fired twice"
            self.reported.add(node)
        return len(due)

    def advance_fully(self, due_max: int) -> None:
        self.advance_once(due_max)
        while self.wheel.next_deadline_hint(self.now_ms) == self.now_ms:
            self.advance_once(due_max)
        expected = {
            node for node, deadline_ms in self.deadlines_ms.items() if fires_at_ms(deadline_ms) <= self.now_ms
        }
        assert {node for node in self.reported if self.deadlines_ms[node] <= self.now_ms} == expected
        self.check_hint()

    def check_hint(self) -> None:
        """Whoever sleeps until the hint is never late."""
        hint_ms = self.wheel.next_deadline_hint(self.now_ms)
        armed = [fires_at_ms(ms) for node, ms in self.deadlines_ms.items() if node not in self.reported]
        if armed:
            assert hint_ms <= max(self.now_ms, min(armed))
        else:
            assert hint_ms == NEVER_MS

    def run(self, step: str, amount_ms: int, number: int) -> None:
        if step == "add":
            # The model needs the handle to know kind and owner, so they follow from the next free one.
            node = self.wheel.add(0, 0, 0)
            self.wheel.remove(node)
            assert self.wheel.add(node % 7, node * 3, self.now_ms + amount_ms) == node
            self.deadlines_ms[node] = self.now_ms + amount_ms
        elif step == "move" and self.deadlines_ms:
            node = self.pick(number)
            self.wheel.move(node, self.now_ms + amount_ms)
            self.deadlines_ms[node] = self.now_ms + amount_ms
            self.reported.discard(node)
        elif step == "remove" and self.deadlines_ms:
            node = self.pick(number)
            self.wheel.remove(node)
            del self.deadlines_ms[node]
            self.reported.discard(node)
        elif step == "advance":
            self.now_ms += amount_ms
            self.advance_fully(number)
        elif step == "slice":
            self.now_ms += amount_ms
            self.advance_once(number)
        elif step == "rearm":
            self.wheel.rearm_due()
            self.reported.clear()
        assert len(self.wheel) == len(self.deadlines_ms)


@settings(max_examples=2000, deadline=None)
@given(st.one_of(st.just(0), st.integers(0, TTL_MS_MAX)), STEPS)
def test_wheel_agrees_with_its_model(start_ms: int, steps: list[tuple[str, int, int]]) -> None:
    both = WheelAndModel(start_ms)
    for step in steps:
        both.run(*step)
    both.now_ms += 2 * TTL_MS_MAX
    both.advance_fully(1000)
    assert both.reported == set(both.deadlines_ms)


@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_timers_fire_once_and_never_early(seed: int) -> None:
    rng = random.Random(seed)
    both = WheelAndModel(rng.getrandbits(40))
    for _ in range(3000):
        both.run("add", int(50 * 2 ** (rng.random() * 20)), 0)
    while len(both.reported) < len(both.deadlines_ms):
        for _ in range(20):
            both.run(
                rng.choice(["move", "remove", "move"]),
                int(50 * 2 ** (rng.random() * 16)),
                rng.getrandbits(30),
            )
        both.run("advance", int(2 ** (rng.random() * 22)), 1000)


def test_a_postponed_timer_fires_at_its_later_deadline_only() -> None:
    wheel = TimerWheel(0)
    node = wheel.add(1, 2, 1000)
    for now_ms in range(0, 30_000, 300):
        assert wheel.advance(now_ms, 10) == []
        wheel.move(node, now_ms + 1000)
    deadline_ms = 29_700 + 1000
    assert wheel.advance(deadline_ms - 1, 10) == []
    assert wheel.advance(deadline_ms + TICK_MS, 10) == [(node, 1, 2, deadline_ms)]


def test_a_timer_moved_earlier_fires_earlier() -> None:
    wheel = TimerWheel(0)
    node = wheel.add(1, 2, 1_000_000)
    wheel.move(node, 160)
    assert wheel.advance(160, 10) == [(node, 1, 2, 160)]


def test_a_due_timer_fires_again_only_when_armed_again() -> None:
    wheel = TimerWheel(0)
    node = wheel.add(1, 2, 80)
    assert len(wheel.advance(80, 10)) == 1
    assert wheel.advance(100_000, 10) == []
    wheel.move(node, 100_080)
    assert wheel.advance(100_072, 10) == []
    assert len(wheel.advance(100_080, 10)) == 1


def test_timers_due_before_a_leadership_change_are_looked_at_again_after_it() -> None:
    """Due ones come back; those that were postponed meanwhile wait for their deadline."""
    wheel = TimerWheel(0)
    nodes = [wheel.add(0, owner, 80) for owner in range(100)]
    assert len(wheel.advance(80, 1000)) == 100
    wheel.rearm_due()
    for node in nodes[:50]:
        wheel.move(node, 8000)
    assert {due[0] for due in wheel.advance(88, 1000)} == set(nodes[50:])
    assert {due[0] for due in wheel.advance(8000, 1000)} == set(nodes[:50])


def test_one_call_reports_a_bounded_number_of_timers() -> None:
    wheel = TimerWheel(0)
    count = 10 * TOUCHES_MAX + 1
    for owner in range(count):
        wheel.add(0, owner, 30_000)
    pages = []
    while wheel.next_deadline_hint(30_000) == 30_000:
        pages.append(len(wheel.advance(30_000, 10**6)))
    assert sum(pages) == count
    assert max(pages) <= TOUCHES_MAX


def test_one_call_looks_at_a_bounded_number_of_postponed_timers() -> None:
    """All were postponed: nothing is due, and still the full slot is taken apart in slices."""
    wheel = TimerWheel(0)
    count = 10 * TOUCHES_MAX
    for node in [wheel.add(0, owner, 30_000) for owner in range(count)]:
        wheel.move(node, 90_000)
    calls = 0
    while wheel.next_deadline_hint(30_000) == 30_000:
        assert wheel.advance(30_000, 10**6) == []
        calls += 1
    assert calls >= count // TOUCHES_MAX
    assert wheel.next_deadline_hint(30_000) > 30_000


def test_timers_added_while_a_slot_is_taken_apart_fire_in_time() -> None:
    wheel = TimerWheel(0)
    for owner in range(3 * TOUCHES_MAX):
        wheel.add(0, owner, 30_000)
    wheel.advance(30_000, 10**6)
    late = wheel.add(9, 1, 30_500)
    past = wheel.add(9, 2, 10)
    fired = set()
    while wheel.next_deadline_hint(30_496) == 30_496:
        fired |= {due[0] for due in wheel.advance(30_496, 10**6)}
    assert past in fired
    assert late not in fired
    assert [due[0] for due in wheel.advance(30_504, 10)] == [late]


def test_a_jump_of_a_hundred_years_costs_no_loop_over_ticks() -> None:
    """At 8 ms a tick this is 4·10^11 ticks: a loop over them would not come back."""
    wheel = TimerWheel(0)
    node = wheel.add(0, 1, 2**41)
    assert [due[0] for due in wheel.advance(2**41 + TICK_MS, 10)] == [node]


def test_a_clock_that_goes_back_fires_nothing_early() -> None:
    wheel = TimerWheel(10_000)
    wheel.advance(20_000, 10)
    node = wheel.add(0, 1, 20_080)
    assert wheel.advance(5_000, 10) == []
    assert wheel.advance(20_072, 10) == []
    assert [due[0] for due in wheel.advance(20_080, 10)] == [node]
