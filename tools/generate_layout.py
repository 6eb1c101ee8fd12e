"""Writes what the schemas say, by reflection: every offset and number as C constants, every enum for Python.

The files are fastlock/_core/layout.pxd and fastlock/schema/enums.py.

    python tools/generate_layout.py            rewrite them
    python tools/generate_layout.py --check    exit 1 if a committed file is stale

Names, for a struct `Command` with a union member group `acquire` that has a field `ttlMs`:

    COMMAND_DATA_WORDS, COMMAND_POINTERS    size of the struct
    COMMAND_SESSION_AT                      byte offset of a field in the data section
    COMMAND_ACQUIRE_WAIT_BIT                bit offset of a Bool there
    COMMAND_KEY_POINTER                     index of a field in the pointer section
    COMMAND_WHICH_AT, COMMAND_WHICH_TOTAL   byte offset of the discriminant; how many members the union has
    COMMAND_ACQUIRE                         discriminant of a union member
    LOCK_MODE_SHARED, LOCK_MODE_TOTAL       value of an enum member; how many members it has
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LAYOUT = ROOT / "fastlock" / "_core" / "layout.pxd"
ENUMS = ROOT / "fastlock" / "schema" / "enums.py"

FIELD_BYTES = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "enum": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
NO_DISCRIMINANT = 0xFFFF

HEADER = '''"""Where every field of the schemas lies, as C constants.

Generated from fastlock/schema/*.capnp by tools/generate_layout.py; do not edit.
"""
'''

ENUMS_HEADER = '''"""The schemas' enums and union members under their own names, and the schemas' constants.

Generated from fastlock/schema/*.capnp by tools/generate_layout.py; do not edit.
"""

from enum import IntEnum
from typing import Final
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


def python_class(name: str, members: list[tuple[str, int]]) -> str:
    members = sorted(members, key=lambda member: member[1])
    if [value for _, value in members] != list(range(len(members))):
        raise SystemExit(f"{name}: the codec looks names up by position, so numbers may not have gaps")
    lines = "".join(f"    {member} = {value}\n" for member, value in members)
    return f"\nclass {name}(IntEnum):\n{lines}"


def nested_members() -> Iterator[tuple[str, str, Any]]:
    """Schema name, name and reflection of everything the schemas define at their top level."""
    from fastlock.schema import SCHEMA_NAMES, load

    for schema_name in SCHEMA_NAMES:
        module = load(schema_name)
        for nested in module.schema.node.nestedNodes:
            yield schema_name, nested.name, getattr(module, nested.name)


def render_enums() -> str:
    """The text that enums.py must have."""
    consts = []
    classes = []
    for _, name, member in nested_members():
        if isinstance(member, int):
            consts.append(f"{constant_name(name)}: Final = {member}\n")
        elif member.schema.node.which() == "enum":
            classes.append(python_class(name, list(member.schema.enumerants.items())))
        elif member.schema.node.struct.discriminantCount:
            union = [
                (field.name, field.discriminantValue)
                for field in member.schema.node.struct.fields
                if field.discriminantValue != NO_DISCRIMINANT
            ]
            classes.append(python_class(f"{name}Which", union))
    return "\n".join([ENUMS_HEADER, "".join(consts), *classes])


def render_layout() -> str:
    """The text that layout.pxd must have."""
    blocks = []
    consts: list[tuple[str, int]] = []
    names: set[str] = set()
    for schema_name, nested_name, member in nested_members():
        if isinstance(member, int):
            consts.append((constant_name(nested_name), member))
            continue
        is_enum = member.schema.node.which() == "enum"
        constants = list((enum_constants if is_enum else struct_constants)(nested_name, member.schema))
        for name, _ in constants:
            if name in names:
                raise SystemExit(f"two fields of the schemas would be called {name}: rename one")
            names.add(name)
        blocks.append(enum_block(f"{schema_name}.capnp: {nested_name}", constants))
    return "\n".join([HEADER, "from libc.stdint cimport int64_t\n", consts_block(consts), *blocks])


def main(arguments: list[str]) -> int:
    sys.path.insert(0, str(ROOT))
    for path, text in ((LAYOUT, render_layout()), (ENUMS, render_enums())):
        if arguments != ["--check"]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.relative_to(ROOT)} is stale: run python tools/generate_layout.py", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
