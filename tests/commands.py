"""Commands as tests write them, and their frames: encoded by pycapnp, never by the codec under test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fastlock.schema import load

LOG = load("log")
CLIENT = load("client")

CODE_NAMES = list(LOG.Code.schema.enumerants)
MODE_NAMES = list(LOG.LockMode.schema.enumerants)
ROW_MODE_NAMES = list(LOG.RowMode.schema.enumerants)
SLOT_STATE_NAMES = list(LOG.SlotState.schema.enumerants)
EVENT_NAMES = list(CLIENT.EventKind.schema.enumerants)
KIND_NAMES = list(LOG.Command.schema.union_fields)
SETTING_IDS: dict[str, int] = dict(LOG.SettingId.schema.enumerants)
ARGUMENT_IDS: dict[str, int] = dict(LOG.Argument.schema.enumerants)

EXCLUSIVE, SHARED, SEMAPHORE = range(3)
EXISTING, CREATE, CREATE_BOUND = range(3)

NO_EXPIRY_TTL_MS = LOG.noExpiryTtlMs
FORMAT_VERSION = LOG.formatVersion
SLOT_TOTAL = 16384
HALF = (1 << 64) - 1
# Of a row that a test moves with its slot.
ROW_BYTES_MAX = 8_192


@dataclass
class Command:
    """One command of log.capnp, its union's fields laid flat; a kind leaves the others at their defaults."""

    kind: str
    session: int = 0
    sequence: int = 0
    acknowledged_below: int = 0
    lease: int = 0  # the 128-bit id
    key: bytes = b""
    lifetime_ms: int = 0
    target: int = 0  # expireSession: the session; cancelWait: the sequence that is called off
    uses: int = 0
    ttl_ms: int = 0
    owner: bytes = b""
    generation: int = 0
    remaining_ms: int = 0
    request: int = 0
    mode: int = EXCLUSIVE
    lease_use: int = EXISTING
    wait: bool = False
    limit: int = 0
    count: int = 0
    lock_delay_ms: int = 0
    keys: list[bytes] = field(default_factory=list)
    token: int = 0
    actor: bytes = b""
    reason: bytes = b""
    value: bytes = b""
    settings: list[tuple[int, int]] = field(default_factory=list)
    first: int = 0
    last: int = 0
    to_group: int = 0
    complete: bool = False
    token_floor: int = 0
    rows: list[Any] = field(default_factory=list)  # model rows and leases; bytes = a record that is none

    def __repr__(self) -> str:
        given = [
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if name != "kind" and value not in (0, b"", [])
        ]
        return f"Command({', '.join([repr(self.kind), *given])})"


# Schema field -> field of Command, for the kinds that have any.
FIELDS: dict[str, dict[str, str]] = {
    "openSession": {"lifetimeMs": "lifetime_ms"},
    "expireSession": {"session": "target", "uses": "uses"},
    "createLease": {"ttlMs": "ttl_ms", "owner": "owner"},
    "changeTtl": {"ttlMs": "ttl_ms"},
    "noteRemaining": {"generation": "generation", "remainingMs": "remaining_ms"},
    "expire": {"generation": "generation"},
    "acquire": {
        "request": "request",
        "ttlMs": "ttl_ms",
        "mode": "mode",
        "lease": "lease_use",
        "wait": "wait",
        "limit": "limit",
        "count": "count",
        "lockDelayMs": "lock_delay_ms",
        "owner": "owner",
    },
    "acquireAll": {
        "request": "request",
        "ttlMs": "ttl_ms",
        "mode": "mode",
        "lease": "lease_use",
        "wait": "wait",
        "lockDelayMs": "lock_delay_ms",
        "owner": "owner",
        "keys": "keys",
    },
    "release": {"token": "token"},
    "cancelWait": {"request": "request", "sequence": "target", "keys": "keys"},
    "forceRelease": {"token": "token", "actor": "actor", "reason": "reason"},
    "endDelay": {"generation": "generation"},
    "putValue": {"token": "token", "value": "value"},
    "deleteValue": {"token": "token"},
    "ownSlots": {"first": "first", "last": "last"},
    "exportSlots": {"first": "first", "last": "last", "toGroup": "to_group"},
    "importSlots": {"first": "first", "last": "last", "complete": "complete", "tokenFloor": "token_floor"},
    "dropSlots": {"first": "first", "last": "last"},
}


@lru_cache(maxsize=4096)
def slot_of(key: bytes) -> int:
    left = key.find(b"{")
    right = key.find(b"}", left + 1)
    tag = key[left + 1 : right] if left >= 0 and right > left + 1 else key
    remainder = 0
    for byte in tag:
        remainder ^= byte << 8
        for _ in range(8):
            remainder = (remainder << 1 ^ 0x1021 if remainder & 0x8000 else remainder << 1) & 0xFFFF
    return remainder % SLOT_TOTAL


