"""A whole node on the disk of tests/storage/sync_shim.c, in its own process; prints what it was told."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
import time
from pathlib import Path

from fastlock import cli
from fastlock.cli.probe import Probe, ProbeFailed, fetch_status
from fastlock.config import Address
from tests.node.cluster import FAST, Cluster, free_ports, run
from tests.node.test_serve import acquire

disk = ctypes.CDLL(None)


def slow(directory: str, delay_ms: str) -> None:
    """Every sync takes so long; prints how long each grant took."""

    async def scenario() -> None:
        async with Cluster(Path(directory)) as cluster:
            await cluster.start()
            async with await cluster.probe() as probe:
                disk.shim_delay_ms(int(delay_ms))
                for number in range(3):
                    started = time.monotonic()
                    reply = await probe.ask(acquire(b"k%d" % number, of={"leaseHigh": 2, "leaseLow": number}))
                    print(reply["code"], (time.monotonic() - started) * 1000)
                disk.shim_delay_ms(0)

    run(scenario())


def failing(directory: str) -> int:
    """A sync fails under `fastlock serve`; prints every answer, returns the exit code."""
    native, peer, http = (f"127.0.0.1:{port}" for port in free_ports(3))
    client = threading.Thread(target=lambda: asyncio.run(_break_disk(native, http)))
    client.start()
    settings = [part for setting in FAST for part in ("--set", setting)]
    where = ["--native", native, "--peer", peer, "--http", http]
    code = cli.main(["serve", "--data-dir", directory, *where, *settings])
    client.join()
    return code


async def _break_disk(native: str, http: str) -> None:
    while not (status := await fetch_status(Address.parse(http), 5.0)) or not status["ready"]:
        await asyncio.sleep(0.02)
    async with await Probe.open(Address.parse(native)) as probe:
        print("before", await probe.try_lock(b"k") or "ok")
        disk.shim_fail_after(0)
        try:
            reply = await probe.ask(acquire(b"k"))
            print("after", reply["code"])
        except (OSError, asyncio.IncompleteReadError, ProbeFailed):
            print("after", "nothing")


if __name__ == "__main__":
    scenario, *arguments = sys.argv[1:]
    sys.exit({"slow": slow, "failing": failing}[scenario](*arguments))
