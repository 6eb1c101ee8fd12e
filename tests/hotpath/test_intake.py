"""From the bytes of a connection to a log entry, and from what apply said to the bytes of a connection."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlock._core import codec
from fastlock._core.batch import BYTES_MAX, COMMANDS_MAX
from fastlock._core.intake import GROUPS_MAX
from fastlock._core.proposals import PENDING_COMMANDS_MAX
from fastlock._core.slots import slot_of
from fastlock.errors import FrameTooLarge, MalformedFrame
from fastlock.schema import load
from fastlock.schema.enums import CommandWhich
from tests.hotpath.lane import OWN_ALL, Lane, acquire, decoded, release, request, said
from tests.schema_values import random_struct, structs


def commands_of(entry: bytes) -> list[dict[str, Any]]:
    commands: list[dict[str, Any]] = codec.decode_log_entry(entry)["commands"]
    return commands


@settings(max_examples=60)
@given(rng=st.randoms(use_true_random=False), count=st.integers(1, 12))
def test_the_entry_has_the_commands_of_the_requests_in_order(rng: Any, count: int) -> None:
    schema = structs()["Command"][1].schema
    commands = [random_struct(rng, schema, "Command") for _ in range(count)]
    lane = Lane()
    lane.send(lane.connect(), *commands)
    assert lane.proposals.pending_count == count
    size = lane.proposals.next_bytes
    entry = lane.proposals.seal(5, 9)
    assert len(entry) == size
    assert entry == codec.encode_entry(1, 5, 9, commands)
    assert commands_of(entry) == commands
    assert (lane.proposals.pending_count, lane.proposals.next_bytes) == (0, 0)


@given(cut=st.integers(0, 1000))
def test_a_stream_may_be_cut_anywhere(cut: int) -> None:
    stream = b"".join(request(number, acquire(b"key %d" % number)) for number in range(4))
    cut = min(cut, len(stream))
    lane = Lane()
    replies = lane.connect()
    consumed = lane.intake.take(replies, stream[:cut], 0)
    assert consumed <= cut
    assert consumed + lane.intake.take(replies, stream[consumed:], 0) == len(stream)
    assert lane.proposals.pending_count == 4


def test_requests_of_several_segments_are_taken_too() -> None:
    message = load("client").Request.new_message(
        num_first_segment_words=1, id=4, group=1, command=acquire(b"k" * 50)
    )
    frame = message.to_bytes()
    assert frame[:4] != bytes(4)
    lane = Lane()
    assert lane.intake.take(lane.connect(), frame * 3, 0) == len(frame) * 3
    assert [command["key"] for command in commands_of(lane.proposals.seal(1, 1))] == [b"k" * 50] * 3


def test_what_one_entry_cannot_hold_goes_into_the_next_ones() -> None:
    lane = Lane()
    replies = lane.connect()
    lane.send(replies, *[acquire(b"k")] * (2 * COMMANDS_MAX + 5))
    sizes = [len(commands_of(lane.proposals.seal(1, index))) for index in (1, 2, 3)]
    assert sizes == [COMMANDS_MAX, COMMANDS_MAX, 5]
    assert lane.proposals.next_bytes == 0


def test_an_entry_never_passes_its_byte_limit() -> None:
    lane = Lane()
    put = {"key": b"k", "putValue": {"value": bytes(4000)}}
    lane.send(lane.connect(), *[put] * 100)
    first, second = lane.proposals.seal(1, 1), lane.proposals.seal(1, 2)
    assert BYTES_MAX - len(request(1, put)) < len(first) <= BYTES_MAX
    assert len(commands_of(first)) + len(commands_of(second)) == 100


def test_a_command_no_entry_could_hold_is_refused_by_its_id() -> None:
    lane = Lane()
    replies = lane.connect()
    large = {"key": b"k", "putValue": {"value": bytes(BYTES_MAX)}}
    lane.send(replies, large, acquire(b"k"), large, first_id=77)
    assert lane.proposals.pending_count == 1
    assert said(replies) == [(77, "frameTooLarge"), (79, "frameTooLarge")]


def test_a_request_that_is_no_command_is_handed_out() -> None:
    lane = Lane()
    replies = lane.connect()
    get = codec.encode_request({"id": 2, "getLock": {"key": b"k"}})
    stream = request(1, acquire(b"k")) + get + request(3, acquire(b"l"))
    assert lane.intake.take(replies, memoryview(stream), 0) == len(stream)
    assert lane.proposals.pending_count == 2
    ((sender, fields),) = lane.intake.take_others()
    assert sender is replies
    assert fields == {"id": 2, "group": 0, "timeoutMs": 0, "getLock": {"key": b"k", "stale": False}}
    assert lane.intake.take_others() == []


def test_bad_requests_with_an_id_are_answered_and_the_others_taken() -> None:
    good = request(1, acquire(b"k"))
    unknown = codec.encode_request({"id": 8, "command": {}})
    broken = bytearray(request(9, acquire(b"key")))
    at = bytes(broken).rindex(b"key") - 16
    broken[at : at + 8] = b"\xff" * 8
    lane = Lane()
    replies = lane.connect()
    stream = good + unknown + bytes(broken) + good
    assert lane.intake.take(replies, stream, 0) == len(stream)
    assert lane.proposals.pending_count == 2
    assert said(replies) == [(8, "unknownCommand"), (9, "malformedFrame")]


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"\xff" * 8, FrameTooLarge),
        (b"\0" * 16, MalformedFrame),
        (b"\0\0\0\0\1\0\0\0" + b"\xff" * 8, MalformedFrame),
    ],
)
def test_bytes_without_an_id_raise(stream: bytes, error: type[Exception]) -> None:
    lane = Lane()
    with pytest.raises(error):
        lane.intake.take(lane.connect(), request(1, acquire(b"k")) + stream, 0)
    assert lane.proposals.pending_count == 1


def test_every_connection_is_told_what_apply_said_to_its_requests() -> None:
    lane = Lane()
    lane.proposals.retry_ms = 25
    one, other = lane.connect(), lane.connect()
    lane.send(one, OWN_ALL, acquire(b"a"), acquire(b"a", 2), acquire(b"a", 3, wait=True), {"openSession": {}})
    lane.send(other, release(b"a", 1, 99), acquire(b"b", 4), first_id=20)
    assert lane.board.take_touched() == []
    lane.commit()
    assert lane.board.take_touched() == [one, other]
    answers = decoded(one.take())
    assert [(a["id"], a["code"]) for a in answers] == [
        (1, "ok"), (2, "ok"), (3, "notAcquired"), (4, "queued"), (5, "ok"),
    ]  # fmt: skip
    assert answers[1]["grant"] == {"token": 1, "count": 1}
    assert answers[2]["conflict"] == {"retryMs": 25, "waiters": 0}
    assert answers[2]["revision"] == 1, "a conflict tells the first holder's token"
    assert (answers[3]["revision"], answers[3]["done"]) == (2, None)
    assert answers[4]["session"] == answers[4]["revision"] == 3
    assert {a["leader"] for a in answers} == {6}
    assert said(other) == [(20, "staleToken"), (21, "ok")]
    assert lane.board.take_touched() == []


def test_a_wait_is_answered_again_when_it_ends() -> None:
    lane = Lane()
    holder, waiter = lane.connect(), lane.connect()
    lane.send(holder, OWN_ALL, acquire(b"a"))
    lane.send(waiter, acquire(b"a", 2, wait=True), acquire(b"a", 3, wait=True), first_id=30)
    lane.commit()
    assert said(waiter) == [(30, "queued"), (31, "queued")]
    assert lane.proposals.waiter_count == 2
    holder.take()
    lane.send(holder, release(b"a", 1, 1))
    lane.commit()
    (granted,) = decoded(waiter.take())
    assert (granted["id"], granted["code"], granted["detail"]) == (30, "ok", 0)
    assert granted["grant"] == {"token": granted["revision"], "count": 1}
    lane.send(holder, {"leaseLow": 3, "revoke": None}, first_id=50)
    lane.commit()
    assert said(waiter) == [(31, "leaseLost")]
    assert lane.proposals.waiter_count == 0


def test_whoever_asks_again_for_a_wait_is_told_its_end_too() -> None:
    lane = Lane()
    first, second = lane.connect(), lane.connect()
    again = {"key": b"a", "leaseLow": 2, "acquire": {"wait": True}}
    lane.send(first, OWN_ALL, acquire(b"a"), acquire(b"a", 2, wait=True))
    lane.send(second, *[again] * 10, first_id=40)
    lane.commit()
    assert lane.proposals.waiter_count == 8, "nobody grows the list by asking"
    first.take()
    second.take()
    lane.send(first, release(b"a", 1, 1))
    lane.commit()
    assert said(second) == [(number, "ok") for number in range(42, 50)]


def test_a_closed_connection_is_answered_nothing_and_its_wait_stays() -> None:
    lane = Lane()
    gone, other = lane.connect(), lane.connect()
    lane.send(other, OWN_ALL, acquire(b"a"))
    lane.send(gone, acquire(b"a", 2, wait=True), first_id=9)
    lane.commit()
    gone.close()
    newcomer = lane.connect()
    lane.send(other, release(b"a", 1, 1))
    lane.commit()
    assert (gone.closed, gone.size, newcomer.size) == (True, 0, 0)
    state = lane.table.get(b"a")
    assert state is not None
    assert [holder["revision"] for holder in state["holders"]] == [4]


def test_who_stops_leading_says_what_it_knows() -> None:
    lane = Lane()
    replies = lane.connect()
    lane.send(replies, OWN_ALL, acquire(b"a"), acquire(b"a", 2, wait=True))
    lane.commit()
    replies.take()
    lane.send(replies, acquire(b"b", 3), first_id=10)
    lane.proposals.seal(1, 2)
    lane.send(replies, acquire(b"c", 4), first_id=11)
    lane.proposals.follow(3)
    answers = decoded(replies.take())
    assert [(a["id"], a["code"], a["leader"]) for a in answers] == [
        (10, "outcomeUnknown", 3), (11, "notLeader", 3), (3, "notLeader", 3),
    ]  # fmt: skip
    proposals = lane.proposals
    assert (proposals.pending_count, proposals.inflight_count, proposals.waiter_count) == (0, 0, 0)


def test_another_leaders_entry_at_our_index_leaves_ours_unknown() -> None:
    lane = Lane()
    replies = lane.connect()
    lane.send(replies, OWN_ALL)
    lane.proposals.seal(1, 1)
    lane.table.apply(codec.encode_entry(1, 2, 1, [OWN_ALL]), 0)
    lane.proposals.applied(lane.table)
    assert said(replies) == [(1, "outcomeUnknown")]


def test_keys_go_where_their_slot_is_said_to_be_and_the_rest_where_the_request_says() -> None:
    lane = Lane()
    replies = lane.connect()
    slot = slot_of(b"k")
    lane.intake.route(slot, slot, 7)
    assert lane.intake.group_of(slot) == 7
    keyed = [
        acquire(b"k"),
        release(b"k", 1, 1),
        {"leaseLow": 1, "acquireAll": {"keys": [b"k"]}},
        {"leaseLow": 1, "cancelWait": {"keys": [b"k"]}},
        {"key": b"k", "leaseLow": 1, "cancelWait": {}},
        {"key": b"k", "putValue": {"value": b"v"}},
    ]
    lane.send(replies, *keyed, {"openSession": {}}, acquire(b"other"))
    assert said(replies) == [(1 + number, "groupUnknown") for number in range(len(keyed))]
    assert lane.proposals.pending_count == 2
    lane.intake.route(slot, slot)
    assert lane.intake.group_of(slot) is None
    lane.send(replies, acquire(b"k"))
    assert lane.proposals.pending_count == 3


def test_unknown_groups_and_bad_ranges_are_refused() -> None:
    lane = Lane()
    replies = lane.connect()
    for group in (2, GROUPS_MAX, 0xFFFFFFFF):
        lane.intake.take(replies, request(5, acquire(b"k"), group), 0)
    assert said(replies) == [(5, "groupUnknown")] * 3
    lane.intake.remove_group(1)
    lane.send(replies, acquire(b"k"))
    assert said(replies) == [(1, "groupUnknown")]
    with pytest.raises(ValueError):
        lane.intake.route(5, 4, 1)
    with pytest.raises(ValueError):
        lane.intake.route(0, 16384, 1)
    with pytest.raises(ValueError):
        lane.intake.group_of(16384)


def test_what_only_the_leader_itself_proposes_is_forbidden_to_clients() -> None:
    lane = Lane()
    client = lane.connect(is_trusted=False)
    forbidden = [
        OWN_ALL,
        {"expireSession": {"session": 1}},
        {"leaseLow": 1, "expire": {}},
        {"leaseLow": 1, "noteRemaining": {}},
        {"key": b"k", "endDelay": {}},
        {"configure": {}},
        {"dropSlots": {}},
        {"exportSlots": {}},
        {"importSlots": {}},
    ]
    lane.send(client, *forbidden, acquire(b"k"))
    assert said(client) == [(1 + number, "forbidden") for number in range(len(forbidden))]
    assert lane.proposals.pending_count == 1


def test_beyond_its_bound_a_queue_is_busy_for_clients_and_open_for_the_leader() -> None:
    lane = Lane()
    replies = lane.connect()
    frames = request(1, acquire(b"k")) * COMMANDS_MAX
    for _ in range(PENDING_COMMANDS_MAX // COMMANDS_MAX):
        lane.intake.take(replies, frames, 0)
    assert replies.size == 0
    lane.send(replies, acquire(b"k"), first_id=5)
    assert said(replies) == [(5, "busy")]
    assert lane.proposals.submit(OWN_ALL) == 0
    assert lane.proposals.pending_count == PENDING_COMMANDS_MAX + 1


def test_what_the_leader_submits_stands_in_the_same_queue() -> None:
    lane = Lane()
    replies, own = lane.connect(), lane.connect()
    lane.proposals.submit(OWN_ALL, own, 70)
    lane.send(replies, acquire(b"k"))
    lane.proposals.submit(acquire(b"k", 2, wait=True), own, 71)
    lane.commit()
    assert said(own) == [(70, "ok"), (71, "queued")]
    assert said(replies) == [(1, "ok")]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (
            {"kind": CommandWhich.acquireAll, "token": 5, "revision": 7, "count": 3},
            {"grant": {"token": 5, "count": 3}, "revision": 7},
        ),
        ({"kind": CommandWhich.openSession, "revision": 7}, {"session": 7, "revision": 7}),
        ({"kind": CommandWhich.release, "revision": 7, "token": 4}, {"done": None, "revision": 7}),
        ({"kind": CommandWhich.acquire, "code": "queued", "revision": 7}, {"done": None, "revision": 7}),
        (
            {"kind": CommandWhich.acquire, "code": "lockDelayed", "count": 2, "token": 3},
            {"conflict": {"retryMs": 30, "waiters": 2}, "revision": 3},
        ),
        ({"kind": CommandWhich.acquire, "code": "limitExceeded", "detail": 3}, {"done": None, "revision": 0}),
    ],
)
def test_an_outcome_becomes_the_reply_the_schema_has_for_it(
    outcome: dict[str, Any], expected: dict[str, Any]
) -> None:
    reply = codec.decode_reply(codec.encode_outcome(1, 2, 3, 30, **outcome))
    assert reply == {
        "id": 1,
        "group": 2,
        "leader": 3,
        "code": outcome.get("code", "ok"),
        "detail": outcome.get("detail", 0),
        **expected,
    }
