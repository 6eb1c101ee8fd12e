"""Raft for one group: compiled, deterministic, no I/O, no clock, no randomness of its own."""

cimport cython
from libc.stdint cimport UINT64_MAX, uint16_t, uint32_t, uint64_t

from fastlock._core cimport layout
from fastlock._core.commands cimport BATCH_BYTES_MAX
from fastlock._core.raft_entry cimport encode_membership, encode_noop, entry_of_frame
from fastlock._core.raft_log cimport RaftLog
from fastlock._core.raft_membership cimport Configuration, Configurations, in_order, promoted_learner, why_invalid_change
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
            self.tick_leader()
            return
        self.reads.lose_overdue(self.now_ms)
        if self.now_ms >= self.election_due_ms:
            self.rearm_election()
            if self.may_campaign():
                self.become_pre_candidate()
            elif self.role == ROLE_FOLLOWER and not self.is_sticky():
                self.leader = 0

    cdef int tick_leader(self) except -1:
        cdef Replication replication = self.replication
        if lost_its_majority(self):
            return self.become_follower(self.outbox.term, 0)
        if self.transfer_target and self.now_ms >= self.transfer_due_ms:
            self.transfer_target = 0
        if self.now_ms >= self.heartbeat_due_ms:
            self.heartbeat_due_ms = self.now_ms + self.settings.heartbeat_ms
            replication.broadcast_heartbeat(self.reads.last_id)
        if self.now_ms >= self.notice_due_ms:
            self.notice_due_ms = UINT64_MAX
            replication.broadcast_commit()
        return replication.want_overdue_chunks(self.now_ms)

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

    # Roles

    cdef int become_follower(self, uint64_t term, uint64_t leader) except -1:
        if term > self.outbox.term:
            self.outbox.term = term
            self.outbox.vote = 0
        self.reads.lose_all()
        self.role = ROLE_FOLLOWER
        self.leader = leader
        self.replication = None
        self.transfer_target = 0
        self.notice_due_ms = UINT64_MAX
        self.rearm_election()
        return 0

    cdef int become_pre_candidate(self) except -1:
        """Asks whether a campaign would succeed before it disturbs anyone with a new term."""
        self.reads.lose_all()
        self.role = ROLE_PRE_CANDIDATE
        self.leader = 0
        self.votes.clear()
        self.votes.record(self.node, True)
        self.ask_for_votes(layout.RAFT_KIND_PRE_VOTE, self.outbox.term + 1, False)
        if self.votes.outcome(self.configurations.current) == WON:
            return self.become_candidate(False)
        return 0

    cdef int become_candidate(self, bint force) except -1:
        self.reads.lose_all()
        self.role = ROLE_CANDIDATE
        self.leader = 0
        self.outbox.term += 1
        self.outbox.vote = self.node
        self.votes.clear()
        self.rearm_election()
        return self.ask_for_votes(layout.RAFT_KIND_VOTE, self.outbox.term, force)

    cdef int ask_for_votes(self, uint16_t kind, uint64_t term, bint force) except -1:
        cdef Configuration configuration = self.configurations.current
        cdef Message message
        cdef int position
        for position in range(configuration.voter_count):
            if configuration.voters[position] == self.node:
                continue
            message = self.message_to(configuration.voters[position], kind)
            message.term = term
            message.index = self.log.last_index
            message.log_term = self.log.last_term
            message.force = force
            if kind == layout.RAFT_KIND_PRE_VOTE:
                self.outbox.send(message)
            else:
                # A vote for this log and this term may be used only by a member that cannot forget either.
                self.outbox.send_after_write(message)
        return 0

    cdef int count_own_vote(self) except -1:
        """A candidate's own vote counts once it is as durable as everyone else's."""
        if self.role != ROLE_CANDIDATE:
            return 0
        if self.outbox.durable_term == self.outbox.term and self.outbox.durable_vote == self.node:
            self.votes.record(self.node, True)
            if self.votes.outcome(self.configurations.current) == WON:
                self.become_leader()
        return 0

    cdef int become_leader(self) except -1:
        assert self.role == ROLE_CANDIDATE and self.outbox.durable_term == self.outbox.term
        self.role = ROLE_LEADER
        self.leader = self.node
        self.replication = Replication(
            self.log, self.outbox, self.settings, self.group, self.node, self.outbox.term, self.commit_index,
            self.configurations.current, self.now_ms,
        )
        self.heartbeat_due_ms = self.now_ms + self.settings.heartbeat_ms
        self.term_start_index = self.log.last_index + 1
        return self.lead_entry(
            layout.ENTRY_KIND_NOOP, encode_noop(self.group, self.outbox.term, self.log.last_index + 1)
        )

    def campaign(self):
        if self.role == ROLE_LEADER or not self.may_campaign():
            raise Refused("invalid-target", "only a voter that does not lead can campaign")
        self.rearm_election()
        self.become_pre_candidate()

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
            if not self.take_higher_term(message):
                return
        elif message.term < self.outbox.term:
            self.answer_lower_term(message)
            return
        self.dispatch(message)

    cdef bint take_higher_term(self, Message message) except -1:
        """Follows a higher term where that is due. False: the message is dropped."""
        cdef uint16_t kind = message.kind
        if kind == layout.RAFT_KIND_PRE_VOTE:
            return True
        if kind == layout.RAFT_KIND_PRE_VOTE_REPLY and not message.reject:
            return True
        if kind == layout.RAFT_KIND_VOTE and not message.force and self.is_sticky():
            return False
        self.become_follower(message.term, message.source if comes_from_leader(kind) else 0)
        return True

    cdef int answer_lower_term(self, Message message) except -1:
        """Lets the sender know the higher term, where it could not find out otherwise.

        A leader of a lower term that is ignored here would never know, and this member's own campaigns are ignored by
        those who follow that leader: both would wait for ever.
        """
        cdef Message reply
        if comes_from_leader(message.kind):
            reply = self.reply_to(message, layout.RAFT_KIND_APPEND_REPLY)
        elif message.kind == layout.RAFT_KIND_PRE_VOTE:
            reply = self.reply_to(message, layout.RAFT_KIND_PRE_VOTE_REPLY)
        elif message.kind == layout.RAFT_KIND_VOTE:
            reply = self.reply_to(message, layout.RAFT_KIND_VOTE_REPLY)
        elif message.kind == layout.RAFT_KIND_READ_INDEX:
            reply = self.reply_to(message, layout.RAFT_KIND_READ_INDEX_REPLY)
        else:
            return 0
        reply.reject = True
        return self.outbox.send(reply)

    cdef int dispatch(self, Message message) except -1:
        cdef uint16_t kind = message.kind
        if kind == layout.RAFT_KIND_APPEND:
            return self.on_append(message)
        if kind == layout.RAFT_KIND_HEARTBEAT:
            return self.on_heartbeat(message)
        if (
            kind == layout.RAFT_KIND_APPEND_REPLY
            or kind == layout.RAFT_KIND_HEARTBEAT_REPLY
            or kind == layout.RAFT_KIND_SNAPSHOT_REPLY
        ):
            return self.on_peer_reply(message)
        if kind == layout.RAFT_KIND_READ_INDEX:
            return self.on_read_request(message)
        if kind == layout.RAFT_KIND_READ_INDEX_REPLY:
            return self.on_read_reply(message)
        if kind == layout.RAFT_KIND_PRE_VOTE:
            return self.on_pre_vote(message)
        if kind == layout.RAFT_KIND_VOTE:
            return self.on_vote(message)
        if kind == layout.RAFT_KIND_PRE_VOTE_REPLY:
            return self.on_vote_reply(message, True)
        if kind == layout.RAFT_KIND_VOTE_REPLY:
            return self.on_vote_reply(message, False)
        if kind == layout.RAFT_KIND_TIMEOUT_NOW:
            return self.on_timeout_now(message)
        if kind == layout.RAFT_KIND_SNAPSHOT_CHUNK:
            return self.on_snapshot_chunk(message)
        return 0

    # Elections

    cdef int on_pre_vote(self, Message message) except -1:
        cdef Message reply
        if self.is_sticky():
            return 0
        reply = self.reply_to(message, layout.RAFT_KIND_PRE_VOTE_REPLY)
        if (message.term > self.outbox.term or may_vote_for(self, message.source)) and self.is_up_to_date(
            message.index, message.log_term
        ):
            # Granted in the term that the asker would campaign in; this member's own does not change.
            reply.term = message.term
        else:
            reply.reject = True
        return self.outbox.send(reply)

    cdef int on_vote(self, Message message) except -1:
        cdef Message reply = self.reply_to(message, layout.RAFT_KIND_VOTE_REPLY)
        if may_vote_for(self, message.source) and self.is_up_to_date(message.index, message.log_term):
            self.outbox.vote = message.source
            self.rearm_election()
            return send_granted_vote(self.outbox, reply)
        reply.reject = True
        return self.outbox.send(reply)

    cdef int on_vote_reply(self, Message message, bint pre) except -1:
        cdef int outcome
        if self.role != (ROLE_PRE_CANDIDATE if pre else ROLE_CANDIDATE):
            return 0
        if not message.reject and message.term != self.outbox.term + (1 if pre else 0):
            return 0
        self.votes.record(message.source, not message.reject)
        outcome = self.votes.outcome(self.configurations.current)
        if outcome == WON:
            return self.become_candidate(False) if pre else self.become_leader()
        if outcome == LOST:
            return self.become_follower(self.outbox.term, 0)
        return 0

    cdef int on_timeout_now(self, Message message) except -1:
        if self.role == ROLE_FOLLOWER and message.source == self.leader and self.may_campaign():
            return self.become_candidate(True)
        return 0

    # Following

    cdef int hear_leader(self, Message message) except -1:
        if self.role != ROLE_FOLLOWER or self.leader != message.source:
            # The winner of this very term.
            self.become_follower(self.outbox.term, message.source)
        self.leader_contact_ms = self.now_ms
        self.rearm_election()
        return 0

    cdef int on_append(self, Message message) except -1:
        cdef uint64_t matched
        if self.role == ROLE_LEADER:
            return 0
        self.hear_leader(message)
        if self.receiver.installing:
            return 0
        if message.index < self.commit_index:
            # What is committed matches, whatever this message says about what is before it.
            return self.acknowledge(self.commit_index)
        if message.index > self.log.last_index or self.log.term_at(message.index) != message.log_term:
            return self.reject_append(message)
        matched = self.match_entries(message)
        self.commit_to(min(message.commit, matched))
        return self.acknowledge(matched)

    cdef int reject_append(self, Message message) except -1:
        """Says where the logs may still agree: the last index here whose term is not above the leader's."""
        cdef Message reply = self.message_to(message.source, layout.RAFT_KIND_APPEND_REPLY)
        reply.reject = True
        reply.index = message.index
        reply.hint_index = self.log.conflict_by_term(min(message.index, self.log.last_index), message.log_term)
        reply.hint_term = self.log.term_at(reply.hint_index)
        return self.outbox.send(reply)

    cdef uint64_t match_entries(self, Message message) except? 0:
        """Takes over what is missing and drops only what contradicts; returns the last index known to match.

        A message that is older than what is here must not shorten the log: entries of a newer message may
        have been acknowledged already.
        """
        cdef uint64_t matched = message.index
        cdef uint64_t term = message.log_term
        cdef Entry entry
        for entry in message.entries:
            if entry.index != matched + 1 or entry.term < term or entry.term > message.term:
                break
            if entry.index <= self.log.last_index and self.log.term_at(entry.index) != entry.term:
                self.truncate(entry.index)
            if entry.index > self.log.last_index:
                try:
                    self.log_entry(entry)
                except ValueError:
                    # A configuration that cannot be read: nothing from here on is ours.
                    break
            matched = entry.index
            term = entry.term
        return matched

    cdef int truncate(self, uint64_t from_index) except -1:
        assert from_index > self.commit_index, "a committed entry is never replaced"
        self.log.truncate(from_index)
        return self.configurations.truncate(from_index)

    cdef int log_entry(self, Entry entry) except -1:
        if entry.kind == layout.ENTRY_KIND_MEMBERSHIP:
            self.configurations.append(entry)
        return self.log.append(entry)

    cdef int acknowledge(self, uint64_t index) except -1:
        cdef Message reply = self.message_to(self.leader, layout.RAFT_KIND_APPEND_REPLY)
        reply.index = index
        return self.outbox.acknowledge_entries(reply)

    cdef int on_heartbeat(self, Message message) except -1:
        if self.role == ROLE_LEADER:
            return 0
        self.hear_leader(message)
        if not self.receiver.installing:
            self.commit_to(min(message.commit, self.log.last_index))
        return self.outbox.acknowledge_term(self.reply_to(message, layout.RAFT_KIND_HEARTBEAT_REPLY))

    cdef int commit_to(self, uint64_t index) except -1:
        if index > self.commit_index:
            self.commit_index = index
        return 0

    # Receiving a snapshot

    cdef int on_snapshot_chunk(self, Message message) except -1:
        cdef Message reply
        if self.role == ROLE_LEADER:
            return 0
        self.hear_leader(message)
        if message.index <= self.commit_index:
            return self.acknowledge(self.commit_index)
        if not self.receiver.accept(message):
            reply = self.reply_to(message, layout.RAFT_KIND_SNAPSHOT_REPLY)
            if message.context == self.receiver.snapshot_id:
                reply.hint_index = self.receiver.offset
            else:
                reply.reject = True
            self.outbox.send(reply)
        return 0

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
            self.acknowledge(index)

    def snapshot_refused(self, uint64_t snapshot_id):
        if self.receiver.snapshot_id == snapshot_id:
            self.receiver.forget()

    # Leading

    cdef int lead_entry(self, uint16_t kind, bytes data) except -1:
        """Appends an entry of this leader's term and sends it, while its own disk works on it."""
        cdef Entry entry = new_entry(self.outbox.term, self.log.last_index + 1, kind, data)
        self.log_entry(entry)
        if kind == layout.ENTRY_KIND_MEMBERSHIP:
            self.replication.configure(self.configurations.current, entry.index, self.now_ms)
        return self.replication.broadcast_append()

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
        self.refuse_proposal()
        if len(data) > BATCH_BYTES_MAX:
            raise Refused("too-large", f"{len(data)} bytes, at most {BATCH_BYTES_MAX}")
        entry = entry_of_frame(data)
        if (
            entry.term != self.outbox.term
            or entry.index != self.log.last_index + 1
            or entry.kind != layout.ENTRY_KIND_BATCH
        ):
            raise Refused("wrong-position", "seal a batch with the term and next_index of this moment")
        self.lead_entry(layout.ENTRY_KIND_BATCH, data)
        return self.log.last_index

    cdef int refuse_proposal(self) except -1:
        if self.role != ROLE_LEADER:
            raise Refused("not-leader")
        if self.transfer_target:
            raise Refused("transferring")
        if self.log.last_index - self.commit_index >= UNCOMMITTED_ENTRIES_MAX:
            raise Refused("window-full")
        return 0

    def propose_membership(self, members):
        cdef tuple changed
        cdef str reason
        cdef uint64_t promoted
        self.refuse_proposal()
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
        self.lead_entry(
            layout.ENTRY_KIND_MEMBERSHIP,
            encode_membership(self.group, self.outbox.term, self.log.last_index + 1, changed),
        )
        self.maybe_commit()
        return self.log.last_index

    cdef int on_peer_reply(self, Message message) except -1:
        cdef Progress peer = self.peer(message.source)
        if peer is None:
            return 0
        peer.contact_ms = self.now_ms
        if message.kind == layout.RAFT_KIND_HEARTBEAT_REPLY:
            self.replication.heartbeat_reply(peer, message)
            if self.transfer_target == message.source:
                self.try_transfer()
            return self.confirm_reads()
        if message.kind == layout.RAFT_KIND_SNAPSHOT_REPLY:
            return self.replication.snapshot_reply(peer, message, self.now_ms)
        if self.replication.append_reply(peer, message):
            self.maybe_commit()
        if self.transfer_target == message.source:
            self.try_transfer()
        return 0

    cdef int maybe_commit(self) except -1:
        cdef uint64_t index = self.replication.quorum_match()
        if index <= self.commit_index or not may_commit_by_counting(self, index):
            return 0
        self.commit_index = self.replication.commit = index
        return self.after_commit()

    cdef int after_commit(self) except -1:
        if not self.configurations.current.is_voter(self.node) and not change_in_flight(self):
            return self.leave_after_removal()
        if self.notice_due_ms == UINT64_MAX:
            self.notice_due_ms = self.now_ms + self.settings.commit_notice_ms
        return 0

    cdef int leave_after_removal(self) except -1:
        """Its own removal is committed: it tells the others, names a successor, and stops leading."""
        cdef Progress successor = self.replication.most_advanced()
        self.replication.broadcast_commit()
        if successor is not None:
            self.outbox.send(self.message_to(successor.node, layout.RAFT_KIND_TIMEOUT_NOW))
        return self.become_follower(self.outbox.term, 0)

    def transfer(self, uint64_t target):
        if self.role != ROLE_LEADER:
            raise Refused("not-leader")
        if target == self.node or not self.configurations.current.may_lead(target):
            raise Refused("invalid-target", f"node {target} is not another voter of this group")
        self.transfer_target = target
        self.transfer_due_ms = self.now_ms + self.settings.election_ms_max
        self.try_transfer()

    cdef int try_transfer(self) except -1:
        cdef Progress peer
        if self.role != ROLE_LEADER:
            return 0
        peer = self.peer(self.transfer_target)
        if peer is not None and peer.match == self.log.last_index:
            self.outbox.send(self.message_to(peer.node, layout.RAFT_KIND_TIMEOUT_NOW))
        return 0

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

    cdef int on_read_request(self, Message message) except -1:
        cdef Message reply
        if self.role == ROLE_LEADER and self.reads.add_request(message.source, message.context):
            return 0
        reply = self.reply_to(message, layout.RAFT_KIND_READ_INDEX_REPLY)
        reply.reject = True
        return self.outbox.send(reply)

    cdef int on_read_reply(self, Message message) except -1:
        if self.role == ROLE_FOLLOWER and message.source == self.leader:
            return self.reads.answered(message.context, message.index, message.reject)
        return 0

    cdef int flush_reads(self) except -1:
        """Everything asked since the last flush goes out as one batch."""
        cdef Message message
        if not self.reads.has_fresh():
            return 0
        if self.role == ROLE_LEADER:
            if not may_serve_reads(self):
                return 0
            self.replication.broadcast_heartbeat(self.reads.number(self.commit_index))
            self.heartbeat_due_ms = self.now_ms + self.settings.heartbeat_ms
            return self.confirm_reads()
        if self.leader == 0:
            return self.reads.lose_all()
        message = self.message_to(self.leader, layout.RAFT_KIND_READ_INDEX)
        message.context = self.reads.ask(self.now_ms + self.settings.election_ms_max)
        return self.outbox.send(message)

    cdef int confirm_reads(self) except -1:
        cdef ReadBatch batch
        cdef Message reply
        for batch in self.reads.take_confirmed(self.replication.quorum_read()):
            reply = self.message_to(batch.source, layout.RAFT_KIND_READ_INDEX_REPLY)
            reply.context = batch.context
            reply.index = batch.index
            self.outbox.send(reply)
        return 0

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
        self.flush_reads()
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
            self.maybe_commit()
        else:
            self.count_own_vote()
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


