"""acquire and acquireAll."""


cdef inline uint32_t units_of(const command_t* command) noexcept nogil:
    return command.count if command.mode == LOCK_MODE_SEMAPHORE and command.count else 1


cdef bint check_capacity(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    """limit and count, which only an acquire has."""
    if command.mode != LOCK_MODE_SEMAPHORE:
        if command.limit > 1:
            refuse_argument(reply, ARGUMENT_LIMIT)
            return False
        if command.count > 1:
            refuse_argument(reply, ARGUMENT_COUNT)
            return False
        return True
    if command.limit == 0:
        refuse_argument(reply, ARGUMENT_LIMIT)
        return False
    if command.limit > t.settings[SETTING_ID_SEMAPHORE_LIMIT_MAX]:
        refuse_limit(reply, SETTING_ID_SEMAPHORE_LIMIT_MAX)
        return False
    if command.count > command.limit:
        refuse_argument(reply, ARGUMENT_COUNT)
        return False
    return True


cdef inline bint check_acquire(table_t* t, const command_t* command, uint32_t modes, uint32_t lease,
                               outcome_t* reply) noexcept nogil:
    """What both acquires check between keys and rows; `lease` is find_lease's, modes below `modes` are known."""
    if not lease_is_named(command, reply):
        return False
    if command.mode >= modes:
        refuse_argument(reply, ARGUMENT_MODE)
        return False
    if command.lease_use >= LEASE_USE_TOTAL:
        refuse_argument(reply, ARGUMENT_LEASE_USE)
        return False
    if not check_capacity(t, command, reply):
        return False
    if command.lock_delay_ms > t.settings[SETTING_ID_LOCK_DELAY_MS_MAX]:
        refuse_limit(reply, SETTING_ID_LOCK_DELAY_MS_MAX)
        return False
    if command.lease_use != LEASE_USE_EXISTING:
        return may_create_lease(t, command, lease != 0, reply)
    if lease == 0 or lease_at(t, lease).generation == 0:
        reply.code = CODE_LEASE_LOST
        return False
    return True


cdef inline bint mode_differs(table_t* t, const row_t* row, const command_t* command) noexcept nogil:
    if row.mode == ROW_MODE_FREE:
        return False
    if command.mode == LOCK_MODE_SEMAPHORE:
        return row.mode != ROW_MODE_SEMAPHORE or extra_at(t, row.extra).limit != command.limit
    return row.mode != ROW_MODE_LOCK


cdef inline bint is_eligible(table_t* t, uint32_t row, const command_t* command) noexcept nogil:
    cdef row_t* lock
    if row == 0:
        return True
    lock = row_at(t, row)
    return (lock.waiter_first == 0 and not row_is_delayed(t, lock)
            and fits(t, lock, command.mode, units_of(command)))


cdef void refuse_busy(table_t* t, uint32_t row, outcome_t* reply) noexcept nogil:
    cdef row_t* lock = row_at(t, row)
    reply.code = CODE_LOCK_DELAYED if row_is_delayed(t, lock) else CODE_NOT_ACQUIRED
    reply.count = lock.waiter_count
    reply.token = claim_at(t, lock.holder_first).revision if lock.holder_first else 0


cdef inline bint check_room(table_t* t, uint32_t lease, uint32_t claims, uint32_t rows,
                            outcome_t* reply) noexcept nogil:
    """The limits on a lease's claims and on the group's rows; `lease` is 0 if it is yet to be created."""
    cdef uint64_t claim_count = lease_at(t, lease).claim_count if lease else 0
    if claim_count + claims > t.settings[SETTING_ID_CLAIMS_PER_LEASE_MAX]:
        refuse_limit(reply, SETTING_ID_CLAIMS_PER_LEASE_MAX)
        return False
    if rows and <uint64_t>t.rows.live + rows > t.settings[SETTING_ID_LOCKS_MAX]:
        refuse_limit(reply, SETTING_ID_LOCKS_MAX)
        return False
    return True


cdef inline uint32_t lease_for(table_t* t, const command_t* command, uint32_t lease,
                               uint64_t generation) noexcept nogil:
    if command.lease_use == LEASE_USE_EXISTING:
        return lease
    return add_lease(t, command.lease_high, command.lease_low, command.ttl_ms, command.owner,
                     command.lease_use == LEASE_USE_CREATE_BOUND, generation)


cdef inline void put_claim(table_t* t, const command_t* command, uint32_t row, uint32_t lease, uint64_t revision,
                           bint waits) noexcept nogil:
    """Adds the command's claim to a row, the mode of which it sets."""
    cdef uint32_t handle = add_claim(t, row, lease, command.request, command.mode, units_of(command),
                                     command.lock_delay_ms, waits)
    cdef claim_t* claim = claim_at(t, handle)
    cdef row_t* lock = row_at(t, row)
    claim.revision = revision
    if command.mode == LOCK_MODE_SEMAPHORE:
        become_semaphore(t, lock, command.limit)
    else:
        lock.mode = ROW_MODE_LOCK
    if waits:
        append_waiter(t, lock, handle)
    else:
        append_holder(t, lock, handle)
        tell(t, EVENT_KIND_ACQUIRED, revision, lock, claim, revision, NOTHING)


cdef inline uint32_t need_row(table_t* t, uint32_t row, slice_t key, uint64_t hash, uint16_t slot) noexcept nogil:
    """The row, about to change; added if it is 0."""
    if row == 0:
        return add_row(t, key, hash, slot)
    touch_row(t, row)
    return row


cdef inline void acquire(table_t* t, const command_t* command, const hint_t* hint, outcome_t* reply) noexcept nogil:
    cdef uint32_t row, lease, claim
    cdef uint16_t slot
    cdef bint eligible
    if not key_is_fine(t, command.key, reply):
        return
    row = find_row(t, command.key, hint.hash)
    if row:
        slot = row_at(t, row).slot
    else:
        slot = <uint16_t>hint.slot if hint.slot < SLOTS_TOTAL else key_slot(command.key)
    if not slot_is_owned(t, slot, reply):
        return
    lease = find_lease(t, command.lease_high, command.lease_low)
    if not check_acquire(t, command, LOCK_MODE_TOTAL, lease, reply):
        return
    if row:
        claim = find_claim(t, row, lease, command.request) if lease else 0
        if claim:
            answer_for_claim(t, command, claim, reply)
            return
        if mode_differs(t, row_at(t, row), command):
            reply.code = CODE_MODE_MISMATCH
            return
    eligible = is_eligible(t, row, command)
    if not eligible and not command.wait:
        refuse_busy(t, row, reply)
        return
    if not check_room(t, lease, 1, row == 0, reply):
        return
    if not eligible and row_at(t, row).waiter_count >= t.settings[SETTING_ID_WAITERS_PER_LOCK_MAX]:
        refuse_limit(reply, SETTING_ID_WAITERS_PER_LOCK_MAX)
        return
    row = need_row(t, row, command.key, hint.hash, slot)
    reply.revision = next_revision(t)
    lease = lease_for(t, command, lease, reply.revision)
    put_claim(t, command, row, lease, reply.revision, not eligible)
    if eligible:
        reply.token = reply.revision
        reply.count = 1
    else:
        reply.code = CODE_QUEUED


cdef bint find_keys(table_t* t, const command_t* command, uint16_t* slot, outcome_t* reply) noexcept nogil:
    """The key checks of acquireAll and cancelWait; leaves hashes in t.hashes and rows (or 0) in t.found."""
    cdef uint32_t i, j
    cdef slice_t key
    if command.list_count == 0:
        refuse_argument(reply, ARGUMENT_KEYS)
        return False
    if command.list_count > t.settings[SETTING_ID_KEYS_PER_ACQUIRE_MAX]:
        refuse_limit(reply, SETTING_ID_KEYS_PER_ACQUIRE_MAX)
        return False
    for i in range(command.list_count):
        if not key_is_fine(t, command_item(command, i), reply):
            return False
    slot[0] = key_slot(command_item(command, 0))
    for i in range(1, command.list_count):
        if key_slot(command_item(command, i)) != slot[0]:
            reply.code = CODE_CROSS_SLOT
            return False
    t.found.count = 0
    for i in range(command.list_count):
        key = command_item(command, i)
        t.hashes[i] = hash_of_key(t, key)
        for j in range(i):
            if t.hashes[j] == t.hashes[i] and slices_equal(command_item(command, j), key):
                refuse_argument(reply, ARGUMENT_KEYS)
                return False
        handles_push(&t.found, find_row(t, key, t.hashes[i]))
    return slot_is_owned(t, slot[0], reply)


cdef inline bint slices_equal(slice_t a, slice_t b) noexcept nogil:
    return a.size == b.size and memcmp(a.data, b.data, a.size) == 0


cdef bint answered_by_claim(table_t* t, const command_t* command, uint32_t lease, outcome_t* reply) noexcept nogil:
    """Whether one of the keys in t.found has a claim of the command's (lease, request) already."""
    cdef uint32_t i, claim
    if lease == 0:
        return False
    for i in range(t.found.count):
        claim = find_claim(t, t.found.items[i], lease, command.request) if t.found.items[i] else 0
        if claim == 0:
            continue
        if i == 0:
            answer_for_claim(t, command, claim, reply)
        else:
            refuse_argument(reply, ARGUMENT_KEYS)
        return True
    return False


cdef bint check_rows(table_t* t, const command_t* command, uint32_t lease, bint* eligible,
                     outcome_t* reply) noexcept nogil:
    """Modes, eligibility and limits over all rows in t.found."""
    cdef uint32_t i, row, rows_new = 0
    eligible[0] = True
    for i in range(t.found.count):
        row = t.found.items[i]
        if row == 0:
            rows_new += 1
        elif mode_differs(t, row_at(t, row), command):
            reply.code = CODE_MODE_MISMATCH
            return False
    for i in range(t.found.count):
        row = t.found.items[i]
        if not is_eligible(t, row, command):
            if not command.wait:
                refuse_busy(t, row, reply)
                return False
            eligible[0] = False
            break
    if not check_room(t, lease, t.found.count, rows_new, reply):
        return False
    if eligible[0]:
        return True
    for i in range(t.found.count):
        row = t.found.items[i]
        if (row_at(t, row).waiter_count if row else 0) >= t.settings[SETTING_ID_WAITERS_PER_LOCK_MAX]:
            refuse_limit(reply, SETTING_ID_WAITERS_PER_LOCK_MAX)
            return False
    return True


cdef void acquire_all(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint16_t slot = 0
    cdef uint32_t lease
    cdef bint eligible = False
    if not find_keys(t, command, &slot, reply):
        return
    lease = find_lease(t, command.lease_high, command.lease_low)
    # Semaphores have no place in an acquireAll.
    if not check_acquire(t, command, LOCK_MODE_SEMAPHORE, lease, reply):
        return
    if answered_by_claim(t, command, lease, reply) or not check_rows(t, command, lease, &eligible, reply):
        return
    put_all(t, command, slot, lease, eligible, reply)


cdef void put_all(table_t* t, const command_t* command, uint16_t slot, uint32_t lease, bint eligible,
                  outcome_t* reply) noexcept nogil:
    cdef uint32_t i, row, handle, ring = 0
    reply.revision = next_revision(t)
    if eligible:
        reply.token = reply.revision
        reply.count = command.list_count
    else:
        reply.code = CODE_QUEUED
    lease = lease_for(t, command, lease, reply.revision)
    for i in range(command.list_count):
        row = need_row(t, t.found.items[i], command_item(command, i), t.hashes[i], slot)
        if eligible and i > 0:
            reply.revision = next_revision(t)
        put_claim(t, command, row, lease, reply.revision, not eligible)
        if not eligible:
            handle = row_at(t, row).waiter_last
            claim_at(t, handle).position = <uint16_t>i
            claim_at(t, handle).key_total = <uint16_t>command.list_count
            # Positions ascend, so the ring is closed behind the claim before.
            if ring == 0:
                claim_at(t, handle).linked = handle
            else:
                claim_at(t, handle).linked = claim_at(t, ring).linked
                claim_at(t, ring).linked = handle
            ring = handle
