"""release, cancelWait, forceRelease, endDelay, and the fenced values."""


cdef uint32_t row_for(table_t* t, const command_t* command, const hint_t* hint, uint16_t* slot,
                      outcome_t* reply) noexcept nogil:
    """The key checks of a command with one key; the row, or 0. A refusal is in `reply`, not in the result."""
    cdef uint32_t row
    if not key_is_fine(t, command.key, reply):
        return 0
    row = find_row(t, command.key, hint.hash)
    slot[0] = row_at(t, row).slot if row else key_slot(command.key)
    slot_is_owned(t, slot[0], reply)
    return row


cdef void release(table_t* t, const command_t* command, const hint_t* hint, outcome_t* reply) noexcept nogil:
    cdef uint16_t slot = 0
    cdef uint32_t row = row_for(t, command, hint, &slot, reply)
    cdef uint32_t lease, claim
    if reply.code != CODE_OK or not lease_is_named(command, reply):
        return
    lease = find_live_lease(t, command.lease_high, command.lease_low)
    if lease == 0:
        reply.code = CODE_LEASE_LOST
        return
    claim = find_holder(t, row, lease, command.token) if row else 0
    if claim == 0:
        reply.code = CODE_STALE_TOKEN
        return
    reply.revision = depart(t, claim, EVENT_KIND_RELEASED, NOTHING)
    sweep_lease_later(t, lease)
    serve(t, row)


cdef void withdraw(table_t* t, uint32_t handle) noexcept nogil:
    """A wait that is called off leaves all of its queues, which are then served in key order."""
    cdef claim_t* claim = claim_at(t, handle)
    cdef uint32_t row = claim.row
    cdef uint32_t i
    wake(t, CODE_WAIT_CANCELLED, claim, claim.revision)
    if claim.key_total == 0:
        leave(t, handle)
        serve(t, row)
        return
    collect_ring(t, handle)
    t.freed.count = 0
    for i in range(t.linked.count):
        handles_push(&t.freed, claim_at(t, t.linked.items[i]).row)
        leave(t, t.linked.items[i])
    for i in range(t.freed.count):
        serve(t, t.freed.items[i])


cdef void cancel_unseen(table_t* t, const command_t* command, uint32_t session, outcome_t* reply) noexcept nogil:
    """Calls off an acquire that has not come yet, if its session has room to remember that."""
    cdef session_t* client
    cdef outcome_t answer
    if session == 0 or command.target == command.sequence:
        reply.code = CODE_NOT_FOUND
        return
    client = session_at(t, session)
    if (command.target < client.watermark
            or command.target - client.watermark >= t.settings[SETTING_ID_ANSWERS_PER_SESSION_MAX]
            or find_answer(client, command.target) != NULL):
        reply.code = CODE_NOT_FOUND
        return
    memset(&answer, 0, sizeof(answer))
    answer.code = CODE_WAIT_CANCELLED
    answer.kind = COMMAND_ACQUIRE_ALL if command.list_count else COMMAND_ACQUIRE
    record_answer(client, command.target, &answer)


cdef void release_claims(table_t* t, const command_t* command, uint32_t lease, outcome_t* reply) noexcept nogil:
    """Lets (lease, request) go wherever it holds one of the rows in t.found."""
    cdef uint32_t i, row, claim
    for i in range(t.found.count):
        row = t.found.items[i]
        claim = find_claim(t, row, lease, command.request) if row else 0
        if claim == 0 or claim_waits(claim_at(t, claim)):
            continue
        reply.revision = depart(t, claim, EVENT_KIND_RELEASED, NOTHING)
        reply.count += 1
        serve(t, row)


