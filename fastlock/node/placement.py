"""What leaders see to besides requests: that slots have an owner, and that the nodes share the leads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import count

from fastlock._core.raft import Refused
from fastlock._core.slots import slot_of
from fastlock.node.bootstrap import slot_range
from fastlock.node.group import Answer, Group

_log = logging.getLogger("fastlock.placement")

SLOTS_TOTAL = 16_384
# A lead that did not go where it should is tried again after so many times the usual pause, at most.
BACKOFF_MAX = 32
# After so many pauses without another attempt all is calm again.
CALM_TIMES = 10


def preferred_leader(group: int, members: list[int]) -> int:
    """Spread: one data group after the other, round the members."""
    return sorted(members)[(group - 1) % len(members)]


class Placement:
    """One node's share: it acts only on groups it leads."""

    def __init__(
        self,
        node: int,
        groups: Mapping[int, Group],
        partitions: int,
        return_ms: int,
        is_well: Callable[[int], bool],
    ) -> None:
        self._node = node
        self._groups = groups
        self._partitions = partitions
        self._return_ms = return_ms
        self._is_well = is_well
        # Since when a group's preferred leader could take over, and how long it must be so.
        self._well_since: dict[int, int] = {}
        self._patience: dict[int, int] = {}
        self._tried_ms: dict[int, int] = {}
        self._owning: dict[int, int] = {}

    def began(self, group: Group) -> None:
        """The group's leader, this node, has applied the first entry of its term."""
        self._own_slots(group)

    def tick(self, now_ms: int) -> None:
        for group in self._groups.values():
            if not group.leading or group.table.applied_term != group.raft.term:
                self._well_since.pop(group.number, None)
                continue
            self._own_slots(group)
            if self._return_ms:
                self._give_back(group, now_ms)

    def _own_slots(self, group: Group) -> None:
        """A group without any history is new: it takes its share of the slots.

        Moving slots away leaves a revision behind, so a group that gave its slots away is not new.
        """
        term = group.raft.term
        if group.table.revision or group.number > self._partitions or self._owning.get(group.number) == term:
            return
        first, last = (0, SLOTS_TOTAL - 1)
        if group.number:
            first, last = slot_range(group.number, self._partitions, SLOTS_TOTAL)
        self._owning[group.number] = term
        group.submit({"ownSlots": {"first": first, "last": last}}, IGNORED)

    def _give_back(self, group: Group, now_ms: int) -> None:
        """Let the preferred leader lead again once it has been well for a while.

        The pause grows with every attempt: a node that takes leads and drops them must not make them flap.
        """
        number = group.number
        target = preferred_leader(number, [member.node for member in group.raft.members])
        if target == self._node or not self._could_lead(group, target):
            self._well_since.pop(number, None)
            return
        patience = self._patience.get(number, 1)
        if now_ms - self._tried_ms.get(number, now_ms) > self._return_ms * patience * CALM_TIMES:
            patience = 1
        if now_ms - self._well_since.setdefault(number, now_ms) < self._return_ms * patience:
            return
        self._patience[number] = min(2 * patience, BACKOFF_MAX)
        self._tried_ms[number] = now_ms
        del self._well_since[number]
        _log.info("group %d: node %d is well and takes the lead", number, target)
        try:
            group.transfer(target)
        except Refused as refused:
            _log.debug("group %d: not now: %s", number, refused)

    def _could_lead(self, group: Group, node: int) -> bool:
        peer = group.raft.status()["peers"].get(node)
        if peer is None or not self._is_well(node) or peer["state"] != "replicate":
            return False
        return bool(peer["match"] >= group.raft.commit_index)

    def hand_over(self) -> bool:
        """The node should not lead: its leads go to others. Whether there is one left that could."""
        left = False
        for group in self._groups.values():
            others = [member.node for member in group.raft.members if self._is_well(member.node)]
            if not group.leading or not others:
                continue
            left = True
            target = next((node for node in others if self._could_lead(group, node)), 0)
            if target and not group.raft.status()["transfer"]:
                try:
                    group.transfer(target)
                except Refused as refused:
                    _log.debug("group %d: not now: %s", group.number, refused)
        return left


def key_between(first: int, last: int) -> bytes:
    """Some key whose slot is in this range."""
    for number in count():
        key = b"%d" % number
        if first <= slot_of(key) <= last:
            return key
    raise AssertionError("every slot has keys")


class _Ignored:
    """For commands whose effect is looked at in the table, not in their answer."""

    def answered(self, answer: Answer) -> None:
        return None


IGNORED = _Ignored()
