"""The http port: health, readiness, status and counters. Starlette on uvicorn, in the node's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fastlock.config import Address
from fastlock.errors import AddressInUse
from fastlock.node import report

if TYPE_CHECKING:
    from fastlock.node.server import Node

CONNECTIONS_MAX = 1_000
KEEP_ALIVE_SECONDS = 30


class _EmbeddedServer(uvicorn.Server):
    """Signals are the node's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Listens from the start on, so that a node that is not ready can say so."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._registry = CollectorRegistry()
        self._registry.register(_Counters(node))
        self._server: _EmbeddedServer | None = None
        self._task: asyncio.Task[None] | None = None

    async def listen(self, address: Address) -> Address:
        sock = _bind(address)
        config = uvicorn.Config(
            self.application(),
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            server_header=False,
        )
        self._server = _EmbeddedServer(config)
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[sock]))
        return Address(address.host, sock.getsockname()[1])

    async def close(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            self._server.force_exit = True
            await asyncio.wait([self._task], timeout=1)

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/readyz", self._ready),
                Route("/status", self._status),
                Route("/metrics", self._metrics),
            ]
        )

    async def _health(self, request: Request) -> Response:
        """Whether the process should be left alone: it runs, and its disk works."""
        if self._node.failed.done():
            return PlainTextResponse("failed\n", 503)
        return PlainTextResponse("ok\n")

    async def _ready(self, request: Request) -> Response:
        """Whether requests may be sent here."""
        missing = report.not_ready(self._node)
        if missing:
            return PlainTextResponse(f"not ready: {missing}\n", 503)
        return PlainTextResponse("ready\n")

    async def _status(self, request: Request) -> Response:
        return JSONResponse(report.status(self._node))

    async def _metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
    except OSError as error:
        sock.close()
        raise AddressInUse(
            f"--http {address}: {error.strerror or error}: stop what listens there, or choose another address"
        ) from error
    sock.setblocking(False)
    return sock


class _Counters:
    """Reads the node's figures when somebody asks for them."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        status = report.status(self._node)
        yield from _gauges("fastlock_loop", "The node's loop", status["loop"])
        yield from _gauges("fastlock_connections", "Client connections", status["connections"])
        yield from _gauges("fastlock_reads", "Reads", status["reads"])
        yield from _gauges("fastlock_storage", "Storage", status["storage"])
        names = ("term", "commit", "applied", "locks", "leases", "waiters", "sessions", "revision", "leading")
        for name in names:
            family = GaugeMetricFamily(f"fastlock_group_{name}", f"Of each group: {name}", labels=["group"])
            for group in status["groups"]:
                family.add_metric([str(group["id"])], float(group[name]))
            yield family
        commands = CounterMetricFamily("fastlock_commands", "Commands taken in or handed on", labels=["how"])
        for how, count in status["commands"].items():
            commands.add_metric([how], float(count))
        yield commands


def _gauges(prefix: str, meaning: str, figures: dict[str, Any]) -> Iterator[Metric]:
    for name, value in figures.items():
        yield GaugeMetricFamily(f"{prefix}_{name}", f"{meaning}: {name}", value=float(value))
