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

    try:
        with getattr(load(name), struct).from_bytes(frame) as message:
            fields: dict[str, Any] = message.to_dict()
            return fields
    except (capnp.KjException, ValueError) as refusal:
        raise MalformedFrame(Code.malformedFrame, f"malformed {struct}: close the connection") from refusal
