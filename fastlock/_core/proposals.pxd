"""One group's commands on this node: collected, proposed, answered."""

from libc.stddef cimport size_t
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from fastlock._core.batch cimport Batch
from fastlock._core.replies cimport Switchboard, origin_t
from fastlock._core.types cimport command_t
from fastlock._core.waiters cimport Waiters


cdef class Proposals:
    cdef readonly uint32_t group
    cdef readonly uint64_t node
    cdef readonly uint64_t leader    # 0 = not known
    cdef readonly bint leading
    cdef bint is_fed                 # in the intake's list of those that got commands
    cdef public uint32_t retry_ms
    cdef Switchboard board
    cdef Waiters waiters
    cdef list pending                # batches to be proposed; the last one collects
    cdef dict inflight               # index → the batch that was sealed as it
    cdef list spare
    cdef size_t pending_commands
    cdef size_t pending_bytes        # of the batches before the last one

    cdef bint is_busy(self) noexcept
    cdef int add(self, const origin_t* origin, uint16_t slot, const command_t* command) except -1
    cdef Batch open_batch(self)
    cdef int recycle(self, Batch batch) except -1
    cdef int fail(self, Batch batch, int code) except -1
