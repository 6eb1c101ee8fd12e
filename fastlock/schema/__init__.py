"""The wire and disk formats: Cap'n Proto schemas, which pycapnp loads for the cold plane and as the oracle.

The hot path never comes here: it uses the offsets that `tools/generate_layout.py` read from these schemas.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["SCHEMA_NAMES", "load", "schema_path"]

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
