"""Whose wait ends when a wake comes: origins by the slot and revision of the claim they wait with."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from fastlock._core.index cimport index_t
from fastlock._core.replies cimport Switchboard, origin_t
from fastlock._core.slab cimport slab_t
from fastlock._core.types cimport outcome_t


cdef struct waiter_t:
    uint64_t revision
    origin_t origin
    uint32_t slot


cdef class Waiters:
    cdef slab_t waiters
    cdef index_t index
    cdef uint32_t count

    cdef int add(self, uint16_t slot, uint64_t revision, const origin_t* origin) noexcept
    cdef void remove(self, uint32_t tag, uint32_t handle) noexcept
    cdef void wake(self, Switchboard board, uint32_t group, uint64_t leader, const outcome_t* outcome) noexcept
    cdef int fail_all(self, Switchboard board, uint32_t group, int code, uint64_t leader) except -1
