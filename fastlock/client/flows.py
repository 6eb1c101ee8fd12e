"""Sequences of steps that wait for answers and for time, without a loop, a thread or a clock of their own.

A flow is a coroutine that only ever waits for a `Signal` or a moment. Whoever owns the clock calls `run`; so
the same client code runs under asyncio, in a thread, and in tests that move time by hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
NEVER_NS = 1 << 62

# Moments nobody waits for any more stay in the heap until they pass; beyond this share it is swept.
_STALE_MOMENTS_MIN = 256

_ANY_PAUSE = -1


class Cancelled(BaseException):
    """Thrown into a flow whose caller no longer wants its result."""


class Signal:
    """Something flows wait for. It carries no value: a woken flow looks at the world again."""

    __slots__ = ("_flows",)

    def __init__(self) -> None:
        self._flows: list[tuple[Flow[Any], int]] = []

    def fire(self) -> None:
        """Wake everyone who waits at this moment."""
        if self._flows:
            flows, self._flows = self._flows, []
            for flow, pause in flows:
                flow.wake(pause, True)

    def until(self, deadline_ns: int) -> Pause:
        """`await signal.until(deadline)` is True if it fired, False if time was up first."""
        return Pause(self, deadline_ns)

    def add(self, flow: Flow[Any], pause: int) -> None:
        self._flows.append((flow, pause))

    def discard(self, flow: Flow[Any], pause: int) -> None:
        if (flow, pause) in self._flows:
            self._flows.remove((flow, pause))


class Pause:
    """What a flow waits for: a signal, a moment, or whichever comes first."""

    __slots__ = ("deadline_ns", "signal")

    def __init__(self, signal: Signal | None, deadline_ns: int) -> None:
        self.signal = signal
        self.deadline_ns = deadline_ns

    def __await__(self) -> Generator[Pause, bool, bool]:
        return (yield self)


def moment(deadline_ns: int) -> Pause:
    """`await moment(deadline)` returns when that time has come."""
    return Pause(None, deadline_ns)


class Flow(Generic[Result]):
    """One running sequence of steps."""

    __slots__ = ("_coroutine", "_flows", "_pause", "_waits_for", "error", "finished", "on_finish", "result")

    def __init__(self, flows: Flows, coroutine: Coroutine[Pause, bool, Result]) -> None:
        self.finished = False
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.on_finish: Callable[[Flow[Result]], None] | None = None
        self._flows = flows
        self._coroutine = coroutine
        # Which of its pauses it is in; the first is the one before its first step.
        self._pause = 0
        self._waits_for: Signal | None = None

    def wake(self, pause: int, fired: bool) -> None:
        self._flows.ready.append((self, pause, fired))

    def cancel(self) -> None:
        """Throw Cancelled into it at its next step; it may still clean up."""
        self._flows.ready.append((self, _ANY_PAUSE, False))

    def waits(self, pause: int) -> bool:
        return pause == self._pause and not self.finished

    def step(self, pause: int, fired: bool) -> None:
        """Go on after a pause. A wake that belongs to an earlier pause came too late and does nothing."""
        if self.finished or (pause != self._pause and pause != _ANY_PAUSE):
            return
        if self._waits_for is not None and not fired:
            self._waits_for.discard(self, self._pause)
        self._pause += 1
        try:
            if pause == _ANY_PAUSE:
                wanted = self._coroutine.throw(Cancelled())
            else:
                wanted = self._coroutine.send(fired if self._pause > 1 else None)  # type: ignore[arg-type]
        except StopIteration as stop:
            self._finish(stop.value, None)
        except (Exception, Cancelled) as raised:
            self._finish(None, raised)
        else:
            self._waits_for = wanted.signal
            if wanted.signal is not None:
                wanted.signal.add(self, self._pause)
            if wanted.deadline_ns < NEVER_NS:
                self._flows.at(wanted.deadline_ns, self, self._pause)

    def _finish(self, result: Result | None, error: BaseException | None) -> None:
        self.finished = True
        self.result = result
        self.error = error
        if self.on_finish is not None:
            self.on_finish(self)


class Flows:
    """All flows of one client, run by whoever owns the clock."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.ready: deque[tuple[Flow[Any], int, bool]] = deque()
        self._moments: list[tuple[int, int, Flow[Any], int]] = []
        self._count = 0
        self._sweep_at = _STALE_MOMENTS_MIN

    def start(self, coroutine: Coroutine[Pause, bool, Result]) -> Flow[Result]:
        """Begin a flow; its first steps run with the next `run`."""
        flow = Flow(self, coroutine)
        self.ready.append((flow, 0, False))
        return flow

    def at(self, deadline_ns: int, flow: Flow[Any], pause: int) -> None:
        if len(self._moments) >= self._sweep_at:
            self._moments = [entry for entry in self._moments if entry[2].waits(entry[3])]
            heapify(self._moments)
            self._sweep_at = max(_STALE_MOMENTS_MIN, 2 * len(self._moments))
        self._count += 1
        heappush(self._moments, (deadline_ns, self._count, flow, pause))

    def run(self, now_ns: int) -> None:
        """Let time pass up to now, and take every step that can be taken."""
        self.now_ns = now_ns
        moments = self._moments
        while moments and moments[0][0] <= now_ns:
            _, _, flow, pause = heappop(moments)
            flow.wake(pause, False)
        ready = self.ready
        while ready:
            flow, pause, fired = ready.popleft()
            flow.step(pause, fired)

    @property
    def wake_ns(self) -> int:
        """When `run` must be called next, at the latest."""
        if self.ready:
            return self.now_ns
        moments = self._moments
        while moments and not moments[0][2].waits(moments[0][3]):
            heappop(moments)
        return moments[0][0] if moments else NEVER_NS
