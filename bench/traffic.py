"""Request frames by the hundred thousand: acquires and releases of random keys, each key with its own lease.

Frames are made by pycapnp once and then patched, so that making them does not dominate a benchmark's run.
Tokens are known beforehand, because every grant and every departure adds one to the group's revision.
"""

import random
import struct
from typing import NamedTuple

from fastlock._core.forwards import Forwards
from fastlock._core.intake import Intake
from fastlock._core.proposals import Proposals
from fastlock._core.replies import Replies, Switchboard
from fastlock.schema import load

CLIENT = load("client")

GROUP = 1
KEY_BYTES = 24
BATCH_COMMANDS = 64
OWNER = b"host-17:worker-4"

# Numbers that appear nowhere else in a frame, and stand where a field is to be patched.
ID_MARK, HIGH_MARK, LOW_MARK, LAST_MARK = (0xA1B2C3D4E5F60700 + number for number in range(1, 5))
KEY_MARK = bytes(range(0xC0, 0xC0 + KEY_BYTES))


def new_lane() -> tuple[Intake, Proposals, Replies]:
    """The way of one connection's commands into a group that this node leads."""
    board = Switchboard()
    intake = Intake(board, Forwards(1, board, 1))
    proposals = Proposals(GROUP, 1, board)
    intake.add_group(proposals)
    intake.route(0, 16383, GROUP)
    proposals.lead()
    return intake, proposals, board.open()


class Held(NamedTuple):
    key: bytes
    lease_high: int
    lease_low: int
    token: int


class Template:
    """A request frame in which id, lease, key and one more number can be set."""

    def __init__(self, kind: str, fields: dict[str, object]) -> None:
        command = {"leaseHigh": HIGH_MARK, "leaseLow": LOW_MARK, "key": KEY_MARK, kind: fields}
        self.frame: bytes = CLIENT.Request.new_message(id=ID_MARK, group=GROUP, command=command).to_bytes()
        marks = [mark.to_bytes(8, "little") for mark in (ID_MARK, HIGH_MARK, LOW_MARK, LAST_MARK)]
        self._offsets = [self.frame.index(mark) for mark in [*marks, KEY_MARK]]

    def batch(self, rows: list[tuple[int, int, int, int, bytes]]) -> bytes:
        """Frames of (id, lease high, lease low, number, key), one behind the other, as they arrive."""
        frames = bytearray(self.frame * len(rows))
        id_at, high_at, low_at, last_at, key_at = self._offsets
        pack_into = struct.Struct("<Q").pack_into
        for base, (request_id, high, low, last, key) in zip(
            range(0, len(frames), len(self.frame)), rows, strict=True
        ):
            pack_into(frames, base + id_at, request_id)
            pack_into(frames, base + high_at, high)
            pack_into(frames, base + low_at, low)
            pack_into(frames, base + last_at, last)
            frames[base + key_at : base + key_at + KEY_BYTES] = key
        return bytes(frames)


class Traffic:
    """Knows which keys are held, and writes the batches that acquire and release more."""

    def __init__(
        self, seed: int, revision: int, ttl_ms: int = 30_000, batch_commands: int = BATCH_COMMANDS
    ) -> None:
        self.revision = revision
        self._batch_commands = batch_commands
        self.held: list[Held] = []
        self._random = random.Random(seed)
        self._next_id = 1
        self._acquire = Template(
            "acquire", {"request": LAST_MARK, "ttlMs": ttl_ms, "lease": "createBound", "owner": OWNER}
        )
        self._release = Template("release", {"token": LAST_MARK})

    def acquires(self, count: int) -> list[bytes]:
        """Batches that acquire `count` keys nobody has, each with a lease that ends with its lock."""
        return [
            self._acquire.batch([self._acquire_row() for _ in range(min(self._batch_commands, count - done))])
            for done in range(0, count, self._batch_commands)
        ]

    def releases(self, count: int) -> list[bytes]:
        """Batches that release `count` of the held keys, in random order."""
        return [
            self._release.batch([self._release_row() for _ in range(min(self._batch_commands, count - done))])
            for done in range(0, count, self._batch_commands)
        ]

    def _take_id(self) -> int:
        self._next_id += 1
        self.revision += 1
        return self._next_id

    def _acquire_row(self) -> tuple[int, int, int, int, bytes]:
        request_id = self._take_id()
        held = Held(
            self._random.randbytes(KEY_BYTES),
            self._random.getrandbits(64),
            self._random.getrandbits(64),
            self.revision,
        )
        self.held.append(held)
        return request_id, held.lease_high, held.lease_low, request_id, held.key

    def _release_row(self) -> tuple[int, int, int, int, bytes]:
        position = self._random.randrange(len(self.held))
        self.held[position], self.held[-1] = self.held[-1], self.held[position]
        held = self.held.pop()
        return self._take_id(), held.lease_high, held.lease_low, held.token, held.key
