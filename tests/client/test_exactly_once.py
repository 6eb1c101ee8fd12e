"""Whatever happens to its answer, a command acts once; the client learns what it did, or that none knows."""

import pytest

from fastlock._core.codec import slot_of
from fastlock.client.requests import Session
from fastlock.client.settings import SESSION_WINDOW
from fastlock.errors import InvalidArgument, ModeMismatch, NotAcquired, Unavailable
from tests.client.fake_cluster import World

KEY = b"orders/42"


def first_time(kind, verdict):
    """Meddle with the first command of a kind, serve the rest."""
    seen = []

    def meddle(node, request):
        if kind in request.get("command", ()) and not seen:
            seen.append(request)
            return verdict
        return "serve"

    return meddle


def group_of(key):
    return 1 + slot_of(key) // 8192


def test_the_first_lock_opens_a_session_and_a_lease_and_the_next_ones_cost_one_command():
    world = World()
    world.finish(world.acquire(KEY))
    before = len(world.cluster.requests)
    held = world.finish(world.acquire(b"{%s}other" % KEY))
    assert [r["command"]["acquire"]["request"] for _, r in world.cluster.requests[before:]] == [2]
    world.finish(world.release(held))
    assert len(world.cluster.commands("openSession")) == 1
    assert len(world.cluster.commands("createLease")) == 1


def test_tasks_that_begin_together_share_one_session_and_one_lease():
    world = World()
    flows = [world.acquire(b"{x}%d" % i) for i in range(20)]
    tokens = {world.finish(flow).tokens for flow in flows}
    assert len(tokens) == 20
    assert len(world.cluster.commands("openSession")) == 1
    assert len(world.cluster.commands("createLease")) == 1


@pytest.mark.parametrize(
    "verdict", ["drop", "mute", "cut_before", "cut_after", "outcomeUnknown", "notLeader", "busy"]
)
@pytest.mark.parametrize("kind", ["openSession", "createLease", "acquire", "release"])
def test_a_command_whose_answer_is_lost_or_refused_on_the_way_acts_once(kind, verdict):
    world = World()
    world.cluster.meddle = first_time(kind, verdict)
    held = world.finish(world.acquire(KEY))
    world.finish(world.release(held))
    table = world.cluster.tables[group_of(KEY)]
    assert table.holder_count == 0
    again = world.cluster.commands(kind)
    assert len(again) >= 2
    if kind != "openSession":
        assert len({(c["session"], c["sequence"]) for c in again}) == 1
    # Session, lease and grant took one revision each; an orphan session is all that may come on top.
    assert held.tokens[0] - 3 <= (1 if kind == "openSession" else 0)


def test_a_repeated_acquire_gets_the_token_of_the_first():
    world = World()
    world.cluster.meddle = first_time("acquire", "cut_after")
    held = world.finish(world.acquire(KEY))
    table = world.cluster.tables[group_of(KEY)]
    assert table.get(KEY)["holders"][0]["revision"] == held.tokens[0]
    assert table.holder_count == 1
    assert len(world.cluster.commands("acquire")) == 2


def test_a_hint_to_the_leader_is_followed_at_once_and_remembered():
    world = World()
    world.finish(world.acquire(KEY))
    group = group_of(KEY)
    world.cluster.leaders[group] = 3
    world.cluster.meddle = lambda node, r: "notLeader" if "command" in r and node != 3 else "serve"
    before_ns = world.now_ns
    world.finish(world.acquire(b"{%s}2" % KEY))
    assert world.now_ns == before_ns
    count = len(world.cluster.requests)
    world.finish(world.acquire(b"{%s}3" % KEY))
    assert [node for node, _ in world.cluster.requests[count:]] == [3]


def test_an_overloaded_cluster_is_asked_less_and_less_and_then_given_up():
    world = World()
    world.finish(world.acquire(KEY))
    world.cluster.meddle = lambda node, r: "busy" if "command" in r else "serve"
    before = len(world.cluster.requests)
    error = world.fail(world.acquire(b"{%s}2" % KEY))
    assert isinstance(error, Unavailable)
    assert "overloaded" in str(error)
    assert len(world.cluster.requests) - before < 120


def test_an_idle_session_that_the_group_forgot_is_opened_anew_without_a_word():
    world = World()
    held = world.finish(world.acquire(KEY))
    world.advance(200_000)
    world.finish(world.release(held))
    assert len(world.cluster.commands("openSession")) == 2
    assert world.cluster.tables[group_of(KEY)].holder_count == 0


