"""The dependency direction of the package: every import and cimport is read and held against a table."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".py", ".pyi", ".pyx", ".pxd", ".pxi")

# The rooms of the house and the modules in them (`*` ends a name that goes on). Modules of one room
# may see each other. A module without a room fails: a new one has to say where it belongs.
ROOMS: dict[str, str] = {
    "errors": "errors",
    "config": "config",
    "schema": "schema.*",
    "core": "_core",  # the package's own __init__, which is empty
    "structs": "_core.prefetch _core.types _core.layout _core.buffer _core.hashing _core.slots",
    "codec": (
        "_core.wire _core.framing _core.commands _core.rows* _core.client_messages _core.peer_messages "
        "_core.codec* _core.resp*"
    ),
    "structures": "_core.slab _core.index _core.timers _core.history",
    "locktable": "_core.locktable*",
    "raft": "_core.raft*",
    "batch": (
        "_core.batch _core.replies _core.waiters _core.routing _core.proposals _core.forwards _core.intake"
    ),
    "storage": "storage.*",
    "node": "node.*",
    "router": "router",
    "gateways": "gateways.*",
    "client": "client.*",
    "fencing": "fencing datastore",
    "public": "__init__",
    "cli": "cli.* demo __main__",
    "testing": "testing.*",
}

# Who may see whom; everyone sees errors and config, nobody sees testing.
CORE = "schema structs codec structures locktable raft batch"
MAY_SEE: dict[str, str] = {
    "errors": "",
    "config": "",
    "schema": "",
    # The core: the wire and the data structures do not need each other, and the two state machines
    # on top do not know each other.
    "core": "",
    "structs": "",
    "codec": "schema structs",
    "structures": "structs",
    "locktable": "schema structs codec structures",
    "raft": "schema structs codec structures",
    "batch": "structs codec structures locktable",
    # I/O around it.
    "storage": CORE,
    "node": f"{CORE} storage router",
    "router": "",
    "gateways": "codec router",
    "client": "schema codec router",
    "fencing": "",
    "public": "client fencing",
    "cli": f"{CORE} storage node router gateways client fencing public",
    "testing": f"{CORE} storage node router gateways client fencing public cli",
}

# The core is deterministic and does no I/O: time, randomness and bytes are handed in.
PURE_MAY_IMPORT = {
    "builtins",
    "cpython",
    "cython",
    "libc",
    "typing",
    "collections",
    "enum",
    "dataclasses",
    "__future__",
}
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
    """The room of a module, or of a name in a module; None if the table does not know it."""
    names = module.split(".")[1:]
    if not names or names[0].startswith("__version"):
        return "public"
    for end in range(len(names), 0, -1):
        name = ".".join(names[:end])
        for room, patterns in ROOMS.items():
            if any(fnmatchcase(name, pattern) or f"{name}.*" == pattern for pattern in patterns.split()):
                return room
    return None


def may_see(room: str, target: str) -> bool:
    everyone = [] if room == "errors" else ["errors"] if room == "config" else ["errors", "config"]
    return target in (room, *everyone, *MAY_SEE[room].split())


def violations(path: Path, text: str) -> list[str]:
    """What `text`, the content of the package's file `path`, does against the table."""
    parts = list(path.with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    module = ".".join(parts[:-1] if is_package else parts)
    in_core = parts[1] == "_core"
    room = room_of(module)
    if room is None or (room == "core" and not is_package):
        return [f"{path}: {module} has no room: say in ROOMS where it belongs"]
    found = []
    read = imports_of_python if path.suffix in (".py", ".pyi") else imports_of_cython
    for imported, line in read(text, module, is_package):
        if imported.split(".")[0] == "fastlock":
            target = room_of(imported)
            if target is None or not may_see(room, target):
                found.append(f"{path}:{line}: {room} must not see {target}: {imported}")
        elif in_core and not pure(imported):
            found.append(f"{path}:{line}: the core is deterministic and does no I/O: no {imported}")
    if in_core and path.suffix in (".pyx", ".pxd", ".pxi"):
        found += [f"{path}:{line}: the core must not call {name}" for name, line in impure_declarations(text)]
    return found


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


def test_the_table_has_no_cycle_and_no_unknown_room() -> None:
    assert MAY_SEE.keys() == ROOMS.keys()
    above = {room: {seen for seen in ROOMS if seen != room and may_see(room, seen)} for room in ROOMS}
    assert all(seen in ROOMS for row in MAY_SEE.values() for seen in row.split())
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
