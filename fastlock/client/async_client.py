"""The asyncio client: sockets, timers and tasks around the protocol core."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Sequence
from random import SystemRandom
from types import TracebackType
from typing import Any, TypeVar, cast

from fastlock.client.async_lock import NS_PER_S, AsyncLock, Held, now_ns
from fastlock.client.cluster import NS_PER_MS
from fastlock.client.core import Core
from fastlock.client.flows import NEVER_NS, Flow
from fastlock.client.links import Link, LinkState
from fastlock.client.lock_info import LockInfo, lock_info
from fastlock.client.locking import Wanted
from fastlock.client.settings import ClientSettings
from fastlock.errors import ClientClosed
from fastlock.schema.enums import NO_EXPIRY_TTL_MS

Result = TypeVar("Result")
Key = str | bytes

CLOSE_TIMEOUT_S = 5.0
DEFAULT_PORT = 7400


class _Connection(asyncio.Protocol):
    """One TCP connection of a link; what happens after it was dropped is nobody's business."""

    def __init__(self, client: AsyncClient, link: Link) -> None:
        self._client = client
        self._link = link
        self.dropped = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        if self.dropped:
            self.transport.abort()
            return
        self._client.core.opened(self._link)
        self._client.turn()

    def data_received(self, data: bytes) -> None:
        if not self.dropped:
            self._client.core.received(self._link, data)
            self._client.turn()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.dropped:
            self.dropped = True
            reason = f"the connection was lost ({error})" if error else "the node closed the connection"
            self._client.lost(self._link, self, reason)

    def pause_writing(self) -> None:
        if not self.dropped:
            self._client.core.congested(self._link)

    def resume_writing(self) -> None:
        if not self.dropped:
            self._client.core.drained(self._link)
            self._client.turn()

    def drop(self) -> None:
        self.dropped = True
        if self.transport is not None:
            self.transport.abort()