# The decisions that safety rests on, each by its name.

cdef inline bint comes_from_leader(uint16_t kind) noexcept:
    return (
        kind == layout.RAFT_KIND_APPEND
        or kind == layout.RAFT_KIND_HEARTBEAT
        or kind == layout.RAFT_KIND_SNAPSHOT_CHUNK
        or kind == layout.RAFT_KIND_TIMEOUT_NOW
    )


cdef inline bint may_vote_for(Raft raft, uint64_t candidate) noexcept:
    """One vote a term, and none once the term has its leader."""
    return raft.outbox.vote == candidate or (raft.outbox.vote == 0 and raft.leader == 0)


cdef inline int send_granted_vote(Outbox outbox, Message reply) except -1:
    return outbox.send_after_write(reply)


cdef inline bint may_commit_by_counting(Raft raft, uint64_t index) noexcept:
    """Only an entry of the leader's own term: an older one may be on a majority and still be replaced."""
    return raft.log.term_at(index) == raft.outbox.term


cdef inline bint may_serve_reads(Raft raft) noexcept:
    """Before its first commit a leader does not know how far its predecessors committed."""
    return raft.committed_in_term()


cdef inline bint may_change_members(Raft raft) noexcept:
    """Before its first commit a leader may still have a rival whose change it does not know."""
    return raft.committed_in_term()


cdef inline bint change_in_flight(Raft raft) noexcept:
    return raft.configurations.current.index > raft.commit_index


cdef inline bint lost_its_majority(Raft raft) noexcept:
    return raft.now_ms > raft.replication.quorum_contact_ms(raft.now_ms) + raft.settings.election_ms_max
