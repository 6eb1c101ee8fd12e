"""The storage contract, asked of the in-memory twin and of LMDB alike."""

from __future__ import annotations

from typing import Any

import pytest

from fastlock.storage import StorageDamaged, Stored
from fastlock.storage.rowpack import unpack_rows

from .drivers import entry, write


def indexes(stored: Stored) -> list[tuple[int, int]]:
    return [(found.index, found.term) for found in stored.entries]


def same(left: Any, right: Any) -> bool:
    return [(e.term, e.index, e.kind, e.data) for e in left] == [
        (e.term, e.index, e.kind, e.data) for e in right
    ]


def checkpoint(
    driver: Any, index: int, rows: Any, *, group: int = 1, term: int = 1, whole: bool = False
) -> None:
    driver.storage.begin_checkpoint(group, whole)
    driver.storage.put_rows(group, rows)
    driver.storage.commit_checkpoint(group, index, term)


def taken(stream: Any, bytes_max: int) -> list[tuple[bytes, bytes]]:
    rows: list[tuple[bytes, bytes]] = []
    offset = 0
    while True:
        chunk, last = stream.chunk(offset, bytes_max)
        rows += unpack_rows(chunk)
        offset += len(chunk)
        if last:
            return rows


def test_a_group_nobody_wrote_is_empty(driver):
    assert driver.storage.load(5) == Stored(0, 0, 0, [], 0, 0)
    assert list(driver.storage.rows(5)) == []
    assert driver.storage.read(5, 1, 10, 1000) == []
    assert driver.storage.open_stream(5) is None
    assert driver.storage.take_durable() == []
    assert driver.storage.take_checkpoints() == []


def test_entries_come_back_as_they_were(driver):
    entries = [entry(1), entry(2, term=3, size=0), entry(3, term=3, size=70_000)]
    driver.storage.append(1, write(1, entries, hard_state=(3, 2)))
    assert driver.settle()[0] == [(1, 1)]
    driver.reopen()
    stored = driver.storage.load(1)
    assert (stored.term, stored.vote, stored.cut_index) == (3, 2, 0)
    assert same(stored.entries, entries)


def test_the_highest_write_of_each_group_is_acknowledged(driver):
    for seq in (1, 2, 3):
        driver.storage.append(1, write(seq, [entry(seq)]))
        driver.storage.append(2, write(seq + 10, [entry(seq)]))
    assert sorted(driver.settle()[0]) == [(1, 3), (2, 13)]
    assert driver.storage.take_durable() == []


def test_a_write_without_entries_is_acknowledged_too(driver):
    driver.storage.append(1, write(1, hard_state=(4, 3)))
    assert driver.settle()[0] == [(1, 1)]
    driver.reopen()
    assert driver.storage.load(1)[:2] == (4, 3)


def test_a_write_without_a_hard_state_leaves_the_one_before(driver):
    driver.storage.append(1, write(1, hard_state=(4, 3)))
    driver.storage.append(1, write(2, [entry(1, term=4)]))
    driver.reopen()
    assert driver.storage.load(1)[:2] == (4, 3)


def test_truncation_replaces_the_tail(driver):
    driver.storage.append(1, write(1, [entry(1), entry(2), entry(3)]))
    driver.storage.append(1, write(2, [entry(2, term=2)], truncate_from=2))
    driver.settle()
    assert same(driver.storage.read(1, 1, 9, 10_000), [entry(1), entry(2, term=2)])
    driver.reopen()
    assert indexes(driver.storage.load(1)) == [(1, 1), (2, 2)]


def test_truncation_of_everything_and_of_nothing(driver):
    driver.storage.append(1, write(1, [entry(1), entry(2)]))
    driver.storage.append(1, write(2, truncate_from=3))
    driver.storage.append(1, write(3, truncate_from=1))
    driver.storage.append(1, write(4, [entry(1, term=5)]))
    driver.reopen()
    assert indexes(driver.storage.load(1)) == [(1, 5)]


@pytest.mark.parametrize("reset_index", [2, 4, 9])
def test_a_reset_log_goes_on_after_the_snapshot(driver, reset_index):
    driver.storage.append(1, write(1, [entry(index) for index in range(1, 5)]))
    driver.settle()
    checkpoint(driver, reset_index, [(b"a", b"1")], term=7, whole=True)
    driver.settle()
    after = entry(reset_index + 1, term=8)
    driver.storage.append(1, write(2, [after], reset=(reset_index, 7)))
    driver.settle()
    assert driver.storage.read(1, 1, 99, 1000) == []
    assert same(driver.storage.read(1, reset_index + 1, 99, 1000), [after])
    driver.reopen()
    stored = driver.storage.load(1)
    assert (stored.cut_index, stored.checkpoint_index, stored.checkpoint_term) == (
        reset_index,
        reset_index,
        7,
    )
    assert same(stored.entries, [after])


