"""From the bytes of a connection to the queue of a group."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cpython.ref cimport PyObject

from fastlock._core.buffer cimport buffer_t
from fastlock._core.client_messages cimport request_t
from fastlock._core.forwards cimport Forwards
from fastlock._core.replies cimport Replies, Switchboard, origin_t
from fastlock._core.slots cimport SLOTS_TOTAL


cdef enum:
    GROUPS_LIMIT = 4096
    NO_GROUP = 0xFFFFFFFF


cdef class Intake:
    cdef Switchboard board
    cdef readonly Forwards forwards
    cdef dict groups                 # number → Proposals; owns what `queues` points to
    cdef PyObject* queues[GROUPS_LIMIT]
    cdef uint32_t[SLOTS_TOTAL] slot_groups
    cdef list others
    cdef list fed                    # numbers of the groups that got commands since take_fed()
    cdef buffer_t scratch            # a request that came in several segments
    cdef request_t request
    cdef readonly uint64_t commands  # taken or handed on, ever
    cdef readonly uint64_t forwarded
    cdef public bint is_full         # the node is short of space

    cdef int take_command(self, Replies replies, origin_t* origin, const uint8_t* frame, size_t size,
                          uint64_t now_ms) except -1
