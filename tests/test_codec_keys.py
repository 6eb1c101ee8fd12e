"""Slots and hashes of keys: the same everywhere, for ever."""

from __future__ import annotations

import binascii
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlock._core.codec import hash_of, slot_of
from tests.commands import slot_of as slow_slot_of


@pytest.mark.parametrize(
    ("key", "slot"),
    [(b"", 0), (b"123456789", 0x31C3), (b"foo", 12182), (b"bar", 5061), (b"hello", 866), (b"somekey", 11058)],
)
def test_slots_are_those_of_redis_cluster(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


@pytest.mark.parametrize(
    ("key", "same"),
    [
        (b"{user1000}.following", b"user1000"),
        (b"foo{{bar}}zap", b"{bar"),
        (b"foo{bar}{zap}", b"bar"),
        (b"}{a}", b"a"),
    ],
)
def test_the_hash_tag_decides_where_there_is_one(key: bytes, same: bytes) -> None:
    assert slot_of(key) == slot_of(same)


@pytest.mark.parametrize("key", [b"foo{}{bar}", b"{", b"}", b"{}", b"{a", b"a}", b"a}b{"])
def test_without_a_hash_tag_the_whole_key_decides(key: bytes) -> None:
    assert slot_of(key) == binascii.crc_hqx(key, 0) % 16384


@given(st.binary(max_size=80) | st.lists(st.sampled_from([b"{", b"}", b"a", b"b"]), max_size=8).map(b"".join))
def test_slots_equal_the_definition(key: bytes) -> None:
    assert slot_of(key) == slow_slot_of(key)


# Not stored, but a list's cursor means a place in this order, on whichever member the next page is read.
def test_hashes_never_change() -> None:
    known = {
        (b"", 0): 0xC6C8A64B77DB148D,
        (b"a", 0): 0x67091245B01FB3AA,
        (b"12345678", 1): 0xBD124DB3C5A14D71,
        (bytes(range(40)), 0xDEADBEEF): 0x33DF967407D03D40,
    }
    assert {arguments: hash_of(*arguments) for arguments in known} == known


def fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & MASK


MASK = (1 << 64) - 1


def slow_hash(key: bytes, seed: int) -> int:
    odd_a, odd_b, odd_c = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    size = len(key)
    state = fold(seed ^ odd_a, odd_b ^ size)
    while len(key) > 16:
        first, second = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:16], "little")
        state = fold(first ^ odd_b ^ state, second ^ odd_c)
        key = key[16:]
    first, second = int.from_bytes(key[:8], "little"), 0
    if len(key) >= 8:
        second = int.from_bytes(key[-8:], "little")
    state = fold(first ^ odd_b ^ state, second ^ odd_c ^ seed)
    return fold(state ^ odd_a, odd_c ^ size)


@given(st.binary(max_size=100), st.integers(0, MASK))
def test_hashes_equal_the_definition_whatever_the_alignment(key: bytes, seed: int) -> None:
    assert hash_of(key, seed) == slow_hash(key, seed)
    assert hash_of(memoryview(b"x" + key)[1:], seed) == slow_hash(key, seed)


def test_hashes_spread_similar_keys() -> None:
    keys = [b"lock/%07d" % number for number in range(20_000)]
    hashes = [hash_of(key, 5) for key in keys]
    assert len(set(hashes)) == len(keys)
    for shift in (0, 32, 52):
        buckets = Counter(value >> shift & 0xFFF for value in hashes)
        assert max(buckets.values()) < 25  # 4.9 on average
    assert hash_of(keys[0], 1) != hash_of(keys[0], 2)


def test_one_bit_of_the_key_changes_half_of_the_hash() -> None:
    key = bytearray(b"orders/00000042/{eu}/reservation")
    base = hash_of(key)
    changed = []
    for bit in range(len(key) * 8):
        key[bit // 8] ^= 1 << bit % 8
        changed.append((hash_of(key) ^ base).bit_count())
        key[bit // 8] ^= 1 << bit % 8
    assert 28 < sum(changed) / len(changed) < 36
    assert min(changed) > 10
