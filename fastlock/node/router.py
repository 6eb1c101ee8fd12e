"""Requests that are no commands: reads, watches, keep-alives and what the cluster looks like.

Commands never come here; they go from the socket into their group's queue as the bytes they are. Reads are
answered from this node's own replica once it is known to be as new as the request; watches stream from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Protocol

from fastlock._core.codec_client import decode_reply, encode_reply, encode_request
from fastlock._core.framing import frame_size
from fastlock._core.replies import Replies
from fastlock._core.slots import slot_of
from fastlock.node.engine import Engine
from fastlock.node.group import Answer, Group
from fastlock.node.watches import Watches
from fastlock.schema.enums import Argument, Code, SlotState

_log = logging.getLogger("fastlock.router")

# What one page of a list, and one push of events, adds up to before it is sent.
PAGE_BYTES = 256 << 10
LIST_ROWS_DEFAULT = 100
LIST_ROWS_MAX = 500
# Rows taken from the table at a time, so that a page of large values stays near PAGE_BYTES.
LIST_SLICE_ROWS = 16
KEEP_ALIVES_MAX = 1_024

_GROUP = Struct(">I")


class Call(Protocol):
    """Someone who waits for a group's answer."""

    def answered(self, answer: Answer) -> None: ...


class Router:
    """Serves what the intake hands out as dicts."""

    def __init__(
        self,
        engine: Engine,
        describe: Callable[[], dict[str, Any]],
        watches_per_connection_max: int,
        frame_bytes_max: int,
    ) -> None:
        self.engine = engine
        self.frame_bytes_max = frame_bytes_max
        self.watches = Watches(engine.groups, self.reply, watches_per_connection_max)
        self._describe = describe
        # Answers to what this node itself forwards come back here.
        self._own = engine.connect(self, is_trusted=True)
        self._own_calls: dict[int, ForwardedKeepAlives] = {}
        self._own_id = 0
        self.now_ms = 0
        self.reads_here = 0
        self.reads_asked = 0
        self._served: dict[str, Callable[[Replies, dict[str, Any]], None]] = {
            "getLock": self._get,
            "list": self._list,
            "watch": self._watch,
            "unwatch": self._unwatch,
            "keepAlive": self._keep_alive,
            "describe": self._tell_cluster,
            "hello": self._greet_again,
        }

    def serve(self, replies: Replies, request: dict[str, Any], now_ms: int) -> None:
        self.now_ms = now_ms
        method = next((serve for name, serve in self._served.items() if name in request), None)
        if method is None:
            self.reply(replies, request["id"], Code.unknownCommand)
            return
        try:
            method(replies, request)
        except Exception:
            # Nothing here changes what is replicated: a mistake costs one answer, not the node.
            _log.exception("a request could not be served: %s", request)
            self.reply(
                replies, request["id"], Code.unavailable, message="this node failed to serve the request"
            )

    def answered(self, answer: Answer) -> None:
        """A group answered what was asked of it."""
        answer.handle.answered(answer)

    def reply(self, replies: Replies, request_id: int, code: int, **fields: Any) -> None:
        frame = encode_reply({"id": request_id, "code": Code(code).name, **fields})
        if len(frame) > self.frame_bytes_max:
            frame = encode_reply(
                {"id": request_id, "code": Code.frameTooLarge, "message": "the answer is too large"}
            )
        replies.put(frame)

    # Reads

    def group_of(self, key: bytes) -> Group | None:
        number = self.engine.intake.group_of(slot_of(key))
        return None if number is None else self.engine.groups.get(number)

    def _get(self, replies: Replies, request: dict[str, Any]) -> None:
        wanted = request["getLock"]
        key = wanted.get("key", b"")
        if not key:
            self.reply(replies, request["id"], Code.invalidArgument, detail=Argument.key)
            return
        group = self.group_of(key)
        if group is None:
            self.reply(replies, request["id"], Code.unavailable)
            return
        call = Get(self, replies, request["id"], key, group)
        if wanted.get("stale"):
            self.reads_here += 1
            call.read(-1)
            return
        self._count_read(group)
        group.confirm(call)

    def _count_read(self, group: Group) -> None:
        """A leader reads its own state; any other member first asks the leader how new it must be."""
        if group.leading:
            self.reads_here += 1
        else:
            self.reads_asked += 1

    def _list(self, replies: Replies, request: dict[str, Any]) -> None:
        wanted = request["list"]
        cursor = wanted.get("cursor", b"")
        numbers = sorted(number for number in self.engine.groups if number)
        number = _GROUP.unpack_from(cursor)[0] if len(cursor) >= _GROUP.size else numbers[0]
        if cursor and (len(cursor) < _GROUP.size or number not in numbers):
            message = "the cursor is not one of this cluster's"
            self.reply(replies, request["id"], Code.invalidArgument, message=message)
            return
        following = [later for later in numbers if later > number]
        group = self.engine.groups[number]
        page = ListPage(
            self,
            replies,
            request["id"],
            group,
            wanted,
            cursor[_GROUP.size :],
            following[0] if following else 0,
        )
        if wanted.get("stale"):
            self.reads_here += 1
            page.read()
            return
        self._count_read(group)
        group.confirm(page)

    # Watches

    def _watch(self, replies: Replies, request: dict[str, Any]) -> None:
        wanted = request["watch"]
        key, is_prefix = wanted.get("key", b""), wanted.get("prefix", False)
        if not key and not is_prefix:
            self.reply(replies, request["id"], Code.invalidArgument, detail=Argument.key)
            return
        if is_prefix:
            groups = [group for number, group in self.engine.groups.items() if number]
        else:
            group = self.group_of(key)
            groups = [] if group is None else [group]
        if not groups:
            self.reply(replies, request["id"], Code.unavailable)
            return
        self.watches.add(replies, request["id"], key, is_prefix, wanted.get("position", b""), groups)

    def _unwatch(self, replies: Replies, request: dict[str, Any]) -> None:
        found = self.watches.remove(replies, request["unwatch"]["watch"])
        self.reply(replies, request["id"], Code.ok if found else Code.notFound)

    # Keep-alives

    def _keep_alive(self, replies: Replies, request: dict[str, Any]) -> None:
        wanted = request["keepAlive"]
        if len(wanted) > KEEP_ALIVES_MAX:
            message = f"at most {KEEP_ALIVES_MAX} leases in one request"
            self.reply(replies, request["id"], Code.limitExceeded, message=message)
            return
        call = KeepAlives(self, replies, request["id"], wanted)
        elsewhere: dict[int, list[int]] = {}
        for position, lease in enumerate(wanted):
            group = self.engine.groups.get(lease["group"])
            if group is None:
                call.note(position, Code.groupUnknown)
            elif group.leading:
                group.keep_alive(lease["leaseHigh"], lease["leaseLow"], KeptOne(call, position))
            elif replies.is_forwarder or not group.raft.leader:
                call.note(position, Code.notLeader)
            else:
                elsewhere.setdefault(group.raft.leader, []).append(position)
        for node, positions in elsewhere.items():
            self._forward(node, call, positions)
        call.finish_if_done()

    def _forward(self, node: int, call: KeepAlives, positions: list[int]) -> None:
        self._own_id += 1
        leases = [call.wanted[position] for position in positions]
        frame = encode_request({"id": self._own_id, "keepAlive": leases})
        group = leases[0]["group"]
        code = self.engine.forwards.put(self._own, self._own_id, group, node, frame, self.now_ms)
        forwarded = ForwardedKeepAlives(call, positions)
        if code == Code.ok:
            self._own_calls[self._own_id] = forwarded
        else:
            forwarded.failed(code)

    def take_own(self) -> None:
        """Answers to what this node forwarded on its own behalf."""
        frames = memoryview(self._own.take())
        while frames:
            size = frame_size(frames, self.frame_bytes_max)
            reply = decode_reply(frames[:size], self.frame_bytes_max)
            frames = frames[size:]
            forwarded = self._own_calls.pop(reply["id"], None)
            if forwarded is not None:
                forwarded.replied(reply)

    # The cluster

    def _tell_cluster(self, replies: Replies, request: dict[str, Any]) -> None:
        self.reply(replies, request["id"], Code.ok, cluster=self._describe())

    def _greet_again(self, replies: Replies, request: dict[str, Any]) -> None:
        self.reply(replies, request["id"], Code.ok)


