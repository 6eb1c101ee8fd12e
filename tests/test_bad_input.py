"""Bad input gets a specific code and changes nothing: frames, versions, commands, fields, slots, clusters."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from commands import (
    ARGUMENT_IDS,
    CODE_NAMES,
    CREATE,
    NO_EXPIRY_TTL_MS,
    SEMAPHORE,
    SETTING_IDS,
    Command,
    acquire,
    acquire_all,
    create_lease,
    encode_entry,
    own,
    release,
    slot_of,
)
from lockstep import Lockstep

from fastlock._core.codec import check_hello
from fastlock.errors import ProtocolError

A, B, T1, T2 = b"a", b"b", b"{t}1", b"{t}2"
LONG = b"x" * 70_000
YEAR_MS = 31_536_000_000


@pytest.fixture
def group() -> Lockstep:
    """A group with something to lose: a held lock, a waiter, a value, a session."""
    group = Lockstep()
    group.run(*own(A, B, T1), create_lease(1), create_lease(2))
    group.run(acquire(A, 1), acquire(A, 2), Command("putValue", key=B, value=b"v"), Command("openSession"))
    return group


# Frames: the entry is refused as a whole, by an exception, because the group must stop.


def assert_entry_refused(group: Lockstep, frame: bytes, code: str) -> None:
    before = group.table.state_hash(), group.table.applied_index, group.table.dump()
    with pytest.raises(ProtocolError) as refused:
        group.table.apply(frame, 0)
    assert CODE_NAMES[refused.value.code] == code
    assert (group.table.state_hash(), group.table.applied_index, group.table.dump()) == before


def entry(group: Lockstep, *commands: Command, **header: Any) -> bytes:
    return encode_entry(commands, **{"index": group.table.applied_index + 1, **header})


GOOD = [release(A, 1, 3), Command("putValue", key=B, value=b"changed"), acquire(T1, 1)]


def test_bad_input_truncated_frame(group: Lockstep) -> None:
    frame = entry(group, *GOOD)
    for size in range(0, len(frame), 4):
        assert_entry_refused(group, frame[:size], "malformedFrame")


def test_bad_input_twisted_pointers_never_crash_and_never_half_apply(group: Lockstep) -> None:
    """A flipped bit may leave a valid entry that says something else; it acts as a whole or not at all."""
    random = Random(1)
    frame = entry(group, *GOOD)
    index = group.table.applied_index
    before = group.table.state_hash()
    group.finish_checkpoint(100, restart=False)
    refused = 0
    for _ in range(2_000):
        table = group.load()
        bits = bytearray(frame)
        for _ in range(random.choice((1, 2, 8))):
            bits[random.randrange(len(bits))] ^= 1 << random.randrange(8)
        try:
            table.apply(bytes(bits), 0)
        except (ProtocolError, AssertionError, ValueError):
            refused += 1
            assert (table.state_hash(), table.applied_index) == (before, index)
        table.check_invariants()
    assert refused > 200


def test_bad_input_a_malformed_command_takes_its_whole_entry_with_it(group: Lockstep) -> None:
    """The good command in front must not have acted."""
    assert_entry_refused(group, entry(group, GOOD[1], Command("unset")), "unknownCommand")


def test_bad_input_unknown_version(group: Lockstep) -> None:
    assert_entry_refused(group, entry(group, *GOOD, version=2), "unsupportedVersion")
    assert_entry_refused(group, entry(group, *GOOD, version=0), "unsupportedVersion")


def test_bad_input_unknown_entry_kind(group: Lockstep) -> None:
    assert_entry_refused(group, entry(group, *GOOD, kind=9), "unknownCommand")


def test_bad_input_unknown_command(group: Lockstep) -> None:
    """The discriminant is what differs between two commands without fields of their own."""
    one, two = (entry(group, Command(kind, lease=1)) for kind in ("closeSession", "revoke"))
    (place,) = [i for i, (left, right) in enumerate(zip(one, two, strict=True)) if left != right]
    for discriminant in (0, 22, 99, 255):
        frame = one[:place] + bytes([discriminant]) + one[place + 1 :]
        assert_entry_refused(group, frame, "unknownCommand")


def test_bad_input_entry_of_another_group_or_out_of_order(group: Lockstep) -> None:
    """Not the world's fault but ours: an assertion of whoever calls apply, and still nothing changes."""
    index = group.table.applied_index
    for header in ({"group": 2}, {"index": index}, {"index": index + 2}):
        before = group.table.state_hash()
        with pytest.raises(Exception):  # noqa: B017
            group.table.apply(entry(group, *GOOD, **header), 0)
        assert group.table.state_hash() == before
    group.run(*GOOD)


