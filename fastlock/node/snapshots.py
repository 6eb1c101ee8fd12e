"""Snapshots of one group: a checkpoint's rows, in chunks, to a member that lags, and their arrival there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlock._core.raft import ChunkWanted
from fastlock._core.raft_message import Message
from fastlock.storage import Stream
from fastlock.storage.rowpack import unpack_rows

if TYPE_CHECKING:
    from fastlock.node.group import Group


class SnapshotSender:
    """One open stream per member that is being brought up."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._streams: dict[int, tuple[int, Stream]] = {}
        self._opened = 0

    def begin(self, node: int) -> None:
        group = self._group
        self._close(node)
        stream = group.storage.open_stream(group.number)
        if stream is None:
            group.raft.snapshot_unavailable(node)
            return
        self._opened += 1
        # Unique across this member's restarts: a chunk of an older stream must not continue this one.
        snapshot_id = (group.start_id << 16) + self._opened
        self._streams[node] = (snapshot_id, stream)
        members = group.checkpoint_members
        group.raft.begin_snapshot(node, snapshot_id, stream.index, stream.term, members)

    def supply(self, wanted: ChunkWanted) -> None:
        group = self._group
        snapshot_id, stream = self._streams.get(wanted.node, (0, None))
        if stream is None or snapshot_id != wanted.snapshot_id:
            group.raft.snapshot_unavailable(wanted.node)
            return
        chunk, last = stream.chunk(wanted.offset, group.settings.snapshot_chunk_bytes)
        group.raft.supply_chunk(wanted.node, snapshot_id, wanted.offset, chunk, last)

    def close(self) -> None:
        for node in list(self._streams):
            self._close(node)

    def _close(self, node: int) -> None:
        _, stream = self._streams.pop(node, (0, None))
        if stream is not None:
            stream.close()


class SnapshotReceiver:
    """The snapshot that is arriving: staged beside the old rows until its last chunk flips it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._snapshot_id = 0
        self._offset = 0
        self._index = 0
        self._committing = False
        self._touched_ms = 0

    def blocks_checkpoints(self, now_ms: int) -> bool:
        """Both stage rows in one place; a sender that fell silent must not hold it for ever."""
        if self._snapshot_id == 0 or self._committing:
            return self._committing
        if now_ms - self._touched_ms > self._group.settings.snapshot_idle_ms:
            self._snapshot_id = 0
        return self._snapshot_id != 0

    def store(self, message: Message, now_ms: int) -> None:
        group = self._group
        starts = message.hint_index == 0
        if self._committing or (starts and group.checkpointer.active):
            group.raft.snapshot_refused(message.context)
            return
        if starts:
            group.storage.begin_checkpoint(group.number, whole=True)
            self._snapshot_id, self._offset, self._index = message.context, 0, message.index
        if message.context != self._snapshot_id or message.hint_index != self._offset:
            group.raft.snapshot_refused(message.context)
            return
        self._touched_ms = now_ms
        try:
            group.storage.put_rows(group.number, unpack_rows(message.chunk))
        except ValueError:
            self._snapshot_id = 0
            group.raft.snapshot_refused(message.context)
            return
        self._offset += len(message.chunk)
        if message.last:
            self._committing = True
            group.storage.commit_checkpoint(group.number, message.index, message.log_term)
        else:
            group.raft.chunk_stored(message.context, self._offset)

    def awaits(self, index: int) -> bool:
        return self._committing and self._index == index

    def installed(self) -> None:
        """The rows are visible and durable: they are the state from here on."""
        group = self._group
        snapshot_id, self._snapshot_id = self._snapshot_id, 0
        self._committing = False
        group.load_rows()
        group.raft.snapshot_installed(snapshot_id)
