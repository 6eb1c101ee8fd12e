"""fastlock: a distributed lock service with leases, fencing tokens and fair queues."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastlock.client.async_client import AsyncClient
    from fastlock.client.async_election import AsyncElection
    from fastlock.client.async_lock import AsyncLock
    from fastlock.client.async_watch import AsyncWatch
    from fastlock.client.electing import Leader
    from fastlock.client.held import Held
    from fastlock.client.lock_info import HolderInfo, LockInfo
    from fastlock.client.settings import ClientSettings
    from fastlock.client.watching import Event

__all__ = [
    "AsyncClient",
    "AsyncElection",
    "AsyncLock",
    "AsyncWatch",
    "ClientSettings",
    "Event",
    "Held",
    "HolderInfo",
    "Leader",
    "LockInfo",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "async_client",
    "AsyncElection": "async_election",
    "AsyncLock": "async_lock",
    "AsyncWatch": "async_watch",
    "ClientSettings": "settings",
    "Event": "watching",
    "Held": "held",
    "HolderInfo": "lock_info",
    "Leader": "electing",
    "LockInfo": "lock_info",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use, so that a node, which is below this package too, does not load the client.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"fastlock.client.{_HOMES[name]}"), name)
