"""Grants, departures and the serving of queues: every way a claim changes its state (docs/LOCKS.md)."""


cdef inline uint64_t next_revision(table_t* t) noexcept nogil:
    t.revision += 1
    return t.revision


cdef inline outcome_t* add_outcome(table_t* t) noexcept nogil:
    cdef uint32_t capacity
    cdef void* outcomes
    if t.outcome_count == t.outcome_capacity:
        capacity = t.outcome_capacity * 2 if t.outcome_capacity else 256
        outcomes = realloc(t.outcomes, <size_t>capacity * sizeof(outcome_t))
        if outcomes == NULL:
            out_of_memory()
        t.outcomes = <outcome_t*>outcomes
        t.outcome_capacity = capacity
    t.outcome_count += 1
    return &t.outcomes[t.outcome_count - 1]


cdef void wake(table_t* t, uint16_t code, const claim_t* claim, uint64_t waiter) noexcept nogil:
    """Tells whoever waits; a grant's token and count are set by the caller."""
    cdef outcome_t* outcome = add_outcome(t)
    memset(outcome, 0, sizeof(outcome_t))
    outcome.position = -1
    outcome.code = code
    outcome.detail = row_at(t, claim.row).slot
    outcome.waiter = waiter


cdef inline void tell(table_t* t, uint16_t kind, uint64_t revision, const row_t* row, const claim_t* claim,
                      uint64_t token, slice_t value) noexcept nogil:
    """Appends an event; `claim` is the holder it is about, or NULL."""
    cdef event_t event
    event.revision = revision
    event.token = token
    event.kind = kind
    event.mode = 0
    event.key = row_key(row)
    event.owner = NOTHING
    event.value = value
    if claim != NULL:
        event.mode = <uint16_t>claim_mode(claim)
        event.owner = lease_owner(lease_at(t, claim.lease))
    history_append(&t.history, &event)


cdef inline bint fits(table_t* t, const row_t* row, uint32_t mode, uint32_t count) noexcept nogil:
    """Whether the holders leave room. An exclusive holder is the only one, so the first one tells."""
    if row.holder_first == 0:
        return True
    if mode == LOCK_MODE_SHARED:
        return claim_mode(claim_at(t, row.holder_first)) != LOCK_MODE_EXCLUSIVE
    if mode == LOCK_MODE_SEMAPHORE:
        return <uint64_t>extra_at(t, row.extra).taken + count <= extra_at(t, row.extra).limit
    return False


cdef inline uint64_t grant_waiter(table_t* t, uint32_t handle) noexcept nogil:
    """The waiter becomes a holder; returns its token."""
    cdef claim_t* claim = claim_at(t, handle)
    cdef row_t* row = row_at(t, claim.row)
    touch_row(t, claim.row)
    unlink_from_row(t, row, handle)
    claim.packed &= ~<uint32_t>CLAIM_WAITS
    claim.revision = next_revision(t)
    claim.linked = 0
    claim.position = 0
    claim.key_total = 0
    append_holder(t, row, handle)
    tell(t, EVENT_KIND_TRANSFERRED, claim.revision, row, claim, claim.revision, NOTHING)
    return claim.revision


cdef bint grant_linked(table_t* t, uint32_t handle) noexcept nogil:
    """Grants a waiting acquireAll on all of its keys if it is first and fits everywhere."""
    cdef uint32_t i, member
    cdef claim_t* claim
    cdef row_t* row
    cdef outcome_t* outcome
    cdef uint32_t served = claim_at(t, handle).row
    cdef uint64_t token = 0
    if not collect_ring(t, handle):
        return False
    for i in range(t.linked.count):
        member = t.linked.items[i]
        claim = claim_at(t, member)
        row = row_at(t, claim.row)
        if row.waiter_first != member or row_is_delayed(t, row):
            return False
        if not fits(t, row, claim_mode(claim), claim.count):
            return False
    wake(t, CODE_OK, claim_at(t, handle), claim_at(t, handle).revision)
    outcome = &t.outcomes[t.outcome_count - 1]
    outcome.count = t.linked.count
    for i in range(t.linked.count):
        token = grant_waiter(t, t.linked.items[i])
        if i == 0:
            outcome.token = token
        if claim_at(t, t.linked.items[i]).row != served:
            handles_push(&t.serving, claim_at(t, t.linked.items[i]).row)
    outcome.revision = token
    return True


cdef bint serve_first(table_t* t, const row_t* row) noexcept nogil:
    """Grants the first waiter if it can have the lock."""
    cdef uint32_t handle = row.waiter_first
    cdef claim_t* claim = claim_at(t, handle)
    cdef outcome_t* outcome
    if claim.key_total:
        return grant_linked(t, handle)
    if row_is_delayed(t, row) or not fits(t, row, claim_mode(claim), claim.count):
        return False
    wake(t, CODE_OK, claim, claim.revision)
    outcome = &t.outcomes[t.outcome_count - 1]
    outcome.token = outcome.revision = grant_waiter(t, handle)
    outcome.count = 1
    return True


