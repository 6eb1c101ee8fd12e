"""The invariants of DESIGN §3, one test or more for each, named after it.

Every entry here also runs through the model (see lockstep.py); what a test adds is the invariant itself,
read from the table's own answers, events and state.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from commands import (
    CODE_NAMES,
    EVENT_NAMES,
    LOG,
    SEMAPHORE,
    SHARED,
    Command,
    acquire,
    acquire_all,
    create_lease,
    encode_entry,
    own,
    release,
    slot_of,
)
from lockstep import Lockstep, Scenario, move_slot
from model_state import Reply
from strategies import COMMAND_BYTES

from fastlock._core.locktable import LockTable

A, B, T1, T2 = b"a", b"b", b"{t}1", b"{t}2"
SEEDS = range(40)
LEASE_HIGH, LEASE_LOW, REQUEST, REVISION, MODE, COUNT = range(6)
EXCLUSIVE_MODE = 0


@pytest.fixture
def group() -> Lockstep:
    """A group that owns every key used here, with leases 1 to 4."""
    group = Lockstep()
    group.run(*own(A, B, T1), *(create_lease(lease) for lease in (1, 2, 3, 4)))
    return group


def codes(replies: list[Reply]) -> list[str]:
    return [reply.code for reply in replies]


def wakes(table: LockTable) -> list[tuple[int, str]]:
    return [(one.waiter, CODE_NAMES[one.code]) for one in table.outcomes_list() if one.position < 0]


def holder_claims(group: Lockstep, key: bytes) -> list[tuple[int, ...]]:
    claims: list[tuple[int, ...]] = group.table.dump()["rows"].get(key, {"holders": []})["holders"]
    return claims


def holders(group: Lockstep, key: bytes) -> list[int]:
    """The leases that hold a key, by token."""
    return [claim[LEASE_LOW] for claim in holder_claims(group, key)]


def waiters(group: Lockstep, key: bytes) -> list[int]:
    return [claim[LEASE_LOW] for claim in group.table.dump()["rows"][key]["waiters"]]


def drawn_entries(seed: int, total: int = 60) -> list[tuple[int, list[bytes]]]:
    random = Random(seed)
    return [
        (random.randrange(256), [random.randbytes(COMMAND_BYTES) for _ in range(4)]) for _ in range(total)
    ]


# 1. At most one exclusive holder, never exclusive together with shared, never above the limit.


def assert_holders_fit(rows: dict[bytes, Any]) -> None:
    for row in rows.values():
        modes = [claim[MODE] for claim in row["holders"]]
        taken = sum(claim[COUNT] for claim in row["holders"])
        if row["mode"] == LOG.RowMode.schema.enumerants["semaphore"]:
            assert set(modes) <= {SEMAPHORE}
            assert taken <= row["limit"]
        else:
            assert modes in ([], [EXCLUSIVE_MODE], [SHARED] * len(modes))


@pytest.mark.parametrize("seed", SEEDS)
def test_invariant_1_holders_always_fit_together(seed: int) -> None:
    scenario = Scenario()
    for what, recipes in drawn_entries(seed):
        scenario.step(what, recipes)
        for group in scenario.groups:
            assert_holders_fit(group.table.dump()["rows"])


def test_invariant_1_a_semaphore_gives_no_more_than_its_limit(group: Lockstep) -> None:
    take = {"mode": SEMAPHORE, "limit": 3}
    replies = group.run(
        acquire(A, 1, count=2, **take),
        acquire(A, 2, count=2, **take),
        acquire(A, 3, count=1, **take),
        acquire(A, 4, count=1, wait=False, **take),
    )
    # Lease 3 would fit, but a waiter is in front of it.
    assert codes(replies) == ["ok", "queued", "queued", "notAcquired"]
    group.run(release(A, 1, replies[0].token))
    assert holders(group, A) == [2, 3]


# 2. Fencing tokens strictly increase per key, for ever.


class TokenWatch:
    """Reads every grant a group makes and insists that each key's tokens rise, in whichever group."""

    def __init__(self) -> None:
        self.last: dict[bytes, int] = {}
        self._read: dict[int, int] = {}

    def read(self, group: Lockstep) -> None:
        granted = [EVENT_NAMES.index("acquired"), EVENT_NAMES.index("transferred")]
        after = self._read.get(group.group, 0)
        for event in group.table.events(after, b"", True, 1_000_000)[0]:
            if event.kind in granted:
                assert event.token == event.revision
                assert event.token > self.last.get(event.key, 0)
                self.last[event.key] = event.token
        self._read[group.group] = group.table.revision


