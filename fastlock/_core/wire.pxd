"""Cap'n Proto primitives on raw bytes: bounds-checked pointer reading and writing within one segment.

Readers return CODE_OK, CODE_MALFORMED_FRAME, or WIRE_FAR where a far pointer asks for `flatten` (framing.pxd)
first. Nothing here allocates, and every word that is visited is charged to the message's budget, so that
pointers which overlap or point backwards cannot make a small message take long.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from fastlock._core.layout cimport CODE_MALFORMED_FRAME, CODE_OK
from fastlock._core.types cimport slice_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #ifndef FASTLOCK_WIRE
    #define FASTLOCK_WIRE
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define FASTLOCK_LE16(x) __builtin_bswap16(x)
    #define FASTLOCK_LE32(x) __builtin_bswap32(x)
    #define FASTLOCK_LE64(x) __builtin_bswap64(x)
    #else
    #define FASTLOCK_LE16(x) (x)
    #define FASTLOCK_LE32(x) (x)
    #define FASTLOCK_LE64(x) (x)
    #endif
    /* memcpy: a frame may start at any address; compilers make it one load or store. */
    static inline uint16_t wire_load16(const uint8_t* p) { uint16_t v; memcpy(&v, p, 2); return FASTLOCK_LE16(v); }
    static inline uint32_t wire_load32(const uint8_t* p) { uint32_t v; memcpy(&v, p, 4); return FASTLOCK_LE32(v); }
    static inline uint64_t wire_load64(const uint8_t* p) { uint64_t v; memcpy(&v, p, 8); return FASTLOCK_LE64(v); }
    static inline void wire_store16(uint8_t* p, uint16_t v) { v = FASTLOCK_LE16(v); memcpy(p, &v, 2); }
    static inline void wire_store32(uint8_t* p, uint32_t v) { v = FASTLOCK_LE32(v); memcpy(p, &v, 4); }
    static inline void wire_store64(uint8_t* p, uint64_t v) { v = FASTLOCK_LE64(v); memcpy(p, &v, 8); }
    #endif
    """
    uint16_t load16 "wire_load16"(const uint8_t* at) noexcept nogil
    uint32_t load32 "wire_load32"(const uint8_t* at) noexcept nogil
    uint64_t load64 "wire_load64"(const uint8_t* at) noexcept nogil
    void store16 "wire_store16"(uint8_t* at, uint16_t value) noexcept nogil
    void store32 "wire_store32"(uint8_t* at, uint32_t value) noexcept nogil
    void store64 "wire_store64"(uint8_t* at, uint64_t value) noexcept nogil


cdef enum:
    WIRE_FAR = 0x10000           # outside the range of Code
    WORD_BYTES = 8
    SINGLE_HEADER_BYTES = 8      # segment count and size of a single-segment frame
    POINTER_STRUCT = 0
    POINTER_LIST = 1
    POINTER_FAR = 2
    ELEMENT_BYTE = 2
    ELEMENT_POINTER = 6
    ELEMENT_COMPOSITE = 7
    # A tree visits each of its words once. The rest is for lists whose elements take no space.
    BUDGET_FACTOR = 2
    BUDGET_SLACK_WORDS = 1024
    LIST_COUNT_MAX = (1 << 29) - 1


# A message of one segment, and how many more words may be visited in it.
cdef struct message_t:
    const uint8_t* base
    int64_t words
    int64_t budget


cdef struct struct_t:
    const uint8_t* data
    const uint8_t* pointers
    uint32_t data_bytes
    uint32_t pointer_count


# A list of inline composites. `data` is its first element; NULL where the pointer was null.
cdef struct list_t:
    const uint8_t* data
    uint32_t count
    uint32_t stride
    uint32_t data_bytes
    uint32_t pointer_count


cdef inline void message_open(message_t* message, const uint8_t* base, size_t words) noexcept nogil:
    message.base = base
    message.words = <int64_t>words
    message.budget = <int64_t>words * BUDGET_FACTOR + BUDGET_SLACK_WORDS


