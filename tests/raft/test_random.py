"""Random faults on a small group: Raft's safety properties hold throughout, and then it makes progress."""

from __future__ import annotations

import random

import pytest

from fastlock._core.raft import LEADER, Refused
from fastlock._core.raft_message import ROLE_LEARNER, ROLE_VOTER, Member
from fastlock._core.raft_settings import RaftSettings

from .cluster import Cluster, Node

SEEDS = range(80)
STEPS = 2500
SETTINGS = RaftSettings(
    election_ms_min=150, election_ms_max=300, heartbeat_ms=50, append_bytes_max=400, inflight_messages_max=4
)


class Chaos:
    """Takes random steps on a cluster and checks after each one what must never be violated."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(self.random.choice([1, 2, 3, 3, 3, 4, 5]), settings=SETTINGS, seed=seed * 7919)
        self.leader_of: dict[int, int] = {}
        self.committed: dict[int, tuple[int, str]] = {}
        self.acknowledged = 0  # the highest index anyone ever applied
        self.read_floor: dict[tuple[int, int, int], int] = {}
        self.counter = 0
        for node in self.cluster.nodes.values():
            node.auto_sync = False

    def step(self) -> None:
        self.pump()
        actions = [
            (20, self.tick),
            (20, self.propose),
            (8, self.read),
            (3, self.duplicate),
            (3, self.lose),
            (1, self.crash),
            (2, self.restart),
            (1, self.partition),
            (2, self.heal),
            (3, self.checkpoint),
            (2, self.cut),
            (1, self.transfer),
            (1, self.change_members),
        ]
        (action,) = self.random.choices([act for _, act in actions], [weight for weight, _ in actions])
        action()
        self.check()

    def pump(self) -> None:
        """Everyone gets on with its work, at its own pace: a slow disk has many writes outstanding."""
        for node in self.cluster.nodes.values():
            if node.alive and self.random.random() < 0.6:
                node.take_ready()
            if node.alive and self.random.random() < 0.3:
                node.sync(self.random.randint(1, 3))
        wire = self.cluster.wire
        for _ in range(min(len(wire), self.random.randint(0, 8))):
            # Mostly in order, as a link delivers; now and then something overtakes.
            place = 0 if self.random.random() < 0.9 else self.random.randrange(len(wire))
            self.cluster.hand_over(wire.pop(place))

    def node(self) -> Node:
        return self.random.choice(list(self.cluster.nodes.values()))

    def living(self) -> Node | None:
        living = [node for node in self.cluster.nodes.values() if node.alive]
        return self.random.choice(living) if living else None

    def tick(self) -> None:
        self.cluster.now_ms += self.random.choice([1, 5, 20, 60])
        for node in self.cluster.nodes.values():
            if node.alive and self.random.random() < 0.9:
                node.raft.tick(self.cluster.now_ms)
                node.raft.check_invariants()

    def propose(self) -> None:
        for node in self.cluster.nodes.values():
            if node.alive and node.raft.can_propose(1 << 20):
                self.counter += 1
                node.propose(f"k{self.counter}")

    def read(self) -> None:
        if node := self.living():
            self.counter += 1
            # Whatever was applied anywhere before the read was asked must be visible to it.
            self.read_floor[node.id, node.starts, self.counter] = self.acknowledged
            node.raft.read_index(self.counter)

    def duplicate(self) -> None:
        if self.cluster.wire:
            self.cluster.wire.append(self.random.choice(self.cluster.wire))

    def lose(self) -> None:
        for _ in range(min(len(self.cluster.wire), self.random.randint(1, 5))):
            self.cluster.wire.pop(self.random.randrange(len(self.cluster.wire)))

    def crash(self) -> None:
        node = self.node()
        if node.alive:
            node.sync(self.random.randint(0, 2))  # whatever reached the disk before the crash
            node.crash()

    def restart(self) -> None:
        for node in self.cluster.nodes.values():
            if not node.alive:
                node.start()

    def partition(self) -> None:
        ids = list(self.cluster.nodes)
        self.cluster.isolate(*self.random.sample(ids, self.random.randint(1, len(ids))))

    def heal(self) -> None:
        self.cluster.heal()

    def checkpoint(self) -> None:
        if node := self.living():
            node.checkpoint()

    def cut(self) -> None:
        if node := self.living():
            node.cut()

    def transfer(self) -> None:
        for node in self.cluster.nodes.values():
            if node.alive and node.raft.role == LEADER:
                try:
                    node.raft.transfer(self.random.choice(list(self.cluster.nodes)))
                except Refused:
                    return

    def change_members(self) -> None:
        for node in list(self.cluster.nodes.values()):
            if not (node.alive and node.raft.role == LEADER):
                continue
            members = {member.node: member for member in node.raft.members}
            target = self.random.randint(1, 6)
            if target not in members:
                if target not in self.cluster.nodes:
                    self.cluster.join(target).auto_sync = False
                members[target] = Member(target, ROLE_LEARNER)
            elif members[target].role == ROLE_LEARNER:
                members[target] = Member(target, ROLE_VOTER)
            elif len(members) > 2:
                del members[target]
            try:
                node.raft.propose_membership(members.values())
            except Refused:
                return

    def check(self) -> None:
        for node in self.cluster.nodes.values():
            if not node.alive:
                continue
            if node.raft.role == LEADER:
                known = self.leader_of.setdefault(node.raft.term, node.id)
                assert known == node.id, f"election safety: two leaders in term {node.raft.term}"
            for index, term, key in node.applied[-64:]:
                known_entry = self.committed.setdefault(index, (term, key))
                assert known_entry == (term, key), f"state machine safety: index {index}"
            self.acknowledged = max(self.acknowledged, node.applied_index)
            for context, _, applied in node.reads:
                floor = self.read_floor.get((node.id, node.starts, context), 0)
                assert applied >= floor, f"a read at {applied} misses {floor}"
            node.reads.clear()

    def check_logs(self) -> None:
        """Log matching, and leader completeness on the leader of the highest term."""
        logs = {
            node.id: {entry.index: entry for entry in node.raft.log_entries()}
            for node in self.cluster.nodes.values()
            if node.alive
        }
        for one in logs.values():
            for other in logs.values():
                same = [i for i in one.keys() & other.keys() if one[i].term == other[i].term]
                below = [i for i in one.keys() & other.keys() if same and i <= max(same)]
                assert all(one[i].data == other[i].data for i in below), "log matching"
        newest = max(self.leader_of, default=0)
        leader = self.cluster.nodes.get(self.leader_of.get(newest, 0))
        if leader is not None and leader.alive and leader.raft.term == newest and leader.raft.role == LEADER:
            for index, (term, _) in self.committed.items():
                entry = logs[leader.id].get(index)
                covered = index <= leader.disk.checkpoint[0]
                assert covered or (entry is not None and entry.term == term), "leader completeness"

    def quiet(self) -> None:
        """Faults stop: within a few elections the group must serve again."""
        self.heal()
        self.restart()
        for node in self.cluster.nodes.values():
            node.auto_sync = True
        self.cluster.run(3000)
        leader = self.cluster.leader()
        before = leader.raft.commit_index
        leader.propose("afterwards")
        self.counter += 1
        leader.raft.read_index(self.counter)
        self.cluster.run(1000)
        self.check()
        assert leader.raft.commit_index > before, "liveness: nothing commits after the faults stopped"
        for member in leader.raft.members:
            assert self.cluster[member.node].applied == leader.applied, "liveness: a member does not catch up"


@pytest.mark.parametrize("seed", SEEDS)
def test_safety_under_random_faults_and_progress_after_them(seed: int) -> None:
    chaos = Chaos(seed)
    for step in range(STEPS):
        chaos.step()
        if step % 50 == 0:
            chaos.check_logs()
    chaos.quiet()
    chaos.check_logs()


def test_the_random_runs_do_enough_to_mean_something() -> None:
    terms = commits = 0
    for seed in range(20):
        chaos = Chaos(seed)
        for _ in range(STEPS):
            chaos.step()
        terms += len(chaos.leader_of)
        commits += len(chaos.committed)
    assert terms >= 150
    assert commits >= 2500
