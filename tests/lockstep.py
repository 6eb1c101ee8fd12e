"""The compiled table and the model side by side: every entry goes to both, and everything must be equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

from commands import (
    CODE_NAMES,
    EVENT_NAMES,
    FORMAT_VERSION,
    KIND_NAMES,
    LOG,
    MODE_NAMES,
    ROW_MODE_NAMES,
    Command,
    encode_entry,
    encode_row,
    slot_of,
)
from model import Model, Outcome
from model_state import Claim, Lease, Reply, Row, Wake
from strategies import BATCH_SIZES, COMMAND_BYTES, KEY_SLOTS, Generator

from fastlock._core.locktable import ROW_GROUP, LockTable

EVENTS_PAGE = 7
EXPORT_PAGE = 2
LIST_PAGE = 2
LOG_SHOWN = 12

# What a run has reached, so that a test can fail when the generators stop reaching something.
Reached = Counter[tuple[str | int, ...]]


class Checkpoint:
    """A checkpoint on its way: the state as it was at the freeze, and the entries applied since."""

    def __init__(self, state: dict[str, Any], rows_expected: int) -> None:
        self.state = state
        self.rows_expected = rows_expected
        self.entries_since: list[bytes] = []


class Lockstep:
    def __init__(self, group: int = 1) -> None:
        self.group = group
        self.table = LockTable(group)
        # The twin never restarts, so its slabs and hash chains are laid out by another history.
        self.twin = LockTable(group)
        self.model = Model()
        self.generator = Generator(self.model, group)
        self.reached: Reached = Counter()
        self.log: list[list[Command]] = []
        self.now_ms = 0
        self.stored: dict[bytes, bytes] = {}
        self._checkpoint: Checkpoint | None = None
        self._index = 0
        self._events_compared = 0
        self._revision_compared = 0

    # Entries

    def run(self, *commands: Command) -> list[Reply]:
        """Applies one entry to both sides and compares; returns the replies."""
        self.log.append(list(commands))
        return self._compare(commands, self.model.apply(list(commands)))

    def run_drawn(self, recipes: Sequence[bytes]) -> None:
        """One entry of drawn commands; each is drawn from the state its predecessor left behind."""
        commands: list[Command] = []
        outcomes: list[Outcome] = []
        self.now_ms += 1
        self.log.append(commands)
        for position, recipe in enumerate(recipes):
            command = self.generator.draw(recipe)
            commands.append(command)
            *wakes, (_, reply) = self.model.apply([command])
            outcomes += [*wakes, (position, reply)]
        self._compare(commands, outcomes)

    def run_import(self, command: Command, records: list[bytes]) -> Reply:
        """Imports records another table made, while the model imports the command's own rows."""
        self.log.append([command])
        expected = self.model.apply([command])
        (reply,) = self._compare([replace(command, rows=records)], expected)
        return reply

    def run_noop(self) -> None:
        noop = LOG.LogEntry.new_message(
            version=FORMAT_VERSION, kind="noop", group=self.group, term=1, index=self._index + 1
        )
        assert self._apply(noop.to_bytes()) == []
        self.compare_state()

    def _compare(self, commands: Sequence[Command], expected: list[Outcome]) -> list[Reply]:
        events_before = self._events_compared
        said = self._apply(encode_entry(commands, self._index + 1, self.group))
        assert said == [plain(outcome, commands) for outcome in expected]
        self.compare_state()
        self._note_reached(commands, expected)
        self.reached.update(("event", event.kind) for event in self.model.events[events_before:])
        return [outcome[1] for outcome in expected if not isinstance(outcome, Wake)]

    def _apply(self, entry: bytes) -> list[tuple[int, ...]]:
        self._index += 1
        count = self.table.apply(entry, self.now_ms)
        self.twin.apply(entry, 0)
        if self._checkpoint:
            self._checkpoint.entries_since.append(entry)
        outcomes = self.table.outcomes_list()
        assert count == len(outcomes)
        assert outcomes == self.twin.outcomes_list()
        assert all(one.code != 0 or one.position >= 0 or one.waiter for one in outcomes)
        return [tuple(one) for one in outcomes]

    def compare_state(self) -> None:
        assert self.table.dump() == self.model.dump()
        assert self.table.applied_index == self._index
        self._compare_events()
        holders = sum(len(row.holders) for row in self.model.rows.values())
        waiters = sum(len(row.waiters) for row in self.model.rows.values())
        assert (self.table.holder_count, self.table.waiter_count) == (holders, waiters)
        assert self.table.claim_count == holders + waiters
        assert self.table.lock_count == len(self.model.rows)
        assert self.table.lease_count == len(self.model.leases)
        assert self.table.session_count == len(self.model.sessions)

    def _compare_events(self) -> None:
        expected = [
            (one.revision, EVENT_NAMES.index(one.kind), one.mode, one.token, one.key, one.owner, one.value)
            for one in self.model.events[self._events_compared :]
        ]
        told = []
        while True:
            page, resume = self.table.events(self._revision_compared, b"", True, EVENTS_PAGE)
            assert len(page) <= EVENTS_PAGE
            told += [tuple(event) for event in page]
            if resume == self._revision_compared:
                break
            self._revision_compared = resume
        assert told == expected
        self._events_compared = len(self.model.events)

    def compare_twin(self) -> None:
        self.table.check_invariants()
        self.twin.check_invariants()
        assert self.table.state_hash() == self.twin.state_hash()
        assert self.twin.dump() == self.model.dump()

    # Reading

    def compare_reads(self) -> None:
        """get and list show every row as a client may see it: without lease ids."""
        for row in self.model.rows.values():
            state = self.table.get(row.key)
            assert state is not None
            assert_shows(state, row, self.model)
        assert self.table.get(b"no such key") is None
        for prefix in (b"", b"{t}", b"a"):
            keys = [key for key in self.model.rows if key.startswith(prefix)]
            owned = [key for key in keys if self.model.slots.get(slot_of(key)) == "owned"]
            assert sorted(self.listed(prefix)) == sorted(owned)

    def listed(self, prefix: bytes) -> list[bytes]:
        keys: list[bytes] = []
        cursor = b""
        while True:
            page, cursor = self.table.list(prefix, cursor, LIST_PAGE)
            assert len(page) <= LIST_PAGE
            for state in page:
                assert_shows(state, self.model.rows[state["key"]], self.model)
                keys.append(state["key"])
            if not cursor:
                return keys

    def compare_exports(self) -> None:
        """What the table would send of its exported slots is what the model would."""
        for slot in [slot for slot, state in self.model.slots.items() if state == "exported"]:
            expected = [as_dict(record) for record in self.model.export(range(slot, slot + 1))]
            told = [
                record for page in self.export_pages(slot, EXPORT_PAGE) for record in map(read_record, page)
            ]
            locks = [record for record in told if "key" in record]
            assert sorted(map(repr, locks)) == sorted(repr(record) for record in expected if "key" in record)
            # A lease is told again on every page that needs it.
            assert {repr(record) for record in told} == {repr(record) for record in expected}

    def export_pages(self, slot: int, max_rows: int) -> Iterator[list[bytes]]:
        """Pages of records, each with the leases its locks need in front of them."""
        cursor = b""
        while True:
            page, cursor = self.table.export_rows(slot, slot, cursor, max_rows)
            leases = set()
            for record in map(read_record, page):
                if "key" not in record:
                    leases.add((record["leaseHigh"], record["leaseLow"]))
                else:
                    claims = record["holders"] + record["waiters"]
                    assert {(one["leaseHigh"], one["leaseLow"]) for one in claims} <= leases
            yield page
            if not cursor:
                return

    def named(self, page: list[bytes]) -> list[Lease | Row]:
        """The model's own rows and leases that a page of records is about."""
        named: list[Lease | Row] = []
        for record in map(read_record, page):
            if "key" in record:
                named.append(self.model.rows[record["key"]])
            else:
                named.append(self.model.leases[record["leaseHigh"] << 64 | record["leaseLow"]])
        return deepcopy(named)

    # Checkpoints

    def freeze(self) -> None:
        if self._checkpoint:
            return
        dirty_count = self.table.dirty_count
        frozen = self.table.freeze()
        assert self.table.is_frozen
        assert (frozen.index, frozen.revision) == (self._index, self.model.revision)
        assert frozen.rows == dirty_count + 1
        self._checkpoint = Checkpoint(self.model.dump(), frozen.rows)

    def take_frozen_rows(self, max_rows: int) -> bool:
        """One slice of the checkpoint into the store; False when there was none left."""
        assert self._checkpoint
        rows = self.table.frozen_rows(max_rows)
        assert len(rows) <= max_rows
        for key, row in rows:
            self._checkpoint.rows_expected -= 1
            assert (key == bytes([ROW_GROUP])) == (self._checkpoint.rows_expected == 0)
            if row is None:
                del self.stored[key]
            else:
                self.stored[key] = row
        return bool(rows)

    def finish_checkpoint(self, max_rows: int, restart: bool) -> None:
        """Loads the finished checkpoint: it is the state at the freeze, and catches up by replaying."""
        self.freeze()
        while self.take_frozen_rows(max_rows):
            pass
        assert self._checkpoint
        assert self._checkpoint.rows_expected == 0
        self.table.thaw()
        assert not self.table.is_frozen
        loaded = self.load()
        assert loaded.dump() == self._checkpoint.state
        for entry in self._checkpoint.entries_since:
            loaded.apply(entry, self.now_ms)
        assert loaded.dump() == self.model.dump()
        loaded.check_invariants()
        assert loaded.state_hash() == self.table.state_hash()
        self._checkpoint = None
        if restart:
            self.table = loaded

    def load(self) -> LockTable:
        loaded = LockTable(self.group)
        for key in sorted(self.stored):
            loaded.load_row(key, self.stored[key])
        loaded.finish_load()
        return loaded

    def _note_reached(self, commands: Sequence[Command], outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Wake):
                self.reached["wake", outcome.code] += 1
                continue
            position, reply = outcome
            self.reached["kind", commands[position].kind] += 1
            self.reached["code", reply.code] += 1
            if reply.code in ("limitExceeded", "invalidArgument"):
                self.reached[reply.code, reply.detail] += 1


