"""Real nodes in the test's own loop: real sockets on loopback, real storage in a temporary directory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from fastlock.cli.probe import Probe
from fastlock.config import Address, Config, load_config
from fastlock.node.clock import Clock
from fastlock.node.report import not_ready
from fastlock.node.server import Node

Result = TypeVar("Result")

# LAN-fast elections, and nothing that a test would have to wait for.
FAST = (
    "raft.election_ms_min=150",
    "raft.election_ms_max=300",
    "raft.heartbeat_ms=40",
    "cluster.leader_return_ms=200",
    "storage.disk_reserve_bytes=0",
)
DEADLINE_SECONDS = 20.0


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs a test's coroutine on the loop that nodes run on, within a deadline."""

    async def bounded() -> Result:
        async with asyncio.timeout(3 * DEADLINE_SECONDS):
            return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


async def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Waits until something is so; fails with what was waited for."""

    async def holds() -> bool:
        return bool(condition())

    await until_async(holds, what, seconds)


async def until_async(
    condition: Callable[[], Awaitable[bool]], what: str, seconds: float = DEADLINE_SECONDS
) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await condition():
        assert loop.time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.005)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Cluster:
    """Nodes that can be started and stopped one by one. Always stop them: `async with`."""

    def __init__(
        self, directory: Path, nodes: int = 1, partitions: int = 0, settings: tuple[str, ...] = ()
    ) -> None:
        self.directory = directory
        self.nodes: dict[int, Node] = {}
        self.settings = (*FAST, *settings)
        self.partitions = partitions
        self.peers = dict(zip(range(1, nodes + 1), free_ports(nodes), strict=True))
        self.members = ",".join(f"{node}=127.0.0.1:{port}" for node, port in self.peers.items())

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.close() for node in self.nodes.values()))

    def config(self, node: int, **flags: str) -> Config:
        told: dict[str, Any] = {
            "node.id": node,
            "node.data_dir": str(self.directory / f"node-{node}"),
            "listen.native": "127.0.0.1:0",
            "listen.peer": f"127.0.0.1:{self.peers.get(node, 0)}",
            "listen.http": "127.0.0.1:0",
            "cluster.members": self.members if len(self.peers) > 1 else None,
            "cluster.partitions": self.partitions or None,
        }
        told.update({key.replace("__", "."): value for key, value in flags.items()})
        return load_config(None, {}, self.settings, told)

    def make(self, node: int, clock: Clock | None = None, **flags: str) -> Node:
        made = self.nodes[node] = Node(self.config(node, **flags), clock=clock)
        return made

    async def start(self, *numbers: int) -> None:
        """Start these nodes (all, if none is named) and wait until they are ready."""
        chosen = [self.make(number) for number in numbers or self.peers]
        await asyncio.gather(*(node.start() for node in chosen))
        await self.ready(*numbers)

    async def ready(self, *numbers: int) -> None:
        for number in numbers or self.peers:
            node = self.nodes[number]
            await until(lambda node=node: not not_ready(node), f"node {number}: {not_ready(node)}")  # type: ignore[misc]

    async def crash(self, number: int) -> None:
        """Gone without a word to anybody."""
        node = self.nodes.pop(number)
        node.is_stopping = True
        await node.close()

    async def probe(self, number: int = 1) -> Probe:
        return await Probe.open(self.native(number))

    def native(self, number: int = 1) -> Address:
        return self.nodes[number].addresses["native"]

    def leader(self, group: int) -> int:
        """The node that leads a group and knows it; 0 if there is none."""
        for number, node in self.nodes.items():
            if node.engine is not None and node.engine.groups[group].leading:
                return number
        return 0
