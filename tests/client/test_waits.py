"""Waits end on time, survive the loss of whoever would have woken them, and never leave a ghost behind."""

import pytest

from fastlock._core.codec import slot_of
from fastlock.client.flows import Cancelled
from fastlock.errors import LockLost, NotAcquired, Unavailable, WaitTimeout
from tests.client.fake_cluster import World

KEY = b"orders/42"
GROUP = 1 + slot_of(KEY) // 8192


def claims(world):
    return sum(table.claim_count for table in world.cluster.tables.values())


def holder(world, key=KEY):
    state = world.cluster.tables[1 + slot_of(key) // 8192].get(key)
    return state["holders"][0]["revision"] if state and state.get("holders") else 0


def test_a_waiter_is_served_when_the_holder_lets_go():
    world = World()
    held = world.finish(world.acquire(KEY))
    waiting = world.acquire(KEY, 5_000)
    world.advance(100)
    assert not waiting.finished
    before_ns = world.now_ns
    world.finish(world.release(held))
    assert world.finish(waiting).tokens[0] == holder(world)
    assert world.now_ns == before_ns


def test_a_wait_ends_on_time_and_leaves_no_waiter():
    world = World()
    world.finish(world.acquire(KEY))
    start_ns = world.now_ns
    error = world.fail(world.acquire(KEY, 700))
    assert isinstance(error, WaitTimeout)
    assert world.now_ns - start_ns == 700 * 1_000_000
    world.advance(10)
    assert claims(world) == 1


def test_a_wait_ends_on_time_although_nobody_answers_and_is_called_off_later():
    world = World()
    held = world.finish(world.acquire(KEY))
    waiting = world.acquire(KEY, 3_000)
    world.advance(100)
    world.cluster.meddle = lambda node, request: "drop"
    start_ns = world.now_ns
    assert isinstance(world.fail(waiting), WaitTimeout)
    assert world.now_ns - start_ns == 2_900 * 1_000_000
    world.cluster.meddle = lambda node, request: "serve"
    world.advance(30_000)
    assert claims(world) == 1
    world.finish(world.release(held))
    assert claims(world) == 0


def test_an_acquire_that_was_never_confirmed_is_unavailable_not_a_timeout():
    world = World()
    world.finish(world.acquire(KEY))
    world.cluster.meddle = lambda node, request: "mute" if "command" in request else "serve"
    assert isinstance(world.fail(world.acquire(b"{%s}2" % KEY, 3_000)), Unavailable)
    world.cluster.meddle = lambda node, request: "serve"
    world.advance(30_000)
    assert claims(world) == 1


def test_a_grant_that_crosses_the_deadline_is_given_back():
    world = World()
    held = world.finish(world.acquire(KEY))
    waiting = world.acquire(KEY, 1_000)
    world.advance(100)
    # From here on the client hears nothing: it cannot know that it was granted.
    world.cluster.meddle = lambda node, request: "mute"
    world.cluster.apply(GROUP, {**held.lease.fields, "key": KEY, "release": {"token": held.tokens[0]}})
    for connection in world.connections.values():
        connection.outgoing.clear()
    assert isinstance(world.fail(waiting), WaitTimeout)
    world.cluster.meddle = lambda node, request: "serve"
    world.advance(30_000)
    assert claims(world) == 0


def test_the_end_of_a_wait_can_be_lost_with_the_connection():
    world = World()
    held = world.finish(world.acquire(KEY))
    waiting = world.acquire(KEY, 60_000)
    world.advance(100)
    leader = world.cluster.leaders[GROUP]
    for connection in world.connections.values():
        if connection.node == leader:
            connection.cut()
    world.cluster.apply(GROUP, {**held.lease.fields, "key": KEY, "release": {"token": held.tokens[0]}})
    assert world.finish(waiting, 1_000).tokens[0] == holder(world)


def test_waiters_come_back_when_another_leader_is_heard_of():
    world = World(reattach_ms=60_000)
    held = world.finish(world.acquire(KEY))
    waiting = world.acquire(KEY, 60_000)
    world.advance(100)
    old = world.cluster.leaders[GROUP]
    new = world.cluster.leaders[GROUP] = 3
    # The old leader is stuck: its connections are open and it says nothing.
    world.cluster.meddle = lambda node, request: "drop" if node == old else "serve"
    world.finish(world.release(held))
    for connection in world.connections.values():
        if connection.node == old:
            connection.outgoing.clear()
    assert world.finish(waiting, 5_000).tokens[0] == holder(world)
    assert world.core.cluster.leaders[GROUP] == new


def test_a_request_to_a_leader_that_was_stopped_goes_to_the_next_one_as_soon_as_anyone_knows_it():
    world = World(attempt_timeout_ms=1_000)
    world.finish(world.acquire(KEY))
    old = world.cluster.leaders[GROUP]
    world.cluster.meddle = lambda node, request: "drop" if node == old or "command" in request else "serve"
    flow = world.acquire(b"{%s}2" % KEY)
    world.advance(1_300)
    # Every node has swallowed a repetition by now; then there is a leader.
    world.cluster.leaders[GROUP] = 3
    world.cluster.meddle = lambda node, request: "drop" if node == old else "serve"
    start_ns = world.now_ns
    world.finish(flow)
    assert world.now_ns - start_ns <= 200 * 1_000_000


def test_a_leader_that_was_slow_once_is_not_asked_about_for_ever():
    world = World()
    world.finish(world.acquire(KEY))
    seen = []
    world.cluster.meddle = lambda node, r: "drop" if "command" in r and not seen.append(r) else "serve"
    world.acquire(b"{%s}2" % KEY)
    world.advance(1_100)
    world.cluster.meddle = lambda node, request: "serve"
    world.advance(10_000)
    before = len(world.cluster.requests)
    world.advance(10_000)
    assert not any("describe" in request for _, request in world.cluster.requests[before:])


def test_a_silent_leader_is_noticed_by_asking_again_now_and_then():
    world = World(nodes=1, reattach_ms=2_000)
    held = world.finish(world.acquire(KEY))
    waiting = world.acquire(KEY, 60_000)
    world.advance(100)
    world.cluster.apply(GROUP, {**held.lease.fields, "key": KEY, "release": {"token": held.tokens[0]}})
    for connection in world.connections.values():
        connection.outgoing.clear()
    assert world.finish(waiting, 2_500).tokens[0] == holder(world)


def test_the_queue_keeps_its_order_when_everyone_comes_back():
    world = World()
    held = world.finish(world.acquire(KEY))
    waits = []
    for _ in range(10):
        waits.append(world.acquire(KEY, 600_000))
        world.advance(1)
    for connection in world.connections.values():
        connection.cut()
    world.advance(1_000)
    for position in range(10):
        world.finish(world.release(held))
        held = world.finish(waits[position])
        assert not any(wait.finished for wait in waits[position + 1 :])


def test_who_loses_its_lease_while_waiting_enters_the_queue_again():
    world = World()
    held = world.finish(world.acquire(KEY, ttl_ms=60_000))
    waiting = world.acquire(KEY, 600_000, ttl_ms=1_000)
    world.advance(100)
    world.cluster.meddle = lambda node, request: "drop" if "keepAlive" in request else "serve"
    world.advance(3_000)
    world.cluster.meddle = lambda node, request: "serve"
    world.advance(1_000)
    world.finish(world.release(held))
    assert world.finish(waiting).tokens[0] == holder(world)


@pytest.mark.parametrize("own_lease", [False, True])
@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("steps", range(12))
def test_a_cancelled_acquire_leaves_nothing_at_whatever_moment(steps, is_held, own_lease):
    world = World()
    if is_held:
        table = world.cluster.tables[GROUP]
        other = {"leaseHigh": 1, "leaseLow": 1, "key": KEY}
        acquire = {"request": 1, "lease": "create", "ttlMs": 600_000}
        world.cluster.apply(GROUP, {**other, "acquire": acquire})
        assert table.holder_count == 1
    # Frames are held back, so that the cancellation meets every state of the exchange.
    seen = []

    def meddle(node, request):
        seen.append(request)
        return "serve" if len(seen) <= steps else "drop"

    world.cluster.meddle = meddle
    flow = world.acquire(KEY, 60_000, own_lease=own_lease)
    world.advance(300)
    flow.cancel()
    world.core.run(world.now_ns)
    if isinstance(flow.error, Cancelled) or not flow.finished:
        assert isinstance(flow.error, Cancelled)
    else:
        world.release(flow.result)
    world.cluster.meddle = lambda node, request: "serve"
    world.advance(60_000)
    assert claims(world) == (1 if is_held else 0)
    assert world.core.locking.unfinished == 0


def test_several_keys_of_one_slot_are_taken_in_one_step():
    world = World()
    wanted = world.lock(b"{acct}1", b"{acct}2")
    held = world.finish(world.start(world.core.locking.acquire(wanted, False, world.now_ns + 10**9)))
    assert held.tokens[1] == held.tokens[0] + 1
    assert isinstance(world.fail(world.acquire(b"{acct}2")), NotAcquired)
    world.finish(world.release(held))
    assert claims(world) == 0


def test_keys_of_several_slots_are_taken_in_order_and_given_back_together_on_failure():
    world = World()
    keys = [b"a", b"b", b"c", b"d"]
    last = max(keys, key=slot_of)
    blocking = world.finish(world.acquire(last))
    locking = world.core.locking
    deadline_ns = world.core.requests.deadline_ns()
    failed = world.fail(world.start(locking.acquire_ordered(world.lock(*keys), False, deadline_ns)))
    assert isinstance(failed, NotAcquired)
    world.advance(10)
    assert claims(world) == 1
    world.finish(world.release(blocking))
    holds = world.finish(world.start(locking.acquire_ordered(world.lock(*keys), False, deadline_ns)))
    slots = [slot_of(held.keys[0]) for held in holds]
    assert slots == sorted(slots)
    assert claims(world) == 4


def test_readers_share_and_a_semaphore_counts():
    world = World()
    world.finish(world.acquire(KEY, mode="shared"))
    world.finish(world.acquire(KEY, mode="shared"))
    assert isinstance(world.fail(world.acquire(KEY)), NotAcquired)
    gpu = b"gpu"
    world.finish(world.acquire(gpu, mode="semaphore", limit=4, count=3))
    world.finish(world.acquire(gpu, mode="semaphore", limit=4, count=1))
    assert isinstance(world.fail(world.acquire(gpu, mode="semaphore", limit=4, count=1)), NotAcquired)


def test_releasing_a_lost_lock_says_so():
    world = World()
    held = world.finish(world.acquire(KEY))
    world.cluster.apply(GROUP, {"key": KEY, "forceRelease": {"token": 0, "actor": b"op", "reason": b"test"}})
    assert isinstance(world.fail(world.release(held)), LockLost)


def test_a_release_that_is_late_fails_on_time_and_goes_on_trying():
    world = World(timeout_ms=2_000)
    held = world.finish(world.acquire(KEY))
    world.cluster.meddle = lambda node, request: "drop" if "command" in request else "serve"
    start_ns = world.now_ns
    assert isinstance(world.fail(world.release(held)), Unavailable)
    assert world.now_ns - start_ns == 2_000 * 1_000_000
    world.cluster.meddle = lambda node, request: "serve"
    world.advance(10_000)
    assert claims(world) == 0
