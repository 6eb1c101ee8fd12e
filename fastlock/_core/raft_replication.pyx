"""A leader's side of replication: who has what, what to send next, and what a majority has."""

cimport cython
from libc.stdint cimport UINT64_MAX, uint64_t

from collections import namedtuple

from fastlock._core cimport layout
from fastlock._core.commands cimport BATCH_BYTES_MAX
from fastlock._core.raft_log cimport RaftLog
from fastlock._core.raft_membership cimport Configuration, quorum_value
from fastlock._core.raft_message cimport MEMBERS_MAX, Entry, Member, Message, new_message
from fastlock._core.raft_outbox cimport Outbox
from fastlock._core.raft_progress cimport PROBE, REPLICATE, SNAPSHOT, Progress


cdef enum:
    # How many entries a learner may still lack when it is promoted.
    PROMOTION_LAG_MAX = 64

EntriesWanted = namedtuple("EntriesWanted", "node first last bytes_max")
ChunkWanted = namedtuple("ChunkWanted", "node snapshot_id offset")


@cython.final
cdef class Replication:
    def __init__(
        self, RaftLog log, Outbox outbox, settings, group, uint64_t node, uint64_t term, uint64_t commit,
        Configuration configuration, uint64_t now_ms,
    ):
        self.log = log
        self.outbox = outbox
        self.settings = settings
        self.group = group
        self.node = node
        self.term = term
        self.commit = commit
        self.peers = []
        self.entries_wanted = []
        self.snapshots_wanted = []
        self.chunks_wanted = []
        self.configure(configuration, log.last_index + 1, now_ms)

    cdef Progress peer(self, uint64_t node):
        for peer in self.peers:
            if (<Progress>peer).node == node:
                return <Progress>peer
        return None

    cdef int configure(self, Configuration configuration, uint64_t next_index, uint64_t now_ms) except -1:
        """Follows a change of members. A new member, or one under a new incarnation, is probed from `next_index` on."""
        cdef list peers = []
        cdef Member member
        cdef Progress known
        for member in configuration.members:
            if member.node == self.node:
                continue
            known = self.peer(member.node)
            if known is None or known.incarnation != member.incarnation:
                known = Progress(
                    member.node, member.incarnation, next_index, now_ms,
                    self.settings.inflight_messages_max, self.settings.inflight_bytes_max,
                )
            peers.append(known)
        self.peers = peers
        self.configuration = configuration
        return 0

    # Sending

    cdef Message message_to(self, Progress peer, int kind):
        return new_message(kind, self.group, self.node, peer.node, self.term)

    cdef int send_append(self, Progress peer) except -1:
        """Sends what the peer does not have, as far as its window goes."""
        cdef RaftLog log = self.log
        while peer.next <= log.last_index and not peer.is_paused():
            if peer.next <= log.base_index:
                return self.send_missing(peer)
            self.emit_append(
                peer,
                log.term_at(peer.next - 1),
                log.slice_from(peer.next, log.last_index, self.settings.append_bytes_max),
            )
        return 0

    cdef int send_empty(self, Progress peer) except -1:
        """An append without entries: the answer says whether the peer has everything before `next`."""
        if peer.next <= self.log.base_index:
            return 0 if peer.is_paused() else self.send_missing(peer)
        cdef Message message = self.message_to(peer, layout.RAFT_KIND_APPEND)
        message.index = peer.next - 1
        message.log_term = self.log.term_at(message.index)
        message.commit = self.commit
        if message.index >= self.commit:
            peer.commit_sent = self.commit
        return self.outbox.send(message)

    cdef int emit_append(self, Progress peer, uint64_t previous_term, list entries) except -1:
        cdef Message message = self.message_to(peer, layout.RAFT_KIND_APPEND)
        cdef uint64_t size = 0
        for entry in entries:
            size += len((<Entry>entry).data)
        message.index = peer.next - 1
        message.log_term = previous_term
        message.commit = self.commit
        message.entries = entries
        if message.index + len(entries) >= self.commit:
            peer.commit_sent = self.commit
        peer.sent(message.index + len(entries), size)
        return self.outbox.send(message)

    cdef int send_missing(self, Progress peer) except -1:
        """The next entry is not in memory: it comes from storage or, where the log was cut, in a snapshot."""
        cdef uint64_t previous = peer.next - 1
        if self.log.in_storage_after(previous):
            # The entry before comes along for its term, unless that is known.
            peer.fetching = True
            self.entries_wanted.append(EntriesWanted(
                peer.node,
                peer.next if previous == self.log.cut_index else previous,
                self.log.base_index,
                # Room for two at least: with the entry before alone the peer would get nothing, for ever.
                max(self.settings.append_bytes_max, <uint64_t>2 * BATCH_BYTES_MAX),
            ))
        else:
            peer.become_snapshot()
            self.snapshots_wanted.append(peer.node)
        return 0

    cdef int broadcast_append(self) except -1:
        for peer in self.peers:
            self.send_append(<Progress>peer)
        return 0

    cdef int broadcast_heartbeat(self, uint64_t read_id) except -1:
        cdef Message message
        for peer in self.peers:
            message = self.message_to(<Progress>peer, layout.RAFT_KIND_HEARTBEAT)
            message.commit = min((<Progress>peer).match, self.commit)
            message.context = read_id
            self.outbox.send(message)
        return 0

    cdef int broadcast_commit(self) except -1:
        """Tells whoever has the committed entries and was not told by an append that they are committed."""
        for peer in self.peers:
            if (<Progress>peer).state == REPLICATE and (<Progress>peer).commit_sent < self.commit:
                self.send_empty(<Progress>peer)
                (<Progress>peer).commit_sent = self.commit
        return 0

    cdef bint commit_unsaid(self):
        for peer in self.peers:
            if (<Progress>peer).state == REPLICATE and (<Progress>peer).commit_sent < self.commit:
                return True
        return False

    # Answers

    cdef bint append_reply(self, Progress peer, Message message) except -1:
        """True if a majority may have moved."""
        cdef uint64_t hint
        if message.reject:
            hint = self.log.conflict_by_term(message.hint_index, message.hint_term)
            if peer.rejected(message.index, hint):
                self.probe(peer)
            return False
        if message.index > self.log.last_index:
            return False
        if not peer.acknowledged(message.index):
            return False
        self.send_append(peer)
        return True

    cdef int probe(self, Progress peer) except -1:
        if peer.next <= self.log.last_index:
            return self.send_append(peer)
        self.send_empty(peer)
        peer.paused = peer.state == PROBE and not peer.fetching
        return 0

    cdef int heartbeat_reply(self, Progress peer, Message message) except -1:
        """The link works, so whatever is missing by now was lost on the way, or waits for the peer's disk."""
        if message.context > peer.read_confirmed:
            peer.read_confirmed = message.context
        peer.paused = False
        if peer.match >= self.log.last_index:
            return 0
        if peer.state == REPLICATE and peer.next <= self.log.base_index and not peer.fetching:
            # Memory cannot tell the term before `next`, so whether something was lost is found out from `match` on.
            peer.become_probe()
        if peer.state == PROBE:
            self.probe(peer)
        elif peer.state == REPLICATE:
            if peer.next <= self.log.last_index and not peer.is_paused():
                self.send_append(peer)
            else:
                self.send_empty(peer)
        return 0

    # What storage supplies

    cdef int supply_entries(self, Progress peer, list entries) except -1:
        cdef uint64_t previous = peer.next - 1
        cdef uint64_t previous_term = self.log.cut_term
        cdef Py_ssize_t position
        if not peer.fetching:
            return 0
        if entries and (<Entry?>entries[0]).index == previous:
            previous_term = (<Entry>entries[0]).term
            entries = entries[1:]
        elif entries and ((<Entry>entries[0]).index != peer.next or previous != self.log.cut_index):
            # The answer to an earlier request; the peer's place in the log moved since.
            return 0
        peer.fetching = False
        if not entries:
            # Cut in the meantime: the next attempt ends in a snapshot once log_cut was told.
            peer.paused = peer.state == PROBE
            return 0
        for position in range(len(entries)):
            if (<Entry?>entries[position]).index != peer.next + <uint64_t>position:
                raise ValueError(f"entries from {peer.next} on were wanted, and they must be without a gap")
        if not peer.is_paused():
            self.emit_append(peer, previous_term, entries)
            self.send_append(peer)
        return 0

    cdef int begin_snapshot(
        self, Progress peer, uint64_t snapshot_id, uint64_t index, uint64_t term, tuple members, uint64_t now_ms
    ) except -1:
        if peer.state != SNAPSHOT:
            return 0
        if snapshot_id == 0 or index < self.log.cut_index or index > self.commit:
            # The log does not go on from there: the peer would be left with a gap.
            return self.end_snapshot(peer)
        peer.snapshot_id = snapshot_id
        peer.snapshot_index = index
        peer.snapshot_term = term
        peer.snapshot_members = members
        peer.snapshot_offset = 0
        return self.want_chunk(peer, now_ms)

    cdef int end_snapshot(self, Progress peer) except -1:
        """No snapshot for now; it is asked for again once the peer answers the next heartbeat."""
        peer.snapshot_id = 0
        peer.become_probe()
        peer.paused = True
        return 0

    cdef int want_chunk(self, Progress peer, uint64_t now_ms) except -1:
        peer.snapshot_due_ms = now_ms + self.settings.election_ms_max
        self.chunks_wanted.append(ChunkWanted(peer.node, peer.snapshot_id, peer.snapshot_offset))
        return 0

    cdef int want_overdue_chunks(self, uint64_t now_ms) except -1:
        cdef Progress peer
        for peer in self.peers:
            if peer.state == SNAPSHOT and peer.snapshot_id and peer.snapshot_due_ms <= now_ms:
                self.want_chunk(peer, now_ms)
        return 0

    cdef uint64_t next_chunk_due_ms(self) noexcept:
        cdef uint64_t due = UINT64_MAX
        for peer in self.peers:
            if (<Progress>peer).state == SNAPSHOT and (<Progress>peer).snapshot_id:
                due = min(due, (<Progress>peer).snapshot_due_ms)
        return due

    cdef int supply_chunk(
        self, Progress peer, uint64_t snapshot_id, uint64_t offset, bytes chunk, bint last, uint64_t now_ms
    ) except -1:
        if peer.state != SNAPSHOT or peer.snapshot_id != snapshot_id or peer.snapshot_offset != offset:
            return 0
        cdef Message message = self.message_to(peer, layout.RAFT_KIND_SNAPSHOT_CHUNK)
        message.index = peer.snapshot_index
        message.log_term = peer.snapshot_term
        message.context = snapshot_id
        message.hint_index = offset
        message.chunk = chunk
        message.last = last
        message.members = peer.snapshot_members
        peer.snapshot_due_ms = now_ms + self.settings.election_ms_max
        return self.outbox.send(message)

    cdef int snapshot_reply(self, Progress peer, Message message, uint64_t now_ms) except -1:
        if peer.state != SNAPSHOT or peer.snapshot_id == 0 or peer.snapshot_id != message.context:
            return 0
        if not message.reject and message.hint_index <= peer.snapshot_offset:
            return 0
        peer.snapshot_offset = message.hint_index
        return self.want_chunk(peer, now_ms)

    # Majorities. Learners count nowhere.

    cdef uint64_t quorum_match(self) noexcept:
        """The last index that a majority has durably; this member counts only what its own disk has."""
        cdef uint64_t values[MEMBERS_MAX]
        cdef int position
        cdef uint64_t node
        for position in range(self.configuration.voter_count):
            node = self.configuration.voters[position]
            values[position] = own_match(self.log) if node == self.node else self.peer(node).match
        return quorum_value(values, self.configuration.voter_count)

    cdef uint64_t quorum_contact_ms(self, uint64_t now_ms) noexcept:
        cdef uint64_t values[MEMBERS_MAX]
        cdef int position
        cdef uint64_t node
        for position in range(self.configuration.voter_count):
            node = self.configuration.voters[position]
            values[position] = now_ms if node == self.node else self.peer(node).contact_ms
        return quorum_value(values, self.configuration.voter_count)

    cdef uint64_t quorum_read(self) noexcept:
        cdef uint64_t values[MEMBERS_MAX]
        cdef int position
        cdef uint64_t node
        for position in range(self.configuration.voter_count):
            node = self.configuration.voters[position]
            values[position] = UINT64_MAX if node == self.node else self.peer(node).read_confirmed
        return quorum_value(values, self.configuration.voter_count)

    cdef Progress most_advanced(self):
        """The member that may lead and has most of the log; None if there is none."""
        cdef Progress best = None
        for peer in self.peers:
            if self.configuration.may_lead((<Progress>peer).node) and (
                best is None or (<Progress>peer).match > best.match
            ):
                best = <Progress>peer
        return best

    cdef bint has_caught_up(self, uint64_t node):
        """Whether a learner has so much of the log that a majority with it would not have to wait."""
        cdef Progress peer = self.peer(node)
        return (
            peer is not None
            and peer.state == REPLICATE
            and peer.match + PROMOTION_LAG_MAX >= self.log.last_index
        )

    cdef uint64_t keep_from(self) noexcept:
        cdef uint64_t keep = UINT64_MAX
        for peer in self.peers:
            if (<Progress>peer).state == SNAPSHOT and (<Progress>peer).snapshot_id:
                keep = min(keep, (<Progress>peer).snapshot_index)
        return keep

    cdef int check(self) except -1:
        cdef Progress peer
        assert self.commit <= self.log.last_index
        for peer in self.peers:
            assert peer.node != self.node
            assert peer.match < peer.next <= self.log.last_index + 1
            assert 0 <= peer.inflight_count <= peer.ring_capacity
            assert peer.inflight_count == 0 or peer.state == REPLICATE
            assert peer.inflight_count > 0 or peer.inflight_bytes == 0
        return 0


cdef inline uint64_t own_match(RaftLog log) noexcept:
    return log.durable_index