cdef void cancel_wait(table_t* t, const command_t* command, const hint_t* hint, uint32_t session,
                      outcome_t* reply) noexcept nogil:
    cdef uint16_t slot = 0
    cdef uint32_t row, lease, claim
    if command.list_count:
        if not find_keys(t, command, &slot, reply):
            return
    else:
        row = row_for(t, command, hint, &slot, reply)
        if reply.code != CODE_OK:
            return
        t.found.count = 0
        handles_push(&t.found, row)
    if not lease_is_named(command, reply):
        return
    row = t.found.items[0]
    lease = find_live_lease(t, command.lease_high, command.lease_low)
    claim = find_claim(t, row, lease, command.request) if row and lease else 0
    if claim == 0:
        cancel_unseen(t, command, session, reply)
        return
    if claim_waits(claim_at(t, claim)):
        withdraw(t, claim)
    else:
        release_claims(t, command, lease, reply)
    sweep_lease_later(t, lease)


cdef uint32_t holder_with(table_t* t, const row_t* row, uint64_t token) noexcept nogil:
    cdef uint32_t handle = row.holder_first
    while handle and claim_at(t, handle).revision != token:
        handle = claim_at(t, handle).next
    return handle


cdef uint64_t force_out(table_t* t, uint32_t claim, slice_t why) noexcept nogil:
    cdef uint32_t lease = claim_at(t, claim).lease
    cdef uint64_t revision = depart(t, claim, EVENT_KIND_FORCED, why)
    touch_lease(t, lease)
    lease_at(t, lease).lost_revision = revision
    sweep_lease_later(t, lease)
    return revision


cdef slice_t actor_and_reason(table_t* t, const command_t* command) noexcept nogil:
    cdef slice_t why
    t.scratch.size = 0
    if buffer_reserve(&t.scratch, <size_t>command.owner.size + command.value.size + 1) != 0:
        out_of_memory()
    why.data = t.scratch.data
    why.size = command.owner.size + 1 + command.value.size
    if command.owner.size:
        memcpy(t.scratch.data, command.owner.data, command.owner.size)
    t.scratch.data[command.owner.size] = c'\n'
    if command.value.size:
        memcpy(t.scratch.data + command.owner.size + 1, command.value.data, command.value.size)
    return why


cdef void force_release(table_t* t, const command_t* command, const hint_t* hint, outcome_t* reply) noexcept nogil:
    cdef uint16_t slot = 0
    cdef uint32_t row = row_for(t, command, hint, &slot, reply)
    cdef uint32_t claim
    cdef row_t* lock
    if reply.code != CODE_OK:
        return
    if (command.owner.size > t.settings[SETTING_ID_OWNER_BYTES_MAX]
            or command.value.size > t.settings[SETTING_ID_OWNER_BYTES_MAX]):
        refuse_limit(reply, SETTING_ID_OWNER_BYTES_MAX)
        return
    if row == 0:
        reply.code = CODE_NOT_FOUND
        return
    lock = row_at(t, row)
    if command.token:
        claim = holder_with(t, lock, command.token)
        if claim == 0:
            reply.code = CODE_STALE_TOKEN
            return
    elif lock.holder_first == 0 and not row_is_delayed(t, lock):
        reply.code = CODE_NOT_FOUND
        return
    else:
        claim = lock.holder_first
    # The row's image may need the scratch buffer that the event's value is about to take.
    touch_row(t, row)
    reply.revision = t.revision
    force_holders(t, command, lock, claim, reply)
    if row_is_delayed(t, lock):
        drop_delay(t, lock)
    serve(t, row)
    sweep_row_later(t, row)


cdef void force_holders(table_t* t, const command_t* command, row_t* lock, uint32_t claim,
                        outcome_t* reply) noexcept nogil:
    """Forces out one holder, or all of them if the command names no token."""
    cdef uint32_t after
    while claim:
        after = claim_at(t, claim).next if command.token == 0 else 0
        touch_lease(t, claim_at(t, claim).lease)
        reply.revision = force_out(t, claim, actor_and_reason(t, command))
        reply.count += 1
        claim = after