cdef inline int single_open(const uint8_t* frame, size_t size, message_t* message) noexcept nogil:
    """A whole frame that must have one segment with at least one word, as everything that is stored has."""
    if size < SINGLE_HEADER_BYTES + WORD_BYTES or load32(frame) != 0:
        return CODE_MALFORMED_FRAME
    if <uint64_t>load32(frame + 4) * WORD_BYTES + SINGLE_HEADER_BYTES != size:
        return CODE_MALFORMED_FRAME
    message_open(message, frame + SINGLE_HEADER_BYTES, load32(frame + 4))
    return CODE_OK


cdef inline int resolve(message_t* message, const uint8_t* pointer, uint64_t word, int64_t size_words,
                        const uint8_t** target) noexcept nogil:
    """Where the pointer `word` stored at `pointer` leads, if `size_words` words lie there."""
    cdef int64_t index = ((pointer - message.base) >> 3) + 1 + (<int64_t>(<int32_t><uint32_t>word) >> 2)
    if index < 0 or index + size_words > message.words:
        return CODE_MALFORMED_FRAME
    message.budget -= size_words
    if message.budget < 0:
        return CODE_MALFORMED_FRAME
    target[0] = message.base + index * WORD_BYTES
    return CODE_OK


cdef inline int wrong_kind(uint64_t word) noexcept nogil:
    return WIRE_FAR if (word & 3) == POINTER_FAR else CODE_MALFORMED_FRAME


cdef inline int read_struct(message_t* message, const uint8_t* pointer, struct_t* out) noexcept nogil:
    """The struct that `pointer` leads to; an absent (NULL) or null pointer gives one without any field."""
    cdef uint64_t word = load64(pointer) if pointer != NULL else 0
    cdef uint32_t data_words
    cdef int code
    if word == 0:
        memset(out, 0, sizeof(struct_t))
        return CODE_OK
    if word & 3:
        return wrong_kind(word)
    data_words = <uint32_t>(word >> 32) & 0xFFFF
    out.pointer_count = <uint32_t>(word >> 48)
    out.data_bytes = data_words * WORD_BYTES
    code = resolve(message, pointer, word, data_words + out.pointer_count, &out.data)
    if code != CODE_OK:
        return code
    out.pointers = out.data + out.data_bytes
    return CODE_OK


cdef inline int read_root(message_t* message, struct_t* out) noexcept nogil:
    if message.words < 1:
        return CODE_MALFORMED_FRAME
    return read_struct(message, message.base, out)


cdef inline const uint8_t* pointer_at(const struct_t* view, uint32_t index) noexcept nogil:
    """The address of pointer `index`, NULL where the writer did not know that field."""
    return view.pointers + index * WORD_BYTES if index < view.pointer_count else NULL


cdef inline const uint8_t* fields_of(const struct_t* view, uint8_t* padded, uint32_t bytes_known) noexcept nogil:
    """The data section with at least `bytes_known` bytes: in place, or in `padded` if the writer knew fewer fields."""
    if view.data_bytes >= bytes_known:
        return view.data
    memset(padded, 0, bytes_known)
    if view.data_bytes:
        memcpy(padded, view.data, view.data_bytes)
    return padded


cdef inline bint load_bit(const uint8_t* fields, uint32_t bit) noexcept nogil:
    return (fields[bit >> 3] >> (bit & 7)) & 1


cdef inline int read_bytes(message_t* message, const uint8_t* pointer, slice_t* out) noexcept nogil:
    """A Data field. `data` is NULL where the pointer is null, and not NULL for an empty one."""
    cdef uint64_t word = load64(pointer) if pointer != NULL else 0
    if word == 0:
        out.data = NULL
        out.size = 0
        return CODE_OK
    if (word & 3) != POINTER_LIST or (<uint32_t>(word >> 32) & 7) != ELEMENT_BYTE:
        return wrong_kind(word)
    out.size = <uint32_t>(word >> 35)
    return resolve(message, pointer, word, (<int64_t>out.size + 7) >> 3, &out.data)


