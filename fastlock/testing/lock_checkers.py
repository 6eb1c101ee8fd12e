"""What must hold for the holders of locks, seen from outside: tokens, fencing, belief, watches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastlock.schema.enums import LockMode
from fastlock.testing.violation import Violation


class TokensIncrease:
    """A token names one claim on a key for ever, and later grants have larger ones."""

    def __init__(self) -> None:
        self._claims: dict[tuple[bytes, int], object] = {}
        self._highest: dict[bytes, int] = {}

    def highest(self, key: bytes) -> int:
        """The highest token anybody was told so far; an acquire called from here on gets a larger one."""
        return self._highest.get(key, 0)

    def granted(self, key: bytes, token: int, claim: object, highest_at_call: int, fresh: bool) -> None:
        """A client was told its token. `fresh` is False for a claim that may be older than the call."""
        known = self._claims.setdefault((key, token), claim)
        if known != claim:
            raise Violation("tokens increase", f"{key!r} token {token} went to {known} and to {claim}")
        if fresh and token <= highest_at_call:
            message = f"{key!r}: {claim} got token {token}"
            raise Violation("tokens increase", f"{message}, {highest_at_call} was known when it asked")
        if token > self._highest.get(key, 0):
            self._highest[key] = token


class FencedResource:
    """A store outside that refuses a token lower than one it saw, as users are told to build."""

    def __init__(self) -> None:
        self._highest: dict[bytes, tuple[int, object]] = {}
        self.accepted = 0
        self.refused = 0

    def write(self, key: bytes, token: int, claim: object) -> bool:
        """Try a write; True if it was accepted. One token is one claim, or exclusion was broken."""
        highest, writer = self._highest.get(key, (0, None))
        if token < highest:
            self.refused += 1
            return False
        if token == highest and writer != claim:
            raise Violation("fencing", f"{key!r} token {token}: writes from {writer} and from {claim}")
        self._highest[key] = (token, claim)
        self.accepted += 1
        return True

    def refused_to_believer(self, key: bytes, token: int, claim: object) -> None:
        """A client whose lock is still valid was refused: a later grant overtook it."""
        highest, writer = self._highest[key]
        message = f"{key!r}: {claim} still holds token {token}"
        raise Violation("fencing", f"{message}, but {writer} already wrote with {highest}")


class Belief(NamedTuple):
    """From when until when, in true time, a client trusted one lock."""

    start_ns: int
    end_ns: int
    claim: object
    mode: str
    units: int
    limit: int


class Believers:
    """No two clients may believe in conflicting locks at the same true time."""

    def __init__(self) -> None:
        self._beliefs: dict[bytes, list[Belief]] = {}

    def believed(self, key: bytes, belief: Belief) -> None:
        if belief.end_ns > belief.start_ns:
            self._beliefs.setdefault(key, []).append(belief)

    def verify(self) -> int:
        """Sweep over every key; the number of beliefs looked at."""
        looked_at = 0
        for key, beliefs in self._beliefs.items():
            looked_at += len(beliefs)
            current: list[Belief] = []
            for belief in sorted(beliefs, key=lambda b: (b.start_ns, b.end_ns)):
                current = [b for b in current if b.end_ns > belief.start_ns and b.claim != belief.claim]
                current.append(belief)
                if len(current) > 1 and not _compatible(current):
                    pair = "; ".join(f"{b.claim} {b.mode} {b.start_ns}..{b.end_ns} ns" for b in current)
                    raise Violation("believers", f"{key!r} is believed to be held by {pair}")
        return looked_at


def _compatible(beliefs: list[Belief]) -> bool:
    modes = [b.mode for b in beliefs]
    if all(mode == "shared" for mode in modes):
        return True
    if all(mode == "semaphore" for mode in modes):
        return sum(b.units for b in beliefs) <= beliefs[0].limit
    return False


@dataclass(slots=True)
class Grant:
    """What the replicated history says about one token."""

    key: bytes
    departed_revision: int = 0


GRANT_KINDS = ("acquired", "transferred")
DEPARTURE_KINDS = ("released", "expired", "revoked", "forced")


class Exclusion:
    """What the log decides: never two holders of a key that may not hold it together."""

    def __init__(self) -> None:
        self._holders: dict[bytes, dict[int, int]] = {}

    def happened(self, kind: str, key: bytes, token: int, mode: int) -> None:
        """An event as the log decided it. How many units a semaphore's holders have is not in events."""
        holders = self._holders.setdefault(key, {})
        if kind in DEPARTURE_KINDS:
            holders.pop(token, None)
        elif kind in GRANT_KINDS:
            holders[token] = mode
            if len(holders) > 1 and LockMode.exclusive in holders.values():
                found = ", ".join(f"token {held} {LockMode(how).name}" for held, how in holders.items())
                raise Violation("exclusion", f"{key!r} is held with {found}")


