"""Runs the simulator over many seeds, or over one with its whole trace.

python -m fastlock.testing.simulate --seeds 1000 [--base N] [--jobs 2]
python -m fastlock.testing.simulate --seed X --trace
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from fastlock.testing.simulator.time import SECOND
from fastlock.testing.simulator.trace import LINES_SHOWN
from fastlock.testing.simulator.world import FAULTS_MIN, OPERATIONS_MIN, Summary, World

# A seed that did less than this proves too little.
SIMULATED_SECONDS_MIN = 60
ELECTIONS_AVERAGE_MIN = 1.0

SEEDS_PER_TASK = 4
PROGRESS_S = 5


def replay_command(seed: int) -> str:
    here = f"{os.getcwd()}{os.sep}"
    return f"{sys.executable.removeprefix(here)} -m fastlock.testing.simulate --seed {seed} --trace"


def run_seed(seed: int, keep_trace: bool = False) -> Summary:
    """One whole run. Its world is one knot of references: looking for garbage before the end is in vain."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return World(seed, keep_trace).run()
    finally:
        gc.collect()
        if collects:
            gc.enable()
        _return_memory()


def _return_memory() -> None:
    """Many worlds in one process leave holes in the heap that add up to gigabytes; glibc gives them back."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def run_seeds(first: int, count: int, jobs: int) -> Iterator[Summary]:
    """Summaries in order of their seeds, whatever order they were run in."""
    seeds = range(first, first + count)
    if jobs <= 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, seeds, chunksize=SEEDS_PER_TASK)


def did_too_little(summary: Summary) -> str:
    """What a seed is short of; empty if it did enough."""
    short = []
    if summary.simulated_ns < SIMULATED_SECONDS_MIN * SECOND:
        short.append(f"{summary.simulated_ns / SECOND:.1f} simulated seconds")
    if summary.operations < OPERATIONS_MIN:
        short.append(f"{summary.operations} operations")
    if sum(summary.faults.values()) < FAULTS_MIN:
        short.append(f"{sum(summary.faults.values())} faults")
    return ", ".join(short)


class Totals:
    """Adds summaries up and says what they come to."""

    def __init__(self) -> None:
        self.seeds = 0
        self.simulated_ns = 0
        self.operations = 0
        self.grants = 0
        self.elections = 0
        self.events = 0
        self.faults: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        self.violations: list[Summary] = []
        self.idle: list[tuple[int, str]] = []

    def add(self, summary: Summary) -> None:
        self.seeds += 1
        self.simulated_ns += summary.simulated_ns
        self.operations += summary.operations
        self.grants += summary.grants
        self.elections += summary.elections
        self.events += summary.events
        for kind, count in summary.faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + count
        for what, count in summary.reached.items():
            self.reached[what] = self.reached.get(what, 0) + count
        if summary.violation:
            self.violations.append(summary)
        elif short := did_too_little(summary):
            self.idle.append((summary.seed, short))

    @property
    def elections_average(self) -> float:
        return self.elections / max(1, self.seeds)

    @property
    def good(self) -> bool:
        return not self.violations and not self.idle and self.elections_average >= ELECTIONS_AVERAGE_MIN

    def progress(self, count: int) -> str:
        return f"{self.seeds}/{count} seeds, {self.operations} operations, {len(self.violations)} violations"

    def lines(self, elapsed_s: float) -> list[str]:
        lines = [
            f"seeds            {self.seeds} in {elapsed_s:.1f} s",
            f"simulated time   {self.simulated_ns / SECOND / 3600:.2f} h",
            f"operations       {self.operations} ({self.grants} grants)",
            f"leader changes   {self.elections} ({self.elections_average:.1f} a seed)",
            f"faults           {sum(self.faults.values())}",
        ]
        lines.extend(f"  {kind:14} {self.faults[kind]}" for kind in sorted(self.faults))
        lines.append("reached")
        lines.extend(f"  {what:20} {self.reached[what]}" for what in sorted(self.reached))
        lines.append(f"violations       {len(self.violations)}")
        lines.extend(
            f"seed {seed} did too little: {short}; replay: {replay_command(seed)}"
            for seed, short in self.idle
        )
        if self.elections_average < ELECTIONS_AVERAGE_MIN:
            lines.append(f"too few leader changes: at least {ELECTIONS_AVERAGE_MIN} a seed are wanted")
        return lines


def show_failure(summary: Summary) -> None:
    """The violation, the end of the trace, and the one command that replays it."""
    if not summary.trace:
        summary = run_seed(summary.seed, keep_trace=True)
    print(f"\nseed {summary.seed} broke: {summary.checker}")
    for line in summary.trace[-LINES_SHOWN:]:
        print(f"  {line}")
    print(f"{summary.checker}: {summary.violation}")
    print(f"replay: {replay_command(summary.seed)}", flush=True)


def run_many(first: int, count: int, jobs: int) -> int:
    totals = Totals()
    started = time.monotonic()
    told = started
    try:
        for summary in run_seeds(first, count, jobs):
            totals.add(summary)
            if summary.violation:
                show_failure(summary)
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                print(totals.progress(count), flush=True)
    except BrokenProcessPool:
        # Which one it was is not known: seeds are handed out ahead.
        print(f"\na process died at seed {first + totals.seeds} or soon after: run them with --jobs 1")
        return 1
    print("\n".join(totals.lines(time.monotonic() - started)))
    return 0 if totals.good else 1


def run_one(seed: int, trace: bool) -> int:
    summary = run_seed(seed, keep_trace=True)
    for line in summary.trace if trace else ():
        print(line)
    print(
        f"seed {seed}: {summary.operations} operations, {summary.grants} grants, "
        f"{summary.elections} leader changes, {sum(summary.faults.values())} faults, "
        f"{summary.events} events, {summary.configurations} configurations, trace {summary.trace_hash}"
    )
    if summary.violation:
        print(f"{summary.checker}: {summary.violation}")
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--base", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seed", type=int, help="run this one seed only")
    parser.add_argument("--trace", action="store_true", help="with --seed: print everything that happened")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return run_one(options.seed, options.trace)
    return run_many(options.base, options.seeds, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
