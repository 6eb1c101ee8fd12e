"""Local tunables of one group; members may differ in them without harm."""

from libc.stdint cimport uint64_t


cdef class RaftSettings:
    cdef readonly uint64_t election_ms_min
    cdef readonly uint64_t election_ms_max
    cdef readonly uint64_t heartbeat_ms
    cdef readonly uint64_t append_bytes_max
    cdef readonly int inflight_messages_max
    cdef readonly uint64_t inflight_bytes_max
    cdef readonly uint64_t window_batches
    cdef readonly uint64_t window_large_bytes
    cdef readonly uint64_t committed_bytes_max
    cdef readonly Py_ssize_t reads_pending_max
    cdef readonly uint64_t commit_notice_ms
