"""Scenarios as text files that anyone can read: commands, and below `----` what the group did."""

from pathlib import Path

import pytest

from .transcript import Transcript, parse, render

FILES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_transcript(path: Path, pytestconfig: pytest.Config) -> None:
    blocks = parse(path.read_text())
    transcript = Transcript()
    played = [block._replace(output=transcript.play(block.commands)) for block in blocks]
    if pytestconfig.getoption("--rewrite", default=False):
        path.write_text(render(played))
    else:
        assert render(played) == path.read_text(), f"to accept: pytest tests/raft --rewrite -k {path.stem}"


def test_there_are_enough_transcripts() -> None:
    assert len(FILES) >= 15


def test_an_unknown_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="no command"):
        Transcript().play(["fly 1"])
