"""Local tunables of one group; members may differ in them without harm."""

cimport cython
from libc.stdint cimport uint64_t


@cython.final
cdef class RaftSettings:
    def __init__(
        self,
        *,
        uint64_t election_ms_min=1000,
        uint64_t election_ms_max=2000,
        uint64_t heartbeat_ms=200,
        uint64_t append_bytes_max=1 << 20,
        int inflight_messages_max=32,
        uint64_t inflight_bytes_max=4 << 20,
        uint64_t window_batches=2,
        uint64_t window_large_bytes=16 << 10,
        uint64_t committed_bytes_max=4 << 20,
        Py_ssize_t reads_pending_max=65536,
        uint64_t commit_notice_ms=0,
    ):
        if not 0 < heartbeat_ms < election_ms_min < election_ms_max:
            raise ValueError(
                f"election timeouts must be a range above the heartbeat: heartbeat {heartbeat_ms} ms, "
                f"election {election_ms_min} to {election_ms_max} ms"
            )
        if inflight_messages_max < 1 or window_batches < 1 or reads_pending_max < 1:
            raise ValueError("inflight_messages_max, window_batches and reads_pending_max must be at least 1")
        if commit_notice_ms >= heartbeat_ms:
            raise ValueError("commit_notice_ms must be below heartbeat_ms, which carries the commit anyway")
        self.election_ms_min = election_ms_min
        self.election_ms_max = election_ms_max
        self.heartbeat_ms = heartbeat_ms
        self.append_bytes_max = append_bytes_max
        self.inflight_messages_max = inflight_messages_max
        self.inflight_bytes_max = inflight_bytes_max
        self.window_batches = window_batches
        self.window_large_bytes = window_large_bytes
        self.committed_bytes_max = committed_bytes_max
        self.reads_pending_max = reads_pending_max
        self.commit_notice_ms = commit_notice_ms
