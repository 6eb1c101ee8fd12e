"""What happened, in order: a running hash always, readable lines where somebody reads them."""

from __future__ import annotations

from zlib import crc32

_MASK = (1 << 64) - 1
_PRIME = 0x100000001B3

# A failure shows this many of the last lines; the replay command with --trace shows them all.
LINES_SHOWN = 60


class Trace:
    """Collects lines; two runs of a seed have the same hash or something depended on more than the seed."""

    __slots__ = ("_hash", "count", "keep", "lines")

    def __init__(self, keep: bool) -> None:
        self._hash = 0xCBF29CE484222325
        self.keep = keep
        self.count = 0
        self.lines: list[str] = []

    def add(self, now_ns: int, line: str) -> None:
        self.count += 1
        self._hash = ((self._hash ^ crc32(line.encode()) ^ now_ns) * _PRIME) & _MASK
        if self.keep:
            self.lines.append(f"{now_ns / 1e9:12.6f} {line}")

    def mix(self, number: int) -> None:
        """Something too frequent for a line that must repeat all the same."""
        self._hash = ((self._hash ^ number) * _PRIME) & _MASK

    def hash(self) -> str:
        return f"{self._hash:016x}"
