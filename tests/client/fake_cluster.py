"""A cluster of fake nodes in front of real lock tables, and a client core on a clock that tests move by hand.

Frames in, frames out: the nodes speak the wire format, agree at once, and break in every way a test asks for.
"""

from collections.abc import Callable, Coroutine
from random import Random
from struct import Struct
from typing import Any

from fastlock._core.codec import (
    decode_request,
    encode_entry,
    encode_outcome,
    encode_reply,
    frame_size,
    slot_of,
)
from fastlock._core.locktable import LockTable
from fastlock.client.cluster import NS_PER_MS
from fastlock.client.core import Core
from fastlock.client.flows import NEVER_NS, Flow
from fastlock.client.leases import Hold
from fastlock.client.links import Link, LinkState
from fastlock.client.locking import Wanted
from fastlock.client.settings import ClientSettings
from fastlock.schema.enums import Code, CommandWhich

CLUSTER_ID = 77
START_MS = 1_000_000
PLACE = Struct(">IQ")

# What a test may do to a request. `serve` is the default; `mute` lets it act but loses the answer; `drop`
# loses it; `cut_before` and `cut_after` break the connection; any name of a Code is the answer instead of
# acting.
Verdict = str
Meddler = Callable[[int, dict[str, Any]], Verdict]


class FakeCluster:
    """Groups 1 and 2 own half of the slots each; node n leads group n until told otherwise."""

    def __init__(self, nodes: int = 3) -> None:
        self.nodes = list(range(1, nodes + 1))
        self.down: set[int] = set()
        self.tables = {1: LockTable(1), 2: LockTable(2)}
        self.leaders = {1: 1, 2: min(2, nodes)}
        self.now_ms = START_MS
        self.meddle: Meddler = lambda node, request: "serve"
        # Everything that arrived: (node, request).
        self.requests: list[tuple[int, dict[str, Any]]] = []
        self._waiters: dict[tuple[int, int, int], list[tuple[Connection, int]]] = {}
        self.watches: list[FakeWatch] = []
        # Revisions up to which events are gone, by group.
        self.forgotten: dict[int, int] = {}
        for group, table in self.tables.items():
            table.lead(self.now_ms)
            half = 8192 * (group - 1)
            self.apply(group, {"ownSlots": {"first": half, "last": half + 8191}})

    def address(self, node: int) -> str:
        return f"node{node}:7400"

    def commands(self, kind: str) -> list[dict[str, Any]]:
        """Every command of a kind that arrived, repetitions too."""
        return [r["command"] for _, r in self.requests if kind in r.get("command", ())]

    def pass_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for group, table in self.tables.items():
            for due in table.due(now_ms, 1000):
                lease = {"leaseHigh": due.lease_high, "leaseLow": due.lease_low}
                if due.kind == CommandWhich.expire:
                    self.apply(group, {**lease, "expire": {"generation": due.generation}})
                elif due.kind == CommandWhich.expireSession:
                    expired = {"session": due.session, "uses": due.generation}
                    self.apply(group, {"expireSession": expired})

    def serve(self, connection: "Connection", request: dict[str, Any]) -> None:
        self.requests.append((connection.node, request))
        verdict = self.meddle(connection.node, request)
        if verdict == "drop":
            return
        if verdict == "cut_before":
            connection.cut()
            return
        muted = len(connection.outgoing)
        if verdict in Code.__members__:
            leader = self.leaders[request["group"]] if request["group"] else 0
            reply = {"id": request["id"], "code": verdict, "group": request["group"], "leader": leader}
            connection.outgoing.append(encode_reply({**reply, "done": None}))
            return
        self._answer(connection, request)
        if verdict in ("mute", "cut_after"):
            del connection.outgoing[muted:]
        if verdict == "cut_after":
            connection.cut()

    def _answer(self, connection: "Connection", request: dict[str, Any]) -> None:
        number = request["id"]
        reply: dict[str, Any] = {"id": number, "code": "ok"}
        if "hello" in request:
            reply["hello"] = {"version": 1, "clusterLow": CLUSTER_ID, "node": connection.node, "code": "ok"}
        elif "describe" in request:
            reply["cluster"] = self._description()
        elif "keepAlive" in request:
            reply["keptAlive"] = [self._keep_alive(lease) for lease in request["keepAlive"]]
        elif "getLock" in request:
            key = request["getLock"]["key"]
            state = self.tables[1 + slot_of(key) // 8192].get(key, self.now_ms)
            reply["lock"] = state if state is not None else {"key": key}
        elif "list" in request:
            reply["page"] = self._page(request["list"])
        elif "watch" in request:
            self._watch(connection, number, request["watch"])
            return
        elif "unwatch" in request:
            wanted = (connection, request["unwatch"]["watch"])
            self.watches = [watch for watch in self.watches if (watch.connection, watch.number) != wanted]
            reply["done"] = None
        else:
            command = request["command"]
            key = command.get("key") or next(iter(command.get("acquireAll", {}).get("keys", ())), b"")
            group = 1 + slot_of(key) // 8192 if key else request["group"]
            self.apply(group, command, connection, number)
            return
        connection.outgoing.append(encode_reply(reply))

    def _keep_alive(self, lease: dict[str, Any]) -> dict[str, Any]:
        kept = self.tables[lease["group"]].keep_alive(lease["leaseHigh"], lease["leaseLow"], self.now_ms)
        return {**lease, "code": Code(kept.code).name, "lostRevision": kept.lost_revision}

    def _page(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """One row at a time, so that every list has several pages."""
        cursor = wanted.get("cursor", b"")
        group = cursor[0] if cursor else 1
        rows, place = self.tables[group].list(wanted.get("prefix", b""), cursor[1:], 1, self.now_ms)
        following = bytes([group]) + place if place else bytes([2]) if group == 1 else b""
        return {"locks": rows, "cursor": following}

    def _watch(self, connection: "Connection", number: int, wanted: dict[str, Any]) -> None:
        key, is_prefix = wanted.get("key", b""), wanted.get("prefix", False)
        groups = [1, 2] if is_prefix else [1 + slot_of(key) // 8192]
        places = dict(PLACE.iter_unpack(wanted.get("position", b"")))
        revisions = {group: places.get(group, self.tables[group].revision) for group in groups}
        watch = FakeWatch(connection, number, key, is_prefix, revisions)
        self.watches.append(watch)
        watch.tell([])
        self._push(watch)

    def _push(self, watch: "FakeWatch") -> None:
        for group in watch.revisions:
            if watch.revisions[group] < self.forgotten.get(group, 0):
                watch.revisions[group] = self.forgotten[group]
                watch.tell([], "eventsLost")
                self.watches.remove(watch)
                return
            revision = watch.revisions[group]
            events, watch.revisions[group] = self.tables[group].events(
                revision, watch.key, watch.is_prefix, 1000
            )
            if events:
                watch.tell([event._asdict() for event in events])

    def forget_events(self) -> None:
        """The history no longer reaches back to anything before this moment."""
        self.forgotten = {group: table.revision for group, table in self.tables.items()}

    def _description(self) -> dict[str, Any]:
        return {
            "clusterLow": CLUSTER_ID,
            "members": [{"id": node, "native": self.address(node)} for node in self.nodes],
            "groups": [{"id": group, "leader": leader} for group, leader in self.leaders.items()],
            "slotGroups": [
                {"first": 0, "last": 8191, "group": 1},
                {"first": 8192, "last": 16383, "group": 2},
            ],
        }

    def apply(
        self, group: int, command: dict[str, Any], connection: "Connection | None" = None, number: int = 0
    ) -> None:
        table = self.tables[group]
        table.apply(encode_entry(group, 1, table.applied_index + 1, [command]), self.now_ms)
        leader = self.leaders[group]
        for outcome in table.outcomes_list():
            fields = outcome._asdict()
            place, waiter = fields.pop("position"), fields.pop("waiter")
            if place < 0:
                fields |= {"kind": CommandWhich.acquire, "detail": 0}
                for waiting, waiting_number in self._waiters.pop((group, outcome.detail, waiter), ()):
                    waiting.outgoing.append(encode_outcome(waiting_number, group, leader, 0, **fields))
            elif connection is not None:
                if outcome.code == Code.queued:
                    key = command.get("key") or command["acquireAll"]["keys"][0]
                    waiting_for = (group, slot_of(key), outcome.revision)
                    self._waiters.setdefault(waiting_for, []).append((connection, number))
                connection.outgoing.append(encode_outcome(number, group, leader, 30, **fields))
        for watch in [each for each in self.watches if group in each.revisions]:
            if watch.connection.is_cut:
                self.watches.remove(watch)
            else:
                self._push(watch)


class FakeWatch:
    """One stream of events to one connection."""

    def __init__(
        self, connection: "Connection", number: int, key: bytes, is_prefix: bool, revisions: dict[int, int]
    ) -> None:
        self.connection = connection
        self.number = number
        self.key = key
        self.is_prefix = is_prefix
        self.revisions = revisions

    def tell(self, events: list[dict[str, Any]], code: str = "ok") -> None:
        position = b"".join(PLACE.pack(*place) for place in self.revisions.items())
        content = {"events": events, "position": position}
        self.connection.outgoing.append(encode_reply({"id": self.number, "code": code, "events": content}))


class Connection:
    """One connection of the client to a fake node."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.outgoing: list[bytes] = []
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True

    def receive(self, data: bytes) -> None:
        while data and not self.is_cut:
            size = frame_size(data)
            self.cluster.serve(self, decode_request(data[:size]))
            data = data[size:]


class World:
    """A client core, a fake cluster, and time."""

    def __init__(
        self, nodes: int = 3, endpoints: tuple[str, ...] = (), seed: int = 1, **settings: Any
    ) -> None:
        self.cluster = FakeCluster(nodes)
        self.now_ns = START_MS * NS_PER_MS
        self.connections: dict[Link, Connection] = {}
        settings.setdefault("owner", b"tester")
        self.core = self.another_core(endpoints or (self.cluster.address(1),), seed, **settings)
        self.notices: list[Hold] = []

    def another_core(self, endpoints: tuple[str, ...] = (), seed: int = 2, **settings: Any) -> Core:
        endpoints = endpoints or (self.cluster.address(1),)
        return Core(endpoints, ClientSettings(**settings), Random(seed), self.now_ns)

    def lock(self, key: bytes, *more: bytes, **wanted: Any) -> Wanted:
        return Wanted((key, *more), wanted.pop("ttl_ms", 9_000), **wanted)

    def acquire(self, key: bytes, wait_ms: int | None = None, **wanted: Any) -> Flow[Hold]:
        core = self.core
        deadline_ns = core.requests.deadline_ns(wait_ms)
        return core.start(core.locking.acquire(self.lock(key, **wanted), wait_ms is not None, deadline_ns))

    def release(self, held: Hold) -> Flow[None]:
        return self.core.start(self.core.locking.release(held, self.core.requests.deadline_ns()))

    def start(self, operation: Coroutine[Any, Any, Any]) -> Flow[Any]:
        return self.core.start(operation)

    def pump(self) -> None:
        """Exchange bytes until both sides are silent, without letting time pass."""
        core, cluster = self.core, self.cluster
        busy = True
        while busy:
            core.run(self.now_ns)
            busy = False
            for link in core.take_hangups():
                self.connections.pop(link, None)
            for link in core.take_dials():
                busy = True
                node = int(link.address[4:].split(":")[0])
                if node in cluster.down or node not in cluster.nodes:
                    core.closed(link, "connection refused")
                else:
                    self.connections[link] = Connection(cluster, node)
                    core.opened(link)
            for link, data in core.take_output():
                busy = True
                connection = self.connections.get(link)
                if connection is not None and connection.node not in cluster.down:
                    connection.receive(data)
            for link, connection in list(self.connections.items()):
                if connection.node in cluster.down:
                    connection.cut()
                data, connection.outgoing = b"".join(connection.outgoing), []
                if data and link.state is not LinkState.DOWN:
                    busy = True
                    core.received(link, data)
                if connection.is_cut:
                    busy = True
                    if self.connections.pop(link, None) and link.state is not LinkState.DOWN:
                        core.closed(link, "connection reset")
            self.notices += core.take_notices()
            busy = busy or core.wake_ns <= self.now_ns

    def advance(self, ms: float) -> None:
        """Let time pass, waking the client whenever it wants to be woken."""
        end_ns = self.now_ns + int(ms * NS_PER_MS)
        while True:
            self.pump()
            step_ns = min(self.core.wake_ns, end_ns, self.now_ns + 50 * NS_PER_MS)
            if self.now_ns >= end_ns:
                return
            self.now_ns = max(step_ns, self.now_ns)
            self.cluster.pass_time(self.now_ns // NS_PER_MS)

    def finish(self, flow: Flow[Any], within_ms: float = 60_000) -> Any:
        """The result of an operation, letting as much time pass as it needs."""
        end_ns = self.now_ns + int(within_ms * NS_PER_MS)
        self.pump()
        while not flow.finished:
            assert self.now_ns < end_ns, "the operation never ended"
            wake_ns = min(self.core.wake_ns, self.now_ns + 50 * NS_PER_MS)
            assert wake_ns < NEVER_NS
            self.advance(max(wake_ns - self.now_ns, 1) / NS_PER_MS)
        if flow.error is not None:
            raise flow.error
        return flow.result

    def fail(self, flow: Flow[Any], within_ms: float = 60_000) -> BaseException:
        """The error of an operation that must not succeed."""
        try:
            result = self.finish(flow, within_ms)
        except Exception as error:
            return error
        raise AssertionError(f"it succeeded with {result!r}")
