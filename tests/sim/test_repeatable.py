"""A run is a function of its seed alone: another process with another hash seed repeats it bit for bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
from fastlock.testing.simulate import run_seed
for seed in ({seeds}):
    summary = run_seed(seed)
    print(seed, summary.trace_hash, summary.operations, summary.events)
"""


def runs_in_another_process(seeds, hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    program = PROGRAM.format(seeds=", ".join(map(str, seeds)))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@pytest.mark.parametrize("seeds", [(1, 2), (1003, 1008)])
def test_two_processes_with_different_hash_seeds_run_the_same(seeds):
    first = runs_in_another_process(seeds, 1)
    second = runs_in_another_process(seeds, 424242)
    assert first == second
    assert len(first.splitlines()) == len(seeds)
