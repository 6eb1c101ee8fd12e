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

    cdef int become_follower(self, uint64_t term, uint64_t leader) except -1
    cdef int become_pre_candidate(self) except -1
    cdef int become_candidate(self, bint force) except -1
    cdef int become_leader(self) except -1
    cdef int count_own_vote(self) except -1
    cdef int ask_for_votes(self, uint16_t kind, uint64_t term, bint force) except -1

    cdef bint take_higher_term(self, Message message) except -1
    cdef int answer_lower_term(self, Message message) except -1
    cdef int dispatch(self, Message message) except -1
    cdef int hear_leader(self, Message message) except -1
    cdef int on_pre_vote(self, Message message) except -1
    cdef int on_vote(self, Message message) except -1
    cdef int on_vote_reply(self, Message message, bint pre) except -1
    cdef int on_append(self, Message message) except -1
    cdef int on_heartbeat(self, Message message) except -1
    cdef int on_snapshot_chunk(self, Message message) except -1
    cdef int on_timeout_now(self, Message message) except -1
    cdef int on_read_request(self, Message message) except -1
    cdef int on_read_reply(self, Message message) except -1
    cdef int on_peer_reply(self, Message message) except -1
    cdef int acknowledge(self, uint64_t index) except -1
    cdef int reject_append(self, Message message) except -1
    cdef uint64_t match_entries(self, Message message) except? 0
    cdef int truncate(self, uint64_t from_index) except -1
    cdef int log_entry(self, Entry entry) except -1
    cdef int commit_to(self, uint64_t index) except -1

    cdef int refuse_proposal(self) except -1
    cdef int lead_entry(self, uint16_t kind, bytes data) except -1
    cdef int maybe_commit(self) except -1
    cdef int after_commit(self) except -1
    cdef int leave_after_removal(self) except -1
    cdef int try_transfer(self) except -1
    cdef int flush_reads(self) except -1
    cdef int confirm_reads(self) except -1
    cdef int tick_leader(self) except -1
    cdef uint64_t apply_limit(self) noexcept
    cdef Progress peer(self, uint64_t node)
