"""Stream framing: where a frame ends, and messages of several segments brought into one."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastlock._core.buffer cimport buffer_reserve, buffer_t
from fastlock._core.layout cimport CODE_BUSY, CODE_FRAME_TOO_LARGE, CODE_MALFORMED_FRAME, CODE_OK
from fastlock._core.wire cimport (
    ELEMENT_COMPOSITE,
    ELEMENT_POINTER,
    POINTER_FAR,
    POINTER_LIST,
    POINTER_STRUCT,
    SINGLE_HEADER_BYTES,
    WORD_BYTES,
    load32,
    load64,
    message_open,
    message_t,
    put_list_pointer,
    put_struct_pointer,
    store64,
)

from fastlock.errors import FrameTooLarge


cdef enum:
    FAR_DOUBLE_BIT = 4


# The segments of a frame, and the single segment they are copied into.
cdef struct flattening_t:
    uint32_t segment_count
    const uint8_t* bases[SEGMENTS_MAX]
    int64_t words[SEGMENTS_MAX]
    uint8_t* cursor
    uint8_t* end


# A pointer's target, once far pointers were followed: `word` says what is there.
cdef struct target_t:
    uint64_t word
    uint32_t segment
    int64_t index


cdef inline uint64_t header_bytes(uint64_t segments) noexcept nogil:
    return (4 + 4 * segments + 7) & ~<uint64_t>7


cdef int frame_bytes(const uint8_t* data, size_t available, size_t frame_bytes_max, size_t* total) noexcept nogil:
    cdef uint64_t segments, words = 0, header, i
    total[0] = 0
    if available < 4:
        return CODE_OK
    segments = <uint64_t>load32(data) + 1
    if segments > SEGMENTS_MAX:
        return CODE_FRAME_TOO_LARGE
    header = header_bytes(segments)
    if available < header:
        return CODE_OK
    for i in range(segments):
        words += load32(data + 4 + 4 * i)
    # Sixty-four 32-bit counts cannot overflow 64 bits, not even times eight.
    if header + words * WORD_BYTES > frame_bytes_max:
        return CODE_FRAME_TOO_LARGE
    total[0] = header + words * WORD_BYTES
    return CODE_OK


cdef int frame_open(const uint8_t* frame, size_t size, buffer_t* scratch, message_t* message) noexcept nogil:
    if size < SINGLE_HEADER_BYTES:
        return CODE_MALFORMED_FRAME
    if load32(frame) != 0:
        return frame_flatten(frame, size, scratch, message)
    if <uint64_t>load32(frame + 4) * WORD_BYTES + SINGLE_HEADER_BYTES != size:
        return CODE_MALFORMED_FRAME
    message_open(message, frame + SINGLE_HEADER_BYTES, load32(frame + 4))
    return CODE_OK


cdef int frame_flatten(const uint8_t* frame, size_t size, buffer_t* scratch, message_t* message) noexcept nogil:
    cdef flattening_t work
    cdef size_t total, total_words = 0
    cdef const uint8_t* segment
    cdef uint8_t* root
    cdef uint32_t i
    cdef int code = frame_bytes(frame, size, size, &total)
    if code != CODE_OK or total != size:
        return CODE_MALFORMED_FRAME
    if load32(frame + 4) < 1:
        return CODE_MALFORMED_FRAME
    work.segment_count = load32(frame) + 1
    segment = frame + header_bytes(work.segment_count)
    for i in range(work.segment_count):
        work.bases[i] = segment
        work.words[i] = load32(frame + 4 + 4 * i)
        segment += work.words[i] * WORD_BYTES
        total_words += work.words[i]
    # A tree has each word once, so that its copy is never larger than what it came from.
    scratch.size = 0
    if buffer_reserve(scratch, total_words * WORD_BYTES) != 0:
        return CODE_BUSY
    root = scratch.data
    work.cursor = root + WORD_BYTES
    work.end = root + total_words * WORD_BYTES
    code = copy_pointer(&work, 0, work.bases[0], root, POINTER_DEPTH_MAX)
    if code != CODE_OK:
        return code
    scratch.size = work.cursor - root
    message_open(message, root, scratch.size // WORD_BYTES)
    return CODE_OK


cdef int follow(flattening_t* work, uint32_t segment, const uint8_t* pointer, target_t* out) noexcept nogil:
    """Follows at most one far pointer (a double one has its content's own far pointer and tag in the landing pad)."""
    cdef uint64_t word = load64(pointer)
    cdef uint64_t far
    cdef int64_t pad_index, pad_words
    if (word & 3) == POINTER_FAR:
        pad_words = 2 if word & FAR_DOUBLE_BIT else 1
        pad_index = <uint32_t>word >> 3
        segment = <uint32_t>(word >> 32)
        if segment >= work.segment_count or pad_index + pad_words > work.words[segment]:
            return CODE_MALFORMED_FRAME
        pointer = work.bases[segment] + pad_index * WORD_BYTES
        if pad_words == 2:
            far = load64(pointer)
            out.word = load64(pointer + WORD_BYTES)
            out.segment = <uint32_t>(far >> 32)
            out.index = <uint32_t>far >> 3
            if (far & 3) != POINTER_FAR or far & FAR_DOUBLE_BIT or out.segment >= work.segment_count:
                return CODE_MALFORMED_FRAME
            return CODE_OK
        word = load64(pointer)
    out.word = word
    out.segment = segment
    out.index = ((pointer - work.bases[segment]) >> 3) + 1 + (<int64_t>(<int32_t><uint32_t>word) >> 2)
    return CODE_OK


cdef const uint8_t* take(flattening_t* work, const target_t* target, int64_t words, uint8_t** copied) noexcept nogil:
    """The `words` words at the target, with room for their copy; NULL if they are not all there."""
    if target.index < 0 or target.index + words > work.words[target.segment]:
        return NULL
    if words * WORD_BYTES > work.end - work.cursor:
        return NULL
    copied[0] = work.cursor
    work.cursor += words * WORD_BYTES
    return work.bases[target.segment] + target.index * WORD_BYTES


cdef int copy_pointer(flattening_t* work, uint32_t segment, const uint8_t* pointer, uint8_t* destination,
                      int depth) noexcept nogil:
    cdef target_t target
    cdef int code
    store64(destination, 0)
    if load64(pointer) == 0:
        return CODE_OK
    if depth == 0:
        return CODE_MALFORMED_FRAME
    code = follow(work, segment, pointer, &target)
    if code != CODE_OK:
        return code
    if target.word == 0:
        # A far pointer that leads to a null one: no writer makes that, and readers disagree about what it says.
        return CODE_MALFORMED_FRAME
    if (target.word & 3) == POINTER_STRUCT:
        return copy_struct(work, &target, destination, depth)
    if (target.word & 3) == POINTER_LIST:
        return copy_list(work, &target, destination, depth)
    return CODE_MALFORMED_FRAME


cdef int copy_pointers(flattening_t* work, uint32_t segment, const uint8_t* pointers, uint8_t* destination,
                       uint32_t count, int depth) noexcept nogil:
    cdef uint32_t i
    cdef int code
    for i in range(count):
        code = copy_pointer(work, segment, pointers + <size_t>i * WORD_BYTES,
                            destination + <size_t>i * WORD_BYTES, depth)
        if code != CODE_OK:
            return code
    return CODE_OK


cdef int copy_struct(flattening_t* work, const target_t* target, uint8_t* destination, int depth) noexcept nogil:
    cdef uint32_t data_words = <uint32_t>(target.word >> 32) & 0xFFFF
    cdef uint32_t pointer_count = <uint32_t>(target.word >> 48)
    cdef uint8_t* copied
    cdef const uint8_t* source = take(work, target, data_words + pointer_count, &copied)
    if source == NULL:
        return CODE_MALFORMED_FRAME
    if data_words + pointer_count == 0:
        # An empty struct points at its own pointer, because offset 0 would read as null.
        put_struct_pointer(destination, destination, 0, 0)
        return CODE_OK
    put_struct_pointer(destination, copied, data_words, pointer_count)
    memcpy(copied, source, <size_t>data_words * WORD_BYTES)
    return copy_pointers(work, target.segment, source + <size_t>data_words * WORD_BYTES,
                         copied + <size_t>data_words * WORD_BYTES, pointer_count, depth - 1)


cdef int copy_list(flattening_t* work, const target_t* target, uint8_t* destination, int depth) noexcept nogil:
    cdef uint32_t element_size = <uint32_t>(target.word >> 32) & 7
    cdef uint32_t count = <uint32_t>(target.word >> 35)
    cdef int64_t words = list_words(element_size, count)
    cdef uint8_t* copied
    cdef const uint8_t* source = take(work, target, words, &copied)
    if source == NULL:
        return CODE_MALFORMED_FRAME
    put_list_pointer(destination, copied, element_size, count)
    if element_size == ELEMENT_POINTER:
        return copy_pointers(work, target.segment, source, copied, count, depth - 1)
    if words:
        memcpy(copied, source, words * WORD_BYTES)
    if element_size == ELEMENT_COMPOSITE:
        return copy_elements(work, target.segment, source, copied, count, depth - 1)
    return CODE_OK


cdef int64_t list_words(uint32_t element_size, int64_t count) noexcept nogil:
    if element_size == ELEMENT_COMPOSITE:
        return count + 1
    if element_size == ELEMENT_POINTER or element_size == 5:
        return count
    if element_size == 0:
        return 0
    # 1 bit, then 1, 2 and 4 bytes.
    return (count + 63) >> 6 if element_size == 1 else ((count << (element_size - 2)) + 7) >> 3


cdef int copy_elements(flattening_t* work, uint32_t segment, const uint8_t* source, uint8_t* copied,
                       int64_t content_words, int depth) noexcept nogil:
    """The pointers of a list of structs whose words were copied already; `source` and `copied` are at the tag."""
    cdef uint64_t tag = load64(source)
    cdef int64_t count = <uint32_t>tag >> 2
    cdef uint32_t data_bytes = (<uint32_t>(tag >> 32) & 0xFFFF) * WORD_BYTES
    cdef uint32_t pointer_count = <uint32_t>(tag >> 48)
    cdef size_t stride = data_bytes + <size_t>pointer_count * WORD_BYTES
    cdef size_t at = WORD_BYTES + data_bytes
    cdef int64_t _i
    cdef int code
    if (tag & 3) != POINTER_STRUCT or count * <int64_t>stride > content_words * WORD_BYTES:
        return CODE_MALFORMED_FRAME
    if pointer_count == 0:
        return CODE_OK
    for _i in range(count):
        code = copy_pointers(work, segment, source + at, copied + at, pointer_count, depth)
        if code != CODE_OK:
            return code
        at += stride
    return CODE_OK


def frame_size(const uint8_t[::1] data not None, size_t frame_bytes_max=CLIENT_FRAME_BYTES_MAX) -> int:
    """How many bytes the frame has that starts here; 0 while its header is incomplete.

    Raises FrameTooLarge as soon as the header shows it.
    """
    cdef size_t total
    if frame_bytes(&data[0] if data.shape[0] else NULL, data.shape[0], frame_bytes_max, &total) != CODE_OK:
        raise FrameTooLarge(CODE_FRAME_TOO_LARGE, f"frame larger than {frame_bytes_max} bytes: split the request")
    return total
