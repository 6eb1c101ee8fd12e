"""Reading the lock table: get, list with a cursor, events, and state that came in through rows."""

from __future__ import annotations

import pytest
from commands import CREATE, CREATE_BOUND, Command, encode_entry

from fastlock._core.locktable import ROW_GROUP, ROW_LEASE, LockTable
from fastlock.errors import EventsLost, MalformedFrame, UnknownCommand, UnsupportedVersion
from fastlock.schema import load

LOG = load("log")
WHOLE = Command("ownSlots", first=0, last=16383)


def table_with(*commands: Command, group: int = 1) -> LockTable:
    table = LockTable(group)
    for index, command in enumerate((WHOLE, *commands), 1):
        table.apply(encode_entry([command], index, group), 1_000)
    return table


def acquire(lease: int, key: bytes, **fields: int) -> Command:
    return Command("acquire", lease=lease, key=key, lease_use=CREATE, ttl_ms=10_000, owner=b"me", **fields)


def checkpoint(table: LockTable) -> dict[bytes, bytes]:
    table.freeze()
    rows = {}
    while page := table.frozen_rows(7):
        rows.update({key: row for key, row in page if row is not None})
    table.thaw()
    return rows


def loaded(rows: dict[bytes, bytes], group: int = 1) -> LockTable:
    table = LockTable(group)
    for key in sorted(rows):
        table.load_row(key, rows[key])
    table.finish_load()
    return table


def test_get_shows_holders_and_waiters_and_never_a_lease_id() -> None:
    table = table_with(acquire(0xABCDEF01, b"k"), acquire(0xABCDEF02, b"k", wait=True))
    table.lead(1_000)
    state = table.get(b"k", 4_000)
    assert state is not None
    assert state["waiterCount"] == 1
    assert state["holders"] == [
        {"mode": 0, "count": 1, "revision": 1, "ttlMs": 10_000, "remainingMs": 7_000, "owner": b"me"}
    ]
    assert "lease" not in repr(state).lower()
    assert str(0xABCDEF01) not in repr(state)
    assert table.get(b"other") is None
    table.follow()
    follower_state = table.get(b"k", 4_000)
    assert follower_state is not None
    assert follower_state["holders"][0]["remainingMs"] == -1


def test_get_is_what_the_schema_calls_a_lock_state() -> None:
    table = table_with(acquire(1, b"k"), Command("putValue", key=b"k", lease=1, token=1, value=b"v"))
    message = load("client").LockState.new_message(**table.get(b"k"))
    assert message.value == b"v"
    assert message.holders[0].owner == b"me"


def test_list_sees_every_row_once_while_the_table_grows() -> None:
    table = table_with(*(acquire(1 + i, b"stay/%d" % i) for i in range(200)))
    seen, cursor, index = [], b"", table.applied_index
    while True:
        page, cursor = table.list(b"stay/", cursor, 7)
        seen += [state["key"] for state in page]
        if not cursor:
            break
        index += 1
        commands = [acquire(index << 32 | i, b"new/%d/%d" % (index, i)) for i in range(40)]
        table.apply(encode_entry(commands[:20], index), 1_000)
        index += 1
        table.apply(encode_entry(commands[20:], index), 1_000)
    assert sorted(seen) == sorted(b"stay/%d" % i for i in range(200))


def test_a_list_cursor_is_good_on_another_node_and_after_a_restart() -> None:
    table = table_with(*(acquire(1 + i, b"stay/%d" % i) for i in range(100)))
    first, cursor = table.list(b"", b"", 40)
    rest = loaded(checkpoint(table))
    second, cursor = rest.list(b"", cursor, 1_000)
    assert cursor == b""
    assert len({state["key"] for state in first + second}) == len(first) + len(second) == 100


def test_a_list_page_looks_at_a_bounded_number_of_rows() -> None:
    table = table_with(*(acquire(1 + i, b"a/%d" % i) for i in range(300)))
    pages, cursor = 0, b""
    while True:
        page, cursor = table.list(b"none", cursor, 10, scanned_max=20)
        assert page == []
        pages += 1
        if not cursor:
            break
    assert pages >= 10


def test_a_watcher_that_was_outrun_is_told_so() -> None:
    table = LockTable(1, history_events_max=4)
    table.apply(encode_entry([WHOLE], 1), 0)
    for index in range(2, 12):
        table.apply(encode_entry([acquire(index, b"%d" % index)], index), 0)
    with pytest.raises(EventsLost) as lost:
        table.events(0, b"", True, 10)
    assert lost.value.floor == table.history_floor
    events, resume = table.events(table.history_floor, b"", True, 10)
    assert len(events) == 4
    assert resume == table.revision
    assert table.events(resume, b"", True, 10) == ([], resume)


