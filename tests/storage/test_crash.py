"""What was acknowledged is there after kill -9, whenever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from fastlock.storage.lmdb import LmdbStorage

from .drivers import IDENTITY, SMALL
from .writer import found_step, plan

ROOT = Path(__file__).resolve().parent.parent.parent
ROUNDS = 20
SEED = 11


def kill_after(directory: Path, steps: int, start: int, acknowledgements: int) -> int:
    """Lets a writer go on until it told this often, and kills it; the last step it told."""
    told = start
    command = [
        sys.executable,
        "-m",
        "tests.storage.writer",
        str(directory),
        str(SEED),
        str(steps),
        str(start),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        for _ in range(acknowledgements):
            line = writer.stdout.readline()
            if not line:
                break
            told = int(line)
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout:
            if line.endswith(b"\n"):
                told = int(line)
    assert writer.returncode in (-signal.SIGKILL, 0)
    return told


def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path):
    random = Random(5)
    steps = plan(SEED, 2000)
    at = 0
    for _ in range(ROUNDS):
        told = kill_after(tmp_path / "data", len(steps), at, random.randint(0, 40))
        storage = LmdbStorage(tmp_path / "data", IDENTITY, SMALL)
        at = found_step(storage, steps, at_least=told)
        storage.close()
    assert at > ROUNDS
