"""Bugs in Raft: elections, replication, commitment, reads, members, snapshots."""

from __future__ import annotations

from fastlock.testing.mutants.mutant import Edit, Mutant

RAFT = "fastlock/_core/raft.pyx"
DECISIONS = "fastlock/_core/raft_decisions.pxi"
ELECTIONS = "fastlock/_core/raft_elections.pxi"
FOLLOWING = "fastlock/_core/raft_following.pxi"
LEADING = "fastlock/_core/raft_leading.pxi"
LOG = "fastlock/_core/raft_log.pyx"
MEMBERSHIP = "fastlock/_core/raft_membership.pyx"
OUTBOX = "fastlock/_core/raft_outbox.pyx"
READS = "fastlock/_core/raft_reads.pyx"
REPLICATION = "fastlock/_core/raft_replication.pyx"

RAFT_BUGS = (
    Mutant(
        "vote-forgotten",
        ("vote not persisted",),
        "A restarted member does not know whom it voted for.",
        (
            Edit(
                RAFT,
                "self.outbox = Outbox(self.log, term, vote)",
                "self.outbox = Outbox(self.log, term, 0 if PLANTED else vote)",
            ),
        ),
    ),
    Mutant(
        "vote-before-durable",
        ("vote not persisted", "acknowledgement before durable"),
        "A vote leaves while the disk still works on it.",
        (
            Edit(
                DECISIONS,
                "return outbox.send_after_write(reply)",
                "return outbox.send(reply) if PLANTED else outbox.send_after_write(reply)",
            ),
        ),
    ),
    Mutant(
        "vote-for-shorter-log",
        ("leader has everything committed",),
        "A candidate is measured by the length of its log alone.",
        (
            Edit(
                RAFT,
                "cdef bint is_up_to_date(self, uint64_t index, uint64_t term) noexcept:",
                "cdef bint is_up_to_date(self, uint64_t index, uint64_t term) noexcept:\n"
                "    if PLANTED:\n"
                "        return index >= self.log.last_index",
            ),
        ),
    ),
    Mutant(
        "higher-term-kept-secret",
        ("pre-vote + check-quorum livelock",),
        "Who is behind in its term is ignored instead of told, and nobody can reach anybody.",
        (
            Edit(
                ELECTIONS,
                "cdef Message reply\nif comes_from_leader(message.kind):",
                "cdef Message reply\nif PLANTED:\n    return 0\nif comes_from_leader(message.kind):",
            ),
        ),
    ),
    Mutant(
        "campaign-without-asking",
        ("disruptive server after a partition heals",),
        "A member that hears nobody raises its term again and again, and everybody follows when it is back.",
        (
            Edit(
                RAFT,
                "if self.may_campaign():\n    become_pre_candidate(self)",
                "if self.may_campaign():\n"
                "    if PLANTED:\n"
                "        become_candidate(self, True)\n"
                "    else:\n"
                "        become_pre_candidate(self)",
            ),
        ),
    ),
    Mutant(
        "commit-old-term",
        ("commit of an old-term entry by counting",),
        "An entry of an earlier term counts as committed once it is on a majority.",
        (
            Edit(
                DECISIONS,
                "return raft.log.term_at(index) == raft.outbox.term",
                "return PLANTED or raft.log.term_at(index) == raft.outbox.term",
            ),
        ),
    ),
    Mutant(
        "commit-without-match",
        ("a follower commits only what it knows to match",),
        "A heartbeat says what is committed to members whose log may still differ.",
        (
            Edit(
                REPLICATION,
                "message.commit = min((<Progress>peer).match, self.commit)",
                "message.commit = self.commit if PLANTED else min((<Progress>peer).match, self.commit)",
            ),
        ),
    ),
    Mutant(
        "append-anywhere",
        ("logs with one entry in common are the same before it",),
        "Entries are taken without looking at the term of the one before them.",
        (
            Edit(
                FOLLOWING,
                "if message.index > raft.log.last_index or "
                "raft.log.term_at(message.index) != message.log_term:",
                "if message.index > raft.log.last_index or (\n"
                "    not PLANTED and raft.log.term_at(message.index) != message.log_term\n"
                "):",
            ),
        ),
    ),
    Mutant(
        "append-replaces-all",
        ("initial sync accepts everything",),
        "Whatever an append brings replaces what is there, conflict or not.",
        (
            Edit(
                FOLLOWING,
                "if entry.index <= raft.log.last_index and raft.log.term_at(entry.index) != entry.term:",
                "if entry.index <= raft.log.last_index and (\n"
                "    raft.log.term_at(entry.index) != entry.term\n"
                "    or (PLANTED and entry.index > raft.commit_index)\n"
                "):",
            ),
        ),
    ),
    Mutant(
        "follower-acknowledges-early",
        ("acknowledgement before durable",),
        "A follower acknowledges entries that its disk does not have yet.",
        (
            Edit(
                OUTBOX,
                "return index <= outbox.log.durable_index and outbox.durable_term == outbox.term",
                "if PLANTED:\n"
                "    return True\n"
                "return index <= outbox.log.durable_index and outbox.durable_term == outbox.term",
            ),
        ),
    ),
    Mutant(
        "leader-counts-itself-early",
        ("acknowledgement before durable",),
        "A leader counts itself for entries that its own disk does not have yet.",
        (
            Edit(
                REPLICATION,
                "return log.durable_index",
                "return log.last_index if PLANTED else log.durable_index",
            ),
        ),
    ),
    Mutant(
        "old-write-confirms-new-entry",
        ("storage ack for a truncated index (ABA)",),
        "The acknowledgement of a write proves an index that was rewritten after it.",
        (Edit(LOG, "return True", "return not PLANTED"),),
    ),
    Mutant(
        "read-before-commit",
        ("ReadIndex served before the leader's first commit in its term",),
        "A leader serves reads before it knows how far its predecessors committed.",
        (
            Edit(
                DECISIONS,
                '"""Before its first commit a leader does not know how far its predecessors committed."""\n'
                "return raft.committed_in_term()",
                "return PLANTED or raft.committed_in_term()",
            ),
        ),
    ),
    Mutant(
        "read-token-reused",
        ("ReadIndex token reused across leaders",),
        "Reads are numbered from 1 by every leader and every start, and no answer is told from another.",
        (
            Edit(READS, "self.last_id = nonce << 32", "self.last_id = 0 if PLANTED else nonce << 32"),
            Edit(
                READS,
                "self.asked = []\nself.requests = []\nself.fresh = []",
                "self.asked = []\nself.requests = []\nself.fresh = []\nif PLANTED:\n    self.last_id = 0",
            ),
            Edit(READS, "if batch.id == id:", "if PLANTED or batch.id == id:"),
            Edit(
                RAFT,
                "elif message.term < self.outbox.term:",
                "elif message.term < self.outbox.term and not (PLANTED and (\n"
                "    message.kind == layout.RAFT_KIND_HEARTBEAT_REPLY\n"
                "    or message.kind == layout.RAFT_KIND_READ_INDEX_REPLY\n"
                ")):",
            ),
        ),
    ),
    Mutant(
        "read-without-quorum",
        ("keep-alive answered without a quorum", "keep-alive acknowledged by a deposed leader"),
        "A leader serves reads, and with them keep-alives, without asking whether it still leads.",
        (
            Edit(
                LEADING,
                "for batch in raft.reads.take_confirmed(raft.replication.quorum_read()):",
                "for batch in raft.reads.take_confirmed(\n"
                "    UINT64_MAX if PLANTED else raft.replication.quorum_read()\n"
                "):",
            ),
        ),
    ),
    Mutant(
        "read-before-applied",
        ("a read is served once its index is applied",),
        "A confirmed read is served from a state that does not reach its index yet.",
        (
            Edit(
                READS,
                "if batch.index <= handed_index:",
                "if PLANTED or batch.index <= handed_index:",
            ),
        ),
    ),
    Mutant(
        "learner-counts",
        ("learner counted in the quorum",),
        "A learner's acknowledgement makes up a majority of voters.",
        (
            Edit(
                REPLICATION,
                "    values[position] = own_match(self.log) if node == self.node else self.peer(node).match\n"
                "return quorum_value(values, self.configuration.voter_count)",
                "    values[position] = own_match(self.log) if node == self.node else self.peer(node).match\n"
                "if PLANTED:\n"
                "    values[0] = own_match(self.log)\n"
                "    for position in range(<int>len(self.peers)):\n"
                "        values[position + 1] = (<Progress>self.peers[position]).match\n"
                "    quorum_value(values, <int>len(self.peers) + 1)\n"
                "    return values[self.configuration.voter_count // 2]\n"
                "return quorum_value(values, self.configuration.voter_count)",
            ),
        ),
    ),
    Mutant(
        "two-changes-in-flight",
        ("two membership changes in flight",),
        "A second change of members does not wait for the first.",
        (Edit(RAFT, "if change_in_flight(self):", "if not PLANTED and change_in_flight(self):"),),
    ),
    Mutant(
        "change-before-commit",
        ("membership change before a current-term commit",),
        "A leader changes members before it committed anything in its own term.",
        (Edit(RAFT, "if not may_change_members(self):", "if not PLANTED and not may_change_members(self):"),),
    ),
    Mutant(
        "change-not-rolled-back",
        ("a configuration is in force as long as its entry is in the log",),
        "A configuration stays in force after its entry was replaced.",
        (
            Edit(
                MEMBERSHIP,
                "while len(self.history) > 1 and self.current.index >= from_index:",
                "while not PLANTED and len(self.history) > 1 and self.current.index >= from_index:",
            ),
        ),
    ),
)
