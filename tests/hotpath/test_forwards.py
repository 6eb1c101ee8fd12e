"""Requests for a group that another node leads: handed on once, answered under their own id."""

from __future__ import annotations

import pytest

from fastlock import schema
from fastlock._core import codec
from fastlock._core.codec_forward import (
    FORWARD,
    FORWARD_REPLY,
    decode_forwarded,
    encode_forward,
    encode_forward_reply,
)
from fastlock.errors import MalformedFrame
from fastlock.schema import load
from fastlock.schema.enums import Code
from tests.hotpath.lane import OWN_ALL, Lane, acquire, decoded, frames_of, release, request, said

FORWARDS_MAX = 49152


class Pair:
    """Node 6, which does not lead, and node 8, which does."""

    def __init__(self) -> None:
        self.near = Lane(6, leading=False)
        self.near.proposals.follow(8)
        self.far = Lane(8)
        self.link = self.far.connect(is_forwarder=True)
        self.client = self.near.connect()
        self.far.send(self.link, OWN_ALL)
        self.far.commit()
        self.link.take()

    def hand_over(self) -> None:
        for node, frames in self.near.forwards.take():
            assert node == 8
            assert self.far.intake.take(self.link, frames, 0) == len(frames)
        self.far.commit()

    def hand_back(self) -> None:
        self.near.forwards.answer(8, self.link.take())


def test_a_command_travels_there_and_its_answer_back() -> None:
    pair = Pair()
    pair.near.send(pair.client, acquire(b"a"), acquire(b"a", 2), first_id=5)
    assert pair.near.proposals.pending_count == 0
    assert len(pair.near.forwards) == 2
    pair.hand_over()
    pair.hand_back()
    answers = decoded(pair.client.take())
    assert [(a["id"], a["code"], a["leader"]) for a in answers] == [(5, "ok", 8), (6, "notAcquired", 8)]
    assert pair.near.board.take_touched() == [pair.client]
    assert len(pair.near.forwards) == 0


def test_a_wait_gets_both_answers() -> None:
    pair = Pair()
    pair.near.send(pair.client, acquire(b"a"), acquire(b"a", 2, wait=True))
    pair.hand_over()
    pair.hand_back()
    assert said(pair.client) == [(1, "ok"), (2, "queued")]
    pair.near.send(pair.client, release(b"a", 1, 1), first_id=3)
    pair.hand_over()
    pair.hand_back()
    assert sorted(said(pair.client)) == [(2, "ok"), (3, "ok")]
    assert len(pair.near.forwards) == 0


def test_a_forwarded_request_is_never_forwarded_again() -> None:
    pair = Pair()
    pair.far.proposals.follow(9)
    pair.near.send(pair.client, acquire(b"a"))
    pair.hand_over()
    assert pair.far.forwards.take() == []
    pair.hand_back()
    (answer,) = decoded(pair.client.take())
    assert (answer["code"], answer["leader"]) == ("notLeader", 9)


def test_two_nodes_that_believe_in_each_other_name_nobody() -> None:
    pair = Pair()
    pair.far.proposals.follow(6)
    pair.near.send(pair.client, acquire(b"a"))
    pair.hand_over()
    pair.hand_back()
    (answer,) = decoded(pair.client.take())
    assert (answer["code"], answer["leader"]) == ("notLeader", 0)


def test_without_a_leader_a_command_is_refused_at_once() -> None:
    lane = Lane(leading=False)
    replies = lane.connect()
    lane.send(replies, acquire(b"a"))
    assert said(replies) == [(1, "notLeader")]


def test_an_answer_that_comes_twice_or_from_elsewhere_is_dropped() -> None:
    pair = Pair()
    pair.near.send(pair.client, acquire(b"a"))
    pair.hand_over()
    frames = pair.link.take()
    pair.near.forwards.answer(9, frames)
    assert pair.client.size == 0
    pair.near.forwards.answer(8, frames)
    pair.near.forwards.answer(8, frames)
    assert said(pair.client) == [(1, "ok")]


def test_a_lost_link_tells_what_was_sent_from_what_was_not() -> None:
    pair = Pair()
    pair.near.send(pair.client, acquire(b"a"))
    pair.near.forwards.take()
    pair.near.send(pair.client, acquire(b"b", 2), first_id=2)
    pair.near.forwards.lost(8)
    assert said(pair.client) == [(1, "outcomeUnknown"), (2, "unavailable")]
    assert pair.near.forwards.take() == []
    pair.near.send(pair.client, acquire(b"b", 2), first_id=3)
    pair.hand_over()
    pair.hand_back()
    assert said(pair.client) == [(3, "ok")]


