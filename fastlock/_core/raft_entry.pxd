"""Log entries as LogEntry frames: what Raft itself writes into the log, and what it reads from frames."""

from libc.stdint cimport uint32_t, uint64_t

from fastlock._core.raft_message cimport Entry


cdef bytes encode_noop(uint32_t group, uint64_t term, uint64_t index)
cdef bytes encode_membership(uint32_t group, uint64_t term, uint64_t index, tuple members)
cdef Entry entry_of_frame(bytes data)
cdef tuple members_of_frame(bytes data)
