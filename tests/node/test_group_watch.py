"""A watch is served by a replica that hears of changes, or refused at once."""

import pytest

from fastlock._core.raft_message import Member
from fastlock._core.raft_settings import RaftSettings
from fastlock.node.engine import Engine
from fastlock.node.group import GroupSettings
from fastlock.schema.enums import Code
from fastlock.storage.memory import MemoryStorage

ELECTION_MS_MAX = 300


class Nobody:
    """Observes a group and keeps it to itself."""

    def elected(self, group):
        pass

    def applied(self, group, entry):
        pass

    def frozen(self, group):
        pass

    def loaded(self, group):
        pass


def an_engine(members):
    settings = GroupSettings(
        raft=RaftSettings(election_ms_min=150, election_ms_max=ELECTION_MS_MAX, heartbeat_ms=50)
    )
    storage = MemoryStorage()
    engine = Engine(1, storage, settings, [1], [Member(number) for number in members], lambda: 1, 0, Nobody())
    return engine, storage


def run_until_it_leads(engine, storage):
    now_ms = 0
    while not engine.groups[1].leading:
        now_ms += 10
        assert now_ms <= 10 * ELECTION_MS_MAX
        engine.turn(now_ms)
        storage.sync(storage.queued)


@pytest.mark.parametrize("members", [(1, 2, 3), (2, 3), ()])
def test_a_watch_on_a_replica_without_a_leader_is_refused(members):
    """Cut off, removed or not yet joined, it would stay silent for ever and the watcher would not know."""
    engine, _ = an_engine(members)
    engine.groups[1].watch(b"", True, None, "watcher")
    assert [(answer.handle, answer.code) for answer in engine.take_answers()] == [
        ("watcher", Code.unavailable)
    ]


def test_a_watch_on_a_replica_with_a_leader_is_served():
    engine, storage = an_engine((1,))
    run_until_it_leads(engine, storage)
    engine.take_answers()
    engine.groups[1].watch(b"", True, None, "watcher")
    assert [answer.code for answer in engine.take_answers()] == [Code.ok]
