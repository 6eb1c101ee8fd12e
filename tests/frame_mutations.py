"""Frames broken in every way we can think of, from a seed; and memory in which reading too far is fatal."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from random import Random

WORD = 8
COUNTS = (0, 1, 2, 0x1FFFFFFF, 0x1FFFFFFE, 0x10000000, 0xFFFF, 0x7FFF)
WORDS = (0, 1, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 1 << 63, 0x7FFFFFFF, 0xFFFFFFFC, 0xFFFF0000FFFFFFFC)


class GuardedMemory:
    """Bytes that end where an unreadable page begins, or start where one ends: a byte too far is a crash."""

    def __init__(self, size_max: int) -> None:
        page = mmap.PAGESIZE
        self.room = -(-size_max // page) * page
        self.memory = mmap.mmap(-1, self.room + 2 * page)
        self.first = page
        libc = ctypes.CDLL(None, use_errno=True)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for guard in (start, start + page + self.room):
            if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, frame: bytes, at_end: bool) -> memoryview:
        start = self.first + (self.room - len(frame) if at_end else 0)
        self.memory[start : start + len(frame)] = frame
        return memoryview(self.memory)[start : start + len(frame)]


def mutate(rng: Random, frame: bytes, others: Sequence[bytes]) -> bytes:
    """One to three mutations; half of the time the header is made to fit the new size, to get past it."""
    out = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(MUTATIONS)(rng, out, others)
    if rng.randrange(2) and len(out) >= WORD and out[:4] == b"\0\0\0\0":
        del out[len(out) // WORD * WORD :]
        struct.pack_into("<I", out, 4, len(out) // WORD - 1)
    return bytes(out)


def _truncate(rng: Random, out: bytearray, others: Sequence[bytes]) -> None:
    del out[rng.randrange(len(out) + 1) :]


def _flip_bits(rng: Random, out: bytearray, others: Sequence[bytes]) -> None:
    for _ in range(rng.choice((1, 1, 2, 8)) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def _some_word(rng: Random, out: bytearray) -> int:
    """Where a random word starts, more often one that may be a pointer; -1 if there is none."""
    total = len(out) // WORD
    for _ in range(6):
        at = rng.randrange(total) * WORD if total else -1
        if at >= 0 and any(out[at : at + WORD]):
            return at
    return -1


def _twist_pointer(rng: Random, out: bytearray, others: Sequence[bytes]) -> None:
    at = _some_word(rng, out)
    if at < 0:
        return
    (word,) = struct.unpack_from("<Q", out, at)
    low, high = word & 0xFFFFFFFF, word >> 32
    part = rng.randrange(5)
    if part == 0:  # where it leads
        low = low & 3 | (rng.choice((0, 1, 2, 0x3FFFFFFF, 0x3FFFFFFE, 0x20000000, rng.getrandbits(5))) << 2)
    elif part == 1:  # what it is
        low = low & ~3 | rng.randrange(4)
    elif part == 2:  # how many
        high = high & 7 | (rng.choice((*COUNTS, rng.getrandbits(6))) << 3)
    elif part == 3:  # of what
        high = high & ~7 | rng.randrange(8)
    else:  # how large a struct
        high = rng.choice((0, 0xFFFF, 0xFFFF0000, 0xFFFFFFFF, rng.getrandbits(4) | rng.getrandbits(3) << 16))
    struct.pack_into("<Q", out, at, (high << 32 | low) & 0xFFFFFFFFFFFFFFFF)


def _huge_length(rng: Random, out: bytearray, others: Sequence[bytes]) -> None:
    if len(out) >= WORD:
        number = rng.choice((0xFFFFFFFF, 0xFFFFFFFE, 0x7FFFFFFF, 0x20000000, 64, 63, 2, 1))
        struct.pack_into("<I", out, rng.choice((0, 4)), number)


def _splice(rng: Random, out: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    start = rng.randrange(len(other) // WORD + 1) * WORD
    at = rng.randrange(len(out) // WORD + 1) * WORD
    run = other[start : start + rng.randrange(1, 12) * WORD]
    if rng.randrange(2):
        out[at:at] = run
    else:
        out[at : at + len(run)] = run


def _copy_word(rng: Random, out: bytearray, others: Sequence[bytes]) -> None:
    source, target = _some_word(rng, out), _some_word(rng, out)
    if source >= 0:
        out[target : target + WORD] = out[source : source + WORD]


def _set_word(rng: Random, out: bytearray, others: Sequence[bytes]) -> None:
    if len(out) >= WORD:
        struct.pack_into("<Q", out, rng.randrange(len(out) // WORD) * WORD, rng.choice(WORDS))


MUTATIONS = (
    _truncate,
    _flip_bits,
    _twist_pointer,
    _twist_pointer,
    _huge_length,
    _splice,
    _copy_word,
    _set_word,
)
