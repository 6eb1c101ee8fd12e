"""What the oracle of tests/model.py remembers and says: plain records, settings, refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from commands import (
    ARGUMENT_IDS,
    CODE_NAMES,
    HALF,
    KIND_NAMES,
    MODE_NAMES,
    ROW_MODE_NAMES,
    SETTING_IDS,
    slot_of,
)

SESSION_LIFETIME_MS_MIN = 60_000
SESSION_LIFETIME_MS_MAX = 1 << 42

DEFAULTS = {
    "keyBytesMax": 1024,
    "ownerBytesMax": 256,
    "valueBytesMax": 4096,
    "ttlMsMax": 31_536_000_000,
    "lockDelayMsMax": 60_000,
    "locksMax": 16_000_000,
    "leasesMax": 16_000_000,
    "sessionsMax": 100_000,
    "claimsPerLeaseMax": 10_000,
    "waitersPerLockMax": 10_000,
    "keysPerAcquireMax": 64,
    "semaphoreLimitMax": 10_000,
    "answersPerSessionMax": 1024,
    "sessionLifetimeMs": 60_000,
    "hashSeed": 0,
}

# Setting -> (lowest, highest) value it may have; the rest may be 0 … 2^31 − 1.
BOUNDS = {
    "keyBytesMax": (0, 4096),
    "ownerBytesMax": (0, 4096),
    "valueBytesMax": (0, 65_536),
    "ttlMsMax": (0, 1 << 42),
    "lockDelayMsMax": (0, 3_600_000),
    "keysPerAcquireMax": (0, 1024),
    "answersPerSessionMax": (1, 65_536),
    "sessionLifetimeMs": (SESSION_LIFETIME_MS_MIN, SESSION_LIFETIME_MS_MAX),
    "hashSeed": (0, (1 << 64) - 1),
}
BOUNDS_OF_THE_REST = (0, (1 << 31) - 1)


class Reply(NamedTuple):
    code: str
    detail: int = 0
    token: int = 0
    revision: int = 0
    count: int = 0  # type: ignore[assignment]


class Wake(NamedTuple):
    waiter: int
    code: str
    detail: int  # the slot
    token: int = 0
    revision: int = 0
    count: int = 0  # type: ignore[assignment]


class Event(NamedTuple):
    revision: int
    kind: str
    key: bytes
    mode: int = 0
    token: int = 0
    owner: bytes = b""
    value: bytes = b""


class Refused(Exception):
    def __init__(self, reply: Reply) -> None:
        self.reply = reply


def refuse(code: str, detail: int = 0, token: int = 0, count: int = 0) -> NoReturn:
    raise Refused(Reply(code, detail, token=token, count=count))


def refuse_argument(name: str) -> NoReturn:
    refuse("invalidArgument", ARGUMENT_IDS[name])


def refuse_limit(name: str) -> NoReturn:
    refuse("limitExceeded", SETTING_IDS[name])


@dataclass
class Claim:
    key: bytes
    lease: int
    request: int
    mode: str
    count: int
    lock_delay_ms: int
    revision: int  # holder: its token; waiter: the revision it was enqueued at
    position: int = 0  # which key of its acquireAll
    key_total: int = 0  # of its acquireAll while it waits; 0 = a single acquire


@dataclass
class Lease:
    id: int
    ttl_ms: int
    owner: bytes
    bound: bool
    generation: int = 0  # 0 = ended, and only kept for its claims in exported slots
    remaining_ms: int = 0
    lost_revision: int = 0

    def revisions(self) -> list[int]:
        return [self.generation, self.lost_revision]


@dataclass
class Row:
    key: bytes
    mode: str = "free"
    limit: int = 0
    holders: list[Claim] = field(default_factory=list)
    waiters: list[Claim] = field(default_factory=list)
    value: bytes = b""
    value_revision: int = 0
    value_token: int = 0
    delay_ms: int = 0
    delay_generation: int = 0

    def revisions(self) -> list[int]:
        claims = [claim.revision for claim in self.holders + self.waiters]
        return [self.value_revision, self.value_token, self.delay_generation, *claims]

    def fits(self, mode: str, count: int) -> bool:
        if self.delay_ms:
            return False
        if mode == "exclusive":
            return not self.holders
        if mode == "shared":
            return all(holder.mode == "shared" for holder in self.holders)
        return sum(holder.count for holder in self.holders) + count <= self.limit


class Answer(NamedTuple):
    kind: str
    reply: Reply


@dataclass
class Session:
    id: int
    lifetime_ms: int
    watermark: int = 0
    uses: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)


def by_token(claim: Claim) -> tuple[int, int]:
    return claim.revision, slot_of(claim.key)


def by_enqueueing(claim: Claim) -> tuple[int, int, int]:
    return claim.revision, slot_of(claim.key), claim.position


def dump_session(session: Session) -> dict[str, Any]:
    return {
        "watermark": session.watermark,
        "uses": session.uses,
        "lifetime_ms": session.lifetime_ms,
        "answers": {
            sequence: (
                CODE_NAMES.index(answer.reply.code),
                KIND_NAMES.index(answer.kind),
                answer.reply.count,
                answer.reply.detail,
                answer.reply.token,
                answer.reply.revision,
            )
            for sequence, answer in session.answers.items()
        },
    }


def dump_lease(lease: Lease) -> dict[str, Any]:
    return {
        "ttl_ms": lease.ttl_ms,
        "owner": lease.owner,
        "bound": lease.bound,
        "generation": lease.generation,
        "remaining_ms": lease.remaining_ms,
        "lost_revision": lease.lost_revision,
    }


def dump_row(row: Row) -> dict[str, Any]:
    return {
        "mode": ROW_MODE_NAMES.index(row.mode),
        "limit": row.limit,
        "holders": [dump_claim(claim) for claim in row.holders],
        "waiters": [dump_claim(claim) for claim in row.waiters],
        "value": row.value if row.value_revision else None,
        "value_revision": row.value_revision,
        "value_token": row.value_token,
        "delay_ms": row.delay_ms,
        "delay_generation": row.delay_generation,
    }


def dump_claim(claim: Claim) -> tuple[int, ...]:
    return (
        claim.lease >> 64,
        claim.lease & HALF,
        claim.request,
        claim.revision,
        MODE_NAMES.index(claim.mode),
        claim.count,
        claim.lock_delay_ms,
        claim.position,
        claim.key_total,
    )
