"""Watching keys from asyncio code."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from fastlock.client.watching import Event, Watching

if TYPE_CHECKING:
    from fastlock.client.async_client import AsyncClient


class AsyncWatch:
    """Events, as `async for event in client.watch(…)`.

    It begins with the first step of the loop, or with `async with`, which returns once nothing can be missed
    any more. EventsLost says that the history no longer reaches back: read the state, then go on with the
    same object. After Unavailable, when no node could be reached for long, it goes on too. `position` resumes
    another watch, also of another process, after what this one delivered; a few events may come again.
    """

    def __init__(self, client: AsyncClient, key: bytes, is_prefix: bool, position: bytes) -> None:
        self._client = client
        self._watching: Watching = client.core.watch(key, is_prefix, position)

    @property
    def position(self) -> bytes:
        return self._watching.position

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> Event:
        if not self._watching.is_ready:
            await self._client.perform(self._watching.wait())
        return self._watching.take()

    async def __aenter__(self) -> AsyncWatch:
        await self._client.perform(self._watching.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Tell the node to stop; it happens by itself when the client is closed."""
        if not self._client.driver.closed:
            self._watching.close()
            self._client.driver.turn_soon()
