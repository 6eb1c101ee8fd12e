"""What must hold after every apply, checked by walking everything."""


cdef int check_table(table_t* t) except -1:
    cdef handles_t rows, leases, sessions
    cdef uint32_t i
    cdef uint64_t claims = 0, waiters = 0, of_leases = 0
    memset(&rows, 0, sizeof(rows))
    memset(&leases, 0, sizeof(leases))
    memset(&sessions, 0, sizeof(sessions))
    collect_handles(&t.row_index, &rows)
    collect_handles(&t.lease_index, &leases)
    collect_handles(&t.session_index, &sessions)
    try:
        assert rows.count == t.rows.live, f"{rows.count} rows in the index, {t.rows.live} taken"
        assert leases.count == t.leases.live, f"{leases.count} leases in the index, {t.leases.live} taken"
        assert sessions.count == t.sessions.live, f"{sessions.count} sessions in the index, {t.sessions.live} taken"
        for i in range(rows.count):
            claims += check_row(t, rows.items[i])
            waiters += row_at(t, rows.items[i]).waiter_count
        assert waiters == t.waiter_count, f"{waiters} waiters, counted {t.waiter_count}"
        assert claims == t.claims.live, f"{claims} claims on rows, {t.claims.live} taken"
        for i in range(leases.count):
            of_leases += check_lease(t, leases.items[i])
        assert claims == of_leases, f"{claims} claims on rows, {of_leases} on leases"
        for i in range(sessions.count):
            check_session(t, sessions.items[i])
        check_slots_of_rows(t)
        check_dirty(t)
        assert t.swept_rows.count == 0 and t.swept_leases.count == 0, "something is still to be swept"
    finally:
        handles_free(&rows)
        handles_free(&leases)
        handles_free(&sessions)
    return 0


cdef int64_t check_row(table_t* t, uint32_t handle) except -1:
    """Checks a row; returns the number of its claims."""
    cdef row_t* row = row_at(t, handle)
    cdef slice_t key = row_key(row)
    cdef uint32_t holders, waiters
    cdef uint64_t taken = 0
    name = bytes_of(key)
    assert find_row(t, key, hash_of_key(t, key)) == handle, f"{name!r} is not found by its key"
    assert row.slot == key_slot(key) == t.row_slots[handle], f"{name!r} is in slot {row.slot}"
    assert t.slot_states[row.slot] != SLOT_STATE_FOREIGN, f"{name!r} is in a foreign slot"
    holders = check_list(t, handle, row.holder_first, row.holder_last, False, &taken)
    waiters = check_list(t, handle, row.waiter_first, row.waiter_last, True, &taken)
    assert waiters == row.waiter_count, f"{name!r} has {waiters} waiters, counted {row.waiter_count}"
    assert (holders + waiters == 0) == (row.mode == ROW_MODE_FREE), f"{name!r} is in mode {row.mode}"
    assert holders + waiters or row.extra, f"{name!r} has nothing in it"
    assert row.extra or row.mode != ROW_MODE_SEMAPHORE, f"{name!r} is a semaphore without a limit"
    if row.extra:
        check_extra(t, handle, taken)
    check_exclusion(t, row)
    if row.waiter_first and t.slot_states[row.slot] == SLOT_STATE_OWNED:
        assert not could_be_served(t, row), f"{name!r} has a waiter that could have it"
    return holders + waiters


cdef int64_t check_list(table_t* t, uint32_t row, uint32_t handle, uint32_t last, bint wait, uint64_t* taken) except -1:
    cdef uint32_t previous = 0, count = 0
    cdef uint64_t revision = 0
    cdef claim_t* claim
    name = bytes_of(row_key(row_at(t, row)))
    while handle:
        claim = claim_at(t, handle)
        assert claim.row == row and claim.previous == previous, f"the claims of {name!r} are not linked well"
        assert claim_waits(claim) == wait, f"{name!r} has a claim in the wrong list"
        assert revision < claim.revision <= t.revision, f"{name!r} has revision {claim.revision} after {revision}"
        assert claim.count >= 1, f"{name!r} has a claim of nothing"
        assert (claim_mode(claim) == LOCK_MODE_SEMAPHORE) == (row_at(t, row).mode == ROW_MODE_SEMAPHORE), (
            f"{name!r} has a claim of another mode")
        assert find_claim(t, row, claim.lease, claim.request) == handle, f"{name!r} has two claims of one request"
        if claim.key_total:
            assert wait, f"{name!r} has a holder that is linked"
            check_ring(t, handle)
        revision = claim.revision
        if not wait:
            taken[0] += claim.count
        count += 1
        previous = handle
        handle = claim.next
    assert previous == last, f"the claims of {name!r} end elsewhere"
    return count


cdef int check_ring(table_t* t, uint32_t handle) except -1:
    cdef claim_t* claim = claim_at(t, handle)
    cdef claim_t* member
    cdef uint32_t i
    collect_ring(t, handle)
    assert t.linked.count <= claim.key_total, "an acquireAll has more claims than keys"
    for i in range(t.linked.count):
        member = claim_at(t, t.linked.items[i])
        assert (member.lease == claim.lease and member.request == claim.request and member.revision == claim.revision
                and member.key_total == claim.key_total and member.packed == claim.packed), "an acquireAll is torn"
        assert i == 0 or claim_at(t, t.linked.items[i - 1]).position < member.position, "an acquireAll is out of order"
        assert row_at(t, member.row).slot == row_at(t, claim.row).slot, "an acquireAll spans slots"
    return 0


