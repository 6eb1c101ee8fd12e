"""Things that happen one after the other at a client, written as generators on the virtual timeline."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from fastlock.testing.simulator.time import Timeline

Result = TypeVar("Result")

# A step yields how long to wait at most; it is resumed with what arrived, or None when time is up.
Steps = Generator[int, Any, Result]


class Process:
    """One generator; `deliver` wakes it early, a crash of its owner ends it."""

    __slots__ = ("_steps", "_timeline", "_turn", "finished", "owner")

    def __init__(self, timeline: Timeline, owner: Owner, steps: Steps[None]) -> None:
        self._timeline = timeline
        self._steps = steps
        self._turn = 0
        self.owner = owner
        self.finished = False
        timeline.after(0, self._time_is_up, 0)

    def deliver(self, value: Any) -> None:
        """Resume with a value, if the process still waits."""
        self._resume(self._turn, value)

    def _time_is_up(self, turn: int) -> None:
        self._resume(turn, None)

    def _resume(self, turn: int, value: Any) -> None:
        if turn != self._turn or self.finished:
            return
        if self.owner.paused:
            self.owner.deferred.append((self, turn, value))
            return
        if self.owner.dead:
            self.finished = True
            self._steps.close()
            return
        self._turn += 1
        self.owner.current = self
        try:
            wait_ns = self._steps.send(value)
        except StopIteration:
            self.finished = True
            return
        self._timeline.after(wait_ns, self._time_is_up, self._turn)


class Owner:
    """Who runs processes: may be paused, which holds everything back, or die."""

    def __init__(self) -> None:
        self.paused = False
        self.dead = False
        # The process that runs at the moment.
        self.current: Process | None = None
        self.deferred: list[tuple[Process, int, Any]] = []

    def resume(self) -> None:
        self.paused = False
        deferred, self.deferred = self.deferred, []
        for process, turn, value in deferred:
            process._resume(turn, value)
