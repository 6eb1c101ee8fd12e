"""The simulator's only source of chance: splitmix64, the same on every machine and in every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_UNIT = 2.0**-53


class Random:
    """A stream of numbers from one seed; `fork` gives an independent stream for one purpose."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next64(self) -> int:
        self._state = state = (self._state + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def fork(self, purpose: int) -> Random:
        return Random(self.next64() ^ (purpose * _GOLDEN))

    def below(self, bound: int) -> int:
        return (self.next64() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return low + ((self.next64() * (high - low + 1)) >> 64)

    def chance(self, probability: float) -> bool:
        return (self.next64() >> 11) * _UNIT < probability

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed
