"""Linearizable reads: one FIFO, confirmed by a prefix, on the leader; asked of the leader on a follower."""

from libc.stdint cimport uint64_t


cdef class ReadBatch:
    cdef uint64_t id          # leader: confirmed by heartbeats; follower: sent to the leader
    cdef uint64_t index
    cdef uint64_t source      # the follower that asked; 0 = this member's own reads
    cdef uint64_t context     # the follower's id for it
    cdef list contexts        # this member's own reads
    cdef uint64_t deadline_ms # follower: given up then


cdef class Reads:
    cdef Py_ssize_t pending_max
    cdef uint64_t last_id
    cdef list fresh           # contexts asked for and not yet in a batch
    cdef list requests        # batches of followers, not yet numbered: the leader's own go with them
    cdef list asked           # leader: waits for heartbeats; follower: waits for the leader. Oldest first.
    cdef list granted         # confirmed, waits for its index to be handed out for applying
    cdef list lost            # contexts
    cdef Py_ssize_t count     # contexts and requests in fresh, requests and asked

    cdef bint add(self, uint64_t context) except -1
    cdef bint add_request(self, uint64_t source, uint64_t context) except -1
    cdef bint has_fresh(self) noexcept
    cdef uint64_t number(self, uint64_t index) except? 0
    cdef list take_confirmed(self, uint64_t id)
    cdef uint64_t ask(self, uint64_t deadline_ms) except? 0
    cdef int answered(self, uint64_t id, uint64_t index, bint reject) except -1
    cdef int lose_overdue(self, uint64_t now_ms) except -1
    cdef uint64_t next_deadline_ms(self) noexcept
    cdef int lose_all(self) except -1
    cdef bint has_output(self, uint64_t handed_index)
    cdef list take_granted(self, uint64_t handed_index)
    cdef list take_lost(self)
