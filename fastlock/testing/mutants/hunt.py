"""Runs the simulator against every planted bug until its checkers notice, and says what it took.

python -m fastlock.testing.mutants.hunt [--only NAME ...] [--base N ...] [--seeds N] [--jobs N]

Only in the copy of the tree that `make mutants` builds. A seed has caught a bug if it breaks a promise, alone
in a process, and is clean with nothing planted. A crash, a hang and an assertion count as well.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from fastlock.testing.mutants.catalogue import MUTANTS
from fastlock.testing.mutants.mutant import Mutant
from fastlock.testing.mutants.plant import SWITCH
from fastlock.testing.mutants.worker import SEED_SECONDS_MAX

BASES = (1, 100_000, 700_000)
SEEDS_MAX = 2_000
# How many seeds from each base have to be clean with nothing planted.
CLEAN_SEEDS = 20

SEEDS_PER_PROCESS = 50

REPORT_WIDTH = 150
MESSAGE_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """How one hunt ended; without a checker the bug survived `tried` seeds."""

    tried: int
    checker: str = ""
    message: str = ""
    seed: int = 0


class Prey:
    """A process that runs seeds with one bug planted, watched for crashes and hangs."""

    def __init__(self, name: str, first: int, count: int) -> None:
        environment = {key: value for key, value in os.environ.items() if key != SWITCH}
        if name:
            environment[SWITCH] = name
        self._next = first
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fastlock.testing.mutants.worker", str(first), str(count)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def results(self) -> Iterator[dict[str, object]]:
        """One result a seed; a process that ends otherwise than it should is the last one."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for line in self._process.stdout:
            self._next += 1
            yield json.loads(line)
        said = self._process.stderr.read().strip().splitlines()
        code = self._process.wait()
        if code == -signal.SIGPROF:
            checker, message = "hang", f"no end after {SEED_SECONDS_MAX} s"
        elif code:
            ending = signal.Signals(-code).name if code < 0 else f"exit {code}"
            checker, message = "crash", f"{ending} {said[-1:]}"
        else:
            return
        yield {"seed": self._next, "caught": True, "checker": checker, "violation": message}

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Hunt:
    """Hunts in parallel; what a seed does with nothing planted is found out once."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._lock = threading.Lock()
        self._clean: dict[int, Future[str]] = {}

    def find(self, mutant: Mutant, base: int) -> Finding:
        """The first seed that notices the bug: on its own too, and not with nothing planted."""
        first = base
        while first < base + self._seeds:
            result = self._first_caught(mutant.name, first, base + self._seeds - first)
            if result is None:
                break
            seed = int(str(result["seed"]))
            alone = self._first_caught(mutant.name, seed, 1)
            if alone is not None and not self.judged(seed):
                return Finding(seed - base + 1, str(alone["checker"]), str(alone["violation"]), seed)
            first = seed + 1
        return Finding(self._seeds)

    def _first_caught(self, name: str, first: int, count: int) -> dict[str, object] | None:
        for start in range(first, first + count, SEEDS_PER_PROCESS):
            prey = Prey(name, start, min(SEEDS_PER_PROCESS, first + count - start))
            try:
                for result in prey.results():
                    if result["caught"]:
                        return result
            finally:
                prey.end()
        return None

    def judged(self, seed: int) -> str:
        """What the seed breaks with nothing planted; empty if it is clean."""
        with self._lock:
            future = self._clean.get(seed)
            if ours := future is None:
                future = self._clean[seed] = Future()
        assert future is not None
        if ours:
            result = self._first_caught("", seed, 1)
            future.set_result(f"{result['checker']}: {result['violation']}" if result else "")
        return future.result()


def chosen(names: Sequence[str]) -> list[Mutant]:
    unknown = set(names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        raise SystemExit(f"no such bug: {', '.join(sorted(unknown))}")
    return [mutant for mutant in MUTANTS if not names or mutant.name in names]


def clean_failures(hunt: Hunt, bases: Sequence[int], jobs: int, console: Console) -> list[str]:
    """Seeds that break a promise although nothing is planted."""
    seeds = [seed for base in bases for seed in range(base, base + CLEAN_SEEDS)]
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(hunt.judged, seeds))
    failures = [f"seed {seed}: {why}" for seed, why in zip(seeds, verdicts, strict=True) if why]
    console.print(f"nothing planted: {len(seeds) - len(failures)} of {len(seeds)} seeds are clean")
    for failure in failures:
        console.print(failure[:MESSAGE_LENGTH_MAX], style="red", markup=False)
    return failures


def report(found: dict[str, dict[int, Finding]], mutants: Sequence[Mutant], bases: Sequence[int]) -> Table:
    table = Table(title="Planted bugs")
    table.add_column("bug")
    table.add_column("breaks")
    for base in bases:
        table.add_column(f"seeds from {base}", justify="right")
    table.add_column("caught by")
    for mutant in mutants:
        findings = [found[mutant.name][base] for base in bases]
        needed = [str(f.tried) if f.checker else f"[red]> {f.tried}[/red]" for f in findings]
        checkers = dict.fromkeys(f.checker for f in findings if f.checker)
        table.add_row(mutant.name, "\n".join(mutant.breaks), *needed, "\n".join(checkers))
    return table


def hunt_all(mutants: list[Mutant], bases: list[int], seeds: int, jobs: int) -> int:
    console = Console(width=None if sys.stdout.isatty() else REPORT_WIDTH)
    hunt = Hunt(seeds)
    failures = clean_failures(hunt, bases, jobs, console)
    if len(failures) == len(bases) * CLEAN_SEEDS:
        console.print("nothing is clean here, so nothing can be shown", style="red")
        return 1
    found: dict[str, dict[int, Finding]] = {mutant.name: {} for mutant in mutants}
    with ThreadPoolExecutor(jobs) as pool:
        hunts = {pool.submit(hunt.find, mutant, base): (mutant, base) for mutant in mutants for base in bases}
        for done, future in enumerate(as_completed(hunts), 1):
            mutant, base = hunts[future]
            finding = found[mutant.name][base] = future.result()
            what = (
                f"seed {finding.seed}, {finding.checker}: {finding.message}"
                if finding.checker
                else "survived"
            )
            line = f"[{done}/{len(hunts)}] {mutant.name} from {base}: {finding.tried} seeds, {what}"
            console.print(line.splitlines()[0][:MESSAGE_LENGTH_MAX], markup=False, highlight=False)
    console.print(report(found, mutants, bases))
    survivors = [name for name, findings in found.items() if not all(f.checker for f in findings.values())]
    console.print(f"{len(mutants) - len(survivors)} of {len(mutants)} bugs caught from {len(bases)} bases")
    return 1 if survivors or failures else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="hunt these bugs only")
    parser.add_argument("--base", type=int, nargs="*", default=list(BASES), help="the first seed of each run")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="seeds from each base at most")
    parser.add_argument("--jobs", default="auto", help="processes")
    options = parser.parse_args(arguments)
    jobs = (os.cpu_count() or 1) if options.jobs == "auto" else int(options.jobs)
    return hunt_all(chosen(options.only), options.base, options.seeds, jobs)


if __name__ == "__main__":
    sys.exit(main())
