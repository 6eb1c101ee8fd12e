"""How long the loop was away from its sockets: the longest turn, and how late a timer came at worst."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

# What nothing on the loop should take longer than.
STEP_NS_MAX = 5_000_000
# How often the probe looks how late it is.
PROBE_SECONDS = 0.05


class LoopFigures(NamedTuple):
    """Since the start, or since `Watchdog.reset`."""

    turns: int
    turn_ns_total: int
    turn_ns_max: int
    turns_late: int  # above STEP_NS_MAX
    turn_cpu_ns_max: int
    turns_cpu_late: int
    probe_late_ns_max: int


class Watchdog:
    """Measures turns exactly, and everything else on the loop by how late a timer comes.

    By the clock a turn is also long when the machine had no processor for the process: `turn_cpu_ns_max` says
    what the node itself did, `turn_ns_max` and `probe_late_ns_max` what a client may have felt.
    """

    def __init__(self) -> None:
        self._probe: asyncio.TimerHandle | None = None
        self._due_ns = 0
        self.reset()

    def reset(self) -> None:
        self._turns = 0
        self._turn_ns_total = 0
        self._turn_ns_max = 0
        self._turns_late = 0
        self._turn_cpu_ns_max = 0
        self._turns_cpu_late = 0
        self._probe_late_ns_max = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arm()

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None

    def _arm(self) -> None:
        self._due_ns = time.monotonic_ns() + int(PROBE_SECONDS * 1e9)
        self._probe = self._loop.call_later(PROBE_SECONDS, self._look)

    def _look(self) -> None:
        late_ns = time.monotonic_ns() - self._due_ns
        if late_ns > self._probe_late_ns_max:
            self._probe_late_ns_max = late_ns
        self._arm()

    def note_turn(self, spent_ns: int, cpu_ns: int) -> None:
        """How long a turn took by the clock, and how long the thread itself worked in it."""
        self._turns += 1
        self._turn_ns_total += spent_ns
        if spent_ns > self._turn_ns_max:
            self._turn_ns_max = spent_ns
        if spent_ns > STEP_NS_MAX:
            self._turns_late += 1
        if cpu_ns > self._turn_cpu_ns_max:
            self._turn_cpu_ns_max = cpu_ns
        if cpu_ns > STEP_NS_MAX:
            self._turns_cpu_late += 1

    @property
    def figures(self) -> LoopFigures:
        return LoopFigures(
            self._turns,
            self._turn_ns_total,
            self._turn_ns_max,
            self._turns_late,
            self._turn_cpu_ns_max,
            self._turns_cpu_late,
            self._probe_late_ns_max,
        )
