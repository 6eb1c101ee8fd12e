"""What one command does to a family of locks, and whether that can have been its answer.

A command with a known answer either fits a state or does not; one without an answer fits every state.
Where the events are known, every change must be the next one of them.
"""

from __future__ import annotations

from collections.abc import Callable

from fastlock.testing.lock_model import NO_CLAIM, Claim, Holder, LockModel, Operation, Row, State


def step(model: LockModel, state: State, operation: Operation) -> tuple[State | None, list[int]]:
    """The state after `operation`, or None if that cannot have been its answer; and who was served."""
    work = Step(model, state)
    fits = _KINDS[operation.kind](work, operation)
    return (work.result() if fits else None), work.served


class Step:
    """One command at work on a copy of a state. What returns False contradicts the command's answer."""

    __slots__ = (
        "_before",
        "_cancelled",
        "_ended",
        "_events",
        "_exact",
        "_model",
        "_revision",
        "_rows",
        "served",
    )

    def __init__(self, model: LockModel, state: State) -> None:
        self._model = model
        self._before = state
        self._rows = list(state.rows)
        self._ended = state.ended
        self._cancelled = state.cancelled
        self._revision = state.revision
        self._events = state.events
        # Whether `_revision` is the group's own, and not just a bound below it: then the next is one more.
        self._exact = False
        # Claims that left a queue with a grant.
        self.served: list[int] = []

    def result(self) -> State:
        rows = tuple(self._rows)
        before = self._before
        if (
            rows == before.rows
            and self._ended == before.ended
            and self._cancelled == before.cancelled
            and self._events == before.events
        ):
            return before
        return State(rows, self._ended, self._cancelled, self._revision, self._events)

    # Revisions and events.

    def _next(self, told: int) -> bool:
        """The group's revision rises by one, to what was told if anything was, before the next event."""
        following = self._revision + 1
        if told:
            if told < following or (self._exact and told != following):
                return False
            following = told
            self._exact = True
        events = self._model.events
        if events is not None and self._events < len(events) and events[self._events].revision <= following:
            return False
        self._revision = following
        return True

    def _happens(self, kind: str, position: int, holder: Holder | None, told: int) -> Holder | bool | None:
        """Something happens that is an event: the next one, where the events are known.

        `holder` is whom it concerns, with a token of 0 where that is not known; it is given back with
        what the event says. `told` is the revision in an answer. False: this cannot have happened.
        """
        model = self._model
        events = model.events
        if events is None:
            return holder if self._next(told) else False
        if self._events == len(events):
            return False
        event = events[self._events]
        following = self._revision + 1
        if event.kind != kind or model.position[event.key] != position or told not in (0, event.revision):
            return False
        if event.revision < following or (self._exact and event.revision != following):
            return False
        if holder is not None:
            if event.lease != model.claims[holder.claim].lease_id or holder.token not in (0, event.token):
                return False
            holder = Holder(holder.claim, event.token)
        self._revision = event.revision
        self._exact = True
        self._events += 1
        return holder

    def _holding(self, key: bytes, operation: Operation) -> Holder | None:
        number = self._model.claim_of(operation)
        for holder in self._rows[self._model.position[key]].holders:
            if holder.claim == number:
                return holder
        return None

    # Acquiring.

    def acquire(self, operation: Operation) -> bool:
        model = self._model
        code = operation.code
        number = model.claim_of(operation)
        claim = model.claims[number]
        if self._cancelled >> number & 1:
            return code in (None, "waitCancelled", "leaseLost")
        if self._ended >> claim.lease & 1:
            return code in (None, "leaseLost", "leaseExists")
        if code == "leaseLost" and claim.lease in model.copied:
            return True
        rows = [self._rows[p] for p in claim.positions]
        if any(holder.claim == number for holder in rows[0].holders):
            return code in (None, "ok", "entered")
        if number in rows[0].queue:
            return code in (None, "queued", "entered")
        if any(self._mismatch(row, claim) for row in rows):
            return code in (None, "modeMismatch")
        if all(not row.queue and self._fits(row, claim) for row in rows):
            return code in (None, "ok", "entered") and self._grant(number, "acquired")
        if not operation.wait:
            return self._conflict_fits(rows, operation)
        if code not in (None, "queued", "entered") or not self._next(operation.revision):
            return False
        for position in claim.positions:
            row = self._rows[position]
            self._rows[position] = row._replace(queue=(*row.queue, number))
        return True

    def _conflict_fits(self, rows: list[Row], operation: Operation) -> bool:
        if operation.code is None:
            return True
        if operation.code == "lockDelayed":
            return any(row.delay for row in rows)
        if operation.code != "notAcquired":
            return False
        if operation.token and len(rows) == 1:
            return bool(rows[0].holders) and rows[0].holders[0].token in (0, operation.token)
        return True

    def _mismatch(self, row: Row, claim: Claim) -> bool:
        if not row.holders and not row.queue:
            return False
        sample = self._model.claims[row.holders[0].claim if row.holders else row.queue[0]]
        if (sample.mode == "semaphore") != (claim.mode == "semaphore"):
            return True
        return claim.mode == "semaphore" and sample.limit != claim.limit

    def _fits(self, row: Row, claim: Claim) -> bool:
        if row.delay:
            return False
        if claim.mode == "exclusive":
            return not row.holders
        held = [self._model.claims[holder.claim] for holder in row.holders]
        if claim.mode == "shared":
            return all(other.mode == "shared" for other in held)
        return sum(other.units for other in held) + claim.units <= claim.limit

    def _grant(self, number: int, kind: str) -> bool:
        tokens = self._model.tokens
        for position in self._model.claims[number].positions:
            token = tokens.get((number, position), 0)
            # The token is the revision of the grant.
            holder = self._happens(kind, position, Holder(number, token), token)
            if not isinstance(holder, Holder):
                return False
            row = self._rows[position]
            self._rows[position] = row._replace(holders=(*row.holders, holder))
        return True

    def _serve(self, *positions: int) -> bool:
        """Grant what the queues allow; an acquireAll that was served adds its other queues to the list."""
        waiting = list(positions)
        while waiting:
            position = waiting.pop(0)
            while (number := self._first_to_serve(position)) != NO_CLAIM:
                others = self._model.claims[number].positions
                for other in others:
                    row = self._rows[other]
                    self._rows[other] = row._replace(queue=row.queue[1:])
                self.served.append(number)
                if not self._grant(number, "transferred"):
                    return False
                waiting.extend(other for other in others if other != position)
        return True

    def _first_to_serve(self, position: int) -> int:
        """The first waiter of a queue if it may have the lock, on every one of its keys."""
        queue = self._rows[position].queue
        if not queue:
            return NO_CLAIM
        claim = self._model.claims[queue[0]]
        for other in claim.positions:
            row = self._rows[other]
            if not row.queue or row.queue[0] != queue[0] or not self._fits(row, claim):
                return NO_CLAIM
        return queue[0]

    # Leaving.

    def _depart(self, position: int, holder: Holder, kind: str, told: int) -> bool:
        """Remove one holder and serve its row; a bound lease ends with its last claim."""
        if self._happens(kind, position, holder, told) is False:
            return False
        row = self._rows[position]
        self._rows[position] = row._replace(holders=tuple(h for h in row.holders if h != holder))
        self._end_if_bound(holder.claim)
        return self._serve(position)

    def _leave_queue(self, number: int) -> bool:
        positions = self._model.claims[number].positions
        for position in positions:
            row = self._rows[position]
            self._rows[position] = row._replace(queue=tuple(c for c in row.queue if c != number))
        self._end_if_bound(number)
        return self._serve(*positions)

    def _end_if_bound(self, number: int) -> None:
        claims = self._model.claims
        if not claims[number].bound:
            return
        lease = claims[number].lease
        for row in self._rows:
            if any(claims[holder.claim].lease == lease for holder in row.holders):
                return
            if any(claims[waiter].lease == lease for waiter in row.queue):
                return
        self._ended |= 1 << lease

    def granted(self, operation: Operation) -> bool:
        return all(self._holding(key, operation) is not None for key in operation.keys)

    def release(self, operation: Operation) -> bool:
        key = operation.keys[0]
        holder = self._holding(key, operation)
        if holder is None:
            return operation.code in (None, "staleToken", "leaseLost")
        if operation.code not in (None, "ok"):
            return False
        return self._depart(self._model.position[key], holder, "released", operation.revision)

    def cancel(self, operation: Operation) -> bool:
        model = self._model
        number = model.claim_of(operation)
        if number in self._rows[model.position[operation.keys[0]]].queue:
            return operation.code in (None, "ok") and not operation.revision and self._leave_queue(number)
        held = [(key, holder) for key in operation.keys if (holder := self._holding(key, operation))]
        for key, holder in held:
            # The revision that is told is the last departure's.
            told = operation.revision if key == held[-1][0] else 0
            if not self._depart(model.position[key], holder, "released", told):
                return False
        # A cancel that is told a revision released a lock, and one that is not did not.
        if held:
            return operation.code is None or (operation.code == "ok" and operation.revision > 0)
        if operation.revision:
            return False
        if operation.code in (None, "ok") and number != NO_CLAIM:
            self._cancelled |= 1 << number
        return True

    def end(self, operation: Operation) -> bool:
        """A lease ends: its waiters leave, then its holders, and then the queues it left are served."""
        model = self._model
        claims = model.claims
        lease = model.lease_number[operation.lease]
        if self._ended >> lease & 1:
            # What the log ended was there until then.
            return operation.end is not None and not operation.revision
        if lease not in model.copied:
            self._ended |= 1 << lease
        left: list[int] = []
        for position, row in enumerate(self._rows):
            queue = tuple(c for c in row.queue if claims[c].lease != lease)
            if queue != row.queue:
                left.append(position)
                self._rows[position] = row._replace(queue=queue)
        assert operation.code is not None
        for position, row in enumerate(self._rows):
            for holder in row.holders:
                if claims[holder.claim].lease != lease:
                    continue
                # What the lease held elsewhere departs in between.
                self._exact = False
                if claims[holder.claim].lock_delay and operation.code == "expired":
                    self._rows[position] = self._rows[position]._replace(delay=lease + 1)
                if not self._depart(position, holder, operation.code, 0):
                    return False
        self._exact = False
        return self._serve(*left) and self._is_at(operation.revision)

    def end_importing(self, operation: Operation) -> bool:
        claims = self._model.claims
        lease = self._model.lease_number[operation.lease]
        position = self._model.position[operation.keys[0]]
        row = self._rows[position]
        assert operation.code is not None
        for holder in row.holders:
            if claims[holder.claim].lease == lease:
                self._exact = False
                if self._happens(operation.code, position, holder, 0) is False:
                    return False
        holders = tuple(holder for holder in row.holders if claims[holder.claim].lease != lease)
        queue = tuple(waiter for waiter in row.queue if claims[waiter].lease != lease)
        delayed = operation.code == "expired" and any(
            claims[holder.claim].lock_delay for holder in row.holders if holder not in holders
        )
        self._rows[position] = Row(holders, queue, row.value, lease + 1 if delayed else row.delay)
        return True

    def lost(self, operation: Operation) -> bool:
        lease = self._model.lease_number[operation.lease]
        return bool(self._ended >> lease & 1) or lease in self._model.copied

    def alive(self, operation: Operation) -> bool:
        lease = self._model.lease_number[operation.lease]
        return not self._ended >> lease & 1 or lease in self._model.copied

    def imported(self, operation: Operation) -> bool:
        """Queues are served in the order in which their first waiters were enqueued."""
        firsts = [(row.queue[0], position) for position, row in enumerate(self._rows) if row.queue]
        entered = self._model.entered
        firsts.sort(key=lambda first: entered.get(first[0], 0))
        return self._serve(*(position for _, position in firsts))

    def end_delay(self, operation: Operation) -> bool:
        lease = self._model.lease_number[operation.lease]
        for position, row in enumerate(self._rows):
            if row.delay == lease + 1:
                self._rows[position] = row._replace(delay=0)
                if self._happens("delayEnded", position, None, 0) is False or not self._serve(position):
                    return False
        return True

    def force(self, operation: Operation) -> bool:
        position = self._model.position[operation.keys[0]]
        row = self._rows[position]
        aimed = [h for h in row.holders if operation.token == 0 or h.token in (0, operation.token)]
        if not aimed and (operation.token or not row.delay):
            return operation.code in (None, "staleToken", "notFound")
        if operation.code not in (None, "ok"):
            return False
        left = tuple(h for h in row.holders if h not in aimed)
        self._rows[position] = row._replace(holders=left, delay=0)
        for holder in aimed:
            told = operation.revision if holder == aimed[-1] else 0
            if self._happens("forced", position, holder, told) is False:
                return False
            self._end_if_bound(holder.claim)
        return self._serve(position)

    # Values.

    def put(self, operation: Operation) -> bool:
        return self._write(operation, "put", operation.value)

    def delete(self, operation: Operation) -> bool:
        return self._write(operation, "deleted", None)

    def _write(self, operation: Operation, kind: str, value: bytes | None) -> bool:
        key = operation.keys[0]
        position = self._model.position[key]
        row = self._rows[position]
        holder = self._holding(key, operation) if operation.token else None
        if holder is None and (operation.token or row.holders):
            return operation.code in (None, "staleToken", "leaseLost", "heldByOther")
        if value is None and row.value is None:
            return operation.code in (None, "notFound")
        if operation.code not in (None, "ok"):
            return False
        if self._happens(kind, position, holder, operation.revision) is False:
            return False
        self._rows[position] = row._replace(value=value)
        return True

    def get(self, operation: Operation) -> bool:
        model = self._model
        row = self._rows[model.position[operation.keys[0]]]
        if not self._is_at(operation.revision):
            return False
        if operation.value != row.value or operation.waiters != len(row.queue):
            return False
        if len(operation.holders) != len(row.holders):
            return False
        for (lease, token), holder in zip(operation.holders, row.holders, strict=True):
            if lease != model.claims[holder.claim].lease_id or holder.token not in (0, token):
                return False
        return True

    def _is_at(self, revision: int) -> bool:
        """Whether this can be the group's revision after everything that happened; 0 = it is not known."""
        if not revision:
            return True
        if revision < self._revision:
            return False
        events = self._model.events
        return events is None or self._events == len(events) or revision < events[self._events].revision


_KINDS: dict[str, Callable[[Step, Operation], bool]] = {
    "acquire": Step.acquire,
    "granted": Step.granted,
    "release": Step.release,
    "cancel": Step.cancel,
    "end": Step.end,
    "end_importing": Step.end_importing,
    "lost": Step.lost,
    "alive": Step.alive,
    "imported": Step.imported,
    "end_delay": Step.end_delay,
    "force": Step.force,
    "put": Step.put,
    "delete": Step.delete,
    "get": Step.get,
}
