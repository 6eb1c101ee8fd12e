"""The in-memory twin keeps what was synced, loses what was not, and never shows half a checkpoint."""

from types import SimpleNamespace

import pytest

from fastlock._core.raft_message import ENTRY_BATCH, Entry
from fastlock.storage import StorageDamaged, StorageFailed
from fastlock.storage.memory import MemoryStorage
from fastlock.storage.rowpack import pack_row, unpack_rows


def entry(index, term=1, data=b"x" * 40):
    return Entry(term, index, ENTRY_BATCH, data + b"%d" % index)


def write(seq, entries=(), truncate_from=0, term=0, vote=0, reset=(0, 0)):
    return SimpleNamespace(
        seq=seq,
        hard_state=term > 0,
        term=term,
        vote=vote,
        reset_index=reset[0],
        reset_term=reset[1],
        truncate_from=truncate_from,
        entries=list(entries),
    )


def indexes(storage, group=1):
    return [(e.index, e.term) for e in storage.load(group).entries]


def test_only_synced_writes_are_acknowledged_in_order():
    storage = MemoryStorage()
    storage.append(1, write(1, [entry(1)]))
    storage.append(2, write(1, [entry(1)]))
    storage.append(1, write(2, [entry(2)]))
    assert storage.take_durable() == []
    storage.sync(2)
    assert storage.take_durable() == [(1, 1), (2, 1)]
    storage.sync(1)
    assert storage.take_durable() == [(1, 2)]


def test_a_crash_loses_what_was_not_synced():
    storage = MemoryStorage()
    storage.append(1, write(1, [entry(1)], term=3, vote=2))
    storage.sync(1)
    storage.append(1, write(2, [entry(2)], term=4, vote=1))
    storage.crash(kept=0, torn=False)
    stored = storage.load(1)
    assert (stored.term, stored.vote) == (3, 2)
    assert indexes(storage) == [(1, 1)]
    assert storage.take_durable() == []


def test_a_failed_sync_is_told_once_and_its_writes_are_gone():
    storage = MemoryStorage()
    storage.append(1, write(1, [entry(1)], term=3, vote=2))
    storage.sync(1)
    storage.append(1, write(2, [entry(2)], term=4, vote=1))
    storage.append(1, write(3, [entry(3)]))
    storage.fail_sync(1)
    with pytest.raises(StorageFailed):
        storage.take_durable()
    assert storage.take_durable() == [(1, 1)]
    storage.crash(kept=1, torn=True)
    assert (storage.load(1).term, indexes(storage)) == (3, [(1, 1)])


def test_a_crash_may_keep_writes_nobody_was_told_of():
    storage = MemoryStorage()
    storage.append(1, write(1, [entry(1)]))
    storage.append(1, write(2, [entry(2)]))
    storage.crash(kept=1, torn=False)
    assert indexes(storage) == [(1, 1)]


def test_a_torn_write_is_found_by_its_checksum():
    storage = MemoryStorage()
    storage.append(1, write(1, [entry(1)]))
    storage.sync(1)
    storage.append(1, write(2, [entry(2), entry(3)]))
    storage.crash(kept=0, torn=True)
    assert indexes(storage) == [(1, 1), (2, 1)]


def test_truncation_replaces_the_tail():
    storage = MemoryStorage()
    storage.append(1, write(1, [entry(1), entry(2), entry(3)]))
    storage.append(1, write(2, [entry(2, term=2)], truncate_from=2))
    storage.sync(2)
    assert indexes(storage) == [(1, 1), (2, 2)]


def checkpoint(storage, index, term, rows, whole=False):
    storage.begin_checkpoint(1, whole)
    storage.put_rows(1, rows)
    storage.commit_checkpoint(1, index, term)


def filled():
    storage = MemoryStorage()
    storage.append(1, write(1, [entry(i) for i in range(1, 11)]))
    storage.sync(1)
    checkpoint(storage, 4, 1, [(b"a", b"1"), (b"b", b"2")])
    storage.sync_checkpoint()
    return storage


def test_a_checkpoint_is_visible_all_at_once():
    storage = filled()
    assert storage.take_checkpoints() == [(1, 4)]
    checkpoint(storage, 8, 1, [(b"b", None), (b"c", b"3")])
    assert list(storage.rows(1)) == [(b"a", b"1"), (b"b", b"2")]
    storage.sync_checkpoint()
    assert list(storage.rows(1)) == [(b"a", b"1"), (b"c", b"3")]
    assert storage.load(1)[4:] == (8, 1)


def test_a_crash_half_way_leaves_the_checkpoint_before():
    storage = filled()
    checkpoint(storage, 8, 1, [(b"b", None)])
    storage.crash(kept=0, torn=False)
    storage.begin_checkpoint(1, whole=True)
    storage.put_rows(1, [(b"z", b"9")])
    storage.crash(kept=0, torn=False)
    assert list(storage.rows(1)) == [(b"a", b"1"), (b"b", b"2")]
    assert storage.load(1).checkpoint_index == 4


def test_the_log_is_cut_only_behind_a_checkpoint():
    storage = filled()
    storage.cut(1, 4)
    assert indexes(storage)[0] == (5, 1)
    assert storage.read(1, 4, 6, 1 << 20) == []
    assert [e.index for e in storage.read(1, 5, 7, 1 << 20)] == [5, 6, 7]
    assert [e.index for e in storage.read(1, 5, 7, 1)] == [5]
    with pytest.raises(AssertionError):
        storage.cut(1, 5)


def test_an_installed_checkpoint_beyond_the_log_starts_a_new_one():
    storage = filled()
    checkpoint(storage, 20, 3, [(b"z", b"9")], whole=True)
    storage.sync_checkpoint()
    storage.crash(kept=0, torn=False)
    stored = storage.load(1)
    assert (stored.cut_index, list(stored.entries)) == (20, [])
    assert list(storage.rows(1)) == [(b"z", b"9")]


def test_an_installed_checkpoint_that_contradicts_the_log_starts_a_new_one():
    storage = filled()
    checkpoint(storage, 6, 2, [(b"z", b"9")], whole=True)
    storage.sync_checkpoint()
    assert storage.load(1).cut_index == 6
    assert indexes(storage) == []


def test_lost_acknowledged_writes_are_said():
    storage = filled()
    storage.forget(1)
    with pytest.raises(StorageDamaged):
        storage.load(1)


def test_a_stream_is_not_disturbed_by_later_checkpoints():
    storage = filled()
    stream = storage.open_stream(1)
    checkpoint(storage, 8, 1, [(b"a", None), (b"b", None)])
    storage.sync_checkpoint()
    rows, offset, last = [], 0, False
    while not last:
        chunk, last = stream.chunk(offset, 1)
        rows += unpack_rows(chunk)
        offset += len(chunk)
    assert rows == [(b"a", b"1"), (b"b", b"2")]
    assert (stream.index, stream.term) == (4, 1)


def test_damaged_rows_are_refused():
    packed = pack_row(b"key", b"row")
    assert list(unpack_rows(packed + packed)) == [(b"key", b"row")] * 2
    for broken in (packed[:-1], packed[:5], packed[:-1] + b"?"):
        with pytest.raises(ValueError, match="row"):
            list(unpack_rows(broken))
