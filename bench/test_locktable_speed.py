"""The lock table at work: time per command on leader and follower, memory, growth, leases that run out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import loops
import pytest
from conftest import WORKING_SET, Figures
from pytest_benchmark.fixture import BenchmarkFixture
from traffic import BATCH_COMMANDS, GROUP, Traffic, new_lane

from fastlock._core.codec_commands import encode_entry
from fastlock._core.locktable import LockTable

LEADER_NS_MAX = 500.0
FOLLOWER_NS_MAX = 250.0
LOCK_BYTES_MAX = 300.0
SLOWDOWN_MAX = 1.5
CALL_MS_MAX = 5.0
FEW, MANY = 1000, 1_000_000
LEASES_DUE = 100_000
DUE_PAGE = 1024
TTL_MS = 30_000

# Short rounds, so that some are not disturbed by other work on the machine.
ROUNDS = 300
ROUND_BATCHES = 5
ROUND_COMMANDS = ROUND_BATCHES * BATCH_COMMANDS


class Group:
    """A leader's and a follower's table of one group, with a number of locks held in both."""

    def __init__(self, held: int, with_follower: bool = True) -> None:
        self.lane = new_lane()
        self.tables = [LockTable(GROUP) for _ in range(1 + with_follower)]
        own_all = encode_entry(GROUP, 1, 1, [{"ownSlots": {"first": 0, "last": 16383}}])
        for table in self.tables:
            table.apply(own_all, 0)
        self.traffic = Traffic(seed=held, revision=self.tables[0].revision, ttl_ms=TTL_MS)
        self.times_ns: dict[str, list[float]] = {}
        while len(self.traffic.held) < held:
            self.round("fill", self.traffic.acquires(min(ROUND_COMMANDS, held - len(self.traffic.held))))

    def round(self, name: str, requests: list[bytes]) -> None:
        """The requests through the leader, then the same entries through the follower."""
        leader_ns, entries = loops.lead(*self.lane, self.tables[0], requests, 0)
        self.times_ns.setdefault(f"leader {name}", []).append(leader_ns / ROUND_COMMANDS)
        for follower in self.tables[1:]:
            follower_ns = loops.follow(follower, entries, 0)
            self.times_ns.setdefault(f"follower {name}", []).append(follower_ns / ROUND_COMMANDS)

    def acquire_and_release(self) -> None:
        self.round("release", self.traffic.releases(ROUND_COMMANDS))
        self.round("acquire", self.traffic.acquires(ROUND_COMMANDS))

    def check(self) -> None:
        """Everything was granted and released as planned; otherwise the times mean nothing."""
        for table in self.tables:
            assert table.revision == self.traffic.revision
            assert table.lock_count == table.lease_count == len(self.traffic.held)

    def command_ns(self, name: str) -> float:
        return min(self.times_ns[name])


def test_time_per_command(benchmark: BenchmarkFixture, figures: Figures) -> None:
    group = Group(WORKING_SET)

    def one_round() -> None:
        group.acquire_and_release()
        figures.measure_yardstick()

    benchmark.pedantic(one_round, rounds=ROUNDS)
    group.check()
    for kind in ("acquire", "release"):
        figures.record(
            f"leader: decode, apply, reply, one {kind}",
            group.command_ns(f"leader {kind}"),
            "ns",
            LEADER_NS_MAX,
        )
        figures.record(
            f"follower: apply one {kind}", group.command_ns(f"follower {kind}"), "ns", FOLLOWER_NS_MAX
        )


def test_time_per_command_hardly_depends_on_the_number_of_locks(
    benchmark: BenchmarkFixture, figures: Figures
) -> None:
    few, many = Group(FEW, with_follower=False), Group(MANY, with_follower=False)

    def one_round() -> None:
        few.acquire_and_release()
        many.acquire_and_release()

    benchmark.pedantic(one_round, rounds=ROUNDS)
    for kind in ("acquire", "release"):
        few_ns, many_ns = few.command_ns(f"leader {kind}"), many.command_ns(f"leader {kind}")
        figures.record(f"leader: one {kind} with 1,000 held", few_ns, "ns")
        figures.record(f"leader: one {kind} with 1,000,000 held", many_ns, "ns")
        figures.record(
            f"slowdown of {kind} from 1,000 to 1,000,000 held", many_ns / few_ns, "times", SLOWDOWN_MAX
        )


@pytest.mark.parametrize("question", ["memory", "longest"])
def test_a_million_held_locks(benchmark: BenchmarkFixture, figures: Figures, question: str) -> None:
    """In a process of its own, so that nothing else is in its memory; the best of a few such processes."""
    script = Path(__file__).with_name("million_locks.py")
    results: list[dict[str, float]] = []

    def one_process() -> None:
        command = [sys.executable, str(script), str(MANY)]
        environment = os.environ | {"PYTHONPATH": str(script.parent.parent)}
        output = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=environment
        ).stdout
        bytes_each, longest_ms = map(float, output.split())
        results.append({"memory": bytes_each, "longest": longest_ms})

    benchmark.pedantic(one_process, rounds=3)
    best = min(result[question] for result in results)
    if question == "memory":
        figures.record("memory of one held lock with its lease, of 1,000,000", best, "bytes", LOCK_BYTES_MAX)
    else:
        figures.record("longest apply while growing to 1,000,000 locks", best, "ms", CALL_MS_MAX)


def test_many_leases_due_at_once(benchmark: BenchmarkFixture, figures: Figures) -> None:
    def longest_due_ms() -> float:
        group = Group(LEASES_DUE, with_follower=False)
        table = group.tables[0]
        table.lead(0)
        return loops.drain_due(table, 2 * TTL_MS, DUE_PAGE, LEASES_DUE) / 1e6

    results: list[float] = []
    benchmark.pedantic(lambda: results.append(longest_due_ms()), rounds=3)
    figures.record("longest due() call, 100,000 leases due at once", min(results), "ms", CALL_MS_MAX)