class Get:
    """A read of one lock."""

    __slots__ = ("_group", "_key", "_replies", "_request_id", "_router")

    def __init__(self, router: Router, replies: Replies, request_id: int, key: bytes, group: Group) -> None:
        self._router = router
        self._replies = replies
        self._request_id = request_id
        self._key = key
        self._group = group

    def answered(self, answer: Answer) -> None:
        if answer.code == Code.ok:
            self.read(self._router.now_ms)
        else:
            leader = self._group.raft.leader
            self._router.reply(
                self._replies, self._request_id, answer.code, group=self._group.number, leader=leader
            )

    def read(self, now_ms: int) -> None:
        """`now_ms` -1: the time left is not told."""
        group, table = self._group, self._group.table
        slot_state, moved_to = table.slot_owner(self._key)
        told: dict[str, Any] = {
            "group": group.number,
            "leader": group.raft.leader,
            "revision": table.revision,
        }
        if slot_state != SlotState.owned:
            self._router.reply(self._replies, self._request_id, Code.wrongSlot, detail=moved_to, **told)
            return
        state = table.get(self._key, now_ms)
        if state is None:
            self._router.reply(self._replies, self._request_id, Code.notFound, **told)
        else:
            self._router.reply(self._replies, self._request_id, Code.ok, lock=state, **told)


