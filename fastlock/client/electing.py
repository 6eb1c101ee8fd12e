"""Elections: the holder of a lock leads, and the lock's value says who that is."""

from __future__ import annotations

from dataclasses import dataclass

from fastlock.client.lock_info import LockInfo
from fastlock.client.watching import Event


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, as it introduced itself."""

    value: bytes
    owner: str
    token: int


class Observation:
    """Who leads, followed through a state and the events after it."""

    __slots__ = ("_revision", "_token", "leader")

    def __init__(self) -> None:
        # None: nobody, or somebody who has not introduced itself yet.
        self.leader: Leader | None = None
        self._token = 0
        self._revision = 0

    def read(self, info: LockInfo | None) -> None:
        """Begin from a state that was read after the watch began."""
        self.leader = None
        self._token = 0
        if info is None:
            return
        self._revision = info.revision
        if info.holders:
            holder = info.holders[0]
            self._token = holder.token
            # An older value is the one of a leader before.
            if info.value is not None and info.value_revision > holder.token:
                self.leader = Leader(info.value, holder.owner, holder.token)

    def follow(self, event: Event) -> bool:
        """Whether this event changed who leads."""
        if event.revision <= self._revision:
            return False
        before = self.leader
        if event.kind in ("acquired", "transferred"):
            self._token = event.token
            self.leader = None
        elif event.token != self._token:
            return False
        elif event.kind == "put":
            self.leader = Leader(event.value, event.owner, event.token)
        elif event.kind in ("released", "expired", "revoked", "forced"):
            self._token = 0
            self.leader = None
        return self.leader != before
