"""The structures below the lock table on their own: what one operation costs, and the longest single one."""

from collections.abc import Callable

import loops
import pytest
from conftest import KEY_BYTES, WORKING_SET, Figures
from pytest_benchmark.fixture import BenchmarkFixture

MILLION = 1_000_000
ROUNDS = 5
# Short, so that some are not disturbed by other work on the machine.
SHORT_ROUNDS = 200
OPERATIONS = 5000
HISTORY_BYTES = 1 << 24
DUE_PAGE = 1024


def best_of_rounds(benchmark: BenchmarkFixture, measure: Callable[[], float]) -> float:
    results: list[float] = []
    benchmark.pedantic(lambda: results.append(measure()), rounds=ROUNDS)
    return min(results)


@pytest.mark.parametrize("count", [1000, WORKING_SET, MILLION])
def test_index_lookup(benchmark: BenchmarkFixture, figures: Figures, count: int) -> None:
    time_ns = best_of_rounds(benchmark, lambda: loops.index_find_ns(count, OPERATIONS, SHORT_ROUNDS))
    figures.record(f"index: one lookup among {count:,}", time_ns, "ns")


def test_index_growth(benchmark: BenchmarkFixture, figures: Figures) -> None:
    mean_ns = best_of_rounds(benchmark, lambda: loops.index_growth_ns(MILLION))
    figures.record("index: one put while it grows to 1,000,000", mean_ns, "ns")


def test_index_growth_has_no_stall(benchmark: BenchmarkFixture, figures: Figures) -> None:
    longest_ns = best_of_rounds(benchmark, lambda: loops.index_growth_longest_ns(MILLION))
    figures.record("index: longest put while it grows to 1,000,000", longest_ns / 1e6, "ms", bar=1.0)


def test_history_append(benchmark: BenchmarkFixture, figures: Figures) -> None:
    time_ns = best_of_rounds(
        benchmark, lambda: loops.history_append_ns(HISTORY_BYTES, KEY_BYTES, 16, OPERATIONS, SHORT_ROUNDS)
    )
    figures.record("history: one append to a full ring", time_ns, "ns", bar=25.0)


@pytest.mark.parametrize("postponed", [False, True], ids=["due", "postponed"])
def test_wheel_empties_a_full_slot_in_slices(
    benchmark: BenchmarkFixture, figures: Figures, postponed: bool
) -> None:
    longest_ns = best_of_rounds(benchmark, lambda: loops.wheel_drain_longest_ns(MILLION, postponed, DUE_PAGE))
    state = "postponed" if postponed else "due"
    figures.record(f"wheel: longest call, 1,000,000 {state} in one slot", longest_ns / 1e6, "ms", bar=5.0)
