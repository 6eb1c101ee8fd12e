"""What every test shares: repeatable property tests, and a header that names the build under test."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import fastlock

ROOT = Path(__file__).resolve().parent.parent

# A test that decides must decide the same way every time. To explore instead:
# HYPOTHESIS_PROFILE=explore make test
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("explore", parent=settings.get_profile("repeatable"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_report_header() -> str:
    return f"fastlock: {fastlock.__version__} from {Path(fastlock.__file__).resolve().parent}"


def pytest_configure() -> None:
    # The debug and sanitizer builds are copies of the tree; testing another copy's code would
    # prove nothing.
    imported = Path(fastlock.__file__).resolve().parent.parent
    if imported != ROOT:
        raise pytest.UsageError(f"these tests are for {ROOT}, but Python imported fastlock from {imported}")
