"""Time: which lease, session or delay has run out. Only the leader asks; nothing here is replicated.

Deadlines are on the wheel's clock, which is the caller's less the gaps of skip_time. A timer's own deadline is
a lower bound. What counts is decided when it fires: never before the full time (or the logged
rest of it) has passed since this node began to lead. So a new leader has nothing to do per lease.

A lease's timer outlives it: the next lease behind its handle mostly ends later, and then it only has to write
down when. A timer that fires for nobody goes.

A lease that runs for longer than NOTE_TTL_MS_MIN fires earlier once, after NOTE_SILENCE_MS without a
keep-alive: its remaining time is then logged, so that the next leader does not start it anew.
"""


cdef enum:
    NOTE_TTL_MS_MIN = 60_000
    NOTE_SILENCE_MS = 600_000
    DUE_BATCH = 256


cdef inline uint64_t wheel_clock(table_t* t, uint64_t now_ms) noexcept nogil:
    return now_ms - t.skipped_ms if now_ms > t.skipped_ms else 0


cdef inline uint32_t add_timer(table_t* t, uint16_t kind, uint32_t owner, uint64_t deadline_ms) noexcept nogil:
    cdef uint32_t timer = wheel_add(&t.wheel, kind, owner, deadline_ms)
    if timer == 0:
        out_of_memory()
    if t.wheel.nodes.free_first:
        prefetch(wheel_node(&t.wheel, t.wheel.nodes.free_first))
    return timer


cdef inline uint64_t lease_full_ms(const lease_t* lease) noexcept nogil:
    """What a new leader grants it."""
    return lease.remaining_ms if lease.remaining_ms else <uint64_t>lease.ttl_ms


cdef inline uint64_t lease_deadline_ms(table_t* t, const lease_t* lease) noexcept nogil:
    """When a lease with a timer runs out while this node leads."""
    cdef uint64_t armed = wheel_node(&t.wheel, lease.timer).deadline_ms + <uint64_t>lease.ahead_s * 1000
    return max(armed, t.lead_ms + lease_full_ms(lease)) if t.is_leading else armed


