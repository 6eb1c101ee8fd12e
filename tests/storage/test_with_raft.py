"""Raft's own writes through LMDB, over restarts, a checkpoint and a cut."""

from __future__ import annotations

from fastlock._core.codec_commands import encode_entry
from fastlock._core.raft import LEADER, Raft
from fastlock._core.raft_message import Member

from .drivers import LmdbDriver

GROUP = 3


def start(driver: LmdbDriver) -> Raft:
    stored = driver.storage.load(GROUP)
    return Raft(
        group=GROUP,
        node=1,
        members=[Member(1)],
        seed=1,
        term=stored.term,
        vote=stored.vote,
        snapshot_index=stored.checkpoint_index,
        snapshot_term=stored.checkpoint_term,
        cut_index=stored.cut_index,
        entries=[entry for entry in stored.entries if entry.index > stored.checkpoint_index],
    )


def settle(driver: LmdbDriver, raft: Raft) -> list[int]:
    """Runs the member until it wants nothing more; the indexes it committed."""
    committed: list[int] = []
    while raft.has_ready:
        ready = raft.ready()
        committed += [entry.index for entry in ready.committed]
        if ready.write is not None:
            driver.storage.append(GROUP, ready.write)
            for group, seq in driver.settle()[0]:
                assert group == GROUP
                raft.persisted(seq)
    return committed


def test_a_member_goes_on_where_it_was(lmdb_driver):
    index = 0
    for round_ in range(1, 5):
        raft = start(lmdb_driver)
        assert raft.term == round_ - 1
        raft.campaign()
        settle(lmdb_driver, raft)
        assert (raft.role, raft.term) == (LEADER, round_)
        for _ in range(20):
            raft.propose(encode_entry(GROUP, raft.term, raft.next_index, [{"closeSession": None}]))
            settle(lmdb_driver, raft)
        index += 21
        assert raft.commit_index == raft.durable_index == index
        if round_ % 2 == 0:
            lmdb_driver.storage.begin_checkpoint(GROUP, False)
            lmdb_driver.storage.put_rows(GROUP, [(b"row", b"%d" % index)])
            lmdb_driver.storage.commit_checkpoint(GROUP, index, raft.term)
            assert lmdb_driver.settle()[1] == [(GROUP, index)]
            lmdb_driver.storage.cut(GROUP, index - round_)
        lmdb_driver.reopen()
    stored = lmdb_driver.storage.load(GROUP)
    assert (stored.term, stored.vote) == (4, 1)
    assert (stored.cut_index, stored.checkpoint_index) == (index - 4, index)
