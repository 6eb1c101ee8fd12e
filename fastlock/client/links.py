"""One connection to one node: hello, whole frames in both directions, and who waits for which answer."""

from __future__ import annotations

from enum import Enum
from typing import Any

from fastlock._core.codec import encode_request, frame_size
from fastlock.client.messages import LINK_LOST, Answer, Call, answer_of
from fastlock.schema.enums import PROTOCOL_VERSION

HELLO_ID = 0


class LinkState(Enum):
    DOWN = "down"
    DIALING = "dialing"  # the driver is opening a connection
    GREETING = "greeting"  # connected, the node has not answered our hello
    UP = "up"


class Link:
    """The state of the connection to one address; connections come and go, the link stays."""

    __slots__ = (
        "_incoming",
        "address",
        "calls",
        "congested",
        "deadline_ns",
        "failures",
        "node",
        "output",
        "reason",
        "redial_ns",
        "state",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.state = LinkState.DOWN
        # Which node answers there; 0 = not known. Kept over reconnections as a guess.
        self.node = 0
        self.calls: dict[int, Call] = {}
        self.output: list[bytes] = []
        # The driver's write buffer is full: nothing more is sent here until it drained.
        self.congested = False
        self.failures = 0
        self.redial_ns = 0
        # While dialing or greeting: when to give up.
        self.deadline_ns = 0
        # Why it went down, for people.
        self.reason = ""
        self._incoming = bytearray()

    def opened(self) -> None:
        self.state = LinkState.GREETING
        self._incoming.clear()
        hello = {"version": PROTOCOL_VERSION, "role": "client", "software": "fastlock-python"}
        self.output = [encode_request({"id": HELLO_ID, "hello": hello})]

    def send(self, number: int, call: Call, request: dict[str, Any]) -> None:
        self.output.append(encode_request(request))
        self.calls[number] = call

    def received(self, data: bytes) -> list[tuple[int, Answer]]:
        """The answers that are complete with these bytes. Raises ProtocolError."""
        incoming = self._incoming
        incoming += data
        answers = []
        view = memoryview(incoming)
        start = 0
        try:
            while True:
                size = frame_size(view[start:])
                if not size or start + size > len(view):
                    break
                answers.append(answer_of(view[start : start + size]))
                start += size
        finally:
            view.release()
        del incoming[:start]
        return answers

    def closed(self, reason: str) -> None:
        """Every request that was sent here and not answered is in doubt."""
        self.state = LinkState.DOWN
        self.reason = reason
        self.congested = False
        self.output = []
        self._incoming.clear()
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.deliver(LINK_LOST)
