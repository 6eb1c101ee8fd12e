"""What one seed stands for: the size of the cluster, its settings, and which faults it mixes."""

from __future__ import annotations

from dataclasses import dataclass

from fastlock._core.raft_settings import RaftSettings
from fastlock.node.group import GroupSettings
from fastlock.testing.simulator.prng import Random
from fastlock.testing.simulator.time import MILLISECOND, SECOND

FAULT_PHASE_NS = 50 * SECOND
# Within these everything must be well again after the last fault, and all clients be done.
RECOVERY_NS = 5 * SECOND
DRAIN_NS = 15 * SECOND

# Runs that go on slowly: a leader's time in office, how many of them there are, and the TTL of a lease that
# is left alone when they begin. Half of the TTL passes in one office, so that the rest of it is noted.
OFFICE_NS = 100 * SECOND
OFFICES = 3
FORSAKEN_TTL_MS = 150_000
SLOW_THINK_NS = 10 * SECOND

# (election minimum, maximum, heartbeat) in ms.
TIMINGS = ((150, 300, 50), (300, 600, 100), (1000, 2000, 200))

FAULTS = (
    "crash one",
    "crash leader",
    "crash all",
    "crash loop",
    "crash in storage",
    "pause node",
    "pause client",
    "crash client",
    "weather",
    "split",
    "one way",
    "bridge",
    "flapping",
    "isolate leader",
    "slow disk",
    "failing disk",
    "clock leap",
    "clock drift",
    "transfer",
    "membership",
    "forwarders",
    "move slots",
)


@dataclass(frozen=True, slots=True)
class Plan:
    nodes: int
    spares: int
    groups: int
    clients: int
    threads: int
    election_max_ms: int
    settings: GroupSettings
    think_max_ns: int
    hold_max_ns: int
    ttls_ms: tuple[int, ...]
    # How much longer a sync takes than on the fastest disk.
    disk_slowness: int
    # How far clocks may stray, and whether that is within what clients allow for.
    drift_ppm: int
    clocks_honest: bool
    faults: tuple[str, ...]
    fault_gap_ns: int
    # Whether minutes of quiet follow the faults, for what takes minutes.
    slow: bool
    seed: int

    def describe(self) -> str:
        clocks = "honest" if self.clocks_honest else "wild"
        return (
            f"{self.nodes}+{self.spares} nodes, {self.groups} groups, {self.clients}x{self.threads} clients, "
            f"election up to {self.election_max_ms} ms, {clocks} clocks, faults: {', '.join(self.faults)}"
        )


def plan_of(seed: int) -> Plan:
    """Everything about a run that is decided before it starts."""
    random = Random(seed).fork(1)
    nodes = random.pick((1, 2, 3, 3, 3, 3, 3, 3, 4, 4, 5, 5, 5, 7))
    groups = random.pick((1, 1, 2, 3)) if nodes <= 3 else random.pick((1, 1, 2))
    timing = TIMINGS[2 if nodes * groups > 6 else random.below(3)]
    faults = tuple(name for name in FAULTS if random.chance(0.5))
    if len(faults) < 4:
        faults = tuple(random.shuffled(FAULTS)[:6])
    clocks_honest = random.chance(0.8)
    dirty = random.pick((8, 24, 64, 200))
    settings = GroupSettings(
        raft=RaftSettings(
            election_ms_min=timing[0],
            election_ms_max=timing[1],
            heartbeat_ms=timing[2],
            window_batches=random.pick((1, 2, 4)),
            window_large_bytes=random.pick((1, 16 << 10)),
            append_bytes_max=random.pick((1, 1 << 20, 1 << 20)),
            inflight_messages_max=random.pick((1, 4, 32)),
        ),
        heartbeat_ms=timing[2],
        expiry_poll_ms=random.pick((50, 100, 200)),
        checkpoint_dirty_rows=dirty,
        checkpoint_slice_rows=random.pick((2, 8, 64)),
        log_keep_entries=random.pick((0, 0, 8, 100)),
        snapshot_chunk_bytes=random.pick((256, 1024, 65536)),
        snapshot_idle_ms=3000,
        history_events_max=random.pick((64, 256, 4096)),
    )
    fast_leases = random.chance(0.5)
    return Plan(
        nodes=nodes,
        spares=random.below(3) if "membership" in faults and nodes > 1 else 0,
        groups=groups,
        clients=random.between(4, 6),
        threads=random.between(1, 2),
        election_max_ms=timing[1],
        settings=settings,
        think_max_ns=random.pick((200, 400, 600)) * MILLISECOND,
        hold_max_ns=random.pick((20, 100, 300)) * MILLISECOND,
        ttls_ms=(300, 800, 2000) if fast_leases else (1000, 3000, 6000),
        drift_ppm=random.pick((0, 1000, 9000)) if clocks_honest else random.pick((50_000, 300_000)),
        clocks_honest=clocks_honest,
        faults=faults,
        disk_slowness=random.pick((1, 1, 1, 5, 30)),
        # Some runs have no time to recover between two faults.
        fault_gap_ns=random.pick((random.between(150, 400), *[random.between(700, 1500)] * 2)) * MILLISECOND,
        # Minutes cost little where few members send few heartbeats.
        slow=clocks_honest and nodes <= 3 and groups == 1 and timing is TIMINGS[2] and random.chance(0.7),
        seed=seed,
    )
