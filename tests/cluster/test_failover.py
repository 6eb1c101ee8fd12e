"""A leader that is killed or stopped: service is back within twice the longest election timeout."""

import asyncio
import time

import pytest

from fastlock import AsyncClient, ClientSettings
from fastlock.client.leases import HoldState
from fastlock.testing.local_cluster import LAN_FAST, LocalCluster

ELECTION_S_MAX = LAN_FAST["raft.election_ms_max"] / 1000
ROUNDS = 3
QUIET_S = 10.0

# A client that looks elsewhere well within an election timeout.
SETTINGS = ClientSettings(
    owner=b"failover",
    attempt_timeout_ms=100,
    attempt_timeout_ms_max=100,
    backoff_ms=5,
    backoff_ms_max=40,
    redial_ms=20,
    redial_ms_max=200,
)


async def leaders_are_known(cluster: LocalCluster) -> dict[int, int]:
    deadline_s = time.monotonic() + QUIET_S
    while True:
        leaders = await asyncio.to_thread(cluster.leaders)
        if all(leaders.values()) or time.monotonic() > deadline_s:
            return leaders
        await asyncio.sleep(0.02)


async def longest_gap_s(cluster: LocalCluster, strike, heal) -> list[float]:
    """How long no operation succeeded in the group whose leader was struck, in each round."""
    gaps = []
    async with AsyncClient(cluster.endpoints, settings=SETTINGS) as client:
        for round_number in range(ROUNDS):
            await asyncio.to_thread(cluster.wait_ready)
            key = f"failover {round_number}"
            held = await client.lock(key, ttl=5).acquire()
            group = held.holds[0].lease.group
            # A few operations through the same leader first, so that its connections are warm.
            for number in range(20):
                async with client.lock(f"{{{key}}}{number}"):
                    pass
            victim = (await leaders_are_known(cluster))[group]
            strike(victim)
            start_s = time.monotonic()
            async with client.lock(f"{{{key}}}after", wait=QUIET_S):
                gaps.append(time.monotonic() - start_s)
            held.check()
            assert held.state is HoldState.HELD
            heal(victim)
            await asyncio.to_thread(cluster.wait_ready)
            await client.get(key)
    return gaps


@pytest.mark.slow
def test_service_is_back_in_time_after_the_leader_was_killed():
    with LocalCluster() as cluster:
        gaps = asyncio.run(longest_gap_s(cluster, cluster.kill, cluster.launch))
    assert max(gaps) <= 2 * ELECTION_S_MAX, gaps


@pytest.mark.slow
def test_service_is_back_in_time_after_the_leader_was_stopped():
    with LocalCluster() as cluster:
        gaps = asyncio.run(longest_gap_s(cluster, cluster.pause, cluster.resume))
    assert max(gaps) <= 2 * ELECTION_S_MAX, gaps
