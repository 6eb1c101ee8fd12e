"""What all listeners have in common: addresses that others may reach, sockets, and how many of them fit."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Callable

from fastlock.config import Address, Config
from fastlock.errors import AddressInUse, ConfigError

_log = logging.getLogger("fastlock.node")

# Descriptors for everything that is not a client's connection.
DESCRIPTORS_RESERVED = 256


def check_addresses(config: Config) -> None:
    told = config.listen
    for name, address in (("native", told.native), ("peer", told.peer), ("http", told.http)):
        if address.is_loopback:
            continue
        if address.host in ("0.0.0.0", "::") and not told.advertise:
            raise ConfigError(f"--{name} {address}: others cannot reach a wildcard: say --advertise HOST too")
        _log.warning(
            "!!! --%s %s is reachable from other machines, and there is no transport security: "
            "everybody who reaches it can take and release any lock",
            name,
            address,
        )


def allow_descriptors(connections: int) -> int:
    """Raise the limit of open files as far as it goes; returns how many connections fit under it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + DESCRIPTORS_RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    fit = max(1, soft - DESCRIPTORS_RESERVED)
    _log.warning(
        "at most %d open files are allowed (ulimit -n): %d connections instead of %d", soft, fit, connections
    )
    return fit


def tune_socket(transport: asyncio.BaseTransport, dead_ms: int) -> None:
    """No delay for small writes, and a bound on how long a vanished other side goes unnoticed."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(1, dead_ms // 3000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, dead_ms)


async def listen(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], asyncio.BaseProtocol],
    address: Address,
    what: str,
    backlog: int = 1024,
    start_serving: bool = True,
) -> asyncio.Server:
    try:
        return await loop.create_server(
            protocol, address.host, address.port, backlog=backlog, start_serving=start_serving
        )
    except OSError as error:
        raise AddressInUse(
            f"--{what} {address}: {error.strerror or error}: "
            "stop what listens there, or choose another address"
        ) from error


def bound_address(server: asyncio.Server, wanted: Address) -> Address:
    """The address with the port that the system chose."""
    return Address(wanted.host, server.sockets[0].getsockname()[1])
