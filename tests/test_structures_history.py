"""The event history against a list: bounds, floor, matching, and where a read goes on."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlock._core.history import EventHistory

HEADER_BYTES = 32
Event = tuple[int, int, int, int, bytes, bytes, bytes]


class Model:
    """Events in a list; the oldest leave when the ring could not hold them."""

    def __init__(self, floor: int) -> None:
        self.events: list[Event] = []
        self.floor = floor
        self.last_revision = floor

    def follow_floor(self, floor: int) -> None:
        assert floor >= self.floor
        assert floor in {self.floor, self.last_revision, *(event[0] for event in self.events)}
        self.events = [event for event in self.events if event[0] > floor]
        self.floor = floor

    def read(
        self, after_revision: int, key: bytes, is_prefix: bool, events_max: int, scanned_max: int
    ) -> tuple[list[Event], int] | None:
        if after_revision < self.floor:
            return None
        found: list[Event] = []
        position = after_revision
        for scanned, event in enumerate(event for event in self.events if event[0] > after_revision):
            if len(found) == events_max or scanned == scanned_max:
                return found, position
            position = event[0]
            if event[4] == key or (is_prefix and event[4].startswith(key)):
                found.append(event)
        if len(found) == events_max or scanned_max <= sum(e[0] > after_revision for e in self.events):
            return found, position
        return found, max(after_revision, self.last_revision)


KEYS = st.sampled_from([b"a", b"a/b", b"a/c", b"ab", b"b", b"a/" + bytes(24), b"long" * 20])
APPENDS = st.tuples(
    st.just("append"),
    KEYS,
    st.integers(1, 5),
    st.binary(max_size=40),
    st.sampled_from([0, 0, 0, 5, 700, 5000]),
)
READS = st.tuples(
    st.just("read"), st.one_of(KEYS, st.just(b"")), st.integers(0, 1000), st.booleans(), st.integers(0, 200)
)
RESETS = st.tuples(st.just("reset"), st.just(b""), st.integers(0, 5), st.none(), st.none())


@settings(max_examples=1000, deadline=None)
@given(
    st.integers(1, 200),
    st.integers(0, 2**52),
    st.lists(st.one_of(APPENDS, APPENDS, APPENDS, READS, RESETS), max_size=300),
)
def test_history_agrees_with_its_model(count_max: int, floor: int, steps: list[tuple]) -> None:
    history, model = EventHistory(4096, count_max, floor), Model(floor)
    for step, key, number, detail, size in steps:
        if step == "append":
            event = (model.last_revision + number, number, number + 1, number * 7, key, detail, b"v" * size)
            history.append(*event)
            model.events.append(event)
            model.last_revision = event[0]
            model.follow_floor(history.floor)
        elif step == "read":
            after_revision = max(0, model.last_revision - number)
            arguments = (after_revision, key, detail, size % 11, size)
            assert history.read(*arguments) == model.read(*arguments)
        else:
            model = Model(model.last_revision + number)
            history.reset(model.floor)
        assert len(history) == len(model.events) <= count_max
        assert history.last_revision == model.last_revision
        assert history.floor == model.floor
    assert history.read(model.floor, b"", True, 10_000, 10_000) == (model.events, model.last_revision)


def test_history_holds_what_its_bytes_allow() -> None:
    """Records of 64 bytes in 4 KiB: 64 stay, the 65th evicts exactly one."""
    history = EventHistory(4096, 10**6)
    for revision in range(1, 65):
        history.append(revision, 1, 1, revision, b"k" * 24, b"", b"")
    assert (len(history), history.floor) == (64, 0)
    history.append(65, 1, 1, 65, b"k" * 24, b"", b"")
    assert (len(history), history.floor) == (64, 1)


def test_history_holds_no_more_than_its_number() -> None:
    history = EventHistory(2**20, 10)
    for revision in range(1, 100):
        history.append(revision, 1, 1, revision, b"k", b"", b"")
    assert (len(history), history.floor) == (10, 89)


def test_a_reader_below_the_floor_is_told_that_it_was_outrun() -> None:
    history = EventHistory(4096, 10)
    for revision in range(1, 21):
        history.append(revision, 1, 1, revision, b"k", b"", b"")
    assert history.read(9, b"k", False, 100, 100) is None
    result = history.read(10, b"k", False, 100, 100)
    assert result is not None
    assert [event[0] for event in result[0]] == list(range(11, 21))


def test_an_event_larger_than_the_ring_is_gone_at_once_and_said_so() -> None:
    history = EventHistory(4096, 10)
    history.append(1, 1, 1, 1, b"k", b"", b"")
    history.append(2, 1, 1, 2, b"k", b"", bytes(5000))
    assert (len(history), history.floor, history.last_revision) == (0, 2, 2)
    assert history.read(1, b"k", False, 10, 10) is None
    assert history.read(2, b"k", False, 10, 10) == ([], 2)


@pytest.mark.parametrize("seed", range(3))
def test_a_watch_read_in_pages_is_complete_while_events_arrive(seed: int) -> None:
    """Pages bounded by events and by scanned records; revisions have gaps."""
    rng = random.Random(seed)
    history = EventHistory(2**20, 5000)
    revision, position = 0, 0
    expected: list[int] = []
    seen: list[int] = []
    for _ in range(3000):
        for _ in range(rng.randrange(4)):
            revision += rng.choice([1, 1, 2, 50])
            key = rng.choice([b"watched/1", b"watched/2", b"other"])
            history.append(revision, 1, 1, 1, key, b"o", b"")
            if key != b"other":
                expected.append(revision)
        result = history.read(position, b"watched/", True, rng.randrange(1, 5), rng.randrange(1, 8))
        assert result is not None
        seen += [event[0] for event in result[0]]
        position = result[1]
    while position < revision:
        result = history.read(position, b"watched/", True, 100, 100)
        assert result is not None
        seen += [event[0] for event in result[0]]
        position = result[1]
    assert seen == expected


def test_every_position_of_a_long_history_can_be_resumed_from() -> None:
    """The start of a read is found through samples; none is off by one."""
    history = EventHistory(2**20, 3000)
    revisions = [3 * number for number in range(1, 5001)]
    for revision in revisions:
        history.append(revision, 1, 1, revision, b"k", b"", b"")
    for after_revision in range(history.floor, revisions[-1] + 2):
        result = history.read(after_revision, b"", True, 1, 1)
        assert result is not None
        following = [after_revision // 3 * 3 + 3] if after_revision < revisions[-1] else []
        assert [event[0] for event in result[0]] == following


def test_revisions_that_do_not_increase_are_refused() -> None:
    history = EventHistory(4096, 10, floor=7)
    with pytest.raises(ValueError):
        history.append(7, 1, 1, 1, b"k", b"", b"")
