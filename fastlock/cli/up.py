"""`fastlock up`: a whole cluster on this machine, one supervised process per node.

Node n listens on base + 10·(n − 1) native, + 1 peer, + 2 http, + 3 resp. A node that dies is started again.
`ready` stands on a line of its own once every group has a leader and a lock could be taken and given back in
each.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fastlock.cli.probe import Probe, ProbeFailed, fetch_status
from fastlock.cli.serve import EXIT_FAILED, EXIT_OK, EXIT_USAGE, add_config_arguments
from fastlock.cli.status import cluster_status, tables
from fastlock.config import PORT_MAX, Address, load_config
from fastlock.errors import ConfigError, FastlockError

HOST = "127.0.0.1"
PORTS_PER_NODE = 10
NODES_MAX = 7
RESTART_SECONDS_MIN = 0.2
RESTART_SECONDS_MAX = 5.0
# A node that ran so long before it died is started again at once.
STABLE_SECONDS = 10.0
# From SIGTERM to SIGKILL.
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
VIEW_SECONDS = 1.0
PROBE_SECONDS = 2.0
LINES_SHOWN = 12
PR_SET_PDEATHSIG = 1


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "up",
        help="run a whole cluster on this machine",
        description="Runs a local cluster, one process per node, and restarts those that die.",
    )
    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument(
        "--base-port", type=int, default=7400, metavar="PORT", help="first port (default: %(default)s)"
    )
    parser.add_argument(
        "--data-dir",
        default="fastlock-up",
        metavar="DIR",
        help="where the nodes keep their state (default: %(default)s)",
    )
    parser.add_argument("--fresh", action="store_true", help="forget what the nodes kept before")
    parser.add_argument("--partitions", type=int, metavar="N", help="data groups (default: as many as nodes)")
    add_config_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    problem = _problem(options)
    if problem:
        print(f"fastlock: {problem}", file=sys.stderr)
        return EXIT_USAGE
    if options.fresh:
        for node in range(1, NODES_MAX + 1):
            shutil.rmtree(_directory(options, node), ignore_errors=True)
    return asyncio.run(Supervisor(options).run())


def _problem(options: argparse.Namespace) -> str:
    if not 1 <= options.nodes <= NODES_MAX:
        return f"--nodes {options.nodes}: choose from 1 to {NODES_MAX}"
    if not 1 <= options.base_port <= PORT_MAX - PORTS_PER_NODE * options.nodes:
        return (
            f"--base-port {options.base_port}: choose from 1 to {PORT_MAX - PORTS_PER_NODE * options.nodes}"
        )
    try:
        # Said once here, not by every node.
        load_config(options.config, os.environ, options.set, {"cluster.partitions": options.partitions})
    except ConfigError as error:
        return str(error)
    return ""


def _directory(options: argparse.Namespace, node: int) -> Path:
    return Path(options.data_dir) / f"node-{node}"


def address_of(options: argparse.Namespace, node: int, offset: int) -> Address:
    return Address(HOST, options.base_port + PORTS_PER_NODE * (node - 1) + offset)


def _command(options: argparse.Namespace, node: int) -> list[str]:
    members = ",".join(f"{n}={address_of(options, n, 1)}" for n in range(1, options.nodes + 1))
    command = [sys.executable, "-m", "fastlock", "serve", "--node-id", str(node), "--cluster", members]
    command += ["--data-dir", str(_directory(options, node))]
    for offset, name in enumerate(("native", "peer", "http", "resp")):
        command += [f"--{name}", str(address_of(options, node, offset))]
    if options.partitions is not None:
        command += ["--partitions", str(options.partitions)]
    if options.config is not None:
        command += ["--config", options.config]
    for assignment in options.set:
        command += ["--set", assignment]
    return command


def _die_with_parent() -> None:
    """In the child: whatever happens to the supervisor, no node is left behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class NodeProcess:
    """One node's process, started again whenever it dies."""

    def __init__(self, supervisor: Supervisor, node: int) -> None:
        self.node = node
        self.restarts = 0
        self._supervisor = supervisor
        self._process: asyncio.subprocess.Process | None = None

    async def keep_running(self) -> None:
        supervisor = self._supervisor
        loop = asyncio.get_running_loop()
        pause_s = RESTART_SECONDS_MIN
        while not supervisor.stopping.is_set():
            started = loop.time()
            code = await self._run_once()
            if supervisor.stopping.is_set():
                return
            if loop.time() - started > STABLE_SECONDS:
                pause_s = RESTART_SECONDS_MIN
            if code == EXIT_USAGE or (self.restarts == 0 and not supervisor.is_ready):
                # It never came up: starting it again would say the same again.
                supervisor.give_up(f"node {self.node} did not start (exit code {code})")
                return
            self.restarts += 1
            supervisor.say(
                f"node {self.node} died ({_ending(code)}); restart {self.restarts} in {pause_s:.1f} s"
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RESTART_SECONDS_MAX)

    async def _run_once(self) -> int:
        process = self._process = await asyncio.create_subprocess_exec(
            *_command(self._supervisor.options, self.node),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        assert process.stdout is not None
        async for line in process.stdout:
            self._supervisor.say(line.decode(errors="replace").rstrip())
        return await process.wait()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


class Supervisor:
    """All nodes, what they say, and whether the cluster works."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.is_ready = False
        self.console = Console(highlight=False)
        self.stopping = asyncio.Event()
        self._exit_code = EXIT_OK
        self._nodes = [NodeProcess(self, node) for node in range(1, options.nodes + 1)]
        self._lines: deque[str] = deque(maxlen=LINES_SHOWN)
        self._live: Live | None = None

    def say(self, line: str) -> None:
        if self._live is None:
            print(line, flush=True)
        else:
            self._lines.append(line)

    def give_up(self, why: str) -> None:
        self.say(f"fastlock: {why}: look at its last lines above")
        self._exit_code = EXIT_FAILED
        self.stopping.set()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.stopping.set)
        running = [asyncio.ensure_future(node.keep_running()) for node in self._nodes]
        watching = asyncio.ensure_future(self._watch())
        await self.stopping.wait()
        watching.cancel()
        await asyncio.wait((watching,))
        if self._live is not None:
            self._live.stop()
            self._live = None
        await self._stop(running)
        return self._exit_code

    async def _stop(self, running: Sequence[asyncio.Task[None]]) -> None:
        """One after the other would hand every lead on once more; together they only stop."""
        self.say("stopping")
        for node in self._nodes:
            node.signal(signal.SIGTERM)
        _, pending = await asyncio.wait(running, timeout=STOP_SECONDS)
        for node in self._nodes:
            node.signal(signal.SIGKILL)
        if pending:
            await asyncio.wait(pending, timeout=STOP_SECONDS)

    # Whether it works

    async def _watch(self) -> None:
        while not await self._works():
            await asyncio.sleep(POLL_SECONDS)
        self.is_ready = True
        print("ready", flush=True)
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, screen=False)
            self._live.start()
            while True:
                self._live.update(await self._view())
                await asyncio.sleep(VIEW_SECONDS)

    async def _works(self) -> bool:
        """Every node is ready, all agree on who leads, and every data group serves locks."""
        from fastlock.node.placement import key_between

        numbers = range(1, self.options.nodes + 1)
        told = await asyncio.gather(
            *(fetch_status(address_of(self.options, node, 2), PROBE_SECONDS) for node in numbers)
        )
        if any(status is None or not status["ready"] for status in told):
            return False
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                async with await Probe.open(address_of(self.options, 1, 0)) as probe:
                    cluster = (await probe.ask({"describe": None}))["cluster"]
                    for slots in cluster["slotGroups"]:
                        if await probe.try_lock(key_between(slots["first"], slots["last"])):
                            return False
        except (OSError, TimeoutError, ProbeFailed, FastlockError, asyncio.IncompleteReadError):
            return False
        return True

    async def _view(self) -> Group:
        lines = Text("\n".join(self._lines), style="dim", no_wrap=True, overflow="ellipsis")
        head = Text(
            f"{self.options.nodes} nodes, clients: {address_of(self.options, 1, 0)} …, Ctrl-C stops them"
        )
        for node in range(1, self.options.nodes + 1):
            try:
                status = await cluster_status(address_of(self.options, node, 0), PROBE_SECONDS)
                return Group(head, tables(status), lines)
            except (OSError, TimeoutError, ProbeFailed, FastlockError, asyncio.IncompleteReadError):
                continue
        return Group(head, Text("no node answers", style="bold red"), lines)
