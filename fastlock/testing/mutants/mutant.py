"""What a planted bug is: a few lines of source that are different while a switch names it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# Stands, in the changed lines, for "this bug is the one that is switched on".
CONDITION = "PLANTED"


class DoesNotApply(Exception):
    """The source is not what the catalogue says: the bug has to be written anew."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Whole lines of one file, without the indentation all of them have there, and what replaces them."""

    path: str
    old: str
    new: str

    def place_in(self, lines: list[str]) -> tuple[int, int, str]:
        """The first line, the line after the last, and the indentation; they must be there exactly once."""
        old = self.old.splitlines()
        found: list[tuple[int, int, str]] = []
        for first, line in enumerate(lines[: len(lines) - len(old) + 1]):
            indentation = line[: len(line) - len(old[0])]
            if not indentation.strip() and lines[first : first + len(old)] == indented(old, indentation):
                found.append((first, first + len(old), indentation))
        if len(found) != 1:
            raise DoesNotApply(f"{self.path} has these lines {len(found)} times instead of once:\n{self.old}")
        return found[0]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: its name, the traps and claims it breaks, and what goes wrong in a sentence."""

    name: str
    breaks: tuple[str, ...]
    story: str
    edits: tuple[Edit, ...]


def indented(lines: list[str], indentation: str) -> list[str]:
    return [indentation + line if line else "" for line in lines]


def planted_text(path: str, text: str, edits: list[tuple[str, Edit]]) -> str:
    """A file with all edits in it; each comes with the expression that says whether its bug is on."""
    lines = text.splitlines()
    places = sorted(
        ((edit.place_in(lines), condition, edit) for condition, edit in edits), key=lambda found: found[0]
    )
    for ((_, end, _), _, _), ((following, _, _), _, _) in pairwise(places):
        if following < end:
            raise DoesNotApply(f"{path}: two bugs want line {following + 1}")
    for (first, end, indentation), condition, edit in reversed(places):
        new = edit.new.replace(CONDITION, condition).splitlines()
        lines[first:end] = indented(new, indentation)
    return "\n".join(lines) + "\n"


def sources(root: Path, mutants: tuple[Mutant, ...]) -> dict[str, str]:
    """The text of every file that a bug changes."""
    paths = {edit.path for mutant in mutants for edit in mutant.edits}
    return {path: (root / path).read_text() for path in sorted(paths)}
