"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from fastlock.client.api import ClientApi, Key, name_of
from fastlock.client.async_election import AsyncElection
from fastlock.client.async_lock import AsyncLock
from fastlock.client.async_watch import AsyncWatch
from fastlock.client.flows import Flow
from fastlock.client.held import Held, OnLost, Terms
from fastlock.client.lock_info import LockInfo
from fastlock.client.locking import Wanted
from fastlock.errors import ClientClosed

Result = TypeVar("Result")


class AsyncClient(ClientApi[AsyncLock]):
    """A client of a fastlock cluster for asyncio.

    `endpoints` names one node or more as `host:port`, separated by commas; any one that answers is enough to
    find the others. Use it as an async context manager, or `await client.connect()` and `await
    client.close()`.
    """

    async def __aenter__(self) -> AsyncClient:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Find the cluster. Raises Unavailable when no endpoint answers in time."""
        self.driver.start()
        await self.perform(self.core.connect(self._deadline_ns()))

    async def close(self) -> None:
        """Release everything this client holds and hang up."""
        await self.driver.close()

    # Values and looking.

    async def get(self, key: Key, *, stale: bool = False) -> LockInfo | None:
        """What stands under a key; None if nothing does. `stale`: whatever the next node knows will do."""
        return await self.perform(self._get(name_of(key), stale))

    async def locks(self, prefix: Key = b"", *, stale: bool = False) -> AsyncIterator[LockInfo]:
        """Every lock and value below a prefix, in no order; what exists throughout is seen exactly once."""
        cursor = b""
        while True:
            page, cursor = await self.perform(self._page(name_of(prefix), cursor, stale))
            for info in page:
                yield info
            if not cursor:
                return

    async def put(self, key: Key, value: bytes, held: Held | None = None) -> int:
        """Write the key's value; under a lock only while its token is current. The revision of the write."""
        return await self.perform(self._put(name_of(key), value, held))

    async def delete(self, key: Key, held: Held | None = None) -> int:
        """Delete the key's value."""
        return await self.perform(self._delete(name_of(key), held))

    async def force_release(self, key: Key, *, token: int = 0, reason: str = "") -> None:
        """Take a lock away from its holders, or from the one with this token. It is audited."""
        await self.perform(self._force_release(name_of(key), token, reason))

    def watch(self, key: Key, *, prefix: bool = False, position: bytes = b"") -> AsyncWatch:
        """What happens to a key, or to all keys below a prefix; from now on, or after a `position`."""
        return AsyncWatch(self, name_of(key), prefix, position)

    def election(
        self,
        key: Key,
        value: bytes = b"",
        *,
        ttl: float | None = None,
        wait: float | None = None,
        on_lost: OnLost | None = None,
        cancel_body: bool = True,
    ) -> AsyncElection:
        """Lead while the body runs: `async with` waits to be elected, and tells the others `value`."""
        lock = self.lock(key, ttl=ttl, wait=wait, on_lost=on_lost, cancel_body=cancel_body)
        return AsyncElection(self, lock, name_of(key), value)

    # What the objects above use.

    async def perform(
        self, operation: Coroutine[Any, Any, Result], undo: Callable[[Result], None] | None = None
    ) -> Result:
        """Run one of the core's operations. `undo` gets a result that came after the caller was cancelled."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finished(done: Flow[Result]) -> None:
            if not future.done():
                future.set_result(None)
            elif done.error is None and undo is not None:
                undo(done.result)  # type: ignore[arg-type]

        def closed() -> None:
            if not future.done():
                future.set_exception(ClientClosed())

        flow = self.driver.begin(operation, finished, closed)
        try:
            await future
        except asyncio.CancelledError:
            if not flow.finished:
                flow.cancel()
                self.driver.turn_soon()
            elif flow.error is None and undo is not None:
                undo(flow.result)  # type: ignore[arg-type]
            raise
        if flow.error is not None:
            raise flow.error
        return flow.result  # type: ignore[return-value]

    def _lock(self, wanted: Wanted, terms: Terms) -> AsyncLock:
        return AsyncLock(self, wanted, terms)
