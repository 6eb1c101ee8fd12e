"""Virtual time: one queue of events in true time, and clocks that drift away from it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

_PPM = 1_000_000


class Timeline:
    """Runs what was scheduled, in order of time and then of scheduling. Idle time costs nothing."""

    __slots__ = ("_queue", "_scheduled", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self._scheduled = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Run `action` at a true time, or at once where that lies in the past."""
        self._scheduled += 1
        heappush(self._queue, (max(time_ns, self.now_ns), self._scheduled, action, arguments))

    def after(self, delay_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        self._scheduled += 1
        heappush(self._queue, (self.now_ns + delay_ns, self._scheduled, action, arguments))

    def run_until(self, end_ns: int) -> int:
        """Run everything up to and including `end_ns`; the number of events that ran."""
        queue = self._queue
        count = 0
        while queue and queue[0][0] <= end_ns:
            self.now_ns, _, action, arguments = heappop(queue)
            action(*arguments)
            count += 1
        self.now_ns = end_ns
        return count


class Clock:
    """One machine's monotonic clock: it runs `drift_ppm` too fast (or slow) and may leap forward."""

    __slots__ = ("_local_base_ns", "_rate", "_timeline", "_true_base_ns")

    def __init__(self, timeline: Timeline, drift_ppm: int = 0, offset_ns: int = 0) -> None:
        self._timeline = timeline
        self._true_base_ns = timeline.now_ns
        self._local_base_ns = timeline.now_ns + offset_ns
        self._rate = _PPM + drift_ppm

    @property
    def drift_ppm(self) -> int:
        return self._rate - _PPM

    def now_ns(self) -> int:
        return self._local_base_ns + (self._timeline.now_ns - self._true_base_ns) * self._rate // _PPM

    def true_now_ns(self) -> int:
        return self._timeline.now_ns

    def true_ns(self, local_ns: int) -> int:
        """When, in true time, this clock shows at least `local_ns`, if nothing disturbs it."""
        return self._true_base_ns + -(-(local_ns - self._local_base_ns) * _PPM // self._rate)

    def set_drift(self, drift_ppm: int) -> None:
        self._local_base_ns = self.now_ns()
        self._true_base_ns = self._timeline.now_ns
        self._rate = _PPM + drift_ppm

    def leap(self, forward_ns: int) -> None:
        """The clock counted time that passed for nobody else, like a suspended machine's."""
        self._local_base_ns += forward_ns
