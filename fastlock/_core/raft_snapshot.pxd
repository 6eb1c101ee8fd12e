"""The receiving side of a snapshot: which chunk is expected, and what storage is busy with."""

from libc.stdint cimport uint64_t

from fastlock._core.raft_message cimport Message


cdef class SnapshotReceiver:
    cdef readonly uint64_t snapshot_id   # 0 = nothing is being received
    cdef readonly uint64_t source
    cdef readonly uint64_t index
    cdef readonly uint64_t term
    cdef readonly uint64_t offset        # everything before it is stored
    cdef tuple members
    cdef bint storing                    # a chunk was handed to storage
    cdef readonly bint installing        # and it was the last one: the state is about to be replaced
    cdef list chunks                     # for the caller

    cdef bint accept(self, Message message) except -1
    cdef bint stored(self, uint64_t snapshot_id, uint64_t next_offset) noexcept
    cdef void forget(self) noexcept