cdef inline int read_text(message_t* message, const uint8_t* pointer, slice_t* out) noexcept nogil:
    """A Text field, without its terminating zero."""
    cdef int code = read_bytes(message, pointer, out)
    if code != CODE_OK or out.data == NULL:
        return code
    if out.size == 0 or out.data[out.size - 1] != 0:
        return CODE_MALFORMED_FRAME
    out.size -= 1
    return CODE_OK


cdef inline int read_list(message_t* message, const uint8_t* pointer, list_t* out) noexcept nogil:
    """A list of structs."""
    cdef uint64_t word = load64(pointer) if pointer != NULL else 0
    cdef uint64_t tag
    cdef int64_t content_words, element_words
    cdef const uint8_t* content
    cdef int code
    if word == 0:
        memset(out, 0, sizeof(list_t))
        return CODE_OK
    if (word & 3) != POINTER_LIST or (<uint32_t>(word >> 32) & 7) != ELEMENT_COMPOSITE:
        return wrong_kind(word)
    content_words = <int64_t>(word >> 35)
    code = resolve(message, pointer, word, content_words + 1, &content)
    if code != CODE_OK:
        return code
    tag = load64(content)
    out.count = <uint32_t>tag >> 2
    out.data_bytes = (<uint32_t>(tag >> 32) & 0xFFFF) * WORD_BYTES
    out.pointer_count = <uint32_t>(tag >> 48)
    out.stride = out.data_bytes + out.pointer_count * WORD_BYTES
    out.data = content + WORD_BYTES
    element_words = out.stride >> 3
    if (tag & 3) != POINTER_STRUCT or element_words * out.count > content_words:
        return CODE_MALFORMED_FRAME
    if element_words == 0:
        message.budget -= out.count
    return CODE_OK if message.budget >= 0 else CODE_MALFORMED_FRAME


cdef inline void element_of(const list_t* view, uint32_t index, struct_t* out) noexcept nogil:
    """Element `index` < `count` of a list of structs."""
    out.data = view.data + <size_t>index * view.stride
    out.data_bytes = view.data_bytes
    out.pointer_count = view.pointer_count
    out.pointers = out.data + view.data_bytes


cdef inline int read_bytes_list(message_t* message, const uint8_t* pointer, const uint8_t** data,
                                uint32_t* count) noexcept nogil:
    """A List(Data), every element of which is checked, so that `bytes_element` may trust them later."""
    cdef uint64_t word = load64(pointer) if pointer != NULL else 0
    cdef slice_t element
    cdef uint32_t index
    cdef int code
    data[0] = NULL
    count[0] = 0
    if word == 0:
        return CODE_OK
    if (word & 3) != POINTER_LIST or (<uint32_t>(word >> 32) & 7) != ELEMENT_POINTER:
        return wrong_kind(word)
    code = resolve(message, pointer, word, <int64_t>(word >> 35), data)
    if code != CODE_OK:
        return code
    for index in range(<uint32_t>(word >> 35)):
        code = read_bytes(message, data[0] + <size_t>index * WORD_BYTES, &element)
        if code != CODE_OK:
            return code
    count[0] = <uint32_t>(word >> 35)
    return CODE_OK


cdef inline slice_t bytes_element(const uint8_t* list_data, uint32_t index) noexcept nogil:
    """Element `index` of a List(Data) that was checked by `read_bytes_list`."""
    cdef const uint8_t* pointer = list_data + <size_t>index * WORD_BYTES
    cdef uint64_t word = load64(pointer)
    cdef slice_t element
    element.data = NULL
    element.size = 0
    if word != 0:
        element.data = pointer + WORD_BYTES + (<int64_t>(<int32_t><uint32_t>word) >> 2) * WORD_BYTES
        element.size = <uint32_t>(word >> 35)
    return element


