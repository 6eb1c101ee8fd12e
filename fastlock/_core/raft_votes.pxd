"""The tally of one campaign."""

from libc.stdint cimport uint64_t

from fastlock._core.raft_membership cimport Configuration
from fastlock._core.raft_message cimport MEMBERS_MAX


cdef enum:
    PENDING = 0
    WON = 1
    LOST = 2


cdef class Votes:
    cdef uint64_t nodes[MEMBERS_MAX]
    cdef bint granted[MEMBERS_MAX]
    cdef int count

    cdef void clear(self) noexcept
    cdef void record(self, uint64_t node, bint granted) noexcept
    cdef int outcome(self, Configuration configuration) noexcept