def test_without_an_answer_the_outcome_is_unknown_but_a_wait_goes_on() -> None:
    pair = Pair()
    near = pair.near
    near.send(pair.client, acquire(b"a"), acquire(b"a", 2, wait=True))
    pair.hand_over()
    pair.hand_back()
    pair.client.take()
    near.intake.take(pair.client, request(7, acquire(b"x", 7)), 1000)
    near.intake.take(pair.client, request(8, acquire(b"y", 8)), 2000)
    assert near.forwards.oldest_ms == 1000
    near.forwards.take()
    near.forwards.expire(1500)
    assert said(pair.client) == [(7, "outcomeUnknown")]
    assert near.forwards.oldest_ms == 2000
    near.forwards.expire(9999)
    assert said(pair.client) == [(8, "outcomeUnknown")]
    assert near.forwards.oldest_ms == 0
    assert len(near.forwards) == 1


def test_requests_of_other_encoders_are_handed_on_too() -> None:
    pair = Pair()
    message = load("client").Request.new_message(
        num_first_segment_words=1, id=4, group=1, command=acquire(b"k" * 50)
    )
    frame = message.to_bytes()
    assert frame[:4] != bytes(4)
    pair.near.intake.take(pair.client, frame, 0)
    pair.hand_over()
    pair.hand_back()
    assert said(pair.client) == [(4, "ok")]


def test_too_many_under_way_are_busy() -> None:
    lane = Lane(6, leading=False)
    lane.proposals.follow(8)
    replies = lane.connect()
    frames = request(1, {"leaseLow": 1, "revoke": None}) * 1024
    for _ in range(FORWARDS_MAX // 1024):
        lane.intake.take(replies, frames, 0)
        lane.forwards.take()
    assert replies.size == 0
    lane.send(replies, acquire(b"a"), first_id=3)
    assert said(replies) == [(3, "busy")]
    lane.forwards.lost(8)
    assert replies.take()
    lane.send(replies, acquire(b"a"), first_id=3)
    assert replies.size == 0


def test_frames_that_wait_to_be_sent_are_bounded() -> None:
    lane = Lane(6, leading=False)
    lane.proposals.follow(8)
    replies = lane.connect()
    frame = request(1, {"key": b"k", "putValue": {"value": bytes(200_000)}})
    for _ in range(100):
        lane.intake.take(replies, frame, 0)
    codes = said(replies)
    assert codes == [(1, "busy")] * len(codes)
    ((_, frames),) = lane.forwards.take()
    assert len(frames_of(frames)) == 100 - len(codes)
    assert len(frames) < 5 << 20


def test_the_node_hands_on_what_it_wrote_itself() -> None:
    pair = Pair()
    inside = pair.near.connect()
    frame = codec.encode_request({"keepAlive": [{"group": 1, "leaseLow": 5}]})
    assert pair.near.forwards.put(inside, 17, 1, 8, frame, 0) == Code.ok
    ((_, frames),) = pair.near.forwards.take()
    pair.far.intake.take(pair.link, frames, 0)
    ((link, fields),) = pair.far.intake.take_others()
    assert fields["keepAlive"] == [{"group": 1, "leaseHigh": 0, "leaseLow": 5}]
    kept = [{"group": 1, "code": "ok"}]
    link.put(codec.encode_reply({"id": fields["id"], "code": "ok", "keptAlive": kept}))
    pair.hand_back()
    (answer,) = decoded(inside.take())
    assert (answer["id"], answer["keptAlive"][0]["code"]) == (17, "ok")
    with pytest.raises(ValueError):
        pair.near.forwards.put(inside, 18, 1, 8, b"nonsense", 0)


@pytest.mark.parametrize(
    "data", [b"\0" * 4, b"\0" * 16, b"\0\0\0\0\1\0\0\0" + b"\xff" * 8, b"\1" + b"\0" * 23]
)
def test_answers_that_are_no_frames_raise(data: bytes) -> None:
    pair = Pair()
    with pytest.raises(MalformedFrame):
        pair.near.forwards.answer(8, data)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_forwarded_frames_are_wrapped_as_the_schema_says(count: int) -> None:
    requests = request(5, acquire(b"key")) * count
    frame = b"".join(encode_forward(6, requests))
    assert decode_forwarded(frame) == (FORWARD, requests)
    fields = schema.decode("peer", "PeerMessage", frame)["forward"]
    assert (fields["source"], fields["requests"]) == (6, [requests])
    replies = codec.encode_reply({"id": 3, "code": "ok"}) * count
    frame = b"".join(encode_forward_reply(replies))
    assert decode_forwarded(frame) == (FORWARD_REPLY, replies)
    assert schema.decode("peer", "PeerMessage", frame)["forwardReply"]["replies"] == [replies]


def test_frames_wrapped_one_by_one_are_read_too() -> None:
    frames = [request(5, acquire(b"key")), request(6, acquire(b"k" * 30))]
    wrapped = schema.encode("peer", "PeerMessage", {"forward": {"requests": frames}})
    assert decode_forwarded(wrapped) == (FORWARD, b"".join(frames))
    other = schema.encode("peer", "PeerMessage", {"leave": {"node": 1}})
    assert decode_forwarded(other) is None
    with pytest.raises(MalformedFrame):
        decode_forwarded(wrapped[:-8])