def forget_sessions(world):
    for group, table in world.cluster.tables.items():
        for number, session in table.dump()["sessions"].items():
            world.cluster.apply(group, {"expireSession": {"session": number, "uses": session["uses"]}})


@pytest.mark.parametrize("own_lease", [False, True])
@pytest.mark.parametrize("wait_ms", [None, 20_000])
def test_an_acquire_in_doubt_is_found_again_after_its_session_was_forgotten(own_lease, wait_ms):
    world = World()
    world.finish(world.acquire(b"{%s}warm" % KEY))
    world.cluster.meddle = first_time("acquire", "mute")
    flow = world.acquire(KEY, wait_ms, own_lease=own_lease)
    world.pump()
    forget_sessions(world)
    held = world.finish(flow)
    table = world.cluster.tables[group_of(KEY)]
    assert table.get(KEY)["holders"][0]["revision"] == held.tokens[0]
    sent = world.cluster.commands("acquire")[1:]
    assert len({(c["leaseHigh"], c["leaseLow"], c["acquire"]["request"]) for c in sent}) == 1
    assert len({c["session"] for c in sent}) == 2
    world.finish(world.release(held))
    assert table.get(KEY) is None


@pytest.mark.parametrize("own_lease", [False, True])
def test_an_acquire_that_never_arrived_is_entered_anew_after_its_session_was_forgotten(own_lease):
    world = World()
    world.finish(world.acquire(b"{%s}warm" % KEY))
    world.cluster.meddle = first_time("acquire", "drop")
    flow = world.acquire(KEY, own_lease=own_lease)
    world.pump()
    forget_sessions(world)
    held = world.finish(flow)
    assert world.cluster.tables[group_of(KEY)].get(KEY)["holders"][0]["revision"] == held.tokens[0]


def test_a_release_in_doubt_is_done_when_the_lock_is_gone():
    world = World()
    held = world.finish(world.acquire(KEY))
    world.cluster.meddle = first_time("release", "mute")
    flow = world.release(held)
    world.pump()
    forget_sessions(world)
    world.finish(flow)
    assert world.cluster.tables[group_of(KEY)].get(KEY) is None


def test_a_write_in_doubt_is_an_error_that_says_so():
    world = World()
    world.finish(world.acquire(b"{%s}warm" % KEY))
    world.cluster.meddle = first_time("putValue", "mute")
    flow = world.start(world.core.put(KEY, b"v", None, world.core.requests.deadline_ns()))
    world.pump()
    forget_sessions(world)
    assert "not known" in str(world.fail(flow))


def test_the_watermark_rises_with_the_answers_and_waits_do_not_hold_it_back():
    world = World()
    world.finish(world.acquire(KEY))
    waiting = world.acquire(KEY, 50_000)
    for i in range(5):
        world.finish(world.release(world.finish(world.acquire(b"{%s}%d" % (KEY, i)))))
    last = world.cluster.commands("release")[-1]
    assert last["acknowledgedBelow"] == last["sequence"]
    assert not waiting.finished


def test_a_sequence_in_doubt_holds_the_watermark_back():
    session = Session(1, 5)
    first, second = session.begin(), session.begin()
    session.finish(second)
    assert session.acknowledged_below == first
    session.finish(first)
    assert session.acknowledged_below == second + 1


def test_thousands_of_commands_at_once_stay_within_the_sessions_window():
    world = World()
    flows = [world.acquire(b"{x}%d" % i) for i in range(3 * SESSION_WINDOW)]
    for flow in flows:
        world.finish(flow)
    for command in world.cluster.commands("acquire"):
        assert command["sequence"] - command["acknowledgedBelow"] < 1024


def test_a_held_lock_is_not_acquired_and_the_error_says_when_to_try_again():
    world = World()
    world.finish(world.acquire(KEY))
    error = world.fail(world.acquire(KEY))
    assert isinstance(error, NotAcquired)
    assert error.retry_after == 0.03


def test_what_the_lock_table_refuses_is_a_precise_error():
    world = World()
    world.finish(world.acquire(KEY))
    assert isinstance(world.fail(world.acquire(KEY, mode="semaphore", limit=3, count=1)), ModeMismatch)
    error = world.fail(world.acquire(b"{%s}s" % KEY, mode="semaphore", limit=1, count=2))
    assert isinstance(error, InvalidArgument)
    assert error.argument == "count"
