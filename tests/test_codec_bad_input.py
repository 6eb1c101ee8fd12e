"""What the codec answers to bytes it must not accept: a specific error, before anything is allocated."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from fastlock._core import codec
from fastlock.errors import (
    FastlockError,
    FrameTooLarge,
    MalformedFrame,
    ProtocolError,
    UnknownCommand,
    UnsupportedVersion,
)
from fastlock.schema import load
from fastlock.schema.enums import PROTOCOL_VERSION, Code
from tests.codec_pairs import PAIRS

ACQUIRE = {"id": 7, "command": {"key": b"k", "leaseLow": 1, "acquire": {"ttlMs": 1000}}}


def single(*words: int) -> bytes:
    return struct.pack(f"<II{len(words)}Q", 0, len(words), *words)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MalformedFrame, Code.malformedFrame),
        (FrameTooLarge, Code.frameTooLarge),
        (UnsupportedVersion, Code.unsupportedVersion),
        (UnknownCommand, Code.unknownCommand),
    ],
)
def test_every_refusal_is_a_protocol_error_with_its_code_and_an_advice(
    error: type[ProtocolError], code: Code
) -> None:
    frames = {
        MalformedFrame: b"\0" * 8,
        FrameTooLarge: struct.pack("<II", 0, 0xFFFFFFFF),
        UnsupportedVersion: load("log").LogEntry.new_message(version=2).to_bytes(),
        UnknownCommand: load("log").LogEntry.new_message(version=1, commands=[{"unset": None}]).to_bytes(),
    }
    with pytest.raises(error) as caught:
        codec.decode_log_entry(frames[error])
    assert caught.value.code == code
    assert isinstance(caught.value, FastlockError)
    assert ": " in str(caught.value)


@pytest.mark.parametrize("name", sorted(PAIRS))
@pytest.mark.parametrize("frame", [b"", b"\0", b"\0" * 4, b"\0" * 7, b"\0" * 8, b"\1\0\0\0" + b"\0" * 12])
def test_nothing_at_all_is_malformed(name: str, frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        PAIRS[name].decode(frame)


def test_a_null_root_is_a_message_of_zeros() -> None:
    with pytest.raises(UnknownCommand):
        codec.decode_request(single(0))
    assert codec.decode_reply(single(0))["code"] == "ok"
    with pytest.raises(UnsupportedVersion):
        codec.decode_log_entry(single(0))


def test_every_prefix_of_a_frame_is_refused() -> None:
    frame = codec.encode_request(ACQUIRE)
    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            codec.decode_request(frame[:size])
    with pytest.raises(MalformedFrame):
        codec.decode_request(frame + bytes(8))


def test_frame_size_waits_for_the_header_and_then_knows() -> None:
    frame = codec.encode_request(ACQUIRE)
    assert [codec.frame_size(frame[:size]) for size in range(8)] == [0] * 8
    assert codec.frame_size(frame[:8]) == len(frame) == codec.frame_size(frame + b"more")


@pytest.mark.parametrize("header", [(0, 1 << 17), (0, 0xFFFFFFFF), (64, 0), (0xFFFFFFFF, 0), (0xFFFFFFFE, 1)])
def test_a_frame_above_its_cap_is_refused_by_its_header_alone(header: tuple[int, int]) -> None:
    with pytest.raises(FrameTooLarge):
        codec.frame_size(struct.pack("<II", *header))


def test_the_cap_is_an_argument() -> None:
    frame = codec.encode_request(ACQUIRE)
    assert codec.decode_request(frame, len(frame))["id"] == 7
    with pytest.raises(FrameTooLarge):
        codec.decode_request(frame, len(frame) - 1)


@pytest.mark.parametrize("which", [0, 22, 0xFFFF])
def test_a_command_of_a_later_release_is_unknown(which: int) -> None:
    request = load("client").Request.new_message(id=7, command={"key": b"k", "revoke": None})
    frame = bytearray(request.to_bytes())
    at = frame.index(struct.pack("<H", 7), 24)  # the discriminant of revoke
    struct.pack_into("<H", frame, at, which)
    with pytest.raises(UnknownCommand):
        codec.decode_request(bytes(frame))


@pytest.mark.parametrize("decode", [codec.decode_lock_row, codec.decode_lease_row, codec.decode_session_row])
@pytest.mark.parametrize("version", [0, 2, 0xFFFF])
def test_a_row_of_another_version_is_told_apart(decode: Any, version: int) -> None:
    struct_name = {"lock": "LockRow", "lease": "LeaseRow", "session": "SessionRow"}[
        decode.__name__.split("_")[1]
    ]
    row = getattr(load("log"), struct_name).new_message(version=version)
    with pytest.raises(UnsupportedVersion):
        decode(row.to_bytes())


def empty_beats(count: int) -> bytes:
    """A list of `count` heartbeats without any field, which takes two words whatever the count."""
    return single(
        0x0001_0001_0000_0000,  # root: one word, one pointer
        0x00000002,  # PeerMessage.beats
        0x0001_0002_0000_0000,  # Beats: two words, one pointer
        1,
        2,
        0x0000_0007_0000_0001,  # a list of structs of zero words
        count << 2,
    )


def test_lists_of_nothing_cannot_make_a_short_frame_take_long() -> None:
    assert len(codec.decode_peer_message(empty_beats(500))["beats"]["beats"]) == 500
    began = time.monotonic()
    with pytest.raises(MalformedFrame):
        codec.decode_peer_message(empty_beats((1 << 30) - 1))
    assert time.monotonic() - began < 1


def shared_entries(count: int, data_words: int) -> bytes:
    """An append whose `count` entries are all the same bytes."""
    words = [0x0001_0001_0000_0000, 1, 0x0003_000A_0000_0000, 1, *[0] * 9]  # PeerMessage.raft, kind append
    words += [0x1 | 2 << 2 | 6 << 32 | count << 35, 0, 0]  # entries; chunk and membership absent
    words += [0x1 | (count - i - 1) << 2 | 2 << 32 | data_words * 8 << 35 for i in range(count)]
    return single(*words, *[0x4141414141414141] * data_words)


def test_pointers_to_the_same_bytes_cannot_multiply_them() -> None:
    assert codec.decode_peer_message(shared_entries(1, 10))["raft"]["entries"] == [b"A" * 80]
    with pytest.raises(MalformedFrame):
        codec.decode_peer_message(shared_entries(1000, 1000))


def test_a_far_pointer_within_one_segment_is_followed() -> None:
    """No writer has a reason to, but the format allows it."""
    plain = codec.encode_reply({"id": 5, "session": 9})
    words = struct.unpack(f"<{len(plain) // 8 - 1}Q", plain[8:])
    far_root = 2 | 1 << 3  # the landing pad is word 1
    assert codec.decode_reply(single(far_root, *words)) == codec.decode_reply(plain)


def test_far_pointers_in_a_circle_are_refused() -> None:
    with pytest.raises(MalformedFrame):
        codec.decode_reply(single(2 | 1 << 3, 2 | 1 << 3))
    with pytest.raises(MalformedFrame):
        codec.decode_reply(single(2 | 0 << 3))
    with pytest.raises(MalformedFrame):
        codec.decode_reply(single(2 | 4 | 1 << 3, 2 | 4 | 1 << 3, 0))
    with pytest.raises(MalformedFrame):
        codec.decode_reply(single(2 | 1 << 3 | 1 << 32, 0))


def test_a_struct_that_points_to_itself_ends_at_the_depth_of_the_schema() -> None:
    itself = 0xFFFFFFFC | 0x0001_0000 << 32  # a struct of one pointer, at this pointer
    with pytest.raises((MalformedFrame, UnknownCommand)):
        codec.decode_request(single(itself))
    # The same where the frame has two segments and is copied first.
    frame = struct.pack("<IIIIQQ", 1, 1, 1, 0, itself, 0)
    with pytest.raises(MalformedFrame):
        codec.decode_request(frame)


def test_text_without_its_final_zero_is_malformed() -> None:
    frame = bytearray(codec.encode_reply({"message": "abc"}))
    frame[frame.index(b"abc") + 3] = 1
    with pytest.raises(MalformedFrame):
        codec.decode_reply(bytes(frame))


@pytest.mark.parametrize(
    "fields",
    [
        {"id": 1, "command": {"acquire": {"ttl": 5}}},
        {"id": 1, "command": {"acquired": {}}},
        {"id": 1, "command": {"acquire": {}, "release": {}}},
        {"id": 1, "spelling": 2, "describe": None},
    ],
)
def test_a_misspelt_field_is_never_ignored(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        codec.encode_request(fields)


@pytest.mark.parametrize(
    "fields", [{"id": 1 << 64}, {"id": -1}, {"group": 1 << 32}, {"getLock": {"key": "text"}}]
)
def test_a_value_that_does_not_fit_is_never_cut(fields: dict[str, Any]) -> None:
    with pytest.raises((OverflowError, TypeError)):
        codec.encode_request(fields)


HELLO = {
    "version": PROTOCOL_VERSION,
    "role": "member",
    "clusterHigh": 1,
    "clusterLow": 2,
    "node": 3,
    "incarnation": 4,
}
KNOWN = {"cluster_high": 1, "cluster_low": 2, "node": 9, "peer_node": 3, "peer_incarnation": 4}


@pytest.mark.parametrize(
    ("changed", "known", "code"),
    [
        ({}, {}, Code.ok),
        ({"incarnation": 5}, {}, Code.ok),
        ({"version": 0}, {}, Code.unsupportedVersion),
        ({"version": PROTOCOL_VERSION + 1}, {}, Code.unsupportedVersion),
        ({"role": 3}, {}, Code.unsupportedVersion),
        ({"clusterHigh": 2}, {}, Code.wrongCluster),
        ({"clusterLow": 3}, {}, Code.wrongCluster),
        ({"clusterHigh": 0, "clusterLow": 0}, {}, Code.wrongCluster),
        ({"clusterHigh": 5}, {"cluster_high": 0, "cluster_low": 0}, Code.ok),
        ({"node": 4}, {}, Code.wrongNode),
        ({"node": 4}, {"peer_node": 0}, Code.ok),
        ({"node": 0}, {"peer_node": 0}, Code.wrongNode),
        ({"node": 9}, {"peer_node": 0}, Code.wrongNode),
        ({"incarnation": 3}, {}, Code.staleIncarnation),
        ({"role": "client", "node": 0, "incarnation": 0}, {}, Code.ok),
        ({"role": "client", "clusterHigh": 0, "clusterLow": 0}, {}, Code.ok),
        ({"role": "gateway", "clusterLow": 7}, {}, Code.wrongCluster),
    ],
)
def test_a_hello_is_held_against_what_this_side_knows(
    changed: dict[str, Any], known: dict[str, int], code: Code
) -> None:
    assert codec.check_hello(HELLO | changed, **(KNOWN | known)) == code
