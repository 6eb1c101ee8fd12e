"""What leaves a member: messages that may go at once, messages that wait for storage, and the writes."""

from libc.stdint cimport uint32_t, uint64_t

from fastlock._core.raft_log cimport RaftLog
from fastlock._core.raft_message cimport Message


cdef class Write:
    cdef readonly uint64_t seq
    cdef readonly bint hard_state
    cdef readonly uint64_t term
    cdef readonly uint64_t vote
    cdef readonly uint64_t reset_index
    cdef readonly uint64_t reset_term
    cdef readonly uint64_t truncate_from
    cdef readonly list entries


cdef class Outbox:
    cdef RaftLog log
    cdef list messages            # may leave at once
    cdef list waiting             # by after_seq
    cdef uint64_t issued_seq
    cdef uint64_t acknowledged_seq
    # Term and vote: in force, in the newest write, and durable.
    cdef readonly uint64_t term
    cdef readonly uint64_t vote
    cdef uint64_t issued_term
    cdef uint64_t issued_vote
    cdef readonly uint64_t durable_term
    cdef readonly uint64_t durable_vote
    cdef list hard_states         # issued and not acknowledged writes that carry one

    cdef bint has_write(self) noexcept
    cdef int send(self, Message message) except -1
    cdef int send_after_write(self, Message message) except -1
    cdef int acknowledge_entries(self, Message message) except -1
    cdef int acknowledge_term(self, Message message) except -1
    cdef Write take_write(self)
    cdef list take_messages(self)
    cdef list persisted(self, uint64_t seq)
    cdef int check(self) except -1
