"""Raft for one group: compiled, deterministic, no I/O, no clock, no randomness of its own."""

cimport cython
from libc.stdint cimport UINT64_MAX, uint16_t, uint32_t, uint64_t

from fastlock._core cimport layout
from fastlock._core.commands cimport BATCH_BYTES_MAX
from fastlock._core.raft_entry cimport encode_membership, encode_noop, entry_of_frame
from fastlock._core.raft_log cimport RaftLog
from fastlock._core.raft_membership cimport (
    Configuration,
    Configurations,
    in_order,
    promoted_learner,
    why_invalid_change,
)
from fastlock._core.raft_message cimport Entry, Message, new_entry, new_message
from fastlock._core.raft_outbox cimport Outbox
from fastlock._core.raft_progress cimport SNAPSHOT, Progress
from fastlock._core.raft_reads cimport ReadBatch, Reads
from fastlock._core.raft_replication cimport Replication
from fastlock._core.raft_settings cimport RaftSettings
from fastlock._core.raft_snapshot cimport SnapshotReceiver
from fastlock._core.raft_votes cimport LOST, WON, Votes

from fastlock._core.raft_outbox import Write  # no-cython-lint: for callers
from fastlock._core.raft_progress import STATE_NAMES as _STATE_NAMES
from fastlock._core.raft_reads import Read  # no-cython-lint: for callers
from fastlock._core.raft_replication import ChunkWanted, EntriesWanted  # no-cython-lint: for callers


cdef enum:
    ROLE_FOLLOWER = 0
    ROLE_PRE_CANDIDATE = 1
    ROLE_CANDIDATE = 2
    ROLE_LEADER = 3
    # A leader that cannot commit does not grow its log without end.
    UNCOMMITTED_ENTRIES_MAX = 1024

FOLLOWER = ROLE_FOLLOWER
PRE_CANDIDATE = ROLE_PRE_CANDIDATE
CANDIDATE = ROLE_CANDIDATE
LEADER = ROLE_LEADER
ROLE_NAMES = ("follower", "pre-candidate", "candidate", "leader")


class Refused(Exception):
    def __init__(self, reason, detail=""):
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@cython.final
@cython.freelist(64)
cdef class Ready:
    pass


