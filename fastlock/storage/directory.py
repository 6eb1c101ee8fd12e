"""A node's data directory: whose it is, that only one process works on it, and that it survives a power cut.

    DIR/lock     held with flock while a node runs
    DIR/log/     the log's environment
    DIR/table/   the table's environment

Both environments hold the identity. The log gets it first: a table with an identity beside a log without
one has lost its log.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from fastlock.errors import DirectoryInUse, DirectoryUnusable, ForeignDirectory, NewerFormat
from fastlock.storage import StorageDamaged
from fastlock.storage.environment import Environment
from fastlock.storage.page_check import check_pages

# What lies in the two environments and how. A release reads the formats up to its own.
FORMAT_VERSION = 1

IDENTITY_KEY = b"I"
_DIRECTORY_MODE = 0o700
_RECORD = Struct("<IIQQQQQ")


class Identity(NamedTuple):
    """Who a directory belongs to. A member that may have lost something comes back with a new incarnation."""

    cluster: int  # 128 bits
    node: int
    incarnation: int


class StoredIdentity(NamedTuple):
    """An identity as it lies in an environment."""

    format_version: int
    identity: Identity
    secret: int  # seeds the hashes of this directory

    def pack(self) -> bytes:
        cluster, node, incarnation = self.identity
        high, low = cluster >> 64, cluster & (1 << 64) - 1
        body = _RECORD.pack(0, self.format_version, high, low, node, incarnation, self.secret)[4:]
        return crc32(body).to_bytes(4, "little") + body


def unpack_identity(record: bytes, path: str) -> StoredIdentity:
    if len(record) != _RECORD.size or crc32(record[4:]) != int.from_bytes(record[:4], "little"):
        raise StorageDamaged(f"{path}: the record that says whose it is is damaged")
    _, version, high, low, node, incarnation, secret = _RECORD.unpack(record)
    return StoredIdentity(version, Identity(high << 64 | low, node, incarnation), secret)


def unusable(path: Path, error: OSError) -> DirectoryUnusable:
    return DirectoryUnusable(
        f"cannot use {error.filename or path}: {error.strerror}; "
        "look at its owner, permissions and free space, or choose another data directory"
    )


class DirectoryLock:
    """Held while a process works on a directory; the system lets go of it when the process ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        try:
            directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            self._file = open(self._path, "a+b", buffering=0)  # noqa: SIM115 - kept until close
        except OSError as error:
            raise unusable(directory, error) from error
        try:
            self._take(directory)
        except BaseException:
            self._file.close()
            raise

    def _take(self, directory: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.truncate(0)
            self._file.write(b"%d\n" % os.getpid())
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read(32).decode(errors="replace").strip() or "unknown"
            raise DirectoryInUse(
                f"{directory} is in use by process {holder}: stop it first, or choose another data directory"
            ) from None
        except OSError as error:
            raise unusable(directory, error) from error

    def close(self) -> None:
        self._file.close()


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_environment(path: Path, map_bytes: int, map_bytes_max: int) -> Environment:
    """The environment in `path`, looked through page by page, and durable as it was found.

    A process that was killed may have left a commit in the page cache only:
    1. it wrote its last commit, and was killed before the sync ended, so nobody was told;
    2. the next process reads that commit, takes it for durable, and acknowledges what is in it;
    3. the power is cut, and what was acknowledged is gone.
    So what is found is synced before anyone reads it.
    """
    data = path / "data.mdb"
    try:
        path.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        if data.exists():
            with open(data, "r+b") as file:
                os.fsync(file.fileno())
        check_pages(str(data))
    except OSError as error:
        raise unusable(path, error) from error
    environment = Environment(str(path), map_bytes, map_bytes_max)
    sync_directory(path)
    return environment


def claim_directory(
    directory: Path, log: Environment, table: Environment, wanted: Identity
) -> StoredIdentity:
    """Checks that both environments are `wanted`'s, or makes new ones so; returns what the directory says."""
    log_record, table_record = log.get(IDENTITY_KEY), table.get(IDENTITY_KEY)
    if log_record is None:
        if table_record is not None:
            raise StorageDamaged(f"{directory}: the log is missing, but the table beside it is not new")
        stored = new_identity(wanted)
        log.put(IDENTITY_KEY, stored.pack())
    else:
        stored = unpack_identity(log_record, log.path)
    check_identity(directory, stored, wanted)
    if table_record is None:
        table.put(IDENTITY_KEY, stored.pack())
        sync_directory(directory)
        sync_directory(directory.absolute().parent)
    elif (beside := unpack_identity(table_record, table.path)) != stored:
        raise ForeignDirectory(
            f"{table.path} belongs to {describe(beside.identity)}, the log beside it to "
            f"{describe(stored.identity)}: put the directories back where they were"
        )
    return stored


def new_identity(identity: Identity) -> StoredIdentity:
    return StoredIdentity(FORMAT_VERSION, identity, secrets.randbits(64))


def check_format(directory: Path, stored: StoredIdentity) -> None:
    if stored.format_version > FORMAT_VERSION:
        raise NewerFormat(
            f"{directory} has format {stored.format_version}, this release knows up to {FORMAT_VERSION}: "
            "run the release that wrote it, or a later one"
        )


def check_identity(directory: Path, stored: StoredIdentity, wanted: Identity) -> None:
    check_format(directory, stored)
    if (stored.identity.cluster, stored.identity.node) != (wanted.cluster, wanted.node):
        raise ForeignDirectory(
            f"{directory} belongs to {describe(stored.identity)}, not to {describe(wanted)}: "
            "choose another data directory, or start the node it belongs to"
        )


def describe(identity: Identity) -> str:
    return f"node {identity.node} of cluster {identity.cluster:032x}"


def stored_identity(directory: Path) -> Identity | None:
    """Who a directory belongs to; None if it is empty or does not exist. Refused while a node runs on it."""
    if not (directory / "log" / "data.mdb").exists():
        return None
    lock = DirectoryLock(directory)
    try:
        check_pages(str(directory / "log" / "data.mdb"))
        environment = Environment(str(directory / "log"), 0, 0)
        try:
            record = environment.get(IDENTITY_KEY)
        finally:
            environment.close()
        return None if record is None else unpack_identity(record, environment.path).identity
    finally:
        lock.close()
