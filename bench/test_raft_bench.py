"""What Raft itself costs per batch: no network, no disk, no commands applied."""

from __future__ import annotations

from typing import Any

from conftest import Figures
from pytest_benchmark.fixture import BenchmarkFixture

from fastlock._core.codec_commands import encode_entry
from fastlock._core.raft import LEADER, Raft
from fastlock._core.raft_message import Member

GROUP = 1
BATCH_COMMANDS = 64
ROUND_US_MAX = 20.0
COMPACT_EVERY = 256
ROUNDS = 20_000


class Trio:
    """Three members, of which 1 leads, with messages and writes handed over at once."""

    def __init__(self) -> None:
        members = [Member(node) for node in (1, 2, 3)]
        self.nodes = {node: Raft(group=GROUP, node=node, members=members, seed=node) for node in (1, 2, 3)}
        self.nodes[1].campaign()
        for _ in range(20):
            for raft in self.nodes.values():
                while raft.has_ready:
                    ready = raft.ready()
                    messages = ready.messages
                    if ready.write is not None:
                        messages += raft.persisted(ready.write.seq)
                    for message in messages:
                        self.nodes[message.target].step(message, 0)
        assert self.nodes[1].role == LEADER
        assert self.nodes[1].commit_index == 1

    def compact(self) -> None:
        for raft in self.nodes.values():
            while raft.has_ready:
                raft.ready()
            raft.compact(min(raft.handed_index, raft.durable_index))

    def round(self, data: bytes) -> int:
        """A batch from its proposal to its commit on the leader, with every member's Raft work in between."""
        nodes = self.nodes
        leader = nodes[1]
        leader.propose(data)
        proposed = leader.ready()
        for message in proposed.messages:
            follower = nodes[message.target]
            follower.step(message, 0)
            stored = follower.ready()
            for reply in follower.persisted(stored.write.seq):  # type: ignore[union-attr]
                leader.step(reply, 0)
        leader.persisted(proposed.write.seq)  # type: ignore[union-attr]
        return len(leader.ready().committed)


def batches(first: int, count: int) -> list[bytes]:
    commands = [
        {"key": b"key-%020d" % number, "acquire": {"request": number, "ttlMs": 10_000, "owner": b"bench"}}
        for number in range(BATCH_COMMANDS)
    ]
    return [encode_entry(GROUP, 1, index, commands) for index in range(first, first + count)]


def test_one_batch_to_two_followers_and_back_to_commit(benchmark: BenchmarkFixture, figures: Figures) -> None:
    trio = Trio()
    prepared: list[bytes] = []

    def setup() -> tuple[tuple[bytes], dict[str, Any]]:
        if not prepared:
            prepared.extend(reversed(batches(trio.nodes[1].next_index, COMPACT_EVERY)))
            trio.compact()
        return (prepared.pop(),), {}

    assert benchmark.pedantic(trio.round, setup=setup, rounds=ROUNDS) == 1
    figures.record(
        f"raft: one batch of {BATCH_COMMANDS} to two followers and back to commit",
        benchmark.stats.stats.median * 1e6,
        "us",
        bar=ROUND_US_MAX,
    )
