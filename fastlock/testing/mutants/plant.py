"""Puts every planted bug into a copy of the tree, each behind its own value of one run-time switch.

python -m fastlock.testing.mutants.plant build/mutants

The switch is the environment variable FASTLOCK_PLANTED, which holds a bug's name. It, and whatever reads it,
exists only in that copy.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fastlock.testing.mutants.catalogue import MUTANTS
from fastlock.testing.mutants.mutant import Edit, Mutant, planted_text, sources

SWITCH = "FASTLOCK_PLANTED"

# What a planted source depends on besides itself.
CATALOGUE = ("plant.py", "mutant.py", "catalogue.py", "raft_bugs.py", "lock_bugs.py", "node_bugs.py")

_COMPILED_SWITCH = '''"""Which planted bug is on; compiled modules have it from here."""

cdef extern from * nogil:
    """
    #include <stdlib.h>
    #include <string.h>

    static const char *const planted_names[] = {{{names}}};

    /* The position of the bug that the environment names, from 1 on; 0 without one. */
    static int planted_number(void) {{
        static int number = -1;
        if (number < 0) {{
            const char *name = getenv("{switch}");
            int found = 0;
            for (int i = 0; name && i < {count}; i++)
                if (strcmp(name, planted_names[i]) == 0)
                    found = i + 1;
            number = found;
        }}
        return number;
    }}
    """
    int planted_number() noexcept
'''

_PYTHON_SWITCH = '''"""Which planted bug is on; Python modules have it from here."""

import os

NAMES = ({names},)
NUMBER = NAMES.index(os.environ["{switch}"]) + 1 if os.environ.get("{switch}") else 0
'''


def with_switch(path: str, text: str) -> str:
    """The file with the import of the switch in the first place where Cython and Python allow it."""
    if path.endswith(".py"):
        statement, place = "from fastlock.planted import NUMBER as PLANTED_NUMBER", "annotations\n"
    else:
        statement, place = "from fastlock.planted cimport planted_number", '"""\n'
    head, separator, rest = text.partition(place)
    if not separator:
        raise ValueError(f"{path} has no place for the import of the switch")
    return f"{head}{separator}\n{statement}\n{rest}"


def planted_sources(root: Path, mutants: tuple[Mutant, ...]) -> dict[str, str]:
    """Every changed file, with all bugs in it and all of them off unless the switch says otherwise."""
    edits: dict[str, list[tuple[str, Edit]]] = {}
    for number, mutant in enumerate(mutants, 1):
        for edit in mutant.edits:
            reader = "PLANTED_NUMBER" if edit.path.endswith(".py") else "planted_number()"
            edits.setdefault(edit.path, []).append((f"({reader} == {number})", edit))
    return {
        path: with_switch(path, planted_text(path, text, edits[path]))
        for path, text in sources(root, mutants).items()
    }


def plant(root: Path, mutants: tuple[Mutant, ...] = MUTANTS) -> None:
    """Rewrite the copy at `root`. What did not change keeps its age, so that nothing is compiled in vain."""
    catalogue_age = max((Path(__file__).parent / name).stat().st_mtime for name in CATALOGUE)
    names = ", ".join(f'"{mutant.name}"' for mutant in mutants)
    for path, text in planted_sources(root, mutants).items():
        age = max(catalogue_age, (root / path).stat().st_mtime)
        (root / path).write_text(text)
        os.utime(root / path, (age, age))
    for path, template in (("planted.pxd", _COMPILED_SWITCH), ("planted.py", _PYTHON_SWITCH)):
        switch = root / "fastlock" / path
        switch.write_text(template.format(names=names, switch=SWITCH, count=len(mutants)))
        os.utime(switch, (catalogue_age, catalogue_age))


if __name__ == "__main__":
    plant(Path(sys.argv[1]))
