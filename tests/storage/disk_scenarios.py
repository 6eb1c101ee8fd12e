"""What runs on the disk of sync_shim.c, in a process of its own; prints what the storage told it."""

from __future__ import annotations

import ctypes
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fastlock.storage import StorageFailed
from fastlock.storage.lmdb import LmdbStorage

from .drivers import IDENTITY, SMALL, entry, wait_until, write
from .writer import Writer, plan

disk = ctypes.CDLL(None)


def refused(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except StorageFailed:
        print(name, "refused")
    else:
        print(name, "worked")


def timed(storage: LmdbStorage, name: str, take: Callable[[], object]) -> None:
    started = time.monotonic()
    while not take():
        select.select([storage], [], [], 0.01)
    print(name, (time.monotonic() - started) * 1000)


def slow(directory: str, delay_ms: str) -> None:
    storage = LmdbStorage(Path(directory), IDENTITY, SMALL)
    disk.shim_delay_ms(int(delay_ms))
    for seq in (1, 2, 3):
        storage.append(1, write(seq, [entry(seq)], hard_state=(seq, 1)))
        timed(storage, "write", storage.take_durable)
    storage.begin_checkpoint(1, False)
    storage.put_rows(1, [(b"a", b"1")])
    storage.commit_checkpoint(1, 3, 1)
    timed(storage, "checkpoint", storage.take_checkpoints)
    disk.shim_delay_ms(0)
    storage.close()


def failing(directory: str, syncs_before: str) -> None:
    storage = LmdbStorage(Path(directory), IDENTITY, SMALL)
    disk.shim_fail_after(int(syncs_before))
    seq = 0
    try:
        while True:
            seq += 1
            storage.append(1, write(seq, [entry(seq)]))
            wait_until(storage, lambda: bool(storage.take_durable()))
            print("write", seq)
    except StorageFailed:
        print("take_durable refused")
    refused("take_durable", storage.take_durable)
    refused("append", lambda: storage.append(1, write(seq + 1, [entry(seq + 1)])))
    # A cut may be asked for without a checkpoint here: it is refused before anything else.
    refused("cut", lambda: storage._log.cut(1, 1))
    storage.close()


def failing_checkpoint(directory: str) -> None:
    storage = LmdbStorage(Path(directory), IDENTITY, SMALL)
    storage.append(1, write(1, [entry(1)]))
    wait_until(storage, lambda: bool(storage.take_durable()))
    disk.shim_fail_after(0)
    storage.begin_checkpoint(1, False)
    storage.put_rows(1, [(b"a", b"1")])
    storage.commit_checkpoint(1, 1, 1)
    try:
        wait_until(storage, lambda: bool(storage.take_checkpoints()))
        print("take_checkpoints worked")
    except StorageFailed:
        print("take_checkpoints refused")
    refused("take_durable", storage.take_durable)
    storage.close()


def power_cuts(directory: str, images: str, seed: str, count: str) -> None:
    disk.shim_images(images.encode(), int(seed))
    storage = LmdbStorage(Path(directory), IDENTITY, SMALL)
    disk.shim_snapshots(30)
    Writer(storage, plan(int(seed), int(count)), 0, lambda done: disk.shim_acknowledged(done)).run()
    disk.shim_snapshots(0)
    storage.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
