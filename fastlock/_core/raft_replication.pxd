"""A leader's side of replication: who has what, what to send next, and what a majority has."""

from libc.stdint cimport uint32_t, uint64_t

from fastlock._core.raft_log cimport RaftLog
from fastlock._core.raft_membership cimport Configuration
from fastlock._core.raft_message cimport Message
from fastlock._core.raft_outbox cimport Outbox
from fastlock._core.raft_progress cimport Progress
from fastlock._core.raft_settings cimport RaftSettings


cdef class Replication:
    cdef RaftLog log
    cdef Outbox outbox
    cdef RaftSettings settings
    cdef Configuration configuration
    cdef uint32_t group
    cdef uint64_t node
    cdef uint64_t term
    cdef uint64_t commit
    cdef list peers                   # a Progress for every other member, by node id
    cdef list entries_wanted
    cdef list snapshots_wanted
    cdef list chunks_wanted

    cdef Progress peer(self, uint64_t node)
    cdef int configure(self, Configuration configuration, uint64_t next_index, uint64_t now_ms) except -1
    cdef Message message_to(self, Progress peer, int kind)
    cdef int send_append(self, Progress peer) except -1
    cdef int send_empty(self, Progress peer) except -1
    cdef int emit_append(self, Progress peer, uint64_t previous_term, list entries) except -1
    cdef int send_missing(self, Progress peer) except -1
    cdef int broadcast_append(self) except -1
    cdef int broadcast_heartbeat(self, uint64_t read_id) except -1
    cdef int broadcast_commit(self) except -1
    cdef bint commit_unsaid(self)
    cdef bint append_reply(self, Progress peer, Message message) except -1
    cdef int probe(self, Progress peer) except -1
    cdef int heartbeat_reply(self, Progress peer, Message message) except -1
    cdef int supply_entries(self, Progress peer, list entries) except -1
    cdef int begin_snapshot(
        self, Progress peer, uint64_t snapshot_id, uint64_t index, uint64_t term, tuple members, uint64_t now_ms
    ) except -1
    cdef int supply_chunk(
        self, Progress peer, uint64_t snapshot_id, uint64_t offset, bytes chunk, bint last, uint64_t now_ms
    ) except -1
    cdef int snapshot_reply(self, Progress peer, Message message, uint64_t now_ms) except -1
    cdef int end_snapshot(self, Progress peer) except -1
    cdef int want_chunk(self, Progress peer, uint64_t now_ms) except -1
    cdef int want_overdue_chunks(self, uint64_t now_ms) except -1
    cdef uint64_t next_chunk_due_ms(self) noexcept
    cdef uint64_t quorum_match(self) noexcept
    cdef uint64_t quorum_contact_ms(self, uint64_t now_ms) noexcept
    cdef uint64_t quorum_read(self) noexcept
    cdef Progress most_advanced(self)
    cdef bint has_caught_up(self, uint64_t node)
    cdef uint64_t keep_from(self) noexcept
    cdef int check(self) except -1
