"""What answers and events that are still to be explained need: a step that takes it away leads nowhere."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from fastlock.testing.lock_model import LockModel, Operation, Row, State

# What an acquire is told where its lease ended or it was called off; and where it holds or waits.
_WITHOUT_LEASE = ("leaseLost", "leaseExists", "waitCancelled")
_ENTERED = ("ok", "queued", "entered")


class Place(NamedTuple):
    """Which operations have acted: all answered ones before `first`, and those with a bit beyond it."""

    first: int
    # Bit i stands for the answered operation first + i.
    beyond: int
    # Bit i stands for the unanswered operation i.
    used: int

    def has(self, position: int) -> bool:
        return position < self.first or bool(self.beyond >> (position - self.first) & 1)

    def with_answered(self, position: int) -> Place:
        first, beyond = self.first, self.beyond | 1 << (position - self.first)
        while beyond & 1:
            first += 1
            beyond >>= 1
        return Place(first, beyond, self.used)


class Outstanding:
    """Looks ahead in one family: which operations and events rest on which claims and leases."""

    def __init__(
        self, model: LockModel, answered: Sequence[Operation], unanswered: Sequence[Operation]
    ) -> None:
        self._model = model
        # Answers that need a claim on a key, a lease that lives, an acquire that was not called off.
        self._need_claim: dict[tuple[int, int], list[int]] = {}
        self._need_lease: dict[int, list[int]] = {}
        self._need_entry: dict[int, list[int]] = {}
        # Acquires that bring a lease's claims to a key.
        self._entering: dict[tuple[int, int], list[int]] = {}
        self._may_enter: dict[tuple[int, int], int] = {}
        for position, operation in enumerate(answered):
            if operation.lease:
                self._note_needs(position, operation)
        for number, operation in enumerate(unanswered):
            if operation.kind == "acquire":
                for place in self._places(operation):
                    self._may_enter[place] = self._may_enter.get(place, 0) | 1 << number
        # Numbers of the events that grant a key to a lease.
        self._grants: dict[tuple[int, int], list[int]] = {}
        for number, event in enumerate(model.events or ()):
            if event.kind in ("acquired", "transferred"):
                place = (model.lease_number.get(event.lease, -1), model.position[event.key])
                self._grants.setdefault(place, []).append(number)

    def _places(self, operation: Operation) -> list[tuple[int, int]]:
        lease = self._model.lease_number[operation.lease]
        return [(lease, self._model.position[key]) for key in operation.keys]

    def _note_needs(self, position: int, operation: Operation) -> None:
        model = self._model
        claim = model.claim_of(operation)
        if _needs_claim(operation):
            for key in operation.keys:
                self._need_claim.setdefault((claim, model.position[key]), []).append(position)
        if operation.kind == "alive":
            self._need_lease.setdefault(model.lease_number[operation.lease], []).append(position)
        if operation.kind != "acquire" or operation.code in _WITHOUT_LEASE:
            return
        self._need_lease.setdefault(model.lease_number[operation.lease], []).append(position)
        self._need_entry.setdefault(claim, []).append(position)
        if operation.code in _ENTERED:
            for place in self._places(operation):
                self._entering.setdefault(place, []).append(position)

    def rules_out(self, before: State, after: State, place: Place) -> bool:
        """Whether a step took away what is still needed; what is gone never comes back."""
        for position, (old, new) in enumerate(zip(before.rows, after.rows, strict=True)):
            if old is new:
                continue
            for claim in _claims(old) - _claims(new):
                if self._misses(self._need_claim.get((claim, position)), place):
                    return True
                if claim in old.queue and self._too_few(claim, position, after, place):
                    return True
        for lease in _bits(after.ended & ~before.ended):
            if self._misses(self._need_lease.get(lease), place):
                return True
        called_off = _bits(after.cancelled & ~before.cancelled)
        return any(self._misses(self._need_entry.get(claim), place) for claim in called_off)

    def _misses(self, positions: list[int] | None, place: Place) -> bool:
        return positions is not None and any(not place.has(p) for p in positions)

    def _too_few(self, claim: int, position: int, state: State, place: Place) -> bool:
        """Whether a lease has fewer claims on a key, here and to come, than events say it is granted."""
        claims = self._model.claims
        lease = claims[claim].lease
        grants = self._grants.get((lease, position))
        if grants is None:
            return False
        wanted = len(grants) - bisect_left(grants, state.events)
        if not wanted:
            return False
        there = sum(claims[waiter].lease == lease for waiter in state.rows[position].queue)
        coming = sum(not place.has(p) for p in self._entering.get((lease, position), ()))
        perhaps = (self._may_enter.get((lease, position), 0) & ~place.used).bit_count()
        return there + coming + perhaps < wanted


def _needs_claim(operation: Operation) -> bool:
    if operation.kind == "granted":
        return True
    if operation.kind in ("release", "put", "delete"):
        return operation.code == "ok" and operation.token > 0
    return operation.kind == "cancel" and operation.revision > 0


def _claims(row: Row) -> set[int]:
    return {*row.queue, *(holder.claim for holder in row.holders)}


def _bits(number: int) -> list[int]:
    found = []
    while number:
        found.append(number.bit_length() - 1)
        number &= ~(1 << found[-1])
    return found