# Commands: a reply with the code, and the state is as it was.


def limit(name: str) -> tuple[str, int]:
    return "limitExceeded", SETTING_IDS[name]


def argument(name: str) -> tuple[str, int]:
    return "invalidArgument", ARGUMENT_IDS[name]


TTL = ("ttlOutOfRange", 0)
NEW = {"lease_use": CREATE, "ttl_ms": 1_000}
BAD_COMMANDS = {
    "empty key": (acquire(b"", 1), argument("key")),
    "oversized key": (acquire(b"k" * 1025, 1), limit("keyBytesMax")),
    "key beyond every ceiling": (acquire(LONG, 1), limit("keyBytesMax")),
    "oversized owner": (create_lease(9, owner=b"o" * 257), limit("ownerBytesMax")),
    "oversized owner of a new lease": (acquire(B, 9, owner=b"o" * 257, **NEW), limit("ownerBytesMax")),
    "oversized actor": (Command("forceRelease", key=A, actor=b"o" * 257), limit("ownerBytesMax")),
    "oversized reason": (Command("forceRelease", key=A, reason=LONG), limit("ownerBytesMax")),
    "oversized value": (Command("putValue", key=B, value=b"v" * 4097), limit("valueBytesMax")),
    "value beyond every ceiling": (Command("putValue", key=B, value=LONG), limit("valueBytesMax")),
    "TTL too short": (create_lease(9, 49), TTL),
    "TTL of zero": (create_lease(9, 0), TTL),
    "negative TTL": (create_lease(9, -1), TTL),
    "most negative TTL": (create_lease(9, -(1 << 63)), TTL),
    "TTL too long": (create_lease(9, YEAR_MS + 1), TTL),
    "TTL just below no expiry": (create_lease(9, NO_EXPIRY_TTL_MS - 1), TTL),
    "TTL changed out of range": (Command("changeTtl", lease=1, ttl_ms=49), TTL),
    "TTL of a new lease": (acquire(B, 9, lease_use=CREATE, ttl_ms=0), TTL),
    "session lifetime too short": (Command("openSession", lifetime_ms=59_999), TTL),
    "session lifetime too long": (Command("openSession", lifetime_ms=(1 << 42) + 1), TTL),
    "lease id zero": (acquire(B, 0), argument("leaseId")),
    "release with lease id zero": (release(A, 0, 3), argument("leaseId")),
    "unknown mode": (acquire(B, 1, mode=7), argument("mode")),
    "largest mode": (acquire(B, 1, mode=65_535), argument("mode")),
    "unknown lease use": (acquire(B, 1, lease_use=9), argument("leaseUse")),
    "limit without a semaphore": (acquire(B, 1, limit=2), argument("limit")),
    "count without a semaphore": (acquire(B, 1, count=2), argument("count")),
    "semaphore without a limit": (acquire(B, 1, mode=SEMAPHORE), argument("limit")),
    "semaphore too large": (acquire(B, 1, mode=SEMAPHORE, limit=10_001), limit("semaphoreLimitMax")),
    "more units than there are": (acquire(B, 1, mode=SEMAPHORE, limit=2, count=3), argument("count")),
    "lock delay too long": (acquire(B, 1, lock_delay_ms=60_001), limit("lockDelayMsMax")),
    "no keys": (acquire_all([], 1), argument("keys")),
    "too many keys": (acquire_all([b"{t}%d" % i for i in range(65)], 1), limit("keysPerAcquireMax")),
    "one key twice": (acquire_all([T1, T2, T1], 1), argument("keys")),
    "keys of two slots": (acquire_all([T1, A], 1), ("crossSlot", 0)),
    "an empty key among others": (acquire_all([T1, b""], 1), argument("key")),
    "semaphores together": (acquire_all([T1, T2], 1, mode=SEMAPHORE), argument("mode")),
    "slot not owned": (acquire(b"elsewhere", 1), ("wrongSlot", 0)),
    "put to a slot not owned": (Command("putValue", key=b"elsewhere", value=b"v"), ("wrongSlot", 0)),
    "keys of a slot not owned": (acquire_all([b"{x}1", b"{x}2"], 1), ("wrongSlot", 0)),
    "session unknown": (acquire(B, 1, session=77), ("sessionUnknown", 0)),
    "close without a session": (Command("closeSession"), argument("session")),
    "unknown setting": (Command("configure", settings=[(1, 9), (99, 1)]), argument("setting")),
    "setting unset": (Command("configure", settings=[(0, 1)]), argument("setting")),
    "setting above its ceiling": (Command("configure", settings=[(1, 9), (1, 4097)]), argument("setting")),
    "setting below its floor": (Command("configure", settings=[(13, 0)]), argument("setting")),
    "hash seed of a group in use": (Command("configure", settings=[(15, 7)]), argument("setting")),
    "slots backwards": (Command("ownSlots", first=2, last=1), argument("slots")),
    "slots beyond the last": (Command("ownSlots", first=0, last=16_384), argument("slots")),
    "export of foreign slots": (Command("exportSlots", first=0, last=0), ("wrongSlot", 0)),
    "drop of owned slots": (Command("dropSlots", first=slot_of(A), last=slot_of(A)), ("wrongSlot", 0)),
    "import into owned slots": (Command("importSlots", first=slot_of(A), last=slot_of(A)), ("wrongSlot", 0)),
    "token floor too high": (Command("importSlots", token_floor=1 << 53), argument("tokenFloor")),
    "import of garbage": (Command("importSlots", rows=[b"garbage!" * 9]), argument("rows")),
    "import of nothing at all": (Command("importSlots", rows=[b""]), argument("rows")),
}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_bad_input_command(group: Lockstep, name: str) -> None:
    command, (code, detail) = BAD_COMMANDS[name]
    before = group.table.state_hash(), group.table.revision
    (reply,) = group.run(command)
    assert (reply.code, reply.detail) == (code, detail)
    assert (group.table.state_hash(), group.table.revision) == before


