"""Stream framing: where a frame ends, and messages of several segments brought into one."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.wire cimport message_t


cdef enum:
    CLIENT_FRAME_BYTES_MAX = 1 << 20
    PEER_FRAME_BYTES_MAX = 16 << 20
    SEGMENTS_MAX = 64
    POINTER_DEPTH_MAX = 64


# The size of the frame that starts at `data`, of which `available` bytes are here: 0 in `total` while the header
# is not complete. CODE_FRAME_TOO_LARGE as soon as the header shows it, before anything is allocated.
cdef int frame_bytes(const uint8_t* data, size_t available, size_t frame_bytes_max, size_t* total) noexcept nogil

# Opens a whole frame. A single segment is read in place; several are copied into `scratch` first, which then must
# outlive whatever points into the message.
cdef int frame_open(const uint8_t* frame, size_t size, buffer_t* scratch, message_t* message) noexcept nogil

# Copies a message, following far pointers, into one segment in `scratch`; what a reader does when it meets WIRE_FAR.
cdef int frame_flatten(const uint8_t* frame, size_t size, buffer_t* scratch, message_t* message) noexcept nogil
