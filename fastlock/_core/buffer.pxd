"""A growable run of bytes in C memory, for encoders that run without the GIL."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc


cdef enum:
    BUFFER_BYTES_FIRST = 4096
    BUFFER_BYTES_MAX = 1 << 30


# Zeroed is empty. `size` bytes of `capacity` are in use.
cdef struct buffer_t:
    uint8_t* data
    size_t size
    size_t capacity


cdef inline int buffer_reserve(buffer_t* buffer, size_t extra) noexcept nogil:
    """Makes room for `extra` more bytes, which may move `data`; -1 without memory or above BUFFER_BYTES_MAX."""
    cdef size_t capacity
    cdef uint8_t* data
    if extra <= buffer.capacity - buffer.size:
        return 0
    if extra > BUFFER_BYTES_MAX or buffer.size > BUFFER_BYTES_MAX - extra:
        return -1
    capacity = buffer.capacity if buffer.capacity else BUFFER_BYTES_FIRST
    while capacity < buffer.size + extra:
        capacity *= 2
    data = <uint8_t*>realloc(buffer.data, capacity)
    if data == NULL:
        return -1
    buffer.data = data
    buffer.capacity = capacity
    return 0


cdef inline void buffer_free(buffer_t* buffer) noexcept nogil:
    free(buffer.data)
    buffer.data = NULL
    buffer.size = 0
    buffer.capacity = 0
