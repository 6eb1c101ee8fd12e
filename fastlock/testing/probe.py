"""One blocking connection to one node, for tests and benchmarks that must know which node they talk to."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

from fastlock._core.codec import decode_reply, encode_request, frame_size
from fastlock.schema.enums import PROTOCOL_VERSION

RECEIVE_BYTES = 1 << 16


class Probe:
    """Speaks to one node, one request at a time."""

    def __init__(self, address: str, timeout_s: float = 5.0) -> None:
        self.address = address
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._requests = 0
        try:
            hello = {"version": PROTOCOL_VERSION, "role": "client", "software": "fastlock-probe"}
            self.node: int = self.ask({"hello": hello})["hello"]["node"]
        except BaseException:
            self.socket.close()
            raise

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its (first) answer. Raises OSError."""
        self._requests += 1
        self.socket.sendall(encode_request({"id": self._requests, **request}))
        while True:
            reply = self.next_reply()
            if reply["id"] == self._requests:
                return reply

    def next_reply(self) -> dict[str, Any]:
        while True:
            size = frame_size(self._received)
            if size and len(self._received) >= size:
                frame, self._received = self._received[:size], self._received[size:]
                return decode_reply(frame)
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("the node closed the connection")
            self._received += data

    def describe(self) -> dict[str, Any]:
        """Members, groups and the slot map as this node knows them."""
        cluster: dict[str, Any] = self.ask({"describe": None})["cluster"]
        return cluster

    def command(self, group: int, command: dict[str, Any]) -> dict[str, Any]:
        """A command that will not be repeated."""
        return self.ask({"group": group, "command": command})

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
