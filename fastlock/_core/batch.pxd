"""The commands a leader collects in one turn: from request frames to one log entry to reply frames."""

from libc.stdint cimport uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.client_messages cimport request_t
from fastlock._core.commands cimport builder_t
from fastlock._core.types cimport command_t, outcome_t


cdef class Batch:
    cdef readonly uint32_t group
    cdef readonly uint32_t count         # commands collected
    cdef readonly int stopped            # why the last feed stopped: FEED_...
    cdef bint sealed
    cdef uint64_t index                  # of the entry it was sealed as
    cdef uint64_t* request_ids           # by position
    cdef uint32_t* timeouts_ms
    cdef builder_t builder
    cdef buffer_t scratch                # a request that came in several segments
    cdef buffer_t refusals               # replies to what never became a command
    cdef request_t request

    cdef int add(self, uint64_t request_id, uint32_t timeout_ms, const command_t* command) except -1
    cdef int refuse(self, int code) except -1
    cdef int encode_replies(self, buffer_t* out, const outcome_t* outcomes, Py_ssize_t outcome_count, uint32_t first,
                            uint32_t end, uint64_t leader, uint32_t retry_ms) noexcept nogil
