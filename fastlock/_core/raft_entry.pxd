"""Log entries as LogEntry frames: what Raft itself writes into the log, and what it reads from frames."""

from libc.stdint cimport uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.commands cimport member_t, membership_t
from fastlock._core.raft_message cimport Entry
from fastlock._core.wire cimport list_t, message_t


cdef bytes taken(buffer_t* buffer, int status)
cdef list point_to(tuple members, member_t* structs, membership_t* out)
cdef tuple read_member_list(message_t* message, const list_t* listed)
cdef bytes encode_noop(uint32_t group, uint64_t term, uint64_t index)
cdef bytes encode_membership(uint32_t group, uint64_t term, uint64_t index, tuple members)
cdef Entry entry_of_frame(bytes data)
cdef tuple members_of_frame(bytes data)