def plain(outcome: Outcome, commands: Sequence[Command]) -> tuple[int, ...]:
    """A model's outcome as the table's Outcome tuple."""
    if isinstance(outcome, Wake):
        position, kind, waiter, reply = -1, 0, outcome.waiter, outcome
    else:
        position, reply = outcome
        kind, waiter = KIND_NAMES.index(commands[position].kind), 0
    code = CODE_NAMES.index(reply.code)
    return position, code, kind, reply.count, reply.detail, waiter, reply.token, reply.revision


def assert_shows(state: dict[str, Any], row: Row, model: Model) -> None:
    """A LockState, against the model's row."""
    holders, waiters = ([shown(claim, model) for claim in claims] for claims in (row.holders, row.waiters))
    told = dict(state)
    # Of the waiters only the first few are shown.
    told_waiters = told.pop("waiters")
    assert told_waiters == waiters[: len(told_waiters)]
    assert bool(told_waiters) == bool(waiters)
    assert told == {
        "key": row.key,
        "mode": ROW_MODE_NAMES.index(row.mode),
        "limit": row.limit,
        "waiterCount": len(row.waiters),
        "delayMs": row.delay_ms,
        "valueRevision": row.value_revision,
        "value": row.value,
        "revision": model.revision,
        "holders": holders,
    }


