"""Between Python values and the codec's C structs: memory that lives as long as one encoding, names of enums."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.types cimport slice_t


# Everything a C struct points to while it is encoded: Python objects and C blocks.
cdef class Arena:
    cdef list kept
    cdef void** blocks
    cdef size_t block_count

    cdef slice_t bytes_slice(self, object value) except *
    cdef slice_t text_slice(self, object value) except *
    cdef void* array(self, size_t count, size_t element_size) except NULL
    cdef const uint8_t* bytes_list(self, object values, uint32_t* count) except? NULL


# A growable buffer that Python frees.
cdef class Output:
    cdef buffer_t buffer

    cdef bytes take(self, int status)


cdef const uint8_t* start_of(const uint8_t[::1] frame) noexcept
cdef int check(int code) except -1
cdef int check_frame(const uint8_t[::1] frame, size_t frame_bytes_max) except -1
cdef object bytes_of(slice_t value)
cdef object text_of(slice_t value)
cdef int put_bytes_field(dict fields, str name, slice_t value) except -1
cdef int put_text_field(dict fields, str name, slice_t value) except -1
cdef object name_of(tuple names, uint16_t number)
cdef uint16_t number_of(object enum, object value) except? 0xFFFF
cdef int expect_empty(dict fields) except -1
