"""One family of locks as a sequential object: what each command does, and what it may answer.

This is docs/LOCKS.md seen from outside, for the linearizability checker: states are immutable, a
command with a known answer either fits a state or does not, one without an answer fits every state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Operation:
    """One command as its client saw it. `end` is None where no answer ever came.

    Kinds: acquire, granted (a waiter learnt its token), release, cancel, end (of a lease, by
    whatever cause), end_delay, force, put, delete, get. Commands that were refused before they
    reached a lock table have no place in a history.
    """

    kind: str
    call: int
    end: int | None
    keys: tuple[bytes, ...] = ()
    lease: int = 0
    request: int = 0
    mode: str = "exclusive"
    limit: int = 1
    count: int = 1
    wait: bool = False
    bound: bool = False
    lock_delay: bool = False
    # The answer; "entered" is an acquire known to have been granted or enqueued, but not which.
    code: str | None = None
    # acquire: token of the first key, or on a conflict of the first holder (0 = not told);
    # release, put and delete: the token presented; force: the token aimed at (0 = every holder).
    token: int = 0
    # The revision the answer gave this change, or at which a get read; 0 where none was given.
    revision: int = 0
    value: bytes | None = None
    # get: (lease, token) of every holder, and how many wait.
    holders: tuple[tuple[int, int], ...] = ()
    waiters: int = 0
    process: str = ""

    def __str__(self) -> str:
        """One line with what differs from the defaults."""
        end = "unknown" if self.end is None else f"{self.end / 1e9:.6f}"
        parts = [f"{self.call / 1e9:.6f}..{end} {self.kind} {self.code or '?'}"]
        if self.lease:
            parts.append(f"{self.lease:x}/{self.request}")
        for field in fields(self)[7:]:
            value = getattr(self, field.name)
            if field.name != "code" and value != field.default:
                parts.append(f"{field.name}={value!r}")
        return " ".join(parts)


class Claim(NamedTuple):
    lease: int
    request: int
    mode: str
    limit: int
    units: int
    bound: bool
    lock_delay: bool
    # Positions of all keys this claim waits for; one key for a plain acquire.
    positions: tuple[int, ...]


class Holder(NamedTuple):
    claim: Claim
    # None where no client ever learnt it.
    token: int | None


class Row(NamedTuple):
    holders: tuple[Holder, ...]
    queue: tuple[Claim, ...]
    value: bytes | None
    # The lease whose end put the row into delay; 0 = no delay.
    delay: int


class State(NamedTuple):
    rows: tuple[Row, ...]
    # Leases that ended, and (lease, request) called off before they were seen.
    ended: frozenset[int]
    cancelled: frozenset[tuple[int, int]]
    # The highest revision known of anything that happened so far.
    revision: int


EMPTY_ROW = Row((), (), None, 0)
Step = Callable[["LockModel", State, Operation], "State | None"]


class LockModel:
    """The sequential object for one family of keys."""

    def __init__(self, keys: tuple[bytes, ...], operations: Sequence[Operation]) -> None:
        self.keys = keys
        self._position = {key: position for position, key in enumerate(keys)}
        # Leases with copies in several groups: the end of one copy says nothing of the others.
        self._copied = {o.lease for o in operations if o.kind == "end" and o.keys}
        # What any client ever learnt about the token of a claim on a key.
        self._tokens: dict[tuple[int, int, int], int] = {}
        for operation in operations:
            if operation.kind not in ("acquire", "granted") or operation.code not in ("ok", "entered"):
                continue
            for offset, key in enumerate(operation.keys if operation.token else ()):
                place = (self._position[key], operation.lease, operation.request)
                self._tokens[place] = operation.token + offset

    def initial(self) -> State:
        return State((EMPTY_ROW,) * len(self.keys), frozenset(), frozenset(), 0)

    def describe(self, state: State) -> str:
        parts = []
        for key, row in zip(self.keys, state.rows, strict=True):
            holders = [f"{h.claim.lease:x}/{h.claim.request} token {h.token}" for h in row.holders]
            queue = [f"{c.lease:x}/{c.request}" for c in row.queue]
            delay = f" delay of {row.delay:x}" if row.delay else ""
            parts.append(f"{key!r}: held by {holders} queue {queue} value {row.value!r}{delay}")
        return "; ".join(parts)

    def involved(self, state: State) -> list[int]:
        """Leases whose end would change something."""
        leases: dict[int, None] = {}
        for row in state.rows:
            for holder in row.holders:
                leases[holder.claim.lease] = None
            for claim in row.queue:
                leases[claim.lease] = None
            if row.delay:
                leases[row.delay] = None
        return list(leases)

    def claims(self, state: State, lease: int) -> list[tuple[int, int]]:
        """(lease, request) of everything a lease holds or waits for."""
        found = [(h.claim.lease, h.claim.request) for row in state.rows for h in row.holders]
        found += [(claim.lease, claim.request) for row in state.rows for claim in row.queue]
        return [claim for claim in found if claim[0] == lease]

    def step(self, state: State, operation: Operation) -> State | None:
        """The state after `operation`, or None if it cannot have answered that way here."""
        revision = operation.revision
        if revision:
            if operation.kind == "get":
                if revision < state.revision:
                    return None
            elif revision <= state.revision:
                return None
            elif len(operation.keys) == 1 and (operation.kind != "acquire" or operation.code == "queued"):
                # A grant raises it by its tokens; a cancel on several keys grants in between.
                state = state._replace(revision=revision)
        return _STEPS[operation.kind](self, state, operation)

    def _acquire(self, state: State, operation: Operation) -> State | None:
        code = operation.code
        identity = (operation.lease, operation.request)
        if identity in state.cancelled:
            return state if code in (None, "waitCancelled", "leaseLost") else None
        if operation.lease in state.ended:
            return state if code in (None, "leaseLost", "leaseExists") else None
        if code == "leaseLost" and operation.lease in self._copied:
            return state
        positions = tuple(self._position[key] for key in operation.keys)
        claim = Claim(
            operation.lease,
            operation.request,
            operation.mode,
            operation.limit,
            operation.count,
            operation.bound,
            operation.lock_delay,
            positions,
        )
        rows = [state.rows[p] for p in positions]
        if any(_mismatch(row, claim) for row in rows):
            return state if code in (None, "modeMismatch") else None
        if all(not row.queue and _fits(row, claim) for row in rows):
            if code not in (None, "ok", "entered"):
                return None
            return self._grant(state, claim)
        if not operation.wait:
            return state if self._conflict_fits(rows, operation) else None
        if code not in (None, "queued", "entered"):
            return None
        for position in positions:
            row = state.rows[position]
            state = _with_row(state, position, row._replace(queue=(*row.queue, claim)))
        return state

    def _conflict_fits(self, rows: list[Row], operation: Operation) -> bool:
        if operation.code is None:
            return True
        if operation.code == "lockDelayed":
            return any(row.delay for row in rows)
        if operation.code != "notAcquired":
            return False
        if operation.token and len(rows) == 1:
            first = rows[0].holders[0].token if rows[0].holders else 0
            return first is None or first == operation.token
        return True

    def _grant(self, state: State, claim: Claim) -> State | None:
        for position in claim.positions:
            row = state.rows[position]
            token = self._tokens.get((position, claim.lease, claim.request))
            if token is not None:
                if token <= state.revision:
                    return None
                state = state._replace(revision=token)
            state = _with_row(state, position, row._replace(holders=(*row.holders, Holder(claim, token))))
        return state

    def _serve(self, state: State | None, position: int) -> State | None:
        while state is not None:
            row = state.rows[position]
            if not row.queue:
                return state
            claim = row.queue[0]
            for other in claim.positions:
                linked = state.rows[other]
                if not linked.queue or linked.queue[0] != claim or not _fits(linked, claim):
                    return state
            for other in claim.positions:
                linked = state.rows[other]
                state = _with_row(state, other, linked._replace(queue=linked.queue[1:]))
            state = self._grant(state, claim)
            for other in claim.positions:
                if other != position:
                    state = self._serve(state, other)
        return state

    def _depart(self, state: State | None, position: int, holder: Holder) -> State | None:
        """Remove one holder and serve its row; a bound lease ends with its last claim."""
        if state is None:
            return None
        row = state.rows[position]
        state = _with_row(state, position, row._replace(holders=tuple(h for h in row.holders if h != holder)))
        state = _end_if_bound(state, holder.claim)
        return self._serve(state, position)

    def _granted(self, state: State, operation: Operation) -> State | None:
        for key in operation.keys:
            if self._holder(state, key, operation) is None:
                return None
        return state

    def _holder(self, state: State, key: bytes, operation: Operation) -> Holder | None:
        for holder in state.rows[self._position[key]].holders:
            if (holder.claim.lease, holder.claim.request) == (operation.lease, operation.request):
                return holder
        return None

    def _release(self, state: State, operation: Operation) -> State | None:
        holder = self._holder(state, operation.keys[0], operation)
        if holder is None:
            return state if operation.code in (None, "staleToken", "leaseLost") else None
        if operation.code not in (None, "ok"):
            return None
        return self._depart(state, self._position[operation.keys[0]], holder)

    def _cancel(self, state: State, operation: Operation) -> State | None:
        identity = (operation.lease, operation.request)
        first = state.rows[self._position[operation.keys[0]]]
        for claim in first.queue:
            if (claim.lease, claim.request) == identity:
                if operation.code not in (None, "ok") or operation.revision:
                    return None
                return self._leave_queue(state, claim)
        departed = False
        following: State | None = state
        for key in operation.keys:
            holder = self._holder(state, key, operation)
            if holder is not None:
                departed = True
                following = self._depart(following, self._position[key], holder)
        # A cancel that is told a revision released a lock, and one that is not did not.
        if departed:
            fits = operation.code is None or (operation.code == "ok" and operation.revision)
            return following if fits else None
        if operation.revision:
            return None
        if operation.code == "notFound":
            return state
        if operation.code not in (None, "ok"):
            return state
        return state._replace(cancelled=state.cancelled | {identity})

    def _leave_queue(self, state: State, claim: Claim) -> State | None:
        for position in claim.positions:
            row = state.rows[position]
            state = _with_row(state, position, row._replace(queue=tuple(c for c in row.queue if c != claim)))
        following: State | None = _end_if_bound(state, claim)
        for position in claim.positions:
            following = self._serve(following, position)
        return following

    def _end(self, state: State, operation: Operation) -> State | None:
        lease = operation.lease
        if lease in state.ended:
            return state if operation.end is not None else None
        if lease not in self._copied:
            state = state._replace(ended=state.ended | {lease})
        left: list[int] = []
        for position, row in enumerate(state.rows):
            queue = tuple(c for c in row.queue if c.lease != lease)
            if queue != row.queue:
                left.append(position)
                state = _with_row(state, position, row._replace(queue=queue))
        following: State | None = state
        for position, row in enumerate(state.rows):
            for holder in row.holders:
                if holder.claim.lease == lease and following is not None:
                    if holder.claim.lock_delay and operation.code == "expired":
                        delayed = following.rows[position]._replace(delay=lease)
                        following = _with_row(following, position, delayed)
                    following = self._depart(following, position, holder)
        for position in left:
            following = self._serve(following, position)
        return following

    def _end_delay(self, state: State, operation: Operation) -> State | None:
        following: State | None = state
        for position, row in enumerate(state.rows):
            if row.delay == operation.lease and following is not None:
                following = _with_row(following, position, following.rows[position]._replace(delay=0))
                following = self._serve(following, position)
        return following

    def _force(self, state: State, operation: Operation) -> State | None:
        position = self._position[operation.keys[0]]
        row = state.rows[position]
        aimed = [h for h in row.holders if operation.token in (0, h.token) or h.token is None]
        if not aimed and (operation.token or not row.delay):
            return state if operation.code in (None, "staleToken", "notFound") else None
        if operation.code not in (None, "ok"):
            return None
        holders = tuple(h for h in row.holders if h not in aimed)
        state = _with_row(state, position, row._replace(holders=holders, delay=0))
        for holder in aimed:
            state = _end_if_bound(state, holder.claim)
        return self._serve(state, position)

    def _put(self, state: State, operation: Operation) -> State | None:
        return self._write(state, operation, operation.value)

    def _delete(self, state: State, operation: Operation) -> State | None:
        row = state.rows[self._position[operation.keys[0]]]
        if row.value is None and operation.code == "notFound":
            return state
        if row.value is None and operation.code == "ok":
            return None
        return self._write(state, operation, None)

    def _write(self, state: State, operation: Operation, value: bytes | None) -> State | None:
        position = self._position[operation.keys[0]]
        row = state.rows[position]
        if operation.token:
            allowed = self._holder(state, operation.keys[0], operation) is not None
        else:
            allowed = not row.holders
        if not allowed:
            return state if operation.code in (None, "staleToken", "leaseLost", "heldByOther") else None
        if operation.code not in (None, "ok"):
            return None
        return _with_row(state, position, row._replace(value=value))

    def _get(self, state: State, operation: Operation) -> State | None:
        row = state.rows[self._position[operation.keys[0]]]
        if operation.value != row.value or operation.waiters != len(row.queue):
            return None
        if len(operation.holders) != len(row.holders):
            return None
        for (lease, token), holder in zip(operation.holders, row.holders, strict=True):
            if lease != holder.claim.lease or holder.token not in (None, token):
                return None
        return state


def _with_row(state: State, position: int, row: Row) -> State:
    rows = state.rows
    return state._replace(rows=(*rows[:position], row, *rows[position + 1 :]))


def _end_if_bound(state: State, claim: Claim) -> State:
    if not claim.bound:
        return state
    for row in state.rows:
        if any(h.claim.lease == claim.lease for h in row.holders):
            return state
        if any(c.lease == claim.lease for c in row.queue):
            return state
    return state._replace(ended=state.ended | {claim.lease})


def _mismatch(row: Row, claim: Claim) -> bool:
    sample = row.holders[0].claim if row.holders else row.queue[0] if row.queue else None
    if sample is None:
        return False
    if (sample.mode == "semaphore") != (claim.mode == "semaphore"):
        return True
    return claim.mode == "semaphore" and sample.limit != claim.limit


def _fits(row: Row, claim: Claim) -> bool:
    if row.delay:
        return False
    if claim.mode == "exclusive":
        return not row.holders
    if claim.mode == "shared":
        return all(h.claim.mode == "shared" for h in row.holders)
    return sum(h.claim.units for h in row.holders) + claim.units <= claim.limit


_STEPS: dict[str, Step] = {
    "acquire": LockModel._acquire,
    "granted": LockModel._granted,
    "release": LockModel._release,
    "cancel": LockModel._cancel,
    "end": LockModel._end,
    "end_delay": LockModel._end_delay,
    "force": LockModel._force,
    "put": LockModel._put,
    "delete": LockModel._delete,
    "get": LockModel._get,
}