class History:
    """Every event of one group as its log decided it; grants and watch streams are compared with it."""

    def __init__(self, group: int, grants: dict[tuple[bytes, int], Grant] | None = None) -> None:
        self.group = group
        self.revisions: list[int] = []
        self.events: list[tuple[int, str, bytes, int]] = []
        # A key may move between groups with its holders, so groups can share this.
        self.grants: dict[tuple[bytes, int], Grant] = {} if grants is None else grants
        self._acknowledged: dict[tuple[bytes, int], object] = {}

    def happened(self, revision: int, kind: str, key: bytes, token: int) -> None:
        """An entry was applied for the first time anywhere, and this event came of it."""
        if self.revisions and revision <= self.revisions[-1]:
            message = f"group {self.group}: event {kind} on {key!r} has revision {revision}"
            raise Violation("tokens increase", f"{message} after {self.revisions[-1]}")
        self.revisions.append(revision)
        self.events.append((revision, kind, key, token))
        if kind in GRANT_KINDS:
            if (key, token) in self.grants:
                raise Violation("tokens increase", f"group {self.group}: {key!r} token {token} granted twice")
            self.grants[key, token] = Grant(key)
        elif kind in DEPARTURE_KINDS:
            grant = self.grants.get((key, token))
            if grant is None or grant.departed_revision:
                message = f"group {self.group}: {kind} of {key!r} token {token}, which is not held"
                raise Violation("grants stay", message)
            grant.departed_revision = revision

    def acknowledged(self, key: bytes, token: int, claim: object) -> None:
        """A client was told that it holds the lock: the history must know the grant, for ever."""
        if (key, token) not in self.grants:
            message = f"group {self.group}: {claim} was told token {token} of {key!r}"
            raise Violation("grants stay", f"{message}, but no such grant was ever committed")
        self._acknowledged[key, token] = claim

    def standing(self) -> list[tuple[bytes, int, object]]:
        """Acknowledged grants that nothing ended: they must be in every replica at the end."""
        return [
            (key, token, claim)
            for (key, token), claim in self._acknowledged.items()
            if not self.grants[key, token].departed_revision
        ]


class WatchStream:
    """One watcher's stream against the history: every event once and in order, or told of the loss."""

    def __init__(
        self, history: History, key: bytes, start_revision: int, name: str, is_prefix: bool = True
    ) -> None:
        self._history = history
        self._key = key
        self._is_prefix = is_prefix
        self._name = name
        self._position = start_revision
        self.received = 0

    @property
    def position(self) -> int:
        return self._position

    def lost(self, resume_revision: int) -> None:
        """The watcher was told that events up to this revision may be missing."""
        self._position = max(self._position, resume_revision)

    def arrived(self, events: Sequence[tuple[int, str, bytes, int]], position: int) -> None:
        """A batch of events, complete up to `position`."""
        expected = self._expected(position)
        if list(events) != expected:
            missing = [e for e in expected if e not in events]
            extra = [e for e in events if e not in expected]
            message = f"{self._name} between revisions {self._position} and {position}"
            raise Violation("watch", f"{message}: missing {missing[:3]}, extra or out of order {extra[:3]}")
        self.received += len(expected)
        self._position = position

    def _expected(self, position: int) -> list[tuple[int, str, bytes, int]]:
        history = self._history
        first = bisect_right(history.revisions, self._position)
        end = bisect_right(history.revisions, position)
        events = history.events[first:end]
        return [e for e in events if e[2] == self._key or (self._is_prefix and e[2].startswith(self._key))]

    def _missing(self) -> list[tuple[int, str, bytes, int]]:
        return self._expected(self._history.revisions[-1] if self._history.revisions else 0)

    @property
    def caught_up(self) -> bool:
        return not self._missing()

    def finished(self) -> None:
        """Faults are over and everything was delivered: nothing may be missing at the end."""
        missing = self._missing()
        if missing:
            raise Violation("watch", f"{self._name} never saw {missing[:3]} (it is at {self._position})")
