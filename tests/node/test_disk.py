"""Clients are told nothing that is not durable: a whole node on a disk that is slow, or fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.storage.test_durability import shim  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]


def run_on(library: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.node.disk_scenarios", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_no_grant_returns_before_a_slow_sync_ended(shim: Path, tmp_path: Path) -> None:  # noqa: F811
    done = run_on(shim, "slow", tmp_path / "data", 200)
    assert done.returncode == 0, done.stderr
    answers = [line.split() for line in done.stdout.splitlines()]
    assert [code for code, _ in answers] == ["ok"] * 3
    assert min(float(took_ms) for _, took_ms in answers) >= 200


def test_a_failed_sync_stops_the_node_and_nothing_more_is_acknowledged(shim: Path, tmp_path: Path) -> None:  # noqa: F811
    done = run_on(shim, "failing", tmp_path / "data")
    assert done.stdout.splitlines() == ["before ok", "after nothing"]
    assert done.returncode == 1
    assert "fastlock: " in done.stderr
