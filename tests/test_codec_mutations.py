"""Mutated frames through every decoder: none crashes, hangs, reads beyond its frame, or eats memory."""

from __future__ import annotations

import os

import pytest

from tests.fuzz_codec import Finding, Fuzzer

FRAMES = 200_000
SEED = 1


@pytest.mark.fuzz
def test_no_mutated_frame_does_more_than_get_refused() -> None:
    # `make fuzz` sets the seconds and runs this on the sanitizer build.
    seconds = float(os.environ.get("FASTLOCK_FUZZ_SECONDS", 0))
    seed = int(os.environ.get("FASTLOCK_FUZZ_SEED", SEED))
    fuzzer = Fuzzer(seed)
    try:
        counts = fuzzer.run(frames=None if seconds else FRAMES, seconds=seconds or None)
    except Finding as finding:
        thrown = fuzzer.counts["frames"]
        pytest.fail(f"{finding}\nreplay: python -m tests.fuzz_codec --seed {seed} --frames {thrown}")
    print(dict(counts))
    assert seconds or counts["frames"] >= FRAMES
    # The mutations neither break everything nor nothing, and every kind of refusal was met.
    assert counts["accepted"] > counts["frames"] // 20
    assert counts["compared"] > 0
    assert {"MalformedFrame", "FrameTooLarge", "UnsupportedVersion", "UnknownCommand"} <= counts.keys()
