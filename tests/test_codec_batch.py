"""A leader's batch: request frames in, one log entry out, and reply frames once it was applied."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlock._core import batch as batch_module
from fastlock._core import codec
from fastlock._core.batch import BYTES_MAX, COMMANDS_MAX, FEED_FULL, FEED_MORE, FEED_OTHER, Batch
from fastlock._core.locktable import LockTable
from fastlock.errors import FrameTooLarge, MalformedFrame
from fastlock.schema import load
from fastlock.schema.enums import CommandWhich
from tests.schema_values import random_struct, structs

OWN_ALL = {"ownSlots": {"first": 0, "last": 16383}}


def acquire(key: bytes, lease: int = 1, **fields: Any) -> dict[str, Any]:
    return {"key": key, "leaseLow": lease, "acquire": {"ttlMs": 1000, "lease": "create", **fields}}


def request(number: int, command: dict[str, Any], timeout_ms: int = 0) -> bytes:
    return codec.encode_request({"id": number, "timeoutMs": timeout_ms, "command": command})


def replies(frames: bytes) -> list[dict[str, Any]]:
    found = []
    while frames:
        size = codec.frame_size(frames)
        found.append(codec.decode_reply(frames[:size]))
        frames = frames[size:]
    return found


@settings(max_examples=60)
@given(rng=st.randoms(use_true_random=False), count=st.integers(0, 12))
def test_the_entry_has_the_commands_of_the_requests_in_order(rng: Any, count: int) -> None:
    schema = structs()["Command"][1].schema
    commands = [random_struct(rng, schema, "Command") for _ in range(count)]
    batch = Batch(3)
    stream = b"".join(request(100 + number, command, number) for number, command in enumerate(commands))
    assert batch.feed(stream) == len(stream)
    assert batch.stopped == FEED_MORE
    assert len(batch) == batch.count == count
    assert [batch.request_id(i) for i in range(count)] == list(range(100, 100 + count))
    assert [batch.timeout_ms(i) for i in range(count)] == list(range(count))
    size = batch.size
    entry = batch.seal(5, 9)
    assert len(entry) == size
    assert entry == codec.encode_entry(3, 5, 9, commands)
    decoded = codec.decode_log_entry(entry)
    assert (decoded["group"], decoded["term"], decoded["index"]) == (3, 5, 9)
    assert decoded["commands"] == commands


@given(cut=st.integers(0, 1000))
def test_a_stream_may_be_cut_anywhere(cut: int) -> None:
    stream = b"".join(request(number, acquire(b"key %d" % number)) for number in range(4))
    cut = min(cut, len(stream))
    batch = Batch(1)
    consumed = batch.feed(stream[:cut])
    assert consumed <= cut
    assert consumed + batch.feed(stream[consumed:]) == len(stream)
    assert batch.count == 4


def test_requests_of_several_segments_are_taken_too() -> None:
    command = acquire(b"k" * 50)
    frame = load("client").Request.new_message(num_first_segment_words=1, id=4, command=command).to_bytes()
    assert frame[:4] != bytes(4)
    batch = Batch(1)
    assert batch.feed(frame * 3) == len(frame) * 3
    assert [c["key"] for c in codec.decode_log_entry(batch.seal(1, 1))["commands"]] == [b"k" * 50] * 3


def test_a_full_batch_leaves_the_rest_for_the_next_one() -> None:
    frame = request(1, acquire(b"k"))
    batch = Batch(1)
    assert batch.feed(frame * (COMMANDS_MAX + 5)) == len(frame) * COMMANDS_MAX
    assert (batch.count, batch.stopped) == (COMMANDS_MAX, FEED_FULL)
    assert batch.feed(frame) == 0
    assert len(codec.decode_log_entry(batch.seal(1, 1))["commands"]) == COMMANDS_MAX


def test_an_entry_never_passes_its_byte_limit() -> None:
    frame = request(1, {"key": b"k", "putValue": {"value": bytes(4000)}})
    batch = Batch(1)
    consumed = batch.feed(frame * 100)
    assert batch.stopped == FEED_FULL
    assert consumed == len(frame) * batch.count
    assert BYTES_MAX - len(frame) < len(batch.seal(1, 1)) <= BYTES_MAX


def test_a_command_no_batch_could_hold_is_refused_by_its_id() -> None:
    large = request(77, {"key": b"k", "putValue": {"value": bytes(BYTES_MAX)}})
    batch = Batch(1)
    assert batch.feed(large + request(78, acquire(b"k"))) > len(large)
    assert batch.count == 1
    (refusal,) = replies(batch.take_refusals())
    assert (refusal["id"], refusal["code"]) == (77, "frameTooLarge")
    assert batch.take_refusals() == b""


def test_a_request_that_is_no_command_is_left_to_the_caller() -> None:
    get = codec.encode_request({"id": 2, "getLock": {"key": b"k"}})
    first = request(1, acquire(b"k"))
    batch = Batch(1)
    assert batch.feed(first + get + first) == len(first)
    assert batch.stopped == FEED_OTHER
    assert batch.feed(first) == len(first)
    assert batch.count == 2


def test_bad_requests_with_an_id_are_answered_and_the_others_taken() -> None:
    good = request(1, acquire(b"k"))
    unknown = codec.encode_request({"id": 8, "command": {}})
    broken = bytearray(request(9, acquire(b"key")))
    broken[-9] ^= 0xFF  # the key's pointer
    at = bytes(broken).rindex(b"key") - 16
    broken[at : at + 8] = b"\xff" * 8
    batch = Batch(5)
    stream = good + unknown + bytes(broken) + good
    assert batch.feed(stream) == len(stream)
    assert batch.count == 2
    refusals = replies(batch.take_refusals())
    assert [(r["id"], r["code"]) for r in refusals] == [(8, "unknownCommand"), (9, "malformedFrame")]


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"\xff" * 8, FrameTooLarge),
        (b"\0" * 16, MalformedFrame),
        (b"\0\0\0\0\1\0\0\0" + b"\xff" * 8, MalformedFrame),
    ],
)
def test_bytes_without_an_id_raise(stream: bytes, error: type[Exception]) -> None:
    batch = Batch(1)
    with pytest.raises(error):
        batch.feed(request(1, acquire(b"k")) + stream)
    assert batch.count == 1


def test_replies_say_what_apply_said_to_each_request() -> None:
    table = LockTable(1)
    batch = Batch(1)
    first = [OWN_ALL, acquire(b"a"), acquire(b"a", 2), acquire(b"a", 3, wait=True), {"openSession": {}}]
    second = [
        {"key": b"a", "leaseLow": 1, "release": {"token": 99}},
        {"key": b"a", "leaseLow": 1, "release": {"token": 1}},
    ]
    batch.feed(b"".join(request(10 + i, command) for i, command in enumerate(first)))
    border = batch.count
    batch.feed(b"".join(request(20 + i, command) for i, command in enumerate(second)))
    table.apply(batch.seal(1, 1), 0)
    answers = replies(batch.replies(table, 0, border, leader=6, retry_ms=25))
    assert [(a["id"], a["code"]) for a in answers] == [
        (10, "ok"), (11, "ok"), (12, "notAcquired"), (13, "queued"), (14, "ok"),
    ]  # fmt: skip
    assert answers[1]["grant"] == {"token": 1, "count": 1}
    assert answers[2]["conflict"] == {"retryMs": 25, "waiters": 0}
    assert (answers[3]["revision"], answers[3]["done"]) == (2, None)
    assert answers[4]["session"] == answers[4]["revision"] == 3
    assert {a["leader"] for a in answers} == {6}
    answers = replies(batch.replies(table, border))
    assert [(a["id"], a["code"]) for a in answers] == [(20, "staleToken"), (21, "ok")]


def test_replies_are_only_for_the_entry_that_was_applied_last() -> None:
    table = LockTable(1)
    batch = Batch(1)
    batch.feed(request(1, OWN_ALL))
    with pytest.raises(ValueError):
        batch.replies(table)
    entry = batch.seal(1, 1)
    with pytest.raises(ValueError):
        batch.replies(table)
    with pytest.raises(ValueError):
        batch.feed(request(1, OWN_ALL))
    with pytest.raises(ValueError):
        batch.seal(1, 2)
    table.apply(entry, 0)
    assert len(replies(batch.replies(table))) == 1
    batch.clear()
    batch.feed(request(2, acquire(b"k")))
    table.apply(batch.seal(1, 2), 0)
    assert [answer["id"] for answer in replies(batch.replies(table))] == [2]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (
            {"kind": CommandWhich.acquireAll, "token": 5, "revision": 7, "count": 3},
            {"grant": {"token": 5, "count": 3}},
        ),
        ({"kind": CommandWhich.openSession, "revision": 7}, {"session": 7}),
        ({"kind": CommandWhich.release, "revision": 7, "token": 4}, {"done": None}),
        ({"kind": CommandWhich.acquire, "code": "queued", "revision": 7}, {"done": None}),
        (
            {"kind": CommandWhich.acquire, "code": "lockDelayed", "count": 2},
            {"conflict": {"retryMs": 30, "waiters": 2}},
        ),
        ({"kind": CommandWhich.acquire, "code": "limitExceeded", "detail": 3}, {"done": None}),
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
        "revision": outcome.get("revision", 0),
        **expected,
    }


def test_positions_are_checked() -> None:
    batch = batch_module.Batch(1)
    with pytest.raises(IndexError):
        batch.request_id(0)
    with pytest.raises(IndexError):
        batch.timeout_ms(0)
