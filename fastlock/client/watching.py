"""Streams of events that go on at another node wherever one breaks, or say that something is missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastlock.client.cluster import NS_PER_MS
from fastlock.client.flows import moment
from fastlock.client.links import Link
from fastlock.client.messages import Answer, Call
from fastlock.client.refusals import refusal
from fastlock.client.requests import RETRYABLE, Requests
from fastlock.errors import EventsLost
from fastlock.schema.enums import Code

# Answers that a slow reader may leave unread; beyond them its stream stops until it has caught up.
UNREAD_ANSWERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a key."""

    key: bytes
    # acquired, transferred (granted from the queue), released, expired, revoked, forced, put, deleted,
    # delayEnded
    kind: str
    # Of the holder it is about; 0 and "" where it is about none.
    token: int
    owner: str
    # put: the value; forced: who did it and why.
    value: bytes
    revision: int


class _Stream(Call):
    """One subscription at one node. When its reader falls behind, it ends instead of leaving a gap."""

    __slots__ = ("is_cut", "link", "on_cut")

    def __init__(self, link: Link, on_cut: Callable[[_Stream], None]) -> None:
        super().__init__(0, {})
        self.link = link
        self.is_cut = False
        self.on_cut = on_cut

    def deliver(self, answer: Answer) -> None:
        if self.is_cut:
            return
        super().deliver(answer)
        if len(self.inbox) >= UNREAD_ANSWERS_MAX:
            self.is_cut = True
            self.on_cut(self)


class Watching:
    """One watch of a key or a prefix.

    `wait` returns when events are `ready`; who takes them calls `take`. So a reader that is cancelled while
    it waits loses nothing. After EventsLost or Unavailable the watch goes on with the next `wait`.
    """

    def __init__(self, requests: Requests, key: bytes, is_prefix: bool, position: bytes) -> None:
        # Where to go on after what was taken; opaque.
        self.position = position
        self._requests = requests
        self._cluster = requests.cluster
        self._flows = requests.flows
        self._settings = requests.settings
        self._key = key
        self._is_prefix = is_prefix
        self._reached = position
        self._ready: deque[tuple[Event, bytes]] = deque()
        self._stream: _Stream | None = None
        self._avoid: Link | None = None

    @property
    def is_ready(self) -> bool:
        return bool(self._ready)

    def take(self) -> Event:
        event, position = self._ready.popleft()
        self.position = position
        return event

    async def begin(self) -> None:
        """Return once everything that happens from here on will be seen. Raises Unavailable."""
        if self._stream is None:
            await self._subscribe()

    async def wait(self) -> None:
        """Until events are ready. Raises EventsLost, Unavailable, or what the cluster refuses."""
        while not self._ready:
            stream = self._stream or await self._subscribe()
            quiet_ns = self._settings.reattach_ms * NS_PER_MS
            if stream.is_cut and not stream.inbox:
                self._leave(None)
                continue
            answer = await stream.next(self._flows, self._flows.now_ns + quiet_ns)
            if answer is not None:
                self._take_in(answer)
            elif not await self._still_follows(stream.link):
                self._leave(stream.link)

    def close(self) -> None:
        self._leave(None)

    async def _subscribe(self) -> _Stream:
        """Ask one node after the other, until one says where its stream begins."""
        flows, cluster, settings = self._flows, self._cluster, self._settings
        deadline_ns = self._requests.deadline_ns()
        backoff_ms = settings.backoff_ms
        while True:
            link = cluster.any_link(self._avoid)
            if link is None:
                if not await cluster.changed.until(deadline_ns):
                    raise cluster.unavailable()
                continue
            stream = self._stream = _Stream(link, self._unsubscribe)
            watch = {"key": self._key, "prefix": self._is_prefix, "position": self._reached}
            cluster.send(link, stream, {"watch": watch})
            answer: Answer | None = None
            try:
                attempt_ns = flows.now_ns + settings.attempt_timeout_ms * NS_PER_MS
                answer = await stream.next(flows, min(deadline_ns, attempt_ns))
            finally:
                if answer is None:
                    self._leave(link)
            if answer is not None and self._take_in(answer):
                return stream
            if flows.now_ns >= deadline_ns:
                raise cluster.unavailable()
            await moment(flows.now_ns + int(backoff_ms * NS_PER_MS * cluster.random.random()))
            backoff_ms = min(2 * backoff_ms, settings.backoff_ms_max)

    def _take_in(self, answer: Answer) -> bool:
        """Whether the stream goes on after this answer."""
        stream = self._stream
        assert stream is not None
        if answer.code in RETRYABLE:
            self._leave(stream.link)
            return False
        if answer.code is Code.eventsLost:
            self._reached = self.position = answer.content["position"]
            self._leave(None)
            raise EventsLost(0)
        if answer.code is not Code.ok or answer.which != "events":
            self._leave(None)
            raise refusal(answer)
        before, self._reached = self._reached, answer.content["position"]
        events = [_event(fields) for fields in answer.content.get("events", ())]
        # A position is the end of a frame: whoever resumes in the middle of one gets its beginning again.
        self._ready += [(event, before) for event in events[:-1]]
        self._ready += [(event, self._reached) for event in events[-1:]]
        if not self._ready:
            self.position = self._reached
        self._avoid = None
        return True

    async def _still_follows(self, link: Link) -> bool:
        """Nothing was heard for long: a node that can say what is current would have told us."""
        call = Call(0, {})
        try:
            self._cluster.send(link, call, {"getLock": {"key": self._key or b"?", "stale": False}})
            timeout_ns = self._settings.attempt_timeout_ms * NS_PER_MS
            answer = await call.next(self._flows, self._flows.now_ns + timeout_ns)
            return answer is not None and answer.code not in RETRYABLE
        finally:
            call.close()

    def _leave(self, avoid: Link | None) -> None:
        stream, self._stream = self._stream, None
        self._avoid = avoid
        if stream is not None:
            self._unsubscribe(stream)

    def _unsubscribe(self, stream: _Stream) -> None:
        """Tell the node, unless the connection it was on is gone; its answer is for nobody."""
        for link, number in list(stream.places):
            if link.calls.get(number) is stream:
                call = Call(0, {})
                self._cluster.send(link, call, {"unwatch": {"watch": number}})
                call.close()
        stream.close()


def _event(fields: dict[str, Any]) -> Event:
    return Event(
        fields["key"],
        fields["kind"],
        fields["token"],
        fields.get("owner", b"").decode(errors="replace"),
        fields.get("value", b""),
        fields["revision"],
    )
