"""The compiled codec and pycapnp read each other's messages, for every struct of the schemas."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlock import schema
from fastlock.errors import MalformedFrame
from tests.capnp_frames import relaid
from tests.codec_pairs import PAIRS, writable
from tests.schema_values import random_struct, structs

STRUCTS = structs()
CODEC = sorted(PAIRS)
COLD = sorted(STRUCTS.keys() - PAIRS.keys())

# Hypothesis chooses every random decision, so that a failure shrinks.
randoms = st.randoms(use_true_random=False)


def message(name: str, rng: Random, large: bool = False) -> dict[str, Any]:
    return random_struct(rng, STRUCTS[name][1].schema, name, large)


def pycapnp_frame(name: str, fields: dict[str, Any], first_segment_words: int) -> bytes:
    built = STRUCTS[name][1].new_message(num_first_segment_words=first_segment_words, **fields)
    frame: bytes = built.to_bytes()
    return frame


def pycapnp_fields(name: str, frame: bytes) -> dict[str, Any]:
    return schema.decode(STRUCTS[name][0], name, frame)


@pytest.mark.parametrize("name", COLD)
@settings(max_examples=25)
@given(rng=randoms)
def test_pycapnp_serves_what_the_codec_leaves_to_it(name: str, rng: Random) -> None:
    fields = message(name, rng)
    assert schema.decode(STRUCTS[name][0], name, schema.encode(STRUCTS[name][0], name, fields)) == fields


@pytest.mark.parametrize("name", CODEC)
@settings(max_examples=200)
@given(rng=randoms)
def test_pycapnp_reads_what_the_codec_writes(name: str, rng: Random) -> None:
    fields = writable(name, message(name, rng))
    frame = PAIRS[name].encode(fields)
    assert pycapnp_fields(name, frame) == fields
    assert PAIRS[name].decode(frame) == fields


@pytest.mark.parametrize("name", CODEC)
@settings(max_examples=200)
@given(rng=randoms)
def test_the_codec_reads_what_pycapnp_writes(name: str, rng: Random) -> None:
    fields = message(name, rng)
    assert PAIRS[name].decode(pycapnp_frame(name, fields, 4096)) == fields


@pytest.mark.parametrize("name", CODEC)
@settings(max_examples=100)
@given(rng=randoms, first_segment_words=st.integers(1, 12))
def test_the_codec_reads_pycapnps_messages_of_several_segments(
    name: str, rng: Random, first_segment_words: int
) -> None:
    fields = message(name, rng)
    frame = pycapnp_frame(name, fields, first_segment_words)
    if PAIRS[name].single_segment and frame[:4] != bytes(4):
        with pytest.raises(MalformedFrame):
            PAIRS[name].decode(frame)
    else:
        assert PAIRS[name].decode(frame) == fields


@pytest.mark.parametrize("name", CODEC)
@settings(max_examples=100)
@given(rng=randoms, segment_count=st.integers(1, 5), resized=st.booleans())
def test_the_codec_reads_far_pointers_and_structs_of_other_releases(
    name: str, rng: Random, segment_count: int, resized: bool
) -> None:
    fields = message(name, rng)
    if PAIRS[name].single_segment:
        segment_count = 1
    frame = relaid(pycapnp_frame(name, fields, 4096), rng, segment_count, resized)
    expected = pycapnp_fields(name, frame)
    assert expected == fields
    assert PAIRS[name].decode(frame) == fields


@pytest.mark.parametrize("name", CODEC)
@pytest.mark.parametrize("seed", range(6))
def test_messages_larger_than_pycapnps_first_segment_go_both_ways(name: str, seed: int) -> None:
    rng = Random(seed)
    fields = writable(name, message(name, rng, large=True))
    limit = 64 << 20
    assert pycapnp_fields(name, PAIRS[name].encode(fields)) == fields
    assert PAIRS[name].decode(PAIRS[name].encode(fields), limit) == fields
    frame = pycapnp_frame(name, fields, 1024)
    if not PAIRS[name].single_segment or frame[:4] == bytes(4):
        assert PAIRS[name].decode(frame, limit) == fields