cdef void set_lease_timer(table_t* t, uint32_t handle, uint64_t now_ms, uint64_t deadline_ms) noexcept nogil:
    cdef lease_t* lease = lease_at(t, handle)
    cdef uint64_t left_ms = deadline_ms - now_ms if deadline_ms > now_ms else 0
    cdef uint64_t silence_ms
    lease.ahead_s = 0
    if lease.ttl_ms > NOTE_TTL_MS_MIN and left_ms > NOTE_TTL_MS_MIN:
        silence_ms = min(left_ms // 2, <uint64_t>NOTE_SILENCE_MS)
        lease.ahead_s = <uint32_t>((left_ms - silence_ms) // 1000)
        deadline_ms -= <uint64_t>lease.ahead_s * 1000
    if lease.timer:
        wheel_move(&t.wheel, lease.timer, deadline_ms)
        return
    lease.timer = add_timer(t, TIMER_LEASE, handle, deadline_ms)


cdef void arm_lease(table_t* t, uint32_t handle) noexcept nogil:
    """Starts a lease's time at the entry being applied; used where the log gives it that time."""
    cdef lease_t* lease = lease_at(t, handle)
    if lease.ttl_ms == NO_EXPIRY_TTL_MS:
        disarm_lease(t, handle)
        return
    set_lease_timer(t, handle, t.now_ms, t.now_ms + lease_full_ms(lease))


cdef void disarm_lease(table_t* t, uint32_t handle) noexcept nogil:
    cdef lease_t* lease = lease_at(t, handle)
    if lease.timer:
        wheel_remove(&t.wheel, lease.timer)
        lease.timer = 0


cdef void rearm_lease(table_t* t, uint32_t handle) noexcept nogil:
    """After a proposal for it came to nothing: its time goes on as it was, and it may be due again."""
    cdef lease_t* lease = lease_at(t, handle)
    if lease.timer:
        set_lease_timer(t, handle, t.now_ms, lease_deadline_ms(t, lease))


cdef void note_lease(table_t* t, uint32_t handle) noexcept nogil:
    """After a note was logged: nobody looks later than it says. The leader that asked for it may know of an earlier end.

    Another leader does not: 1. a lone member restarts; 2. it leads, and only then applies its log; 3. the lease
    in there begins with its full time, so that the note behind it is all that is known of the time before.
    """
    cdef lease_t* lease = lease_at(t, handle)
    cdef uint64_t deadline_ms = t.now_ms + lease_full_ms(lease)
    if lease.timer == 0:
        return
    if t.is_leading:
        deadline_ms = min(deadline_ms, lease_deadline_ms(t, lease))
    set_lease_timer(t, handle, t.now_ms, deadline_ms)


cdef void arm_session(table_t* t, uint32_t handle) noexcept nogil:
    cdef session_t* session = session_at(t, handle)
    session.last_use_ms = t.now_ms
    session.timer = add_timer(t, TIMER_SESSION, handle, t.now_ms + session.lifetime_ms)


cdef inline void rearm_session(table_t* t, uint32_t handle) noexcept nogil:
    cdef session_t* session = session_at(t, handle)
    wheel_move(&t.wheel, session.timer, session.last_use_ms + session.lifetime_ms)


cdef void arm_delay(table_t* t, uint32_t row, extra_t* extra) noexcept nogil:
    if extra.timer:
        wheel_move(&t.wheel, extra.timer, t.now_ms + extra.delay_ms)
        return
    extra.timer = add_timer(t, TIMER_DELAY, row, t.now_ms + extra.delay_ms)


cdef uint64_t deadline_of(table_t* t, const due_node_t* due) noexcept nogil:
    """When what fired really runs out."""
    cdef session_t* session
    cdef extra_t* extra
    if due.kind == TIMER_LEASE:
        return lease_deadline_ms(t, lease_at(t, due.owner))
    if due.kind == TIMER_SESSION:
        session = session_at(t, due.owner)
        return max(session.last_use_ms, t.lead_ms) + session.lifetime_ms
    extra = extra_at(t, row_at(t, due.owner).extra)
    return max(due.deadline_ms, t.lead_ms + extra.delay_ms)


cdef object due_command(table_t* t, const due_node_t* due, uint64_t now_ms, uint64_t deadline_ms):
    cdef lease_t* lease
    cdef session_t* session
    cdef row_t* row
    cdef uint64_t left_ms
    if due.kind == TIMER_LEASE:
        lease = lease_at(t, due.owner)
        if deadline_ms > now_ms:
            left_ms = deadline_ms - now_ms
            lease.marks |= MARK_NOTING
            return Due(COMMAND_NOTE_REMAINING, lease.high, lease.low, 0, b"", lease.generation, left_ms)
        return Due(COMMAND_EXPIRE, lease.high, lease.low, 0, b"", lease.generation, 0)
    if due.kind == TIMER_SESSION:
        session = session_at(t, due.owner)
        return Due(COMMAND_EXPIRE_SESSION, 0, 0, session.id, b"", session.uses, 0)
    row = row_at(t, due.owner)
    return Due(COMMAND_END_DELAY, 0, 0, 0, bytes_of(row_key(row)), extra_at(t, row.extra).delay_generation, 0)


cdef bint wants_note(table_t* t, const due_node_t* due, uint64_t deadline_ms) noexcept nogil:
    """Whether a lease that fired before its time did so to have its remaining time logged.

    Not if leadership is what gives it more time: then it just waits for that.
    """
    cdef lease_t* lease
    if due.kind != TIMER_LEASE:
        return False
    lease = lease_at(t, due.owner)
    return lease.ahead_s != 0 and deadline_ms == due.deadline_ms + <uint64_t>lease.ahead_s * 1000


cdef list collect_due(table_t* t, uint64_t now_ms, uint32_t max_count):
    cdef due_node_t[DUE_BATCH] fired
    cdef uint32_t count, i, looked_at = 0
    cdef uint64_t deadline_ms
    cdef list found = []
    while looked_at < WHEEL_TOUCHES_MAX and <uint32_t>len(found) < max_count:
        count = wheel_advance(&t.wheel, now_ms, fired, min(<uint32_t>DUE_BATCH, max_count - <uint32_t>len(found)))
        for i in range(count):
            if fired[i].kind == TIMER_LEASE and lease_at(t, fired[i].owner).marks & MARK_GONE:
                disarm_lease(t, fired[i].owner)
                continue
            deadline_ms = deadline_of(t, &fired[i])
            if deadline_ms <= now_ms or wants_note(t, &fired[i], deadline_ms):
                found.append(due_command(t, &fired[i], now_ms, deadline_ms))
            if deadline_ms <= now_ms:
                continue
            # A note that gets lost does no harm: the lease is looked at again, and runs out at its time.
            if fired[i].kind == TIMER_LEASE:
                set_lease_timer(t, fired[i].owner, now_ms, deadline_ms)
            else:
                wheel_move(&t.wheel, fired[i].node, deadline_ms)
        looked_at += count
        if count == 0:
            break
    return found
