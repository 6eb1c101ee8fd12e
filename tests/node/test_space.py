"""Short of space: what adds state is refused, what frees some is not, and somebody else leads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.node.cluster import Cluster, run, until, until_async
from tests.node.test_serve import LEASE, acquire

# More than any disk of today has.
NO_SPACE = f"storage.disk_reserve_bytes={1 << 40}"


def test_what_adds_state_is_refused_and_what_frees_some_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            async with await cluster.probe() as probe:
                token = (await probe.ask(acquire(b"k")))["grant"]["token"]
            await cluster.crash(1)
            cluster.settings += (NO_SPACE,)
            await cluster.start()
            await until(lambda: cluster.nodes[1].is_full, "the node notices")
            async with await cluster.probe() as probe:
                assert (await probe.ask(acquire(b"other", of={"leaseHigh": 4, "leaseLow": 4})))[
                    "code"
                ] == "storageFull"
                assert (await probe.ask({"keepAlive": [{"group": 1, **LEASE}]}))["keptAlive"][0][
                    "code"
                ] == "ok"
                release = {"command": {"key": b"k", **LEASE, "release": {"token": token}}}
                assert (await probe.ask(release))["code"] == "ok"

    run(scenario())


def test_somebody_with_space_leads(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=3, partitions=1) as cluster:
            for number in (2, 3):
                cluster.make(number)
            cluster.settings += (NO_SPACE,)
            cluster.make(1)
            await asyncio.gather(*(node.start() for node in cluster.nodes.values()))
            await cluster.ready()
            await until(
                lambda: cluster.leader(1) in (2, 3),
                "the lead moves away from node 1, which would be preferred",
            )
            async with await cluster.probe(1) as probe:

                async def granted() -> bool:
                    return await probe.try_lock(b"k") == ""

                await until_async(granted, "locks are granted through any node")

    run(scenario())
