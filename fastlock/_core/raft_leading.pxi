"""What a leader does: log, count, commit, confirm reads, hand over, leave. Part of raft.pyx."""


cdef int tick_leader(Raft raft) except -1:
    cdef Replication replication = raft.replication
    if lost_its_majority(raft):
        return become_follower(raft, raft.outbox.term, 0)
    if raft.transfer_target and raft.now_ms >= raft.transfer_due_ms:
        raft.transfer_target = 0
    if raft.now_ms >= raft.heartbeat_due_ms:
        raft.heartbeat_due_ms = raft.now_ms + raft.settings.heartbeat_ms
        replication.broadcast_heartbeat(raft.reads.last_id)
    if raft.now_ms >= raft.notice_due_ms:
        raft.notice_due_ms = UINT64_MAX
        replication.broadcast_commit()
    return replication.want_overdue_chunks(raft.now_ms)


cdef int refuse_proposal(Raft raft) except -1:
    if raft.role != ROLE_LEADER:
        raise Refused("not-leader")
    if raft.transfer_target:
        raise Refused("transferring")
    if raft.log.last_index - raft.commit_index >= UNCOMMITTED_ENTRIES_MAX:
        raise Refused("window-full")
    return 0


cdef int lead_entry(Raft raft, uint16_t kind, bytes data) except -1:
    """Appends an entry of this leader's term and sends it, while its own disk works on it."""
    cdef Entry entry = new_entry(raft.outbox.term, raft.log.last_index + 1, kind, data)
    log_entry(raft, entry)
    if kind == layout.ENTRY_KIND_MEMBERSHIP:
        raft.replication.configure(raft.configurations.current, entry.index, raft.now_ms)
    return raft.replication.broadcast_append()


cdef int on_peer_reply(Raft raft, Message message) except -1:
    cdef Progress peer = raft.peer(message.source)
    if peer is None:
        return 0
    peer.contact_ms = raft.now_ms
    if message.kind == layout.RAFT_KIND_HEARTBEAT_REPLY:
        raft.replication.heartbeat_reply(peer, message)
        if raft.transfer_target == message.source:
            try_transfer(raft)
        return confirm_reads(raft)
    if message.kind == layout.RAFT_KIND_SNAPSHOT_REPLY:
        return raft.replication.snapshot_reply(peer, message, raft.now_ms)
    if raft.replication.append_reply(peer, message):
        maybe_commit(raft)
    if raft.transfer_target == message.source:
        try_transfer(raft)
    return 0


cdef int maybe_commit(Raft raft) except -1:
    cdef uint64_t index = raft.replication.quorum_match()
    if index <= raft.commit_index or not may_commit_by_counting(raft, index):
        return 0
    raft.commit_index = raft.replication.commit = index
    return after_commit(raft)


cdef int after_commit(Raft raft) except -1:
    if not raft.configurations.current.is_voter(raft.node) and not change_in_flight(raft):
        return leave_after_removal(raft)
    if raft.notice_due_ms == UINT64_MAX:
        raft.notice_due_ms = raft.now_ms + raft.settings.commit_notice_ms
    return 0


cdef int leave_after_removal(Raft raft) except -1:
    """Its own removal is committed: it tells the others, names a successor, and stops leading."""
    cdef Progress successor = raft.replication.most_advanced()
    raft.replication.broadcast_commit()
    if successor is not None:
        raft.outbox.send(raft.message_to(successor.node, layout.RAFT_KIND_TIMEOUT_NOW))
    return become_follower(raft, raft.outbox.term, 0)


cdef int try_transfer(Raft raft) except -1:
    cdef Progress peer
    if raft.role != ROLE_LEADER:
        return 0
    peer = raft.peer(raft.transfer_target)
    if peer is not None and peer.match == raft.log.last_index:
        raft.outbox.send(raft.message_to(peer.node, layout.RAFT_KIND_TIMEOUT_NOW))
    return 0


cdef int on_read_request(Raft raft, Message message) except -1:
    cdef Message reply
    if raft.role == ROLE_LEADER and raft.reads.add_request(message.source, message.context):
        return 0
    reply = raft.reply_to(message, layout.RAFT_KIND_READ_INDEX_REPLY)
    reply.reject = True
    return raft.outbox.send(reply)


cdef int flush_reads(Raft raft) except -1:
    """Everything asked since the last flush goes out as one batch."""
    cdef Message message
    if not raft.reads.has_fresh():
        return 0
    if raft.role == ROLE_LEADER:
        if not may_serve_reads(raft):
            return 0
        raft.replication.broadcast_heartbeat(raft.reads.number(raft.commit_index))
        raft.heartbeat_due_ms = raft.now_ms + raft.settings.heartbeat_ms
        return confirm_reads(raft)
    if raft.leader == 0:
        return raft.reads.lose_all()
    message = raft.message_to(raft.leader, layout.RAFT_KIND_READ_INDEX)
    message.context = raft.reads.ask(raft.now_ms + raft.settings.election_ms_max)
    return raft.outbox.send(message)


cdef int confirm_reads(Raft raft) except -1:
    cdef ReadBatch batch
    cdef Message reply
    for batch in raft.reads.take_confirmed(raft.replication.quorum_read()):
        reply = raft.message_to(batch.source, layout.RAFT_KIND_READ_INDEX_REPLY)
        reply.context = batch.context
        reply.index = batch.index
        raft.outbox.send(reply)
    return 0
