"""What members say to each other: Raft's messages and the coalesced heartbeats, in a PeerMessage frame."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from fastlock._core.buffer cimport buffer_reserve, buffer_t
from fastlock._core.client_messages cimport hello_decode, hello_t, hello_words, hello_write
from fastlock._core.commands cimport membership_read, membership_t, membership_words, membership_write
from fastlock._core.framing cimport frame_flatten, frame_open
from fastlock._core.layout cimport *
from fastlock._core.types cimport raft_message_t
from fastlock._core.wire cimport *


cdef enum:
    PEER_WORDS = PEER_MESSAGE_DATA_WORDS + PEER_MESSAGE_POINTERS
    RAFT_WORDS = RAFT_MESSAGE_DATA_WORDS + RAFT_MESSAGE_POINTERS
    BEATS_WORDS = BEATS_DATA_WORDS + BEATS_POINTERS
    BEAT_WORDS = BEAT_DATA_WORDS + BEAT_POINTERS
    FORWARD_WORDS = FORWARD_DATA_WORDS + FORWARD_POINTERS
    FORWARD_REPLY_WORDS = FORWARD_REPLY_DATA_WORDS + FORWARD_REPLY_POINTERS


cdef int peer_message_decode(const uint8_t* frame, size_t size, buffer_t* scratch, peer_message_t* out) noexcept nogil:
    cdef message_t message
    cdef int code
    memset(out, 0, sizeof(peer_message_t))
    code = frame_open(frame, size, scratch, &message)
    if code != CODE_OK:
        return code
    code = peer_message_read(&message, out)
    if code == WIRE_FAR:
        code = frame_flatten(frame, size, scratch, &message)
        if code == CODE_OK:
            code = peer_message_read(&message, out)
    message_open(&out.message, message.base, message.words)
    return code


cdef int peer_message_read(message_t* message, peer_message_t* out) noexcept nogil:
    cdef uint8_t padded[PEER_MESSAGE_DATA_WORDS * WORD_BYTES]
    cdef struct_t root, view
    cdef int code = read_root(message, &root)
    if code != CODE_OK:
        return code
    out.which = load16(fields_of(&root, padded, PEER_MESSAGE_DATA_WORDS * WORD_BYTES) + PEER_MESSAGE_WHICH_AT)
    if out.which == PEER_MESSAGE_UNSET or out.which >= PEER_MESSAGE_WHICH_TOTAL:
        return CODE_UNKNOWN_COMMAND
    # Every member is a struct, and they share one pointer.
    code = read_struct(message, pointer_at(&root, PEER_MESSAGE_RAFT_POINTER), &view)
    if code != CODE_OK:
        return code
    if out.which == PEER_MESSAGE_RAFT:
        return raft_read(message, &view, out)
    if out.which == PEER_MESSAGE_BEATS:
        return beats_read(message, &view, out)
    if out.which == PEER_MESSAGE_FORWARD:
        return read_bytes_list(message, pointer_at(&view, FORWARD_REQUESTS_POINTER), &out.frames_data,
                               &out.frames_count)
    if out.which == PEER_MESSAGE_FORWARD_REPLY:
        return read_bytes_list(message, pointer_at(&view, FORWARD_REPLY_REPLIES_POINTER), &out.frames_data,
                               &out.frames_count)
    if out.which == PEER_MESSAGE_HELLO:
        return hello_decode(message, &view, &out.hello)
    return CODE_OK


cdef int raft_read(message_t* message, const struct_t* view, peer_message_t* out) noexcept nogil:
    cdef uint8_t padded[RAFT_MESSAGE_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields = fields_of(view, padded, RAFT_MESSAGE_DATA_WORDS * WORD_BYTES)
    cdef raft_message_t* raft = &out.raft
    cdef int code
    raft.kind = load16(fields + RAFT_MESSAGE_KIND_AT)
    raft.group = load32(fields + RAFT_MESSAGE_GROUP_AT)
    raft.source = load64(fields + RAFT_MESSAGE_SOURCE_AT)
    raft.target = load64(fields + RAFT_MESSAGE_TARGET_AT)
    raft.term = load64(fields + RAFT_MESSAGE_TERM_AT)
    raft.index = load64(fields + RAFT_MESSAGE_INDEX_AT)
    raft.log_term = load64(fields + RAFT_MESSAGE_LOG_TERM_AT)
    raft.commit = load64(fields + RAFT_MESSAGE_COMMIT_AT)
    raft.context = load64(fields + RAFT_MESSAGE_CONTEXT_AT)
    raft.hint_index = load64(fields + RAFT_MESSAGE_HINT_INDEX_AT)
    raft.hint_term = load64(fields + RAFT_MESSAGE_HINT_TERM_AT)
    raft.reject = load_bit(fields, RAFT_MESSAGE_REJECT_BIT)
    raft.force = load_bit(fields, RAFT_MESSAGE_FORCE_BIT)
    raft.last = load_bit(fields, RAFT_MESSAGE_LAST_BIT)
    if raft.kind == RAFT_KIND_UNSET or raft.kind >= RAFT_KIND_TOTAL:
        return CODE_UNKNOWN_COMMAND
    code = read_bytes_list(message, pointer_at(view, RAFT_MESSAGE_ENTRIES_POINTER), &raft.entries_data,
                           &raft.entries_count)
    if code == CODE_OK:
        code = read_bytes(message, pointer_at(view, RAFT_MESSAGE_CHUNK_POINTER), &raft.chunk)
    if code == CODE_OK:
        code = membership_read(message, pointer_at(view, RAFT_MESSAGE_MEMBERSHIP_POINTER), &out.membership_present,
                               &out.membership_version, &out.members)
    return code


cdef int beats_read(message_t* message, const struct_t* view, peer_message_t* out) noexcept nogil:
    cdef uint8_t padded[BEATS_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields = fields_of(view, padded, BEATS_DATA_WORDS * WORD_BYTES)
    out.source = load64(fields + BEATS_SOURCE_AT)
    out.target = load64(fields + BEATS_TARGET_AT)
    return read_list(message, pointer_at(view, BEATS_BEATS_POINTER), &out.beats)


cdef void beat_at(const list_t* beats, uint32_t i, beat_t* out) noexcept nogil:
    cdef uint8_t padded[BEAT_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    element_of(beats, i, &view)
    fields = fields_of(&view, padded, BEAT_DATA_WORDS * WORD_BYTES)
    out.group = load32(fields + BEAT_GROUP_AT)
    out.reply = load_bit(fields, BEAT_REPLY_BIT)
    out.term = load64(fields + BEAT_TERM_AT)
    out.commit = load64(fields + BEAT_COMMIT_AT)
    out.context = load64(fields + BEAT_CONTEXT_AT)


cdef uint8_t* peer_begin(buffer_t* out, uint16_t which, size_t words, size_t words_after) noexcept nogil:
    """A frame of `words` words after the PeerMessage, of which the caller appends the last `words_after` by itself.

    Returns the pointer of the union's member, NULL without memory; the member's struct comes right after it.
    """
    cdef size_t size = SINGLE_HEADER_BYTES + (1 + PEER_WORDS + words - words_after) * WORD_BYTES
    cdef uint8_t* root
    if buffer_reserve(out, size) != 0:
        return NULL
    root = put_root(out.data + out.size, 1 + PEER_WORDS + words, PEER_MESSAGE_DATA_WORDS, PEER_MESSAGE_POINTERS)
    out.size += size
    store16(root + PEER_MESSAGE_WHICH_AT, which)
    return root + (PEER_MESSAGE_DATA_WORDS + PEER_MESSAGE_RAFT_POINTER) * WORD_BYTES


cdef int raft_prefix_encode(buffer_t* out, const raft_message_t* message, const membership_t* membership,
                            const uint32_t* entry_sizes, uint32_t entry_count) noexcept nogil:
    cdef size_t words = RAFT_WORDS + bytes_words(&message.chunk)
    cdef size_t words_after = 0
    cdef uint8_t* pointer
    cdef uint8_t* target
    cdef uint8_t* cursor
    cdef uint32_t i
    if membership != NULL:
        words += membership_words(membership)
    if entry_sizes != NULL:
        words += entry_count
        for i in range(entry_count):
            words_after += (<size_t>entry_sizes[i] + 7) >> 3
    pointer = peer_begin(out, PEER_MESSAGE_RAFT, words + words_after, words_after)
    if pointer == NULL:
        return -1
    target = pointer + WORD_BYTES
    put_struct_pointer(pointer, target, RAFT_MESSAGE_DATA_WORDS, RAFT_MESSAGE_POINTERS)
    raft_fields_write(target, message)
    pointer = target + RAFT_MESSAGE_DATA_WORDS * WORD_BYTES
    cursor = target + RAFT_WORDS * WORD_BYTES
    cursor = put_bytes(pointer + RAFT_MESSAGE_CHUNK_POINTER * WORD_BYTES, cursor, &message.chunk)
    if membership != NULL:
        cursor = membership_write(pointer + RAFT_MESSAGE_MEMBERSHIP_POINTER * WORD_BYTES, cursor, membership)
    if entry_sizes != NULL:
        entries_point(pointer + RAFT_MESSAGE_ENTRIES_POINTER * WORD_BYTES, cursor, entry_sizes, entry_count)
    return 0


cdef void raft_fields_write(uint8_t* target, const raft_message_t* message) noexcept nogil:
    memset(target, 0, RAFT_WORDS * WORD_BYTES)
    store16(target + RAFT_MESSAGE_KIND_AT, message.kind)
    store32(target + RAFT_MESSAGE_GROUP_AT, message.group)
    store64(target + RAFT_MESSAGE_SOURCE_AT, message.source)
    store64(target + RAFT_MESSAGE_TARGET_AT, message.target)
    store64(target + RAFT_MESSAGE_TERM_AT, message.term)
    store64(target + RAFT_MESSAGE_INDEX_AT, message.index)
    store64(target + RAFT_MESSAGE_LOG_TERM_AT, message.log_term)
    store64(target + RAFT_MESSAGE_COMMIT_AT, message.commit)
    store64(target + RAFT_MESSAGE_CONTEXT_AT, message.context)
    store64(target + RAFT_MESSAGE_HINT_INDEX_AT, message.hint_index)
    store64(target + RAFT_MESSAGE_HINT_TERM_AT, message.hint_term)
    store_bit(target, RAFT_MESSAGE_REJECT_BIT, message.reject)
    store_bit(target, RAFT_MESSAGE_FORCE_BIT, message.force)
    store_bit(target, RAFT_MESSAGE_LAST_BIT, message.last)


cdef void entries_point(uint8_t* pointer, uint8_t* cursor, const uint32_t* entry_sizes, uint32_t count) noexcept nogil:
    """The list of pointers to entries that will follow it one after the other."""
    cdef uint8_t* entry = cursor + <size_t>count * WORD_BYTES
    cdef uint32_t i
    put_list_pointer(pointer, cursor, ELEMENT_POINTER, count)
    for i in range(count):
        put_list_pointer(cursor + <size_t>i * WORD_BYTES, entry, ELEMENT_BYTE, entry_sizes[i])
        entry += ((<size_t>entry_sizes[i] + 7) >> 3) * WORD_BYTES


cdef int beats_encode(buffer_t* out, uint64_t source, uint64_t target, const beat_t* beats,
                      uint32_t count) noexcept nogil:
    cdef size_t words = BEATS_WORDS + (1 + <size_t>count * BEAT_WORDS if beats != NULL else 0)
    cdef uint8_t* pointer = peer_begin(out, PEER_MESSAGE_BEATS, words, 0)
    cdef uint8_t* fields
    cdef uint8_t* at
    cdef uint32_t i
    if pointer == NULL:
        return -1
    fields = pointer + WORD_BYTES
    put_struct_pointer(pointer, fields, BEATS_DATA_WORDS, BEATS_POINTERS)
    memset(fields, 0, BEATS_WORDS * WORD_BYTES)
    store64(fields + BEATS_SOURCE_AT, source)
    store64(fields + BEATS_TARGET_AT, target)
    if beats == NULL:
        return 0
    at = put_list(fields + (BEATS_DATA_WORDS + BEATS_BEATS_POINTER) * WORD_BYTES,
                  fields + BEATS_WORDS * WORD_BYTES, count, BEAT_DATA_WORDS, BEAT_POINTERS)
    for i in range(count):
        store32(at + BEAT_GROUP_AT, beats[i].group)
        store_bit(at, BEAT_REPLY_BIT, beats[i].reply)
        store64(at + BEAT_TERM_AT, beats[i].term)
        store64(at + BEAT_COMMIT_AT, beats[i].commit)
        store64(at + BEAT_CONTEXT_AT, beats[i].context)
        at += BEAT_WORDS * WORD_BYTES
    return 0


cdef int forward_prefix_encode(buffer_t* out, uint16_t which, uint64_t source, uint32_t frames_size) noexcept nogil:
    cdef bint asks = which == PEER_MESSAGE_FORWARD
    cdef size_t words = FORWARD_WORDS if asks else FORWARD_REPLY_WORDS
    cdef size_t words_after = (<size_t>frames_size + 7) >> 3
    cdef uint8_t* pointer = peer_begin(out, which, words + 1 + words_after, words_after)
    cdef uint8_t* fields
    cdef uint8_t* listed
    if pointer == NULL:
        return -1
    fields = pointer + WORD_BYTES
    listed = fields + words * WORD_BYTES
    memset(fields, 0, words * WORD_BYTES)
    if asks:
        put_struct_pointer(pointer, fields, FORWARD_DATA_WORDS, FORWARD_POINTERS)
        store64(fields + FORWARD_SOURCE_AT, source)
        pointer = fields + (FORWARD_DATA_WORDS + FORWARD_REQUESTS_POINTER) * WORD_BYTES
    else:
        put_struct_pointer(pointer, fields, FORWARD_REPLY_DATA_WORDS, FORWARD_REPLY_POINTERS)
        pointer = fields + (FORWARD_REPLY_DATA_WORDS + FORWARD_REPLY_REPLIES_POINTER) * WORD_BYTES
    put_list_pointer(pointer, listed, ELEMENT_POINTER, 1)
    put_list_pointer(listed, listed + WORD_BYTES, ELEMENT_BYTE, frames_size)
    return 0


cdef int peer_hello_encode(buffer_t* out, const hello_t* hello) noexcept nogil:
    cdef uint8_t* pointer = peer_begin(out, PEER_MESSAGE_HELLO, hello_words(hello), 0)
    if pointer == NULL:
        return -1
    hello_write(pointer, pointer + WORD_BYTES, hello)
    return 0
