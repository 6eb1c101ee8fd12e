"""How a term gets its leader: roles, pre-votes, votes. Part of raft.pyx."""


cdef int become_follower(Raft raft, uint64_t term, uint64_t leader) except -1:
    if term > raft.outbox.term:
        raft.outbox.term = term
        raft.outbox.vote = 0
    raft.reads.lose_all()
    raft.role = ROLE_FOLLOWER
    raft.leader = leader
    raft.replication = None
    raft.transfer_target = 0
    raft.notice_due_ms = UINT64_MAX
    raft.rearm_election()
    return 0


cdef int become_pre_candidate(Raft raft) except -1:
    """Asks whether a campaign would succeed before it disturbs anyone with a new term."""
    raft.reads.lose_all()
    raft.role = ROLE_PRE_CANDIDATE
    raft.leader = 0
    raft.votes.clear()
    raft.votes.record(raft.node, True)
    ask_for_votes(raft, layout.RAFT_KIND_PRE_VOTE, raft.outbox.term + 1, False)
    if raft.votes.outcome(raft.configurations.current) == WON:
        return become_candidate(raft, False)
    return 0


cdef int become_candidate(Raft raft, bint force) except -1:
    raft.reads.lose_all()
    raft.role = ROLE_CANDIDATE
    raft.leader = 0
    raft.outbox.term += 1
    raft.outbox.vote = raft.node
    raft.votes.clear()
    raft.rearm_election()
    return ask_for_votes(raft, layout.RAFT_KIND_VOTE, raft.outbox.term, force)


cdef int ask_for_votes(Raft raft, uint16_t kind, uint64_t term, bint force) except -1:
    cdef Configuration configuration = raft.configurations.current
    cdef Message message
    cdef int position
    for position in range(configuration.voter_count):
        if configuration.voters[position] == raft.node:
            continue
        message = raft.message_to(configuration.voters[position], kind)
        message.term = term
        message.index = raft.log.last_index
        message.log_term = raft.log.last_term
        message.force = force
        if kind == layout.RAFT_KIND_PRE_VOTE:
            raft.outbox.send(message)
        else:
            # A vote for this log and this term may be used only by a member that cannot forget either.
            raft.outbox.send_after_write(message)
    return 0


cdef int count_own_vote(Raft raft) except -1:
    """A candidate's own vote counts once it is as durable as everyone else's."""
    if raft.role != ROLE_CANDIDATE:
        return 0
    if own_vote_is_durable(raft):
        raft.votes.record(raft.node, True)
        if raft.votes.outcome(raft.configurations.current) == WON:
            become_leader(raft)
    return 0


cdef int become_leader(Raft raft) except -1:
    assert raft.role == ROLE_CANDIDATE and raft.outbox.durable_term == raft.outbox.term
    raft.role = ROLE_LEADER
    raft.leader = raft.node
    raft.replication = Replication(
        raft.log, raft.outbox, raft.settings, raft.group, raft.node, raft.outbox.term, raft.commit_index,
        raft.configurations.current, raft.now_ms,
    )
    raft.heartbeat_due_ms = raft.now_ms + raft.settings.heartbeat_ms
    raft.term_start_index = raft.log.last_index + 1
    return lead_entry(
        raft,
        layout.ENTRY_KIND_NOOP,
        encode_noop(raft.group, raft.outbox.term, raft.log.last_index + 1),
    )


cdef bint take_higher_term(Raft raft, Message message) except -1:
    """Follows a higher term where that is due. False: the message is dropped."""
    cdef uint16_t kind = message.kind
    if kind == layout.RAFT_KIND_PRE_VOTE:
        return True
    if kind == layout.RAFT_KIND_PRE_VOTE_REPLY and not message.reject:
        return True
    if kind == layout.RAFT_KIND_VOTE and not message.force and raft.is_sticky():
        return False
    become_follower(raft, message.term, message.source if comes_from_leader(kind) else 0)
    return True


cdef int answer_lower_term(Raft raft, Message message) except -1:
    """Lets the sender know the higher term, where it could not find out otherwise.

    A leader of a lower term that is ignored here would never know, and this member's own campaigns are ignored by
    those who follow that leader: both would wait for ever.
    """
    cdef Message reply
    if comes_from_leader(message.kind):
        reply = raft.reply_to(message, layout.RAFT_KIND_APPEND_REPLY)
    elif message.kind == layout.RAFT_KIND_PRE_VOTE:
        reply = raft.reply_to(message, layout.RAFT_KIND_PRE_VOTE_REPLY)
    elif message.kind == layout.RAFT_KIND_VOTE:
        reply = raft.reply_to(message, layout.RAFT_KIND_VOTE_REPLY)
    elif message.kind == layout.RAFT_KIND_READ_INDEX:
        reply = raft.reply_to(message, layout.RAFT_KIND_READ_INDEX_REPLY)
    else:
        return 0
    reply.reject = True
    return raft.outbox.send(reply)


cdef int on_pre_vote(Raft raft, Message message) except -1:
    cdef Message reply
    if raft.is_sticky():
        return 0
    reply = raft.reply_to(message, layout.RAFT_KIND_PRE_VOTE_REPLY)
    if (message.term > raft.outbox.term or may_vote_for(raft, message.source)) and raft.is_up_to_date(
        message.index, message.log_term
    ):
        # Granted in the term that the asker would campaign in; this member's own does not change.
        reply.term = message.term
    else:
        reply.reject = True
    return raft.outbox.send(reply)


cdef int on_vote(Raft raft, Message message) except -1:
    cdef Message reply = raft.reply_to(message, layout.RAFT_KIND_VOTE_REPLY)
    if may_vote_for(raft, message.source) and raft.is_up_to_date(message.index, message.log_term):
        raft.outbox.vote = message.source
        raft.rearm_election()
        return send_granted_vote(raft.outbox, reply)
    reply.reject = True
    return raft.outbox.send(reply)


cdef int on_vote_reply(Raft raft, Message message, bint pre) except -1:
    cdef int outcome
    if raft.role != (ROLE_PRE_CANDIDATE if pre else ROLE_CANDIDATE):
        return 0
    if not message.reject and message.term != raft.outbox.term + (1 if pre else 0):
        return 0
    if not pre and not own_vote_is_durable(raft):
        # Nobody was asked yet in this term, so nobody can have answered.
        return 0
    raft.votes.record(message.source, not message.reject)
    outcome = raft.votes.outcome(raft.configurations.current)
    if outcome == WON:
        return become_candidate(raft, False) if pre else become_leader(raft)
    if outcome == LOST:
        return become_follower(raft, raft.outbox.term, 0)
    return 0


cdef int on_timeout_now(Raft raft, Message message) except -1:
    if raft.role == ROLE_FOLLOWER and message.source == raft.leader and raft.may_campaign():
        return become_candidate(raft, True)
    return 0
