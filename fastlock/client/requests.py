"""Requests repeated until they are answered: reads anywhere, commands exactly once under a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastlock.client.cluster import NS_PER_MS, Cluster
from fastlock.client.flows import Signal, moment
from fastlock.client.links import Link
from fastlock.client.messages import Answer, Call
from fastlock.client.settings import REQUESTS_MAX, SESSION_WINDOW
from fastlock.errors import Unavailable
from fastlock.schema.enums import Code

# Not acted, or nobody knows: the request is repeated, under the same session and sequence if it is a command.
RETRYABLE = frozenset(
    (
        Code.notLeader,
        Code.outcomeUnknown,
        Code.unavailable,
        Code.busy,
        Code.storageFull,
        Code.shuttingDown,
        Code.deadlineExceeded,
        Code.groupUnknown,
    )
)
# The first two of them leave it open whether the command acted.
DOUBTFUL = frozenset((Code.outcomeUnknown, Code.deadlineExceeded))

# Hints to a leader followed at once; after that the cluster is given time to agree.
HINTS_FOLLOWED_MAX = 2


class Session:
    """The client's identity towards one group: sequence numbers, and below which all answers arrived."""

    __slots__ = ("_next", "_open", "group", "number", "room")

    def __init__(self, group: int, number: int) -> None:
        self.group = group
        self.number = number
        self._next = 1
        self._open: dict[int, None] = {}
        self.room = Signal()

    @property
    def acknowledged_below(self) -> int:
        # Insertion order is sequence order.
        for sequence in self._open:
            return sequence
        return self._next

    @property
    def is_full(self) -> bool:
        return self._next - self.acknowledged_below >= SESSION_WINDOW

    def begin(self) -> int:
        sequence = self._next
        self._next += 1
        self._open[sequence] = None
        return sequence

    def finish(self, sequence: int) -> None:
        """Its answer arrived, or nobody will ever ask for it again."""
        if self._open.pop(sequence, self) is None:
            self.room.fire()


class Command(Call):
    """A command of the log and its place in a session, which makes its repetitions act once."""

    __slots__ = ("fields", "sequence", "session")

    def __init__(self, group: int, fields: dict[str, Any]) -> None:
        super().__init__(group, {})
        self.fields = fields
        self.session: Session | None = None
        self.sequence = 0

    def content(self) -> dict[str, Any]:
        """The command's own fields, as they are sent in its session."""
        return self.fields

    def acknowledge(self) -> None:
        """Nobody will ask for this answer again."""
        if self.session is not None:
            self.session.finish(self.sequence)

    def close(self) -> None:
        super().close()
        self.acknowledge()