def test_long_keys_owners_and_values_survive_rows() -> None:
    key, owner, value = b"k" * 1024, b"o" * 256, b"v" * 4096
    table = table_with(
        Command("acquire", lease=1, key=key, lease_use=CREATE, ttl_ms=10_000, owner=owner),
        Command("putValue", key=key, lease=1, token=1, value=value),
    )
    assert loaded(checkpoint(table)).dump() == table.dump()


def test_the_membership_travels_in_the_group_row() -> None:
    table = table_with()
    entry = LOG.LogEntry.new_message(version=1, kind="membership", group=1, term=1, index=2)
    members = entry.init("membership").init("members", 1)
    members[0].node, members[0].incarnation, members[0].address = 3, 4, "host:1"
    table.apply(entry.to_bytes(), 0)
    assert table.membership == [(3, 4, 0, b"host:1")]
    assert loaded(checkpoint(table)).membership == table.membership


def test_only_changes_since_the_last_checkpoint_are_written() -> None:
    table = table_with(acquire(1, b"a"), acquire(2, b"b"))
    assert len(checkpoint(table)) == 5
    assert table.dirty_count == 0
    index = table.applied_index + 1
    table.apply(encode_entry([acquire(3, b"c"), Command("revoke", lease=3)], index), 0)
    assert table.dirty_count == 0
    table.apply(encode_entry([Command("revoke", lease=1)], index + 1), 0)
    table.freeze()
    *deletes, (last, _) = table.frozen_rows(10)
    assert set(deletes) == {(b"\x04a", None), (b"\x03" + bytes(15) + b"\x01", None)}
    assert last == bytes([ROW_GROUP])


def test_a_damaged_checkpoint_is_refused() -> None:
    table = table_with(acquire(1, b"a"), Command("openSession"))
    rows = checkpoint(table)
    lease = next(key for key in rows if key[0] == ROW_LEASE)
    group = bytes([ROW_GROUP])
    for spoilt in (
        {key: row for key, row in rows.items() if key != lease},
        {key: row for key, row in rows.items() if key != group},
        rows | {b"\x04b": rows[b"\x04a"]},
        rows | {b"\x09": b"?"},
        rows | {lease: rows[lease][:-8]},
        rows | {b"\x04a": rows[lease]},
        {},
    ):
        with pytest.raises(MalformedFrame):
            loaded(spoilt)
    with pytest.raises(MalformedFrame):
        loaded(rows, group=2)


@pytest.mark.parametrize("spoil", ["version", "kind", "unset", "group", "index", "cut"])
def test_an_entry_that_cannot_be_applied_changes_nothing(spoil: str) -> None:
    table = table_with(acquire(1, b"a"))
    before, index = table.dump(), table.applied_index
    entry = LOG.LogEntry.new_message(version=1, kind="batch", group=1, term=1, index=index + 1)
    commands = entry.init("commands", 2)
    commands[0].leaseLow = 1
    commands[0].revoke = None
    commands[1].revoke = None
    if spoil == "version":
        entry.version = 9
    elif spoil == "unset":
        commands[1].unset = None
    elif spoil == "group":
        entry.group = 2
    elif spoil == "index":
        entry.index = index + 2
    frame = bytearray(entry.to_bytes())
    if spoil == "kind":
        frame[18] = 77
    elif spoil == "cut":
        del frame[-8:]
    expected = {"version": UnsupportedVersion, "kind": UnknownCommand, "unset": UnknownCommand,
                "group": ValueError, "index": AssertionError, "cut": MalformedFrame}[spoil]  # fmt: skip
    with pytest.raises(expected):
        table.apply(bytes(frame), 0)
    assert table.dump() == before
    assert table.applied_index == index


def test_a_cleared_table_is_like_a_fresh_one() -> None:
    table = table_with(
        acquire(1, b"k" * 100),
        Command("putValue", key=b"x", value=b"v"),
        Command("openSession"),
        Command("acquire", lease=2, key=b"y", lease_use=CREATE_BOUND, ttl_ms=1_000),
    )
    table.clear()
    assert table.dump() == LockTable(1).dump()
    table.check_invariants()
    table.apply(encode_entry([WHOLE, acquire(1, b"k")], 1), 0)
    assert table.lock_count == 1


def test_a_long_chain_of_acquire_alls_is_served_without_recursion() -> None:
    keys = [b"{t}%d" % i for i in range(2_001)]
    table = table_with(acquire(1, keys[0]))
    index, lease = table.applied_index, 10
    for i in range(2_000):
        index, lease = index + 1, lease + 1
        table.apply(
            encode_entry(
                [
                    Command(
                        "acquireAll",
                        lease=lease,
                        lease_use=CREATE,
                        ttl_ms=10_000,
                        mode=1,
                        keys=[keys[i], keys[i + 1]],
                        wait=True,
                    )
                ],
                index,
            ),
            0,
        )
    assert table.waiter_count == 4_000
    assert table.apply(encode_entry([Command("revoke", lease=1)], index + 1), 0) == 2_001
    assert table.waiter_count == 0
    table.check_invariants()
