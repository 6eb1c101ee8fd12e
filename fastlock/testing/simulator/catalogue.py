"""The keys of a simulated cluster, and which group owns each of them."""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import dataclass

from fastlock.testing.simulator.prng import Random

SLOT_TOTAL = 16384


def slot_of(key: bytes) -> int:
    opening = key.find(b"{")
    if opening >= 0:
        closing = key.find(b"}", opening + 1)
        if closing > opening + 1:
            key = key[opening + 1 : closing]
    return crc_hqx(key, 0) % SLOT_TOTAL


@dataclass(frozen=True, slots=True)
class Target:
    """Something to lock: one key, or several that are taken together."""

    keys: tuple[bytes, ...]
    # exclusive: always; mixed: exclusive and shared; semaphore: up to `limit` units.
    style: str
    limit: int = 1
    # Nobody gets the key for so long after an expired holder.
    lock_delay_ms: int = 0
    forced: bool = False


class Catalogue:
    """Few keys, so that everybody wants the same ones."""

    def __init__(self, random: Random, groups: list[int]) -> None:
        self.groups = groups
        self._owners = [groups[slot * len(groups) // SLOT_TOTAL] for slot in range(SLOT_TOTAL)]
        self.targets = [Target((b"lock/%d" % number,), "exclusive") for number in range(random.between(2, 4))]
        self.targets.append(Target((b"mixed/0",), "mixed"))
        if random.chance(0.6):
            self.targets.append(Target((b"semaphore/0",), "semaphore", limit=random.between(2, 4)))
        if random.chance(0.5):
            keys = tuple(b"{pair}/%d" % number for number in range(random.between(2, 3)))
            self.targets.append(Target(keys, "exclusive"))
            if random.chance(0.5):
                # Some want only a part of it: one key, or two that overlap with the others' two.
                self.targets.append(Target(keys[:1] if len(keys) == 2 else keys[1:], "exclusive"))
                self.targets.append(Target(keys[-2:-1], "exclusive"))
        if random.chance(0.4):
            self.targets.append(Target((b"delayed/0",), "exclusive", lock_delay_ms=random.between(50, 1500)))
        if random.chance(0.4):
            self.targets.append(Target((b"forced/0",), "exclusive", forced=True))

    def group_of(self, key: bytes) -> int:
        return self._owners[slot_of(key)]

    def ranges(self, group: int) -> list[tuple[int, int]]:
        """The slots of a group as maximal runs."""
        runs: list[tuple[int, int]] = []
        for slot, owner in enumerate(self._owners):
            if owner == group:
                if runs and runs[-1][1] == slot - 1:
                    runs[-1] = (runs[-1][0], slot)
                else:
                    runs.append((slot, slot))
        return runs

    def run_around(self, slot: int, radius: int) -> tuple[int, int]:
        """Slots around one that have the same owner, at most `radius` to either side."""
        owner = self._owners[slot]
        first = last = slot
        while first > max(0, slot - radius) and self._owners[first - 1] == owner:
            first -= 1
        while last < min(SLOT_TOTAL - 1, slot + radius) and self._owners[last + 1] == owner:
            last += 1
        return first, last

    def keys_between(self, first: int, last: int) -> list[bytes]:
        return [key for target in self.targets for key in target.keys if first <= slot_of(key) <= last]

    def move(self, first: int, last: int, group: int) -> None:
        self._owners[first : last + 1] = [group] * (last - first + 1)
