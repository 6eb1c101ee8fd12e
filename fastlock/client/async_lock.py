"""Locks as asyncio code takes, holds and releases them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastlock.client.flows import NEVER_NS
from fastlock.client.leases import Hold, HoldState
from fastlock.client.locking import Wanted
from fastlock.errors import FastlockError, LockLost, NotAcquired

if TYPE_CHECKING:
    from fastlock.client.async_client import AsyncClient

NS_PER_S = 1_000_000_000


def now_ns() -> int:
    """The client's clock: it counts while the machine sleeps, as leases do."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


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


class AsyncLock:
    """A lock to be taken, held and released; not shared between tasks."""

    def __init__(self, client: AsyncClient, wanted: Wanted, wait: float | None, cancel_body: bool) -> None:
        self._client = client
        self._wanted = wanted
        self._wait = wait
        self._cancel_body = cancel_body
        self._body: asyncio.Task[Any] | None = None
        self._body_cancelled = False
        self.held: Held | None = None

    async def acquire(self) -> Held:
        """Take the lock, waiting in its queue. Raises WaitTimeout, Unavailable; NotAcquired if wait is 0."""
        if self._wait is not None and self._wait <= 0:
            return await self._take(wait=False, deadline_ns=self._client.deadline_ns(None))
        return await self._take(wait=True, deadline_ns=self._client.deadline_ns(self._wait))

    async def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        try:
            await self._take(wait=False, deadline_ns=self._client.deadline_ns(None))
        except NotAcquired:
            return False
        return True

    async def release(self) -> None:
        """Let go. Raises LockLost if the lock was lost before."""
        held, self.held = self.held, None
        if held is None:
            raise LockLost("it is not held")
        client = self._client
        lost: LockLost | None = None
        deadline_ns = client.deadline_ns(client.settings.timeout_ms / 1000)
        for hold in reversed(held.holds):
            try:
                await client.perform(client.core.locking.release(hold, deadline_ns))
            except LockLost as error:
                lost = error
        if lost is not None:
            raise lost

    async def __aenter__(self) -> Held:
        held = await self.acquire()
        if self._cancel_body:
            self._body = asyncio.current_task()
            self._body_cancelled = False
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        if self._body_cancelled and body is not None:
            was_only_us = body.uncancel() == 0
            held, self.held = self.held, None
            if held is not None:
                # Whoever cannot confirm a lock cannot be sure to release it soon either: that goes on alone.
                self._give_back(held.holds)
            if was_only_us and isinstance(error, asyncio.CancelledError):
                raise LockLost("while its body was running") from None
            return
        try:
            await self.release()
        except FastlockError:
            # The body's own error says more than a release that could not be confirmed.
            if error is None:
                raise

    async def _take(self, wait: bool, deadline_ns: int) -> Held:
        if self.held is not None:
            raise RuntimeError(
                "this lock object holds the lock already: release it first, or use another one"
            )
        client = self._client
        locking = client.core.locking
        if len(self._wanted.keys) == 1:
            hold = await client.perform(
                locking.acquire(self._wanted, wait, deadline_ns), lambda late: self._give_back([late])
            )
            holds = [hold]
        else:
            operation = locking.acquire_ordered(self._wanted, wait, deadline_ns)
            holds = await client.perform(operation, self._give_back)
        self.held = Held(holds, self._changed)
        return self.held

    def _give_back(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            self._client.core.locking.give_back(hold)
        self._client.turn_soon()

    def _changed(self, state: HoldState) -> None:
        doubtful = state in (HoldState.LOST, HoldState.SUSPENDED)
        if doubtful and self._body is not None and not self._body_cancelled:
            self._body_cancelled = True
            self._body.cancel()
