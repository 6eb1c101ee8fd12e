"""The planted bugs are current, cover every known trap, and exist nowhere but in their own build."""

from collections import Counter
from pathlib import Path

import pytest

from fastlock.testing.mutants.catalogue import CLAIMS, MUTANTS, TRAPS
from fastlock.testing.mutants.mutant import CONDITION, DoesNotApply, Edit, Mutant, planted_text
from fastlock.testing.mutants.plant import SWITCH, plant, planted_sources

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fastlock"
TESTING = PACKAGE / "testing"

MUTANTS_MIN = 20


def test_there_are_enough_bugs_and_each_has_its_own_name() -> None:
    assert len(MUTANTS) >= MUTANTS_MIN
    assert not [name for name, count in Counter(m.name for m in MUTANTS).items() if count > 1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_bug_applies_to_the_source_as_it_is(mutant: Mutant) -> None:
    for edit in mutant.edits:
        edit.place_in((ROOT / edit.path).read_text().splitlines())
        assert CONDITION in edit.new, "a bug that cannot be switched off"


def test_all_bugs_together_apply() -> None:
    for path, text in planted_sources(ROOT, MUTANTS).items():
        assert CONDITION not in text.replace("PLANTED_NUMBER", ""), path


@pytest.mark.parametrize("promise", TRAPS + CLAIMS)
def test_every_known_trap_and_every_claim_has_a_bug(promise: str) -> None:
    assert [mutant.name for mutant in MUTANTS if promise in mutant.breaks]


def test_no_bug_breaks_something_nobody_named() -> None:
    assert {promise for mutant in MUTANTS for promise in mutant.breaks} <= {*TRAPS, *CLAIMS}


def test_bugs_leave_the_simulator_and_its_checkers_alone() -> None:
    assert not [e.path for m in MUTANTS for e in m.edits if (ROOT / e.path).is_relative_to(TESTING)]


def test_the_release_has_no_trace_of_the_switch() -> None:
    release = [
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and not path.is_relative_to(TESTING) and "__pycache__" not in path.parts
    ]
    assert [path for path in release if path.suffix == ".so"], "nothing is built here"
    assert not [path.relative_to(ROOT) for path in release if path.stem == "planted"]
    assert not [path.relative_to(ROOT) for path in release if b"planted" in path.read_bytes().lower()]


def edit(old: str, new: str = "PLANTED") -> Edit:
    return Edit("some.py", old, new)


@pytest.mark.parametrize("text", ["b = 1\n", "a = 1\nif b:\n    a = 1\n"], ids=["missing", "twice"])
def test_an_edit_that_does_not_fit_exactly_once_is_refused(text: str) -> None:
    with pytest.raises(DoesNotApply):
        planted_text("some.py", text, [("on", edit("a = 1"))])


def test_two_edits_of_one_line_are_refused() -> None:
    with pytest.raises(DoesNotApply, match="two bugs"):
        planted_text("some.py", "a = 1\nb = 2\n", [("on", edit("a = 1\nb = 2")), ("off", edit("b = 2"))])


def test_an_edit_takes_the_indentation_of_its_place() -> None:
    source = "if a:\n    if b:\n        c = 1\n    d = 2\n"
    changed = edit("    c = 1\nd = 2", "    c = PLANTED\nd = 3")
    assert (
        planted_text("some.py", source, [("on", changed)]) == "if a:\n    if b:\n        c = on\n    d = 3\n"
    )


def test_planting_changes_only_the_copy_it_is_told_to(tmp_path: Path) -> None:
    for path in planted_sources(ROOT, MUTANTS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text())
    plant(tmp_path)
    assert SWITCH in (tmp_path / "fastlock" / "planted.py").read_text()
    for path in planted_sources(ROOT, MUTANTS):
        assert "planted" in (tmp_path / path).read_text()
