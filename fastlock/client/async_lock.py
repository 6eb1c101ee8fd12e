"""Locks as asyncio code takes, holds and releases them."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastlock.client.held import Held, LockHandle, Terms
from fastlock.client.locking import Wanted
from fastlock.errors import FastlockError, LockLost, NotAcquired

if TYPE_CHECKING:
    from fastlock.client.async_client import AsyncClient


class AsyncLock(LockHandle):
    """A lock to be taken, held and released; not shared between tasks."""

    def __init__(self, client: AsyncClient, wanted: Wanted, terms: Terms) -> None:
        super().__init__(client.driver, client.entries, wanted, terms)
        self._client = client
        self._body: asyncio.Task[Any] | None = None
        self._body_cancelled = False

    async def acquire(self) -> Held:
        """Take the lock, waiting in its queue. Raises WaitTimeout, Unavailable; NotAcquired if wait is 0."""
        return await self._take(wait=self._terms.wait is None or self._terms.wait > 0)

    async def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        try:
            await self._take(wait=False)
        except NotAcquired:
            return False
        return True

    async def release(self) -> None:
        """Let go. Raises LockLost if the lock was lost before."""
        held = self._leave(asyncio.current_task())
        if held is not None:
            await self._client.perform(self._release(held))

    async def __aenter__(self) -> Held:
        held = await self.acquire()
        if self._terms.cancel_body and self._entered_first:
            self._body = asyncio.current_task()
            self._body_cancelled = False
            self._changed(held.state)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            held = self._leave(asyncio.current_task())
            if held is None:
                return
        except LockLost:
            # The body released it itself.
            held = None
        body, self._body = self._body, None
        if self._body_cancelled and body is not None:
            was_only_us = body.uncancel() == 0
            if held is not None:
                # Whoever cannot confirm a lock cannot be sure to release it soon either: that goes on alone.
                self._give_back(held.holds)
            if was_only_us and isinstance(error, asyncio.CancelledError):
                raise LockLost("while its body was running") from None
            return
        if held is None:
            return
        try:
            await self._client.perform(self._release(held))
        except FastlockError:
            # The body's own error says more than a release that could not be confirmed.
            if error is None:
                raise

    async def _take(self, wait: bool) -> Held:
        caller = asyncio.current_task()
        again = self._enter_again(caller)
        if again is not None:
            return again
        return self._granted(caller, await self._client.perform(self._acquisition(wait), self._give_back))

    def _doubtful(self) -> None:
        if self._body is not None and not self._body_cancelled:
            self._body_cancelled = True
            self._body.cancel()
