"""The traps of DESIGN §8 that concern the lock table: each has bitten a famous system."""

from __future__ import annotations

from random import Random
from time import perf_counter

import pytest
from commands import (
    CODE_NAMES,
    CREATE,
    CREATE_BOUND,
    KIND_NAMES,
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
from lockstep import Lockstep, move_slot
from model_state import Reply

from fastlock._core.locktable import LockTable
from fastlock._core.timers import TICK_MS
from fastlock.errors import EventsLost

A, B, T1, T2, T3 = b"a", b"b", b"{t}1", b"{t}2", b"{t}3"
TTL_MS = 10_000
DUE_MAX = 1_000
# A timer is due at its deadline, or one tick of the wheel later.
DUE_LATE_MS = TICK_MS
LEAD_SECONDS_MAX = 0.005


@pytest.fixture
def group() -> Lockstep:
    """A group that owns every key used here, with leases 1 to 4."""
    group = Lockstep()
    group.run(*own(A, B, T1), *(create_lease(lease, TTL_MS) for lease in (1, 2, 3, 4)))
    return group


def codes(replies: list[Reply]) -> list[str]:
    return [reply.code for reply in replies]


def expire(group: Lockstep, lease: int) -> Command:
    return Command("expire", lease=lease, generation=group.model.leases[lease].generation)


def woken(group: Lockstep) -> dict[int, str]:
    return {one.waiter: CODE_NAMES[one.code] for one in group.table.outcomes_list() if one.position < 0}


# Waiter granted after its lease died.


@pytest.mark.parametrize("how", ["expire", "revoke"])
def test_trap_waiter_granted_after_its_lease_died(group: Lockstep, how: str) -> None:
    held, waiting, next_one = group.run(acquire(A, 1), acquire(A, 2), acquire(A, 3))
    group.run(Command(how, lease=2, generation=group.model.leases[2].generation))
    assert woken(group) == {waiting.revision: "leaseLost"}
    group.run(release(A, 1, held.token))
    assert woken(group) == {next_one.revision: "ok"}


def test_trap_a_lease_that_holds_and_waits_on_one_key_is_not_its_own_successor(group: Lockstep) -> None:
    """Its holder departs and the queue is served while the same lease is first in it."""
    _, own_wait, other = group.run(acquire(A, 1, 1), acquire(A, 1, 2), acquire(A, 2))
    group.run(expire(group, 1))
    assert woken(group) == {own_wait.revision: "leaseLost", other.revision: "ok"}


def test_trap_waiter_of_a_dead_lease_in_an_acquire_all_is_granted_nowhere(group: Lockstep) -> None:
    one, two = group.run(acquire(T1, 1), acquire(T2, 2))
    (waiting,) = group.run(acquire_all([T1, T2, T3], 3))
    group.run(expire(group, 3))
    assert woken(group) == {waiting.revision: "leaseLost"}
    group.run(release(T1, 1, one.token), release(T2, 2, two.token))
    assert woken(group) == {}
    assert group.table.lock_count == 0


# Expire racing renew.


@pytest.mark.parametrize(
    "renew",
    [
        Command("changeTtl", lease=1, ttl_ms=TTL_MS),
        Command("noteRemaining", lease=1, remaining_ms=5),
    ],
    ids=lambda command: command.kind,
)
def test_trap_expire_racing_renew(group: Lockstep, renew: Command) -> None:
    """1. The leader proposes an expire. 2. A change of the lease commits. 3. The expire comes too late."""
    (held,) = group.run(acquire(A, 1))
    late = expire(group, 1)
    renew.generation = group.model.leases[1].generation
    assert codes(group.run(renew)) == ["ok"]
    assert codes(group.run(late)) == ["staleGeneration"]
    assert codes(group.run(release(A, 1, held.token))) == ["ok"]


def test_trap_keep_alive_while_expiring_is_not_confirmed(group: Lockstep) -> None:
    """Once the leader proposed an expire only its fate can answer a keep-alive."""
    table = group.table
    table.lead(0)
    assert not table.keep_alive(0, 1, TTL_MS - 1).expiring
    run_out = TTL_MS + DUE_LATE_MS
    assert {one.lease_low for one in table.due(run_out, DUE_MAX)} == {2, 3, 4}
    assert table.keep_alive(0, 2, run_out).expiring
    assert not table.keep_alive(0, 1, run_out).expiring
    group.now_ms = run_out
    group.run(expire(group, 2))
    lost = table.keep_alive(0, 2, run_out)
    assert (CODE_NAMES[lost.code], lost.expiring) == ("leaseLost", False)


# Re-created lease id.


@pytest.mark.parametrize("ending", ["expire", "revoke", "release", "forceRelease", "cancelWait"])
def test_trap_re_created_lease_id(group: Lockstep, ending: str) -> None:
    """A client that was cut off comes back with its old id: no command may bring it to life again."""
    group.run(acquire(A, 9, lease_use=CREATE_BOUND, ttl_ms=TTL_MS))
    lease, token = group.model.leases[9], group.model.rows[A].holders[0].revision
    end = Command(ending, key=A, lease=9, request=1, token=token, generation=lease.generation)
    assert codes(group.run(end)) == ["ok"]
    before = group.table.state_hash()
    later = group.run(
        acquire(B, 9),
        acquire_all([T1, T2], 9),
        release(A, 9, token),
        Command("putValue", key=A, lease=9, token=token, value=b"v"),
        Command("changeTtl", lease=9, ttl_ms=TTL_MS),
        Command("noteRemaining", lease=9, generation=lease.generation),
        Command("expire", lease=9, generation=lease.generation),
        Command("revoke", lease=9),
    )
    assert codes(later) == ["leaseLost"] * len(later)
    assert group.table.state_hash() == before
    group.table.lead(0)
    assert CODE_NAMES[group.table.keep_alive(0, 9, 0).code] == "leaseLost"


def test_trap_a_living_lease_id_is_not_taken_over(group: Lockstep) -> None:
    before = group.table.state_hash()
    taken = group.run(create_lease(1), acquire(A, 1, lease_use=CREATE, ttl_ms=TTL_MS))
    assert codes(taken) == ["leaseExists", "leaseExists"]
    assert group.table.state_hash() == before


def test_trap_a_lease_that_ended_while_its_slot_moved_is_not_used_again(group: Lockstep) -> None:
    slot = slot_of(T1)
    group.run(acquire(T1, 1), acquire(A, 1))
    group.run(Command("exportSlots", first=slot, last=slot, to_group=2), Command("revoke", lease=1))
    assert codes(group.run(acquire(B, 1), create_lease(1))) == ["leaseLost", "leaseExists"]
    group.run(Command("dropSlots", first=slot, last=slot))
    assert (0, 1) not in group.table.dump()["leases"]


# Retry applied twice.


@pytest.fixture
def session(group: Lockstep) -> int:
    (opened,) = group.run(Command("openSession"))
    return opened.revision


@pytest.mark.parametrize("restart", [False, True])
def test_trap_retry_applied_twice(group: Lockstep, session: int, restart: bool) -> None:
    """1. An acquire's answer is lost. 2. The holder, told by a retry, releases. 3. A delayed copy arrives."""
    request = acquire(A, 1, session=session, sequence=1)
    (granted,) = group.run(request)
    if restart:
        group.finish_checkpoint(4, restart=True)
    assert group.run(request) == [granted]
    group.run(release(A, 1, granted.token, session=session, sequence=2))
    assert group.run(request) == [granted]
    assert group.table.holder_count == 0
    group.run(Command("putValue", key=B, session=session, sequence=3, acknowledged_below=3))
    assert codes(group.run(request)) == ["sequenceStale"]
    assert group.table.holder_count == 0


def test_trap_retry_in_the_same_batch(group: Lockstep, session: int) -> None:
    put = Command("putValue", key=B, value=b"v", session=session, sequence=1)
    first, second = group.run(put, put)
    assert first == second
    assert group.table.revision == first.revision


def test_trap_retry_of_a_wait_joins_the_wait_and_never_queues_twice(group: Lockstep, session: int) -> None:
    wait = acquire(A, 2, session=session, sequence=1)
    held, queued, again = group.run(acquire(A, 1), wait, wait)
    assert queued == again
    assert group.table.waiter_count == 1
    group.run(release(A, 1, held.token))
    (granted,) = group.run(wait)
    assert (granted.code, granted.token) == ("ok", group.model.rows[A].holders[0].revision)
    group.run(release(A, 2, granted.token))
    assert codes(group.run(wait)) == ["waitCancelled"]
    group.run(Command("revoke", lease=2))
    assert codes(group.run(wait)) == ["leaseLost"]
    assert group.table.claim_count == 0


def test_trap_a_retry_below_the_watermark_finds_a_long_wait(group: Lockstep, session: int) -> None:
    """Long waits do not hold the watermark back."""
    wait = acquire_all([T1, T2], 2, session=session, sequence=1)
    held, queued = group.run(acquire(T1, 1), wait)
    group.run(Command("putValue", key=B, session=session, sequence=9, acknowledged_below=9))
    assert group.run(wait) == [queued]
    group.run(release(T1, 1, held.token))
    (granted,) = group.run(wait)
    assert (granted.code, granted.count) == ("ok", 2)


def test_trap_an_expired_session_cannot_act(group: Lockstep, session: int) -> None:
    request = acquire(A, 1, session=session, sequence=1)
    uses = group.model.sessions[session].uses
    assert codes(group.run(Command("expireSession", target=session, uses=uses))) == ["ok"]
    assert codes(group.run(request)) == ["sessionUnknown"]
    assert group.table.holder_count == 0


def test_trap_a_session_used_again_does_not_expire(group: Lockstep, session: int) -> None:
    late = Command("expireSession", target=session, uses=group.model.sessions[session].uses)
    group.run(acquire(A, 1, session=session, sequence=1))
    assert codes(group.run(late)) == ["staleGeneration"]


# Cancel-wait in all its races.


def test_trap_cancel_overtakes_its_acquire(group: Lockstep, session: int) -> None:
    cancel = Command("cancelWait", key=A, lease=1, request=1, target=1, session=session, sequence=2)
    assert codes(group.run(cancel)) == ["ok"]
    group.finish_checkpoint(3, restart=True)
    assert codes(group.run(acquire(A, 1, session=session, sequence=1))) == ["waitCancelled"]
    assert group.table.claim_count == 0


def test_trap_cancel_overtakes_the_acquire_that_would_create_its_lease(group: Lockstep, session: int) -> None:
    cancel = Command("cancelWait", key=A, lease=9, request=1, target=1, session=session, sequence=2)
    acquiring = acquire(A, 9, lease_use=CREATE_BOUND, ttl_ms=TTL_MS, session=session, sequence=1)
    assert codes(group.run(cancel, acquiring)) == ["ok", "waitCancelled"]
    assert (0, 9) not in group.table.dump()["leases"]


def test_trap_cancel_meets_the_grant(group: Lockstep) -> None:
    """The wait was granted while the cancel was on its way: nobody may be left holding."""
    held, waiting, behind = group.run(acquire(A, 1), acquire(A, 2), acquire(A, 3))
    cancelled = group.run(release(A, 1, held.token), Command("cancelWait", key=A, lease=2, request=1))
    assert (cancelled[1].code, cancelled[1].count) == ("ok", 1)
    assert woken(group) == {waiting.revision: "ok", behind.revision: "ok"}
    assert [holder.lease for holder in group.model.rows[A].holders] == [3]


def test_trap_cancel_twice_takes_nothing_from_anybody(group: Lockstep) -> None:
    group.run(acquire(A, 1), acquire(A, 2))
    cancel = Command("cancelWait", key=A, lease=2, request=1)
    assert codes(group.run(cancel, cancel)) == ["ok", "notFound"]


# Non-deterministic apply.


@pytest.mark.parametrize("seed", range(20))
def test_trap_non_deterministic_apply(seed: int) -> None:
    """Many rows, two memory layouts: one table is reloaded from rows again and again, its twin never."""
    random = Random(seed)
    keys = [b"{t}%d" % i for i in range(40)]
    group = Lockstep()
    group.run(*own(T1))
    for step in range(30):
        group.run(*(draw_crowded_command(random, group, keys) for _ in range(20)))
        if step % 3 == 0:
            group.finish_checkpoint(7, restart=True)
        group.compare_twin()


def draw_crowded_command(random: Random, group: Lockstep, keys: list[bytes]) -> Command:
    lease = random.randrange(1, 7)
    draw = random.random()
    if draw < 0.04:
        return Command("revoke", lease=lease)
    if draw < 0.08 and lease in group.model.leases:
        return expire(group, lease)
    use = 0 if lease in group.model.leases else CREATE
    more = {"lease_use": use, "ttl_ms": TTL_MS, "mode": random.choice((0, SHARED)), "lock_delay_ms": 0}
    if draw < 0.4:
        return acquire_all(random.sample(keys, 5), lease, random.randrange(1 << 40), **more)
    return acquire(random.choice(keys), lease, random.randrange(1 << 40), **more)


def test_trap_multi_lock_effects_follow_tokens_not_memory(group: Lockstep) -> None:
    """Handles are taken and given back in an order unlike the tokens' before a lease loses all its locks."""
    keys = [b"{t}%d" % i for i in (5, 3, 9, 1, 7)]
    first = group.run(*(acquire(key, 1, i) for i, key in enumerate(keys)))
    group.run(*(release(keys[i], 1, first[i].token) for i in (3, 0, 4)))
    group.run(*(acquire(keys[i], 1, i) for i in (4, 3, 0)))
    group.run(*(acquire(key, 2, i) for i, key in enumerate(keys)))
    before = group.table.revision
    group.run(Command("revoke", lease=1))
    events = group.table.events(before, b"{t}", True, 100)[0]
    departed = [event.token for event in events if event.token != event.revision]
    assert departed == sorted(departed)
    assert len(departed) == len(keys)


# Events lost for a slow watcher.


def test_trap_events_lost_for_a_slow_watcher() -> None:
    table = LockTable(1, history_events_max=8)
    table.apply(encode_entry(own(A), 1), 0)
    resume = table.revision
    table.apply(encode_entry([Command("putValue", key=A, value=b"%d" % i) for i in range(5)], 2), 0)
    seen, resume = table.events(resume, A, False, 3)
    assert [event.value for event in seen] == [b"0", b"1", b"2"]
    table.apply(encode_entry([Command("putValue", key=A, value=b"%d" % i) for i in range(5, 30)], 3), 0)
    with pytest.raises(EventsLost) as lost:
        table.events(resume, A, False, 100)
    assert resume < lost.value.floor == table.history_floor
    seen, _ = table.events(lost.value.floor, A, False, 100)
    assert [event.value for event in seen][-1] == b"29"
    assert [event.revision for event in seen] == list(range(lost.value.floor + 1, table.revision + 1))


def test_trap_events_lost_by_a_restart_are_said_to_be_lost(group: Lockstep) -> None:
    before = group.table.revision
    group.run(Command("putValue", key=A, value=b"1"))
    group.finish_checkpoint(10, restart=True)
    group.run(Command("putValue", key=A, value=b"2"))
    with pytest.raises(EventsLost):
        group.table.events(before, A, False, 100)
    seen, _ = group.table.events(group.table.history_floor, A, False, 100)
    assert [event.value for event in seen] == [b"2"]


# Elections failing under millions of leases.


def test_trap_elections_failing_under_millions_of_leases() -> None:
    """Winning an election costs the same with 200,000 leases as with one."""
    table = LockTable(1)
    batch = 1_000
    for index in range(200):
        leases = range(1 + index * batch, 1 + (index + 1) * batch)
        table.apply(encode_entry([create_lease(lease, TTL_MS) for lease in leases], index + 1), 0)
    seconds = []
    for now_ms in range(3):
        table.follow()
        begin = perf_counter()
        table.lead(now_ms)
        seconds.append(perf_counter() - begin)
    assert min(seconds) < LEAD_SECONDS_MAX
    assert table.due(TTL_MS - 1, DUE_MAX) == []


# Leases immortal under repeated elections.


def test_trap_leases_immortal_under_repeated_elections(group: Lockstep) -> None:
    """A dead holder's long lease ends although no leader lives as long as its TTL."""
    hour_ms, minute_ms = 3_600_000, 60_000
    group.run(create_lease(9, hour_ms), acquire(A, 9))
    for minute in range(60 * 3):
        if minute % 15 == 0:
            group.table.follow()
            group.table.lead(group.now_ms)
        group.now_ms += minute_ms
        for due in [one for one in group.table.due(group.now_ms, DUE_MAX) if one.lease_low == 9]:
            if KIND_NAMES[due.kind] == "expire":
                assert group.now_ms >= hour_ms
                return
            note = Command("noteRemaining", lease=9, remaining_ms=due.amount_ms, generation=due.generation)
            assert codes(group.run(note)) == ["ok"]
    raise AssertionError("three hours, and the lease of one hour still lives")


def test_trap_a_note_that_a_new_leader_finds_in_its_log_counts(group: Lockstep) -> None:
    """A lone member restarts, leads, and only then applies the entries that created and noted its leases.

    If the lease began with its full TTL again, restarts would keep it for ever.
    """
    hour_ms, minute_ms = 3_600_000, 60_000
    group.table.lead(0)
    (created,) = group.run(create_lease(9, hour_ms))
    group.run(Command("noteRemaining", lease=9, remaining_ms=minute_ms, generation=created.revision))
    group.now_ms = minute_ms + DUE_LATE_MS
    (due,) = [one for one in group.table.due(group.now_ms, DUE_MAX) if one.lease_low == 9]
    assert KIND_NAMES[due.kind] == "expire"


def test_trap_a_note_under_way_outlives_the_keep_alive_it_did_not_know(group: Lockstep) -> None:
    """1. due() asks for a note. 2. The client is back. 3. The note commits. 4. Another leader wins.

    If 2 were confirmed at once, the client would count on its TTL, the next leader on what the note says.
    """
    hour_ms = 3_600_000
    group.run(create_lease(9, hour_ms))
    group.table.lead(0)
    now_ms = hour_ms // 2
    (note,) = [one for one in group.table.due(now_ms, DUE_MAX) if one.lease_low == 9]
    assert KIND_NAMES[note.kind] == "noteRemaining"
    group.now_ms = now_ms
    assert group.table.keep_alive(0, 9, now_ms).noted
    assert group.table.keep_alive(0, 9, now_ms).noted
    group.run(Command("noteRemaining", lease=9, remaining_ms=note.amount_ms, generation=note.generation))
    kept = group.table.keep_alive(0, 9, now_ms)
    assert kept.noted
    assert kept.generation != note.generation
    group.run(Command("noteRemaining", lease=9, remaining_ms=0, generation=kept.generation))
    assert not group.table.keep_alive(0, 9, now_ms).noted


# A lease that comes back with a slot.


def test_trap_a_lease_that_ended_here_and_comes_back_with_a_slot_tells_of_the_loss() -> None:
    """1. A wait of a lease moves away. 2. The lease ends here: others get what it held. 3. The wait returns.

    The lease lives here again. If its next keep-alive said nothing, a client that was away would still
    believe in what it held in 1.
    """
    here, there = Lockstep(1), Lockstep(2)
    here.run(*own(A, B), create_lease(1), create_lease(2))
    (held, _, waits) = here.run(acquire(A, 1), acquire(B, 2), acquire(B, 1))
    assert [held.code, waits.code] == ["ok", "queued"]
    here.table.lead(0)
    assert here.table.keep_alive(0, 1, 0).lost_revision == 0
    move_slot(B, here, there)
    here.run(Command("revoke", lease=1))
    assert here.run(acquire(A, 2, request=2))[0].code == "ok"
    move_slot(B, there, here)
    back = here.table.keep_alive(0, 1, 0)
    assert CODE_NAMES[back.code] == "ok"
    assert back.lost_revision > held.token


# Releasing before commit.


def test_trap_releasing_before_commit(group: Lockstep) -> None:
    """A lease that ran out holds its locks until the expire is applied; proposing it changes nothing."""
    held, waiting = group.run(acquire(A, 1), acquire(A, 2))
    group.table.lead(0)
    before = group.table.state_hash()
    due = group.table.due(10 * TTL_MS, DUE_MAX)
    assert {(KIND_NAMES[one.kind], one.lease_low) for one in due} == {
        ("expire", lease) for lease in (1, 2, 3, 4)
    }
    assert group.table.state_hash() == before
    # The proposal is lost with its leader: the holder is still the holder, and has its full time again.
    group.table.follow()
    group.table.lead(10 * TTL_MS)
    assert group.table.due(11 * TTL_MS - 1, DUE_MAX) == []
    group.now_ms = 11 * TTL_MS
    assert codes(group.run(acquire(A, 3, wait=False))) == ["notAcquired"]
    group.run(expire(group, 1))
    assert woken(group) == {waiting.revision: "ok"}
    assert held.token < group.model.rows[A].holders[0].revision


# Forced release: the client must notice.


def test_trap_a_forced_release_shows_in_the_keep_alive(group: Lockstep) -> None:
    group.table.lead(0)
    group.run(acquire(A, 1))
    assert group.table.keep_alive(0, 1, 0).lost_revision == 0
    (forced,) = group.run(Command("forceRelease", key=A, actor=b"root", reason=b"stuck"))
    kept = group.table.keep_alive(0, 1, 0)
    assert (CODE_NAMES[kept.code], kept.lost_revision) == ("ok", forced.revision)


# Starvation.


def test_trap_shared_holders_do_not_starve_an_exclusive_waiter(group: Lockstep) -> None:
    group.run(acquire(A, 1, mode=SHARED), acquire(A, 2))
    (late,) = group.run(acquire(A, 3, mode=SHARED, wait=False))
    assert (late.code, late.count) == ("notAcquired", 1)


# Lock delay.


def test_trap_lock_delay_keeps_everybody_out_until_it_ends(group: Lockstep) -> None:
    """A paused holder may still write for a while after its lease expired."""
    _, waiting = group.run(acquire(A, 1, lock_delay_ms=500), acquire(A, 2))
    group.run(expire(group, 1))
    assert woken(group) == {}
    row = group.model.rows[A]
    assert codes(group.run(acquire(A, 3, wait=False))) == ["lockDelayed"]
    stale = Command("endDelay", key=A, generation=row.delay_generation - 1)
    assert codes(group.run(stale)) == ["staleGeneration"]
    group.run(Command("endDelay", key=A, generation=row.delay_generation))
    assert woken(group) == {waiting.revision: "ok"}


# Export without a token floor, and queues that move.


def test_trap_export_without_a_token_floor(group: Lockstep) -> None:
    """The receiver's own counter is far behind: without the floor its next token would be stale."""
    span = {"first": slot_of(A), "last": slot_of(A)}
    held, waiting = group.run(acquire(A, 1), acquire(A, 2))
    (exported,) = group.run(Command("exportSlots", to_group=2, **span))
    rows = group.model.export(range(slot_of(A), slot_of(A) + 1))
    receiver = Lockstep(2)
    too_low = Command("importSlots", complete=True, token_floor=1, rows=rows, **span)
    assert codes(receiver.run(too_low)) == ["invalidArgument"]
    receiver.run(Command("importSlots", complete=True, token_floor=exported.revision, rows=rows, **span))
    receiver.run(release(A, 1, held.token))
    assert woken(receiver) == {waiting.revision: "ok"}
    assert receiver.model.rows[A].holders[0].revision > exported.revision


def test_trap_scenarios_with_a_growing_table_stay_equal() -> None:
    """Hash tables grow step by step while rows come and go; no row is lost or doubled on the way."""
    random = Random(5)
    group = Lockstep()
    keys = [b"{t}%d" % i for i in range(700)]
    group.run(*own(T1), *(create_lease(lease) for lease in range(1, 9)))
    for size in (100, 400, 700, 300, 50):
        chosen = keys[:size]
        group.run(*(Command("putValue", key=key, value=b"v") for key in chosen))
        group.run(
            *(acquire(random.choice(chosen), random.randrange(1, 9), i, wait=False) for i in range(200))
        )
        group.run(*(Command("deleteValue", key=key) for key in random.sample(keys, 500)))
        group.finish_checkpoint(100, restart=size % 200 == 0)
        group.compare_twin()
