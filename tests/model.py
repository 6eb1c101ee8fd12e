"""The oracle: the lock table of docs/LOCKS.md again, slow and obvious, in plain Python.

Nothing here is fast or clever. A group is a handful of dicts; every question is answered by looking
at all of them. The compiled table is compared with this after every entry it applies.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from commands import (
    ARGUMENT_IDS,
    CREATE,
    CREATE_BOUND,
    HALF,
    MODE_NAMES,
    NO_EXPIRY_TTL_MS,
    SETTING_IDS,
    SLOT_STATE_NAMES,
    SLOT_TOTAL,
    Command,
    slot_of,
)
from model_state import (
    BOUNDS,
    BOUNDS_OF_THE_REST,
    DEFAULTS,
    SESSION_LIFETIME_MS_MAX,
    SESSION_LIFETIME_MS_MIN,
    Answer,
    Claim,
    Event,
    Lease,
    Refused,
    Reply,
    Row,
    Session,
    Wake,
    by_enqueueing,
    by_token,
    dump_lease,
    dump_row,
    dump_session,
    refuse,
    refuse_argument,
    refuse_limit,
)

TTL_MS_MIN = 50
REVISION_END = 1 << 53
REVISION_STOP = REVISION_END - (1 << 32)

Outcome = Wake | tuple[int, Reply]


class GroupStopped(Exception):
    """The group's revision came too near to 2^53."""


