"""Random commands on purpose in each other's way: few keys, leases, requests and sessions.

A command is drawn from a handful of bytes and the model's state, so that hypothesis (which shrinks
bytes) and a plain seeded generator (which is fast) share every line. Zero bytes draw plain commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from commands import (
    CREATE,
    CREATE_BOUND,
    EXCLUSIVE,
    EXISTING,
    KIND_NAMES,
    NO_EXPIRY_TTL_MS,
    SEMAPHORE,
    SETTING_IDS,
    SHARED,
    Command,
    encode_row,
    slot_of,
)
from hypothesis import strategies as st
from model import Model
from model_state import BOUNDS, BOUNDS_OF_THE_REST, DEFAULTS, Claim, Lease, Row

T = TypeVar("T")

KEYS = (b"{t}1", b"{t}2", b"{t}3", b"a", b"b")
KEY_SLOTS = tuple(dict.fromkeys(slot_of(key) for key in KEYS))
ODD_KEYS = (b"", b"k" * 1025, b"far away", b"{t}4")
LEASES = (1, 2, 3 << 64, 4 << 64 | 4)
OWNERS = (b"me", b"", b"an owner with a long name", b"o" * 257)
TTLS_MS = (1_000, 50, 60_000, NO_EXPIRY_TTL_MS)
BAD_TTLS_MS = (49, 0, -1, 31_536_000_001, NO_EXPIRY_TTL_MS - 1, -(1 << 63))
SEQUENCE_LAST = (1 << 64) - 1
SENT_REMEMBERED = 16
COMMAND_BYTES = 40
BATCH_SIZES = (1, 1, 2, 3, 5, 8, 16, 64)

WEIGHTS = {
    "acquire": 24,
    "acquireAll": 11,
    "release": 12,
    "cancelWait": 9,
    "createLease": 4,
    "changeTtl": 2,
    "noteRemaining": 2,
    "revoke": 4,
    "expire": 6,
    "forceRelease": 4,
    "endDelay": 5,
    "putValue": 4,
    "deleteValue": 3,
    "openSession": 3,
    "closeSession": 1,
    "expireSession": 1,
    "configure": 3,
    "ownSlots": 3,
    "exportSlots": 1,
    "importSlots": 5,
    "dropSlots": 2,
}
WEIGHTED_KINDS = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]
assert set(WEIGHTS) == set(KIND_NAMES) - {"unset"}

drawn_bytes = st.lists(st.binary(max_size=COMMAND_BYTES), min_size=1, max_size=8)
# One step of a scenario: what to do, and the bytes its commands are drawn from.
steps = st.lists(st.tuples(st.integers(0, 255), drawn_bytes), max_size=40)


class Choices:
    """Decisions read from bytes; once they run out every decision is the first option."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def below(self, end: int) -> int:
        return next(self._bytes, 0) % end

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """False for a zero byte and once the bytes ran out."""
        return self.below(256) * 100 >= (100 - percent) * 256


