"""`fastlock demo`: the story it tells, to people and to machines."""

import json
import subprocess
import sys

import pytest

from fastlock import cli, demo


def test_the_lock_is_handed_over_with_a_higher_token_and_the_zombie_is_refused() -> None:
    steps = list(demo.play())
    granted = [step for step in steps if step.answer.startswith("granted")]
    assert [step.who for step in granted] == ["alice", "bob"]
    assert 0 < granted[0].token < granted[1].token
    refused = [step for step in steps[steps.index(granted[1]) :] if step.answer in ("leaseLost", "refused")]
    assert [step.who for step in refused] == ["alice"] * 3


def test_the_watcher_sees_every_change_in_order() -> None:
    answers = [step.answer for step in demo.play() if step.who == "watcher"]
    assert answers == [
        "acquired, owner alice",
        "put, owner alice",
        "expired, owner alice",
        "transferred, owner bob",
        "put, owner bob",
        "released, owner bob",
    ]


def test_the_checkpoint_is_loaded_with_the_same_state_hash() -> None:
    saved, loaded = [step.remark for step in demo.play() if step.who == "storage"]
    assert loaded == f"{saved}: equal"


def test_two_runs_tell_the_same_story() -> None:
    assert list(demo.play()) == list(demo.play())


def test_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--json"]) == 0
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(steps) == len(list(demo.play()))
    assert steps[0].keys() == {"at_ms", "who", "what", "answer", "remark", "token"}


def test_output_that_is_not_a_terminal_is_plain_lines() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "fastlock", "demo"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "\x1b" not in run.stdout
    assert len(run.stdout.splitlines()) == len(list(demo.play()))


def test_help_names_the_command_and_a_wrong_one_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    assert "demo" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        cli.main(["surprise"])
