"""The generated files say what the schemas say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_generated_layout_and_enums_are_not_stale() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_layout.py", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr


def test_building_needs_no_schema_compiler() -> None:
    """pip builds the package with Cython alone, so that nothing setup.py runs may want pycapnp."""
    assert "capnp" not in (ROOT / "setup.py").read_text()
    assert "pycapnp" not in (ROOT / "pyproject.toml").read_text().partition("[project]")[0]
