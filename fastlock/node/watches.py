"""Streams of events out of this node's replica, to clients that may be slower than the events.

A stream covers one group (a key) or all of them (a prefix). Its position is opaque to clients: the revision
it has reached in each group. While a client does not read, its streams are taken out of the groups and cost
nothing; when it reads again they continue from their position, or it is told that the history no longer
reaches back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Protocol

from fastlock._core.locktable import Event
from fastlock._core.replies import Replies
from fastlock.node.group import Answer, Group
from fastlock.schema.enums import Code

# One frame of events, about.
PUSH_BYTES = 128 << 10
_EVENT_BYTES = 96
_PLACE = Struct(">IQ")


class Reply(Protocol):
    def __call__(self, replies: Replies, request_id: int, code: int, **fields: Any) -> None: ...


class Stream:
    """One watch of one connection."""

    def __init__(self, reply: Reply, replies: Replies, request_id: int, key: bytes, is_prefix: bool) -> None:
        self.replies = replies
        self.request_id = request_id
        self.parts: list[StreamPart] = []
        self._reply = reply
        self._key = key
        self._is_prefix = is_prefix

    @property
    def position(self) -> bytes:
        return b"".join(_PLACE.pack(part.group.number, part.revision) for part in self.parts)

    def resume(self) -> None:
        for part in self.parts:
            part.group.watch(self._key, self._is_prefix, part.revision, part)

    def pause(self) -> None:
        for part in self.parts:
            part.group.unwatch(part)

    def begin(self) -> None:
        """Say where the stream begins, before anything in it."""
        self._tell([])
        self.resume()

    def push(self, part: StreamPart, events: Sequence[Event], revision: int) -> None:
        for some in _frames_of(events):
            part.revision = some[-1].revision
            self._tell([event._asdict() for event in some])
        part.revision = revision

    def lose(self, part: StreamPart, floor: int) -> None:
        part.revision = floor
        self._tell([], Code.eventsLost)

    def _tell(self, events: list[dict[str, Any]], code: Code = Code.ok) -> None:
        content = {"events": events, "position": self.position}
        self._reply(self.replies, self.request_id, code, events=content)


def _frames_of(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Runs of events that make frames of bounded size."""
    run: list[Event] = []
    size = 0
    for event in events:
        run.append(event)
        size += _EVENT_BYTES + len(event.key) + len(event.owner) + len(event.value)
        if size >= PUSH_BYTES:
            yield run
            run, size = [], 0
    if run:
        yield run


class StreamPart:
    """A stream's share in one group; the group's handle for it."""

    __slots__ = ("_watches", "group", "revision", "stream")

    def __init__(self, watches: Watches, stream: Stream, group: Group, revision: int) -> None:
        self._watches = watches
        self.stream = stream
        self.group = group
        self.revision = revision

    def answered(self, answer: Answer) -> None:
        if answer.code == Code.eventsLost:
            self.stream.lose(self, answer.revision)
            self._watches.remove(self.stream.replies, self.stream.request_id)
        elif answer.code != Code.ok:
            self._watches.fail(self.stream, answer.code)
        elif answer.content:
            self.stream.push(self, answer.content, answer.revision)


class Watches:
    """All streams of a node, by connection."""

    def __init__(self, groups: Mapping[int, Group], reply: Reply, per_connection_max: int) -> None:
        self._groups = groups
        self._reply = reply
        self._per_connection_max = per_connection_max
        self._streams: dict[Replies, dict[int, Stream]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._streams.values()))

    def add(
        self,
        replies: Replies,
        request_id: int,
        key: bytes,
        is_prefix: bool,
        position: bytes,
        groups: Sequence[Group],
    ) -> None:
        streams = self._streams.setdefault(replies, {})
        if len(streams) >= self._per_connection_max:
            message = f"at most {self._per_connection_max} watches on one connection"
            self._reply(replies, request_id, Code.limitExceeded, message=message)
            return
        places = _read_position(position)
        if places is None or request_id in streams:
            message = "this id watches already" if places is not None else "the position is not one of ours"
            self._reply(replies, request_id, Code.invalidArgument, message=message)
            return
        stream = streams[request_id] = Stream(self._reply, replies, request_id, key, is_prefix)
        for group in groups:
            revision = places.get(group.number, group.table.revision)
            stream.parts.append(StreamPart(self, stream, group, revision))
        stream.begin()

    def remove(self, replies: Replies, request_id: int) -> bool:
        stream = self._streams.get(replies, {}).pop(request_id, None)
        if stream is None:
            return False
        stream.pause()
        return True

    def fail(self, stream: Stream, code: int) -> None:
        if self.remove(stream.replies, stream.request_id):
            self._reply(stream.replies, stream.request_id, code)

    def pause(self, replies: Replies) -> None:
        """The client does not read."""
        for stream in self._streams.get(replies, {}).values():
            stream.pause()

    def resume(self, replies: Replies) -> None:
        for stream in list(self._streams.get(replies, {}).values()):
            stream.resume()

    def disconnected(self, replies: Replies) -> None:
        for stream in self._streams.pop(replies, {}).values():
            stream.pause()


def _read_position(position: bytes) -> dict[int, int] | None:
    """Group → revision; None if no node of ours wrote it."""
    if len(position) % _PLACE.size:
        return None
    return dict(_PLACE.iter_unpack(position))
