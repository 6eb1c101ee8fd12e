"""What group 0 knows about the cluster: how it was founded, and where its nodes listen.

It lies in the meta group's own lock table, as values of keys that no client can name, because clients' keys
belong to data groups:

    founding     Introduction frame (peer.capnp): founding members and number of data groups
    node/<id>    Node frame (client.capnp): that node's listeners

The meta group's leader writes what it hears in introductions; every node reads its own replica.
"""

from __future__ import annotations

from typing import Any

from fastlock import schema
from fastlock._core.locktable import LockTable
from fastlock.node.group import Answer, Group
from fastlock.schema.enums import Stage
from fastlock.storage.directory import Identity
from fastlock.storage.founding import Founding

META_GROUP = 0
FOUNDING_KEY = b"founding"
NODE_KEY_PREFIX = b"node/"
LISTENERS = ("native", "peer", "http", "resp")


def node_key(node: int) -> bytes:
    return NODE_KEY_PREFIX + str(node).encode()


class Meta:
    """This node's view of group 0."""

    def __init__(self, group: Group, identity: Identity, founding: Founding) -> None:
        self._group = group
        self._founding = founding
        self._founding_frame = founding.pack(identity, Stage.started)
        # What each node said about itself since this one started, and the frames that were last read.
        self._heard: dict[int, bytes] = {}
        self._read_revision = -1
        self._read: dict[int, dict[str, Any]] = {}
        self._writing: set[bytes] = set()

    def hear(self, fields: dict[str, Any]) -> None:
        """A node said where it listens."""
        known = {name: fields[name] for name in ("id", "incarnation", *LISTENERS)}
        self._heard[fields["id"]] = schema.encode("client", "Node", known)

    def write(self) -> None:
        """Called now and then: the leader brings the table up to what was heard."""
        group = self._group
        if not group.leading or group.table.applied_term != group.raft.term:
            self._writing.clear()
            return
        wanted = {node_key(node): frame for node, frame in self._heard.items()}
        wanted[FOUNDING_KEY] = self._founding_frame
        for key, value in wanted.items():
            if key not in self._writing and _value(group.table, key) != value:
                self._writing.add(key)
                group.submit({"key": key, "putValue": {"token": 0, "value": value}}, _Written(self, key))

    def written(self, key: bytes) -> None:
        self._writing.discard(key)

    def nodes(self) -> dict[int, dict[str, Any]]:
        """Every member and where it listens, as far as that is known."""
        table = self._group.table
        members = self._group.raft.members
        if table.revision != self._read_revision:
            self._read_revision = table.revision
            self._read = {
                member.node: self._read_node(table, member.node, member.address) for member in members
            }
        return self._read

    def _read_node(self, table: LockTable, node: int, address: str) -> dict[str, Any]:
        frame = _value(table, node_key(node)) or self._heard.get(node)
        if frame:
            return schema.decode("client", "Node", frame)
        return {"id": node, "incarnation": 0, "native": "", "peer": address, "http": "", "resp": ""}


class _Written:
    """Waits until a value is in the table, or is not."""

    def __init__(self, meta: Meta, key: bytes) -> None:
        self._meta = meta
        self._key = key

    def answered(self, answer: Answer) -> None:
        self._meta.written(self._key)


def _value(table: LockTable, key: bytes) -> bytes:
    state = table.get(key)
    value: bytes = b"" if state is None else state.get("value", b"")
    return value
