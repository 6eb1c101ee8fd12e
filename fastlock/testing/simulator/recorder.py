"""What clients did and were told, and when logs ended their leases, for the linearizability checker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fastlock.testing.lock_model import Operation
from fastlock.testing.simulator.time import Timeline


@dataclass(slots=True)
class Stay:
    """Where a key is from some time on. Until the move there is complete, nobody owns it."""

    since_ns: int
    group: int
    complete: bool
    # Among all stays and ends: several of them can come with one entry, at one time.
    order: int


@dataclass(slots=True)
class End:
    """A group's log ended a lease, or the copy of it that came there with a key."""

    group: int
    time_ns: int
    # The group's afterwards.
    revision: int
    cause: str
    order: int


@dataclass(slots=True)
class Life:
    """What is known of one lease."""

    group: int
    born_ns: int
    # When the last keep-alive that was granted was sent, and when it was answered.
    alive_ns: tuple[int, int] | None = None
    # When its client was told that it is gone.
    lost_ns: int = 0
    ends: list[End] = field(default_factory=list)
    # Groups that took in a copy of it with somebody's key.
    arrivals: set[int] = field(default_factory=set)

    @property
    def end(self) -> End | None:
        return next((end for end in self.ends if end.group == self.group), None)


class Recorder:
    """Operations begin and may finish; one that never does has an unknown outcome."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._operations: list[Operation] = []
        self.finished = 0
        self._stays: dict[bytes, list[Stay]] = {}
        self._noted = 0
        self._lives: dict[int, Life] = {}

    def begin(self, kind: str, **fields: Any) -> int:
        self._operations.append(Operation(kind, self._timeline.now_ns, None, **fields))
        return len(self._operations) - 1

    def finish(self, operation: int, code: str, **fields: Any) -> None:
        self.finished += 1
        found = self._operations[operation]
        self._operations[operation] = replace(found, end=self._timeline.now_ns, code=code, **fields)

    def observe(self, kind: str, since: int, **fields: Any) -> None:
        """Something seen between the call of operation `since` and this moment."""
        call = self._operations[since].call
        self._operations.append(Operation(kind, call, self._timeline.now_ns, **fields))

    def forget(self, operation: int) -> None:
        """It was refused before it reached a lock table, and never will reach one."""
        self._operations[operation] = replace(self._operations[operation], kind="")

    # Leases.

    def lease_begins(self, lease: int, group: int) -> None:
        self._lives[lease] = Life(group, self._timeline.now_ns)

    def lease_lives(self, lease: int, sent_ns: int) -> None:
        """Its group answered something, sent then, that says so."""
        self._lives[lease].alive_ns = (sent_ns, self._timeline.now_ns)

    def lease_lost(self, lease: int) -> None:
        """Its group said so."""
        self._lives[lease].lost_ns = self._timeline.now_ns

    def lease_ended(self, lease: int, group: int, revision: int, cause: str) -> None:
        """A group's log ended it there."""
        self._noted += 1
        self._lives[lease].ends.append(End(group, self._timeline.now_ns, revision, cause, self._noted))

    def lease_arrives(self, lease: int, group: int) -> None:
        """It comes with a key, where it may have been before and ended."""
        self._lives[lease].arrivals.add(group)

    # Moves.

    def arrived(self, key: bytes, group: int, complete: bool) -> None:
        """A group owns a key from here on, or takes it in: another group exported it."""
        self._noted += 1
        self._stays.setdefault(key, []).append(Stay(self._timeline.now_ns, group, complete, self._noted))

    def may_have_left(self, operation: int) -> bool:
        """Whether the key of an operation was exported since its call."""
        found = self._operations[operation]
        return any(stay.since_ns >= found.call for stay in self._stays[found.keys[0]])

    # The whole history.

    def operations(self) -> list[Operation]:
        found = [operation for operation in self._operations if operation.kind]
        for key, stays in self._stays.items():
            found += [
                Operation("imported", stay.since_ns, None, (key,)) for stay in stays[1:] if stay.complete
            ]
        keys_of: dict[int, dict[tuple[bytes, ...], None]] = {}
        for operation in self._operations:
            if operation.kind == "acquire":
                keys_of.setdefault(operation.lease, {})[operation.keys] = None
        for lease, life in self._lives.items():
            found += self._life(lease, life)
            for keys in keys_of.get(lease, ()):
                if not self._stayed_together(life, keys[0]):
                    found += self._copies(lease, life, keys)
        return found

    def _life(self, lease: int, life: Life) -> list[Operation]:
        """What happened to a lease in its own group."""
        found = [Operation("end_delay", life.born_ns, None, (), lease)]
        if (end := life.end) is not None:
            found.append(_ended(lease, end, ()))
        if life.alive_ns is not None:
            found.append(Operation("alive", *life.alive_ns, (), lease, code="ok"))
        if life.lost_ns:
            since_ns = life.alive_ns[0] if life.alive_ns is not None else life.born_ns
            found.append(Operation("lost", since_ns, life.lost_ns, (), lease, code="leaseLost"))
        return found

    def _stayed_together(self, life: Life, key: bytes) -> bool:
        """Whether the key was in the lease's own group for as long as the lease lived, once and for all."""
        stays = self._stays[key]
        first = [stay for stay in stays if stay.since_ns <= life.born_ns][-1]
        last_order = life.end.order if life.end is not None else self._noted
        moved = any(first.order < stay.order <= last_order for stay in stays)
        returned = life.group in life.arrivals
        return first.group == life.group and first.complete and not moved and not returned

    def _copies(self, lease: int, life: Life, keys: tuple[bytes, ...]) -> list[Operation]:
        """What happened to a lease wherever the keys were at that time."""
        found = [Operation("copied", life.born_ns, None, keys[:1], lease)]
        for end in life.ends:
            stay = [stay for stay in self._stays[keys[0]] if stay.order < end.order][-1]
            if stay.group == end.group and stay.complete:
                found.append(_ended(lease, end, keys[:1]))
            elif stay.group == end.group:
                # Which rows had arrived is not known.
                whole = replace(_ended(lease, end, ()), end=None, kind="end_importing")
                found += [replace(whole, keys=(key,)) for key in keys]
        return found


def _ended(lease: int, end: End, keys: tuple[bytes, ...]) -> Operation:
    return Operation("end", end.time_ns, end.time_ns, keys, lease, code=end.cause, revision=end.revision)