class Requests:
    """Sends requests and repeats them until the deadline."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.flows = cluster.flows
        self.settings = cluster.settings
        # Told when another node leads a group than before.
        self.on_leader: Callable[[int], None] = lambda group: None
        # Sees every command when it is first sent, with None, and whatever the lock table answers to it.
        self.observe: Callable[[Command, Answer | None], None] = lambda command, answer: None
        self._sessions: dict[int, Session] = {}
        self._opening: dict[int, Signal] = {}
        self._under_way = 0
        self._ended = Signal()
        # Who was asked for what at this moment, by group.
        self._asked: dict[int, dict[Call, Link]] = {}
        self.cluster.on_leader = self._leader_changed

    def deadline_ns(self, timeout_ms: int | None = None) -> int:
        """When an operation that begins at this moment gives up."""
        return self.flows.now_ns + (timeout_ms or self.settings.timeout_ms) * NS_PER_MS

    # Reads and other requests that may be repeated freely.

    async def ask(
        self, request: dict[str, Any], group: int, deadline_ns: int, anywhere: bool = False
    ) -> Answer:
        """An answer from any node, or from the group's leader where that is known. Raises Unavailable."""
        call = Call(group, request)
        try:
            return await self._repeat(call, deadline_ns, anywhere)
        finally:
            call.close()

    # Commands.

    async def run(self, command: Command, deadline_ns: int) -> Answer:
        """Perform a command and close it. Raises Unavailable."""
        try:
            return await self.perform(command, deadline_ns)
        finally:
            command.close()

    async def perform(self, command: Command, deadline_ns: int) -> Answer:
        """Repeat a command until the lock table has answered. Raises Unavailable.

        The command stays open: its sequence is asked for again if the caller wants another answer (a wait
        that re-attaches). `sessionUnknown` is only returned where an earlier repetition may have acted before
        the session was forgotten; the caller knows whether repeating it in another session can do harm.
        """
        while True:
            if command.session is None:
                await self._join_session(command, deadline_ns)
            if not command.sent:
                self.observe(command, None)
            answer = await self._repeat(command, deadline_ns)
            if answer.code is not Code.sessionUnknown:
                self.observe(command, answer)
                return answer
            self.leave_session(command)
            if command.in_doubt:
                return answer

    def leave_session(self, command: Command) -> None:
        """The group no longer knows the session: whatever was sent in it can never act from here on."""
        session = command.session
        if session is not None:
            if self._sessions.get(session.group) is session:
                del self._sessions[session.group]
            command.session = None
            command.sequence = 0

    async def _join_session(self, command: Command, deadline_ns: int) -> None:
        group = command.group
        while True:
            session = self._sessions.get(group)
            if session is None:
                session = await self._open_session(group, deadline_ns)
            elif session.is_full:
                if not await session.room.until(deadline_ns):
                    raise Unavailable(
                        f"{SESSION_WINDOW} commands are under way: send fewer at once, or try again"
                    )
            else:
                command.session = session
                command.sequence = session.begin()
                return

    async def _open_session(self, group: int, deadline_ns: int) -> Session | None:
        """One opens it, everyone else waits for that one."""
        opening = self._opening.get(group)
        if opening is not None:
            if not await opening.until(deadline_ns):
                raise self.cluster.unavailable()
            return self._sessions.get(group)
        opening = self._opening[group] = Signal()
        try:
            request = {"group": group, "command": {"openSession": {"lifetimeMs": 0}}}
            answer = await self.ask(request, group, deadline_ns)
            if answer.code is not Code.ok:
                raise Unavailable(f"no session could be opened ({answer.code.name}): try again later")
            session = self._sessions[group] = Session(group, answer.content)
            return session
        finally:
            del self._opening[group]
            opening.fire()

    def session_numbers(self) -> list[tuple[int, int]]:
        return [(group, session.number) for group, session in self._sessions.items()]

    # The loop that all of them share.

    async def _repeat(self, call: Call, deadline_ns: int, anywhere: bool = False) -> Answer:
        while self._under_way >= REQUESTS_MAX:
            if not await self._ended.until(deadline_ns):
                raise Unavailable(f"{REQUESTS_MAX} requests are under way: send fewer at once, or try again")
        self._under_way += 1
        try:
            return await self._repeat_until(call, deadline_ns, anywhere)
        finally:
            self._under_way -= 1
            if self._under_way >= REQUESTS_MAX - 1:
                self._ended.fire()

    async def _repeat_until(self, call: Call, deadline_ns: int, anywhere: bool) -> Answer:
        cluster, flows, settings = self.cluster, self.flows, self.settings
        timeout_ms = settings.attempt_timeout_ms
        backoff_ms = settings.backoff_ms
        hints = 0
        while True:
            link = cluster.any_link(call.avoid) if anywhere else cluster.route(call.group, call.avoid)
            if link is None:
                if not await cluster.changed.until(deadline_ns):
                    raise self._gave_up(call)
                continue
            cluster.send(link, call, self._request(call))
            asked = self._asked.setdefault(call.group, {})
            asked[call] = link
            try:
                answer = await call.next(flows, min(deadline_ns, flows.now_ns + timeout_ms * NS_PER_MS))
            finally:
                del asked[call]
            if answer is None:
                call.in_doubt = True
                call.avoid = link
                cluster.suspect(call.group, link)
                timeout_ms = min(2 * timeout_ms, settings.attempt_timeout_ms_max)
                if flows.now_ns >= deadline_ns:
                    raise self._gave_up(call)
                continue
            if answer.code not in RETRYABLE:
                return answer
            if answer.code in DOUBTFUL:
                call.in_doubt = True
            if answer.code is Code.groupUnknown:
                cluster.describe_again()
            leader = cluster.up.get(answer.leader) if answer.code is Code.notLeader else None
            if leader is not None and leader is not link and hints < HINTS_FOLLOWED_MAX:
                hints += 1
                call.avoid = None
                continue
            hints = 0
            call.avoid = link if leader is None else None
            pause_ns = int(backoff_ms * NS_PER_MS * cluster.random.random())
            backoff_ms = min(2 * backoff_ms, settings.backoff_ms_max)
            if flows.now_ns + pause_ns >= deadline_ns:
                raise self._gave_up(call, answer)
            await moment(flows.now_ns + pause_ns)

    def _leader_changed(self, group: int, leader: int) -> None:
        """Whoever asked another node may wait for one that cannot answer: ask the new leader at once."""
        for call, link in self._asked.get(group, {}).items():
            # What was asked of this very node may have been passed on to the leader before it.
            if (link.node != leader or call.in_doubt) and not call.inbox:
                call.in_doubt = True
                call.deliver(Answer(Code.notLeader, leader=leader))
        self.on_leader(group)

    def _request(self, call: Call) -> dict[str, Any]:
        if not isinstance(call, Command):
            return dict(call.request)
        session = call.session
        assert session is not None
        exactly_once = {
            "session": session.number,
            "sequence": call.sequence,
            # It rises between repetitions, but never above the command's own sequence: a wait that was queued
            # is acknowledged, and still repeated.
            "acknowledgedBelow": min(session.acknowledged_below, call.sequence),
        }
        return {"group": call.group, "command": {**call.content(), **exactly_once}}

    def _gave_up(self, call: Call, answer: Answer | None = None) -> Unavailable:
        if answer is not None and answer.code in (Code.busy, Code.storageFull):
            why = "the cluster is overloaded" if answer.code is Code.busy else "the cluster's disks are full"
            return Unavailable(f"{why}: try again later")
        return self.cluster.unavailable()
