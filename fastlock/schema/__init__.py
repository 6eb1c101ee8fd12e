"""The wire and disk formats: Cap'n Proto schemas, which pycapnp loads for the cold plane and as the oracle.

The hot path never comes here: it uses the offsets that `tools/generate_layout.py` read from these schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fastlock.errors import MalformedFrame
from fastlock.schema.enums import Code

__all__ = ["SCHEMA_NAMES", "decode", "encode", "load", "schema_path"]

SCHEMA_NAMES = ("log", "client", "peer")
# pycapnp visits a word several times while it makes a dict.
TRAVERSAL_FACTOR = 8
TRAVERSAL_SLACK_WORDS = 1024


def schema_path(name: str) -> Path:
    """Where the schema `name` (one of `SCHEMA_NAMES`) is stored."""
    return Path(__file__).with_name(f"{name}.capnp")


@cache
def _parser() -> Any:
    # Imported on first use: a client that only needs the enums below this package never pays for it.
    import capnp

    # One parser for all: a schema imported by two others must be one schema, not two that look alike.
    return capnp.SchemaParser()


@cache
def load(name: str) -> ModuleType:
    """The schema `name` as a pycapnp module, e.g. `load("log").Command.new_message()`."""
    if name not in SCHEMA_NAMES:
        raise ValueError(f"no schema {name!r}: choose one of {', '.join(SCHEMA_NAMES)}")
    module: ModuleType = _parser().load(str(schema_path(name)), name)
    return module


def encode(name: str, struct: str, fields: Mapping[str, Any]) -> bytes:
    """A dict as a frame of `struct` in the schema `name`."""
    frame: bytes = getattr(load(name), struct).new_message(**fields).to_bytes()
    return frame


def decode(name: str, struct: str, frame: bytes) -> dict[str, Any]:
    """A frame of `struct` in the schema `name` as a dict. Raises MalformedFrame where pycapnp refuses it."""
    import capnp

    # Lists of structs without fields take no space: without a limit a short frame could announce millions.
    words_max = TRAVERSAL_FACTOR * len(frame) // 8 + TRAVERSAL_SLACK_WORDS
    reader = getattr(load(name), struct)
    try:
        with reader.from_bytes(frame, traversal_limit_in_words=words_max) as message:
            fields: dict[str, Any] = message.to_dict()
    except (capnp.KjException, RuntimeError, ValueError) as refusal:
        raise MalformedFrame(Code.malformedFrame, f"malformed {struct}: close the connection") from refusal
    # to_dict() leaves out a union whose member it cannot read, instead of raising.
    union = reader.schema.union_fields
    if union and not any(member in fields for member in union):
        raise MalformedFrame(Code.malformedFrame, f"malformed {struct}: close the connection")
    return fields