def test_an_installed_checkpoint_takes_the_place_of_a_log_that_was_not_reset(driver):
    driver.storage.append(1, write(1, [entry(1), entry(2)], hard_state=(6, 2)))
    driver.settle()
    checkpoint(driver, 10, [(b"a", b"1")], term=5, whole=True)
    driver.reopen()
    assert driver.storage.load(1) == Stored(6, 2, 10, [], 10, 5)


def test_a_checkpoint_that_contradicts_the_log_takes_its_place(driver):
    driver.storage.append(1, write(1, [entry(1), entry(2), entry(3)]))
    driver.settle()
    checkpoint(driver, 2, [(b"a", b"1")], term=5, whole=True)
    driver.reopen()
    assert driver.storage.load(1) == Stored(0, 0, 2, [], 2, 5)


def test_read_is_bounded_and_gives_at_least_one(driver):
    entries = [entry(index, size=100) for index in range(1, 11)]
    driver.storage.append(1, write(1, entries))
    driver.settle()
    assert same(driver.storage.read(1, 3, 5, 1 << 20), entries[2:5])
    assert same(driver.storage.read(1, 3, 99, 1 << 20), entries[2:])
    assert same(driver.storage.read(1, 3, 99, 350), entries[2:5])
    assert same(driver.storage.read(1, 3, 99, 1), entries[2:3])
    assert driver.storage.read(1, 11, 99, 1000) == []


def test_a_cut_log_starts_behind_the_checkpoint(driver):
    driver.storage.append(1, write(1, [entry(index) for index in range(1, 11)]))
    driver.settle()
    checkpoint(driver, 6, [(b"a", b"1")])
    driver.settle()
    driver.storage.cut(1, 4)
    assert driver.storage.read(1, 4, 10, 1000) == []
    assert driver.storage.read(1, 5, 5, 1000)[0].index == 5
    driver.reopen()
    stored = driver.storage.load(1)
    assert (stored.cut_index, stored.checkpoint_index) == (4, 6)
    assert [found.index for found in stored.entries] == list(range(5, 11))
    assert driver.storage.read(1, 4, 10, 1000) == []
    driver.storage.append(1, write(1, [entry(11)]))
    driver.reopen()
    assert [found.index for found in driver.storage.load(1).entries] == list(range(5, 12))


def test_nothing_is_cut_that_no_checkpoint_covers(driver):
    driver.storage.append(1, write(1, [entry(1), entry(2)]))
    driver.settle()
    checkpoint(driver, 1, [(b"a", b"1")])
    driver.settle()
    with pytest.raises(AssertionError):
        driver.storage.cut(1, 2)


def test_a_checkpoint_changes_the_one_before(driver):
    driver.storage.append(1, write(1, [entry(1), entry(2)]))
    driver.settle()
    checkpoint(driver, 1, [(b"b", b"1"), (b"a", b"2"), (b"c", b"3")])
    checkpoint(driver, 2, [(b"c", None), (b"a", b"4" * 5000), (b"missing", None), (b"", b"empty key")])
    assert driver.settle()[1] == [(1, 1), (1, 2)]
    expected = [(b"", b"empty key"), (b"a", b"4" * 5000), (b"b", b"1")]
    assert list(driver.storage.rows(1)) == expected
    driver.reopen()
    assert list(driver.storage.rows(1)) == expected
    assert driver.storage.load(1)[4:] == (2, 1)


def test_a_checkpoint_is_visible_in_one_step(driver):
    driver.storage.append(1, write(1, [entry(1), entry(2)]))
    driver.settle()
    checkpoint(driver, 1, [(b"a", b"1")])
    driver.settle()
    for whole in (False, True):
        driver.storage.begin_checkpoint(1, whole)
        driver.storage.put_rows(1, [(b"a", None), (b"b", b"2")])
        driver.settle()
        assert list(driver.storage.rows(1)) == [(b"a", b"1")]
    driver.storage.put_rows(1, iter([(b"c", b"3")]))
    driver.storage.commit_checkpoint(1, 2, 1)
    driver.settle()
    assert list(driver.storage.rows(1)) == [(b"b", b"2"), (b"c", b"3")]


