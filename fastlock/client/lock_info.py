"""A lock as anyone may see it: who holds it, who waits, and its value. Lease ids are secrets, never here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastlock.schema.enums import NO_EXPIRY_TTL_MS


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """One holder of a lock."""

    token: int
    owner: str
    mode: str
    count: int
    # Seconds; None = never expires, or not known on the node that answered.
    ttl: float | None
    remaining: float | None


@dataclass(frozen=True, slots=True)
class LockInfo:
    """One key at one revision."""

    key: bytes
    mode: str
    limit: int
    holders: tuple[HolderInfo, ...]
    waiters: int
    value: bytes | None
    revision: int
    # Seconds for which nobody gets the lock after its last holder's lease expired.
    delay: float
    # Of the value's last write; 0 = no value.
    value_revision: int = 0

    @property
    def is_held(self) -> bool:
        return bool(self.holders)


def lock_info(key: bytes, state: dict[str, Any]) -> LockInfo:
    """From a LockState of the schema."""
    return LockInfo(
        key,
        state["mode"],
        state["limit"],
        tuple(_holder(holder) for holder in state.get("holders", ())),
        state["waiterCount"],
        state.get("value", b"") if state["valueRevision"] else None,
        state["revision"],
        state["delayMs"] / 1000,
        state["valueRevision"],
    )


def _holder(claim: dict[str, Any]) -> HolderInfo:
    return HolderInfo(
        claim["revision"],
        claim.get("owner", b"").decode(errors="replace"),
        claim["mode"],
        claim["count"],
        None if claim["ttlMs"] == NO_EXPIRY_TTL_MS else claim["ttlMs"] / 1000,
        claim["remainingMs"] / 1000 if 0 <= claim["remainingMs"] < NO_EXPIRY_TTL_MS else None,
    )
