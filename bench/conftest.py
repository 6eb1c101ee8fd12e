"""What the benchmarks share: the yardstick, and the table of figures that every run prints and saves.

A figure has a bar where the design sets one, and a run fails where it is missed. Other work on the machine
can only make a round slower, never faster, so times are the best of several rounds.
"""

import json
import math
import platform
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import loops
import pytest

FIGURES_PATH = Path(__file__).resolve().parent.parent / "build" / "bench-figures.json"
KEY_BYTES = 24
WORKING_SET = 100_000
YARDSTICK_ROUNDS = 20
YARDSTICK_KEYS = 5_000


@dataclass(frozen=True)
class Figure:
    name: str
    amount: float
    unit: str
    bar: float | None
    yardsticks: float | None
    # The bar is the least that will do, not the most.
    at_least: bool = False

    @property
    def is_missed(self) -> bool:
        if self.bar is None:
            return False
        return self.amount < self.bar if self.at_least else self.amount > self.bar


class Figures:
    """Collects figures; times in nanoseconds are also given as multiples of the yardstick."""

    def __init__(self) -> None:
        self.recorded: list[Figure] = []
        self.yardstick_ns = math.inf
        self._keys = random.Random(0).randbytes(KEY_BYTES * WORKING_SET)
        for _ in range(YARDSTICK_ROUNDS):
            self.measure_yardstick()

    def measure_yardstick(self) -> None:
        """Between the rounds of a benchmark, so that both have the same chance of an undisturbed moment."""
        self.yardstick_ns = min(
            self.yardstick_ns, loops.memcpy_and_hash_ns(self._keys, KEY_BYTES, YARDSTICK_KEYS)
        )

    def record(
        self, name: str, amount: float, unit: str, bar: float | None = None, at_least: bool = False
    ) -> None:
        yardsticks = amount / self.yardstick_ns if unit == "ns" else None
        self.recorded.append(Figure(name, amount, unit, bar, yardsticks, at_least))


_session_figures: Figures | None = None


@pytest.fixture(scope="session")
def session_figures() -> Figures:
    global _session_figures
    _session_figures = Figures()
    return _session_figures


@pytest.fixture
def figures(session_figures: Figures) -> Iterator[Figures]:
    """Where a benchmark records its figures; fails it at the end if one misses its bar."""
    before = len(session_figures.recorded)
    yield session_figures
    missed = [figure for figure in session_figures.recorded[before:] if figure.is_missed]
    assert not missed, "; ".join(f"{f.name}: {f.amount:.1f} {f.unit}, the bar is {f.bar:g}" for f in missed)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _session_figures is None:
        return
    terminalreporter.section("figures (× = times the yardstick)")
    _session_figures.record(
        "the yardstick: copy and hash one 24-byte key in C", _session_figures.yardstick_ns, "ns"
    )
    for figure in _session_figures.recorded:
        yardsticks = f"{figure.yardsticks:7.1f} ×" if figure.yardsticks is not None else " " * 9
        bar = "" if figure.bar is None else f"  bar {figure.bar:g}{'  MISSED' if figure.is_missed else ''}"
        terminalreporter.write_line(
            f"{figure.name:<66} {figure.amount:12.1f} {figure.unit:<5} {yardsticks}{bar}"
        )
    FIGURES_PATH.parent.mkdir(exist_ok=True)
    FIGURES_PATH.write_text(
        json.dumps(
            {
                "machine": platform.machine(),
                "python": platform.python_version(),
                "figures": [asdict(figure) for figure in _session_figures.recorded],
            },
            indent=2,
        )
        + "\n"
    )
    terminalreporter.write_line(f"saved to {FIGURES_PATH}")
