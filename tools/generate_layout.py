"""Writes fastlock/_core/layout.pxd: every offset and number of the schemas, as C constants, by reflection.

    python tools/generate_layout.py            rewrite the file
    python tools/generate_layout.py --check    exit 1 if the committed file is stale

Names, for a struct `Command` with a union member group `acquire` that has a field `ttlMs`:

    COMMAND_DATA_WORDS, COMMAND_POINTERS    size of the struct
    COMMAND_SESSION_AT                      byte offset of a field in the data section
    COMMAND_ACQUIRE_WAIT_BIT                bit offset of a Bool there
    COMMAND_KEY_POINTER                     index of a field in the pointer section
    COMMAND_WHICH_AT, COMMAND_WHICH_TOTAL   byte offset of the union's discriminant, and how many members it has
    COMMAND_ACQUIRE                         discriminant of a union member
    LOCK_MODE_SHARED, LOCK_MODE_TOTAL       value of an enum's member, and how many it has
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LAYOUT = ROOT / "fastlock" / "_core" / "layout.pxd"

FIELD_BYTES = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "enum": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
NO_DISCRIMINANT = 0xFFFF

HEADER = '''"""Where every field of the schemas lies, as C constants.

Generated from fastlock/schema/*.capnp by tools/generate_layout.py; do not edit.
"""
'''


def constant_name(*words: str) -> str:
    return "_".join(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word) for word in words).upper()


def field_constants(owner: str, schema: Any) -> Iterator[tuple[str, int]]:
    """The constants of one struct's or group's fields; `owner` is the name they start with."""
    node = schema.node
    if node.struct.discriminantCount:
        yield f"{owner}_WHICH_AT", node.struct.discriminantOffset * 2
        yield f"{owner}_WHICH_TOTAL", node.struct.discriminantCount
    for field in node.struct.fields:
        name = constant_name(owner, field.name)
        if field.discriminantValue != NO_DISCRIMINANT:
            yield name, field.discriminantValue
        if field.which() == "group":
            yield from field_constants(name, schema.fields[field.name].schema)
            continue
        if field.slot.hadExplicitDefault:
            raise SystemExit(f"{name}: the codec reads absent fields as zero, so no field may have a default")
        kind = field.slot.type.which()
        if kind == "bool":
            yield f"{name}_BIT", field.slot.offset
        elif kind in FIELD_BYTES:
            yield f"{name}_AT", field.slot.offset * FIELD_BYTES[kind]
        elif kind != "void":
            yield f"{name}_POINTER", field.slot.offset


def struct_constants(name: str, schema: Any) -> Iterator[tuple[str, int]]:
    owner = constant_name(name)
    yield f"{owner}_DATA_WORDS", schema.node.struct.dataWordCount
    yield f"{owner}_POINTERS", schema.node.struct.pointerCount
    yield from field_constants(owner, schema)


def enum_constants(name: str, schema: Any) -> Iterator[tuple[str, int]]:
    owner = constant_name(name)
    yield f"{owner}_TOTAL", len(schema.node.enum.enumerants)
    for member, value in schema.enumerants.items():
        yield constant_name(owner, member), value


def enum_block(title: str, constants: list[tuple[str, int]]) -> str:
    lines = "".join(f"    {name} = {value}\n" for name, value in constants)
    return f"# {title}\ncdef enum:\n{lines}"


def consts_block(consts: list[tuple[str, int]]) -> str:
    # A C enum constant is an int, and these may not fit.
    defines = "".join(f"    #define {name} INT64_C({value})\n" for name, value in consts)
    names = "".join(f"    const int64_t {name}\n" for name, _ in consts)
    return f'cdef extern from *:\n    """\n    #include <stdint.h>\n{defines}    """\n{names}'


def render() -> str:
    """The text that layout.pxd must have."""
    from fastlock.schema import SCHEMA_NAMES, load

    blocks = []
    consts: list[tuple[str, int]] = []
    names: set[str] = set()
    for schema_name in SCHEMA_NAMES:
        module = load(schema_name)
        for nested in module.schema.node.nestedNodes:
            member = getattr(module, nested.name)
            if isinstance(member, int):
                consts.append((constant_name(nested.name), member))
                continue
            is_enum = member.schema.node.which() == "enum"
            constants = list((enum_constants if is_enum else struct_constants)(nested.name, member.schema))
            for name, _ in constants:
                if name in names:
                    raise SystemExit(f"two fields of the schemas would be called {name}: rename one")
                names.add(name)
            blocks.append(enum_block(f"{schema_name}.capnp: {nested.name}", constants))
    return "\n".join([HEADER, "from libc.stdint cimport int64_t\n", consts_block(consts), *blocks])


def main(arguments: list[str]) -> int:
    sys.path.insert(0, str(ROOT))
    text = render()
    if arguments == ["--check"]:
        if LAYOUT.read_text() == text:
            return 0
        print(f"{LAYOUT.relative_to(ROOT)} is stale: run python tools/generate_layout.py", file=sys.stderr)
        return 1
    LAYOUT.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
