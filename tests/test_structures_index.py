"""The tag index against a dictionary of lists: lookups, order, scans, and resizes in bounded steps."""

import random
from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlock._core.index import MOVES_PER_OPERATION, TagIndex

TAG_END = 2**32

# Few tags collide; tags at both ends meet the edges of the array; spread ones are the normal case.
TAGS = st.one_of(
    st.integers(0, 7),
    st.integers(TAG_END - 8, TAG_END - 1),
    st.integers(0, 63).map(lambda position: position << 26 | 1),
    st.integers(0, TAG_END - 1),
)


class Model:
    """Entries in tag order, and within a tag in the order they were put."""

    def __init__(self) -> None:
        self.handles: dict[int, list[int]] = {}

    def put(self, tag: int, handle: int) -> None:
        self.handles.setdefault(tag, []).append(handle)

    def remove(self, tag: int, handle: int) -> bool:
        if handle not in self.handles.get(tag, []):
            return False
        self.handles[tag].remove(handle)
        if not self.handles[tag]:
            del self.handles[tag]
        return True

    def count(self) -> int:
        return sum(map(len, self.handles.values()))

    def from_tag(self, tag_from: int) -> list[int]:
        tags = sorted(self.handles)
        return [handle for tag in tags[bisect_left(tags, tag_from) :] for handle in self.handles[tag]]


def scan_all(index: TagIndex, tag_from: int, page: int) -> list[int]:
    found: list[int] = []
    while tag_from < TAG_END:
        handles, tag_next = index.scan(tag_from, page)
        assert tag_next > tag_from
        found += handles
        tag_from = tag_next
    return found


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "remove", "miss", "scan"]), TAGS, st.integers(1, 400)),
    max_size=400,
)


@settings(max_examples=800, deadline=None)
@given(STEPS)
def test_index_agrees_with_its_model(steps: list[tuple[str, int, int]]) -> None:
    index, model = TagIndex(), Model()
    live: list[tuple[int, int]] = []
    for handle, (step, tag, number) in enumerate(steps, start=1):
        if step == "put":
            index.put(tag, handle)
            model.put(tag, handle)
            live.append((tag, handle))
        elif step == "remove" and live:
            entry = live.pop(number % len(live))
            assert index.remove(*entry)
            assert model.remove(*entry)
        elif step == "miss":
            assert index.remove(tag, number) == model.remove(tag, number)
            live = [entry for entry in live if entry != (tag, number)]
        elif step == "scan":
            assert scan_all(index, tag, 1 + number % 9) == model.from_tag(tag)
        index.check()
        assert index.find(tag) == model.handles.get(tag, [])
        assert len(index) == model.count()
    assert scan_all(index, 0, 10) == model.from_tag(0)


@pytest.mark.parametrize("seed", range(3))
def test_growth_and_shrink_lose_nothing(seed: int) -> None:
    """Up to 50,000 entries and back to none; everything is found at every thousandth step."""
    rng = random.Random(seed)
    index, live = TagIndex(), {}
    resizes = 0
    for handle in range(1, 50_001):
        tag = rng.getrandbits(32)
        was_resizing = index.resizing
        index.put(tag, handle)
        live[handle] = tag
        resizes += index.resizing and not was_resizing
        if handle % 1000 == 0:
            index.check()
            assert all(h in index.find(t) for h, t in live.items())
    assert resizes == 11
    assert index.homes == 2**17
    order = list(live)
    rng.shuffle(order)
    for position, handle in enumerate(order):
        assert index.remove(live.pop(handle), handle)
        if position % 1000 == 0:
            index.check()
            assert all(h in index.find(t) for h, t in live.items())
    assert len(index) == 0
    assert index.homes <= 2**13


def test_a_resize_moves_a_bounded_number_of_cells_with_each_operation() -> None:
    rng = random.Random(1)
    index = TagIndex()
    handle = 0
    steps_while_resizing = 0
    while index.homes < 2**17 or index.resizing:
        handle += 1
        drained = index.drained
        was_resizing = index.resizing
        index.put(rng.getrandbits(32), handle)
        if was_resizing and index.resizing:
            assert drained < index.drained <= drained + MOVES_PER_OPERATION + 2
            steps_while_resizing += 1
    assert steps_while_resizing > 2**16 / MOVES_PER_OPERATION


def test_one_tag_for_everything_still_works() -> None:
    """No hash protects against equal tags; they are slow, never wrong."""
    index = TagIndex()
    for tag in (0, TAG_END - 1):
        for handle in range(1, 1000):
            index.put(tag, handle)
        index.check()
        assert index.find(tag) == list(range(1, 1000))
        assert index.scan(tag, 10) == (list(range(1, 1000)), TAG_END)
        for handle in range(1, 1000):
            assert index.remove(tag, handle)
        index.check()
    assert len(index) == 0


def test_a_page_never_splits_a_tag() -> None:
    index = TagIndex()
    for handle in range(1, 31):
        index.put(handle // 3, handle)
    handles, tag_next = index.scan(0, 7)
    assert handles == [1, 2, 3, 4, 5]
    assert tag_next == 2
    handles, _ = index.scan(tag_next, 2)
    assert handles == [6, 7, 8]


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_through_growth_and_shrink_sees_every_lasting_entry_once(seed: int) -> None:
    """Entries come and go between the pages; those that stay are each seen exactly once."""
    rng = random.Random(seed)
    index = TagIndex()
    lasting = {handle: rng.getrandbits(32) for handle in range(1, 501)}
    for handle, tag in lasting.items():
        index.put(tag, handle)
    passing: list[tuple[int, int]] = []
    seen: list[int] = []
    handle, tag_from, pages = 1000, 0, 0
    while tag_from < TAG_END:
        handles, tag_from = index.scan(tag_from, 8)
        pages += 1
        seen += [found for found in handles if found in lasting]
        if pages <= 30:
            for _ in range(200):
                handle += 1
                passing.append((rng.getrandbits(32), handle))
                index.put(*passing[-1])
        else:
            for _ in range(min(40, len(passing))):
                assert index.remove(*passing.pop(rng.randrange(len(passing))))
        index.check()
    assert seen == sorted(lasting, key=lambda found: lasting[found])


def test_a_scan_over_a_sparse_index_does_bounded_work() -> None:
    """A large empty stretch yields short pages instead of one long call."""
    index = TagIndex()
    rng = random.Random(2)
    entries = [(rng.getrandbits(31), handle) for handle in range(1, 100_001)]
    for entry in entries:
        index.put(*entry)
    last = (TAG_END - 1, 100_001)
    index.put(*last)
    handles, tag_next = index.scan(2**31, 8)
    assert handles == []
    assert 2**31 < tag_next < TAG_END - 1
    assert scan_all(index, 2**31, 8) == [100_001]


def test_zero_is_refused_as_a_handle() -> None:
    with pytest.raises(ValueError):
        TagIndex().put(1, 0)