def shown(claim: Claim, model: Model) -> dict[str, Any]:
    lease = model.leases[claim.lease]
    return {
        "mode": MODE_NAMES.index(claim.mode),
        "count": claim.count,
        "revision": claim.revision,
        "ttlMs": lease.ttl_ms,
        "remainingMs": -1,
        "owner": lease.owner,
    }


def read_record(record: bytes) -> dict[str, Any]:
    """A record of importSlots, read by pycapnp."""
    struct = LOG.LeaseRow if record[0] == LOG.RowKind.schema.enumerants["lease"] else LOG.LockRow
    with struct.from_bytes(record[8:]) as reader:
        fields: dict[str, Any] = reader.to_dict(verbose=True)
    return fields


def as_dict(record: Lease | Row) -> dict[str, Any]:
    return read_record(encode_row(record))


class Scenario:
    """Two groups that exchange slots, driven by steps that are mostly entries of drawn commands."""

    def __init__(self) -> None:
        self.groups = (Lockstep(1), Lockstep(2))
        first, second = self.groups
        first.generator.other, second.generator.other = second.generator, first.generator
        first.run(*(Command("ownSlots", first=slot, last=slot) for slot in KEY_SLOTS[:-1]))
        second.run(*(Command("ownSlots", first=slot, last=slot) for slot in KEY_SLOTS[1:]))

    def step(self, what: int, recipes: Sequence[bytes]) -> None:
        group = self.groups[what % 4 == 3]
        action = what // 4
        if action < 44:
            group.run_drawn(recipes)
        elif action < 47:
            group.freeze()
        elif action < 53:
            group.freeze()
            group.take_frozen_rows(1 + len(recipes))
        elif action < 57:
            group.finish_checkpoint(1 + len(recipes), restart=action % 2 == 0)
        elif action < 59:
            group.run_noop()
        elif action < 61:
            group.compare_exports()
            group.compare_reads()
        else:
            group.compare_twin()

    def finish(self) -> None:
        for group in self.groups:
            group.finish_checkpoint(5, restart=True)
            group.compare_twin()
            group.compare_exports()
            group.compare_reads()

    def explain(self) -> str:
        lines = []
        for group in self.groups:
            lines.append(f"group {group.group}, its last entries:")
            lines += [f"  {entry}" for entry in group.log[-LOG_SHOWN:]]
        return "\n".join(lines)


def run_seed(seed: int, step_total: int) -> Reached:
    """One scenario out of a seed; an error says how to replay it."""
    random = Random(seed)
    scenario = Scenario()
    try:
        for _ in range(step_total):
            recipes = [random.randbytes(COMMAND_BYTES) for _ in range(random.choice(BATCH_SIZES))]
            scenario.step(random.randrange(256), recipes)
        scenario.finish()
    except BaseException as error:
        error.add_note(scenario.explain())
        error.add_note(
            f"replay: FASTLOCK_LOCK_SEED={seed} python -m pytest tests/test_table_against_model.py"
        )
        raise
    return scenario.groups[0].reached + scenario.groups[1].reached


def move_slot(key: bytes, source: Lockstep, target: Lockstep) -> None:
    slot = slot_of(key)
    span = {"first": slot, "last": slot}
    (exported,) = source.run(Command("exportSlots", to_group=target.group, **span))
    rows = source.model.export(range(slot, slot + 1))
    floor = exported.revision
    (imported,) = target.run(Command("importSlots", complete=True, token_floor=floor, rows=rows, **span))
    assert imported.code == "ok"
    source.run(Command("dropSlots", **span))
