"""What a node tells about itself and its cluster: to clients, to operators, to whoever collects figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastlock.node.bootstrap import slot_range
from fastlock.node.engine import Engine
from fastlock.node.group import Group
from fastlock.node.placement import SLOTS_TOTAL
from fastlock.schema.enums import SlotState

if TYPE_CHECKING:
    from fastlock.node.server import Node


def describe(node: Node) -> dict[str, Any]:
    """client.capnp's Cluster."""
    assert node.engine is not None
    assert node.meta is not None
    partitions = node.founding.partitions
    ranges = {number: slot_range(number, partitions, SLOTS_TOTAL) for number in range(1, partitions + 1)}
    return {
        "clusterHigh": node.identity.cluster >> 64,
        "clusterLow": node.identity.cluster & (1 << 64) - 1,
        "epoch": 1,
        "members": list(node.meta.nodes().values()),
        "groups": [
            {
                "id": number,
                "leader": group.raft.leader,
                "term": group.raft.term,
                "commit": group.raft.commit_index,
                "applied": group.table.applied_index,
            }
            for number, group in node.engine.groups.items()
        ],
        "slotGroups": [
            {"first": first, "last": last, "group": number} for number, (first, last) in ranges.items()
        ],
    }


def not_ready(node: Node) -> str:
    """Why requests should not come here; empty if they may."""
    if node.is_stopping:
        return "stopping"
    if node.engine is None:
        return (
            "failed"
            if node.failed.done()
            else f"the cluster is being founded (this node is {node.stage.name})"
        )
    without = [str(number) for number, group in node.engine.groups.items() if not group.raft.leader]
    if without:
        return f"no leader known of group {', '.join(without)}"
    new = [
        str(number) for number, key in node.sample_keys.items() if not _has_slots(node.engine, number, key)
    ]
    if new:
        return f"group {', '.join(new)} has no slots yet"
    return ""


def _has_slots(engine: Engine, number: int, key: bytes) -> bool:
    """Whether the group ever owned its first slots; they may have moved on since."""
    table = engine.groups[number].table
    return table.revision > 0 or table.slot_owner(key)[0] != SlotState.foreign


def status(node: Node) -> dict[str, Any]:
    """Everything an operator may ask of one node, as JSON."""
    loop = node.watchdog.figures._asdict()
    engine, storage, router = node.engine, node.storage, node.router
    connections = getattr(node, "connections", None)
    return {
        "node": node.identity.node,
        "cluster": f"{node.identity.cluster:032x}",
        "stage": node.stage.name,
        "software": node.software,
        "ready": not not_ready(node),
        "not_ready": not_ready(node),
        "full": node.is_full,
        "linked": sorted(node.links.linked),
        "members": list(node.meta.nodes().values()) if node.meta is not None else [],
        "groups": [] if engine is None else [_group(group) for group in engine.groups.values()],
        "loop": loop,
        "connections": {
            "open": 0 if connections is None else len(connections),
            "accepted": 0 if connections is None else connections.accepted,
            "refused": 0 if connections is None else connections.refused,
            "overflowed": 0 if connections is None else connections.overflows,
            "watches": 0 if router is None else len(router.watches),
        },
        "reads": {
            "hits": 0 if router is None else router.reads_here,
            "misses": 0 if router is None else router.reads_asked,
        },
        "commands": {
            "taken": 0 if engine is None else engine.intake.commands,
            "forwarded": 0 if engine is None else engine.intake.forwarded,
        },
        "messages_dropped": node.links.dropped_messages,
        "storage": {} if storage is None else storage.figures(),
    }


def _group(group: Group) -> dict[str, Any]:
    raft, table = group.raft, group.table
    return {
        "id": group.number,
        "leader": raft.leader,
        "leading": group.leading,
        "term": raft.term,
        "commit": raft.commit_index,
        "applied": table.applied_index,
        "durable": raft.durable_index,
        "last": raft.last_index,
        "members": [member.node for member in raft.members],
        "revision": table.revision,
        "locks": table.lock_count,
        "leases": table.lease_count,
        "waiters": table.waiter_count,
        "sessions": table.session_count,
        "peers": {
            str(node): {
                "state": peer["state"],
                "match": peer["match"],
                "lag": raft.last_index - peer["match"],
            }
            for node, peer in raft.status()["peers"].items()
        },
    }