class Model:
    def __init__(self) -> None:
        self.revision = 0
        self.settings = dict(DEFAULTS)
        self.slots: dict[int, str] = {}  # the rest is foreign
        self.moved_to: dict[int, int] = {}
        self.sessions: dict[int, Session] = {}
        self.leases: dict[int, Lease] = {}
        self.rows: dict[bytes, Row] = {}
        self.events: list[Event] = []
        self._wakes: list[Wake] = []

    def apply(self, commands: list[Command]) -> list[Outcome]:
        """Wakes and (position, reply) pairs, in the order in which they happen."""
        floors = [command.token_floor for command in commands if command.kind == "importSlots"]
        if any(REVISION_STOP <= revision < REVISION_END for revision in [self.revision, *floors]):
            raise GroupStopped
        outcomes: list[Outcome] = []
        for position, command in enumerate(commands):
            self._wakes = []
            reply = self._exactly_once(command) if command.session else self._act(command)
            self._tidy_rows()
            outcomes += [*self._wakes, (position, reply)]
        return outcomes

    def copy(self) -> Model:
        return copy.deepcopy(self)

    # Sessions

    def _exactly_once(self, command: Command) -> Reply:
        session = self.sessions.get(command.session)
        if session is None:
            return Reply("sessionUnknown")
        if command.acknowledged_below > command.sequence:
            return Reply("invalidArgument", ARGUMENT_IDS["acknowledgedBelow"])
        session.uses += 1
        if command.acknowledged_below > session.watermark:
            session.watermark = command.acknowledged_below
            for sequence in [known for known in session.answers if known < session.watermark]:
                del session.answers[sequence]
        if command.sequence < session.watermark:
            return self._look_up(command) or Reply("sequenceStale")
        if command.sequence >= session.watermark + self.settings["answersPerSessionMax"]:
            return Reply("limitExceeded", SETTING_IDS["answersPerSessionMax"])
        if command.sequence in session.answers:
            return self._repeated(command, session.answers[command.sequence].reply)
        reply = self._act(command)
        if command.kind != "closeSession":
            session.answers[command.sequence] = Answer(command.kind, reply)
        return reply

    def _repeated(self, command: Command, recorded: Reply) -> Reply:
        if recorded.code != "queued":
            return recorded
        if command.kind not in ("acquire", "acquireAll"):
            return Reply("sequenceStale")
        gone = "waitCancelled" if self._alive(command.lease) else "leaseLost"
        return self._look_up(command) or Reply(gone)

    def _look_up(self, command: Command) -> Reply | None:
        """What an acquire would be told about the claim it made earlier; None if there is none."""
        if command.kind not in ("acquire", "acquireAll"):
            return None
        keys = command.keys if command.kind == "acquireAll" else [command.key]
        if not keys:
            return None
        if self._slot_state(keys[0]) != "owned":
            return Reply("wrongSlot", self.moved_to.get(slot_of(keys[0]), 0))
        holder = self._holder(keys[0], command.lease, command.request)
        if holder:
            return Reply("ok", token=holder.revision, revision=holder.revision, count=len(keys))
        waiter = self._waiter(keys[0], command.lease, command.request)
        if waiter:
            return Reply("queued", revision=waiter.revision)
        return None

    def _open_session(self, command: Command) -> Reply:
        if command.session:
            refuse_argument("session")
        if len(self.sessions) >= self.settings["sessionsMax"]:
            refuse_limit("sessionsMax")
        lifetime_ms = command.lifetime_ms or self.settings["sessionLifetimeMs"]
        if not SESSION_LIFETIME_MS_MIN <= lifetime_ms <= SESSION_LIFETIME_MS_MAX:
            refuse("ttlOutOfRange")
        session = Session(self._next(), lifetime_ms)
        self.sessions[session.id] = session
        return Reply("ok", revision=session.id)

    def _close_session(self, command: Command) -> Reply:
        if not command.session:
            refuse_argument("session")
        del self.sessions[command.session]
        return Reply("ok")

    def _expire_session(self, command: Command) -> Reply:
        if command.session:
            refuse_argument("session")
        session = self.sessions.get(command.target)
        if session is None:
            refuse("sessionUnknown")
        if session.uses != command.uses:
            refuse("staleGeneration")
        del self.sessions[session.id]
        return Reply("ok")

    # Checks shared by commands

    def _act(self, command: Command) -> Reply:
        try:
            return ACTIONS[command.kind](self, command)
        except Refused as refusal:
            return refusal.reply

    def _next(self) -> int:
        self.revision += 1
        return self.revision

    def _check_key_bytes(self, key: bytes) -> None:
        if not key:
            refuse_argument("key")
        if len(key) > self.settings["keyBytesMax"]:
            refuse_limit("keyBytesMax")

    def _check_owned(self, key: bytes) -> None:
        if self._slot_state(key) != "owned":
            refuse("wrongSlot", self.moved_to.get(slot_of(key), 0))

    def _slot_state(self, key: bytes) -> str:
        return self.slots.get(slot_of(key), "foreign")

    def _check_key(self, key: bytes) -> None:
        self._check_key_bytes(key)
        self._check_owned(key)

    def _check_keys(self, keys: list[bytes]) -> None:
        if not keys:
            refuse_argument("keys")
        if len(keys) > self.settings["keysPerAcquireMax"]:
            refuse_limit("keysPerAcquireMax")
        for key in keys:
            self._check_key_bytes(key)
        if len({slot_of(key) for key in keys}) > 1:
            refuse("crossSlot")
        if len(set(keys)) < len(keys):
            refuse_argument("keys")
        self._check_owned(keys[0])

    def _check_lease_id(self, command: Command) -> None:
        if command.lease == 0:
            refuse_argument("leaseId")

    def _check_ttl(self, ttl_ms: int) -> None:
        if ttl_ms != NO_EXPIRY_TTL_MS and not TTL_MS_MIN <= ttl_ms <= self.settings["ttlMsMax"]:
            refuse("ttlOutOfRange")

    def _check_owner(self, owner: bytes) -> None:
        if len(owner) > self.settings["ownerBytesMax"]:
            refuse_limit("ownerBytesMax")

    def _check_new_lease(self, command: Command) -> None:
        self._check_ttl(command.ttl_ms)
        self._check_owner(command.owner)
        if command.lease in self.leases:
            refuse("leaseExists")
        if len(self.leases) >= self.settings["leasesMax"]:
            refuse_limit("leasesMax")

    def _alive(self, lease_id: int) -> Lease | None:
        lease = self.leases.get(lease_id)
        return lease if lease and lease.generation else None

    def _known_lease(self, command: Command) -> Lease:
        lease = self._alive(command.lease)
        if lease is None:
            refuse("leaseLost")
        return lease

    # Finding claims

    def _row(self, key: bytes) -> Row:
        """The row of a key, or a blank one that is not in the table."""
        return self.rows.get(key) or Row(key)

    def _holder(self, key: bytes, lease: int, request: int) -> Claim | None:
        return next((c for c in self._row(key).holders if (c.lease, c.request) == (lease, request)), None)

    def _waiter(self, key: bytes, lease: int, request: int) -> Claim | None:
        return next((c for c in self._row(key).waiters if (c.lease, c.request) == (lease, request)), None)

    def _holders(self, lease: int) -> list[Claim]:
        return [c for row in self.rows.values() for c in row.holders if c.lease == lease]

    def _waiters(self, lease: int) -> list[Claim]:
        return [c for row in self.rows.values() for c in row.waiters if c.lease == lease]

    def _claim_total(self, lease: int) -> int:
        return len(self._holders(lease)) + len(self._waiters(lease))

    def _linked(self, claim: Claim) -> list[Claim]:
        """The claims that wait together with this one, in key order."""
        name = (claim.lease, claim.request, claim.revision, slot_of(claim.key))
        found = [
            other
            for row in self.rows.values()
            for other in row.waiters
            if (other.lease, other.request, other.revision, slot_of(other.key)) == name
        ]
        return sorted(found, key=lambda other: other.position)

    # Leases

    def _create_lease(self, command: Command) -> Reply:
        self._check_lease_id(command)
        self._check_new_lease(command)
        generation = self._next()
        self.leases[command.lease] = Lease(command.lease, command.ttl_ms, command.owner, False, generation)
        return Reply("ok", revision=generation)

    def _change_ttl(self, command: Command) -> Reply:
        self._check_lease_id(command)
        self._check_ttl(command.ttl_ms)
        lease = self._known_lease(command)
        lease.ttl_ms = command.ttl_ms
        lease.remaining_ms = 0
        lease.generation = self._next()
        return Reply("ok", revision=lease.generation)

    def _note_remaining(self, command: Command) -> Reply:
        self._check_lease_id(command)
        lease = self._known_lease(command)
        if lease.generation != command.generation:
            refuse("staleGeneration")
        lease.remaining_ms = min(command.remaining_ms, lease.ttl_ms)
        lease.generation = self._next()
        return Reply("ok", revision=lease.generation)

    def _revoke(self, command: Command) -> Reply:
        self._check_lease_id(command)
        self._end_lease(self._known_lease(command), "revoked")
        return Reply("ok", revision=self.revision)

    def _expire(self, command: Command) -> Reply:
        self._check_lease_id(command)
        lease = self._known_lease(command)
        if lease.generation != command.generation:
            refuse("staleGeneration")
        self._end_lease(lease, "expired")
        return Reply("ok", revision=self.revision)

    def _end_lease(self, lease: Lease, cause: str) -> None:
        def moves(claim: Claim) -> bool:
            return self._slot_state(claim.key) != "exported"

        waiting = sorted(filter(moves, self._waiters(lease.id)), key=by_enqueueing)
        self._leave_queues(waiting, "leaseLost")
        for holder in sorted(filter(moves, self._holders(lease.id)), key=by_token):
            revision = self._depart(holder, cause)
            if cause == "expired" and holder.lock_delay_ms:
                row = self.rows[holder.key]
                row.delay_ms, row.delay_generation = holder.lock_delay_ms, revision
            self._serve([holder.key])
        self._serve([waiter.key for waiter in waiting])
        if self._claim_total(lease.id):
            lease.generation = 0
        else:
            del self.leases[lease.id]

    def _drop_bound_leases(self, lease_ids: list[int]) -> None:
        for lease_id in set(lease_ids):
            if self.leases[lease_id].bound and not self._claim_total(lease_id):
                del self.leases[lease_id]

    # Departures and grants

    def _depart(self, holder: Claim, cause: str, value: bytes = b"") -> int:
        self.rows[holder.key].holders.remove(holder)
        revision = self._next()
        self._tell(revision, cause, holder.key, holder, value)
        return revision

    def _leave_queues(self, waiters: list[Claim], code: str) -> None:
        for waiter in waiters:
            self.rows[waiter.key].waiters.remove(waiter)
        self._wake_each_once(waiters, code)

    def _wake_each_once(self, waiters: list[Claim], code: str) -> None:
        names = [(waiter.revision, slot_of(waiter.key)) for waiter in waiters]
        for revision, slot in dict.fromkeys(names):
            self._wakes.append(Wake(revision, code, slot))

    def _tell(self, revision: int, kind: str, key: bytes, holder: Claim | None, value: bytes = b"") -> None:
        if holder is None:
            self.events.append(Event(revision, kind, key, value=value))
            return
        mode = MODE_NAMES.index(holder.mode)
        owner = self.leases[holder.lease].owner
        self.events.append(Event(revision, kind, key, mode, holder.revision, owner, value))

    def _grant(self, claim: Claim, kind: str) -> int:
        token = self._next()
        holder = replace(claim, revision=token, position=0, key_total=0)
        self.rows[claim.key].holders.append(holder)
        self._tell(token, kind, claim.key, holder)
        return token

    def _serve(self, keys: list[bytes]) -> None:
        """Serves each queue and all that follows from it before the next."""
        for key in keys:
            to_serve = [key]
            while to_serve:
                to_serve += self._serve_one_queue(to_serve.pop(0))

    def _serve_one_queue(self, key: bytes) -> list[bytes]:
        """Grants from the front of one queue; returns the other keys this touched."""
        also: list[bytes] = []
        row = self._row(key)
        while row.waiters and self._may_have(row.waiters[0]):
            waiters = self._linked(row.waiters[0])
            also += [waiter.key for waiter in waiters if waiter.key != key]
            for waiter in waiters:
                self.rows[waiter.key].waiters.remove(waiter)
            tokens = [self._grant(waiter, "transferred") for waiter in waiters]
            wake = Wake(waiters[0].revision, "ok", slot_of(key), tokens[0], tokens[-1], len(tokens))
            self._wakes.append(wake)
        return also

    def _may_have(self, waiter: Claim) -> bool:
        linked = self._linked(waiter)
        return (
            self._slot_state(waiter.key) == "owned"
            and len(linked) == max(waiter.key_total, 1)
            and all(self.rows[one.key].waiters[0] is one for one in linked)
            and all(self.rows[one.key].fits(one.mode, one.count) for one in linked)
        )

    def _tidy_rows(self) -> None:
        for row in list(self.rows.values()):
            if not row.holders and not row.waiters:
                row.mode, row.limit = "free", 0
                if not row.value_revision and not row.delay_ms:
                    del self.rows[row.key]

    # Acquire

    def _acquire(self, command: Command) -> Reply:
        self._check_key(command.key)
        self._check_lease_id(command)
        self._check_acquire_arguments(command)
        return self._acquire_keys(command, [command.key])

    def _acquire_all(self, command: Command) -> Reply:
        self._check_keys(command.keys)
        self._check_lease_id(command)
        if command.mode == MODE_NAMES.index("semaphore"):
            refuse_argument("mode")
        self._check_acquire_arguments(command)
        return self._acquire_keys(command, command.keys)

    def _check_acquire_arguments(self, command: Command) -> None:
        if command.mode >= len(MODE_NAMES):
            refuse_argument("mode")
        if command.lease_use > CREATE_BOUND:
            refuse_argument("leaseUse")
        if MODE_NAMES[command.mode] == "semaphore":
            if command.limit == 0:
                refuse_argument("limit")
            if command.limit > self.settings["semaphoreLimitMax"]:
                refuse_limit("semaphoreLimitMax")
            if command.count > command.limit:
                refuse_argument("count")
        else:
            if command.limit > 1:
                refuse_argument("limit")
            if command.count > 1:
                refuse_argument("count")
        if command.lock_delay_ms > self.settings["lockDelayMsMax"]:
            refuse_limit("lockDelayMsMax")
        if command.lease_use in (CREATE, CREATE_BOUND):
            self._check_new_lease(command)
        else:
            self._known_lease(command)

    def _acquire_keys(self, command: Command, keys: list[bytes]) -> Reply:
        known = self._look_up(command)
        if known:
            return known
        for key in keys[1:]:
            if self._holder(key, command.lease, command.request) or self._waiter(
                key, command.lease, command.request
            ):
                refuse_argument("keys")

        mode = MODE_NAMES[command.mode]
        row_mode = "semaphore" if mode == "semaphore" else "lock"
        limit = command.limit if mode == "semaphore" else 0
        count = max(command.count, 1)
        rows = [self._row(key) for key in keys]
        for row in rows:
            if row.mode != "free" and (row.mode, row.limit) != (row_mode, limit):
                refuse("modeMismatch")

        for_this = [replace(row, limit=limit) for row in rows]
        blocked = [row for row in for_this if row.waiters or not row.fits(mode, count)]
        if blocked and not command.wait:
            first = blocked[0]
            refuse(
                "lockDelayed" if first.delay_ms else "notAcquired",
                token=first.holders[0].revision if first.holders else 0,
                count=len(first.waiters),
            )
        self._check_acquire_limits(command, rows, queueing=bool(blocked))

        for row in rows:
            self.rows[row.key] = row
            row.mode, row.limit = row_mode, limit
        if command.lease_use in (CREATE, CREATE_BOUND):
            bound = command.lease_use == CREATE_BOUND
            self.leases[command.lease] = Lease(
                command.lease, command.ttl_ms, command.owner, bound, self.revision + 1
            )
        key_total = len(keys) if command.kind == "acquireAll" else 0
        claims = [
            Claim(
                key,
                command.lease,
                command.request,
                mode,
                count,
                command.lock_delay_ms,
                0,
                position,
                key_total,
            )
            for position, key in enumerate(keys)
        ]
        if not blocked:
            tokens = [self._grant(claim, "acquired") for claim in claims]
            return Reply("ok", token=tokens[0], revision=tokens[-1], count=len(tokens))
        revision = self._next()
        for claim in claims:
            self.rows[claim.key].waiters.append(replace(claim, revision=revision))
        return Reply("queued", revision=revision)

    def _check_acquire_limits(self, command: Command, rows: list[Row], queueing: bool) -> None:
        if self._claim_total(command.lease) + len(rows) > self.settings["claimsPerLeaseMax"]:
            refuse_limit("claimsPerLeaseMax")
        new_total = sum(row.key not in self.rows for row in rows)
        if new_total and len(self.rows) + new_total > self.settings["locksMax"]:
            refuse_limit("locksMax")
        if queueing and any(len(row.waiters) >= self.settings["waitersPerLockMax"] for row in rows):
            refuse_limit("waitersPerLockMax")

    # Release and cancel

    def _release(self, command: Command) -> Reply:
        self._check_key(command.key)
        self._check_lease_id(command)
        holder = self._fenced_holder(command)
        revision = self._depart(holder, "released")
        self._serve([command.key])
        self._drop_bound_leases([command.lease])
        return Reply("ok", revision=revision)

    def _fenced_holder(self, command: Command) -> Claim:
        self._known_lease(command)
        named = (command.lease, command.token)
        matching = [one for one in self._row(command.key).holders if (one.lease, one.revision) == named]
        if not matching:
            refuse("staleToken")
        return matching[0]

    def _cancel_wait(self, command: Command) -> Reply:
        if command.keys:
            self._check_keys(command.keys)
        else:
            self._check_key(command.key)
        self._check_lease_id(command)
        keys = command.keys or [command.key]

        waiter = self._waiter(keys[0], command.lease, command.request)
        if waiter:
            waiters = self._linked(waiter)
            self._leave_queues(waiters, "waitCancelled")
            self._serve([one.key for one in waiters])
            self._drop_bound_leases([command.lease])
            return Reply("ok")

        if self._holder(keys[0], command.lease, command.request):
            return self._release_granted(command, keys)

        session = self.sessions.get(command.session)
        if session is None or not self._may_call_off(session, command):
            refuse("notFound")
        kind = "acquireAll" if command.keys else "acquire"
        session.answers[command.target] = Answer(kind, Reply("waitCancelled"))
        return Reply("ok")

    def _release_granted(self, command: Command, keys: list[bytes]) -> Reply:
        revisions = []
        for key in keys:
            holder = self._holder(key, command.lease, command.request)
            if holder:
                revisions.append(self._depart(holder, "released"))
                self._serve([key])
        self._drop_bound_leases([command.lease])
        return Reply("ok", revision=revisions[-1], count=len(revisions))

    def _may_call_off(self, session: Session, command: Command) -> bool:
        end = session.watermark + self.settings["answersPerSessionMax"]
        return (
            command.target != command.sequence
            and session.watermark <= command.target < end
            and command.target not in session.answers
        )

    def _force_release(self, command: Command) -> Reply:
        self._check_key(command.key)
        self._check_owner(command.actor)
        self._check_owner(command.reason)
        row = self.rows.get(command.key)
        if row is None:
            refuse("notFound")
        holders = [one for one in row.holders if command.token in (0, one.revision)]
        if command.token and not holders:
            refuse("staleToken")
        if not holders and not row.delay_ms:
            refuse("notFound")
        revision = self.revision
        for holder in holders:
            revision = self._depart(holder, "forced", command.actor + b"\n" + command.reason)
            self.leases[holder.lease].lost_revision = revision
        row.delay_ms = row.delay_generation = 0
        self._serve([row.key])
        self._drop_bound_leases([holder.lease for holder in holders])
        return Reply("ok", revision=revision, count=len(holders))

    def _end_delay(self, command: Command) -> Reply:
        self._check_key(command.key)
        row = self._row(command.key)
        if not row.delay_ms:
            refuse("notFound")
        if row.delay_generation != command.generation:
            refuse("staleGeneration")
        row.delay_ms = row.delay_generation = 0
        revision = self._next()
        self._tell(revision, "delayEnded", row.key, None)
        self._serve([row.key])
        return Reply("ok", revision=revision)

    # Values

    def _check_value_writer(self, command: Command) -> Claim | None:
        if command.token:
            return self._fenced_holder(command)
        if self._row(command.key).holders:
            refuse("heldByOther")
        return None

    def _put_value(self, command: Command) -> Reply:
        self._check_key(command.key)
        if command.token:
            self._check_lease_id(command)
        if len(command.value) > self.settings["valueBytesMax"]:
            refuse_limit("valueBytesMax")
        holder = self._check_value_writer(command)
        if command.key not in self.rows and len(self.rows) >= self.settings["locksMax"]:
            refuse_limit("locksMax")
        row = self.rows.setdefault(command.key, Row(command.key))
        row.value, row.value_revision, row.value_token = command.value, self._next(), command.token
        self._tell(row.value_revision, "put", row.key, holder, row.value)
        return Reply("ok", revision=row.value_revision)

    def _delete_value(self, command: Command) -> Reply:
        self._check_key(command.key)
        if command.token:
            self._check_lease_id(command)
        holder = self._check_value_writer(command)
        row = self._row(command.key)
        if not row.value_revision:
            refuse("notFound")
        row.value, row.value_revision, row.value_token = b"", 0, 0
        revision = self._next()
        self._tell(revision, "deleted", row.key, holder)
        return Reply("ok", revision=revision)

    # Group commands

    def _configure(self, command: Command) -> Reply:
        names = {number: name for name, number in SETTING_IDS.items() if name != "unset"}
        wanted = dict(self.settings)
        for number, value in command.settings:
            if number not in names:
                refuse_argument("setting")
            lowest, highest = BOUNDS.get(names[number], BOUNDS_OF_THE_REST)
            if not lowest <= value <= highest:
                refuse_argument("setting")
            wanted[names[number]] = value
        if wanted["hashSeed"] != self.settings["hashSeed"] and (self.rows or self.leases or self.sessions):
            refuse_argument("setting")
        self.settings = wanted
        return Reply("ok")

    def _check_slots(self, command: Command, *states: str) -> range:
        if command.first > command.last or command.last >= SLOT_TOTAL:
            refuse_argument("slots")
        slots = range(command.first, command.last + 1)
        if any(self.slots.get(slot, "foreign") not in states for slot in slots):
            refuse("wrongSlot")
        return slots

    def _own_slots(self, command: Command) -> Reply:
        for slot in self._check_slots(command, "foreign", "owned"):
            self.slots[slot] = "owned"
        return Reply("ok")

    def _export_slots(self, command: Command) -> Reply:
        slots = self._check_slots(command, "owned")
        revision = self._next()
        for row in self._rows_in(slots):
            for holder in row.holders:
                self.leases[holder.lease].lost_revision = revision
        for slot in slots:
            self.slots[slot] = "exported"
            self.moved_to[slot] = command.to_group
        waiters = [waiter for row in self._rows_in(slots) for waiter in row.waiters]
        self._wake_each_once(sorted(waiters, key=by_enqueueing), "wrongSlot")
        return Reply("ok", revision=revision)

    def _rows_in(self, slots: range) -> list[Row]:
        return [row for row in self.rows.values() if slot_of(row.key) in slots]

    def _import_slots(self, command: Command) -> Reply:
        slots = self._check_slots(command, "foreign", "importing")
        if command.token_floor >= REVISION_END:
            refuse_argument("tokenFloor")
        leases, rows = self._check_arriving(command, slots)
        self.revision = max(self.revision, command.token_floor)
        for lease in leases:
            if not self._alive(lease.id):
                self.leases[lease.id] = replace(lease, generation=self.revision, lost_revision=self.revision)
        for row in rows:
            self.rows[row.key] = row
        for slot in slots:
            self.slots[slot] = "owned" if command.complete else "importing"
        if command.complete:
            first_waiters = [row.waiters[0] for row in self._rows_in(slots) if row.waiters]
            self._serve([waiter.key for waiter in sorted(first_waiters, key=by_enqueueing)])
        return Reply("ok")

    def _check_arriving(self, command: Command, slots: range) -> tuple[list[Lease], list[Row]]:
        if any(isinstance(record, bytes) for record in command.rows):
            refuse_argument("rows")
        leases = [copy.deepcopy(record) for record in command.rows if isinstance(record, Lease)]
        rows = [copy.deepcopy(record) for record in command.rows if isinstance(record, Row)]
        revisions = [revision for record in leases + rows for revision in record.revisions()]
        if max(revisions, default=0) > command.token_floor:
            refuse_argument("rows")
        keys = [row.key for row in rows]
        if any(slot_of(key) not in slots or key in self.rows for key in keys) or len(set(keys)) < len(keys):
            refuse_argument("rows")
        arriving = {lease.id for lease in leases}
        for row in rows:
            for claim in row.holders + row.waiters:
                if not self._alive(claim.lease) and claim.lease not in arriving:
                    refuse_argument("rows")
        return leases, rows

    def _drop_slots(self, command: Command) -> Reply:
        slots = self._check_slots(command, "exported")
        rows = self._rows_in(slots)
        touched = {claim.lease for row in rows for claim in row.holders + row.waiters}
        for row in rows:
            del self.rows[row.key]
        for lease_id in touched:
            lease = self.leases[lease_id]
            if not self._claim_total(lease_id) and (lease.bound or lease.generation == 0):
                del self.leases[lease_id]
        for slot in slots:
            del self.slots[slot], self.moved_to[slot]
        return Reply("ok")

    def export(self, slots: range) -> list[Lease | Row]:
        """What travels with the slots: their rows, and the leases that have claims there."""
        rows = self._rows_in(slots)
        named = {claim.lease for row in rows for claim in row.holders + row.waiters}
        return copy.deepcopy([*(self.leases[lease_id] for lease_id in sorted(named)), *rows])

    # The whole state in the form of LockTable.dump()

    def dump(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "settings": dict(self.settings),
            "slots": self._dump_slots(),
            "sessions": {session.id: dump_session(session) for session in self.sessions.values()},
            "leases": {
                (lease.id >> 64, lease.id & HALF): dump_lease(lease) for lease in self.leases.values()
            },
            "rows": {row.key: dump_row(row) for row in self.rows.values()},
        }

    def _dump_slots(self) -> list[tuple[int, int, int, int]]:
        runs: list[tuple[int, int, int, int]] = []
        for slot, state in sorted(self.slots.items()):
            run = (slot, slot, SLOT_STATE_NAMES.index(state), self.moved_to.get(slot, 0))
            if runs and (runs[-1][1] + 1, *runs[-1][2:]) == (slot, *run[2:]):
                run = (runs.pop()[0], *run[1:])
            runs.append(run)
        return runs


ACTIONS = {
    "openSession": Model._open_session,
    "closeSession": Model._close_session,
    "expireSession": Model._expire_session,
    "createLease": Model._create_lease,
    "changeTtl": Model._change_ttl,
    "noteRemaining": Model._note_remaining,
    "revoke": Model._revoke,
    "expire": Model._expire,
    "acquire": Model._acquire,
    "acquireAll": Model._acquire_all,
    "release": Model._release,
    "cancelWait": Model._cancel_wait,
    "forceRelease": Model._force_release,
    "endDelay": Model._end_delay,
    "putValue": Model._put_value,
    "deleteValue": Model._delete_value,
    "configure": Model._configure,
    "ownSlots": Model._own_slots,
    "exportSlots": Model._export_slots,
    "importSlots": Model._import_slots,
    "dropSlots": Model._drop_slots,
}
