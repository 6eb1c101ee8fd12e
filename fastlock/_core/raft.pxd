"""Raft for one group: compiled, deterministic, no I/O, no clock, no randomness of its own."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from fastlock._core.raft_log cimport RaftLog
from fastlock._core.raft_membership cimport Configurations
from fastlock._core.raft_message cimport Entry, Message
from fastlock._core.raft_outbox cimport Outbox, Write as WriteObject
from fastlock._core.raft_progress cimport Progress
from fastlock._core.raft_reads cimport Reads
from fastlock._core.raft_replication cimport Replication
from fastlock._core.raft_settings cimport RaftSettings
from fastlock._core.raft_snapshot cimport SnapshotReceiver
from fastlock._core.raft_votes cimport Votes


cdef class Ready:
    cdef readonly list messages
    cdef readonly WriteObject write
    cdef readonly list committed
    cdef readonly list reads
    cdef readonly list reads_lost
    cdef readonly list entries_wanted
    cdef readonly list snapshots_wanted
    cdef readonly list chunks_wanted
    cdef readonly list chunks
    cdef readonly bint soft_changed
    cdef readonly int role
    cdef readonly uint64_t leader
    cdef readonly uint64_t term


cdef class Raft:
    cdef readonly uint32_t group
    cdef readonly uint64_t node
    cdef readonly bint may_vote
    cdef RaftSettings settings
    cdef RaftLog log
    cdef Outbox outbox                # holds term and vote
    cdef Configurations configurations
    cdef Reads reads
    cdef SnapshotReceiver receiver
    cdef Votes votes                  # while campaigning
    cdef Replication replication      # while leading
    cdef readonly int role
    cdef readonly uint64_t leader
    cdef readonly uint64_t commit_index
    cdef readonly uint64_t handed_index
    cdef uint64_t random_state
    # Time, as the caller last told it.
    cdef uint64_t now_ms
    cdef uint64_t election_due_ms
    cdef uint64_t leader_contact_ms
    # While leading.
    cdef uint64_t term_start_index    # of the no-op
    cdef uint64_t heartbeat_due_ms
    cdef uint64_t notice_due_ms       # UINT64_MAX = every commit was told
    cdef uint64_t transfer_target     # 0 = none
    cdef uint64_t transfer_due_ms
    # As of the last Ready.
    cdef int told_role
    cdef uint64_t told_leader
    cdef uint64_t told_term

    cdef void advance(self, uint64_t now_ms) noexcept
    cdef uint64_t random_below(self, uint64_t bound) noexcept
    cdef void rearm_election(self) noexcept
    cdef bint is_sticky(self) noexcept
    cdef bint may_campaign(self)
    cdef bint is_up_to_date(self, uint64_t index, uint64_t term) noexcept
    cdef bint committed_in_term(self) noexcept
    cdef Message message_to(self, uint64_t target, uint16_t kind)
    cdef Message reply_to(self, Message message, uint16_t kind)

    cdef int dispatch(self, Message message) except -1

    cdef uint64_t apply_limit(self) noexcept
    cdef Progress peer(self, uint64_t node)
