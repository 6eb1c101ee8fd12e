"""Incremental checkpoints of one group: freeze, write in slices, commit behind the durable log, cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlock._core.locktable import Frozen
from fastlock._core.raft_message import Member

if TYPE_CHECKING:
    from fastlock.node.group import Group


class Checkpointer:
    """At most one checkpoint of a group is under way, from the freeze to the cut behind it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._frozen: Frozen | None = None
        self._members: tuple[Member, ...] = ()
        self._slicing = False
        self._committing = False

    @property
    def busy(self) -> bool:
        """Whether rows are left to write in the next turn."""
        return self._slicing

    @property
    def active(self) -> bool:
        """Whether staged rows wait to be committed."""
        return self._frozen is not None and not self._committing

    def step(self, now_ms: int) -> None:
        """One slice of work: begin where enough is dirty, write some rows, commit where the log allows."""
        group = self._group
        if self._frozen is None:
            if group.table.dirty_count < group.settings.checkpoint_dirty_rows:
                return
            if group.table.applied_index == 0 or group.receiver.blocks_checkpoints(now_ms):
                return
            self._begin()
        if self._slicing:
            rows = group.table.frozen_rows(group.settings.checkpoint_slice_rows)
            if rows:
                group.storage.put_rows(group.number, rows)
                return
            group.table.thaw()
            self._slicing = False
        frozen = self._frozen
        # A checkpoint ahead of the durable log would show after a crash what the log does not know.
        if frozen is not None and not self._committing and group.raft.durable_index >= frozen.index:
            group.storage.commit_checkpoint(group.number, frozen.index, frozen.term)
            self._committing = True

    def _begin(self) -> None:
        group = self._group
        self._members = group.raft.members_at(group.table.applied_index)
        self._frozen = group.table.freeze()
        group.observer.frozen(group)
        self._slicing = True
        group.storage.begin_checkpoint(group.number, whole=False)

    def durable(self, index: int) -> None:
        """The checkpoint is visible: memory and log before it are no longer needed."""
        if self._frozen is None or self._frozen.index != index:
            return
        self._frozen = None
        self._committing = False
        group = self._group
        group.checkpoint_members = self._members
        group.raft.compact(index)
        cut_index = min(index - group.settings.log_keep_entries, group.raft.log_keep_from - 1)
        if cut_index > 0:
            group.storage.cut(group.number, cut_index)
            group.raft.log_cut(cut_index)
