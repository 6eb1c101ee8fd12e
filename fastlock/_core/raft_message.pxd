"""What Raft passes around: log entries, members and messages."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t


cdef enum:
    MEMBERS_MAX = 32


cdef class Entry:
    cdef readonly uint64_t term
    cdef readonly uint64_t index
    cdef readonly uint16_t kind
    cdef readonly bytes data


cdef class Member:
    cdef readonly uint64_t node
    cdef readonly uint64_t incarnation
    cdef readonly uint16_t role
    cdef readonly str address


cdef class Message:
    cdef public uint16_t kind
    cdef public bint reject
    cdef public bint force
    cdef public bint last
    cdef public uint32_t group
    cdef public uint64_t source
    cdef public uint64_t target
    cdef public uint64_t term
    cdef public uint64_t index
    cdef public uint64_t log_term
    cdef public uint64_t commit
    cdef public uint64_t context
    cdef public uint64_t hint_index
    cdef public uint64_t hint_term
    cdef public object entries
    cdef public bytes chunk
    cdef public tuple members
    cdef uint64_t after_seq       # the write it waits for; never on the wire


cdef Entry new_entry(uint64_t term, uint64_t index, uint16_t kind, bytes data)
cdef Message new_message(uint16_t kind, uint32_t group, uint64_t source, uint64_t target, uint64_t term)
