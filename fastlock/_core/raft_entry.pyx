"""Log entries as LogEntry frames: what Raft itself writes into the log, and what it reads from frames."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from fastlock._core cimport layout
from fastlock._core.raft_message cimport Entry, Member, new_entry
from fastlock._core.types cimport slice_t
from fastlock._core.wire cimport (
    CODE_OK, SINGLE_HEADER_BYTES, WORD_BYTES, element_of, fields_of, list_t, load16, load32, load64,
    message_open, message_t, pointer_at, put_list, put_root, put_struct_pointer, put_text, read_list,
    read_root, read_struct, read_text, store16, store32, store64, struct_t, text_words,
)


cdef enum:
    ROOT_WORDS = 1 + layout.LOG_ENTRY_DATA_WORDS + layout.LOG_ENTRY_POINTERS
    CONFIGURATION_WORDS = layout.MEMBERSHIP_DATA_WORDS + layout.MEMBERSHIP_POINTERS
    MEMBER_WORDS = layout.MEMBER_DATA_WORDS + layout.MEMBER_POINTERS
    ROOT_DATA_BYTES = layout.LOG_ENTRY_DATA_WORDS * 8
    MEMBER_DATA_BYTES = layout.MEMBER_DATA_WORDS * 8


def noop_entry(uint32_t group, uint64_t term, uint64_t index):
    return new_entry(term, index, layout.ENTRY_KIND_NOOP, encode_noop(group, term, index))


def membership_entry(uint32_t group, uint64_t term, uint64_t index, tuple members not None):
    return new_entry(term, index, layout.ENTRY_KIND_MEMBERSHIP, encode_membership(group, term, index, members))


def read_entry(bytes data not None):
    return entry_of_frame(data)


def read_members(bytes data not None):
    return members_of_frame(data)


cdef uint8_t* put_entry(uint8_t* frame, size_t words, uint16_t kind, uint32_t group, uint64_t term, uint64_t index):
    cdef uint8_t* root = put_root(frame, words, layout.LOG_ENTRY_DATA_WORDS, layout.LOG_ENTRY_POINTERS)
    store16(root + layout.LOG_ENTRY_VERSION_AT, <uint16_t>layout.FORMAT_VERSION)
    store16(root + layout.LOG_ENTRY_KIND_AT, kind)
    store32(root + layout.LOG_ENTRY_GROUP_AT, group)
    store64(root + layout.LOG_ENTRY_TERM_AT, term)
    store64(root + layout.LOG_ENTRY_INDEX_AT, index)
    return root


cdef bytes encode_noop(uint32_t group, uint64_t term, uint64_t index):
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, SINGLE_HEADER_BYTES + ROOT_WORDS * WORD_BYTES)
    put_entry(<uint8_t*>PyBytes_AS_STRING(frame), ROOT_WORDS, layout.ENTRY_KIND_NOOP, group, term, index)
    return frame


cdef slice_t slice_of(bytes text):
    cdef slice_t value
    value.data = <const uint8_t*>PyBytes_AS_STRING(text)
    value.size = <uint32_t>PyBytes_GET_SIZE(text)
    return value


cdef bytes encode_membership(uint32_t group, uint64_t term, uint64_t index, tuple members):
    cdef list addresses = [(<Member?>member).address.encode() for member in members]
    cdef size_t words = ROOT_WORDS + CONFIGURATION_WORDS + 1 + len(members) * MEMBER_WORDS
    cdef slice_t text
    cdef bytes address
    for address in addresses:
        text = slice_of(address)
        words += text_words(&text)
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, SINGLE_HEADER_BYTES + words * WORD_BYTES)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(frame)
    cdef uint8_t* root = put_entry(start, words, layout.ENTRY_KIND_MEMBERSHIP, group, term, index)
    cdef uint8_t* configuration = start + SINGLE_HEADER_BYTES + ROOT_WORDS * WORD_BYTES
    put_struct_pointer(
        root + ROOT_DATA_BYTES + layout.LOG_ENTRY_MEMBERSHIP_POINTER * WORD_BYTES,
        configuration, layout.MEMBERSHIP_DATA_WORDS, layout.MEMBERSHIP_POINTERS,
    )
    store64(configuration, 0)
    store16(configuration + layout.MEMBERSHIP_VERSION_AT, <uint16_t>layout.FORMAT_VERSION)
    cdef uint8_t* element = put_list(
        configuration + layout.MEMBERSHIP_DATA_WORDS * WORD_BYTES + layout.MEMBERSHIP_MEMBERS_POINTER * WORD_BYTES,
        configuration + CONFIGURATION_WORDS * WORD_BYTES,
        <uint32_t>len(members), layout.MEMBER_DATA_WORDS, layout.MEMBER_POINTERS,
    )
    cdef uint8_t* cursor = element + len(members) * MEMBER_WORDS * WORD_BYTES
    cdef Member member
    for member, address in zip(members, addresses):
        store64(element + layout.MEMBER_NODE_AT, member.node)
        store64(element + layout.MEMBER_INCARNATION_AT, member.incarnation)
        store16(element + layout.MEMBER_ROLE_AT, member.role)
        text = slice_of(address)
        cursor = put_text(
            element + MEMBER_DATA_BYTES + layout.MEMBER_ADDRESS_POINTER * WORD_BYTES, cursor, &text
        )
        element += MEMBER_WORDS * WORD_BYTES
    return frame


cdef int open_entry(bytes data, message_t* message, struct_t* root) except -1:
    # Entries are stored and sent as one segment; whoever wrote something else is not one of us.
    cdef const uint8_t* frame = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef size_t size = PyBytes_GET_SIZE(data)
    cdef bint whole = (
        size >= SINGLE_HEADER_BYTES
        and load32(frame) == 0
        and <size_t>load32(frame + 4) * WORD_BYTES + SINGLE_HEADER_BYTES == size
    )
    if whole:
        message_open(message, frame + SINGLE_HEADER_BYTES, load32(frame + 4))
        whole = read_root(message, root) == CODE_OK
    if not whole:
        raise ValueError("a log entry is one single-segment LogEntry frame, and this is none")
    return 0


cdef Entry entry_of_frame(bytes data):
    cdef message_t message
    cdef struct_t root
    cdef uint8_t padded[ROOT_DATA_BYTES]
    open_entry(data, &message, &root)
    cdef const uint8_t* fields = fields_of(&root, padded, ROOT_DATA_BYTES)
    return new_entry(
        load64(fields + layout.LOG_ENTRY_TERM_AT),
        load64(fields + layout.LOG_ENTRY_INDEX_AT),
        load16(fields + layout.LOG_ENTRY_KIND_AT),
        data,
    )


cdef tuple members_of_frame(bytes data):
    cdef message_t message
    cdef struct_t root, configuration, element
    cdef list_t listed
    cdef slice_t text
    cdef uint8_t padded[MEMBER_DATA_BYTES]
    cdef const uint8_t* fields
    cdef uint32_t position
    cdef list members = []
    open_entry(data, &message, &root)
    if (
        read_struct(&message, pointer_at(&root, layout.LOG_ENTRY_MEMBERSHIP_POINTER), &configuration) != CODE_OK
        or read_list(&message, pointer_at(&configuration, layout.MEMBERSHIP_MEMBERS_POINTER), &listed) != CODE_OK
        or listed.count == 0
    ):
        raise ValueError("a membership entry carries its members, and this one has none")
    for position in range(listed.count):
        element_of(&listed, position, &element)
        fields = fields_of(&element, padded, MEMBER_DATA_BYTES)
        if read_text(&message, pointer_at(&element, layout.MEMBER_ADDRESS_POINTER), &text) != CODE_OK:
            raise ValueError("a member's address is not a text")
        members.append(Member(
            load64(fields + layout.MEMBER_NODE_AT),
            load16(fields + layout.MEMBER_ROLE_AT),
            load64(fields + layout.MEMBER_INCARNATION_AT),
            (<const char*>text.data)[:text.size].decode() if text.data != NULL else "",
        ))
    return tuple(members)
