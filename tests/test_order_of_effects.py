"""One command may touch many locks: in which order is part of the contract, so that every member agrees.

The shapes here are too particular for random commands to meet often.
"""

from __future__ import annotations

import pytest
from commands import (
    CODE_NAMES,
    EVENT_NAMES,
    SHARED,
    Command,
    acquire,
    acquire_all,
    create_lease,
    own,
    release,
    slot_of,
)
from lockstep import Lockstep
from model_state import Reply

A, B, X = b"a", b"b", b"x"
T = [b"{t}%d" % i for i in range(6)]


def span(key: bytes) -> dict[str, int]:
    return {"first": slot_of(key), "last": slot_of(key)}


def codes(replies: list[Reply]) -> list[str]:
    return [reply.code for reply in replies]


def grants_after(group: Lockstep, revision: int) -> list[bytes]:
    events = group.table.events(revision, b"", True, 1_000)[0]
    return [event.key for event in events if EVENT_NAMES[event.kind] == "transferred"]


def woken(group: Lockstep) -> list[tuple[int, str]]:
    return [(one.waiter, CODE_NAMES[one.code]) for one in group.table.outcomes_list() if one.position < 0]


def test_queues_are_served_breadth_first() -> None:
    """A grant on keys 0, 1, 2 opens queue 1, whose first waiter opens queue 3: queue 2 comes before it."""
    group = Lockstep()
    group.run(*own(T[0]), *(create_lease(lease) for lease in range(1, 8)))
    (held,) = group.run(acquire(T[0], 1))
    shared = {"mode": SHARED}
    group.run(
        acquire(T[3], 7, mode=SHARED),
        acquire_all([T[0], T[1], T[2]], 2, **shared),
        acquire_all([T[1], T[3]], 3, **shared),
        acquire(T[2], 4, **shared),
        acquire(T[3], 5, **shared),
        acquire(T[0], 6, **shared),
    )
    before = group.table.revision
    group.run(release(T[0], 1, held.token))
    assert grants_after(group, before) == [T[0], T[1], T[2], T[0], T[1], T[3], T[2], T[3]]


@pytest.mark.parametrize("local_key", [B, X])
def test_equal_revisions_of_two_groups_follow_their_slots(local_key: bytes) -> None:
    """A lease has the same token, and the same enqueue revision, in one slot and in another that arrived."""
    assert slot_of(B) < slot_of(T[0]) < slot_of(X)
    source, target = Lockstep(1), Lockstep(2)
    for group, key in ((source, T[0]), (target, local_key)):
        group.run(*own(key), create_lease(1), create_lease(2))
        # Revisions 3 to 6: lease 1 holds, lease 2 holds shared behind nobody, both wait for each other's key.
        group.run(acquire(key, 1, mode=SHARED), acquire(key, 2, mode=SHARED))
        group.run(acquire(key, 1, 2), acquire(key, 2, 2))
    (exported,) = source.run(Command("exportSlots", to_group=2, **span(T[0])))
    rows = source.model.export(range(slot_of(T[0]), slot_of(T[0]) + 1))
    target.run(
        Command("importSlots", complete=True, token_floor=exported.revision, rows=rows, **span(T[0])),
    )
    before = target.table.revision
    target.run(Command("revoke", lease=1))
    slots = sorted((slot_of(local_key), slot_of(T[0])))
    ended = [one for one in target.table.outcomes_list() if CODE_NAMES[one.code] == "leaseLost"]
    assert [(one.waiter, one.detail) for one in ended] == [(5, slot) for slot in slots]
    revoked = [
        one for one in target.table.events(before, b"", True, 100)[0] if EVENT_NAMES[one.kind] == "revoked"
    ]
    assert [(one.token, slot_of(one.key)) for one in revoked] == [(3, slot) for slot in slots]


def test_export_wakes_every_waiter_once_by_enqueue_revision() -> None:
    group = Lockstep()
    group.run(*own(T[0]), *(create_lease(lease) for lease in range(1, 6)))
    group.run(acquire_all([T[0], T[1]], 1))
    waits = group.run(acquire(T[1], 2), acquire_all([T[1], T[0]], 3), acquire(T[0], 4), acquire(T[1], 5))
    group.run(Command("exportSlots", to_group=2, **span(T[0])))
    assert woken(group) == [(wait.revision, "wrongSlot") for wait in waits]


def test_a_lease_that_ends_while_its_claims_arrive_leaves_no_queue_behind() -> None:
    """1. A holder arrives, the waiter behind it too. 2. Its lease ends here. 3. The import completes."""
    source, target = Lockstep(1), Lockstep(2)
    source.run(*own(A), create_lease(1), create_lease(2))
    source.run(acquire(A, 1), acquire(A, 2))
    source.run(Command("exportSlots", to_group=2, **span(A)))
    rows = source.model.export(range(slot_of(A), slot_of(A) + 1))
    floor = source.model.revision
    target.run(Command("importSlots", token_floor=floor, rows=rows, **span(A)))
    target.run(Command("revoke", lease=1))
    assert woken(target) == []
    target.run(Command("importSlots", complete=True, token_floor=floor, **span(A)))
    assert [code for _, code in woken(target)] == ["ok"]


def test_an_acquire_all_of_which_only_a_part_arrived_is_granted_nowhere() -> None:
    """1. One row of two arrives. 2. Its lease ends here. 3. The other row arrives, and the lease again."""
    source, target = Lockstep(1), Lockstep(2)
    source.run(*own(T[0]), create_lease(1), create_lease(2))
    (held,) = source.run(acquire(T[0], 1))
    source.run(acquire_all([T[0], T[1]], 2))
    source.run(Command("exportSlots", to_group=2, **span(T[0])))
    lease_1, lease_2, *rows = source.model.export(range(slot_of(T[0]), slot_of(T[0]) + 1))
    rows.sort(key=lambda row: row.key)
    floor = source.model.revision
    chunk = {"token_floor": floor, **span(T[0])}
    target.run(Command("importSlots", rows=[lease_2, rows[1]], **chunk))
    target.run(Command("revoke", lease=2))
    assert target.table.lock_count == 0
    target.run(Command("importSlots", rows=[lease_1, lease_2, rows[0]], complete=True, **chunk))
    target.run(release(T[0], 1, held.token))
    assert woken(target) == []
    assert target.table.waiter_count == 1
    # Its lease is alive, so it can be called off, and expires like any other.
    assert codes(target.run(Command("cancelWait", key=T[0], lease=2, request=1))) == ["ok"]
    assert target.table.lock_count == 0


def test_a_forced_release_of_all_serves_the_queue_once_they_are_all_gone() -> None:
    group = Lockstep()
    group.run(*own(A), *(create_lease(lease) for lease in range(1, 5)))
    shared = {"mode": SHARED}
    *_, waiting = group.run(
        acquire(A, 1, **shared), acquire(A, 2, **shared), acquire(A, 3, **shared), acquire(A, 4)
    )
    before = group.table.revision
    (reply,) = group.run(Command("forceRelease", key=A, actor=b"root", reason=b"stuck"))
    assert (reply.count, reply.revision) == (3, before + 3)
    assert woken(group) == [(waiting.revision, "ok")]
    forced = group.table.events(before, A, False, 3)[0]
    assert [one.value for one in forced] == [b"root\nstuck"] * 3
    assert [one.token for one in forced] == sorted(one.token for one in forced)
