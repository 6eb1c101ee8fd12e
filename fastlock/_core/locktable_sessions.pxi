"""Sessions: exactly-once answers (docs/LOCKS.md, "Sessions")."""


cdef enum:
    ANSWERS_CAPACITY_MIN = 8
    SESSION_LIFETIME_MS_MIN = 60_000
    SESSION_LIFETIME_MS_MAX = 4_398_046_511_104  # 2^42


cdef inline answer_t* find_answer(const session_t* session, uint64_t sequence) noexcept nogil:
    cdef answer_t* answer
    if session.capacity == 0 or sequence < session.watermark:
        return NULL
    answer = &session.answers[sequence & (session.capacity - 1)]
    return answer if answer.is_recorded and answer.sequence == sequence else NULL


cdef void grow_answers(session_t* session, uint64_t sequence) noexcept nogil:
    """Makes the ring long enough for every sequence from the watermark to this one."""
    cdef uint64_t capacity = max(session.capacity, <uint32_t>ANSWERS_CAPACITY_MIN)
    cdef answer_t* answers
    cdef answer_t* answer
    cdef uint32_t i
    while sequence - session.watermark >= capacity:
        capacity *= 2
    answers = <answer_t*>calloc(capacity, sizeof(answer_t))
    if answers == NULL:
        out_of_memory()
    for i in range(session.capacity):
        answer = find_answer(session, session.watermark + i)
        if answer != NULL:
            answers[answer.sequence & (capacity - 1)] = answer[0]
    free(session.answers)
    session.answers = answers
    session.capacity = <uint32_t>capacity


cdef void record_answer(session_t* session, uint64_t sequence, const outcome_t* reply) noexcept nogil:
    cdef answer_t* answer
    if session.capacity == 0 or sequence - session.watermark >= session.capacity:
        grow_answers(session, sequence)
    answer = &session.answers[sequence & (session.capacity - 1)]
    answer.is_recorded = 1
    answer.sequence = sequence
    answer.code = reply.code
    answer.kind = reply.kind
    answer.count = reply.count
    answer.detail = reply.detail
    answer.token = reply.token
    answer.revision = reply.revision


cdef inline bint is_acquire(const command_t* command) noexcept nogil:
    return command.kind == COMMAND_ACQUIRE or command.kind == COMMAND_ACQUIRE_ALL


cdef bint look_up(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    """Answers a repeated acquire with the state of its claim; False if it has none."""
    cdef slice_t key = command.key
    cdef uint32_t row, lease, claim
    cdef uint16_t slot
    if command.kind == COMMAND_ACQUIRE_ALL:
        if command.list_count == 0:
            return False
        key = command_item(command, 0)
    slot = key_slot(key)
    if t.slot_states[slot] != SLOT_STATE_OWNED:
        refuse_slot(t, slot, reply)
        return True
    row = find_row(t, key, hash_of_key(t, key))
    lease = find_live_lease(t, command.lease_high, command.lease_low)
    claim = find_claim(t, row, lease, command.request) if row and lease else 0
    if claim == 0:
        return False
    answer_for_claim(t, command, claim, reply)
    return True


cdef inline void answer_for_claim(table_t* t, const command_t* command, uint32_t handle,
                                  outcome_t* reply) noexcept nogil:
    cdef claim_t* claim = claim_at(t, handle)
    reply.revision = claim.revision
    if claim_waits(claim):
        reply.code = CODE_QUEUED
        return
    reply.code = CODE_OK
    reply.token = claim.revision
    reply.count = command.list_count if command.kind == COMMAND_ACQUIRE_ALL else 1


cdef void repeat_answer(table_t* t, const command_t* command, const answer_t* answer,
                        outcome_t* reply) noexcept nogil:
    if answer.code != CODE_QUEUED:
        reply.code = answer.code
        reply.count = answer.count
        reply.detail = answer.detail
        reply.token = answer.token
        reply.revision = answer.revision
    elif not is_acquire(command):
        reply.code = CODE_SEQUENCE_STALE
    elif not look_up(t, command, reply):
        if find_live_lease(t, command.lease_high, command.lease_low):
            reply.code = CODE_WAIT_CANCELLED
        else:
            reply.code = CODE_LEASE_LOST


cdef bint session_decides(table_t* t, const command_t* command, uint32_t handle, outcome_t* reply) noexcept nogil:
    """Steps 1 to 6: whether the command is answered without acting."""
    cdef session_t* session
    cdef answer_t* answer
    if handle == 0:
        reply.code = CODE_SESSION_UNKNOWN
        return True
    if command.acknowledged_below > command.sequence:
        refuse_argument(reply, ARGUMENT_ACKNOWLEDGED_BELOW)
        return True
    touch_session(t, handle)
    session = session_at(t, handle)
    session.uses += 1
    session.last_use_ms = t.now_ms
    if command.acknowledged_below > session.watermark:
        session.watermark = command.acknowledged_below
    if command.sequence < session.watermark:
        if not is_acquire(command) or not look_up(t, command, reply):
            reply.code = CODE_SEQUENCE_STALE
        return True
    if command.sequence - session.watermark >= t.settings[SETTING_ID_ANSWERS_PER_SESSION_MAX]:
        refuse_limit(reply, SETTING_ID_ANSWERS_PER_SESSION_MAX)
        return True
    answer = find_answer(session, command.sequence)
    if answer != NULL:
        repeat_answer(t, command, answer, reply)
        return True
    return False


cdef void open_session(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint64_t lifetime_ms = command.amount_ms
    if command.session:
        refuse_argument(reply, ARGUMENT_SESSION)
        return
    if t.sessions.live >= t.settings[SETTING_ID_SESSIONS_MAX]:
        refuse_limit(reply, SETTING_ID_SESSIONS_MAX)
        return
    if lifetime_ms == 0:
        lifetime_ms = t.settings[SETTING_ID_SESSION_LIFETIME_MS]
    elif lifetime_ms < SESSION_LIFETIME_MS_MIN or lifetime_ms > SESSION_LIFETIME_MS_MAX:
        reply.code = CODE_TTL_OUT_OF_RANGE
        return
    reply.revision = next_revision(t)
    add_session(t, reply.revision, lifetime_ms)


cdef void close_session(table_t* t, const command_t* command, uint32_t session, outcome_t* reply) noexcept nogil:
    if session == 0:
        refuse_argument(reply, ARGUMENT_SESSION)
        return
    remove_session(t, session)


cdef void expire_session(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t handle
    if command.session:
        refuse_argument(reply, ARGUMENT_SESSION)
        return
    handle = find_session(t, command.target)
    if handle == 0:
        reply.code = CODE_SESSION_UNKNOWN
    elif session_at(t, handle).uses != command.generation:
        reply.code = CODE_STALE_GENERATION
        rearm_session(t, handle)
    else:
        remove_session(t, handle)
