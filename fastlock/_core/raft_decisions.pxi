"""The decisions that safety rests on, each by its name. Part of raft.pyx."""


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


cdef inline bint own_vote_is_durable(Raft raft) noexcept:
    return raft.outbox.durable_term == raft.outbox.term and raft.outbox.durable_vote == raft.node


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
