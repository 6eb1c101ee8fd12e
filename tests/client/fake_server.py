"""The fake cluster behind real sockets, for tests of the drivers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

from fastlock._core.codec import decode_request, frame_size
from tests.client.fake_cluster import Connection, FakeCluster


class ServedConnection(asyncio.Protocol):
    def __init__(self, server: "FakeServer", node: int) -> None:
        self.server = server
        self.connection = Connection(server.cluster, node)
        self.buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.server.served.append(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.server.pass_time()
        while (size := frame_size(self.buffer)) and size <= len(self.buffer):
            frame, self.buffer = self.buffer[:size], self.buffer[size:]
            self.server.cluster.serve(self.connection, decode_request(frame))
        self.server.flush()


class FakeServer:
    """One listener for each fake node."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.served: list[ServedConnection] = []
        self.listeners: list[asyncio.Server] = []
        self.start_ms = cluster.now_ms - time.monotonic_ns() // 1_000_000

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        ports: dict[int, int] = {}
        for node in self.cluster.nodes:
            listener = await loop.create_server(partial(ServedConnection, self, node), "127.0.0.1", 0)
            self.listeners.append(listener)
            ports[node] = listener.sockets[0].getsockname()[1]
        self.cluster.address = lambda node: f"127.0.0.1:{ports[node]}"  # type: ignore[method-assign]

    def pass_time(self) -> None:
        self.cluster.pass_time(self.start_ms + time.monotonic_ns() // 1_000_000)

    def flush(self) -> None:
        for served in self.served:
            data, served.connection.outgoing = b"".join(served.connection.outgoing), []
            assert served.transport is not None
            if data and not served.transport.is_closing():
                served.transport.write(data)
            if served.connection.is_cut:
                served.transport.abort()

    async def stop(self) -> None:
        for listener in self.listeners:
            listener.close()
        for served in self.served:
            assert served.transport is not None
            served.transport.abort()


@asynccontextmanager
async def fake_server() -> AsyncIterator[FakeServer]:
    server = FakeServer(FakeCluster())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
