"""How a directory becomes a member's: with whom its cluster was founded, and whether it ever took part.

The record lies in the log's environment beside the identity. A directory goes from empty to founded to
started, never back, and each step is durable before anyone is told.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from zlib import crc32

from fastlock import schema
from fastlock.errors import MalformedFrame
from fastlock.schema.enums import Stage
from fastlock.storage import StorageDamaged
from fastlock.storage.directory import (
    FORMAT_VERSION,
    IDENTITY_KEY,
    DirectoryLock,
    Identity,
    check_format,
    new_identity,
    open_environment,
    sync_directory,
    unpack_identity,
)

_FOUNDING_KEY = b"F"
_MAP_BYTES = 64 << 20
_CHECKSUM_BYTES = 4


class Founding(NamedTuple):
    """What a cluster began with: who, under which peer addresses, and with how many data groups."""

    members: tuple[tuple[int, str], ...]
    partitions: int

    def pack(self, identity: Identity, stage: Stage) -> bytes:
        frame = schema.encode(
            "peer",
            "Introduction",
            {
                "version": FORMAT_VERSION,
                "stage": stage.name,
                "clusterHigh": identity.cluster >> 64,
                "clusterLow": identity.cluster & (1 << 64) - 1,
                "founders": [{"node": node, "address": address} for node, address in self.members],
                "partitions": self.partitions,
            },
        )
        return crc32(frame).to_bytes(_CHECKSUM_BYTES, "little") + frame


def unpack_founding(record: bytes, path: str) -> tuple[Founding, Stage]:
    frame = record[_CHECKSUM_BYTES:]
    if crc32(frame) != int.from_bytes(record[:_CHECKSUM_BYTES], "little"):
        raise StorageDamaged(f"{path}: the record of the cluster's founding is damaged")
    try:
        fields = schema.decode("peer", "Introduction", frame)
    except MalformedFrame as error:
        raise StorageDamaged(f"{path}: the record of the cluster's founding is damaged") from error
    members = tuple((member["node"], member["address"]) for member in fields["founders"])
    return Founding(members, fields["partitions"]), Stage[fields["stage"]]


class FoundingDirectory:
    """A data directory before its storage is opened: it is locked, and nobody else works on it meanwhile."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self._lock = DirectoryLock(self._directory)
        self.identity: Identity | None = None
        self.founding: Founding | None = None
        self.stage = Stage.empty
        try:
            self._read()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> FoundingDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._lock.close()

    def _read(self) -> None:
        if not (self._directory / "log" / "data.mdb").exists():
            if (self._directory / "table" / "data.mdb").exists():
                raise StorageDamaged(
                    f"{self._directory}: the log is missing, but the table beside it is not new"
                )
            return
        environment = open_environment(self._directory / "log", _MAP_BYTES, _MAP_BYTES)
        try:
            identity = environment.get(IDENTITY_KEY)
            founding = environment.get(_FOUNDING_KEY)
        finally:
            environment.close()
        if identity is None:
            # Killed between the two records of `found`: nobody was told.
            return
        stored = unpack_identity(identity, str(self._directory))
        check_format(self._directory, stored)
        self.identity = stored.identity
        if founding is None:
            raise StorageDamaged(f"{self._directory}: the record of the cluster's founding is missing")
        self.founding, self.stage = unpack_founding(founding, str(self._directory))

    def found(self, identity: Identity, founding: Founding) -> None:
        """The directory is this member's from here on."""
        assert self.stage is Stage.empty
        self._put(
            {
                _FOUNDING_KEY: founding.pack(identity, Stage.founded),
                IDENTITY_KEY: new_identity(identity).pack(),
            }
        )
        self.identity, self.founding, self.stage = identity, founding, Stage.founded

    def start(self) -> None:
        """The member takes part from here on: it may vote and acknowledge."""
        assert self.identity is not None
        assert self.founding is not None
        self._put({_FOUNDING_KEY: self.founding.pack(self.identity, Stage.started)})
        self.stage = Stage.started

    def _put(self, records: dict[bytes, bytes]) -> None:
        environment = open_environment(self._directory / "log", _MAP_BYTES, _MAP_BYTES)
        try:
            for key, record in records.items():
                environment.put(key, record)
        finally:
            environment.close()
        sync_directory(self._directory)
        sync_directory(self._directory.absolute().parent)
