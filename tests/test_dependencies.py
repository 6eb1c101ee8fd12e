"""The dependency direction of the package: every import and cimport is read and held against a table."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".py", ".pyi", ".pyx", ".pxd", ".pxi")

# The rooms of the house. A module belongs to the room with the longest name that is a prefix of its
# own; what has no room here fails, so a new module has to say where it belongs.
EVERYONE = ["errors", "config"]
FOUNDATION = ["_core.types", "_core.layout", "_core.buffer", "_core.hashing", "_core.slots"]
WIRE = ["_core.wire", "_core.codec", "_core.resp"]
STRUCTURES = ["_core.slab", "_core.index", "_core.timers"]
MAY_SEE: dict[str, list[str]] = {
    "errors": [],
    "config": ["errors"],
    "schema": [],
    # The core. At the bottom plain structs, offsets and functions; then the wire and the data
    # structures, which do not need each other; then the state machines, which do not know each other.
    "_core": [],
    "_core.types": [],
    "_core.layout": [],
    "_core.buffer": ["errors", "_core.types"],
    "_core.hashing": ["_core.types"],
    "_core.slots": ["_core.types"],
    "_core.wire": ["errors", *FOUNDATION],
    "_core.codec": ["errors", *FOUNDATION, "_core.wire"],
    "_core.resp": ["errors", *FOUNDATION],
    "_core.slab": ["errors", *FOUNDATION],
    "_core.index": ["errors", *FOUNDATION, "_core.slab"],
    "_core.timers": ["errors", *FOUNDATION, "_core.slab", "_core.index"],
    "_core.locktable": ["errors", "config", *FOUNDATION, *WIRE, *STRUCTURES],
    "_core.raft": ["errors", "config", *FOUNDATION, *WIRE, *STRUCTURES],
    # Everything else is I/O around it.
    "storage": [*EVERYONE, "schema", "_core"],
    "node": [*EVERYONE, "schema", "_core", "storage", "router"],
    "router": EVERYONE,
    "gateways": [*EVERYONE, *FOUNDATION, *WIRE, "schema", "router"],
    "client": [*EVERYONE, "_core.codec", "router"],
    "fencing": ["errors"],
    "datastore": ["errors", "fencing"],
    "cli": [
        "",
        *EVERYONE,
        "schema",
        "_core",
        "storage",
        "node",
        "gateways",
        "client",
        "fencing",
        "datastore",
    ],
    "__main__": ["cli"],
    "": [*EVERYONE, "client", "fencing"],  # fastlock/__init__.py: the public names
    "testing": ["*"],  # and nobody sees testing
}

# The core is deterministic and does no I/O: time, randomness and bytes are handed in.
PURE = "_core"
PURE_MAY_IMPORT = {"cpython", "cython", "libc", "typing", "collections", "enum", "dataclasses", "__future__"}
PURE_MAY_IMPORT_FROM_LIBC = {"limits", "stddef", "stdint", "stdlib", "string"}
PURE_MAY_NOT_DECLARE = re.compile(
    r"clock|clock_gettime|time|gettimeofday|timespec_get|nanosleep|usleep|sleep"
    r"|rand|rand_r|srand|random|drand48|getrandom|getentropy|arc4random"
    r"|open|fopen|read|write|send|recv|socket|getenv|getpid|pthread_\w+"
)


class Import(NamedTuple):
    module: str  # absolute, as in "fastlock._core.codec"
    line: int


def imports_of_python(text: str, module: str, is_package: bool) -> Iterator[Import]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = absolute("." * node.level + (node.module or ""), module, is_package)
            yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)


def imports_of_cython(text: str, module: str, is_package: bool) -> Iterator[Import]:
    for line, statement in logical_lines(text):
        if found := re.match(r"from\s+([.\w]+)\s+c?import\s+\(?([^)]*)\)?", statement):
            base = absolute(found[1], module, is_package)
            names = [name.split()[0] for name in found[2].split(",") if name.strip()]
            yield from (Import(f"{base}.{name}", line) for name in names)
        elif found := re.match(r"c?import\s+(.+)", statement):
            yield from (Import(part.split()[0], line) for part in found[1].split(","))
        elif found := re.match(r"""include\s+["'](.+?)\.pxi["']""", statement):
            package = module if is_package else module.rpartition(".")[0]
            yield Import(f"{package}.{found[1].replace('/', '.')}", line)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Statements with the number of their first line, without comments and docstrings, parentheses joined."""
    text = re.sub(
        r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'', lambda found: "''" + "\n" * found[0].count("\n"), text
    )
    start, statement = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        part = line.split("#")[0].strip()
        start, statement = (start, f"{statement} {part}") if statement else (number, part)
        if statement.endswith("\\"):
            statement = statement[:-1].rstrip()
        elif statement.count("(") <= statement.count(")"):
            for piece in statement.split(";"):
                yield start, piece.strip()
            statement = ""


def absolute(name: str, module: str, is_package: bool) -> str:
    dots = len(name) - len(name.lstrip("."))
    if not dots:
        return name
    package = module.split(".") if is_package else module.split(".")[:-1]
    return ".".join([*package[: len(package) - dots + 1], *filter(None, [name.lstrip(".")])])


def room_of(module: str) -> str | None:
    """The room of an absolute module (or of a name in one); None if nothing in the table fits."""
    parts = module.split(".")[1:]
    for end in range(len(parts), 0, -1):
        if (room := ".".join(parts[:end])) in MAY_SEE:
            return room
    # What fastlock/__init__.py itself defines.
    return "" if not parts or parts[0].startswith("__version") else None


def may_see(room: str, target: str) -> bool:
    if target == room or (room and target.startswith(f"{room}.")):
        return True
    return any(
        seen == "*" or target == seen or (seen and target.startswith(f"{seen}.")) for seen in MAY_SEE[room]
    )


def violations(path: Path, text: str) -> list[str]:
    """What `text`, the content of the package's file `path`, does against the table."""
    parts = list(path.with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    module = ".".join(parts[:-1] if is_package else parts)
    room = room_of(module)
    if room is None or (room == PURE and not is_package):
        return [f"{path}: {module} has no room in MAY_SEE: say there where it belongs"]
    read = imports_of_python if path.suffix in (".py", ".pyi") else imports_of_cython
    found = []
    for imported, line in read(text, module, is_package):
        if imported.split(".")[0] == "fastlock":
            target = room_of(imported)
            if target is None:
                found.append(f"{path}:{line}: {imported} has no room in MAY_SEE")
            elif not may_see(room, target):
                found.append(f"{path}:{line}: {room or 'fastlock'} must not import {target or 'fastlock'}")
        elif in_core(room) and not pure(imported):
            found.append(f"{path}:{line}: {PURE} is deterministic and does no I/O: no {imported}")
    if in_core(room) and path.suffix in (".pyx", ".pxd", ".pxi"):
        found += [f"{path}:{line}: {PURE} must not call {name}" for name, line in impure_declarations(text)]
    return found


def in_core(room: str) -> bool:
    return room == PURE or room.startswith(f"{PURE}.")


def pure(imported: str) -> bool:
    top, _, rest = imported.partition(".")
    if top == "libc":
        return rest.split(".")[0] in PURE_MAY_IMPORT_FROM_LIBC and rest not in {"stdlib.rand", "stdlib.srand"}
    return top in PURE_MAY_IMPORT


def impure_declarations(text: str) -> Iterator[tuple[str, int]]:
    """Forbidden C functions declared in a `cdef extern` block."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line[0].isspace():
            inside = line.startswith("cdef extern")
        if (
            inside
            and (found := re.search(r"\b(\w+)\s*\(", line))
            and PURE_MAY_NOT_DECLARE.fullmatch(found[1])
        ):
            yield found[1], number


def sources() -> list[Path]:
    return sorted(
        path.relative_to(ROOT) for path in (ROOT / "fastlock").rglob("*") if path.suffix in SUFFIXES
    )


def test_every_import_follows_the_dependency_direction() -> None:
    assert sources()
    found = [line for path in sources() for line in violations(path, (ROOT / path).read_text())]
    assert not found, "\n" + "\n".join(found)


def test_the_table_itself_has_no_cycle_below_testing() -> None:
    rooms = [room for room in MAY_SEE if room not in ("", "testing")]
    above: dict[str, set[str]] = {
        room: {other for other in rooms if other != room and other != PURE and may_see(room, other)}
        for room in rooms
    }
    while free := [room for room, seen in above.items() if not seen & above.keys()]:
        for room in free:
            del above[room]
    assert not above, f"these rooms see each other: {sorted(above)}"


GOOD = [
    ("fastlock/_core/codec.pyx", "from libc.stdint cimport uint8_t, uint64_t\nfrom . cimport types\n"),
    (
        "fastlock/_core/locktable.pyx",
        "from fastlock._core.codec cimport (\n    read,  # comment\n    write,\n)\n",
    ),
    ("fastlock/_core/codec.pyx", '"""\nimport socket\n"""\n# import socket\nname = 1  # import time\n'),
    (
        "fastlock/_core/locktable.pyx",
        'cdef extern from "string.h" nogil:\n    void* memchr(const void*, int, size_t)\n',
    ),
    ("fastlock/node/engine.py", "import asyncio\nfrom fastlock import errors\nfrom ..storage import log\n"),
    ("fastlock/testing/simulator.py", "import fastlock.node\nfrom fastlock._core import raft\n"),
    ("fastlock/cli.py", "import argparse\nfrom fastlock import __version__\n"),
]

BAD = [
    ("fastlock/_core/codec.pyx", "from fastlock._core.locktable cimport LockTable\n"),
    ("fastlock/_core/codec.pyx", "from .locktable cimport LockTable\n"),
    ("fastlock/_core/codec.pyx", "from . cimport locktable\n"),
    ("fastlock/_core/codec.pyx", "cimport fastlock._core.raft as r\n"),
    ("fastlock/_core/codec.pyx", 'include "raft.pxi"\n'),
    ("fastlock/_core/codec.pxd", "from fastlock._core.raft cimport (\n    Raft,\n)\n"),
    ("fastlock/_core/locktable.pyx", "from fastlock._core cimport raft\n"),
    ("fastlock/_core/raft.pyx", "from fastlock._core.locktable import LockTable\n"),
    ("fastlock/_core/raft.pyx", "def f():\n    import time\n"),
    ("fastlock/_core/raft.pyx", "x = 1; import random\n"),
    ("fastlock/_core/raft.pyx", "import asyncio, socket\n"),
    ("fastlock/_core/raft.pyx", "import \\\n    os\n"),
    ("fastlock/_core/raft.pyx", "from libc.time cimport time\n"),
    ("fastlock/_core/raft.pyx", "from libc.stdlib cimport malloc, rand\n"),
    ("fastlock/_core/raft.pyx", "from posix.time cimport clock_gettime\n"),
    (
        "fastlock/_core/raft.pyx",
        'cdef extern from "sys/random.h":\n    ssize_t getrandom(void*, size_t, unsigned)\n',
    ),
    ("fastlock/_core/surprise.pyx", "x = 1\n"),
    ("fastlock/storage/log.py", "from fastlock.node import engine\n"),
    ("fastlock/gateways/http.py", "from fastlock.node.engine import Engine\n"),
    ("fastlock/gateways/http.py", "from fastlock._core.locktable import LockTable\n"),
    ("fastlock/client/core.py", "import fastlock.storage\n"),
    ("fastlock/client/core.py", "from .._core import raft\n"),
    ("fastlock/node/engine.py", "from fastlock.testing import simulator\n"),
    ("fastlock/node/engine.py", "if TYPE_CHECKING:\n    from ..cli import main\n"),
    ("fastlock/errors.py", "from fastlock import config\n"),
    ("fastlock/surprise.py", "x = 1\n"),
]


@pytest.mark.parametrize(("path", "text"), GOOD)
def test_accepts_what_the_direction_allows(path: str, text: str) -> None:
    assert violations(Path(path), text) == []


@pytest.mark.parametrize(("path", "text"), BAD)
def test_rejects_what_the_direction_forbids(path: str, text: str) -> None:
    assert violations(Path(path), text) != []
