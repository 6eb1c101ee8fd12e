"""One node: the engine on a real clock, real sockets and a real disk, from its start to its end.

A turn of the loop: what arrived lies in the engine already; it works through it once, and then everything
that came of it leaves, with one write per connection and one per link. A turn is asked for by whatever brings
work, and happens once for all that came together.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from fastlock._core.codec_forward import (
    FORWARD_REPLY,
    decode_forwarded,
    encode_forward,
    encode_forward_reply,
)
from fastlock._core.codec_peer import decode_peer_message
from fastlock._core.raft_frame import decode_messages, encode_beats, encode_message
from fastlock._core.raft_message import ENTRY_NOOP, HEARTBEAT, HEARTBEAT_REPLY, Entry, Member, Message
from fastlock._core.replies import Replies
from fastlock.config import Address, Config
from fastlock.errors import FoundingRefused
from fastlock.node import report
from fastlock.node.bootstrap import (
    FIRST_INCARNATION,
    Introduced,
    Step,
    draw_cluster,
    first_identity,
    founding_of,
    next_step,
    slot_range,
)
from fastlock.node.clock import Clock, MonotonicClock
from fastlock.node.connections import Connection, Connections
from fastlock.node.engine import Engine
from fastlock.node.group import Group
from fastlock.node.http import HttpServer
from fastlock.node.links import PEER_FRAME_BYTES_MAX, Links
from fastlock.node.listeners import allow_descriptors, check_addresses
from fastlock.node.meta import META_GROUP, Meta
from fastlock.node.placement import SLOTS_TOTAL, Placement, key_between
from fastlock.node.router import Router
from fastlock.node.settings import group_settings, storage_limits
from fastlock.node.watchdog import Watchdog
from fastlock.schema.enums import Stage
from fastlock.storage.directory import Identity
from fastlock.storage.founding import Founding, FoundingDirectory
from fastlock.storage.lmdb import LmdbStorage

_log = logging.getLogger("fastlock.node")

HOUSEKEEPING_SECONDS = 0.25
# Requests that are no commands: served in one turn, and waiting before their senders wait too.
REQUESTS_PER_TURN = 128
REQUESTS_WAITING_MAX = 1_024


class Node:
    """Everything one process does for the cluster. `run` returns when it was stopped, or raises why."""

    def __init__(self, config: Config, *, software: str = "fastlock", clock: Clock | None = None) -> None:
        self.config = config
        self.software = software
        self.clock: Clock = clock or MonotonicClock()
        self.watchdog = Watchdog()
        self.process = secrets.randbits(63) | 1
        self.identity = Identity(0, config.node.id, FIRST_INCARNATION)
        self.founding = Founding((), 0)
        self.stage = Stage.empty
        self.storage: LmdbStorage | None = None
        self.engine: Engine | None = None
        self.router: Router | None = None
        self.meta: Meta | None = None
        self.placement: Placement | None = None
        self.links: Links
        self.connections: Connections
        self.addresses: dict[str, Address] = {}
        # For each data group a key that it owned when the cluster began.
        self.sample_keys: dict[int, bytes] = {}
        self.is_stopping = False
        self.is_full = False
        self._full: dict[int, bool] = {}
        self._introduced: dict[int, Introduced] = {}
        self._listeners: dict[int, dict[str, Any]] = {}
        self._founding_changed = asyncio.Event()
        self._peer_replies: dict[int, Replies] = {}
        self._began: list[Group] = []
        self._requests: deque[tuple[Replies, dict[str, Any]]] = deque()
        self._held: set[Connection] = set()
        self._turn_is_due = False
        self._turn_ms = self.clock.now_ms()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ms = 0
        self._housekeeping: asyncio.TimerHandle | None = None

    # From start to end

    async def start(self) -> None:
        """Bind, found or find the cluster, load, serve. Raises a FastlockError that says what to do."""
        self.loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self.loop.create_future()
        config = self.config
        check_addresses(config)
        self.connections_max = allow_descriptors(config.server.connections_max)
        try:
            with FoundingDirectory(config.node.data_dir) as directory:
                await self._bind(directory)
                await self._found(directory)
            self._open()
            await self._serve()
        except BaseException:
            await self.close()
            raise

    async def _bind(self, directory: FoundingDirectory) -> None:
        config = self.config
        peer = config.listen.peer
        own = Address(config.listen.advertise or peer.host, peer.port)
        members = config.cluster.members or ((config.node.id, own),)
        told = tuple((node, str(address)) for node, address in members)
        self.founding = founding_of(directory, config.node.id, told, config.cluster.partitions)
        self.stage = directory.stage
        self.identity = directory.identity or self.identity
        self.links = Links(self.loop, self.identity, config.links, self, self.software)
        self.addresses["peer"] = self._advertised(await self.links.listen(peer))
        self.http = HttpServer(self)
        self.addresses["http"] = self._advertised(await self.http.listen(config.listen.http))
        self.connections = Connections(
            self.loop,
            config.server,
            self,
            self.identity,
            self.software,
            self.clock.now_ms,
            self.connections_max,
        )
        self.addresses["native"] = self._advertised(await self.connections.listen(config.listen.native))
        self.addresses["resp"] = self._advertised(config.listen.resp)
        # Addresses may move; who the members are is in the log.
        addresses = {node: Address.parse(address) for node, address in self.founding.members}
        self.links.connect({**addresses, **dict(config.cluster.members)})

    def _advertised(self, address: Address) -> Address:
        return Address(self.config.listen.advertise or address.host, address.port)

    async def _found(self, directory: FoundingDirectory) -> None:
        """Until the directory belongs to a cluster whose other members know it too."""
        deadline = self.loop.time() + self.config.cluster.founding_timeout_ms / 1000
        while True:
            self._founding_changed.clear()
            own = Introduced(self.identity.node, self.stage, self.identity.cluster, self.founding)
            step, cluster = next_step(own, self._introduced)
            if step is Step.START:
                if self.stage is not Stage.started:
                    directory.start()
                    self._advance(Stage.started, self.identity)
                return
            if step is Step.FOUND:
                identity = first_identity(cluster or draw_cluster(), self.identity.node)
                directory.found(identity, self.founding)
                self._advance(Stage.founded, identity)
                _log.info("founded as node %d of cluster %032x", identity.node, identity.cluster)
                continue
            await self._wait_for_others(deadline)

    async def _wait_for_others(self, deadline: float) -> None:
        missing = [
            f"{node} ({address})"
            for node, address in self.founding.members
            if node != self.identity.node and node not in self._introduced
        ]
        _log.info("founding: waiting for %s", f"node {', '.join(missing)}" if missing else "the others")
        try:
            async with asyncio.timeout_at(deadline):
                await self._founding_changed.wait()
        except TimeoutError:
            absent = ", ".join(missing) or "none"
            raise FoundingRefused(
                f"the founding members did not find each other in time (not there: {absent}): "
                "start all of them with the same --cluster, and look at their logs"
            ) from None

    def _advance(self, stage: Stage, identity: Identity) -> None:
        self.stage = stage
        self.identity = identity
        self.links.identity = identity

    def _open(self) -> None:
        """Load what the disk holds, and set everything up that works on it."""
        config = self.config
        self.storage = LmdbStorage(config.node.data_dir, self.identity, storage_limits(config))
        members = [Member(node, address=address) for node, address in self.founding.members]
        partitions = self.founding.partitions
        self.engine = Engine(
            self.identity.node,
            self.storage,
            group_settings(config),
            range(partitions + 1),
            members,
            lambda: secrets.randbits(64),
            self.clock.now_ms(),
            self,
        )
        for number in range(1, partitions + 1):
            first, last = slot_range(number, partitions, SLOTS_TOTAL)
            self.engine.intake.route(first, last, number)
            self.sample_keys[number] = key_between(first, last)
        self.router = Router(
            self.engine,
            lambda: report.describe(self),
            config.server.watches_per_connection_max,
            config.server.frame_bytes_max,
        )
        self.meta = Meta(self.engine.groups[META_GROUP], self.identity, self.founding)
        for fields in (self.own_listeners(), *self._listeners.values()):
            self.meta.hear(fields)
        self.placement = Placement(
            self.identity.node,
            self.engine.groups,
            partitions,
            config.cluster.leader_return_ms,
            self._is_well,
        )
        self.loop.add_reader(self.storage.fileno(), self.schedule)

    async def _serve(self) -> None:
        self.connections.identity = self.identity
        await self.connections.serve()
        self.watchdog.start(self.loop)
        self._keep_house()
        self.schedule()

    async def run(self) -> None:
        """Serve until `stop`; raises what made the node unable to go on."""
        await asyncio.shield(self.failed)

    async def stop(self) -> None:
        """Hand every lead over, then close what is open. Nothing is lost by being cut off here."""
        if self.is_stopping:
            return
        self.is_stopping = True
        if self.placement is not None and not self.failed.done():
            await self._hand_over()
        await self.close()
        if not self.failed.done():
            self.failed.set_result(None)

    async def _hand_over(self) -> None:
        assert self.placement is not None
        deadline = self.loop.time() + self.config.server.drain_ms / 1000
        while self.loop.time() < deadline and self.placement.hand_over():
            self.schedule()
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        for timer in (self._wake, self._housekeeping):
            if timer is not None:
                timer.cancel()
        self.watchdog.stop()
        if hasattr(self, "connections"):
            await self.connections.close()
        if hasattr(self, "links"):
            await self.links.close()
        if hasattr(self, "http"):
            await self.http.close()
        engine, self.engine = self.engine, None
        if self.storage is not None:
            self.loop.remove_reader(self.storage.fileno())
            if engine is not None:
                for group in engine.groups.values():
                    group.sender.close()
            self.storage.close()
            self.storage = None

    def _fail(self, error: BaseException) -> None:
        """The node can no longer keep its promises: it says nothing more to anybody."""
        if self.failed.done():
            return
        _log.critical("the node stops: %s", error)
        self.engine = None
        self.failed.set_exception(error)

    # The turn

    def schedule(self) -> None:
        """Something is to be done: in the next turn, with everything else that comes until then."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        engine, router = self.engine, self.router
        if engine is None or router is None:
            return
        start_ns, start_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        now_ms = self._turn_ms = self.clock.now_ms()
        try:
            # Those that came over links.
            self._requests.extend(engine.take_requests())
            if self._requests:
                self._serve_requests(router, now_ms)
            engine.turn(now_ms)
            if self._began:
                self._begin_terms()
            self._send(engine, router, now_ms)
        except Exception as error:
            # Wherever it comes from, what is in memory may no longer be what the log says.
            self._fail(error)
            return
        self._wake_at(engine.wake_ms, now_ms)
        self.watchdog.note_turn(time.monotonic_ns() - start_ns, time.thread_time_ns() - start_cpu_ns)

    def _begin_terms(self) -> None:
        assert self.placement is not None
        began, self._began = self._began, []
        for group in began:
            self.placement.began(group)
        self.schedule()

    def _send(self, engine: Engine, router: Router, now_ms: int) -> None:
        router.now_ms = now_ms
        for answer in engine.take_answers():
            router.answered(answer)
        self._send_messages(engine.take_messages())
        links = self.links
        for node, requests in engine.take_forwards():
            if not links.send(node, encode_forward(self.identity.node, requests), repeated=False):
                engine.forward_lost(node)
        # Peers first: a batch waits for them, and answers to many clients take a while to write.
        links.flush()
        # The router's own answers make more answers, once.
        while touched := engine.take_replies():
            self._send_replies(touched, router)
        links.flush()

    def _send_replies(self, touched: list[Replies], router: Router) -> None:
        for replies in touched:
            owner = replies.owner
            if owner.__class__ is Connection:
                owner.write(replies.take())
            elif owner is router:
                router.take_own()
            elif isinstance(owner, PeerOrigin):
                self.links.send(owner.node, encode_forward_reply(replies.take()), repeated=False)

    def _send_messages(self, messages: list[Message]) -> None:
        beats: dict[int, list[Message]] = {}
        send = self.links.send
        for message in messages:
            if message.kind in (HEARTBEAT, HEARTBEAT_REPLY):
                beats.setdefault(message.target, []).append(message)
            else:
                send(message.target, encode_message(message))
        for node, together in beats.items():
            send(node, [encode_beats(together)])

    def _wake_at(self, wake_ms: int, now_ms: int) -> None:
        """A timer for the next turn that time alone makes necessary. Coming too early does no harm."""
        if wake_ms <= now_ms:
            self.schedule()
            return
        if self._wake is not None:
            if now_ms < self._wake_ms <= wake_ms:
                return
            self._wake.cancel()
        self._wake_ms = wake_ms
        self._wake = self.loop.call_later((wake_ms - now_ms) / 1000, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self._wake_ms = 0
        self.schedule()

    def _keep_house(self) -> None:
        """What need not happen at once."""
        self._housekeeping = self.loop.call_later(HOUSEKEEPING_SECONDS, self._keep_house)
        if self.engine is None or self.meta is None or self.placement is None:
            return
        if not self.is_stopping:
            self.meta.write()
            self._mind_the_space()
            if not self.is_full:
                self.placement.tick(self.clock.now_ms())
            self.schedule()
        # Only what is young: cycles that connections leave behind.
        gc.collect(0)

    def _mind_the_space(self) -> None:
        """Short of space, a node takes nothing more in that stays, and lets others lead."""
        assert self.engine is not None
        assert self.storage is not None
        assert self.placement is not None
        is_full = self.storage.below_reserve
        if is_full != self.is_full:
            self.is_full = self.engine.intake.is_full = is_full
            self.links.introduce_again()
            if is_full:
                _log.error("short of space: what adds state is refused; free some, or raise storage.…_max")
            else:
                _log.info("there is space again")
        if is_full:
            self.placement.hand_over()

    def _is_well(self, node: int) -> bool:
        """Whether a member could lead."""
        return self.links.is_linked(node) and not self._full.get(node, False)

    # What clients do (ConnectionUser)

    def connect(self, owner: Connection) -> Replies:
        assert self.engine is not None
        return self.engine.connect(owner)

    def receive_requests(self, replies: Replies | None, data: memoryview) -> int:
        if self.engine is None or replies is None:
            return len(data)
        if not self._turn_is_due:
            self.schedule()
        intake = self.engine.intake
        # The time is the last turn's: it says when a forwarded request was handed on, in seconds.
        done = intake.take(replies, data, self._turn_ms, self.config.server.frame_bytes_max)
        if others := intake.take_others():
            self._queue(others, replies.owner)
        return done

    def _queue(self, others: list[tuple[Replies, dict[str, Any]]], connection: Connection) -> None:
        """Requests that Python serves wait their turn; who sends them faster than that waits too."""
        self._requests.extend(others)
        if len(self._requests) > REQUESTS_WAITING_MAX:
            connection.hold(True)
            self._held.add(connection)

    def _serve_requests(self, router: Router, now_ms: int) -> None:
        requests = self._requests
        for _ in range(min(len(requests), REQUESTS_PER_TURN)):
            replies, request = requests.popleft()
            router.serve(replies, request, now_ms)
        if requests:
            self.schedule()
        if self._held and len(requests) < REQUESTS_WAITING_MAX:
            held, self._held = self._held, set()
            for connection in held:
                connection.hold(False)

    def congested(self, connection: Connection) -> None:
        if self.router is not None and connection.replies is not None:
            self.router.watches.pause(connection.replies)

    def relieved(self, connection: Connection) -> None:
        if self.router is not None and connection.replies is not None:
            self.router.watches.resume(connection.replies)
            self.schedule()

    def disconnected(self, connection: Connection) -> None:
        self._held.discard(connection)
        if self.router is not None and connection.replies is not None:
            self.router.watches.disconnected(connection.replies)

    # What members do (LinkUser)

    def introduction(self) -> dict[str, Any]:
        return {
            "version": 1,
            "node": self.own_listeners(),
            "stage": self.stage.name,
            "clusterHigh": self.identity.cluster >> 64,
            "clusterLow": self.identity.cluster & (1 << 64) - 1,
            "founders": [{"node": node, "address": address} for node, address in self.founding.members],
            "partitions": self.founding.partitions,
            "process": self.process,
            "full": self.is_full,
        }

    def own_listeners(self) -> dict[str, Any]:
        listeners = {name: str(address) for name, address in self.addresses.items()}
        return {"id": self.identity.node, "incarnation": self.identity.incarnation, **listeners}

    def introduced(self, other: Introduced, fields: Mapping[str, Any]) -> None:
        self._introduced[other.node] = other
        self._listeners[other.node] = dict(fields["node"])
        self._full[other.node] = fields["full"]
        if self.meta is not None:
            self.meta.hear(self._listeners[other.node])
        self._founding_changed.set()

    def link_lost(self, node: int) -> None:
        self._introduced.pop(node, None)
        self._founding_changed.set()
        replies = self._peer_replies.pop(node, None)
        if replies is not None:
            replies.close()
            replies.owner = None
        if self.engine is not None:
            self.engine.forward_lost(node)
            for group in self.engine.groups.values():
                group.unreachable(node)
            self.schedule()

    def receive(self, node: int, frame: memoryview) -> None:
        engine = self.engine
        messages = decode_messages(bytes(frame))
        if messages is None:
            self._receive_other(node, frame)
            return
        if engine is not None:
            now_ms = self.clock.now_ms()
            for message in messages:
                if message.source == node:
                    engine.step(message, now_ms)
            self.schedule()

    def _receive_other(self, node: int, frame: memoryview) -> None:
        forwarded = decode_forwarded(frame, PEER_FRAME_BYTES_MAX)
        if forwarded is not None:
            self._receive_forwarded(node, *forwarded)
            return
        content = decode_peer_message(frame, PEER_FRAME_BYTES_MAX)
        if "introduction" in content:
            self.links.introduce(node, content["introduction"])

    def _receive_forwarded(self, node: int, kind: int, frames: bytes) -> None:
        engine = self.engine
        if engine is None:
            return
        if kind == FORWARD_REPLY:
            engine.forwards.answer(node, frames)
        else:
            replies = self._peer_replies.get(node)
            if replies is None:
                replies = engine.connect(PeerOrigin(node), is_trusted=True, is_forwarder=True)
                self._peer_replies[node] = replies
            engine.receive(replies, frames, self.clock.now_ms())
        self.schedule()

    # What groups do (Observer)

    def elected(self, group: Group) -> None:
        _log.info("group %d: node %d leads in term %d", group.number, self.identity.node, group.raft.term)

    def applied(self, group: Group, entry: Entry) -> None:
        if entry.kind == ENTRY_NOOP and group.leading and entry.term == group.raft.term:
            self._began.append(group)

    def frozen(self, group: Group) -> None:
        return None

    def loaded(self, group: Group) -> None:
        return None


class PeerOrigin:
    """Who owns the answers to requests that a member handed on."""

    __slots__ = ("node",)

    def __init__(self, node: int) -> None:
        self.node = node
