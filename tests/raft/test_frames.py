"""Raft's messages and entries as frames: what one side writes the other reads, and pycapnp reads the same."""

from __future__ import annotations

import random

import pytest

from fastlock._core import raft_entry
from fastlock._core.raft_frame import decode_messages, encode_beats, encode_message
from fastlock._core.raft_message import (
    APPEND,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    ROLE_LEARNER,
    ROLE_WITNESS,
    SNAPSHOT_CHUNK,
    SNAPSHOT_REPLY,
    VOTE,
    Entry,
    Member,
    Message,
)
from fastlock.errors import ProtocolError
from fastlock.schema import load

from .cluster import GROUP, batch

MEMBERS = (Member(1, address="one:1"), Member(2, ROLE_LEARNER, 3, "two:22"), Member(9, ROLE_WITNESS))
FIELDS = [
    "kind",
    "group",
    "source",
    "target",
    "term",
    "index",
    "log_term",
    "commit",
    "context",
    "hint_index",
    "hint_term",
    "reject",
    "force",
    "last",
    "chunk",
    "members",
]


def seen(message: Message) -> dict[str, object]:
    found = {name: getattr(message, name) for name in FIELDS}
    found["entries"] = [(entry.term, entry.index, entry.kind, entry.data) for entry in message.entries]
    return found


def through_the_wire(message: Message) -> Message:
    decoded = decode_messages(b"".join(encode_message(message)))
    assert decoded is not None
    return decoded[0]


def test_an_append_is_a_prefix_and_the_entries_own_bytes() -> None:
    data = [batch(4, 7, "a"), batch(4, 8, "bb")]
    entries = [raft_entry.read_entry(frame) for frame in data]
    message = Message(
        APPEND, group=GROUP, source=1, target=2, term=4, index=6, log_term=3, commit=5, entries=entries
    )
    parts = encode_message(message)
    assert parts[1] is data[0]
    assert parts[2] is data[1]
    assert seen(through_the_wire(message)) == seen(message)
    with load("peer").PeerMessage.from_bytes(b"".join(parts)) as read:
        assert [bytes(entry) for entry in read.raft.entries] == data
        assert (read.raft.index, read.raft.logTerm, read.raft.commit) == (6, 3, 5)


@pytest.mark.parametrize(
    "message",
    [
        Message(VOTE, group=1, source=1, target=2, term=2**63, index=2**40, log_term=9, force=True),
        Message(SNAPSHOT_REPLY, group=1, source=1, target=2, term=3, context=77, hint_index=64, reject=True),
        Message(
            SNAPSHOT_CHUNK,
            source=3,
            target=1,
            term=5,
            index=9,
            log_term=4,
            context=1,
            chunk=b"rows",
            last=True,
            members=MEMBERS,
        ),
    ],
    ids=["vote", "snapshotReply", "snapshotChunk"],
)
def test_a_message_survives_the_wire(message: Message) -> None:
    assert seen(through_the_wire(message)) == seen(message)


def test_heartbeats_of_many_groups_share_a_frame() -> None:
    beats = [
        Message(HEARTBEAT, group=group, source=1, target=2, term=group + 1, commit=group, context=group * 7)
        for group in range(5)
    ]
    beats.append(Message(HEARTBEAT_REPLY, group=9, source=1, target=2, term=3, context=4))
    decoded = decode_messages(encode_beats(beats))
    assert decoded is not None
    assert [seen(message) for message in decoded] == [seen(message) for message in beats]


def test_beats_between_different_nodes_do_not_share_a_frame() -> None:
    with pytest.raises(ValueError, match="one node to one other"):
        encode_beats([Message(HEARTBEAT, source=1, target=2), Message(HEARTBEAT, source=1, target=3)])


def test_the_own_entries_of_raft_are_what_the_schema_says() -> None:
    entry = raft_entry.membership_entry(GROUP, 3, 9, MEMBERS)
    with load("log").LogEntry.from_bytes(entry.data) as read:
        assert (read.version, str(read.kind), read.group, read.term, read.index) == (
            1,
            "membership",
            GROUP,
            3,
            9,
        )
        listed = [(m.node, m.incarnation, str(m.role), m.address) for m in read.membership.members]
    assert listed == [(1, 1, "voter", "one:1"), (2, 3, "learner", "two:22"), (9, 1, "witness", "")]
    assert raft_entry.read_members(entry.data) == MEMBERS
    noop = raft_entry.noop_entry(GROUP, 3, 9)
    with load("log").LogEntry.from_bytes(noop.data) as read:
        assert (str(read.kind), read.term, read.index) == ("noop", 3, 9)


def test_a_frame_about_something_else_is_left_to_others() -> None:
    message = load("peer").PeerMessage.new_message()
    message.init("leave").node = 3
    assert decode_messages(bytes(message.to_bytes())) is None


def test_damaged_frames_are_refused_and_nothing_else_happens() -> None:
    entries = [Entry(4, 7, 1, batch(4, 7, "a"))]
    whole = b"".join(
        encode_message(Message(APPEND, source=1, target=2, term=4, entries=entries, members=MEMBERS))
    )
    chance = random.Random(1)
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        try:
            decode_messages(bytes(damaged))
        except ProtocolError:
            continue
