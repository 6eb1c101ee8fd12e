"""Slabs keep items in place, hand them out zeroed, and use given-back ones again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fastlock._core.slab import Slab

ITEM_BYTES = 24
CHUNK_ITEMS = 4096


def test_handles_are_never_zero_and_start_at_one() -> None:
    slab = Slab(ITEM_BYTES)
    assert [slab.take() for _ in range(3)] == [1, 2, 3]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 1000)), max_size=300))
def test_items_are_zeroed_distinct_and_keep_their_content(steps: list[int | None]) -> None:
    """None takes an item; a number gives back the live item at that position."""
    slab = Slab(ITEM_BYTES)
    contents: dict[int, int] = {}
    for number, step in enumerate(steps):
        if step is None or not contents:
            handle = slab.take()
            assert handle not in contents
            assert slab.read(handle) == bytes(ITEM_BYTES)
            contents[handle] = number % 255 + 1
            slab.fill(handle, contents[handle])
        else:
            handle = sorted(contents)[step % len(contents)]
            del contents[handle]
            slab.give(handle)
        assert slab.live == len(contents)
    for handle, content in contents.items():
        assert slab.read(handle) == bytes([content]) * ITEM_BYTES


def test_growing_moves_no_item() -> None:
    slab = Slab(ITEM_BYTES)
    first = slab.take()
    slab.fill(first, 7)
    address = slab.address(first)
    for _ in range(40 * CHUNK_ITEMS):
        slab.take()
    assert slab.address(first) == address
    assert slab.read(first) == b"\7" * ITEM_BYTES


def test_given_back_items_are_taken_before_memory_grows() -> None:
    slab = Slab(ITEM_BYTES)
    handles = [slab.take() for _ in range(3 * CHUNK_ITEMS)]
    used_bytes = slab.used_bytes
    for handle in handles:
        slab.give(handle)
    assert slab.live == 0
    assert sorted(slab.take() for _ in handles) == handles
    assert slab.used_bytes == used_bytes


def test_a_cleared_slab_is_empty_and_usable() -> None:
    slab = Slab(ITEM_BYTES)
    for _ in range(CHUNK_ITEMS):
        slab.take()
    slab.clear()
    assert (slab.live, slab.used_bytes) == (0, 0)
    assert slab.take() == 1