cdef int check_extra(table_t* t, uint32_t handle, uint64_t taken) except -1:
    cdef extra_t* extra = extra_at(t, row_at(t, handle).extra)
    cdef bint is_semaphore = row_at(t, handle).mode == ROW_MODE_SEMAPHORE
    name = bytes_of(row_key(row_at(t, handle)))
    assert extra.value_revision or extra.delay_generation or is_semaphore, f"{name!r} has nothing extra"
    assert is_semaphore == (extra.limit != 0), f"{name!r} has limit {extra.limit}"
    assert extra.taken == (taken if is_semaphore else 0), f"{name!r} has taken {extra.taken}, its holders {taken}"
    assert extra.taken <= extra.limit, f"{name!r} is above its limit"
    assert (extra.delay_ms != 0) == (extra.delay_generation != 0), f"{name!r} has half a delay"
    assert (extra.timer != 0) == (extra.delay_generation != 0), f"{name!r} has a delay without a timer or the reverse"
    assert max(extra.value_revision, extra.delay_generation) <= t.revision, f"{name!r} is of the future"
    if extra.timer:
        assert wheel_node(&t.wheel, extra.timer).owner == handle, f"the timer of {name!r} is another's"
    return 0


cdef int check_exclusion(table_t* t, const row_t* row) except -1:
    """Invariant 1: an exclusive holder is alone."""
    cdef uint32_t handle = row.holder_first
    while handle:
        assert claim_mode(claim_at(t, handle)) != LOCK_MODE_EXCLUSIVE or row.holder_first == row.holder_last, (
            f"{bytes_of(row_key(row))!r} has an exclusive holder and another one")
        handle = claim_at(t, handle).next
    return 0


cdef bint could_be_served(table_t* t, const row_t* row) noexcept:
    cdef claim_t* claim = claim_at(t, row.waiter_first)
    cdef row_t* other
    cdef uint32_t i
    if claim.key_total == 0:
        return not row_is_delayed(t, row) and fits(t, row, claim_mode(claim), claim.count)
    if not collect_ring(t, row.waiter_first):
        return False
    for i in range(t.linked.count):
        claim = claim_at(t, t.linked.items[i])
        other = row_at(t, claim.row)
        if other.waiter_first != t.linked.items[i] or row_is_delayed(t, other):
            return False
        if not fits(t, other, claim_mode(claim), claim.count):
            return False
    return True


cdef int64_t check_lease(table_t* t, uint32_t handle) except -1:
    """Checks a lease; returns the number of its claims."""
    cdef lease_t* lease = lease_at(t, handle)
    cdef uint32_t claim = lease.claim_first, previous = 0, count = 0
    name = f"lease {lease.high:x}:{lease.low:x}"
    assert find_lease(t, lease.high, lease.low) == handle, f"{name} is not found by its id"
    while claim:
        assert claim_at(t, claim).lease == handle, f"{name} has another's claim"
        assert claim_at(t, claim).lease_previous == previous, f"the claims of {name} are not linked well"
        if lease.generation == 0:
            assert t.slot_states[row_at(t, claim_at(t, claim).row).slot] == SLOT_STATE_EXPORTED, (
                f"{name} has ended and has a claim outside exported slots")
        count += 1
        previous = claim
        claim = claim_at(t, claim).lease_next
    assert count == lease.claim_count, f"{name} has {count} claims, counted {lease.claim_count}"
    assert count or lease.generation, f"{name} has ended and nothing keeps it"
    assert max(lease.generation, lease.lost_revision) <= t.revision, f"{name} is of the future"
    assert (lease.timer != 0) == (lease.generation != 0 and lease.ttl_ms != NO_EXPIRY_TTL_MS), (
        f"{name} has a timer it should not have, or has none")
    if lease.timer:
        assert wheel_node(&t.wheel, lease.timer).owner == handle, f"the timer of {name} is another's"
    return count


cdef int check_session(table_t* t, uint32_t handle) except -1:
    cdef session_t* session = session_at(t, handle)
    assert find_session(t, session.id) == handle, f"session {session.id} is not found by its id"
    assert 0 < session.id <= t.revision, f"session {session.id} is of the future"
    assert session.capacity & (session.capacity - 1) == 0, f"session {session.id} has a ring of {session.capacity}"
    assert wheel_node(&t.wheel, session.timer).owner == handle, f"the timer of session {session.id} is another's"
    return 0


cdef int check_slots_of_rows(table_t* t) except -1:
    cdef uint32_t slot
    gather_rows(t, 0, SLOTS_TOTAL - 1)
    assert t.found.count == t.rows.live, f"{t.found.count} rows in slots, {t.rows.live} taken"
    for slot in range(SLOTS_TOTAL):
        assert t.slot_targets[slot] == 0 or t.slot_states[slot] == SLOT_STATE_EXPORTED, (
            f"slot {slot} went somewhere without being exported")
    return 0


cdef int check_dirty(table_t* t) except -1:
    cdef uint32_t which, kind, i, marks
    cdef uint64_t to_write = 0
    cdef handles_t* list
    for which in range(2):
        for kind in range(DIRTY_KINDS):
            list = dirty_list(&t.dirty, which, kind)
            assert t.dirty.is_frozen or which == t.dirty.now or list.count == 0, "frozen without a checkpoint"
            for i in range(list.count):
                marks = dirty_marks(t, kind, list.items[i])[0]
                if which == t.dirty.now:
                    assert marks & (MARK_LIST_0 | MARK_LIST_1) == MARK_LIST_0 << which, "a dirty item is mismarked"
                    to_write += not marks & MARK_GONE
    assert to_write == t.dirty.to_write, f"{to_write} dirty items, counted as {t.dirty.to_write}"
    return 0
