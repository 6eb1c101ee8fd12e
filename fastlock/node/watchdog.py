"""How long the loop was away from its sockets: the longest step, and how many were too long.

Whatever runs on the loop is wrapped in `step`, or happens between two beats of a timer thread-free probe: a
callback that asks to be called again and looks how late it was.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

# What nothing on the loop should take longer than.
STEP_NS_MAX = 5_000_000
# How often the probe looks. A stall is seen when it is longer than what the probe waits.
PROBE_SECONDS = 0.05


class LoopFigures(NamedTuple):
    """Since the start, or since `Watchdog.reset`."""

    turns: int
    turn_ns_total: int
    turn_ns_max: int
    turns_late: int  # above STEP_NS_MAX
    probe_late_ns_max: int


class Watchdog:
    """Measures turns exactly, and everything else on the loop by how late a timer comes.

    A timer also comes late when the machine has no processor for the process: `turn_ns_max` says what the
    node itself did, `probe_late_ns_max` what a client may have felt.
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

    def note_turn(self, spent_ns: int) -> None:
        self._turns += 1
        self._turn_ns_total += spent_ns
        if spent_ns > self._turn_ns_max:
            self._turn_ns_max = spent_ns
        if spent_ns > STEP_NS_MAX:
            self._turns_late += 1

    @property
    def figures(self) -> LoopFigures:
        return LoopFigures(
            self._turns, self._turn_ns_total, self._turn_ns_max, self._turns_late, self._probe_late_ns_max
        )
