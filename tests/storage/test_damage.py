"""Damaged files are found: what is read back is what was written, or an error, and never a crash."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fastlock.storage import StorageDamaged
from fastlock.storage.damage import RowsDamaged
from fastlock.storage.environment import Environment
from fastlock.storage.lmdb import LmdbStorage
from fastlock.storage.page_check import check_pages

from .drivers import IDENTITY, SMALL, LmdbDriver, entry, write

PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with branch, leaf and overflow pages and a free list in both environments."""
    directory = tmp_path_factory.mktemp("sound") / "data"
    driver = LmdbDriver(directory)
    index = 0
    for seq in range(1, 151):
        entries = [entry(index + 1), entry(index + 2, size=(300, 9000)[seq % 20 == 0])]
        driver.storage.append(1, write(seq, entries, hard_state=(seq, 1)))
        driver.storage.append(2, write(seq, [entry(seq, size=100)]))
        index += 2
    driver.settle()
    for round_ in range(3):
        rows = [(b"%04d" % number, b"%d" % number * 30) for number in range(round_, 1200, 1 + round_ * 40)]
        driver.storage.begin_checkpoint(1, False)
        driver.storage.put_rows(1, rows)
        driver.storage.put_rows(1, [(b"long" * 200, b"L" * 6000), (b"%04d" % round_, None)])
        driver.storage.commit_checkpoint(1, 40 + round_, 1)
        driver.settle()
    driver.storage.cut(1, 30)
    driver.settle()
    driver.reopen()
    driver.close()
    return directory


def content(directory: Path) -> Any:
    """Everything a node would read at its start."""
    storage = LmdbStorage(directory, IDENTITY, SMALL)
    try:
        loaded = [storage.load(group) for group in (1, 2)]
        stream = storage.open_stream(1)
        assert stream is not None
        return [
            [
                (stored[:3], stored[4:], [(e.term, e.index, e.kind, e.data) for e in stored.entries])
                for stored in loaded
            ],
            [list(storage.rows(group)) for group in (1, 2)],
            stream.chunk(0, 1 << 24),
        ]
    finally:
        storage.close()


def copied(sound: Path, to: Path) -> Path:
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(sound, to)
    return to


def check_damaged(sound: Path, directory: Path, environment: str, damaged: bytes, expected: Any) -> bool:
    """Whether the damage was found; it must have changed nothing otherwise."""
    for name in ("log", "table"):
        data = damaged if name == environment else (sound / name / "data.mdb").read_bytes()
        (directory / name / "data.mdb").write_bytes(data)
    try:
        found = content(directory)
    except StorageDamaged:
        return True
    assert found == expected
    return False


@pytest.mark.parametrize("environment", ["log", "table"])
def test_a_flipped_bit_is_found_or_harmless(sound, tmp_path, environment):
    random = Random(environment)
    directory = copied(sound, tmp_path / "data")
    expected = content(directory)
    original = (sound / environment / "data.mdb").read_bytes()
    pages = len(original) // PAGE_BYTES
    found = 0
    for number in range(150):
        damaged = bytearray(original)
        # Heads of pages and the meta pages get more than their share.
        page = random.choice((0, 1, *[random.randrange(pages)] * 8))
        at = page * PAGE_BYTES + random.randrange((160, PAGE_BYTES)[number % 2])
        damaged[at] ^= 1 << random.randrange(8)
        found += check_damaged(sound, directory, environment, damaged, expected)
    assert found >= 30


@pytest.mark.parametrize("environment", ["log", "table"])
def test_a_torn_page_is_found_or_harmless(sound, tmp_path, environment):
    random = Random(environment)
    directory = copied(sound, tmp_path / "data")
    expected = content(directory)
    original = (sound / environment / "data.mdb").read_bytes()
    found = 0
    for number in range(60):
        damaged = bytearray(original)
        at = random.randrange(len(original) // 512) * 512
        other = random.randrange(len(original) // 512) * 512
        damaged[at : at + 512] = bytes(512) if number % 2 else original[other : other + 512]
        found += check_damaged(sound, directory, environment, damaged, expected)
    assert found >= 15


@pytest.mark.parametrize("environment", ["log", "table"])
def test_a_file_that_was_cut_off_is_found(sound, tmp_path, environment):
    original = (sound / environment / "data.mdb").read_bytes()
    for size in (1, 100, PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES, len(original) // 3):
        directory = copied(sound, tmp_path / "data")
        (directory / environment / "data.mdb").write_bytes(original[:size])
        with pytest.raises(StorageDamaged):
            content(directory)


def test_a_log_that_went_missing_is_found(sound, tmp_path):
    directory = copied(sound, tmp_path / "data")
    shutil.rmtree(directory / "log")
    with pytest.raises(StorageDamaged, match="the log is missing"):
        content(directory)


def test_a_table_that_went_missing_is_found_once_the_log_was_cut(sound, tmp_path):
    directory = copied(sound, tmp_path / "data")
    shutil.rmtree(directory / "table")
    with pytest.raises(StorageDamaged, match="starts after 30"):
        content(directory)


def change_record(path: Path, key: bytes, change: Any) -> None:
    environment = Environment(str(path), 1 << 20, 1 << 20)
    record = environment.get(key)
    assert record is not None
    environment.put(key, change(record))
    environment.close()


def flipped(record: bytes) -> bytes:
    return record[:-1] + bytes([record[-1] ^ 1])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (b"E" + (1).to_bytes(4, "big") + (44).to_bytes(8, "big"), "entry 44 of group 1 is damaged"),
        (b"G" + (2).to_bytes(4, "big"), "term and vote of group 2 are damaged"),
        (b"I", "whose it is"),
    ],
)
def test_a_record_of_the_log_that_changed_is_named(sound, tmp_path, key, message):
    directory = copied(sound, tmp_path / "data")
    change_record(directory / "log", key, flipped)
    with pytest.raises(StorageDamaged, match=message):
        content(directory)


def test_damaged_rows_are_told_from_a_damaged_log(sound, tmp_path):
    directory = copied(sound, tmp_path / "data")
    change_record(
        directory / "table", b"R" + (1).to_bytes(4, "big") + (1).to_bytes(8, "big") + b"0009", flipped
    )
    storage = LmdbStorage(directory, IDENTITY, SMALL)
    storage.load(1)
    with pytest.raises(RowsDamaged):
        list(storage.rows(1))
    with pytest.raises(RowsDamaged):
        storage.open_stream(1).chunk(0, 1 << 24)
    storage.close()


def test_a_record_under_another_key_is_found(sound, tmp_path):
    directory = copied(sound, tmp_path / "data")
    keys = [b"E" + (1).to_bytes(4, "big") + index.to_bytes(8, "big") for index in (50, 52)]
    environment = Environment(str(directory / "log"), 1 << 20, 1 << 20)
    environment.put(keys[0], environment.get(keys[1]))
    environment.close()
    with pytest.raises(StorageDamaged, match="entry 50"):
        content(directory)


def test_sound_files_of_any_history_pass(tmp_path):
    """Grown, overwritten, emptied and filled again: LMDB's own pages are never taken for damage."""
    random = Random(3)
    environment = Environment(str(make(tmp_path / "any")), 64 << 20, 64 << 20)
    for _ in range(300):
        environment.put(
            b"%d" % random.randrange(60), random.randbytes(random.choice((1, 500, 1900, 2100, 5000, 30_000)))
        )
        check_pages(str(tmp_path / "any" / "data.mdb"))
    environment.close()


def make(path: Path) -> Path:
    path.mkdir()
    return path
