"""Log entries as LogEntry frames: what Raft itself writes into the log, and what it reads from frames."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from fastlock._core cimport layout
from fastlock._core.buffer cimport buffer_free, buffer_t
from fastlock._core.commands cimport (
    entry_encode_membership,
    entry_encode_noop,
    entry_open,
    entry_t,
    member_decode,
    member_t,
    membership_t,
)
from fastlock._core.raft_message cimport MEMBERS_MAX, Entry, Member, new_entry
from fastlock._core.wire cimport CODE_OK, list_t, message_t


def noop_entry(uint32_t group, uint64_t term, uint64_t index):
    return new_entry(term, index, layout.ENTRY_KIND_NOOP, encode_noop(group, term, index))


def membership_entry(uint32_t group, uint64_t term, uint64_t index, tuple members not None):
    return new_entry(term, index, layout.ENTRY_KIND_MEMBERSHIP, encode_membership(group, term, index, members))


def read_entry(bytes data not None):
    return entry_of_frame(data)


def read_members(bytes data not None):
    return members_of_frame(data)


cdef bytes taken(buffer_t* buffer, int status):
    """The bytes of an encoder's buffer, which is freed."""
    try:
        if status != 0:
            raise MemoryError()
        return PyBytes_FromStringAndSize(<char*>buffer.data, buffer.size)
    finally:
        buffer_free(buffer)


cdef bytes encode_noop(uint32_t group, uint64_t term, uint64_t index):
    cdef buffer_t buffer
    memset(&buffer, 0, sizeof(buffer))
    return taken(&buffer, entry_encode_noop(&buffer, group, term, index))


cdef list point_to(tuple members, member_t* structs, membership_t* out):
    """Fills the codec's structs; they point into the list that is returned."""
    cdef list addresses = []
    cdef bytes address
    cdef Member member
    cdef int position
    assert len(members) <= MEMBERS_MAX
    for position in range(len(members)):
        member = <Member?>members[position]
        address = member.address.encode()
        addresses.append(address)
        structs[position].node = member.node
        structs[position].incarnation = member.incarnation
        structs[position].role = member.role
        structs[position].address.data = <const uint8_t*>PyBytes_AS_STRING(address)
        structs[position].address.size = <uint32_t>PyBytes_GET_SIZE(address)
    out.version = <unsigned short>layout.FORMAT_VERSION
    out.count = <uint32_t>len(members)
    out.members = structs
    return addresses


cdef bytes encode_membership(uint32_t group, uint64_t term, uint64_t index, tuple members):
    cdef member_t structs[MEMBERS_MAX]
    cdef membership_t membership
    cdef buffer_t buffer
    addresses = point_to(members, structs, &membership)
    memset(&buffer, 0, sizeof(buffer))
    frame = taken(&buffer, entry_encode_membership(&buffer, group, term, index, &membership))
    assert len(addresses) == len(members)
    return frame


cdef int open_entry(bytes data, entry_t* entry) except -1:
    if entry_open(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), entry) != CODE_OK:
        raise ValueError("not a LogEntry frame that this release can read")
    return 0


cdef Entry entry_of_frame(bytes data):
    cdef entry_t entry
    open_entry(data, &entry)
    return new_entry(entry.term, entry.index, entry.kind, data)


cdef tuple read_member_list(message_t* message, const list_t* listed):
    """ValueError where a member cannot be one."""
    cdef member_t member
    cdef uint32_t position
    cdef list members = []
    if listed.count == 0 or listed.count > MEMBERS_MAX:
        raise ValueError(f"a configuration has 1 to {MEMBERS_MAX} members, not {listed.count}")
    for position in range(listed.count):
        if member_decode(message, listed, position, &member) != CODE_OK:
            raise ValueError("a member that cannot be read")
        members.append(Member(
            member.node,
            member.role,
            member.incarnation,
            (<const char*>member.address.data)[:member.address.size].decode() if member.address.data != NULL else "",
        ))
    return tuple(members)


cdef tuple members_of_frame(bytes data):
    cdef entry_t entry
    open_entry(data, &entry)
    return read_member_list(&entry.message, &entry.members)
