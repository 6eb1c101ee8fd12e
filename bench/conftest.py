"""What the benchmarks share: the yardstick, and the table of figures that every run prints and saves.

A figure has a bar where the design sets one, and a run fails where it is missed. Other work on the machine
can only make a round slower, never faster, so times are the best of several rounds.
"""

import json
import platform
import random
from dataclasses import asdict, dataclass
from pathlib import Path

import loops
import pytest

FIGURES_PATH = Path(__file__).resolve().parent.parent / "build" / "bench-figures.json"
KEY_BYTES = 24
WORKING_SET = 100_000
YARDSTICK_ROUNDS = 20


@dataclass(frozen=True)
class Figure:
    name: str
    amount: float
    unit: str
    bar: float | None
    yardsticks: float | None

    @property
    def is_missed(self) -> bool:
        return self.bar is not None and self.amount > self.bar


class Figures:
    """Collects figures; times in nanoseconds are also given as multiples of the yardstick."""

    def __init__(self, yardstick_ns: float) -> None:
        self.yardstick_ns = yardstick_ns
        self.recorded: list[Figure] = []
        self.record("copy and hash one 24-byte key in C (the yardstick)", yardstick_ns, "ns")

    def record(self, name: str, amount: float, unit: str, bar: float | None = None) -> None:
        """Fails the benchmark if the amount is above its bar."""
        yardsticks = amount / self.yardstick_ns if unit == "ns" else None
        figure = Figure(name, amount, unit, bar, yardsticks)
        self.recorded.append(figure)
        assert not figure.is_missed, f"{name}: {amount:.1f} {unit}, the bar is {bar:g} {unit}"


_session_figures: Figures | None = None


@pytest.fixture(scope="session")
def figures() -> Figures:
    global _session_figures
    keys = random.Random(0).randbytes(KEY_BYTES * WORKING_SET)
    yardstick_ns = min(loops.memcpy_and_hash_ns(keys, KEY_BYTES, 2) for _ in range(YARDSTICK_ROUNDS))
    _session_figures = Figures(yardstick_ns)
    return _session_figures


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _session_figures is None:
        return
    terminalreporter.section("figures (× = times the yardstick)")
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
