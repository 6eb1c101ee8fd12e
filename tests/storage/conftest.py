"""Every test of the contract runs on the twin and on LMDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .drivers import LmdbDriver, MemoryDriver


@pytest.fixture(params=["memory", "lmdb"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryDriver | LmdbDriver]:
    made = MemoryDriver() if request.param == "memory" else LmdbDriver(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def lmdb_driver(tmp_path: Path) -> Iterator[LmdbDriver]:
    made = LmdbDriver(tmp_path / "data")
    yield made
    made.close()