class AsyncClient:
    """A client of a fastlock cluster for asyncio.

    `endpoints` names one node or more as `host:port`, separated by commas; any one that answers is enough to
    find the others. Use it as an async context manager, or `await client.connect()` and `await
    client.close()`.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str],
        *,
        name: str | None = None,
        ttl: float = 30.0,
        timeout: float = 10.0,
        settings: ClientSettings | None = None,
    ) -> None:
        owner = (name or f"{socket.gethostname()}/{os.getpid()}").encode()
        if settings is None:
            settings = ClientSettings(ttl_ms=int(ttl * 1000), timeout_ms=int(timeout * 1000), owner=owner)
        self.settings = settings
        self._endpoints = _addresses(endpoints)
        self._core: Core | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._connections: dict[Link, _Connection] = {}
        self._dialing: dict[Link, asyncio.Task[None]] = {}
        # What callers wait for at this moment.
        self._pending: dict[asyncio.Future[None], Flow[Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER_NS
        self._turn_is_due = False
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Find the cluster. Raises Unavailable when no endpoint answers in time."""
        if self._core is None:
            self._loop = asyncio.get_running_loop()
            self._core = Core(self._endpoints, self.settings, SystemRandom(), now_ns())
        await self.perform(self.core.connect(self._deadline_ns()))

    async def close(self) -> None:
        """Release everything this client holds and hang up."""
        if self._closed or self._core is None:
            self._closed = True
            return
        for future, flow in self._pending.items():
            if not future.done():
                future.set_exception(ClientClosed())
                flow.cancel()
        try:
            await self.perform(self._core.close(now_ns() + int(CLOSE_TIMEOUT_S * NS_PER_S)))
        finally:
            self._closed = True
            self.turn()
            dialing = list(self._dialing.values())
            for task in dialing:
                task.cancel()
            await asyncio.gather(*dialing, return_exceptions=True)
            if self._timer is not None:
                self._timer.cancel()

    # Locks.

    def lock(
        self,
        key: Key,
        *,
        ttl: float | None = None,
        wait: float | None = None,
        own_lease: bool = False,
        lock_delay: float = 0.0,
        cancel_body: bool = True,
    ) -> AsyncLock:
        """An exclusive lock on a key.

        `ttl`: seconds after which the cluster takes it back from a client that fell silent; `float("inf")` =
        never. `wait`: seconds to wait in its queue; None = as long as it takes. `own_lease`: keep it alive by
        itself, not together with the client's other locks. `cancel_body`: cancel the body of `async with`
        when it may be lost.
        """
        wanted = self._wanted((key,), ttl, own_lease, lock_delay)
        return AsyncLock(self, wanted, wait, cancel_body)

    def write_lock(self, key: Key, **options: Any) -> AsyncLock:
        """The writer's side of a lock that readers share; the same as `lock`."""
        return self.lock(key, **options)

    def read_lock(
        self,
        key: Key,
        *,
        ttl: float | None = None,
        wait: float | None = None,
        own_lease: bool = False,
        cancel_body: bool = True,
    ) -> AsyncLock:
        """A lock that any number of readers share, and no writer."""
        return AsyncLock(self, self._wanted((key,), ttl, own_lease, mode="shared"), wait, cancel_body)

    def semaphore(
        self,
        key: Key,
        limit: int,
        count: int = 1,
        *,
        ttl: float | None = None,
        wait: float | None = None,
        own_lease: bool = False,
        cancel_body: bool = True,
    ) -> AsyncLock:
        """`count` of the `limit` places that a key has."""
        wanted = self._wanted((key,), ttl, own_lease, mode="semaphore", limit=limit, count=count)
        return AsyncLock(self, wanted, wait, cancel_body)

    def lock_all(
        self,
        *keys: Key,
        ttl: float | None = None,
        wait: float | None = None,
        own_lease: bool = False,
        cancel_body: bool = True,
    ) -> AsyncLock:
        """Several keys: in one step where they share a slot, else slot by slot in a fixed order."""
        return AsyncLock(self, self._wanted(keys, ttl, own_lease), wait, cancel_body)

    # Values and looking.

    async def get(self, key: Key, *, stale: bool = False) -> LockInfo | None:
        """What stands under a key; None if nothing does. `stale`: whatever the next node knows will do."""
        name = _bytes(key)
        state = await self.perform(self.core.get(name, stale, self._deadline_ns()))
        if state is None or not (state.get("holders") or state["valueRevision"] or state["waiterCount"]):
            return None
        return lock_info(name, state)

    async def put(self, key: Key, value: bytes, held: Held | None = None) -> int:
        """Write the key's value; under a lock only while its token is current. The revision of the write."""
        hold = held.hold_of(_bytes(key)) if held is not None else None
        return await self.perform(self.core.put(_bytes(key), value, hold, self._deadline_ns()))

    async def delete(self, key: Key, held: Held | None = None) -> int:
        """Delete the key's value."""
        hold = held.hold_of(_bytes(key)) if held is not None else None
        return await self.perform(self.core.delete(_bytes(key), hold, self._deadline_ns()))

    async def force_release(self, key: Key, *, token: int = 0, reason: str = "") -> None:
        """Take a lock away from its holders, or from the one with this token. It is audited."""
        actor, why = self.settings.owner, reason.encode()
        await self.perform(self.core.force_release(_bytes(key), token, actor, why, self._deadline_ns()))

    # What the objects below use.

    @property
    def core(self) -> Core:
        if self._core is None:
            raise ClientClosed(
                "this client is not connected: use it in `async with`, or await connect() first"
            )
        if self._process != os.getpid():
            raise ClientClosed("this client belongs to the parent process: create one after the fork")
        if self._closed:
            raise ClientClosed
        return self._core

    async def perform(
        self, operation: Coroutine[Any, Any, Result], undo: _Undo[Result] | None = None
    ) -> Result:
        """Run one of the core's operations. `undo` gets a result that came after the caller was cancelled."""
        try:
            core = self.core
        except ClientClosed:
            operation.close()
            raise
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()
        flow = self._pending[future] = core.start(operation)

        def finished(done: Flow[Result]) -> None:
            if not future.done():
                future.set_result(None)
            elif done.error is None and undo is not None:
                undo(done.result)  # type: ignore[arg-type]

        flow.on_finish = finished
        self.turn_soon()
        try:
            await future
        except asyncio.CancelledError:
            if not flow.finished:
                flow.cancel()
                self.turn_soon()
            elif flow.error is None and undo is not None:
                undo(flow.result)  # type: ignore[arg-type]
            raise
        finally:
            del self._pending[future]
        if flow.error is not None:
            raise flow.error
        return flow.result  # type: ignore[return-value]

    def turn_soon(self) -> None:
        """Whatever starts in one turn of the loop leaves in one write."""
        if not self._turn_is_due:
            self._turn_is_due = True
            assert self._loop is not None
            self._loop.call_soon(self.turn)

    def turn(self) -> None:
        """Let the core run, then do what it wants."""
        core = self._core
        if core is None:
            return
        self._turn_is_due = False
        core.run(now_ns())
        for link in core.take_hangups():
            self._hang_up(link)
        for link in core.take_dials():
            assert self._loop is not None
            self._dialing[link] = self._loop.create_task(self._dial(link))
        for link, data in core.take_output():
            connection = self._connections.get(link)
            if connection is not None and connection.transport is not None:
                connection.transport.write(data)
        for hold in core.take_notices():
            if hold.on_change is not None:
                hold.on_change(hold)
        self._set_timer(core.wake_ns)

    def lost(self, link: Link, connection: _Connection, reason: str) -> None:
        if self._connections.get(link) is connection:
            del self._connections[link]
            assert self._core is not None
            self._core.closed(link, reason)
            self.turn()

    def deadline_ns(self, wait: float | None) -> int:
        return NEVER_NS if wait is None else now_ns() + int(wait * NS_PER_S)

    def _deadline_ns(self) -> int:
        return now_ns() + self.settings.timeout_ms * NS_PER_MS

    def _set_timer(self, wake_ns: int) -> None:
        assert self._loop is not None
        if self._timer is not None:
            # A timer that is early does no harm; moving it with every turn would.
            if self._timer_ns <= wake_ns and self._timer_ns > now_ns():
                return
            self._timer.cancel()
            self._timer = None
        if wake_ns < NEVER_NS and not self._closed:
            delay_s = max(wake_ns - now_ns(), 0) / NS_PER_S
            self._timer_ns = wake_ns
            self._timer = self._loop.call_later(delay_s, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.turn()

    def _hang_up(self, link: Link) -> None:
        task = self._dialing.get(link)
        if task is not None:
            task.cancel()
        connection = self._connections.pop(link, None)
        if connection is not None:
            connection.drop()

    async def _dial(self, link: Link) -> None:
        assert self._loop is not None
        assert self._core is not None
        host, _, port = link.address.rpartition(":")
        connection = self._connections[link] = _Connection(self, link)
        try:
            await self._loop.create_connection(lambda: connection, host.strip("[]"), int(port))
        except (OSError, ValueError) as error:
            if self._connections.get(link) is connection:
                del self._connections[link]
                if link.state is LinkState.DIALING:
                    self._core.closed(link, str(error))
                    self.turn()
        finally:
            if self._dialing.get(link) is asyncio.current_task():
                del self._dialing[link]

    def _wanted(
        self,
        keys: Sequence[Key],
        ttl: float | None,
        own_lease: bool,
        lock_delay: float = 0.0,
        mode: str = "exclusive",
        limit: int = 0,
        count: int = 0,
    ) -> Wanted:
        if ttl is None:
            ttl_ms = self.settings.ttl_ms
        else:
            ttl_ms = NO_EXPIRY_TTL_MS if ttl == float("inf") else int(ttl * 1000)
        names = tuple(_bytes(key) for key in keys)
        return Wanted(names, ttl_ms, mode, limit, count, own_lease, int(lock_delay * 1000))


_Undo = Callable[[Result], None]


def _bytes(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _addresses(endpoints: str | Iterable[str]) -> list[str]:
    named = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    addresses = []
    for each in named:
        address = each.strip()
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or host.endswith(":"):
            address = f"{address}:{DEFAULT_PORT}"
        addresses.append(address)
    if not addresses:
        raise ValueError("no endpoint was named: give at least one host:port")
    return addresses
