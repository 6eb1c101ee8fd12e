"""What both clients offer, said once: where the cluster is, which locks there are, what the core is asked."""

from __future__ import annotations

import os
import socket
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Generic, TypeVar

from fastlock.client.cluster import NS_PER_MS
from fastlock.client.core import Core
from fastlock.client.driver import Driver, now_ns
from fastlock.client.held import Entries, Held, OnLost, Terms
from fastlock.client.lock_info import LockInfo, lock_info
from fastlock.client.locking import Wanted
from fastlock.client.settings import ClientSettings
from fastlock.schema.enums import NO_EXPIRY_TTL_MS

LockType = TypeVar("LockType")
Key = str | bytes

DEFAULT_PORT = 7400


class ClientApi(Generic[LockType]):
    """Everything that needs no waiting. A subclass waits in its own way."""

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
        self.endpoints = _addresses(endpoints)
        self.driver = Driver(self.endpoints, settings)
        self.entries: Entries = {}

    @property
    def core(self) -> Core:
        return self.driver.core

    # Locks.

    def lock(
        self,
        key: Key,
        *,
        ttl: float | None = None,
        wait: float | None = None,
        reentrant: bool = False,
        own_lease: bool = False,
        lock_delay: float = 0.0,
        on_lost: OnLost | None = None,
        cancel_body: bool = True,
    ) -> LockType:
        """An exclusive lock on a key.

        `ttl`: seconds after which the cluster takes it back from a client that fell silent; `float("inf")` =
        never. `wait`: seconds to wait in its queue; None = as long as it takes. `reentrant`: the task or
        thread that holds it may take it again, and releases it as often. `own_lease`: keep it alive by
        itself, not together with the client's other locks. `lock_delay`: seconds for which nobody gets it
        after it expired. `on_lost`: called once, as soon as it may be lost. `cancel_body`: cancel the body of
        `async with` when it may be lost; a thread cannot be stopped from outside, and calls `held.check()`.
        """
        wanted = self._wanted((key,), ttl, own_lease, lock_delay)
        return self._lock(wanted, Terms(wait, reentrant, on_lost, cancel_body))

    def write_lock(self, key: Key, **options: Any) -> LockType:
        """The writer's side of a lock that readers share; the same as `lock`."""
        return self.lock(key, **options)

    def read_lock(
        self,
        key: Key,
        *,
        ttl: float | None = None,
        wait: float | None = None,
        reentrant: bool = False,
        own_lease: bool = False,
        on_lost: OnLost | None = None,
        cancel_body: bool = True,
    ) -> LockType:
        """A lock that any number of readers share, and no writer."""
        wanted = self._wanted((key,), ttl, own_lease, mode="shared")
        return self._lock(wanted, Terms(wait, reentrant, on_lost, cancel_body))

    def semaphore(
        self,
        key: Key,
        limit: int,
        count: int = 1,
        *,
        ttl: float | None = None,
        wait: float | None = None,
        own_lease: bool = False,
        on_lost: OnLost | None = None,
        cancel_body: bool = True,
    ) -> LockType:
        """`count` of the `limit` places that a key has."""
        wanted = self._wanted((key,), ttl, own_lease, mode="semaphore", limit=limit, count=count)
        return self._lock(wanted, Terms(wait, False, on_lost, cancel_body))

    def lock_all(
        self,
        *keys: Key,
        ttl: float | None = None,
        wait: float | None = None,
        reentrant: bool = False,
        own_lease: bool = False,
        on_lost: OnLost | None = None,
        cancel_body: bool = True,
    ) -> LockType:
        """Several keys: in one step where they share a slot, else slot by slot in a fixed order."""
        return self._lock(self._wanted(keys, ttl, own_lease), Terms(wait, reentrant, on_lost, cancel_body))

    def _lock(self, wanted: Wanted, terms: Terms) -> LockType:
        raise NotImplementedError

    # Operations of the core, with this client's deadline.

    async def _get(self, key: bytes, stale: bool) -> LockInfo | None:
        state = await self.core.get(key, stale, self._deadline_ns())
        if state is None or not (state.get("holders") or state["valueRevision"] or state["waiterCount"]):
            return None
        return lock_info(key, state)

    async def _page(self, prefix: bytes, cursor: bytes, stale: bool) -> tuple[list[LockInfo], bytes]:
        rows, cursor = await self.core.locks_page(prefix, cursor, stale, self._deadline_ns())
        return [lock_info(row["key"], row) for row in rows], cursor

    def _put(self, key: bytes, value: bytes, held: Held | None) -> Coroutine[Any, Any, int]:
        hold = held.hold_of(key) if held is not None else None
        return self.core.put(key, value, hold, self._deadline_ns())

    def _delete(self, key: bytes, held: Held | None) -> Coroutine[Any, Any, int]:
        hold = held.hold_of(key) if held is not None else None
        return self.core.delete(key, hold, self._deadline_ns())

    def _force_release(self, key: bytes, token: int, reason: str) -> Coroutine[Any, Any, int]:
        return self.core.force_release(key, token, self.settings.owner, reason.encode(), self._deadline_ns())

    def _deadline_ns(self) -> int:
        return now_ns() + self.settings.timeout_ms * NS_PER_MS

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
        names = tuple(name_of(key) for key in keys)
        return Wanted(names, ttl_ms, mode, limit, count, own_lease, int(lock_delay * 1000))


def name_of(key: Key) -> bytes:
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
