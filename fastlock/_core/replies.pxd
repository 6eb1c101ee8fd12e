"""Where answers go: one buffer of outgoing bytes per connection, and who is to be written to.

A request's origin names its connection by number and generation, so that commands, waits and forwards hold no
reference: an answer to a connection that was closed meanwhile finds nobody and is dropped.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.slab cimport slab_t
from fastlock._core.types cimport outcome_t


# Who sent a request. A zeroed origin is nobody.
cdef struct origin_t:
    uint32_t sink
    uint32_t generation
    uint64_t request_id


# The outgoing bytes of one connection.
cdef struct sink_t:
    uint32_t free_next               # the slab's, while nobody has it
    uint32_t generation              # 0: closed
    size_t bytes_max
    buffer_t out
    uint8_t is_touched               # in the list of those to be written to
    uint8_t is_overflowed


cdef class Switchboard:
    cdef slab_t sinks
    cdef uint32_t opened             # generations given out
    cdef dict connections            # sink → Replies
    cdef uint32_t* touched
    cdef uint32_t touched_count
    cdef uint32_t touched_capacity

    cdef buffer_t* begin(self, const origin_t* origin) noexcept
    cdef void end(self, const origin_t* origin) noexcept
    cdef void answer(self, const origin_t* origin, uint32_t group, uint64_t leader, uint32_t retry_ms,
                     const outcome_t* outcome) noexcept
    cdef void refuse(self, const origin_t* origin, int code, uint32_t group, uint64_t leader) noexcept
    cdef int release(self, uint32_t sink) except -1


cdef class Replies:
    cdef Switchboard board
    cdef uint32_t sink
    cdef uint32_t generation         # 0: closed
    cdef readonly bint is_trusted
    cdef readonly bint is_forwarder
    cdef public object owner

    cdef sink_t* open_sink(self) except NULL