class Generator:
    """Draws commands for one group; `other` is the group it exchanges slots with."""

    def __init__(self, model: Model, group: int) -> None:
        self.model = model
        self.group = group
        self.other: Generator = self
        self._sent: deque[Command] = deque(maxlen=SENT_REMEMBERED)

    def draw(self, data: bytes) -> Command:
        choices = Choices(data)
        kind = choices.pick(WEIGHTED_KINDS)
        if self._sent and choices.chance(10):
            return self._draw_repeat(choices)
        command: Command = DRAWERS[kind](self, choices)
        if (self.model.sessions and choices.chance(35)) or command.kind == "closeSession":
            command = self._in_session(choices, command)
            self._sent.append(command)
        return command

    # Sessions

    def _draw_repeat(self, choices: Choices) -> Command:
        command = self._sent[-1 - choices.below(len(self._sent))]
        if choices.chance(25):
            return replace(
                command, acknowledged_below=command.sequence + choices.below(3) - 1 & SEQUENCE_LAST
            )
        if choices.chance(5):
            return replace(self._draw_release(choices), session=command.session, sequence=command.sequence)
        return command

    def _in_session(self, choices: Choices, command: Command) -> Command:
        session = self.model.sessions.get(self._draw_session(choices))
        if session is None:
            return replace(command, session=choices.pick((7_777, 0)))
        command.session = session.id
        sequences = [session.watermark + offset for offset in (0, 1, 2, 3, 4)]
        command.sequence = choices.pick(sequences)
        if choices.chance(8):
            odd = (
                session.watermark - 1,
                session.watermark + self.model.settings["answersPerSessionMax"],
                SEQUENCE_LAST,
            )
            command.sequence = choices.pick(odd)
        command.sequence = min(max(command.sequence, 0), SEQUENCE_LAST)
        if choices.chance(15):
            below = (command.sequence, session.watermark + 1, command.sequence + 1, SEQUENCE_LAST)
            command.acknowledged_below = min(choices.pick(below), SEQUENCE_LAST)
        return command

    def _draw_session(self, choices: Choices) -> int:
        known = sorted(self.model.sessions)
        return choices.pick([*known * 5, 0])

    def _draw_open_session(self, choices: Choices) -> Command:
        lifetimes_ms = (0, 60_000, 1_000_000, 59_999, (1 << 42) + 1)
        return Command("openSession", lifetime_ms=choices.pick(lifetimes_ms))

    def _draw_close_session(self, choices: Choices) -> Command:
        return Command("closeSession")

    def _draw_expire_session(self, choices: Choices) -> Command:
        session = self.model.sessions.get(self._draw_session(choices))
        if session is None:
            return Command("expireSession", target=choices.below(4))
        return Command("expireSession", target=session.id, uses=session.uses + choices.pick((0, 0, 1)))

    # Parts of commands

    def _draw_key(self, choices: Choices) -> bytes:
        if choices.chance(4):
            return choices.pick(ODD_KEYS)
        keys = [key for key in KEYS if self.model.slots.get(slot_of(key)) == "owned"]
        return choices.pick(KEYS if choices.chance(10) else keys or KEYS)

    def _draw_keys(self, choices: Choices) -> list[bytes]:
        tagged = [key for key in KEYS if key.startswith(b"{t}")]
        if choices.chance(8):
            odd = (
                [],
                [b"{t}1", b"a"],
                [b"{t}1", b"{t}1"],
                [b"{t}1", b""],
                [b"k" * 1025],
                [b"{t}%d" % i for i in range(65)],
            )
            return list(choices.pick(odd))
        orders = (
            [0, 1],
            [1, 0],
            [0, 1, 2],
            [2, 1, 0],
            [1, 2],
            [2, 0],
            [1],
        )
        return [tagged[position] for position in choices.pick(orders)]

    def _draw_lease(self, choices: Choices) -> int:
        if choices.chance(2):
            return 0
        return choices.pick(LEASES)

    def _draw_ttl(self, choices: Choices) -> int:
        if choices.chance(4):
            return choices.pick(BAD_TTLS_MS)
        return choices.pick(TTLS_MS)

    def _draw_generation(self, choices: Choices, generation: int) -> int:
        return max(generation + choices.pick((0, 0, 0, 0, 0, 1, -1)), 0)

    def _lease_generation(self, choices: Choices, lease_id: int) -> int:
        lease = self.model.leases.get(lease_id)
        return self._draw_generation(choices, lease.generation if lease else 0)

    def _holders(self) -> list[Claim]:
        return [claim for row in self.model.rows.values() for claim in row.holders]

    def _waiters(self) -> list[Claim]:
        return [claim for row in self.model.rows.values() for claim in row.waiters]

    def _draw_holder(self, choices: Choices) -> tuple[bytes, int, int]:
        """Key, lease and token: of a holder as a rule, else of nobody."""
        holders = self._holders()
        if not holders or choices.chance(12):
            token = choices.pick((self.model.revision, 1, self.model.revision + 1))
            return self._draw_key(choices), self._draw_lease(choices), token
        holder = choices.pick(holders)
        lease = self._draw_lease(choices) if choices.chance(8) else holder.lease
        token = max(holder.revision - 1, 0) if choices.chance(8) else holder.revision
        return holder.key, lease, token

    # Leases

    def _draw_create_lease(self, choices: Choices) -> Command:
        return Command(
            "createLease",
            lease=self._draw_lease(choices),
            ttl_ms=self._draw_ttl(choices),
            owner=choices.pick(OWNERS),
        )

    def _draw_change_ttl(self, choices: Choices) -> Command:
        return Command("changeTtl", lease=self._draw_lease(choices), ttl_ms=self._draw_ttl(choices))

    def _draw_note_remaining(self, choices: Choices) -> Command:
        lease = self._draw_lease(choices)
        generation = self._lease_generation(choices, lease)
        remaining_ms = choices.pick((10, 0, 500, 1 << 62, SEQUENCE_LAST))
        return Command("noteRemaining", lease=lease, generation=generation, remaining_ms=remaining_ms)

    def _draw_revoke(self, choices: Choices) -> Command:
        return Command("revoke", lease=self._draw_lease(choices))

    def _draw_expire(self, choices: Choices) -> Command:
        lease = self._draw_lease(choices)
        return Command("expire", lease=lease, generation=self._lease_generation(choices, lease))

    # Locks

    def _draw_acquire(self, choices: Choices) -> Command:
        key = self._draw_key(choices)
        mode = choices.pick((EXCLUSIVE, EXCLUSIVE, SHARED, SHARED, SEMAPHORE))
        row = self.model.rows.get(key)
        if row and row.mode != "free" and choices.chance(70):
            mode = SEMAPHORE if row.mode == "semaphore" else choices.pick((EXCLUSIVE, SHARED))
        command = self._fill_acquire(choices, Command("acquire", key=key, mode=mode))
        if mode == SEMAPHORE:
            command.limit = choices.pick((2, 2, 2, 3, 1, 0, 10_001))
            command.count = choices.pick((1, 0, 2, 1, 3))
        elif choices.chance(10):
            command.limit, command.count = choices.pick(((1, 1), (2, 0), (0, 2), (1, 0), (0, 1)))
        return command

    def _draw_acquire_all(self, choices: Choices) -> Command:
        mode = choices.pick((EXCLUSIVE, SHARED))
        if choices.chance(3):
            mode = SEMAPHORE
        return self._fill_acquire(choices, Command("acquireAll", keys=self._draw_keys(choices), mode=mode))

    def _fill_acquire(self, choices: Choices, command: Command) -> Command:
        command.lease = self._draw_lease(choices)
        command.request = choices.below(3)
        command.wait = not choices.chance(25)
        creating = command.lease not in self.model.leases
        if choices.chance(5):
            creating = not creating
        command.lease_use = choices.pick((CREATE, CREATE_BOUND)) if creating else EXISTING
        command.ttl_ms = self._draw_ttl(choices) if creating else 0
        command.owner = choices.pick(OWNERS[:3])
        command.lock_delay_ms = choices.pick((0, 0, 500, 0, 700))
        if choices.chance(3):
            odd = choices.pick(
                ({"mode": 7}, {"lease_use": 9}, {"lock_delay_ms": 60_001}, {"owner": OWNERS[3]})
            )
            return replace(command, **odd)
        return command

    def _draw_release(self, choices: Choices) -> Command:
        key, lease, token = self._draw_holder(choices)
        return Command("release", key=key, lease=lease, token=token)

    def _draw_cancel_wait(self, choices: Choices) -> Command:
        claims = self._waiters()
        if choices.chance(25):
            claims = self._holders()
        if choices.chance(10):
            keys = self._draw_keys(choices)
            return Command(
                "cancelWait",
                lease=self._draw_lease(choices),
                request=choices.below(3),
                keys=keys,
                target=choices.below(8),
            )
        if claims and not choices.chance(20):
            claim = choices.pick(claims)
            keys = self._draw_keys(choices) if claim.key_total else []
            if keys and choices.chance(70):
                keys = [
                    key for key in dict.fromkeys([claim.key, *keys]) if slot_of(key) == slot_of(claim.key)
                ]
            command = Command(
                "cancelWait", key=claim.key, keys=keys, lease=claim.lease, request=claim.request
            )
        else:
            key, lease = self._draw_key(choices), self._draw_lease(choices)
            command = Command("cancelWait", key=key, lease=lease, request=choices.below(3))
        command.target = choices.below(8)
        return command

    def _draw_force_release(self, choices: Choices) -> Command:
        key, _, token = self._draw_holder(choices)
        actor = OWNERS[3] if choices.chance(3) else b"root"
        reason = OWNERS[3] if choices.chance(3) else b"stuck"
        return Command("forceRelease", key=key, token=choices.pick((0, token)), actor=actor, reason=reason)

    def _draw_end_delay(self, choices: Choices) -> Command:
        delayed = [row for row in self.model.rows.values() if row.delay_ms]
        if not delayed or choices.chance(10):
            return Command("endDelay", key=self._draw_key(choices), generation=choices.below(9))
        row = choices.pick(delayed)
        return Command(
            "endDelay", key=row.key, generation=self._draw_generation(choices, row.delay_generation)
        )

    # Values

    def _draw_put_value(self, choices: Choices) -> Command:
        value = b"v" * 4097 if choices.chance(3) else choices.pick((b"v", b"", b"w"))
        if choices.chance(40):
            key, lease, token = self._draw_holder(choices)
            return Command("putValue", key=key, lease=lease, token=token, value=value)
        return Command("putValue", key=self._draw_key(choices), value=value)

    def _draw_delete_value(self, choices: Choices) -> Command:
        valued = [row for row in self.model.rows.values() if row.value_revision]
        fenced = [holder for row in valued for holder in row.holders]
        if fenced and choices.chance(40):
            holder = choices.pick(fenced)
            return Command("deleteValue", key=holder.key, lease=holder.lease, token=holder.revision)
        if choices.chance(15):
            key, lease, token = self._draw_holder(choices)
            return Command("deleteValue", key=key, lease=lease, token=token)
        key = choices.pick(valued).key if valued else self._draw_key(choices)
        return Command("deleteValue", key=key)

    # The group itself

    def _draw_configure(self, choices: Choices) -> Command:
        defaults = [(SETTING_IDS[name], value) for name, value in DEFAULTS.items() if name != "hashSeed"]
        if choices.chance(50):
            return Command("configure", settings=defaults)
        if choices.chance(10):
            bad = ([(0, 1)], [(99, 1)], [(1, 2), (65_535, 0)], [])
            return Command("configure", settings=choices.pick(bad))
        settings = []
        for _ in range(1 + choices.below(3)):
            name = choices.pick(list(DEFAULTS))
            lowest, highest = BOUNDS.get(name, BOUNDS_OF_THE_REST)
            # Tiny limits are what we are after, and now and then one that is refused.
            values = [lowest, lowest + 1, lowest + 2, lowest + 3, DEFAULTS[name], highest]
            if choices.chance(5):
                values = [highest + 1 & SEQUENCE_LAST, lowest - 1 & SEQUENCE_LAST]
            settings.append((SETTING_IDS[name], choices.pick(values)))
        return Command("configure", settings=settings)

    def _draw_range(self, choices: Choices, slots: Sequence[int]) -> dict[str, int]:
        slot = choices.pick(slots)
        if choices.chance(5):
            first, last = choices.pick(((slot, slot - 1), (0, 16_384), (9, 65_535)))
            return {"first": first, "last": last}
        if choices.chance(10):
            return {"first": slot, "last": slot + 1}
        return {"first": slot, "last": slot}

    def _slots_in(self, *states: str) -> list[int]:
        found = [slot for slot in KEY_SLOTS if self.model.slots.get(slot, "foreign") in states]
        return found or list(KEY_SLOTS)

    def _draw_own_slots(self, choices: Choices) -> Command:
        slots = KEY_SLOTS if choices.chance(15) else self._slots_in("foreign")
        return Command("ownSlots", **self._draw_range(choices, slots))

    def _draw_export_slots(self, choices: Choices) -> Command:
        slots = KEY_SLOTS if choices.chance(15) else self._slots_in("owned")
        return Command("exportSlots", to_group=self.other.group, **self._draw_range(choices, slots))

    def _draw_drop_slots(self, choices: Choices) -> Command:
        slots = KEY_SLOTS if choices.chance(15) else self._slots_in("exported")
        return Command("dropSlots", **self._draw_range(choices, slots))

    def _draw_import_slots(self, choices: Choices) -> Command:
        """Brings over a slot the other group exported, whole or in parts; now and then spoilt."""
        ours = self._slots_in("foreign", "importing")
        theirs = [slot for slot in ours if self.other.model.slots.get(slot) == "exported"]
        span = self._draw_range(choices, theirs or KEY_SLOTS)
        records = self.other.model.export(range(span["first"], span["last"] + 1)) if theirs else []
        # Rows that arrived with an earlier chunk are not sent again.
        records = [one for one in records if not (isinstance(one, Row) and one.key in self.model.rows)]
        complete = not choices.chance(35)
        if choices.chance(35):
            records = [one for one in records if isinstance(one, Lease) or not choices.chance(50)]
            complete = False
        floor = self.other.model.revision
        if choices.chance(15):
            records, floor = self._spoil(choices, records, floor)
        return Command("importSlots", complete=complete, token_floor=floor, rows=records, **span)

    def _spoil(
        self, choices: Choices, records: list[Lease | Row | bytes], floor: int
    ) -> tuple[list[Lease | Row | bytes], int]:
        rows = [one for one in records if isinstance(one, Row)]
        spoilt = choices.below(7)
        if spoilt == 0:
            return [*records, b"garbage, not a row at all"], floor
        if spoilt == 1:
            return records, floor // 2
        if spoilt == 2:
            return records, choices.pick((1 << 53, SEQUENCE_LAST))
        if spoilt == 3 and rows:
            return [*records, rows[0]], floor
        if spoilt == 4:
            return [one for one in records if isinstance(one, Row)], floor
        if spoilt == 5 and records:
            return [*records[:-1], encode_row(records[-1])[: choices.pick((-8, 8, 16, -1))]], floor
        if spoilt == 6:
            return [*records, Row(b"elsewhere", value=b"v", value_revision=1)], floor
        return records, floor


DRAWERS = {
    "openSession": Generator._draw_open_session,
    "closeSession": Generator._draw_close_session,
    "expireSession": Generator._draw_expire_session,
    "createLease": Generator._draw_create_lease,
    "changeTtl": Generator._draw_change_ttl,
    "noteRemaining": Generator._draw_note_remaining,
    "revoke": Generator._draw_revoke,
    "expire": Generator._draw_expire,
    "acquire": Generator._draw_acquire,
    "acquireAll": Generator._draw_acquire_all,
    "release": Generator._draw_release,
    "cancelWait": Generator._draw_cancel_wait,
    "forceRelease": Generator._draw_force_release,
    "endDelay": Generator._draw_end_delay,
    "putValue": Generator._draw_put_value,
    "deleteValue": Generator._draw_delete_value,
    "configure": Generator._draw_configure,
    "ownSlots": Generator._draw_own_slots,
    "exportSlots": Generator._draw_export_slots,
    "importSlots": Generator._draw_import_slots,
    "dropSlots": Generator._draw_drop_slots,
}