cdef void end_delay(table_t* t, const command_t* command, const hint_t* hint, outcome_t* reply) noexcept nogil:
    cdef uint16_t slot = 0
    cdef uint32_t row = row_for(t, command, hint, &slot, reply)
    cdef row_t* lock
    if reply.code != CODE_OK:
        return
    if row == 0 or not row_is_delayed(t, row_at(t, row)):
        reply.code = CODE_NOT_FOUND
        return
    lock = row_at(t, row)
    if extra_at(t, lock.extra).delay_generation != command.generation:
        reply.code = CODE_STALE_GENERATION
        return
    touch_row(t, row)
    drop_delay(t, lock)
    reply.revision = next_revision(t)
    tell(t, EVENT_KIND_DELAY_ENDED, reply.revision, lock, NULL, 0, NOTHING)
    serve(t, row)
    sweep_row_later(t, row)


cdef bint may_write(table_t* t, const command_t* command, uint32_t row, uint32_t* holder,
                    outcome_t* reply) noexcept nogil:
    """Whether the command's token, or its having none, lets it change the value."""
    cdef uint32_t lease
    holder[0] = 0
    if command.token == 0:
        if row and row_at(t, row).holder_first:
            reply.code = CODE_HELD_BY_OTHER
            return False
        return True
    lease = find_live_lease(t, command.lease_high, command.lease_low)
    if lease == 0:
        reply.code = CODE_LEASE_LOST
        return False
    holder[0] = find_holder(t, row, lease, command.token) if row else 0
    if holder[0] == 0:
        reply.code = CODE_STALE_TOKEN
        return False
    return True


cdef inline claim_t* claim_or_null(table_t* t, uint32_t handle) noexcept nogil:
    return claim_at(t, handle) if handle else NULL


cdef void put_value(table_t* t, const command_t* command, const hint_t* hint, outcome_t* reply) noexcept nogil:
    cdef uint16_t slot = 0
    cdef uint32_t row = row_for(t, command, hint, &slot, reply)
    cdef uint32_t holder = 0
    cdef extra_t* extra
    cdef slice_t value = command.value
    if reply.code != CODE_OK or (command.token and not lease_is_named(command, reply)):
        return
    if value.size > t.settings[SETTING_ID_VALUE_BYTES_MAX]:
        refuse_limit(reply, SETTING_ID_VALUE_BYTES_MAX)
        return
    if not may_write(t, command, row, &holder, reply):
        return
    if row == 0 and t.rows.live >= t.settings[SETTING_ID_LOCKS_MAX]:
        refuse_limit(reply, SETTING_ID_LOCKS_MAX)
        return
    row = need_row(t, row, command.key, hint.hash, slot)
    extra = need_extra(t, row_at(t, row))
    free(extra.value)
    extra.value = copy_of(value)
    extra.value_size = value.size
    extra.value_token = command.token
    extra.value_revision = reply.revision = next_revision(t)
    if value.size == 0:
        value = NOTHING
    tell(t, EVENT_KIND_PUT, reply.revision, row_at(t, row), claim_or_null(t, holder), command.token, value)


cdef void delete_value(table_t* t, const command_t* command, const hint_t* hint, outcome_t* reply) noexcept nogil:
    cdef uint16_t slot = 0
    cdef uint32_t row = row_for(t, command, hint, &slot, reply)
    cdef uint32_t holder = 0
    if reply.code != CODE_OK or (command.token and not lease_is_named(command, reply)):
        return
    if not may_write(t, command, row, &holder, reply):
        return
    if row == 0 or not row_has_value(t, row_at(t, row)):
        reply.code = CODE_NOT_FOUND
        return
    touch_row(t, row)
    drop_value(t, row_at(t, row))
    reply.revision = next_revision(t)
    tell(t, EVENT_KIND_DELETED, reply.revision, row_at(t, row), claim_or_null(t, holder), command.token, NOTHING)
    sweep_row_later(t, row)
