"""The commands that become one log entry, and whom each of them is to be answered to."""

from libc.stddef cimport size_t
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from fastlock._core.commands cimport builder_t
from fastlock._core.replies cimport origin_t
from fastlock._core.types cimport command_t


cdef class Batch:
    cdef uint32_t count              # commands collected
    cdef uint64_t term               # of the entry it was sealed as
    cdef uint64_t index
    cdef origin_t* origins           # by position
    cdef uint16_t* slots             # by position: of the keys that an acquire names
    cdef builder_t builder

    cdef size_t bytes(self) noexcept
    cdef bint has_room(self, const command_t* command) noexcept
    cdef int add(self, const origin_t* origin, uint16_t slot, const command_t* command) noexcept
    cdef bytes seal(self, uint32_t group, uint64_t term, uint64_t index)
    cdef void clear(self) noexcept


cdef bint fits_a_batch(const command_t* command) noexcept
