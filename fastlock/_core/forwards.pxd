"""Requests for groups that another node leads: handed on once, in batches, and their answers handed back."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.client_messages cimport request_t
from fastlock._core.replies cimport Switchboard, origin_t


cdef enum:
    FORWARDS_CAPACITY = 1 << 16
    FORWARDS_MAX = FORWARDS_CAPACITY // 4 * 3
    TARGETS_MAX = 64


# A request that was handed on, in the ring at its id modulo the capacity.
cdef struct forward_t:
    uint64_t id                      # in the frames between the two nodes; 0 = nobody's place
    uint64_t target                  # the node it went to
    uint64_t batch                   # which of the batches for that node it is in
    uint64_t since_ms
    origin_t origin
    uint32_t group
    uint8_t is_waiting               # answered queued: its end comes whenever it comes


# What goes to one other node.
cdef struct target_t:
    uint64_t node
    uint64_t batch                   # the one being collected
    buffer_t frames


cdef class Forwards:
    cdef readonly uint64_t node
    cdef Switchboard board
    cdef forward_t* ring             # from the first forward on
    cdef uint64_t next_id
    cdef uint64_t oldest_id          # nothing before it is unanswered, except waits
    cdef readonly uint32_t count
    cdef target_t[TARGETS_MAX] targets
    cdef uint32_t target_count

    cdef target_t* target_of(self, uint64_t node) noexcept
    cdef forward_t* enter(self, const origin_t* origin, uint32_t group, target_t* target, uint64_t now_ms) noexcept
    cdef int add(self, const origin_t* origin, uint32_t group, uint64_t node, const uint8_t* frame, size_t size,
                 const request_t* request, uint64_t now_ms) noexcept
    cdef void leave(self, forward_t* forward) noexcept
    cdef int answer_one(self, uint64_t node, const uint8_t* frame, size_t size) except -1