@pytest.mark.parametrize("seed", SEEDS)
def test_invariant_2_tokens_increase_through_restarts_and_slot_moves(seed: int) -> None:
    random = Random(seed)
    here, there = Lockstep(1), Lockstep(2)
    here.run(*own(T1))
    watch = TokenWatch()
    # The groups' counters are far apart in either direction.
    there.run(*(Command("createLease", lease=99 + i, ttl_ms=1_000) for i in range(random.randrange(50))))
    for _ in range(60):
        what = random.randrange(10)
        if what == 0:
            move_slot(T1, here, there)
            here, there = there, here
        elif what == 1:
            here.finish_checkpoint(3, restart=True)
        else:
            here.run(*(_draw_grant_or_release(random, here) for _ in range(random.choice((1, 3, 8)))))
        watch.read(here)
        watch.read(there)
    assert watch.last


def _draw_grant_or_release(random: Random, group: Lockstep) -> Command:
    held = [claim for row in group.model.rows.values() for claim in row.holders]
    lease = random.randrange(1, 4)
    if held and random.random() < 0.5:
        claim = random.choice(held)
        return random.choice(
            (release(claim.key, claim.lease, claim.revision), Command("revoke", lease=claim.lease))
        )
    use = 0 if lease in group.model.leases else 1
    mode = random.choice((0, SHARED))
    return acquire(
        random.choice((T1, T2)), lease, random.randrange(9), mode=mode, lease_use=use, ttl_ms=1_000
    )


def test_invariant_2_tokens_increase_inside_one_batch(group: Lockstep) -> None:
    revision = group.table.revision
    replies = group.run(
        acquire(A, 1),
        acquire(A, 2),
        release(A, 1, revision + 1),
        acquire(A, 1, 2),
        release(A, 2, revision + 4),
    )
    assert codes(replies) == ["ok", "queued", "ok", "queued", "ok"]
    grants = [event for event in group.table.events(0, A, False, 100)[0] if event.token == event.revision]
    assert [event.token for event in grants] == [revision + 1, revision + 4, revision + 7]


def test_invariant_2_the_counter_is_part_of_every_checkpoint(group: Lockstep) -> None:
    (granted,) = group.run(acquire(A, 1))
    group.run(release(A, 1, granted.token))
    group.finish_checkpoint(100, restart=True)
    (again,) = group.run(acquire(A, 1))
    assert again.token > granted.token + 1


def test_invariant_2_tokens_stay_below_2_53(group: Lockstep) -> None:
    """The group stops well before, with its state as it was."""
    end = (1 << 53) - (1 << 32)
    slot = slot_of(b"elsewhere")
    group.run(Command("importSlots", first=slot, last=slot, token_floor=end - 1))
    (last,) = group.run(acquire(A, 1))
    assert last.token == end
    state = group.table.state_hash()
    beyond = Command("importSlots", first=slot, last=slot, token_floor=(1 << 53) - 1)
    for command in (acquire(B, 2), beyond):
        with pytest.raises(Exception, match="revision"):
            group.table.apply(encode_entry([command], group.table.applied_index + 1), 0)
        assert group.table.state_hash() == state


# 3. The decision is made at apply. Release and next grant are one apply. Removing a waiter serves the queue.