def test_bad_input_acknowledging_the_future(group: Lockstep) -> None:
    (session,) = group.model.sessions
    before = group.table.state_hash()
    (reply,) = group.run(acquire(B, 1, session=session, sequence=3, acknowledged_below=4))
    assert (reply.code, reply.detail) == argument("acknowledgedBelow")
    assert group.table.state_hash() == before


def test_bad_input_the_very_last_sequence(group: Lockstep) -> None:
    """Sequences are 64 bits; the window above the watermark must not wrap round."""
    (session,) = group.model.sessions
    last = (1 << 64) - 1
    far = acquire(B, 1, session=session, sequence=last)
    assert group.run(far)[0].code == "limitExceeded"
    far.acknowledged_below = last
    (granted,) = group.run(far)
    assert granted.code == "ok"
    assert group.run(far) == [granted]
    assert group.run(acquire(B, 1, session=session, sequence=0))[0].code == "ok"  # its claim is still there
    assert group.run(release(B, 1, granted.token, session=session, sequence=0))[0].code == "sequenceStale"


def test_bad_input_a_moved_slot_names_the_group_it_moved_to(group: Lockstep) -> None:
    span = {"first": slot_of(A), "last": slot_of(A)}
    group.run(Command("exportSlots", to_group=7, **span))
    before = group.table.state_hash()
    (reply,) = group.run(acquire(A, 1, 2))
    assert (reply.code, reply.detail) == ("wrongSlot", 7)
    assert group.table.state_hash() == before
    group.run(Command("dropSlots", **span))
    (reply,) = group.run(acquire(A, 1, 2))
    assert (reply.code, reply.detail) == ("wrongSlot", 0)


# Hellos: nobody from another cluster gets as far as a command.

OURS = {"cluster_high": 1, "cluster_low": 2, "node": 1, "peer_node": 2, "peer_incarnation": 5}
HELLO = {"version": 1, "role": "member", "clusterHigh": 1, "clusterLow": 2, "node": 2, "incarnation": 5}
BAD_HELLOS = {
    "none": ({}, "ok"),
    "wrong cluster id, high half": ({"clusterHigh": 9}, "wrongCluster"),
    "wrong cluster id, low half": ({"clusterLow": 9}, "wrongCluster"),
    "wrong version": ({"version": 2}, "unsupportedVersion"),
    "version and cluster": ({"version": 2, "clusterLow": 9}, "unsupportedVersion"),
    "wrong node": ({"node": 3}, "wrongNode"),
    "an incarnation that is no more": ({"incarnation": 4}, "staleIncarnation"),
}


@pytest.mark.parametrize("name", BAD_HELLOS)
def test_bad_input_hello(name: str) -> None:
    change, code = BAD_HELLOS[name]
    assert CODE_NAMES[check_hello({**HELLO, **change}, **OURS)] == code
