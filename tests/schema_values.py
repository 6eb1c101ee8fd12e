"""Random messages of any struct of the schemas, as dicts in the shape of pycapnp's to_dict()."""

from __future__ import annotations

from random import Random
from typing import Any

from fastlock.schema import SCHEMA_NAMES, load

# The codec refuses these on purpose: what they stand for is never valid.
NEVER = {("Command", "unset"), ("Request", "unset"), ("PeerMessage", "unset"), ("RaftKind", "unset")}
VERSIONED = {"LogEntry", "LockRow", "LeaseRow", "SessionRow", "GroupRow"}
# Interesting lengths: around a word, and beyond pycapnp's first segment.
BYTE_COUNTS = (0, 1, 7, 8, 9, 16, 24, 63)
INTEGER_BITS = {
    "int8": 8,
    "uint8": 8,
    "int16": 16,
    "uint16": 16,
    "int32": 32,
    "uint32": 32,
    "int64": 64,
    "uint64": 64,
}


def structs() -> dict[str, tuple[str, Any]]:
    """Every struct of the three schemas: name -> (schema name, pycapnp's reflection)."""
    found = {}
    for schema_name in SCHEMA_NAMES:
        module = load(schema_name)
        for nested in module.schema.node.nestedNodes:
            member = getattr(module, nested.name)
            if not isinstance(member, int) and member.schema.node.which() == "struct":
                found[nested.name] = (schema_name, member)
    return found


def random_struct(rng: Random, schema: Any, name: str, large: bool = False) -> dict[str, Any]:
    """A struct or group: every field that is no pointer, some of the pointers, one member of its union."""
    out: dict[str, Any] = {}
    for field in schema.non_union_fields:
        _random_field(rng, schema, field, name, out, large, optional=True)
    members = [member for member in schema.union_fields if (name, member) not in NEVER]
    if members:
        _random_field(rng, schema, rng.choice(members), name, out, large, optional=False)
    if name in VERSIONED:
        out["version"] = load("log").formatVersion
    return out


def _random_field(
    rng: Random, schema: Any, field_name: str, owner: str, out: dict[str, Any], large: bool, optional: bool
) -> None:
    field = schema.fields[field_name]
    if field.proto.which() == "group":
        out[field_name] = random_struct(rng, field.schema, f"{owner}.{field_name}", large)
        return
    kind = field.proto.slot.type.which()
    is_pointer = kind in ("data", "text", "list", "struct")
    if is_pointer and optional and rng.randrange(4) == 0:
        return
    out[field_name] = _random_value(rng, field, kind, field.proto.slot.type, large)


def _random_value(rng: Random, field: Any, kind: str, proto: Any, large: bool) -> Any:
    if kind == "void":
        return None
    if kind == "bool":
        return bool(rng.randrange(2))
    if kind in INTEGER_BITS:
        return _random_integer(rng, kind)
    if kind == "enum":
        return _random_enumerant(rng, field)
    if kind == "data":
        return rng.randbytes(_byte_count(rng, large))
    if kind == "text":
        return "".join(rng.choice("aé漢z ") for _ in range(_byte_count(rng, large)))
    if kind == "struct":
        return random_struct(rng, field.schema, _short_name(field.schema), large)
    assert kind == "list"
    element = proto.list.elementType
    count = rng.choice((0, 1, 2, 3, 40)) if large else rng.randrange(4)
    if element.which() == "data":
        return [rng.randbytes(_byte_count(rng, large)) for _ in range(count)]
    inner = field.schema.elementType
    return [random_struct(rng, inner, _short_name(inner)) for _ in range(count)]


def _random_integer(rng: Random, kind: str) -> int:
    bits = INTEGER_BITS[kind]
    number = rng.choice((0, 1, (1 << bits) - 1, 1 << (bits - 1), rng.getrandbits(bits), rng.getrandbits(8)))
    return number - (1 << bits) if kind.startswith("int") and number >> (bits - 1) else number


def _random_enumerant(rng: Random, field: Any) -> str:
    name = _short_name(field.schema)
    return rng.choice([member for member in field.schema.enumerants if (name, member) not in NEVER])


def _byte_count(rng: Random, large: bool) -> int:
    return rng.choice((0, 100, 3000, 20000)) if large else rng.choice(BYTE_COUNTS)


def _short_name(schema: Any) -> str:
    return schema.node.displayName.rpartition(":")[2]
