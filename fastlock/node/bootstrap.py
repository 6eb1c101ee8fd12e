"""How empty directories become a cluster, and why one alone never does.

A directory is empty, founded (it has the cluster's id) or started (it takes part). Members tell each other in
their introductions. The founding:

1. everybody waits until it is linked with every other founding member;
2. once all are empty, the lowest node id draws the cluster's id and makes it durable in its own directory;
3. the others, still empty, take that id over and make it durable;
4. who is founded and sees that all others are too, marks its directory as started and starts its groups.

No group runs anywhere before all are founded, so an empty node that finds a started one has lost its
directory: it may have voted and acknowledged, and must not come back under that identity. It is refused. A
crash between the steps is harmless: the directory says how far it came.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from fastlock.errors import ConfigError, FoundingRefused
from fastlock.schema.enums import Stage
from fastlock.storage.directory import Identity
from fastlock.storage.founding import Founding, FoundingDirectory

FIRST_INCARNATION = 1
CLUSTER_BITS = 128


class Introduced(NamedTuple):
    """What a member says about itself."""

    node: int
    stage: Stage
    cluster: int
    founding: Founding

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Introduced:
        founders = tuple((member["node"], member["address"]) for member in fields["founders"])
        return cls(
            fields["node"]["id"],
            Stage[fields["stage"]],
            fields["clusterHigh"] << 64 | fields["clusterLow"],
            Founding(founders, fields["partitions"]),
        )


class Step(Enum):
    WAIT = "wait"
    FOUND = "found"
    START = "start"


def next_step(own: Introduced, others: Mapping[int, Introduced]) -> tuple[Step, int]:
    """What to do, and for FOUND the cluster id (0: draw one); FoundingRefused where nothing would do."""
    if own.stage is Stage.started:
        return Step.START, own.cluster
    wanted = [node for node, _ in own.founding.members if node != own.node]
    for other in others.values():
        _check_founders(own, other)
    if own.stage is Stage.empty:
        for other in others.values():
            if other.stage is Stage.started:
                raise _amnesia(own, other)
    if any(node not in others for node in wanted):
        return Step.WAIT, 0
    clusters = {other.cluster for other in others.values() if other.stage is not Stage.empty}
    if own.stage is Stage.founded:
        clusters.add(own.cluster)
    if len(clusters) > 1:
        names = ", ".join(f"{cluster:032x}" for cluster in sorted(clusters))
        raise FoundingRefused(
            f"the founding members belong to different clusters ({names}): "
            "check --cluster, or empty the directories that never took part"
        )
    if own.stage is Stage.founded:
        ready = all(other.stage is not Stage.empty for other in others.values())
        return (Step.START, own.cluster) if ready else (Step.WAIT, 0)
    if clusters:
        return Step.FOUND, clusters.pop()
    return (Step.FOUND, 0) if own.node < min(wanted, default=own.node + 1) else (Step.WAIT, 0)


def _check_founders(own: Introduced, other: Introduced) -> None:
    mine, theirs = own.founding, other.founding
    if [node for node, _ in mine.members] != [node for node, _ in theirs.members]:
        raise FoundingRefused(
            f"node {other.node} was told of the members {_ids(theirs)}, this node of {_ids(mine)}: "
            "start all of them with the same --cluster"
        )
    if mine.partitions != theirs.partitions:
        raise FoundingRefused(
            f"node {other.node} was told of {theirs.partitions} partitions, this node of {mine.partitions}: "
            "start all of them with the same --partitions"
        )


def _ids(founding: Founding) -> str:
    return ", ".join(str(node) for node, _ in founding.members)


def _amnesia(own: Introduced, other: Introduced) -> FoundingRefused:
    return FoundingRefused(
        f"node {other.node} already takes part in cluster {other.cluster:032x}, and node {own.node}'s data "
        f"directory is empty: node {own.node} may have voted and acknowledged things that are lost, so it "
        "must not come back under this number. Put its directory back, or add a node with a number that was "
        "never used"
    )


def draw_cluster() -> int:
    return secrets.randbits(CLUSTER_BITS) | 1


def founding_of(
    directory: FoundingDirectory, node: int, members: tuple[tuple[int, str], ...], partitions: int
) -> Founding:
    """What the directory was founded with, or is to be; ConfigError where the flags say otherwise."""
    if directory.founding is None:
        return Founding(members, partitions or max(1, len(members)))
    identity, founding = directory.identity, directory.founding
    assert identity is not None
    if identity.node != node:
        raise ConfigError(
            f"--node-id {node}: the data directory is node {identity.node}'s: "
            "start it with that number, or choose another --data-dir"
        )
    given = [number for number, _ in members]
    if len(given) > 1 and given != [number for number, _ in founding.members]:
        raise ConfigError(
            f"--cluster names the nodes {', '.join(map(str, given))}, but the cluster in the data directory "
            f"was founded by {_ids(founding)}: leave --cluster out, or choose another --data-dir"
        )
    if partitions not in (0, founding.partitions):
        raise ConfigError(
            f"--partitions {partitions}: the cluster in the data directory was founded with "
            f"{founding.partitions}: leave it out, or choose another --data-dir"
        )
    return founding


def first_identity(cluster: int, node: int) -> Identity:
    return Identity(cluster, node, FIRST_INCARNATION)


def slot_range(group: int, partitions: int, slot_total: int) -> tuple[int, int]:
    """The first and last slot that data group 1 ≤ group ≤ partitions owns when a cluster begins."""
    assert 1 <= group <= partitions
    return (group - 1) * slot_total // partitions, group * slot_total // partitions - 1
