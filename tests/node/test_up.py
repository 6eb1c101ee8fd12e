"""`fastlock up` and `fastlock status` as other tooling uses them."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fastlock import cli
from tests.node.cluster import FAST

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60.0


def free_base(nodes: int) -> int:
    """A base port whose whole range is free."""
    draw = random.Random()
    while True:
        base = draw.randrange(20_000, 60_000, 10)
        ports = [base + 10 * node + offset for node in range(nodes) for offset in range(4)]
        try:
            for port in ports:
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return base


class Up:
    """A running `fastlock up`, and the lines it says."""

    def __init__(self, process: subprocess.Popen[str], base: int) -> None:
        self.process = process
        self.base = base
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, wanted: str, exact: bool = False) -> str:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (line := self._lines.get(timeout=max(0.01, deadline - time.monotonic()))) is not None:
            self.said.append(line)
            if line == wanted if exact else wanted in line:
                return line
        raise AssertionError(f"never said {wanted!r}, but: {self.said}")

    def children(self) -> list[int]:
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(number) for number in task.read_text().split()]


@contextmanager
def up(directory: Path, base: int, *arguments: str) -> Iterator[Up]:
    settings = [part for setting in FAST for part in ("--set", setting)]
    command = [sys.executable, "-m", "fastlock", "up", "--data-dir", str(directory), "--base-port", str(base)]
    process = subprocess.Popen(
        [*command, *settings, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = Up(process, base)
    try:
        yield running
    finally:
        process.kill()
        process.wait()


def status(base: int, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.main(["status", "--endpoint", f"127.0.0.1:{base}", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_cluster_comes_up_heals_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = free_base(3)
    with up(tmp_path, base, "--partitions", "2") as running:
        running.wait_for("ready", exact=True)
        told = status(base, capsys)
        assert [member["id"] for member in told["members"]] == [1, 2, 3]
        for member in told["members"]:
            ports = [base + 10 * (member["id"] - 1) + offset for offset in range(4)]
            names = ("native", "peer", "http", "resp")
            assert [member[name] for name in names] == [f"127.0.0.1:{port}" for port in ports]
        assert [group["id"] for group in told["groups"]] == [0, 1, 2]
        for group in told["groups"]:
            assert group["leader"] in (1, 2, 3)
            assert {"locks", "leases", "waiters", "lag"} <= group.keys()
        children = running.children()
        assert len(children) == 3
        os.kill(children[1], signal.SIGKILL)
        running.wait_for("died (killed by SIGKILL)")
        running.wait_for("serves: ")
        children = running.children()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(DEADLINE_SECONDS) == 0
        assert not any(Path(f"/proc/{child}").exists() for child in children)
    with up(tmp_path, base) as running:
        running.wait_for("ready", exact=True)
        assert status(base, capsys)["cluster"] == told["cluster"]
        children = running.children()
        running.process.kill()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while any(Path(f"/proc/{child}").exists() for child in children):
            assert time.monotonic() < deadline, "nodes outlived their supervisor"
            time.sleep(0.02)


def test_fresh_forgets_and_one_node_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = free_base(1)
    clusters = []
    for _ in range(2):
        with up(tmp_path, base, "--nodes", "1", "--fresh") as running:
            running.wait_for("ready", exact=True)
            clusters.append(status(base, capsys)["cluster"])
            running.process.send_signal(signal.SIGINT)
            assert running.process.wait(DEADLINE_SECONDS) == 0
    assert clusters[0] != clusters[1]


def test_what_cannot_come_up_is_said_and_ends(tmp_path: Path) -> None:
    base = free_base(1)
    with socket.create_server(("127.0.0.1", base)), up(tmp_path, base, "--nodes", "1") as running:
        running.wait_for("choose another address")
        running.wait_for("node 1 did not start")
        assert running.process.wait(DEADLINE_SECONDS) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--nodes", "0"),
        ("--nodes", "99"),
        ("--base-port", "65535"),
        ("--set", "raft.x=1"),
        ("--partitions", "-1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["up", "--data-dir", str(tmp_path / "d"), *arguments]) == 2
    assert arguments[0] in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_status_of_nobody_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--endpoint", f"127.0.0.1:{free_base(1)}"]) == 1
    assert "is a node running there?" in capsys.readouterr().err
    assert cli.main(["status", "--endpoint", "nonsense"]) == 1
    assert "HOST:PORT" in capsys.readouterr().err
