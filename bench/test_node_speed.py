"""Three nodes' engines in one process: from request frames over peer frames and commits to reply frames.

No sockets and no disk: what is left is what a node's own work costs per turn and per command.
"""

from __future__ import annotations

import time
from collections import defaultdict

import pytest
from conftest import Figures
from pytest_benchmark.fixture import BenchmarkFixture
from traffic import GROUP, Traffic

from fastlock._core.raft import LEADER
from fastlock._core.raft_frame import decode_messages, encode_message
from fastlock._core.raft_message import Entry, Member
from fastlock._core.raft_settings import RaftSettings
from fastlock.node.engine import Engine
from fastlock.node.group import Group, GroupSettings
from fastlock.storage.memory import MemoryStorage

NODES = (1, 2, 3)
WORKING_SET = 50_000
ROUNDS = 400

# The leader's own work for a batch of 64; that of all three together; and commands per second at 1024.
LEADER_TURN_US_MAX = 60.0
ALL_TURNS_US_MAX = 200.0
LEADER_COMMAND_NS_MAX = 1000.0


class Silent:
    """An observer that wants to know nothing."""

    def elected(self, group: Group) -> None: ...
    def applied(self, group: Group, entry: Entry) -> None: ...
    def frozen(self, group: Group) -> None: ...
    def loaded(self, group: Group) -> None: ...


class Trio:
    """Three engines, of which one leads; messages cross as the frames they would be on a link."""

    def __init__(self) -> None:
        raft = RaftSettings(election_ms_min=1000, election_ms_max=1001)
        settings = GroupSettings(raft, checkpoint_dirty_rows=1 << 40)
        members = [Member(node) for node in NODES]
        self.now_ms = 0
        self.disks = {node: MemoryStorage() for node in NODES}
        self.engines = {
            node: Engine(node, self.disks[node], settings, [GROUP], members, lambda: 7, 0, Silent())
            for node in NODES
        }
        self.spent_ns: dict[int, int] = defaultdict(int)
        self.leader = 0
        while not self.leader:
            self.now_ms += 100
            self.run()
            self.leader = next((n for n in NODES if self.group(n).raft.role == LEADER), 0)
        for engine in self.engines.values():
            engine.intake.route(0, 16383, GROUP)
        self.replies = self.engines[self.leader].connect()
        self.group(self.leader).submit({"ownSlots": {"first": 0, "last": 16383}}, None)
        self.run()

    def group(self, node: int) -> Group:
        return self.engines[node].groups[GROUP]

    def run(self) -> None:
        """Turns until nothing is under way any more."""
        inbox: dict[int, list[bytes]] = {node: [] for node in NODES}
        busy = True
        while busy:
            busy = False
            for node, engine in self.engines.items():
                disk = self.disks[node]
                begin_ns = time.perf_counter_ns()
                for frame in inbox[node]:
                    for message in decode_messages(frame) or ():
                        engine.step(message, self.now_ms)
                inbox[node] = []
                engine.turn(self.now_ms)
                sent = [(m.target, b"".join(encode_message(m))) for m in engine.take_messages()]
                self.spent_ns[node] += time.perf_counter_ns() - begin_ns
                for target, frame in sent:
                    inbox[target].append(frame)
                if disk.queued:
                    disk.sync(disk.queued)
                    busy = True
                busy = busy or bool(sent)

    def serve(self, frames: bytes) -> bytes:
        """One connection's requests, from their arrival to the answer."""
        engine = self.engines[self.leader]
        begin_ns = time.perf_counter_ns()
        engine.receive(self.replies, frames, self.now_ms)
        self.spent_ns[self.leader] += time.perf_counter_ns() - begin_ns
        self.run()
        begin_ns = time.perf_counter_ns()
        (replies,) = engine.take_replies()
        answered = replies.take()
        self.spent_ns[self.leader] += time.perf_counter_ns() - begin_ns
        return answered


@pytest.mark.parametrize("commands", [64, 1024])
def test_commands_from_request_to_reply(benchmark: BenchmarkFixture, figures: Figures, commands: int) -> None:
    trio = Trio()
    table = trio.group(trio.leader).table
    traffic = Traffic(seed=1, revision=table.revision, batch_commands=commands)
    for frames in traffic.acquires(WORKING_SET):
        trio.serve(frames)
    leader_ns: list[int] = []
    all_ns: list[int] = []
    prepared: list[bytes] = []

    def setup() -> tuple[tuple[bytes], dict[str, object]]:
        if not prepared:
            for node in NODES:
                trio.group(node).raft.compact(table.applied_index)
            prepared.extend(traffic.acquires(commands * 8) + traffic.releases(commands * 8))
            prepared.reverse()
        trio.spent_ns.clear()
        return (prepared.pop(),), {}

    def serve(frames: bytes) -> None:
        trio.serve(frames)
        leader_ns.append(trio.spent_ns[trio.leader])
        all_ns.append(sum(trio.spent_ns.values()))

    benchmark.pedantic(serve, setup=setup, rounds=ROUNDS)
    assert table.revision == traffic.revision
    at_least = commands == 64
    leader_us, all_us = best(leader_ns) / 1e3, best(all_ns) / 1e3
    figures.record(
        f"node: leader's turns for a batch of {commands}",
        leader_us,
        "us",
        LEADER_TURN_US_MAX if at_least else None,
    )
    figures.record(
        f"node: all three nodes' turns for a batch of {commands}",
        all_us,
        "us",
        ALL_TURNS_US_MAX if at_least else None,
    )
    figures.record(
        f"node: leader, per command in a batch of {commands}",
        leader_us * 1e3 / commands,
        "ns",
        None if at_least else LEADER_COMMAND_NS_MAX,
    )


def best(times_ns: list[int]) -> float:
    """The tenth percentile: rounds without other work on the machine, without being the one lucky round."""
    return float(sorted(times_ns)[len(times_ns) // 10])
