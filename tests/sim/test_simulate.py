"""The command that runs seeds fails when it has to, and says how to see it again."""

import os
import subprocess
import sys

import pytest

from fastlock.testing import simulate
from fastlock.testing.simulate import main, replay_command
from fastlock.testing.simulator.time import SECOND
from fastlock.testing.simulator.world import Summary


def a_run(seed, **fields):
    enough = {"simulated_ns": 60 * SECOND, "operations": 500, "elections": 1, "faults": {"split": 20}}
    return Summary(seed, **{**enough, **fields})


def outcome(monkeypatch, capsys, *runs):
    monkeypatch.setattr(simulate, "run_seeds", lambda first, count, jobs: iter(runs))
    return main(["--seeds", str(len(runs)), "--base", "1"]), capsys.readouterr().out


def test_runs_that_broke_nothing_and_did_enough_are_good(monkeypatch, capsys):
    code, shown = outcome(monkeypatch, capsys, a_run(1), a_run(2))
    assert code == 0
    assert "violations       0" in shown


def test_a_violation_fails_and_names_the_command_that_replays_it(monkeypatch, capsys):
    broken = a_run(
        2, violation="two holders", checker="exclusion", trace=["1.0 the last thing that happened"]
    )
    code, shown = outcome(monkeypatch, capsys, a_run(1), broken)
    assert code == 1
    assert "seed 2 broke: exclusion" in shown
    assert "the last thing that happened" in shown
    assert f"replay: {replay_command(2)}" in shown


@pytest.mark.parametrize(
    "short", [{"simulated_ns": 59 * SECOND}, {"operations": 499}, {"faults": {"split": 19}}]
)
def test_a_run_that_did_too_little_fails(monkeypatch, capsys, short):
    code, shown = outcome(monkeypatch, capsys, a_run(1), a_run(2, **short))
    assert code == 1
    assert "seed 2 did too little" in shown


def test_too_few_leader_changes_on_average_fail(monkeypatch, capsys):
    code, shown = outcome(monkeypatch, capsys, a_run(1, elections=0), a_run(2))
    assert code == 1
    assert "too few leader changes" in shown


def test_a_process_that_dies_fails_the_run(monkeypatch, capsys):
    monkeypatch.setattr(simulate, "run_seed", _die)
    code = main(["--seeds", "2", "--base", "7", "--jobs", "2"])
    assert code == 1
    assert "a process died at seed 7" in capsys.readouterr().out


def _die(seed):
    os._exit(1)


def test_the_replay_command_works_as_printed():
    command = replay_command(3).split()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1].startswith("seed 3: ")
    assert sys.executable.endswith(command[0])
