"""The node's clock: monotonic milliseconds, handed to everything that measures time."""

from __future__ import annotations

import time
from typing import Protocol

_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Never goes back; jumps of the wall clock do not reach it. Tests bring one they can move."""

    def now_ms(self) -> int: ...


class MonotonicClock:
    """CLOCK_MONOTONIC: it stands still while the machine sleeps, which only makes leases live longer."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS
