"""Client connections: hello first, then requests in and replies out, each within bounds.

All connections share one buffer that the sockets are read into, so an idle connection costs next to nothing;
only the beginning of a frame whose rest has not arrived is kept with its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast

from fastlock._core.codec_client import check_hello, decode_request, encode_reply
from fastlock._core.framing import frame_size
from fastlock._core.replies import Replies
from fastlock.config import Address, ServerSection
from fastlock.errors import ProtocolError
from fastlock.node.links import PROTOCOL_VERSION
from fastlock.node.listeners import bound_address, listen, tune_socket
from fastlock.schema.enums import Code
from fastlock.storage.directory import Identity

_log = logging.getLogger("fastlock.connections")

# One read at most, so that nobody is served for long in one go.
READ_BYTES = 64 << 10
# Beginnings of frames, of all connections together.
PARTIAL_BYTES_MAX = 256 << 20
# A connection that vanished without a word is noticed after so long.
DEAD_MS = 60_000
ACCEPT_BACKLOG = 4_096
SWEEP_SECONDS = 0.25
# Connections looked at in one sweep.
SWEEP_CONNECTIONS = 2_048


class ConnectionUser(Protocol):
    """What takes the requests."""

    def connect(self, owner: Connection) -> Replies: ...
    def receive_requests(self, replies: Replies | None, data: memoryview) -> int:
        """Take whole Request frames in; returns the bytes done with. Raises ProtocolError."""

    def congested(self, connection: Connection) -> None:
        """The client does not read: what can wait should."""

    def relieved(self, connection: Connection) -> None: ...
    def disconnected(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """One client, from the first byte to the last."""

    __slots__ = (
        "_held",
        "_server",
        "heard_ms",
        "is_congested",
        "is_greeted",
        "is_held",
        "replies",
        "transport",
    )

    def __init__(self, server: Connections) -> None:
        self._server = server
        self._held = b""
        self.replies: Replies | None = None
        self.transport: asyncio.Transport | None = None
        self.is_greeted = False
        self.is_congested = False
        self.is_held = False
        self.heard_ms = 0

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._server.lost(self, len(self._held))
        self._held = b""

    def get_buffer(self, _size: int) -> memoryview:
        scratch = self._server.scratch
        held = len(self._held)
        if held:
            scratch[:held] = self._held
        return scratch[held : held + READ_BYTES]

    def buffer_updated(self, size: int) -> None:
        """Runs for every read of every client: no more calls than there must be."""
        server = self._server
        held = len(self._held)
        size += held
        data = server.scratch[:size]
        try:
            if self.is_greeted:
                self.heard_ms = server.swept_ms
                done = server.receive(self.replies, data)
            else:
                done = self._greet(data)
                if self.is_greeted and done < size:
                    done += server.receive(self.replies, data[done:])
        except ProtocolError as error:
            self.refuse(Code(error.code), str(error))
            return
        if done < size or held:
            self._held = bytes(data[done:])
            if not server.may_keep(size - done - held):
                self.refuse(Code.busy, "too many connections hold half of a frame: send whole frames")

    def eof_received(self) -> None:
        return None

    def pause_writing(self) -> None:
        """The client reads more slowly than it asks: it is not listened to until it has read."""
        self.is_congested = True
        self._listen()
        self._server.user.congested(self)

    def resume_writing(self) -> None:
        self.is_congested = False
        self._listen()
        self._server.user.relieved(self)

    def hold(self, is_held: bool) -> None:
        """What the client asked for so far is enough for the moment, or no longer is."""
        self.is_held = is_held
        self._listen()

    def _listen(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        wanted = not (self.is_congested or self.is_held)
        if wanted and not transport.is_reading():
            transport.resume_reading()
        elif not wanted and transport.is_reading():
            transport.pause_reading()

    # The hello

    def _greet(self, data: memoryview) -> int:
        """Take the hello; returns its size, or 0 while it is not whole."""
        server = self._server
        size = frame_size(data, server.settings.frame_bytes_max)
        if size == 0 or size > len(data):
            return 0
        request = decode_request(data[:size], server.settings.frame_bytes_max)
        hello = request.get("hello")
        if hello is None:
            self.refuse(Code.helloExpected, "the first request is a hello", request["id"])
            return size
        code, message = server.judge(hello)
        if code != Code.ok:
            self.refuse(code, message, request["id"])
            return size
        self.replies = server.user.connect(self)
        self.is_greeted = True
        self.replies.put(server.hello(request["id"]))
        return size

    # What leaves

    def write(self, data: bytes) -> None:
        transport = self.transport
        if transport is None or (self.is_congested and transport.is_closing()):
            return
        transport.write(data)
        if self.is_congested and transport.get_write_buffer_size() > self._server.settings.reply_bytes_max:
            _log.warning("%s does not read its answers: disconnected", self.name)
            self._server.overflows += 1
            transport.abort()

    def refuse(self, code: Code, message: str, request_id: int = 0) -> None:
        """Say why, after what was answered before, and close."""
        if self.replies is not None:
            self.write(self.replies.take())
        self.write(self._server.hello(request_id, code, message))
        self.close()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    @property
    def name(self) -> str:
        address = self.transport.get_extra_info("peername") if self.transport is not None else None
        return f"{address[0]}:{address[1]}" if address else "a client"


class Connections:
    """The native listener and everything connected to it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: ServerSection,
        user: ConnectionUser,
        identity: Identity,
        software: str,
        now_ms: Callable[[], int],
        connections_max: int,
    ) -> None:
        self.loop = loop
        self.settings = settings
        self.user = user
        self.now_ms = now_ms
        # When silence was last looked for: exact enough to measure it by.
        self.swept_ms = now_ms()
        self.receive = user.receive_requests
        self.scratch = memoryview(bytearray(settings.frame_bytes_max + READ_BYTES))
        self.identity = identity
        self.connections_max = connections_max
        self._software = software
        self._open: dict[Connection, None] = {}
        self._sweep_from: list[Connection] = []
        self._partial_bytes = 0
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.accepted = 0
        self.refused = 0
        self.overflows = 0

    def __len__(self) -> int:
        return len(self._open)

    async def listen(self, address: Address) -> Address:
        """Take the address. Nobody is let in before `serve`."""
        self._server = await listen(
            self.loop,
            lambda: Connection(self),
            address,
            "native",
            backlog=ACCEPT_BACKLOG,
            start_serving=False,
        )
        return bound_address(self._server, address)

    async def serve(self) -> None:
        assert self._server is not None
        await self._server.start_serving()
        self._timer = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.close()

    # What connections ask

    def opened(self, connection: Connection) -> None:
        transport = connection.transport
        assert transport is not None
        self.accepted += 1
        if len(self._open) >= self.connections_max:
            self.refused += 1
            if self.refused == 1 or self.refused % 1000 == 0:
                _log.warning(
                    "%d connections are open: more are refused (server.connections_max)", len(self._open)
                )
            message = f"{len(self._open)} connections are open: try another node, or again later"
            connection.refuse(Code.busy, message)
            return
        self._open[connection] = None
        connection.heard_ms = self.swept_ms
        tune_socket(transport, DEAD_MS)
        transport.set_write_buffer_limits(high=self.settings.reply_bytes_pause)

    def lost(self, connection: Connection, held_bytes: int) -> None:
        self._partial_bytes -= held_bytes
        self._open.pop(connection, None)
        if connection.replies is not None:
            connection.replies.close()
            connection.replies.owner = None
            self.user.disconnected(connection)
            connection.replies = None

    def may_keep(self, more_bytes: int) -> bool:
        self._partial_bytes += more_bytes
        return more_bytes <= 0 or self._partial_bytes <= PARTIAL_BYTES_MAX

    def judge(self, hello: Mapping[str, Any]) -> tuple[Code, str]:
        cluster, node, _ = self.identity
        high, low = cluster >> 64, cluster & (1 << 64) - 1
        code = Code(check_hello(hello, cluster_high=high, cluster_low=low))
        if code == Code.wrongCluster:
            theirs = hello["clusterHigh"] << 64 | hello["clusterLow"]
            return code, f"this is node {node} of cluster {cluster:032x}, not of {theirs:032x}"
        if code == Code.unsupportedVersion:
            return code, f"protocol version {hello['version']}: this node speaks {PROTOCOL_VERSION}"
        if code != Code.ok:
            return code, f"the hello was refused: {code.name}"
        if hello["role"] == "member":
            return Code.forbidden, "this is the clients' port: members use the peer one"
        return Code.ok, ""

    def hello(self, request_id: int, code: Code = Code.ok, message: str = "") -> bytes:
        cluster, node, incarnation = self.identity
        hello = {
            "version": PROTOCOL_VERSION,
            "role": "member",
            "clusterHigh": cluster >> 64,
            "clusterLow": cluster & (1 << 64) - 1,
            "node": node,
            "incarnation": incarnation,
            "software": self._software,
            "code": code.name,
            "message": message,
        }
        return encode_reply({"id": request_id, "code": code.name, "message": message, "hello": hello})

    # Silence

    def _sweep(self) -> None:
        """Close who never said hello, or has been silent for too long: some connections at a time."""
        self._timer = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        now_ms = self.swept_ms = self.now_ms()
        if not self._sweep_from:
            self._sweep_from = list(self._open)
        looked, self._sweep_from = (
            self._sweep_from[:SWEEP_CONNECTIONS],
            self._sweep_from[SWEEP_CONNECTIONS:],
        )
        self._close_silent(looked, now_ms)

    def _close_silent(self, looked: Iterable[Connection], now_ms: int) -> None:
        hello_ms, idle_ms = self.settings.hello_timeout_ms, self.settings.idle_timeout_ms
        for connection in looked:
            silent_ms = now_ms - connection.heard_ms
            if not connection.is_greeted and silent_ms > hello_ms:
                connection.refuse(Code.helloExpected, f"no hello within {hello_ms} ms")
            elif idle_ms and connection.is_greeted and silent_ms > idle_ms:
                connection.refuse(Code.deadlineExceeded, f"silent for {idle_ms} ms")