@cython.final
cdef class Raft:
    def __init__(
        self,
        *,
        uint32_t group,
        uint64_t node,
        members,
        uint64_t seed,
        uint64_t now_ms=0,
        RaftSettings settings=None,
        uint64_t term=0,
        uint64_t vote=0,
        uint64_t snapshot_index=0,
        uint64_t snapshot_term=0,
        object cut_index=-1,
        entries=(),
        bint may_vote=True,
    ):
        cdef uint64_t index
        if node == 0:
            raise ValueError("node ids start at 1")
        if snapshot_term > term or (snapshot_index == 0) != (snapshot_term == 0):
            raise ValueError(f"a checkpoint of ({snapshot_index}, {snapshot_term}) does not fit term {term}")
        self.group = group
        self.node = node
        self.may_vote = may_vote
        self.settings = settings if settings is not None else RaftSettings()
        self.log = RaftLog(
            snapshot_index, snapshot_term, snapshot_index if cut_index < 0 else min(cut_index, snapshot_index), entries
        )
        if self.log.last_term > term:
            raise ValueError(f"the log reaches term {self.log.last_term}, but the stored term is {term}")
        self.outbox = Outbox(self.log, term, vote)
        self.configurations = Configurations(snapshot_index, members)
        for index in range(snapshot_index + 1, self.log.last_index + 1):
            if self.log.at(index).kind == layout.ENTRY_KIND_MEMBERSHIP:
                self.configurations.append(self.log.at(index))
        self.random_state = seed
        self.reads = Reads(self.settings.reads_pending_max, self.random_below(1 << 31) + 1)
        self.receiver = SnapshotReceiver()
        self.votes = Votes()
        self.commit_index = self.handed_index = snapshot_index
        self.now_ms = now_ms
        self.notice_due_ms = UINT64_MAX
        self.told_term = term
        self.rearm_election()

    # What the caller may look at

    @property
    def term(self):
        return self.outbox.term

    @property
    def vote(self):
        return self.outbox.vote

    @property
    def durable_index(self):
        return self.log.durable_index

    @property
    def last_index(self):
        return self.log.last_index

    @property
    def last_term(self):
        return self.log.last_term

    @property
    def next_index(self):
        return self.log.last_index + 1

    @property
    def members(self):
        return self.configurations.current.members

    @property
    def members_index(self):
        return self.configurations.current.index

    def members_at(self, uint64_t index):
        return self.configurations.at(index).members

    @property
    def tail_bytes(self):
        return self.log.tail_bytes

    @property
    def log_keep_from(self):
        return self.replication.keep_from() if self.replication is not None else UINT64_MAX

    @property
    def next_tick_ms(self):
        cdef uint64_t due
        if self.role != ROLE_LEADER:
            return min(self.election_due_ms, self.reads.next_deadline_ms())
        due = min(self.heartbeat_due_ms, self.notice_due_ms)
        if self.transfer_target:
            due = min(due, self.transfer_due_ms)
        return min(due, self.replication.next_chunk_due_ms())

    # Time and chance

    cdef void advance(self, uint64_t now_ms) noexcept:
        if now_ms > self.now_ms:
            self.now_ms = now_ms

    cdef uint64_t random_below(self, uint64_t bound) noexcept:
        # splitmix64: its state is part of ours, so that one seed decides everything.
        cdef uint64_t z
        self.random_state += <uint64_t>0x9E3779B97F4A7C15
        z = self.random_state
        z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
        return (z ^ (z >> 31)) % bound

    cdef void rearm_election(self) noexcept:
        self.election_due_ms = self.now_ms + self.settings.election_ms_min + self.random_below(
            self.settings.election_ms_max - self.settings.election_ms_min
        )

    def tick(self, uint64_t now_ms):
        self.advance(now_ms)
        if self.role == ROLE_LEADER:
            tick_leader(self)
            return
        self.reads.lose_overdue(self.now_ms)
        if self.now_ms >= self.election_due_ms:
            self.rearm_election()
            if self.may_campaign():
                become_pre_candidate(self)
            elif self.role == ROLE_FOLLOWER and not self.is_sticky():
                self.leader = 0

    # Who may do what

    cdef bint is_sticky(self) noexcept:
        """Whether this member knows that a leader works, so that nobody needs its vote.

        A leader that lost its majority steps down by itself, so one that still leads counts as working.
        """
        if self.role == ROLE_LEADER:
            return True
        return self.leader != 0 and self.now_ms < self.leader_contact_ms + self.settings.election_ms_min

    cdef bint may_campaign(self):
        """Voters campaign, and so does a member that an uncommitted change removes or demotes.

        That change may never reach a majority without it: 1. of members 1 and 2, leader 1 logs its own removal and
        crashes before 2 has the entry; 2. member 2 asks for the vote of 1, which refuses because its log is longer;
        3. only 1 can win, hand the entry over, commit it, and leave.
        """
        cdef Configuration current = self.configurations.current
        if not self.may_vote or self.receiver.installing:
            return False
        if current.may_lead(self.node):
            return True
        return change_in_flight(self) and self.configurations.at(current.index - 1).may_lead(self.node)

    cdef bint is_up_to_date(self, uint64_t index, uint64_t term) noexcept:
        return term > self.log.last_term or (term == self.log.last_term and index >= self.log.last_index)

    cdef bint committed_in_term(self) noexcept:
        return self.commit_index >= self.term_start_index

    cdef Progress peer(self, uint64_t node):
        return self.replication.peer(node) if self.role == ROLE_LEADER else None

    def campaign(self):
        if self.role == ROLE_LEADER or not self.may_campaign():
            raise Refused("invalid-target", "only a voter that does not lead can campaign")
        self.rearm_election()
        become_pre_candidate(self)

    # Messages in

    cdef Message message_to(self, uint64_t target, uint16_t kind):
        return new_message(kind, self.group, self.node, target, self.outbox.term)

    cdef Message reply_to(self, Message message, uint16_t kind):
        cdef Message reply = self.message_to(message.source, kind)
        reply.context = message.context
        return reply

    def step(self, Message message not None, uint64_t now_ms):
        self.advance(now_ms)
        if message.target != self.node or message.group != self.group or message.source == self.node:
            return
        if not self.may_vote:
            # Whatever this member promised before it lost its memory is unknown, so it promises nothing,
            # and every answer is a promise.
            return
        if message.term > self.outbox.term:
            if not take_higher_term(self, message):
                return
        elif message.term < self.outbox.term:
            answer_lower_term(self, message)
            return
        self.dispatch(message)

    cdef int dispatch(self, Message message) except -1:
        cdef uint16_t kind = message.kind
        if kind == layout.RAFT_KIND_APPEND:
            return on_append(self, message)
        if kind == layout.RAFT_KIND_HEARTBEAT:
            return on_heartbeat(self, message)
        if (
            kind == layout.RAFT_KIND_APPEND_REPLY
            or kind == layout.RAFT_KIND_HEARTBEAT_REPLY
            or kind == layout.RAFT_KIND_SNAPSHOT_REPLY
        ):
            return on_peer_reply(self, message)
        if kind == layout.RAFT_KIND_READ_INDEX:
            return on_read_request(self, message)
        if kind == layout.RAFT_KIND_READ_INDEX_REPLY:
            return on_read_reply(self, message)
        if kind == layout.RAFT_KIND_PRE_VOTE:
            return on_pre_vote(self, message)
        if kind == layout.RAFT_KIND_VOTE:
            return on_vote(self, message)
        if kind == layout.RAFT_KIND_PRE_VOTE_REPLY:
            return on_vote_reply(self, message, True)
        if kind == layout.RAFT_KIND_VOTE_REPLY:
            return on_vote_reply(self, message, False)
        if kind == layout.RAFT_KIND_TIMEOUT_NOW:
            return on_timeout_now(self, message)
        if kind == layout.RAFT_KIND_SNAPSHOT_CHUNK:
            return on_snapshot_chunk(self, message)
        return 0

    # Receiving a snapshot

    def chunk_stored(self, uint64_t snapshot_id, uint64_t next_offset):
        cdef Message reply
        if self.receiver.stored(snapshot_id, next_offset) and self.leader == self.receiver.source:
            reply = self.message_to(self.leader, layout.RAFT_KIND_SNAPSHOT_REPLY)
            reply.context = snapshot_id
            reply.hint_index = next_offset
            self.outbox.acknowledge_term(reply)

    def snapshot_installed(self, uint64_t snapshot_id):
        cdef SnapshotReceiver receiver = self.receiver
        cdef uint64_t index = receiver.index
        if not receiver.installing or receiver.snapshot_id != snapshot_id:
            raise ValueError(f"snapshot {snapshot_id} is not being installed")
        assert index > self.commit_index, "nothing is committed while a snapshot is installed"
        if index <= self.log.last_index and self.log.term_at(index) == receiver.term:
            # The log goes on from the snapshot without a gap, and what it has beyond may be needed by a majority.
            self.log.covered_by_snapshot(index)
            self.configurations.compact(index)
        else:
            self.log.restart_after(index, receiver.term)
            self.configurations.restart(index, receiver.members)
        self.commit_index = self.handed_index = index
        receiver.forget()
        if self.leader != 0 and self.leader != self.node:
            acknowledge(self, index)

    def snapshot_refused(self, uint64_t snapshot_id):
        if self.receiver.snapshot_id == snapshot_id:
            self.receiver.forget()

    # Leading

    def can_propose(self, uint64_t batch_bytes=0):
        cdef uint64_t in_flight
        if self.role != ROLE_LEADER or self.transfer_target:
            return False
        in_flight = self.log.last_index - self.commit_index
        if in_flight == 0:
            return True
        return in_flight < self.settings.window_batches and batch_bytes >= self.settings.window_large_bytes

    def propose(self, bytes data not None):
        cdef Entry entry
        refuse_proposal(self)
        if len(data) > BATCH_BYTES_MAX:
            raise Refused("too-large", f"{len(data)} bytes, at most {BATCH_BYTES_MAX}")
        entry = entry_of_frame(data)
        if (
            entry.term != self.outbox.term
            or entry.index != self.log.last_index + 1
            or entry.kind != layout.ENTRY_KIND_BATCH
        ):
            raise Refused("wrong-position", "seal a batch with the term and next_index of this moment")
        lead_entry(self, layout.ENTRY_KIND_BATCH, data)
        return self.log.last_index

    def propose_membership(self, members):
        cdef tuple changed
        cdef str reason
        cdef uint64_t promoted
        refuse_proposal(self)
        if not may_change_members(self):
            raise Refused("too-early", "the leader has not committed in its own term")
        if change_in_flight(self):
            raise Refused("change-in-flight", f"the change at index {self.configurations.current.index}")
        changed = in_order(members)
        reason = why_invalid_change(self.configurations.current.members, changed)
        if reason is not None:
            raise Refused("invalid-change", reason)
        promoted = promoted_learner(self.configurations.current.members, changed)
        if promoted and not self.replication.has_caught_up(promoted):
            raise Refused("not-caught-up", f"learner {promoted} still lacks much of the log")
        lead_entry(
            self,
            layout.ENTRY_KIND_MEMBERSHIP,
            encode_membership(self.group, self.outbox.term, self.log.last_index + 1, changed),
        )
        maybe_commit(self)
        return self.log.last_index

    def transfer(self, uint64_t target):
        if self.role != ROLE_LEADER:
            raise Refused("not-leader")
        if target == self.node or not self.configurations.current.may_lead(target):
            raise Refused("invalid-target", f"node {target} is not another voter of this group")
        self.transfer_target = target
        self.transfer_due_ms = self.now_ms + self.settings.election_ms_max
        try_transfer(self)

    def report_unreachable(self, uint64_t node):
        cdef Progress peer = self.peer(node)
        if peer is not None and peer.state != SNAPSHOT:
            peer.become_probe()

    # Reads

    def read_index(self, uint64_t context):
        if not self.may_vote:
            raise Refused("muted")
        if not self.reads.add(context):
            raise Refused("too-many-reads")

    # What the caller does and tells

    cdef uint64_t apply_limit(self) noexcept:
        """A follower applies what its own disk has: by then its acknowledgement has left."""
        if self.receiver.installing:
            return self.handed_index
        if self.role == ROLE_LEADER:
            return self.commit_index
        return max(self.handed_index, min(self.commit_index, self.log.durable_index))

    @property
    def has_ready(self):
        if self.outbox.messages or self.outbox.has_write() or self.handed_index < self.apply_limit():
            return True
        if self.reads.has_output(self.handed_index) or self.receiver.chunks:
            return True
        if self.reads.has_fresh() and (self.role != ROLE_LEADER or may_serve_reads(self)):
            return True
        if self.role != self.told_role or self.leader != self.told_leader or self.outbox.term != self.told_term:
            return True
        if self.replication is None:
            return False
        return (
            len(self.replication.entries_wanted) > 0
            or len(self.replication.snapshots_wanted) > 0
            or len(self.replication.chunks_wanted) > 0
            or (self.notice_due_ms <= self.now_ms and self.replication.commit_unsaid())
        )

    def ready(self):
        cdef Ready ready = Ready.__new__(Ready)
        cdef Replication replication = self.replication
        cdef uint64_t limit = self.apply_limit()
        if replication is not None and self.notice_due_ms <= self.now_ms:
            self.notice_due_ms = UINT64_MAX
            replication.broadcast_commit()
        flush_reads(self)
        ready.messages = self.outbox.take_messages()
        ready.write = self.outbox.take_write()
        if self.handed_index < limit:
            ready.committed = self.log.slice_from(self.handed_index + 1, limit, self.settings.committed_bytes_max)
            self.handed_index += len(ready.committed)
        else:
            ready.committed = []
        ready.reads = self.reads.take_granted(self.handed_index)
        ready.reads_lost = self.reads.take_lost()
        ready.chunks = self.receiver.chunks
        self.receiver.chunks = []
        if replication is not None:
            ready.entries_wanted = replication.entries_wanted
            ready.snapshots_wanted = replication.snapshots_wanted
            ready.chunks_wanted = replication.chunks_wanted
            replication.entries_wanted = []
            replication.snapshots_wanted = []
            replication.chunks_wanted = []
        else:
            ready.entries_wanted = []
            ready.snapshots_wanted = []
            ready.chunks_wanted = []
        ready.role = self.role
        ready.leader = self.leader
        ready.term = self.outbox.term
        ready.soft_changed = (
            self.role != self.told_role or self.leader != self.told_leader or self.outbox.term != self.told_term
        )
        self.told_role = self.role
        self.told_leader = self.leader
        self.told_term = self.outbox.term
        return ready

    def persisted(self, uint64_t write_seq):
        cdef list released = self.outbox.persisted(write_seq)
        if self.role == ROLE_LEADER:
            maybe_commit(self)
        else:
            count_own_vote(self)
        return released

    def compact(self, uint64_t index):
        if index > self.handed_index or index > self.log.durable_index:
            raise ValueError(f"index {index} is not applied and durable yet")
        self.log.compact(index)
        self.configurations.compact(index)

    def log_cut(self, uint64_t index, uint64_t term=0):
        if index > self.log.base_index:
            raise ValueError(f"index {index} is above the checkpoint at {self.log.base_index}")
        self.log.cut(index, term)

    def supply_entries(self, uint64_t node, entries):
        cdef Progress peer = self.peer(node)
        if peer is not None:
            self.replication.supply_entries(peer, list(entries))

    def begin_snapshot(self, uint64_t node, uint64_t snapshot_id, uint64_t index, uint64_t term, members):
        cdef Progress peer = self.peer(node)
        if peer is not None:
            self.replication.begin_snapshot(peer, snapshot_id, index, term, in_order(members), self.now_ms)

    def snapshot_unavailable(self, uint64_t node):
        cdef Progress peer = self.peer(node)
        if peer is not None and peer.state == SNAPSHOT:
            self.replication.end_snapshot(peer)

    def supply_chunk(self, uint64_t node, uint64_t snapshot_id, uint64_t offset, bytes chunk not None, bint last):
        cdef Progress peer = self.peer(node)
        if peer is not None:
            self.replication.supply_chunk(peer, snapshot_id, offset, chunk, last, self.now_ms)

    # For people and tests

    def status(self):
        cdef Progress peer
        found = {
            "group": self.group,
            "node": self.node,
            "role": ROLE_NAMES[self.role],
            "leader": self.leader,
            "term": self.outbox.term,
            "vote": self.outbox.vote,
            "commit": self.commit_index,
            "handed": self.handed_index,
            "durable": self.log.durable_index,
            "last": (self.log.last_index, self.log.last_term),
            "base": (self.log.base_index, self.log.base_term),
            "members": self.configurations.current.members,
            "transfer": self.transfer_target,
            "peers": {},
        }
        if self.replication is not None:
            for peer in self.replication.peers:
                found["peers"][peer.node] = {
                    "state": _STATE_NAMES[peer.state],
                    "match": peer.match,
                    "next": peer.next,
                    "inflight": peer.inflight_count,
                    "paused": peer.is_paused(),
                }
        return found

    def log_entries(self):
        """The entries in memory, oldest first; for tests and diagnosis."""
        return [self.log.at(index) for index in range(self.log.base_index + 1, self.log.last_index + 1)]

    def check_invariants(self):
        cdef uint64_t index
        cdef uint64_t newest = 0
        self.log.check()
        self.outbox.check()
        assert self.log.base_index <= self.handed_index <= self.commit_index <= self.log.last_index
        assert self.log.last_term <= self.outbox.term
        for index in range(self.log.base_index + 1, self.log.last_index + 1):
            if self.log.at(index).kind == layout.ENTRY_KIND_MEMBERSHIP:
                newest = index
        assert newest == 0 or newest == self.configurations.current.index
        assert self.configurations.current.index <= self.log.last_index
        assert (self.role == ROLE_LEADER) == (self.replication is not None)
        assert (self.role == ROLE_LEADER) == (self.leader == self.node)
        if self.role == ROLE_LEADER:
            assert self.outbox.durable_term == self.outbox.term and self.outbox.durable_vote == self.node
            assert self.replication.term == self.outbox.term and self.replication.commit == self.commit_index
            assert self.term_start_index <= self.log.last_index
            assert self.replication.configuration is self.configurations.current
            self.replication.check()
        if self.role == ROLE_CANDIDATE:
            assert self.outbox.vote == self.node and self.leader == 0
        if not self.may_vote:
            assert self.role == ROLE_FOLLOWER and not self.outbox.messages and not self.outbox.waiting


include "raft_elections.pxi"
include "raft_following.pxi"
include "raft_leading.pxi"
include "raft_decisions.pxi"
