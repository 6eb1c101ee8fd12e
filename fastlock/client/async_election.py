"""Elections from asyncio code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING

from fastlock.client.async_lock import AsyncLock
from fastlock.client.electing import Leader, Observation
from fastlock.client.held import Held
from fastlock.errors import EventsLost, FastlockError, LockLost

if TYPE_CHECKING:
    from fastlock.client.async_client import AsyncClient


class AsyncElection:
    """A candidate: it leads from `campaign` until `resign`, or within `async with`."""

    def __init__(self, client: AsyncClient, lock: AsyncLock, key: bytes, value: bytes) -> None:
        self._client = client
        self._lock = lock
        self._key = key
        self._value = value

    async def campaign(self) -> Held:
        """Wait to be elected, and introduce oneself. Raises as a lock's acquire."""
        held = await self._lock.acquire()
        await self._introduce(held)
        return held

    async def proclaim(self, value: bytes) -> None:
        """Tell the others another value. Raises LockLost or StaleToken if somebody else leads."""
        held = self._lock.held
        if held is None:
            raise LockLost("this candidate does not lead")
        await self._client.put(self._key, value, held)
        self._value = value

    async def resign(self) -> None:
        """Let the next one lead. Raises LockLost if this candidate led no longer."""
        await self._withdraw()
        await self._lock.release()

    async def observe(self) -> AsyncIterator[Leader | None]:
        """Who leads at this moment, and whoever does after that; None while nobody does."""
        observation = Observation()
        async with self._client.watch(self._key) as watch:
            while True:
                observation.read(await self._client.get(self._key))
                yield observation.leader
                try:
                    async for event in watch:
                        if observation.follow(event):
                            yield observation.leader
                except EventsLost:
                    continue

    async def __aenter__(self) -> Held:
        held = await self._lock.__aenter__()
        await self._introduce(held)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._withdraw()
        finally:
            await self._lock.__aexit__(kind, error, trace)

    async def _introduce(self, held: Held) -> None:
        try:
            await self._client.put(self._key, self._value, held)
        except BaseException as error:
            await self._lock.__aexit__(type(error), error, error.__traceback__)
            raise

    async def _withdraw(self) -> None:
        """Take the value back. It stays behind where that cannot be done; the next leader replaces it."""
        held = self._lock.held
        if held is not None:
            try:
                await self._client.delete(self._key, held)
            except FastlockError:
                return