class ListPage:
    """One page of a list: rows of one group, and where the next page begins."""

    __slots__ = ("_cursor", "_group", "_next", "_prefix", "_replies", "_request_id", "_router", "_rows_left")

    def __init__(
        self,
        router: Router,
        replies: Replies,
        request_id: int,
        group: Group,
        wanted: Mapping[str, Any],
        cursor: bytes,
        next_group: int,
    ) -> None:
        self._router = router
        self._replies = replies
        self._request_id = request_id
        self._group = group
        self._prefix = wanted.get("prefix", b"")
        self._rows_left = min(wanted.get("limit") or LIST_ROWS_DEFAULT, LIST_ROWS_MAX)
        self._cursor = cursor
        self._next = next_group

    def answered(self, answer: Answer) -> None:
        if answer.code == Code.ok:
            self.read()
        else:
            leader = self._group.raft.leader
            self._router.reply(
                self._replies, self._request_id, answer.code, group=self._group.number, leader=leader
            )

    def read(self) -> None:
        table, cursor = self._group.table, self._cursor
        locks: list[dict[str, Any]] = []
        size = 0
        try:
            while True:
                limit = min(LIST_SLICE_ROWS, self._rows_left - len(locks))
                rows, cursor = table.list(self._prefix, cursor, limit, self._router.now_ms)
                locks += rows
                size += sum(map(_row_bytes, rows))
                # An empty page may come before the end: a call looks at a bounded number of rows.
                if not cursor or not rows or len(locks) >= self._rows_left or size >= PAGE_BYTES:
                    break
        except ValueError as error:
            self._router.reply(self._replies, self._request_id, Code.invalidArgument, message=str(error))
            return
        if cursor:
            cursor = _GROUP.pack(self._group.number) + cursor
        elif self._next:
            cursor = _GROUP.pack(self._next)
        page = {"locks": locks, "cursor": cursor}
        told = {"group": self._group.number, "leader": self._group.raft.leader, "revision": table.revision}
        self._router.reply(self._replies, self._request_id, Code.ok, page=page, **told)


def _row_bytes(state: Mapping[str, Any]) -> int:
    claims = len(state.get("holders", ())) + len(state.get("waiters", ()))
    return 128 + len(state["key"]) + len(state.get("value", b"")) + 128 * claims


class KeepAlives:
    """One request for many leases, answered once each of them is."""

    def __init__(
        self, router: Router, replies: Replies, request_id: int, wanted: list[dict[str, int]]
    ) -> None:
        self.wanted = wanted
        self._router = router
        self._replies = replies
        self._request_id = request_id
        self._missing = len(wanted)
        self._is_replied = False
        self._kept: list[dict[str, int]] = [
            {"group": lease["group"], "leaseHigh": lease["leaseHigh"], "leaseLow": lease["leaseLow"]}
            for lease in wanted
        ]

    def note(self, position: int, code: int, lost_revision: int = 0) -> None:
        self._kept[position].update(code=code, lostRevision=lost_revision)
        self._missing -= 1

    def finish_if_done(self) -> None:
        if self._missing == 0 and not self._is_replied:
            self._is_replied = True
            self._router.reply(self._replies, self._request_id, Code.ok, keptAlive=self._kept)


class KeptOne:
    """One lease of such a request, in a group that this node leads."""

    __slots__ = ("_call", "_position")

    def __init__(self, call: KeepAlives, position: int) -> None:
        self._call = call
        self._position = position

    def answered(self, answer: Answer) -> None:
        self._call.note(self._position, answer.code, answer.revision)
        self._call.finish_if_done()


class ForwardedKeepAlives:
    """Those of such a request that another node answers."""

    def __init__(self, call: KeepAlives, positions: list[int]) -> None:
        self._call = call
        self._positions = positions

    def failed(self, code: int) -> None:
        for position in self._positions:
            self._call.note(position, code)
        self._call.finish_if_done()

    def replied(self, reply: Mapping[str, Any]) -> None:
        kept = reply.get("keptAlive", ())
        if reply["code"] != "ok" or len(kept) != len(self._positions):
            code = Code[reply["code"]]
            self.failed(code if code != Code.ok else Code.outcomeUnknown)
            return
        for position, one in zip(self._positions, kept, strict=True):
            self._call.note(position, Code[one["code"]], one["lostRevision"])
        self._call.finish_if_done()
