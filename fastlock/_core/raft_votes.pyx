"""The tally of one campaign."""

cimport cython
from libc.stdint cimport uint64_t

from fastlock._core.raft_membership cimport Configuration
from fastlock._core.raft_message cimport MEMBERS_MAX


@cython.final
cdef class Votes:
    cdef void clear(self) noexcept:
        self.count = 0

    cdef void record(self, uint64_t node, bint granted) noexcept:
        """The first answer of a node counts; whatever it says later in the same campaign does not."""
        cdef int position
        for position in range(self.count):
            if self.nodes[position] == node:
                return
        if self.count < MEMBERS_MAX:
            self.nodes[self.count] = node
            self.granted[self.count] = granted
            self.count += 1

    cdef int outcome(self, Configuration configuration) noexcept:
        cdef int majority = configuration.voter_count // 2 + 1
        cdef int granted = 0
        cdef int refused = 0
        cdef int position
        for position in range(self.count):
            if configuration.is_voter(self.nodes[position]):
                if self.granted[position]:
                    granted += 1
                else:
                    refused += 1
        if granted >= majority:
            return WON
        return LOST if refused > configuration.voter_count - majority else PENDING
