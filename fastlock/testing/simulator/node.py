"""One simulated node: the node's own engine on a virtual clock, network and disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastlock._core.raft_message import Member, Message
from fastlock.node.engine import Engine
from fastlock.node.group import Group, GroupSettings, Observer
from fastlock.schema.enums import Code
from fastlock.storage import StorageFailed
from fastlock.testing.raft_checkers import PROMISES
from fastlock.testing.simulator.disk import Disk
from fastlock.testing.simulator.network import Network
from fastlock.testing.simulator.prng import Random
from fastlock.testing.simulator.time import MICROSECOND, MILLISECOND, Clock, Timeline
from fastlock.testing.simulator.wire import Request, Response

# From the first input to the turn that serves it.
TURN_DELAY_NS = 20 * MICROSECOND

# A forwarder holds some requests this long, and hands some over twice.
FORWARD_LATE_MAX_NS = 3_000 * MILLISECOND


class Forwarding:
    """How badly forwarders behave at the moment."""

    __slots__ = ("late", "twice")

    def __init__(self) -> None:
        self.late = 0.0
        self.twice = 0.0


class SimulatedNode:
    """Up, paused or down; its disk outlives it."""

    def __init__(
        self,
        number: int,
        timeline: Timeline,
        network: Network,
        random: Random,
        disk: Disk,
        clock: Clock,
        settings: GroupSettings,
        groups: Sequence[int],
        members: Sequence[Member],
        observer: Observer,
        forwarding: Forwarding,
        leaving: Callable[[Message, int], None],
    ) -> None:
        self.number = number
        self.disk = disk
        self.clock = clock
        self.engine: Engine | None = None
        self.paused = False
        # True time at which something last happened to this node that is not its own doing.
        self.disturbed_ns = 0
        self.members = members
        self._timeline = timeline
        self._network = network
        self._random = random
        self._settings = settings
        self._groups = list(groups)
        self._observer = observer
        self._forwarding = forwarding
        self._leaving = leaving
        self._inbox: list[Any] = []
        self._life = 0
        # When the next turn is wanted (-1 = not at all), and the events planned for it, earliest last.
        self._turn_at_ns = -1
        self._events_ns: list[int] = []

    @property
    def up(self) -> bool:
        return self.engine is not None

    def disturb(self) -> None:
        self.disturbed_ns = self._timeline.now_ns

    def undisturbed(self, since_ns: int) -> bool:
        """Whether it ran, on a disk of normal speed, ever since then."""
        return self.up and not self.paused and not self.disk.slow and self.disturbed_ns <= since_ns

    def start(self) -> None:
        self.disturb()
        self.disk.restart(self._groups)
        self.engine = Engine(
            self.number,
            self.disk,
            self._settings,
            self._groups,
            self.members,
            self._random.next64,
            self.clock.now_ns() // MILLISECOND,
            self._observer,
        )
        self.schedule_turn(TURN_DELAY_NS)

    def crash(self) -> str:
        self._life += 1
        self.engine = None
        self.paused = False
        self._inbox.clear()
        self._turn_at_ns = -1
        self._events_ns.clear()
        return self.disk.power_cut()

    def pause(self) -> None:
        self.paused = True
        self._turn_at_ns = -1

    def resume(self) -> None:
        self.disturb()
        self.paused = False
        if self.engine is not None:
            self.schedule_turn(TURN_DELAY_NS)

    def group(self, number: int) -> Group | None:
        return self.engine.groups[number] if self.engine is not None else None

    def receive(self, message: Any) -> None:
        if self.engine is None:
            return
        self._inbox.append(message)
        self.schedule_turn(TURN_DELAY_NS)

    def disk_done(self) -> None:
        if self.engine is not None:
            self.schedule_turn(TURN_DELAY_NS)

    def schedule_turn(self, delay_ns: int) -> None:
        """The next turn is at the earliest time asked for since the last one."""
        time_ns = self._timeline.now_ns + delay_ns
        if not self.paused and (self._turn_at_ns < 0 or time_ns < self._turn_at_ns):
            self._turn_at_ns = time_ns
            self._arm()

    def _arm(self) -> None:
        """Plan an event unless an earlier one is planned: that one arms again if it comes too early."""
        events = self._events_ns
        if not events or self._turn_at_ns < events[-1]:
            events.append(self._turn_at_ns)
            self._timeline.at(self._turn_at_ns, self._turn, self._life)

    def _turn(self, life: int) -> None:
        if life != self._life or self.engine is None:
            return
        self._events_ns.pop()
        if self.paused or self._turn_at_ns < 0:
            return
        if self._turn_at_ns > self._timeline.now_ns:
            self._arm()
            return
        self._turn_at_ns = -1
        engine = self.engine
        now_ms = self.clock.now_ns() // MILLISECOND
        if self._inbox:
            inbox, self._inbox = self._inbox, []
            for item in inbox:
                if isinstance(item, Message):
                    engine.step(item, now_ms)
                elif isinstance(item, Request):
                    self._serve(item)
                else:
                    self._relay(item)
        try:
            engine.turn(now_ms)
        except StorageFailed:
            # Fail-stop, like a process that ends: nothing of this turn leaves the node.
            self.crash()
            return
        self._send_out(engine)
        self.disk.kick()
        wake_ns = self.clock.true_ns(engine.wake_ms * MILLISECOND)
        self.schedule_turn(max(wake_ns - self._timeline.now_ns, TURN_DELAY_NS))

    def _send_out(self, engine: Engine) -> None:
        send = self._network.send
        for message in engine.take_messages():
            if message.kind in PROMISES:
                self._leaving(message, engine.groups[message.group].raft.term)
            send(self.number, message.target, message)
        for group in engine.groups.values():
            if group.answers:
                answers, group.answers = group.answers, []
                for answer in answers:
                    route = answer.handle
                    send(self.number, route.via or route.client, Response(route, group.number, answer))

    def _serve(self, request: Request) -> None:
        assert self.engine is not None
        group = self.engine.groups[request.group]
        kind = request.kind
        if not group.leading and kind in ("submit", "keep_alive"):
            leader = group.raft.leader
            if request.route.via == 0 and leader not in (0, self.number):
                self._forward(request, leader)
                return
        getattr(group, kind)(*request.arguments, request.route)

    def _forward(self, request: Request, leader: int) -> None:
        """Hand a request to the leader, once; a bad forwarder does it late, or late and again."""
        random = self._random
        forwarded = request._replace(route=request.route._replace(via=self.number))
        delay_ns = 0
        if self._forwarding.late and random.chance(self._forwarding.late):
            delay_ns = random.below(FORWARD_LATE_MAX_NS)
        self._timeline.after(delay_ns, self._network.send, self.number, leader, forwarded)
        if self._forwarding.twice and random.chance(self._forwarding.twice):
            again_ns = random.below(FORWARD_LATE_MAX_NS)
            self._timeline.after(again_ns, self._network.send, self.number, leader, forwarded)

    def _relay(self, response: Response) -> None:
        if response.answer.code == Code.notLeader and response.answer.leader == self.number:
            response = response._replace(answer=response.answer._replace(leader=0))
        self._network.send(self.number, response.route.client, response)
