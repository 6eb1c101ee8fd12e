"""The receiving side of a snapshot: which chunk is expected, and what storage is busy with."""

cimport cython
from libc.stdint cimport uint64_t

from fastlock._core.raft_message cimport Message


@cython.final
cdef class SnapshotReceiver:
    def __init__(self):
        self.chunks = []

    cdef bint accept(self, Message message) except -1:
        """Takes a chunk if it is the expected one. False: the sender must be told what is expected."""
        if self.installing:
            return True
        if message.context != self.snapshot_id or message.source != self.source:
            if self.storing:
                # Storage works for another snapshot; this sender repeats its chunk later.
                return True
            if message.hint_index != 0 or message.context == 0 or not message.members:
                return False
            self.snapshot_id = message.context
            self.source = message.source
            self.index = message.index
            self.term = message.log_term
            self.members = message.members
            self.offset = 0
        if self.storing:
            return True
        if message.hint_index != self.offset or message.index != self.index:
            return False
        self.storing = True
        self.installing = message.last
        self.chunks.append(message)
        return True

    cdef bint stored(self, uint64_t snapshot_id, uint64_t next_offset) noexcept:
        if snapshot_id == 0 or snapshot_id != self.snapshot_id or not self.storing or self.installing:
            return False
        self.offset = next_offset
        self.storing = False
        return True

    cdef void forget(self) noexcept:
        self.snapshot_id = 0
        self.offset = 0
        self.members = None
        self.storing = False
        self.installing = False
