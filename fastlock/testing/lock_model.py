"""One family of locks as a sequential object: its state, and what is known about its commands and events.

This is docs/LOCKS.md seen from outside, for the linearizability checker. States are immutable; what a
command does to one is in lock_step.py. Claims and leases are small numbers in a state, so that states
are compared and remembered quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Operation:
    """One command as its client saw it. `end` is None where no answer ever came.

    Kinds: acquire, granted (a waiter learnt its token), release, cancel, end (of a lease, by
    whatever cause), lost and alive (a lease was said to be so), end_delay, force, put, delete, get. Of keys
    that move to another group: copied (a lease, which may live on there), end_importing (of a lease there
    while rows arrive: it ends on one key alone, and nobody is served), and imported (the last row arrived,
    queues are served). Commands that were
    refused before they reached a lock table have no place in a history.
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


class Happening(NamedTuple):
    """One event as a watcher saw it; `kind` is its name, `lease` the holder's, or 0 if it concerns none."""

    revision: int
    kind: str
    key: bytes
    token: int = 0
    lease: int = 0


class Claim(NamedTuple):
    """What an acquire asks for. A state names it by its number."""

    # The lease's number in the model, not its id.
    lease: int
    lease_id: int
    request: int
    mode: str
    limit: int
    units: int
    bound: bool
    lock_delay: bool
    # Positions of all keys it asks for; one for a plain acquire.
    positions: tuple[int, ...]


class Holder(NamedTuple):
    claim: int
    # 0 where nobody learnt it.
    token: int


class Row(NamedTuple):
    # In the order of their tokens.
    holders: tuple[Holder, ...]
    # Claims by their numbers.
    queue: tuple[int, ...]
    value: bytes | None
    # The lease whose end put the row into delay, as its number plus one; 0 = no delay.
    delay: int


class State(NamedTuple):
    rows: tuple[Row, ...]
    # One bit for every lease that ended, and for every claim called off before it was seen.
    ended: int
    cancelled: int
    # The group's revision is at least this.
    revision: int
    # How many of the known events have happened.
    events: int


EMPTY_ROW = Row((), (), None, 0)
NO_CLAIM = -1


class LockModel:
    """The sequential object for one family of keys."""

    def __init__(
        self,
        keys: tuple[bytes, ...],
        operations: Sequence[Operation],
        events: Sequence[Happening] | None = None,
    ) -> None:
        self.keys = keys
        # Everything that happened on these keys in the order of revisions; None if nobody watched.
        self.events = None if events is None else sorted(events)
        self.position = {key: position for position, key in enumerate(keys)}
        self.lease_number: dict[int, int] = {}
        self.claims: list[Claim] = []
        self._claim_number: dict[tuple[int, int], int] = {}
        for operation in operations:
            if operation.lease:
                self.lease_number.setdefault(operation.lease, len(self.lease_number))
            if operation.kind == "acquire":
                self._register(operation)
        # Leases with copies in several groups: the end of one copy says nothing of the others.
        self.copied = {self.lease_number[o.lease] for o in operations if o.kind == "copied"}
        # The revisions at which waits are known to have been enqueued.
        self.entered = {
            self.claim_of(o): o.revision for o in operations if o.kind == "acquire" and o.code == "queued"
        }
        # What any client ever learnt about the token of a claim on a key.
        self.tokens: dict[tuple[int, int], int] = {}
        # Claims that were told two different tokens.
        self.contradictions: list[Operation] = []
        for operation in operations:
            if operation.kind in ("acquire", "granted") and operation.code in ("ok", "entered"):
                claim = self.claim_of(operation)
                for offset, key in enumerate(operation.keys if operation.token else ()):
                    token = operation.token + offset
                    if self.tokens.setdefault((claim, self.position[key]), token) != token:
                        self.contradictions.append(operation)

    def _register(self, operation: Operation) -> None:
        identity = (operation.lease, operation.request)
        if identity in self._claim_number:
            return
        self._claim_number[identity] = len(self.claims)
        self.claims.append(
            Claim(
                self.lease_number[operation.lease],
                operation.lease,
                operation.request,
                operation.mode,
                operation.limit,
                operation.count,
                operation.bound,
                operation.lock_delay,
                tuple(self.position[key] for key in operation.keys),
            )
        )

    def claim_of(self, operation: Operation) -> int:
        """The number of the claim an operation is about; NO_CLAIM if no acquire ever asked for it."""
        return self._claim_number.get((operation.lease, operation.request), NO_CLAIM)

    def initial(self) -> State:
        return State((EMPTY_ROW,) * len(self.keys), 0, 0, 0, 0)

    def describe(self, state: State) -> str:
        parts = []
        for key, row in zip(self.keys, state.rows, strict=True):
            holders = [f"{self._name(holder.claim)} token {holder.token}" for holder in row.holders]
            queue = [self._name(c) for c in row.queue]
            delay = " in delay" if row.delay else ""
            parts.append(f"{key!r}: held by {holders} queue {queue} value {row.value!r}{delay}")
        if self.events is not None and state.events < len(self.events):
            parts.append(f"next event {self.events[state.events]}")
        return "; ".join(parts)

    def _name(self, claim: int) -> str:
        return f"{self.claims[claim].lease_id:x}/{self.claims[claim].request}"

    def foremost(self, state: State) -> dict[int, None]:
        """Leases, by their numbers, whose end would change more than the length of a queue."""
        leases: dict[int, None] = {}
        for row in state.rows:
            for holder in row.holders:
                leases[self.claims[holder.claim].lease] = None
            if row.queue:
                leases[self.claims[row.queue[0]].lease] = None
            if row.delay:
                leases[row.delay - 1] = None
        return leases
