"""Opens the connections of a load: straight to the leader of each group, with a session and a lease each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import loadgen

from fastlock.testing.probe import Probe

# No keep-alives during a run: the lease outlives any benchmark, and its connection ends it.
LEASE_TTL_MS = 3_600_000


@dataclass(frozen=True)
class Outcome:
    """What one load achieved."""

    clients: int
    depth: int
    operations_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    highest_ms: float
    answers: dict[str, int]


class ClusterMap:
    """Who leads which slots, asked of one node."""

    def __init__(self, address: str) -> None:
        with Probe(address) as probe:
            cluster = probe.describe()
        self.addresses = {member["id"]: member["native"] for member in cluster["members"]}
        leaders = {group["id"]: group["leader"] for group in cluster["groups"]}
        self.spans = [
            (span["group"], span["first"], span["last"], self.addresses[leaders[span["group"]]])
            for span in cluster["slotGroups"]
        ]


@contextmanager
def connected(
    address: str, clients: int, depth: int, *, groups: int = 0, key_count: int = 0, wait: bool = False
) -> Iterator[loadgen.Load]:
    """A load of `clients` connections, spread over the groups (or the first `groups` of them)."""
    spans = ClusterMap(address).spans
    if groups:
        spans = spans[:groups]
    probes: list[Probe] = []
    described = []
    try:
        for number in range(clients):
            group, first, last, leader = spans[number % len(spans)]
            probe = Probe(leader)
            probes.append(probe)
            session = probe.command(group, {"openSession": {"lifetimeMs": 0}})["session"]
            high, low = random.getrandbits(63) + 1, random.getrandbits(63) + 1
            lease = {"leaseHigh": high, "leaseLow": low}
            created = probe.command(
                group, {**lease, "createLease": {"ttlMs": LEASE_TTL_MS, "owner": b"load"}}
            )
            if created["code"] != "ok":
                raise RuntimeError(f"the lease was refused: {created['code']}")
            probe.socket.setblocking(False)
            described.append((probe.socket.fileno(), group, first, last, session, high, low))
        seed = random.getrandbits(30)
        yield loadgen.Load(described, depth, key_count=key_count, wait=wait, seed=seed)
        for probe, (_, group, _, _, _, high, low) in zip(probes, described, strict=True):
            revoke(probe, group, high, low)
    finally:
        for probe in probes:
            probe.close()


def revoke(probe: Probe, group: int, high: int, low: int) -> None:
    """What a run left held goes at once, so that the next one finds an empty table."""
    probe.close()
    with Probe(probe.address) as fresh:
        fresh.command(group, {"leaseHigh": high, "leaseLow": low, "revoke": None})


def measure(address: str, clients: int, depth: int, seconds: float, **options: object) -> Outcome:
    """Load a cluster and say what came out."""
    with connected(address, clients, depth, **options) as load:  # type: ignore[arg-type]
        load.run(seconds, warm_up_seconds=min(1.0, seconds / 4))
        return outcome_of(load, clients, depth)


def outcome_of(load: loadgen.Load, clients: int, depth: int) -> Outcome:
    acquires = load.acquires
    return Outcome(
        clients,
        depth,
        load.operations / load.seconds,
        acquires.percentile_ns(0.5) / 1e6,
        acquires.percentile_ns(0.99) / 1e6,
        acquires.percentile_ns(0.999) / 1e6,
        acquires.highest_ns / 1e6,
        load.answers,
    )
