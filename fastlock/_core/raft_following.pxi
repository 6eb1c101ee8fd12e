"""What a member does for its leader: append, commit, take over a snapshot. Part of raft.pyx."""


cdef int hear_leader(Raft raft, Message message) except -1:
    if raft.role != ROLE_FOLLOWER or raft.leader != message.source:
        # The winner of this very term.
        become_follower(raft, raft.outbox.term, message.source)
    raft.leader_contact_ms = raft.now_ms
    raft.rearm_election()
    return 0


cdef int on_append(Raft raft, Message message) except -1:
    cdef uint64_t matched
    if raft.role == ROLE_LEADER:
        return 0
    hear_leader(raft, message)
    if raft.receiver.installing:
        return 0
    if message.index < raft.commit_index:
        # What is committed matches, whatever this message says about what is before it.
        return acknowledge(raft, raft.commit_index)
    if message.index > raft.log.last_index or raft.log.term_at(message.index) != message.log_term:
        return reject_append(raft, message)
    matched = match_entries(raft, message)
    commit_to(raft, min(message.commit, matched))
    return acknowledge(raft, matched)


cdef int reject_append(Raft raft, Message message) except -1:
    """Says where the logs may still agree: the last index here whose term is not above the leader's."""
    cdef Message reply = raft.message_to(message.source, layout.RAFT_KIND_APPEND_REPLY)
    reply.reject = True
    reply.index = message.index
    reply.hint_index = raft.log.conflict_by_term(min(message.index, raft.log.last_index), message.log_term)
    reply.hint_term = raft.log.term_at(reply.hint_index)
    return raft.outbox.send(reply)


cdef uint64_t match_entries(Raft raft, Message message) except? 0:
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
        if entry.index <= raft.log.last_index and raft.log.term_at(entry.index) != entry.term:
            truncate(raft, entry.index)
        if entry.index > raft.log.last_index:
            try:
                log_entry(raft, entry)
            except ValueError:
                # A configuration that cannot be read: nothing from here on is ours.
                break
        matched = entry.index
        term = entry.term
    return matched


cdef int truncate(Raft raft, uint64_t from_index) except -1:
    assert from_index > raft.commit_index, "a committed entry is never replaced"
    raft.log.truncate(from_index)
    return raft.configurations.truncate(from_index)


cdef int log_entry(Raft raft, Entry entry) except -1:
    if entry.kind == layout.ENTRY_KIND_MEMBERSHIP:
        raft.configurations.append(entry)
    return raft.log.append(entry)


cdef int acknowledge(Raft raft, uint64_t index) except -1:
    cdef Message reply = raft.message_to(raft.leader, layout.RAFT_KIND_APPEND_REPLY)
    reply.index = index
    return raft.outbox.acknowledge_entries(reply)


cdef int on_heartbeat(Raft raft, Message message) except -1:
    if raft.role == ROLE_LEADER:
        return 0
    hear_leader(raft, message)
    if not raft.receiver.installing:
        commit_to(raft, min(message.commit, raft.log.last_index))
    return raft.outbox.acknowledge_term(raft.reply_to(message, layout.RAFT_KIND_HEARTBEAT_REPLY))


cdef int commit_to(Raft raft, uint64_t index) except -1:
    if index > raft.commit_index:
        raft.commit_index = index
    return 0


cdef int on_snapshot_chunk(Raft raft, Message message) except -1:
    cdef Message reply
    if raft.role == ROLE_LEADER:
        return 0
    hear_leader(raft, message)
    if message.index <= raft.commit_index:
        return acknowledge(raft, raft.commit_index)
    if not raft.receiver.accept(message):
        reply = raft.reply_to(message, layout.RAFT_KIND_SNAPSHOT_REPLY)
        if message.context == raft.receiver.snapshot_id:
            reply.hint_index = raft.receiver.offset
        else:
            reply.reject = True
        raft.outbox.send(reply)
    return 0


cdef int on_read_reply(Raft raft, Message message) except -1:
    if raft.role == ROLE_FOLLOWER and message.source == raft.leader:
        return raft.reads.answered(message.context, message.index, message.reject)
    return 0
