"""A lock as its user has it in hand: what was granted, how long it is good, how often it was entered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from fastlock.client.driver import NS_PER_S, Driver, now_ns
from fastlock.client.flows import NEVER_NS
from fastlock.client.leases import Hold, HoldState
from fastlock.client.locking import Wanted
from fastlock.errors import LockLost


class Held:
    """A lock that was granted: its fencing token, and how long it may be relied on."""

    def __init__(self, holds: Sequence[Hold], on_change: Callable[[HoldState], None]) -> None:
        self._holds = holds
        self._on_change = on_change
        for hold in holds:
            hold.on_change = self._changed

    @property
    def token(self) -> int:
        """The fencing token: pass it to whatever the lock protects, which refuses older ones."""
        return self._holds[0].tokens[0]

    @property
    def tokens(self) -> dict[bytes, int]:
        """The token of every key."""
        return {key: token for hold in self._holds for key, token in zip(hold.keys, hold.tokens, strict=True)}

    @property
    def state(self) -> HoldState:
        states = {hold.state(now_ns()) for hold in self._holds}
        for state in (HoldState.LOST, HoldState.SUSPENDED, HoldState.RELEASED):
            if state in states:
                return state
        return HoldState.HELD

    @property
    def remaining(self) -> float:
        """Seconds for which the lock may be relied on without hearing from the cluster again."""
        if self.state is not HoldState.HELD:
            return 0.0
        until_ns = min(hold.lease.trusted_until_ns for hold in self._holds)
        return float("inf") if until_ns >= NEVER_NS else max(until_ns - now_ns(), 0) / NS_PER_S

    def check(self) -> None:
        """Raises LockLost once the lock may be lost."""
        state = self.state
        if state is HoldState.LOST:
            raise LockLost
        if state is HoldState.SUSPENDED:
            raise LockLost("the cluster did not confirm it in time")
        if state is HoldState.RELEASED:
            raise LockLost("it was released")

    @property
    def holds(self) -> Sequence[Hold]:
        return self._holds

    def hold_of(self, key: bytes) -> Hold:
        for hold in self._holds:
            if key in hold.keys:
                return hold
        raise LockLost("the lock does not cover this key")

    def _changed(self, hold: Hold) -> None:
        self._on_change(self.state)


OnLost = Callable[[Held], None]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a caller wants to take and hold a lock."""

    # Seconds in the queue; None = as long as it takes.
    wait: float | None = None
    reentrant: bool = False
    on_lost: OnLost | None = None
    cancel_body: bool = True


class Entry:
    """A lock that one task or thread holds, and how often it has entered it."""

    __slots__ = ("count", "held")

    def __init__(self, held: Held) -> None:
        self.held = held
        self.count = 1


# By who holds it and what it is.
Entries = dict[tuple[Hashable, Wanted], Entry]


class LockHandle:
    """What locks of both clients have in common; a subclass waits for what this one says."""

    def __init__(self, driver: Driver, entries: Entries, wanted: Wanted, terms: Terms) -> None:
        self._driver = driver
        self._entries = entries
        self._wanted = wanted
        self._terms = terms
        self._told_lost = False
        # Whether the last acquire was the one that took the lock, or entered it again.
        self._entered_first = True
        self.held: Held | None = None

    def _enter_again(self, caller: Hashable) -> Held | None:
        """The lock that this caller has already; None if it must be acquired. Raises LockLost."""
        if not self._terms.reentrant:
            if self.held is not None:
                raise RuntimeError(
                    "this lock object holds the lock already: release it first, use another one, or ask for "
                    "reentrant=True"
                )
            return None
        entry = self._entries.get((caller, self._wanted))
        if entry is None:
            return None
        entry.held.check()
        entry.count += 1
        self._entered_first = False
        self.held = entry.held
        return entry.held

    def _acquisition(self, wait: bool) -> Coroutine[Any, Any, list[Hold]]:
        seconds = self._terms.wait
        deadline_ns = NEVER_NS if seconds is None or not wait else now_ns() + int(seconds * NS_PER_S)
        return self._driver.core.locking.acquire_ordered(self._wanted, wait, deadline_ns)

    def _granted(self, caller: Hashable, holds: Sequence[Hold]) -> Held:
        self._told_lost = False
        self._entered_first = True
        held = self.held = Held(holds, self._changed)
        if self._terms.reentrant:
            self._entries[caller, self._wanted] = Entry(held)
        # It may have been lost before anyone was there to be told.
        self._changed(held.state)
        return held

    def _leave(self, caller: Hashable) -> Held | None:
        """What is to be released; None while the caller is still further in. Raises LockLost."""
        held = self.held
        if self._terms.reentrant:
            entry = self._entries.get((caller, self._wanted))
            if entry is None:
                raise LockLost("it is not held by this caller")
            entry.count -= 1
            if entry.count:
                return None
            del self._entries[caller, self._wanted]
            held = entry.held
        self.held = None
        if held is None:
            raise LockLost("it is not held")
        return held

    def _release(self, held: Held) -> Coroutine[Any, Any, None]:
        deadline_ns = now_ns() + int(self._driver.settings.timeout_ms * NS_PER_S / 1000)
        return self._driver.core.locking.release_ordered(held.holds, deadline_ns)

    def _give_back(self, holds: Sequence[Hold]) -> None:
        """Release what nobody waits for any more. In the driver's thread."""
        for hold in holds:
            self._driver.core.locking.give_back(hold)
        self._driver.turn_soon()

    def _changed(self, state: HoldState) -> None:
        if state not in (HoldState.LOST, HoldState.SUSPENDED):
            return
        self._doubtful()
        if not self._told_lost:
            self._told_lost = True
            if self._terms.on_lost is not None and self.held is not None:
                self._tell_lost(self._terms.on_lost, self.held)

    def _doubtful(self) -> None:
        """The lock may be gone."""

    def _tell_lost(self, on_lost: OnLost, held: Held) -> None:
        on_lost(held)
