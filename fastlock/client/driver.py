"""Sockets and timers around the protocol core, on an asyncio loop: both clients have one of these."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from random import SystemRandom
from typing import Any, TypeVar, cast

from fastlock.client.core import Core
from fastlock.client.flows import NEVER_NS, Flow
from fastlock.client.links import Link, LinkState
from fastlock.client.settings import ClientSettings
from fastlock.errors import ClientClosed

Result = TypeVar("Result")

NS_PER_S = 1_000_000_000
CLOSE_TIMEOUT_S = 5.0


def now_ns() -> int:
    """The client's clock: it counts while the machine sleeps, as leases do."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class _Connection(asyncio.Protocol):
    """One TCP connection of a link; what happens after it was dropped is nobody's business."""

    def __init__(self, driver: Driver, core: Core, link: Link) -> None:
        self._driver = driver
        self._core = core
        self._link = link
        self.dropped = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        if self.dropped:
            self.transport.abort()
            return
        self._core.opened(self._link)
        self._driver.turn()

    def data_received(self, data: bytes) -> None:
        if not self.dropped:
            self._core.received(self._link, data)
            self._driver.turn()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.dropped:
            self.dropped = True
            reason = f"the connection was lost ({error})" if error else "the node closed the connection"
            self._driver.lost(self._link, self, reason)

    def pause_writing(self) -> None:
        if not self.dropped:
            self._core.congested(self._link)

    def resume_writing(self) -> None:
        if not self.dropped:
            self._core.drained(self._link)
            self._driver.turn()

    def drop(self) -> None:
        self.dropped = True
        if self.transport is not None:
            self.transport.abort()


class Driver:
    """Runs one core. Everything but `core` and `check` is called in the loop's thread."""

    def __init__(self, endpoints: Sequence[str], settings: ClientSettings) -> None:
        self.settings = settings
        self.process = os.getpid()
        self.closed = False
        self._endpoints = endpoints
        self._core: Core | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: dict[Link, _Connection] = {}
        self._dialing: dict[Link, asyncio.Task[None]] = {}
        # What callers wait for at this moment, and how to tell them that it will never come.
        self._pending: dict[Flow[Any], Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER_NS
        self._turn_is_due = False

    @property
    def core(self) -> Core:
        """The core of a client that is open, in the process it belongs to. Raises ClientClosed."""
        if self._core is None:
            raise ClientClosed("this client is not connected: use it in `with`, or call connect() first")
        if self.process != os.getpid():
            raise ClientClosed("this client belongs to the parent process: create one after the fork")
        if self.closed:
            raise ClientClosed
        return self._core

    def start(self) -> None:
        """Begin in the loop that runs at this moment; once is enough."""
        if self._core is None:
            self._loop = asyncio.get_running_loop()
            self._core = Core(self._endpoints, self.settings, SystemRandom(), now_ns())

    def begin(
        self,
        operation: Coroutine[Any, Any, Result],
        on_finish: Callable[[Flow[Result]], None],
        on_close: Callable[[], None],
    ) -> Flow[Result]:
        """Start one of the core's operations. One of the two is called; a late end is told all the same."""
        try:
            flow = self.core.start(operation)
        except ClientClosed:
            operation.close()
            raise
        self._pending[flow] = on_close

        def finished(done: Flow[Result]) -> None:
            self._pending.pop(done, None)
            on_finish(done)

        flow.on_finish = finished
        self.turn_soon()
        return flow

    async def close(self) -> None:
        """End what callers wait for, give everything back, and hang up."""
        core = self._core
        if self.closed or core is None or self.process != os.getpid():
            self.closed = True
            return
        assert self._loop is not None
        for flow, on_close in list(self._pending.items()):
            on_close()
            flow.cancel()
        ended = self._loop.create_future()
        closing = core.close(now_ns() + int(CLOSE_TIMEOUT_S * NS_PER_S))

        def closed(done: Flow[None]) -> None:
            if not ended.done():
                ended.set_result(None)

        self.begin(closing, closed, lambda: None)
        try:
            await ended
        finally:
            self.closed = True
            self.turn()
            dialing = list(self._dialing.values())
            for task in dialing:
                task.cancel()
            await asyncio.gather(*dialing, return_exceptions=True)
            if self._timer is not None:
                self._timer.cancel()

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
            self._dialing[link] = self._loop.create_task(self._dial(core, link))
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

    def _set_timer(self, wake_ns: int) -> None:
        assert self._loop is not None
        if self._timer is not None:
            # A timer that is early does no harm; moving it with every turn would.
            if self._timer_ns <= wake_ns and self._timer_ns > now_ns():
                return
            self._timer.cancel()
            self._timer = None
        if wake_ns < NEVER_NS and not self.closed:
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

    async def _dial(self, core: Core, link: Link) -> None:
        assert self._loop is not None
        host, _, port = link.address.rpartition(":")
        connection = self._connections[link] = _Connection(self, core, link)
        try:
            await self._loop.create_connection(lambda: connection, host.strip("[]"), int(port))
        except (OSError, ValueError) as error:
            if self._connections.get(link) is connection:
                del self._connections[link]
                if link.state is LinkState.DIALING:
                    core.closed(link, str(error))
                    self.turn()
        finally:
            if self._dialing.get(link) is asyncio.current_task():
                del self._dialing[link]
