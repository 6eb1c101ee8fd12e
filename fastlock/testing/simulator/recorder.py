"""What clients did and were told, as the linearizability checker wants it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastlock.testing.lock_model import Operation
from fastlock.testing.simulator.time import Timeline


class Recorder:
    """Operations begin and may finish; one that never does has an unknown outcome."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._operations: list[Operation] = []
        self.finished = 0

    def begin(self, kind: str, **fields: Any) -> int:
        self._operations.append(Operation(kind, self._timeline.now_ns, None, **fields))
        return len(self._operations) - 1

    def finish(self, operation: int, code: str, **fields: Any) -> None:
        self.finished += 1
        found = self._operations[operation]
        self._operations[operation] = replace(found, end=self._timeline.now_ns, code=code, **fields)

    def postpone(self, operation: int, call_ns: int) -> None:
        """It is known not to have happened before this time."""
        self._operations[operation] = replace(self._operations[operation], call=call_ns)

    def observe(self, kind: str, since: int, **fields: Any) -> None:
        """Something seen between the call of operation `since` and this moment."""
        call = self._operations[since].call
        self._operations.append(Operation(kind, call, self._timeline.now_ns, **fields))

    def forget(self, operation: int) -> None:
        """It was refused before it reached a lock table, and never will reach one."""
        self._operations[operation] = replace(self._operations[operation], kind="")

    def operations(self) -> list[Operation]:
        return [operation for operation in self._operations if operation.kind]