# Writers. They trust that the caller reserved what the `..._words` functions said.

cdef inline size_t bytes_words(const slice_t* value) noexcept nogil:
    return (<size_t>value.size + 7) >> 3


cdef inline size_t text_words(const slice_t* value) noexcept nogil:
    return (<size_t>value.size + 8) >> 3 if value.data != NULL else 0


cdef inline void put_struct_pointer(uint8_t* pointer, const uint8_t* target, uint32_t data_words,
                                    uint32_t pointer_count) noexcept nogil:
    cdef uint64_t offset = <uint32_t>(((target - pointer) >> 3) - 1) << 2
    store64(pointer, <uint32_t>offset | (<uint64_t>data_words << 32) | (<uint64_t>pointer_count << 48))


cdef inline void put_list_pointer(uint8_t* pointer, const uint8_t* target, uint32_t element_size,
                                  uint32_t count) noexcept nogil:
    cdef uint32_t offset = <uint32_t>(((target - pointer) >> 3) - 1) << 2
    store64(pointer, offset | POINTER_LIST | (<uint64_t>element_size << 32) | (<uint64_t>count << 35))


cdef inline uint8_t* put_bytes(uint8_t* pointer, uint8_t* cursor, const slice_t* value) noexcept nogil:
    """Writes a Data at `cursor` and its pointer at `pointer`; returns the place after it."""
    cdef size_t padded = bytes_words(value) * WORD_BYTES
    if value.data == NULL:
        store64(pointer, 0)
        return cursor
    put_list_pointer(pointer, cursor, ELEMENT_BYTE, value.size)
    if padded:
        store64(cursor + padded - WORD_BYTES, 0)
        memcpy(cursor, value.data, value.size)
    return cursor + padded


cdef inline uint8_t* put_text(uint8_t* pointer, uint8_t* cursor, const slice_t* value) noexcept nogil:
    """Writes a Text like `put_bytes`, adding the terminating zero."""
    cdef size_t padded = text_words(value) * WORD_BYTES
    if value.data == NULL:
        store64(pointer, 0)
        return cursor
    put_list_pointer(pointer, cursor, ELEMENT_BYTE, value.size + 1)
    store64(cursor + padded - WORD_BYTES, 0)
    if value.size:
        memcpy(cursor, value.data, value.size)
    return cursor + padded


cdef inline uint8_t* put_list(uint8_t* pointer, uint8_t* cursor, uint32_t count, uint32_t data_words,
                              uint32_t pointer_count) noexcept nogil:
    """Writes pointer and tag of a list of `count` structs, zeroes them, and returns the first."""
    cdef size_t content_words = <size_t>count * (data_words + pointer_count)
    put_list_pointer(pointer, cursor, ELEMENT_COMPOSITE, <uint32_t>content_words)
    store64(cursor, (<uint64_t>count << 2) | (<uint64_t>data_words << 32) | (<uint64_t>pointer_count << 48))
    memset(cursor + WORD_BYTES, 0, content_words * WORD_BYTES)
    return cursor + WORD_BYTES


cdef inline uint8_t* put_root(uint8_t* frame, size_t segment_words, uint32_t data_words,
                              uint32_t pointer_count) noexcept nogil:
    """Writes the frame header and the root pointer, zeroes the root struct, and returns it."""
    cdef uint8_t* root = frame + SINGLE_HEADER_BYTES + WORD_BYTES
    store64(frame, <uint64_t>segment_words << 32)
    put_struct_pointer(frame + SINGLE_HEADER_BYTES, root, data_words, pointer_count)
    memset(root, 0, <size_t>(data_words + pointer_count) * WORD_BYTES)
    return root


cdef inline void store_bit(uint8_t* fields, uint32_t bit, bint value) noexcept nogil:
    if value:
        fields[bit >> 3] |= <uint8_t>(1 << (bit & 7))
