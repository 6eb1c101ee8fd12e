"""Who belongs to a group: the configuration in force, those before it, and which change may follow."""

from libc.stdint cimport uint16_t, uint64_t

from fastlock._core.raft_message cimport MEMBERS_MAX, Entry, Member


cdef class Configuration:
    cdef readonly uint64_t index      # of the entry that carries it
    cdef readonly tuple members       # by node id
    cdef uint64_t voters[MEMBERS_MAX] # who counts: voters and witnesses
    cdef int voter_count

    cdef Member find(self, uint64_t node)
    cdef bint is_voter(self, uint64_t node) noexcept
    cdef bint may_lead(self, uint64_t node)


cdef class Configurations:
    cdef list history                 # oldest first; the first one is the checkpoint's
    cdef readonly Configuration current

    cdef int restart(self, uint64_t index, tuple members) except -1
    cdef int append(self, Entry entry) except -1
    cdef int truncate(self, uint64_t from_index) except -1
    cdef int compact(self, uint64_t index) except -1
    cdef Configuration at(self, uint64_t index)


cdef tuple in_order(members)
cdef uint64_t quorum_value(uint64_t* values, int count) noexcept
cdef str why_invalid_change(tuple before, tuple after)
cdef uint64_t promoted_learner(tuple before, tuple after) except? 0