def test_invariant_3_a_release_hands_over_in_the_same_apply(group: Lockstep) -> None:
    held, waiting = group.run(acquire(A, 1), acquire(A, 2))
    group.run(release(A, 1, held.token))
    assert wakes(group.table) == [(waiting.revision, "ok")]
    assert holders(group, A) == [2]


def test_invariant_3_the_last_shared_release_lets_the_exclusive_waiter_in(group: Lockstep) -> None:
    one, two, _ = group.run(acquire(A, 1, mode=SHARED), acquire(A, 2, mode=SHARED), acquire(A, 3))
    group.run(release(A, 1, one.token))
    assert wakes(group.table) == []
    group.run(release(A, 2, two.token))
    assert holders(group, A) == [3]


@pytest.mark.parametrize("how", ["cancelWait", "revoke", "expire"])
def test_invariant_3_removing_a_waiter_serves_the_queue(group: Lockstep, how: str) -> None:
    """An exclusive waiter keeps shared ones out only as long as it waits."""
    _, gone, waiting = group.run(acquire(A, 1, mode=SHARED), acquire(A, 2), acquire(A, 3, mode=SHARED))
    generation = group.model.leases[2].generation
    group.run(Command(how, key=A, lease=2, request=1, generation=generation))
    ended = "waitCancelled" if how == "cancelWait" else "leaseLost"
    assert wakes(group.table) == [(gone.revision, ended), (waiting.revision, "ok")]
    assert holders(group, A) == [1, 3]


def test_invariant_3_an_acquire_all_that_leaves_serves_each_of_its_queues(group: Lockstep) -> None:
    group.run(acquire(T1, 1, mode=SHARED), acquire(T2, 1, mode=SHARED))
    group.run(acquire_all([T2, T1], 2), acquire(T1, 3, mode=SHARED), acquire(T2, 3, 2, mode=SHARED))
    group.run(Command("cancelWait", lease=2, request=1, keys=[T2, T1]))
    assert (holders(group, T1), holders(group, T2)) == ([1, 3], [1, 3])


# 4. The wait queue is replicated: order survives failover. A waiter whose lease died is never granted.


