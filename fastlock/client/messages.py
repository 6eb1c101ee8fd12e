"""Requests and their answers as the client sees them, whichever connection they took."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlock._core.codec import decode_reply
from fastlock.client.flows import Signal
from fastlock.schema.enums import Code

if TYPE_CHECKING:
    from fastlock.client.flows import Flows
    from fastlock.client.links import Link

# Answers to one request that nobody fetched yet; a watch is the only one that gets many.
ANSWERS_WAITING_MAX = 4_096

_CODES = {code.name: code for code in Code}


class Answer(NamedTuple):
    """A Reply, or what the client says itself where none will come."""

    code: Code
    which: str = "done"
    content: Any = None
    group: int = 0
    detail: int = 0
    leader: int = 0
    revision: int = 0
    message: str = ""


# A connection broke after the request was sent: whether it acted is not known.
LINK_LOST = Answer(Code.outcomeUnknown, message="the connection was lost")

_REPLY_FIELDS = frozenset(("id", "code", "group", "detail", "leader", "revision", "message"))


def answer_of(frame: bytes | memoryview) -> tuple[int, Answer]:
    """The id and the content of a Reply frame. Raises MalformedFrame."""
    fields = decode_reply(frame)
    which = next(name for name in fields if name not in _REPLY_FIELDS)
    code = _CODES.get(fields["code"])
    if code is None:
        # A code of a later release: nothing is known about what it means for the outcome.
        code = Code.outcomeUnknown
    answer = Answer(
        code,
        which,
        fields[which],
        fields["group"],
        fields["detail"],
        fields["leader"],
        fields["revision"],
        fields.get("message", ""),
    )
    return fields["id"], answer


class Call:
    """One request and all its repetitions, and the answers to any of them."""

    __slots__ = (
        "answered",
        "avoid",
        "first_sent_ns",
        "group",
        "in_doubt",
        "inbox",
        "places",
        "request",
        "sent",
    )

    def __init__(self, group: int, request: Mapping[str, Any]) -> None:
        self.group = group
        self.request = request
        self.inbox: deque[Answer] = deque()
        self.answered = Signal()
        # Where it was sent, under which id.
        self.places: list[tuple[Link, int]] = []
        self.sent = 0
        self.first_sent_ns = 0
        # A repetition went out whose outcome nobody will tell.
        self.in_doubt = False
        self.avoid: Link | None = None

    def deliver(self, answer: Answer) -> None:
        if len(self.inbox) < ANSWERS_WAITING_MAX:
            self.inbox.append(answer)
        self.answered.fire()

    async def next(self, flows: Flows, deadline_ns: int) -> Answer | None:
        """The next answer to any repetition, or None when time is up."""
        while not self.inbox:
            if flows.now_ns >= deadline_ns:
                return None
            await self.answered.until(deadline_ns)
        return self.inbox.popleft()

    def close(self) -> None:
        """Answers that still come are for nobody."""
        for link, number in self.places:
            link.calls.pop(number, None)
        self.places.clear()