cdef void serve_queue(table_t* t, uint32_t handle) noexcept nogil:
    """Serves a row's queue, and the queues of every acquireAll that is granted by that.

    No row goes while this runs: a grant never leaves a row empty.
    """
    cdef uint32_t i = 0
    cdef row_t* row
    t.serving.count = 0
    handles_push(&t.serving, handle)
    while i < t.serving.count:
        row = row_at(t, t.serving.items[i])
        if t.slot_states[row.slot] == SLOT_STATE_OWNED:
            while row.waiter_first and serve_first(t, row):
                pass
        i += 1


cdef inline void serve(table_t* t, uint32_t handle) noexcept nogil:
    if row_at(t, handle).waiter_first:
        serve_queue(t, handle)


cdef inline uint64_t depart(table_t* t, uint32_t handle, uint16_t kind, slice_t value) noexcept nogil:
    """A holder goes; returns the revision of its departure. Serving the queue is the caller's."""
    cdef claim_t* claim = claim_at(t, handle)
    cdef uint32_t row = claim.row
    cdef uint64_t revision = next_revision(t)
    touch_row(t, row)
    tell(t, kind, revision, row_at(t, row), claim, claim.revision, value)
    remove_claim(t, handle)
    sweep_row_later(t, row)
    return revision


cdef void leave(table_t* t, uint32_t handle) noexcept nogil:
    """A waiter goes, and nobody is told."""
    cdef uint32_t row = claim_at(t, handle).row
    touch_row(t, row)
    remove_claim(t, handle)
    sweep_row_later(t, row)


cdef void begin_delay(table_t* t, uint32_t handle, uint32_t delay_ms, uint64_t generation) noexcept nogil:
    cdef extra_t* extra = need_extra(t, row_at(t, handle))
    extra.delay_ms = delay_ms
    extra.delay_generation = generation
    arm_delay(t, handle, extra)


cdef bint gather_claims(table_t* t, uint32_t lease) noexcept nogil:
    """Puts the lease's claims into t.waiting and t.holding, in order; whether exported slots kept some."""
    cdef uint32_t handle = lease_at(t, lease).claim_first
    cdef claim_t* claim
    cdef uint16_t slot
    cdef bint kept = False
    t.waiting.count = 0
    t.holding.count = 0
    while handle:
        claim = claim_at(t, handle)
        slot = row_at(t, claim.row).slot
        if t.slot_states[slot] == SLOT_STATE_EXPORTED:
            kept = True
        elif claim_waits(claim):
            orders_push(&t.waiting, claim.revision, slot, claim.position, handle)
        else:
            orders_push(&t.holding, claim.revision, slot, 0, handle)
        handle = claim.lease_next
    orders_sort(&t.waiting)
    orders_sort(&t.holding)
    return kept


cdef inline bint starts_wait(const orders_t* waits, uint32_t i) noexcept nogil:
    """Whether the i-th claim is not another one of the acquireAll before it."""
    return (i == 0 or waits.items[i].revision != waits.items[i - 1].revision
            or waits.items[i].slot != waits.items[i - 1].slot)


cdef void end_waits(table_t* t) noexcept nogil:
    """(a) of a lease's end: t.waiting leave their queues; their rows are in t.freed, to be served later."""
    cdef uint32_t i, handle
    cdef claim_t* claim
    t.freed.count = 0
    for i in range(t.waiting.count):
        handle = t.waiting.items[i].handle
        claim = claim_at(t, handle)
        if starts_wait(&t.waiting, i):
            wake(t, CODE_LEASE_LOST, claim, claim.revision)
        handles_push(&t.freed, claim.row)
        leave(t, handle)


cdef void end_lease(table_t* t, uint32_t lease, uint16_t cause) noexcept nogil:
    cdef uint32_t i, handle, row, delay_ms
    cdef uint64_t revision
    cdef bint kept = gather_claims(t, lease)
    end_waits(t)
    for i in range(t.holding.count):
        handle = t.holding.items[i].handle
        row = claim_at(t, handle).row
        delay_ms = claim_lock_delay_ms(claim_at(t, handle))
        revision = depart(t, handle, cause, NOTHING)
        if cause == EVENT_KIND_EXPIRED and delay_ms:
            begin_delay(t, row, delay_ms, revision)
        serve(t, row)
    for i in range(t.freed.count):
        serve(t, t.freed.items[i])
    if not kept:
        remove_lease(t, lease)
        return
    touch_lease(t, lease)
    disarm_lease(t, lease)
    lease_at(t, lease).generation = 0
