"""Three nodes on real sockets: forwarding, failover, leads that come back, and stopping."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fastlock.node.placement import key_between, preferred_leader
from tests.node.cluster import Cluster, run, until, until_async
from tests.node.test_serve import LEASE, acquire


def spread(cluster: Cluster) -> bool:
    groups = range(1, len(cluster.peers) + 1)
    return all(cluster.leader(group) == preferred_leader(group, list(cluster.peers)) for group in groups)


def test_any_node_serves_every_key_and_says_who_leads(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=3) as cluster:
            await cluster.start()
            await until(lambda: spread(cluster), "every group is led by its preferred node")
            async with await cluster.probe(2) as probe:
                for number, (first, last) in enumerate(((0, 5460), (5461, 10921), (10922, 16383)), 1):
                    reply = await probe.ask(
                        acquire(key_between(first, last), of={"leaseHigh": 8, "leaseLow": number})
                    )
                    assert (reply["code"], reply["leader"], reply["group"]) == ("ok", number, number)
                leases = [{"group": number, "leaseHigh": 8, "leaseLow": number} for number in (1, 2, 3)]
                kept = (await probe.ask({"keepAlive": leases}))["keptAlive"]
                assert [one["code"] for one in kept] == ["ok"] * 3
                told = (await probe.ask({"describe": None}))["cluster"]
                natives = {member["id"]: member["native"] for member in told["members"]}
                assert natives == {number: str(cluster.native(number)) for number in (1, 2, 3)}

    run(scenario())


def test_a_forwarded_wait_is_answered_when_it_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=3, partitions=1) as cluster:
            await cluster.start()
            await until(lambda: cluster.leader(1) == 1, "node 1 leads")
            async with await cluster.probe(1) as holder, await cluster.probe(3) as waiter:
                token = (await holder.ask(acquire(b"k")))["grant"]["token"]
                queued = await waiter.ask(acquire(b"k", of={"leaseHigh": 5, "leaseLow": 5}, wait=True))
                assert queued["code"] == "queued"
                await holder.ask({"command": {"key": b"k", **LEASE, "release": {"token": token}}})
                granted = await waiter.next_reply()
                assert granted["code"] == "ok"
                assert granted["grant"]["token"] > token

    run(scenario())


def test_the_cluster_outlives_its_leader_and_gives_the_lead_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=3, partitions=1) as cluster:
            await cluster.start()
            await until(lambda: cluster.leader(1) == 1, "node 1 leads")
            async with await cluster.probe(2) as probe:
                token = (await probe.ask(acquire(b"k")))["grant"]["token"]
                await cluster.crash(1)
                await until(lambda: cluster.leader(1) in (2, 3), "somebody else leads")

                async def reads() -> bool:
                    reply = await probe.ask({"getLock": {"key": b"k"}})
                    if reply["code"] != "ok":
                        return False
                    assert reply["lock"]["holders"][0]["revision"] == token
                    return True

                await until_async(reads, "the lock is read at the new leader")
            await cluster.start(1)
            await until(lambda: cluster.leader(1) == 1, "the lead goes back to node 1")

    run(scenario())


def test_a_node_that_stops_hands_its_leads_over_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(
            tmp_path, nodes=3, settings=("raft.election_ms_min=5000", "raft.election_ms_max=6000")
        ) as cluster:
            for number in cluster.peers:
                cluster.make(number)
            await asyncio.gather(*(node.start() for node in cluster.nodes.values()))
            engine = cluster.nodes[1].engine
            assert engine is not None
            for group in engine.groups.values():
                group.campaign()
            cluster.nodes[1].schedule()
            await until(
                lambda: all(cluster.leader(group) == 1 for group in range(4)), "node 1 leads everything"
            )
            await cluster.nodes.pop(1).stop()
            # Without a transfer nobody would campaign for another five seconds.
            await until(
                lambda: all(cluster.leader(group) in (2, 3) for group in range(4)), "handed over", 3.0
            )

    run(scenario())


def test_a_cluster_without_a_majority_says_so_and_recovers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=3, partitions=1) as cluster:
            await cluster.start()
            await cluster.crash(1)
            await cluster.crash(2)
            await until(lambda: cluster.leader(1) == 0, "nobody leads")
            async with await cluster.probe(3) as probe:
                assert (await probe.ask({"getLock": {"key": b"k"}}))["code"] == "unavailable"
                assert (await probe.ask({"getLock": {"key": b"k", "stale": True}}))["code"] == "notFound"
                assert (await probe.ask(acquire(b"k")))["code"] in ("notLeader", "unavailable")
            await cluster.start(1, 2)
            await cluster.ready()

    run(scenario())
