"""fastlock: a distributed lock service with leases, fencing tokens and fair queues."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastlock.client.async_client import AsyncClient
    from fastlock.client.async_lock import AsyncLock, Held
    from fastlock.client.lock_info import HolderInfo, LockInfo
    from fastlock.client.settings import ClientSettings

__all__ = ["AsyncClient", "AsyncLock", "ClientSettings", "Held", "HolderInfo", "LockInfo", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "async_client",
    "AsyncLock": "async_lock",
    "ClientSettings": "settings",
    "Held": "async_lock",
    "HolderInfo": "lock_info",
    "LockInfo": "lock_info",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use, so that a node, which is below this package too, does not load the client.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"fastlock.client.{_HOMES[name]}"), name)
