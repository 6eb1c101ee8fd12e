"""Between Python values and the codec's C structs: memory that lives as long as one encoding, names of enums."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, realloc

from fastlock._core.buffer cimport buffer_free
from fastlock._core.framing cimport frame_bytes
from fastlock._core.layout cimport *
from fastlock._core.types cimport slice_t
from fastlock._core.wire cimport LIST_COUNT_MAX, WORD_BYTES, put_bytes

from fastlock.errors import FrameTooLarge, MalformedFrame, ProtocolError, UnknownCommand, UnsupportedVersion

ERRORS = {
    CODE_MALFORMED_FRAME: (MalformedFrame, "malformed frame: close the connection, or restore it from another member"),
    CODE_FRAME_TOO_LARGE: (FrameTooLarge, "frame too large: split the request"),
    CODE_UNSUPPORTED_VERSION: (UnsupportedVersion, "unsupported format version: upgrade the older side"),
    CODE_UNKNOWN_COMMAND: (UnknownCommand, "unknown command: upgrade this node"),
}


cdef int check(int code) except -1:
    """Raises what `code` stands for unless it is CODE_OK."""
    if code == CODE_OK:
        return 0
    if code == CODE_BUSY:
        raise MemoryError
    error, message = ERRORS.get(code, (ProtocolError, f"refused with code {code}"))
    raise error(code, message)


cdef int check_frame(const uint8_t[::1] frame, size_t frame_bytes_max) except -1:
    """Raises unless the bytes are exactly one frame by its header."""
    cdef size_t total
    check(frame_bytes(start_of(frame), frame.shape[0], frame_bytes_max, &total))
    if total != <size_t>frame.shape[0]:
        check(CODE_MALFORMED_FRAME)
    return 0


cdef const uint8_t* start_of(const uint8_t[::1] frame) noexcept:
    return &frame[0] if frame.shape[0] else NULL


@cython.final
cdef class Arena:
    """Everything a C struct points to while it is encoded: Python objects and C blocks."""

    def __cinit__(self):
        self.kept = []

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.block_count):
            free(self.blocks[i])
        free(self.blocks)

    cdef slice_t bytes_slice(self, object value) except *:
        cdef slice_t out
        cdef bytes held
        out.data = NULL
        out.size = 0
        if value is None:
            return out
        if isinstance(value, (str, int)):
            raise TypeError(f"a Data field takes bytes, not {type(value).__name__}")
        held = bytes(value)
        if PyBytes_GET_SIZE(held) > LIST_COUNT_MAX:
            raise ValueError("a field may not have more than 512 MiB")
        self.kept.append(held)
        out.data = <const uint8_t*>PyBytes_AS_STRING(held)
        out.size = <uint32_t>PyBytes_GET_SIZE(held)
        return out

    cdef slice_t text_slice(self, object value) except *:
        return self.bytes_slice(None if value is None else value.encode())

    cdef void* array(self, size_t count, size_t element_size) except NULL:
        cdef void** blocks = <void**>realloc(self.blocks, (self.block_count + 1) * sizeof(void*))
        if blocks == NULL:
            raise MemoryError
        self.blocks = blocks
        # At least one element, because NULL stands for an absent list.
        blocks[self.block_count] = calloc(count if count else 1, element_size)
        if blocks[self.block_count] == NULL:
            raise MemoryError
        self.block_count += 1
        return blocks[self.block_count - 1]

    cdef const uint8_t* bytes_list(self, object values, uint32_t* count) except? NULL:
        """A List(Data) as it lies in a frame, which is how commands refer to theirs."""
        cdef size_t words = 0
        cdef uint8_t* pointers
        cdef uint8_t* cursor
        cdef slice_t item
        cdef size_t i
        count[0] = 0
        if values is None:
            return NULL
        held = [bytes(value) for value in values]
        for value in held:
            words += 1 + (len(value) + 7) // 8
        pointers = <uint8_t*>self.array(words, WORD_BYTES)
        cursor = pointers + <size_t>len(held) * WORD_BYTES
        for i, value in enumerate(held):
            item = self.bytes_slice(value)
            cursor = put_bytes(pointers + i * WORD_BYTES, cursor, &item)
        count[0] = <uint32_t>len(held)
        return pointers


@cython.final
cdef class Output:
    """A growable buffer that Python frees."""

    def __dealloc__(self):
        buffer_free(&self.buffer)

    cdef bytes take(self, int status):
        if status != 0:
            raise MemoryError
        return PyBytes_FromStringAndSize(<const char*>self.buffer.data, <Py_ssize_t>self.buffer.size)


cdef object bytes_of(slice_t value):
    return PyBytes_FromStringAndSize(<const char*>value.data, value.size) if value.size else b""


cdef object text_of(slice_t value):
    # Text of a newer or broken writer is for people to read, so that it is never a reason to refuse a message.
    return bytes_of(value).decode("utf-8", "replace")


cdef int put_bytes_field(dict fields, str name, slice_t value) except -1:
    if value.data != NULL:
        fields[name] = bytes_of(value)
    return 0


cdef int put_text_field(dict fields, str name, slice_t value) except -1:
    if value.data != NULL:
        fields[name] = text_of(value)
    return 0


cdef object name_of(tuple names, uint16_t number):
    """An enum's member by name, or the bare number if a newer release wrote it."""
    return names[number] if number < len(names) else number


cdef uint16_t number_of(object enum, object value) except? 0xFFFF:
    return enum[value] if isinstance(value, str) else value


cdef int expect_empty(dict fields) except -1:
    """Every known field was popped: what is left was misspelt."""
    if fields:
        raise ValueError(f"the schema has no field {', '.join(map(repr, fields))} here")
    return 0
