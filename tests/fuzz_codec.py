"""Throws mutated frames at every decoder of the codec, for a number of frames or of seconds.

    python -m tests.fuzz_codec --seconds 60 --seed 1

A decoder may answer or refuse with a ProtocolError. Anything else (another exception, a crash, a read
beyond the frame, memory out of proportion, a frame that takes long) is a finding, reported with the
command that replays it.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from fastlock import schema
from fastlock._core import codec
from fastlock._core.codec_forward import decode_forwarded
from fastlock.errors import MalformedFrame, ProtocolError
from tests.capnp_frames import relaid
from tests.codec_pairs import PAIRS
from tests.frame_mutations import GuardedMemory, mutate
from tests.hotpath.lane import GROUP, Lane
from tests.schema_values import random_struct, structs

FRAME_BYTES_MAX = 1 << 16
FRAMES_PER_STRUCT = 24
# One decoder call on a frame of a few hundred bytes; far above noise, far below a loop over a huge count.
CALL_SECONDS_MAX = 2.0
MEMORY_GROWTH_MAX = 256 << 20
# Comparing with pycapnp and encoding again cost more than decoding, so only some accepted frames get that.
SAMPLE_EVERY = 10


class Finding(Exception):
    """What a decoder did that it must not do."""


def corpus(rng: Random) -> dict[str, list[bytes]]:
    """Good frames of every struct the codec reads: pycapnp's own, in several segments, and laid out anew."""
    frames: dict[str, list[bytes]] = {}
    reflections = structs()
    for name in PAIRS:
        reflection = reflections[name][1]
        frames[name] = []
        for number in range(FRAMES_PER_STRUCT):
            fields = random_struct(rng, reflection.schema, name)
            frame = reflection.new_message(num_first_segment_words=4096, **fields).to_bytes()
            if number % 4 == 2:
                frame = reflection.new_message(num_first_segment_words=1 + number, **fields).to_bytes()
            elif number % 4 == 3:
                frame = relaid(frame, rng, 1 + number % 5, resized=True)
            if len(frame) < FRAME_BYTES_MAX // 4:
                frames[name].append(frame)
    return frames


def agrees(ours: Any, theirs: Any) -> bool:
    """Whether everything pycapnp read is what we read. It leaves out a union member that it cannot read."""
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and all(k in ours and agrees(ours[k], v) for k, v in theirs.items())
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    return bool(ours == theirs)


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.good = corpus(self.rng)
        self.all_frames = [frame for frames in self.good.values() for frame in frames]
        self.schema_of = {name: schema_name for name, (schema_name, _) in structs().items()}
        self.guarded = GuardedMemory(FRAME_BYTES_MAX)
        self.counts: Counter[str] = Counter()
        self.slowest_seconds = 0.0
        # A node that leads and one that hands requests on to it; every request goes to their group.
        self.leader, self.other = Lane(8), Lane(6, leading=False)
        self.other.proposals.follow(8)
        for lane in (self.leader, self.other):
            lane.intake.route(0, 16383, GROUP)

    def step(self) -> None:
        """One mutated frame through its decoder, or now and then through another one's."""
        name = self.rng.choice(list(PAIRS))
        frame = mutate(self.rng, self.rng.choice(self.good[name]), self.all_frames)
        if len(frame) > FRAME_BYTES_MAX:
            return
        if self.rng.randrange(8) == 0:
            name = self.rng.choice(list(PAIRS))
        self.counts["frames"] += 1
        where = self.rng.randrange(4)
        held = frame if where == 0 else self.guarded.place(frame, at_end=where != 1)
        fields = self._call(PAIRS[name].decode, held, FRAME_BYTES_MAX)
        if fields is not None:
            self.counts["accepted"] += 1
            if self.counts["accepted"] % SAMPLE_EVERY == 0:
                self._compare(name, frame, fields)
        if name == "Request" and self.rng.randrange(4) == 0:
            self._take_in(frame)
        elif name == "Reply" and self.rng.randrange(4) == 0:
            self._call(self.other.forwards.answer, 8, held)
        elif name == "PeerMessage":
            self._call(decode_forwarded, held, FRAME_BYTES_MAX)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        began = time.monotonic()
        try:
            return function(*arguments)
        except ProtocolError as refusal:
            if type(refusal) is ProtocolError:
                raise Finding(f"refused without a specific error: {refusal}") from refusal
            self.counts[type(refusal).__name__] += 1
            return None
        finally:
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)

    def _compare(self, name: str, frame: bytes, fields: dict[str, Any]) -> None:
        try:
            theirs = schema.decode(self.schema_of[name], name, frame)
        except MalformedFrame:
            return
        self.counts["compared"] += 1
        if not agrees(fields, theirs):
            raise Finding(f"{name}: the codec reads {fields}, pycapnp reads {theirs}")
        if name != "LogEntry":
            again = PAIRS[name].decode(PAIRS[name].encode(fields), 8 * FRAME_BYTES_MAX)
            if again != fields:
                raise Finding(f"{name}: {fields} became {again} when it was encoded again")

    def _take_in(self, frame: bytes) -> None:
        """Through the intake of a node that leads, and through one that forwards to it."""
        stream = self.rng.choice(self.good["Request"]) + frame + self.rng.choice(self.good["Request"])
        stream = stream[:FRAME_BYTES_MAX]
        leader, other = self.leader, self.other
        for lane in (leader, other):
            replies = lane.connect(is_trusted=True)
            consumed = self._call(lane.intake.take, replies, stream, 0, FRAME_BYTES_MAX)
            if consumed is not None and not 0 <= consumed <= len(stream):
                raise Finding(f"take() consumed {consumed} of {len(stream)} bytes")
            replies.close()
            lane.intake.take_others()
        link = leader.connect(is_forwarder=True)
        for _, frames in other.forwards.take():
            if self._call(leader.intake.take, link, frames, 0) != len(frames):
                raise Finding("a forwarded request is refused where it goes")
        link.close()
        other.forwards.lost(8)
        while leader.proposals.next_bytes:
            codec.decode_log_entry(leader.proposals.seal(1, 1))
        self.counts["fed"] += 1

    def run(self, frames: int | None = None, seconds: float | None = None) -> Counter[str]:
        """Until so many frames were thrown or so many seconds went by; raises Finding."""
        deadline = None if seconds is None else time.monotonic() + seconds
        memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        while frames is None or self.counts["frames"] < frames:
            if deadline is not None and time.monotonic() >= deadline:
                break
            try:
                self.step()
            except Finding:
                raise
            except Exception as error:
                raise Finding(f"a decoder raised {error!r}") from error
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before) * 1024
        if growth > MEMORY_GROWTH_MAX:
            raise Finding(f"memory grew by {growth >> 20} MiB")
        if self.slowest_seconds > CALL_SECONDS_MAX:
            raise Finding(f"one frame took {self.slowest_seconds:.1f} s")
        return self.counts


def main() -> int:
    faulthandler.enable()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--frames", type=int, help="stop after so many frames")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.seed)
    # Printed first: after a crash it is all that is left.
    print(f"fuzzing the codec with seed {arguments.seed} for {arguments.seconds:g} s", flush=True)
    try:
        counts = fuzzer.run(arguments.frames, arguments.seconds)
    except Finding as finding:
        print(finding, file=sys.stderr)
        thrown = fuzzer.counts["frames"]
        print(
            f"replay: python -m tests.fuzz_codec --seed {arguments.seed} --frames {thrown}", file=sys.stderr
        )
        return 1
    print(", ".join(f"{name} {count:,}" for name, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
