"""Nodes are killed with SIGKILL under load, one by one and all at once: nothing acknowledged is lost."""

import asyncio

import pytest

from fastlock.testing.local_cluster import LocalCluster
from tests.cluster.crash import Crash

KILLS = 30


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_kill_9_of_random_nodes_loses_nothing_and_keeps_every_order(capsys):
    with LocalCluster() as cluster:
        report = asyncio.run(Crash(cluster, seed=1, say=lambda line: None).run(KILLS))
    with capsys.disabled():
        print(f"\n{report}")
    assert not report.violations
    assert report.kills >= KILLS
    assert report.whole_cluster_kills >= 1
    # A run in which hardly anything happened would prove nothing.
    assert report.grants >= 10 * KILLS