@pytest.mark.parametrize("whole", [False, True])
def test_a_staged_checkpoint_that_was_not_committed_is_forgotten(driver, whole):
    driver.storage.append(1, write(1, [entry(1), entry(2)]))
    driver.settle()
    checkpoint(driver, 1, [(b"a", b"1")])
    driver.storage.begin_checkpoint(1, whole)
    driver.storage.put_rows(1, [(b"b", b"2")])
    driver.storage.begin_checkpoint(1, whole)
    driver.storage.put_rows(1, [(b"c", b"3")])
    driver.reopen()
    assert list(driver.storage.rows(1)) == [(b"a", b"1")]
    checkpoint(driver, 2, [(b"d", b"4")])
    driver.settle()
    assert list(driver.storage.rows(1)) == [(b"a", b"1"), (b"d", b"4")]


def test_a_whole_checkpoint_takes_the_place_of_all_rows(driver):
    checkpoint(driver, 5, [(b"%d" % number, b"x") for number in range(3000)], whole=True)
    checkpoint(driver, 6, [(b"7", b"first"), (b"7", b"second"), (b"8", b"y"), (b"8", None)], whole=True)
    checkpoint(driver, 6, [(b"9", b"z")], whole=True, group=2)
    assert sorted(driver.settle()[1]) == [(1, 5), (1, 6), (2, 6)]
    assert list(driver.storage.rows(1)) == [(b"7", b"second")]
    driver.reopen()
    assert list(driver.storage.rows(1)) == [(b"7", b"second")]
    assert list(driver.storage.rows(2)) == [(b"9", b"z")]


def test_an_empty_checkpoint_is_one(driver):
    checkpoint(driver, 5, [(b"a", b"1")], whole=True)
    checkpoint(driver, 6, [], whole=True)
    assert driver.settle()[1] == [(1, 5), (1, 6)]
    assert list(driver.storage.rows(1)) == []
    assert taken(driver.storage.open_stream(1), 100) == []
    driver.reopen()
    assert driver.storage.load(1)[4:] == (6, 1)


def test_rows_come_in_the_order_of_their_keys_however_long(driver):
    head = b"\x04" + b"k" * 463
    keys = [
        b"\x04a",
        head,
        head[:-1],
        head + b"\x00",
        head + b"b" * 100,
        head + b"a" * 3000,
        head + b"a" * 2999,
        b"\x05",
    ]
    checkpoint(driver, 1, [(key, b"row of %d" % len(key)) for key in keys], whole=True)
    driver.settle()
    assert [key for key, _ in driver.storage.rows(1)] == sorted(keys)
    checkpoint(driver, 2, [(head + b"a" * 3000, None), (head + b"\x00", b"changed")], whole=True)
    driver.settle()
    assert list(driver.storage.rows(1)) == [(head + b"\x00", b"changed")]
    assert taken(driver.storage.open_stream(1), 10) == [(head + b"\x00", b"changed")]


def test_a_stream_is_a_consistent_copy_in_bounded_chunks(driver):
    rows = [(b"%05d" % number, b"%d" % number * 20) for number in range(3000)] + [(b"large", b"L" * 10_000)]
    checkpoint(driver, 4, rows, whole=True)
    driver.settle()
    stream = driver.storage.open_stream(1)
    assert (stream.index, stream.term) == (4, 1)
    checkpoint(driver, 5, [(b"new", b"row")], whole=True)
    driver.settle()
    assert taken(stream, 1000) == rows
    assert taken(stream, 1 << 20) == rows
    chunk, last = stream.chunk(0, 1000)
    assert len(chunk) <= 1000
    assert not last
    stream.close()
    assert driver.storage.open_stream(1).index == 5


def test_a_log_that_starts_after_its_checkpoint_is_damage(driver):
    driver.storage.append(1, write(1, [entry(9)], reset=(8, 1)))
    driver.reopen()
    with pytest.raises(StorageDamaged, match="starts after 8"):
        driver.storage.load(1)


def test_groups_do_not_touch_each_other(driver):
    big = 0xFFFF_FFFF
    for group in (0, 1, 255, 256, big):
        driver.storage.append(group, write(1, [entry(1, term=group + 1), entry(2, term=group + 1)]))
    driver.settle()
    for group in (0, 1, 255, 256, big):
        checkpoint(driver, 1, [(b"row", b"%d" % group)], group=group, term=group + 1)
    driver.storage.append(255, write(2, truncate_from=1))
    driver.settle()
    driver.storage.cut(256, 1)
    driver.reopen()
    for group in (0, 1, big):
        assert indexes(driver.storage.load(group)) == [(1, group + 1), (2, group + 1)]
        assert list(driver.storage.rows(group)) == [(b"row", b"%d" % group)]
    assert indexes(driver.storage.load(256)) == [(2, 257)]
