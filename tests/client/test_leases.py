"""A client stops believing in a lease before the cluster does, and says so; keep-alives travel together."""

from fastlock._core.codec import slot_of
from fastlock.client.leases import HoldState
from fastlock.schema.enums import NO_EXPIRY_TTL_MS
from tests.client.fake_cluster import World

MS = 1_000_000
KEY = b"orders/42"
GROUP = 1 + slot_of(KEY) // 8192
IN_GROUP = {1: b"b", 2: b"a"}


def keep_alives(world):
    return [(node, r["keepAlive"]) for node, r in world.cluster.requests if "keepAlive" in r]


def test_keys_of_the_tests_are_where_they_are_meant_to_be():
    assert {group: 1 + slot_of(key) // 8192 for group, key in IN_GROUP.items()} == {1: 1, 2: 2}


def test_a_lease_is_renewed_every_third_of_its_ttl_for_as_long_as_the_client_lives():
    world = World()
    held = world.finish(world.acquire(KEY, ttl_ms=9_000))
    world.advance(60_000)
    assert 19 <= len(keep_alives(world)) <= 21
    assert held.state(world.now_ns) is HoldState.HELD


def test_leases_that_are_due_together_share_a_frame_for_each_node():
    world = World()
    world.cluster.leaders = {1: 2, 2: 2}
    for i in range(40):
        world.finish(world.acquire(b"%d" % i, own_lease=True))
        world.advance(2)
    world.advance(6_000)
    frames = keep_alives(world)
    assert sum(len(leases) for _, leases in frames) >= 40
    assert len(frames) <= 4


def test_validity_counts_from_the_send_of_the_start_less_the_drift():
    world = World(drift_fraction=0.1)
    world.finish(world.acquire(b"{%s}warm" % KEY, ttl_ms=5_000))
    sent_ns = world.now_ns
    slow = []

    def first_answer_is_lost(node, request):
        if "acquire" in request.get("command", ()) and not slow:
            slow.append(request)
            return "mute"
        return "serve"

    world.cluster.meddle = first_answer_is_lost
    held = world.finish(world.acquire(KEY, own_lease=True, ttl_ms=10_000))
    assert world.now_ns - sent_ns >= 1_000 * MS
    assert held.lease.trusted_until_ns == sent_ns + 9_000 * MS


def test_a_client_that_hears_nothing_stops_believing_before_the_cluster_does():
    world = World()
    held = world.finish(world.acquire(KEY, ttl_ms=3_000))
    world.cluster.meddle = lambda node, request: "drop"
    table = world.cluster.tables[GROUP]
    while held.state(world.now_ns) is HoldState.HELD:
        assert table.holder_count == 1
        world.advance(5)
    assert table.holder_count == 1
    assert held.state(world.now_ns) is HoldState.SUSPENDED
    assert [each.told for each in world.notices] == [HoldState.SUSPENDED]


def test_a_suspended_lock_comes_back_when_its_lease_lived_on():
    world = World()
    held = world.finish(world.acquire(KEY, ttl_ms=3_000))
    # Keep-alives arrive and act, but their answers are lost.
    world.cluster.meddle = lambda node, request: "mute" if "keepAlive" in request else "serve"
    world.advance(5_000)
    assert held.state(world.now_ns) is HoldState.SUSPENDED
    world.cluster.meddle = lambda node, request: "serve"
    world.advance(1_000)
    assert held.state(world.now_ns) is HoldState.HELD
    assert len(world.notices) == 2


def test_a_lease_that_ended_takes_its_locks_with_it_and_the_next_lock_gets_another_one():
    world = World()
    held = world.finish(world.acquire(KEY, ttl_ms=3_000))
    other = world.finish(world.acquire(IN_GROUP[3 - GROUP], ttl_ms=3_000))
    world.cluster.apply(GROUP, {**held.lease.fields, "revoke": None})
    world.advance(2_000)
    assert held.state(world.now_ns) is HoldState.LOST
    assert world.notices == [held]
    assert other.state(world.now_ns) is HoldState.HELD
    again = world.finish(world.acquire(KEY, ttl_ms=3_000))
    assert again.lease.number != held.lease.number


def test_a_lock_taken_away_by_force_is_noticed_and_the_others_of_its_lease_are_kept():
    world = World()
    taken = world.finish(world.acquire(KEY))
    kept = world.finish(world.acquire(b"{%s}2" % KEY))
    force = {"token": 0, "actor": b"op", "reason": b"test"}
    world.cluster.apply(GROUP, {"key": KEY, "forceRelease": force})
    world.advance(4_000)
    assert taken.state(world.now_ns) is HoldState.LOST
    assert kept.state(world.now_ns) is HoldState.HELD


def test_a_lease_of_its_own_ends_with_its_lock():
    world = World()
    held = world.finish(world.acquire(KEY, own_lease=True))
    world.finish(world.release(held))
    assert world.cluster.tables[GROUP].lease_count == 0
    world.advance(20_000)
    assert keep_alives(world) == []


def test_a_keep_alive_that_one_node_does_not_answer_goes_to_another():
    world = World()
    held = world.finish(world.acquire(KEY, ttl_ms=3_000))
    stuck = world.cluster.leaders[GROUP]
    world.cluster.meddle = lambda node, request: "drop" if node == stuck else "serve"
    world.advance(20_000)
    assert held.state(world.now_ns) is HoldState.HELD
    assert world.notices == []


def test_a_lock_without_expiry_needs_no_keep_alive():
    world = World()
    held = world.finish(world.acquire(KEY, ttl_ms=NO_EXPIRY_TTL_MS))
    world.advance(100_000)
    assert held.state(world.now_ns) is HoldState.HELD
    assert keep_alives(world) == []


def test_closing_gives_everything_back_at_once():
    world = World()
    for i in range(10):
        world.finish(world.acquire(b"%d" % i, own_lease=i % 2 == 0))
    world.finish(world.start(world.core.close(world.now_ns + 10**9)))
    assert sum(table.lease_count for table in world.cluster.tables.values()) == 0
    assert not world.core.cluster.up


def test_closing_ends_on_time_when_nobody_answers():
    world = World()
    world.finish(world.acquire(KEY))
    world.cluster.meddle = lambda node, request: "drop"
    start_ns = world.now_ns
    world.finish(world.start(world.core.close(world.now_ns + 10**9)))
    assert world.now_ns - start_ns <= 1_100 * MS