def encode_entry(
    commands: Sequence[Command], index: int, group: int = 1, term: int = 1, **header: Any
) -> bytes:
    """A batch entry's frame, in one segment as every stored frame is; `header` overrides its other fields."""
    fields = {
        "version": FORMAT_VERSION,
        "kind": "batch",
        "group": group,
        "term": term,
        "index": index,
        **header,
    }
    entry = LOG.LogEntry.new_message(num_first_segment_words=entry_words_max(commands), **fields)
    targets = entry.init("commands", len(commands))
    for command, target in zip(commands, targets, strict=True):
        fill_command(target, command)
    frame: bytes = entry.to_bytes()
    assert frame[:4] == b"\0\0\0\0"
    return frame


def entry_words_max(commands: Sequence[Command]) -> int:
    """Room for an entry and more: a single segment has no way to grow."""
    blobs = [
        blob for one in commands for blob in (one.key, one.owner, one.value, one.actor, one.reason, *one.keys)
    ]
    rows = [len(row) if isinstance(row, bytes) else ROW_BYTES_MAX for one in commands for row in one.rows]
    blob_bytes = sum(map(len, blobs)) + sum(rows)
    return 16 + 64 * len(commands) + 2 * (len(blobs) + len(rows)) + blob_bytes // 8


def fill_command(target: Any, command: Command) -> None:
    target.session = command.session
    target.sequence = command.sequence
    target.acknowledgedBelow = command.acknowledged_below
    target.leaseHigh = command.lease >> 64
    target.leaseLow = command.lease & HALF
    target.key = command.key
    if command.kind in ("closeSession", "revoke", "unset"):
        setattr(target, command.kind, None)
        return
    body = target.init(command.kind)
    for schema_name, name in FIELDS.get(command.kind, {}).items():
        setattr(body, schema_name, getattr(command, name))
    if command.kind == "configure":
        settings = body.init("settings", len(command.settings))
        for setting, (number, value) in zip(settings, command.settings, strict=True):
            setting.id, setting.value = number, value
    if command.kind == "importSlots":
        body.rows = [row if isinstance(row, bytes) else encode_row(row) for row in command.rows]


def encode_row(row: Any) -> bytes:
    """A model's row or lease as the record in which it travels with its slot."""
    kind, message = ("lease", lease_message(row)) if hasattr(row, "ttl_ms") else ("lock", row_message(row))
    frame: bytes = message.to_bytes()
    return bytes([LOG.RowKind.schema.enumerants[kind], 0, 0, 0, 0, 0, 0, 0]) + frame


def lease_message(lease: Any) -> Any:
    return LOG.LeaseRow.new_message(
        version=FORMAT_VERSION,
        bound=lease.bound,
        leaseHigh=lease.id >> 64,
        leaseLow=lease.id & HALF,
        ttlMs=lease.ttl_ms,
        generation=lease.generation,
        remainingMs=lease.remaining_ms,
        lostRevision=lease.lost_revision,
        owner=lease.owner,
    )


def row_message(row: Any) -> Any:
    return LOG.LockRow.new_message(
        version=FORMAT_VERSION,
        mode=row.mode,
        slot=slot_of(row.key),
        limit=row.limit,
        delayMs=row.delay_ms,
        delayGeneration=row.delay_generation,
        valueRevision=row.value_revision,
        valueToken=row.value_token,
        key=row.key,
        value=row.value,
        holders=[claim_fields(claim) for claim in row.holders],
        waiters=[claim_fields(claim) for claim in row.waiters],
    )


def claim_fields(claim: Any) -> dict[str, Any]:
    return {
        "leaseHigh": claim.lease >> 64,
        "leaseLow": claim.lease & HALF,
        "request": claim.request,
        "revision": claim.revision,
        "count": claim.count,
        "lockDelayMs": claim.lock_delay_ms,
        "mode": claim.mode,
        "position": claim.position,
        "keyTotal": claim.key_total,
    }


def own(*keys: bytes) -> list[Command]:
    slots = dict.fromkeys(slot_of(key) for key in keys)
    return [Command("ownSlots", first=slot, last=slot) for slot in slots]


def create_lease(lease: int, ttl_ms: int = 10_000, **more: Any) -> Command:
    return Command("createLease", lease=lease, ttl_ms=ttl_ms, **more)


def acquire(key: bytes, lease: int, request: int = 1, **more: Any) -> Command:
    """An acquire with a lease that exists; exclusive, and waiting unless told otherwise."""
    return Command("acquire", key=key, lease=lease, request=request, **{"wait": True, **more})


def acquire_all(keys: list[bytes], lease: int, request: int = 1, **more: Any) -> Command:
    return Command("acquireAll", keys=keys, lease=lease, request=request, **{"wait": True, **more})


def release(key: bytes, lease: int, token: int, **more: Any) -> Command:
    return Command("release", key=key, lease=lease, token=token, **more)
