"""Clocks that move and loops that stood still: nobody loses a lock because of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fastlock.node.clock import MonotonicClock
from tests.node.cluster import Cluster, run, until
from tests.node.test_serve import LEASE, acquire

HOUR_MS = 3_600_000


class MovedClock:
    """The real one, and how far somebody moved it."""

    def __init__(self) -> None:
        self._real = MonotonicClock()
        self.moved_ms = 0

    def now_ms(self) -> int:
        return self._real.now_ms() + self.moved_ms


def test_a_clock_moved_by_an_hour_ends_no_lease(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=3, partitions=1) as cluster:
            clocks = {number: MovedClock() for number in cluster.peers}
            for number, clock in clocks.items():
                cluster.make(number, clock=clock)
            await asyncio.gather(*(node.start() for node in cluster.nodes.values()))
            await cluster.ready()
            await until(lambda: cluster.leader(1) == 1, "node 1 leads")
            async with await cluster.probe(1) as probe:
                token = (await probe.ask(acquire(b"k", ttlMs=30_000)))["grant"]["token"]
                clocks[1].moved_ms += HOUR_MS
                for clock in clocks.values():
                    clock.moved_ms += HOUR_MS
                await cluster.ready()
                await until(lambda: cluster.leader(1) == 1, "node 1 leads again")
                lease = {"group": 1, **LEASE}
                reply = await probe.ask({"keepAlive": [lease]})
                while reply["keptAlive"][0]["code"] in ("notLeader", "outcomeUnknown", "unavailable"):
                    reply = await probe.ask({"keepAlive": [lease]})
                assert reply["keptAlive"][0]["code"] == "ok"
                state = await probe.ask({"getLock": {"key": b"k"}})
                assert state["lock"]["holders"][0]["revision"] == token

    run(scenario())


def test_a_lease_that_nobody_keeps_alive_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            async with await cluster.probe() as holder, await cluster.probe() as waiter:
                token = (await holder.ask(acquire(b"k", ttlMs=100)))["grant"]["token"]
                asked = acquire(b"k", of={"leaseHigh": 6, "leaseLow": 6}, wait=True)
                assert (await waiter.ask(asked))["code"] == "queued"
                granted = await waiter.next_reply()
                assert granted["code"] == "ok"
                assert granted["grant"]["token"] > token
                kept = await holder.ask({"keepAlive": [{"group": 1, **LEASE}]})
                assert kept["keptAlive"][0]["code"] == "leaseLost"

    run(scenario())
