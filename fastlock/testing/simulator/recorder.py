"""What clients did and were told, as the linearizability checker wants it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fastlock.testing.lock_model import Operation
from fastlock.testing.simulator.time import Timeline


@dataclass(slots=True)
class Move:
    """One key on its way to another group: when its export was asked for, and when that was known done."""

    begun_ns: int
    exported_ns: int = 0


class Recorder:
    """Operations begin and may finish; one that never does has an unknown outcome."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._operations: list[Operation] = []
        self.finished = 0
        # How keys moved from one group to another, and since when each lease is known to live on.
        self._moves: dict[bytes, list[Move]] = {}
        self._alive: dict[int, list[int]] = {}

    def begin(self, kind: str, **fields: Any) -> int:
        self._operations.append(Operation(kind, self._timeline.now_ns, None, **fields))
        return len(self._operations) - 1

    def finish(self, operation: int, code: str, **fields: Any) -> None:
        self.finished += 1
        found = self._operations[operation]
        self._operations[operation] = replace(found, end=self._timeline.now_ns, code=code, **fields)

    def postpone(self, operation: int, call_ns: int) -> None:
        """The end of a lease is known not to have happened before this time."""
        found = self._operations[operation]
        self._alive.setdefault(found.lease, [found.call]).append(call_ns)
        self._operations[operation] = replace(found, call=call_ns)

    def observe(self, kind: str, since: int, **fields: Any) -> None:
        """Something seen between the call of operation `since` and this moment."""
        call = self._operations[since].call
        self._operations.append(Operation(kind, call, self._timeline.now_ns, **fields))

    def forget(self, operation: int) -> None:
        """It was refused before it reached a lock table, and never will reach one."""
        self._operations[operation] = replace(self._operations[operation], kind="")

    def leaving(self, key: bytes) -> None:
        self._moves.setdefault(key, []).append(Move(self._timeline.now_ns))

    def exported(self, key: bytes) -> None:
        """The key goes to another group, with copies of the leases that have a claim on it."""
        self._moves[key][-1].exported_ns = self._timeline.now_ns

    def may_have_left(self, operation: int) -> bool:
        """Whether the key of an operation can have been exported since its call."""
        found = self._operations[operation]
        moves = self._moves.get(found.keys[0], ())
        return any(move.exported_ns == 0 or move.exported_ns >= found.call for move in moves)

    def operations(self) -> list[Operation]:
        """The history, with an end of its own for every copy of a lease that a move made."""
        found = [operation for operation in self._operations if operation.kind]
        born: dict[int, int] = {}
        gone: dict[int, int] = {}
        revokes: dict[int, list[Operation]] = {}
        for operation in found:
            if operation.kind == "end":
                lease = operation.lease
                born.setdefault(lease, self._alive.get(lease, [operation.call])[0])
                if operation.end is not None:
                    gone[lease] = min(operation.end, gone.get(lease, operation.end))
                if operation.code == "revoked":
                    revokes.setdefault(lease, []).append(operation)
        copied: dict[tuple[int, bytes], None] = {}
        for operation in list(found):
            key = operation.keys[0] if operation.keys else b""
            moves = [
                move.exported_ns
                for move in self._moves.get(key, ())
                if operation.lease
                and move.exported_ns > born[operation.lease]
                and move.begun_ns <= gone.get(operation.lease, move.begun_ns)
            ]
            if moves and (operation.lease, key) not in copied:
                copied[operation.lease, key] = None
                found += self._ends(operation.lease, key, moves, born[operation.lease])
                # A revoke may have come to the group where the key was, or to another one.
                found += [replace(r, keys=(key,), end=None) for r in revokes.get(operation.lease, ())]
        return found

    def _ends(self, lease: int, key: bytes, moves: list[int], born_ns: int) -> list[Operation]:
        """What a group said about a lease says nothing about its copy in another one."""
        alive = [call for call in self._alive.get(lease, ()) if call <= moves[0]]
        calls = [max(alive, default=born_ns)] + [moves[0]] * len(moves)
        return [Operation("end", call, None, (key,), lease, code="expired") for call in calls]