def test_invariant_4_the_queue_keeps_its_order_through_a_restart(group: Lockstep) -> None:
    group.run(*(acquire(A, lease) for lease in (4, 2, 3, 1)))
    group.finish_checkpoint(2, restart=True)
    assert waiters(group, A) == [2, 3, 1]
    served = []
    while group.table.holder_count:
        ((lease, token),) = [(claim[LEASE_LOW], claim[REVISION]) for claim in holder_claims(group, A)]
        group.run(release(A, lease, token))
        served.append(lease)
    assert served == [4, 2, 3, 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_invariant_4_a_waiter_whose_lease_died_is_never_granted(seed: int) -> None:
    scenario = Scenario()
    for what, recipes in drawn_entries(seed):
        scenario.step(what, recipes)
        for group in scenario.groups:
            state = group.table.dump()
            exported = {slot for slot, name in group.model.slots.items() if name == "exported"}
            for key, row in state["rows"].items():
                for claim in row["holders"] + row["waiters"]:
                    lease = state["leases"][claim[LEASE_HIGH], claim[LEASE_LOW]]
                    # An exported slot is frozen: it may still name a lease that ended.
                    assert lease["generation"] or slot_of(key) in exported


# 5. Apply reads only the entry and replicated state. An unknown entry version stops the group.


@pytest.mark.parametrize("seed", SEEDS)
def test_invariant_5_clock_and_layout_do_not_matter(seed: int) -> None:
    """The twin lives at another time and never restarts; it says and holds the same after every entry."""
    scenario = Scenario()
    for what, recipes in drawn_entries(seed):
        scenario.step(what, recipes)
        if seed % 4 == 0:
            scenario.groups[0].finish_checkpoint(1 + what % 7, restart=True)
        for group in scenario.groups:
            assert group.table.state_hash() == group.twin.state_hash()


def test_invariant_5_leading_or_not_does_not_matter(group: Lockstep) -> None:
    group.table.lead(1_000_000)
    group.run(acquire(A, 1), acquire(A, 2), acquire(A, 3, wait=False))
    group.table.due(1 << 40, 100)
    group.run(Command("expire", lease=1, generation=group.model.leases[1].generation))
    group.table.skip_time(5_000)
    group.table.follow()
    group.run(Command("revoke", lease=2))
    group.compare_twin()


def test_invariant_5_an_unknown_entry_version_stops_the_group(group: Lockstep) -> None:
    entry = LOG.LogEntry.new_message(
        version=2, kind="batch", group=1, term=1, index=group.table.applied_index + 1
    )
    state = group.table.state_hash()
    with pytest.raises(Exception, match="version"):
        group.table.apply(entry.to_bytes(), 0)
    assert group.table.state_hash() == state


# 6. Release, renew and fenced writes need the matching lease and token.

STALE = [
    (release(A, 1, 999), "staleToken"),
    (release(A, 2, 5), "staleToken"),
    (release(B, 1, 5), "staleToken"),
    (release(A, 9, 5), "leaseLost"),
    (Command("putValue", key=A, lease=1, token=999, value=b"late"), "staleToken"),
    (Command("putValue", key=A, lease=2, token=5, value=b"late"), "staleToken"),
    (Command("putValue", key=A, lease=9, token=5, value=b"late"), "leaseLost"),
    (Command("putValue", key=A, value=b"unfenced"), "heldByOther"),
    (Command("deleteValue", key=A, lease=1, token=999), "staleToken"),
    (Command("deleteValue", key=A), "heldByOther"),
    (Command("forceRelease", key=A, token=999), "staleToken"),
    (Command("expire", lease=1, generation=999), "staleGeneration"),
    (Command("noteRemaining", lease=1, generation=999, remaining_ms=5), "staleGeneration"),
    (Command("changeTtl", lease=9, ttl_ms=1_000), "leaseLost"),
]


@pytest.mark.parametrize(("stale", "code"), STALE, ids=[f"{stale.kind}-{code}" for stale, code in STALE])
def test_invariant_6_a_stale_command_changes_nothing(group: Lockstep, stale: Command, code: str) -> None:
    (held,) = group.run(acquire(A, 1))
    assert held.token == 5
    group.run(Command("putValue", key=A, lease=1, token=5, value=b"mine"))
    before = group.table.state_hash()
    assert codes(group.run(stale)) == [code]
    assert group.table.state_hash() == before


def test_invariant_6_a_token_of_an_earlier_grant_is_stale(group: Lockstep) -> None:
    (first,) = group.run(acquire(A, 1))
    group.run(release(A, 1, first.token))
    (second,) = group.run(acquire(A, 1))
    assert codes(group.run(release(A, 1, first.token))) == ["staleToken"]
    assert codes(group.run(release(A, 1, second.token))) == ["ok"]


# 7. Answers under doubt are errors, never guesses.


def test_invariant_7_a_repeat_gets_the_same_answer(group: Lockstep) -> None:
    (opened,) = group.run(Command("openSession"))
    once = acquire(A, 1, wait=False, session=opened.revision, sequence=1)
    refused = acquire(A, 2, wait=False, session=opened.revision, sequence=2)
    first = group.run(once, refused)
    group.run(release(A, 1, first[0].token))
    # Both would end differently by now.
    assert group.run(once, refused) == first


def test_invariant_7_what_cannot_be_known_any_more_is_refused(group: Lockstep) -> None:
    (opened,) = group.run(Command("openSession"))
    put = Command("putValue", key=B, value=b"1", session=opened.revision, sequence=1)
    group.run(
        put, Command("putValue", key=B, value=b"2", session=opened.revision, sequence=2, acknowledged_below=2)
    )
    assert codes(group.run(put)) == ["sequenceStale"]
    group.run(Command("closeSession", session=opened.revision, sequence=3))
    assert codes(group.run(put)) == ["sessionUnknown"]
    assert group.table.dump()["rows"][B]["value"] == b"2"
