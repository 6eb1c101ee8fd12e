"""A real cluster on this machine, for tests: one process per node, to be paused and killed at will."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from fastlock.testing.probe import Probe

# What tests use: leaders are replaced within a third of a second.
LAN_FAST = {"raft.election_ms_min": 150, "raft.election_ms_max": 300, "raft.heartbeat_ms": 50}

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
LISTENERS = ("native", "peer", "http", "resp")
LOG_LINES_SHOWN = 30

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ClusterFailed(Exception):
    """A node did not do what it was started for. The message has the end of its log."""


@dataclass
class LocalNode:
    """One node: its directory, its addresses, and its process while it runs."""

    number: int
    directory: Path
    addresses: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False

    @property
    def log(self) -> Path:
        return self.directory.with_suffix(".log")

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class LocalCluster:
    """Starts `nodes` nodes and stops them at the end; `with` and `async with`.

    `settings` are those of `fastlock serve --set`; the default is LAN-fast elections. A directory of one's
    own is kept at the end.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        partitions: int = 0,
        settings: Mapping[str, object] = LAN_FAST,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._own_directory = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="fastlock-") if directory is None else directory)
        self._partitions = partitions
        self._settings = dict(settings)
        ports = iter(_free_ports(nodes * len(LISTENERS)))
        self.nodes: dict[int, LocalNode] = {}
        for number in range(1, nodes + 1):
            addresses = {name: f"127.0.0.1:{next(ports)}" for name in LISTENERS}
            self.nodes[number] = LocalNode(number, self.directory / f"node{number}", addresses)

    # The whole cluster.

    def start(self) -> None:
        """Start every node and wait until the cluster serves. Raises ClusterFailed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            for number in self.nodes:
                self.launch(number)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every node, whatever state it is in, and leave no process behind."""
        for node in self.nodes.values():
            if node.paused:
                self.resume(node.number)
            if node.running and node.process is not None:
                node.process.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for node in self.nodes.values():
            if node.process is not None:
                try:
                    node.process.wait(max(deadline_s - time.monotonic(), 0))
                except subprocess.TimeoutExpired:
                    node.process.kill()
                    node.process.wait()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every running node knows a leader of every group. Raises ClusterFailed."""
        deadline_s = time.monotonic() + timeout_s
        waiting = [node for node in self.nodes.values() if node.running and not node.paused]
        while waiting:
            waiting = [node for node in waiting if not self._is_ready(node)]
            for node in self.nodes.values():
                if node.process is not None and not node.running and node.process.returncode > 0:
                    raise ClusterFailed(self._story(node, f"exited with {node.process.returncode}"))
            if waiting and time.monotonic() > deadline_s:
                raise ClusterFailed(self._story(waiting[0], f"was not ready after {timeout_s:g} s"))
            if waiting:
                time.sleep(POLL_S)

    @property
    def endpoints(self) -> str:
        """What a client takes."""
        return ",".join(node.addresses["native"] for node in self.nodes.values())

    def address(self, number: int, listener: str = "native") -> str:
        return self.nodes[number].addresses[listener]

    def describe(self) -> dict[str, Any]:
        """The cluster as the first node that answers sees it. Raises ClusterFailed."""
        for node in self.nodes.values():
            if node.running and not node.paused:
                try:
                    with Probe(node.addresses["native"], timeout_s=1.0) as probe:
                        return probe.describe()
                except OSError:
                    continue
        raise ClusterFailed("no node answers")

    def leaders(self) -> dict[int, int]:
        """The leader of every group, 0 where there is none."""
        return {group["id"]: group["leader"] for group in self.describe().get("groups", ())}

    # One node.

    def launch(self, number: int) -> None:
        """Start the process of a node and do not wait for anything."""
        node = self.nodes[number]
        assert not node.running, f"node {number} runs already"
        members = ",".join(f"{each.number}={each.addresses['peer']}" for each in self.nodes.values())
        command = [sys.executable, "-m", "fastlock", "serve", "--node-id", str(number)]
        command += ["--data-dir", str(node.directory)]
        for name in LISTENERS:
            command += [f"--{name}", node.addresses[name]]
        if len(self.nodes) > 1:
            command += ["--cluster", members]
        if self._partitions:
            command += ["--partitions", str(self._partitions)]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        with node.log.open("ab") as log:
            node.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )
        node.paused = False

    def kill(self, number: int) -> None:
        """SIGKILL: whatever was not on disk is lost."""
        node = self.nodes[number]
        if node.process is not None:
            node.process.kill()
            node.process.wait()
            node.paused = False

    def pause(self, number: int) -> None:
        """SIGSTOP: the node falls silent, its connections stay open."""
        node = self.nodes[number]
        assert node.process is not None
        node.process.send_signal(signal.SIGSTOP)
        node.paused = True

    def resume(self, number: int) -> None:
        node = self.nodes[number]
        assert node.process is not None
        node.process.send_signal(signal.SIGCONT)
        node.paused = False

    def restart(self, number: int) -> None:
        """Start a node that was killed, or kill it first; wait until it serves again."""
        self.kill(number)
        self.launch(number)
        self.wait_ready()

    def _is_ready(self, node: LocalNode) -> bool:
        try:
            with Probe(node.addresses["native"], timeout_s=1.0) as probe:
                cluster = probe.describe()
        except OSError:
            return False
        groups = cluster.get("groups", ())
        slots = sum(span["last"] - span["first"] + 1 for span in cluster.get("slotGroups", ()))
        return slots == 16384 and bool(groups) and all(group["leader"] for group in groups)

    def _story(self, node: LocalNode, what: str) -> str:
        lines = node.log.read_text(errors="replace").splitlines() if node.log.exists() else []
        return "\n".join([f"node {node.number} {what}; its last words:", *lines[-LOG_LINES_SHOWN:]])

    # As a context manager.

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> LocalCluster:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


def _free_ports(count: int) -> list[int]:
    """Ports nobody listens on at this moment; held open together, so that all differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _die_with_parent() -> None:
    """Runs in the child: a test process that is killed leaves no nodes behind."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
