"""A node's virtual disk: syncs take time, and what a crash leaves is decided by chance."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import islice
from zlib import crc32

from fastlock._core.raft import Write
from fastlock._core.raft_message import ENTRY_MEMBERSHIP, Entry
from fastlock.storage.memory import MemoryStorage
from fastlock.testing.raft_checkers import LogMatching
from fastlock.testing.simulator.prng import Random
from fastlock.testing.simulator.time import MICROSECOND, MILLISECOND, Timeline

SYNC_MIN_NS = 150 * MICROSECOND
SYNC_MAX_NS = 900 * MICROSECOND
CHECKPOINT_MIN_NS = 1 * MILLISECOND
CHECKPOINT_MAX_NS = 60 * MILLISECOND


class Disk(MemoryStorage):
    """The in-memory twin on a timeline, with a shadow of every log for the checkers."""

    def __init__(
        self,
        node: int,
        timeline: Timeline,
        random: Random,
        matching: LogMatching,
        done: Callable[[], None],
        moment: Callable[[str], None],
        changed: Callable[[int, Entry, int], None],
        slowness: int = 1,
    ) -> None:
        super().__init__()
        self._node = node
        self._timeline = timeline
        self._random = random
        self._matching = matching
        self._done = done
        self._moment = moment
        self._changed = changed
        self._syncing = False
        self._publishing_one = False
        self._life = 0
        # How much longer a sync takes than on the fastest disk, usually and at the moment.
        self.slowness_usual = slowness
        self.slowness = slowness
        # Whether the next sync fails.
        self.failing = False
        self.checkpoints = 0
        self.cuts = 0
        # The moment at which the node is to crash: in a checkpoint, install, cut or vote; empty = at none.
        self.crashes_in = ""
        self.left_behind = {"writes lost": 0, "writes torn": 0}
        # Terms by index as the member's log is, synced or not: (first index - 1, its term, terms after it).
        self._shadows: dict[int, tuple[int, int, list[int]]] = {}
        # Where in the same log members change, behind its checkpoint.
        self._changes: dict[int, list[int]] = {}

    def restart(self, groups: list[int]) -> None:
        """Rebuild the shadows from what the disk holds."""
        self._shadows.clear()
        for group in groups:
            stored = self.load(group)
            base, base_term = stored.checkpoint_index, stored.checkpoint_term
            terms = [e.term for e in stored.entries if e.index > base]
            self._shadows[group] = (base, base_term, terms)
            changes = [e.index for e in stored.entries if e.index > base and e.kind == ENTRY_MEMBERSHIP]
            self._changes[group] = changes

    def term_at(self, group: int, index: int) -> int:
        """The term of an entry in this member's log; 0 where it has none, -1 below its checkpoint."""
        base, base_term, terms = self._shadows[group]
        if index < base:
            return -1
        if index == base:
            return base_term
        return terms[index - base - 1] if index - base <= len(terms) else 0

    def last_index(self, group: int) -> int:
        base, _, terms = self._shadows[group]
        return base + len(terms)

    def append(self, group: int, write: Write) -> None:
        super().append(group, write)
        base, base_term, terms = self._shadows[group]
        changes = self._changes[group]
        if write.reset_index:
            base, base_term, terms = self._shadows[group] = (write.reset_index, write.reset_term, [])
            changes.clear()
        if write.truncate_from:
            del terms[max(0, write.truncate_from - base - 1) :]
            del changes[bisect_left(changes, write.truncate_from) :]
        for entry in write.entries:
            previous_term = terms[-1] if terms else base_term
            terms.append(entry.term)
            digest = crc32(entry.data)
            self._matching.appended(group, entry.index, entry.term, previous_term, digest, self._node)
            if entry.kind == ENTRY_MEMBERSHIP:
                self._changed(group, entry, changes[-1] if changes else 0)
                changes.append(entry.index)

    def hard_state(self, group: int) -> tuple[int, int]:
        """Term and vote, as far as they are durable."""
        stored = self._group(group)
        return stored.term, stored.vote

    def holds(self, group: int, index: int) -> bool:
        """Whether the entry that the member's log has there is durable, as an entry or in a checkpoint."""
        stored = self._group(group)
        if index <= stored.checkpoint[0]:
            return True
        position = index - stored.cut - 1
        return position < len(stored.records) and (
            stored.records[position].entry.term == self.term_at(group, index)
        )

    def cut(self, group: int, index: int) -> None:
        self.cuts += 1
        super().cut(group, index)
        self._reached("cut")

    def begin_checkpoint(self, group: int, whole: bool) -> None:
        super().begin_checkpoint(group, whole)
        self._reached("install" if whole else "checkpoint")

    def _reached(self, moment: str) -> None:
        if moment == self.crashes_in:
            self.crashes_in = ""
            self._moment(moment)

    @property
    def slow(self) -> bool:
        """Whether something is wrong with it at the moment."""
        return self.slowness > self.slowness_usual

    def kick(self) -> None:
        """Start a sync if something waits and none is under way."""
        if self._queue and not self._syncing:
            self._syncing = True
            delay_ns = self._random.between(SYNC_MIN_NS, SYNC_MAX_NS) * self.slowness
            self._timeline.after(delay_ns, self._synced, self._life, len(self._queue))
        if self._publishing and not self._publishing_one:
            self._publishing_one = True
            delay_ns = self._random.between(CHECKPOINT_MIN_NS, CHECKPOINT_MAX_NS) * min(self.slowness, 20)
            self._timeline.after(delay_ns, self._published_one, self._life)

    def _synced(self, life: int, count: int) -> None:
        if life == self._life:
            self._syncing = False
            if self.failing:
                self.failing = False
                self.fail_sync(count)
            else:
                voted = any(write.hard_state for _, write in islice(self._queue, count))
                self.sync(count)
                if voted:
                    self._reached("vote")
            self._done()

    def _published_one(self, life: int) -> None:
        if life == self._life:
            self._publishing_one = False
            self.checkpoints += 1
            self.sync_checkpoint()
            self._done()

    def power_cut(self) -> str:
        """Crash, and say what was left behind."""
        self._life += 1
        self._syncing = False
        self._publishing_one = False
        queued = self.queued
        kept = self._random.between(0, queued)
        torn = self._random.chance(0.5)
        self.crash(kept, torn)
        self.left_behind["writes lost"] += queued - kept
        self.left_behind["writes torn"] += torn and kept < queued
        tear = ", one torn" if torn and kept < queued else ""
        return f"{queued - kept} of {queued} unsynced writes lost{tear}"
