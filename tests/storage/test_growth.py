"""Files grow when they must, stay flat when the log is cut, and say in time that they are full."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from fastlock.storage import StorageFailed
from fastlock.storage.lmdb import STREAMS_MAX, StorageLimits

from .drivers import SMALL, LmdbDriver, entry, wait_until, write


def fill(driver: LmdbDriver, first: int, count: int, size: int) -> None:
    for index in range(first, first + count):
        driver.storage.append(1, write(index, [entry(index, size=size)]))


def checkpoint(driver: LmdbDriver, index: int) -> None:
    driver.storage.begin_checkpoint(1, False)
    driver.storage.put_rows(1, [(b"row", b"%d" % index)])
    driver.storage.commit_checkpoint(1, index, 1)
    driver.settle()


def test_the_log_grows_with_what_is_in_it(lmdb_driver):
    before = lmdb_driver.storage.figures()["log_map_bytes"]
    fill(lmdb_driver, 1, 200, 100_000)
    lmdb_driver.settle()
    assert before == SMALL.log_map_bytes
    assert lmdb_driver.storage.figures()["log_map_bytes"] >= 20_000_000
    lmdb_driver.reopen()
    assert [found.index for found in lmdb_driver.storage.load(1).entries] == list(range(1, 201))


def test_the_table_grows_while_a_stream_reads_it(lmdb_driver):
    rows = [(b"%06d" % number, b"x" * 400) for number in range(20_000)]
    lmdb_driver.storage.begin_checkpoint(1, True)
    for at in range(0, len(rows), 500):
        lmdb_driver.storage.put_rows(1, rows[at : at + 500])
    lmdb_driver.storage.commit_checkpoint(1, 9, 1)
    lmdb_driver.settle()
    stream = lmdb_driver.storage.open_stream(1)
    size = lmdb_driver.storage.figures()["table_map_bytes"]
    lmdb_driver.storage.begin_checkpoint(1, True)
    lmdb_driver.storage.put_rows(1, [(key + b"again", row * 3) for key, row in rows])
    lmdb_driver.storage.commit_checkpoint(1, 10, 1)
    lmdb_driver.settle()
    assert lmdb_driver.storage.figures()["table_map_bytes"] > size
    offset, last = 0, False
    while not last:
        chunk, last = stream.chunk(offset, 1 << 20)
        offset += len(chunk)
    assert offset == len(rows) * (12 + 6 + 400)
    assert sum(1 for _ in lmdb_driver.storage.rows(1)) == 20_000


def test_a_full_log_stops_and_acknowledges_nothing_more(tmp_path):
    driver = LmdbDriver(tmp_path / "data", SMALL._replace(log_map_bytes_max=2 << 20))
    acknowledged = 0

    def write_for_ever() -> None:
        nonlocal acknowledged
        while True:
            fill(driver, acknowledged + 1, 1, 50_000)
            wait_until(driver.storage, lambda: bool(driver.storage.take_durable()))
            acknowledged += 1

    with pytest.raises(StorageFailed, match="MAP_FULL"):
        write_for_ever()
    with pytest.raises(StorageFailed):
        driver.storage.take_durable()
    driver.close()
    driver = LmdbDriver(tmp_path / "data")
    assert 20 < acknowledged == len(driver.storage.load(1).entries)
    driver.close()


def test_a_full_log_goes_on_with_the_room_that_cutting_makes(tmp_path):
    driver = LmdbDriver(tmp_path / "data", SMALL._replace(log_map_bytes_max=2 << 20))
    for index in range(1, 200):
        fill(driver, index, 1, 50_000)
        driver.settle()
        if index % 10 == 0:
            checkpoint(driver, index)
            driver.storage.cut(1, index)
    driver.close()


def test_the_reserve_is_told_before_the_file_is_full(tmp_path):
    limits = StorageLimits(
        1 << 20, 8 << 20, 1 << 20, 8 << 20, map_reserve_bytes=4 << 20, disk_reserve_bytes=1
    )
    driver = LmdbDriver(tmp_path / "data", limits)
    assert not driver.storage.below_reserve
    fill(driver, 1, 50, 100_000)
    driver.settle()
    assert driver.storage.below_reserve
    checkpoint(driver, 50)
    driver.storage.cut(1, 50)
    wait_until(driver.storage, lambda: not driver.storage.below_reserve)
    driver.close()


def test_the_reserve_is_told_when_the_disk_is_nearly_full(tmp_path):
    driver = LmdbDriver(tmp_path / "data", SMALL._replace(disk_reserve_bytes=1 << 62))
    assert driver.storage.below_reserve
    driver.close()


def test_the_log_stays_flat_while_it_is_cut(lmdb_driver):
    """50,000 writes of 3 entries in all, checkpoints and cuts as a node makes them."""
    sizes = []
    file = Path(lmdb_driver.directory) / "log" / "data.mdb"
    group_count, per_write, index = 3, 3, 0
    for turn in range(1, 501):
        for seq in range(34):
            for group in range(group_count):
                at = index + seq
                made = write(at + 1, [entry(at * per_write + k + 1, size=100) for k in range(per_write)])
                lmdb_driver.storage.append(group, made)
        index += 34
        wait_until(lmdb_driver.storage, lambda: at_rest(lmdb_driver))
        if turn % 20 == 0:
            for group in range(group_count):
                lmdb_driver.storage.begin_checkpoint(group, False)
                lmdb_driver.storage.put_rows(group, [(b"row", b"%d" % turn)])
                lmdb_driver.storage.commit_checkpoint(group, index * per_write, 1)
            for group, covered in lmdb_driver.settle()[1]:
                lmdb_driver.storage.cut(group, covered)
            sizes.append(file.stat().st_size)
    assert sizes[-1] <= 1.5 * sizes[4], sizes
    wait_until(lmdb_driver.storage, lambda: lmdb_driver.storage.figures()["log_used_bytes"] < 200_000)
    lmdb_driver.reopen()
    assert lmdb_driver.storage.load(0).entries == []


def at_rest(driver: LmdbDriver) -> bool:
    driver.storage.take_durable()
    return driver.storage.figures()["log_queued_writes"] == 0


def test_generations_nobody_sees_are_deleted(lmdb_driver):
    rows = [(b"%06d" % number, b"x" * 200) for number in range(5000)]
    for index in (1, 2):
        lmdb_driver.storage.begin_checkpoint(1, True)
        lmdb_driver.storage.put_rows(1, rows)
        if index == 1:
            lmdb_driver.storage.commit_checkpoint(1, index, 1)
    lmdb_driver.settle()
    lmdb_driver.reopen()
    lmdb_driver.storage.begin_checkpoint(1, True)
    lmdb_driver.storage.put_rows(1, rows[:10])
    lmdb_driver.storage.commit_checkpoint(1, 3, 1)
    lmdb_driver.settle()
    assert len(list(lmdb_driver.storage.rows(1))) == 10
    wait_until(lmdb_driver.storage, lambda: lmdb_driver.storage.figures()["table_used_bytes"] < 50_000)
    assert len(list(lmdb_driver.storage.rows(1))) == 10


def test_entries_stay_alive_until_they_are_durable_and_no_longer(lmdb_driver):
    data = bytes(bytearray(b"alive" * 1000))
    made = write(1, [entry(1)])
    made.entries[0] = type(made.entries[0])(1, 1, 1, data)
    before = sys.getrefcount(data)
    lmdb_driver.storage.append(1, made)
    assert sys.getrefcount(data) == before + 1
    lmdb_driver.settle()
    assert sys.getrefcount(data) == before
    lmdb_driver.storage.append(1, write(2, made.entries, truncate_from=1))
    lmdb_driver.close()
    gc.collect()
    assert sys.getrefcount(data) == before


def test_a_storage_may_be_forgotten_without_closing_it(tmp_path):
    for round_ in range(5):
        driver = LmdbDriver(tmp_path / "data")
        assert len(driver.storage.load(1).entries) == 30 * round_
        driver.storage.begin_checkpoint(2, True)
        driver.storage.put_rows(2, [(b"a", b"1")])
        driver.storage.commit_checkpoint(2, 1 + round_, 1)
        driver.settle()
        stream = driver.storage.open_stream(2)
        rows = driver.storage.rows(2)
        next(rows)
        fill(driver, 30 * round_ + 1, 30, 1000)
        del driver, stream, rows
        gc.collect()


def test_streams_are_bounded_and_may_be_forgotten(lmdb_driver):
    lmdb_driver.storage.begin_checkpoint(1, True)
    lmdb_driver.storage.put_rows(1, [(b"a", b"1")])
    lmdb_driver.storage.commit_checkpoint(1, 1, 1)
    lmdb_driver.settle()
    streams = [lmdb_driver.storage.open_stream(1) for _ in range(STREAMS_MAX)]
    assert lmdb_driver.storage.open_stream(1) is None
    streams[0].close()
    assert lmdb_driver.storage.open_stream(1) is not None


def test_a_gap_in_the_log_stops_the_storage(lmdb_driver):
    lmdb_driver.storage.append(1, write(1, [entry(1), entry(3)]))
    with pytest.raises(StorageFailed, match="Invalid argument"):
        wait_until(lmdb_driver.storage, lambda: bool(lmdb_driver.storage.take_durable()))


def test_a_checkpoint_never_gets_ahead_of_the_durable_log(lmdb_driver):
    lmdb_driver.storage.append(1, write(1, [entry(1)]))
    lmdb_driver.settle()
    lmdb_driver.storage.begin_checkpoint(1, False)
    with pytest.raises(AssertionError, match="ahead of the durable log"):
        lmdb_driver.storage.commit_checkpoint(1, 2, 1)
