"""Reading: get, list, events, and the whole state for comparison."""


cdef enum:
    CLAIMS_SHOWN_MAX = 1024
    WAITERS_SHOWN_MAX = 16
    EVENTS_SCANNED_MAX = 8192
    SCAN_PAGE = 256


cdef inline slice_t slice_of(bytes content):
    """Good as long as the caller holds `content`."""
    cdef slice_t view
    view.data = content
    view.size = <uint32_t>len(content)
    return view


cdef object outcome_tuple(const outcome_t* outcome):
    return Outcome(outcome.position, outcome.code, outcome.kind, outcome.count, outcome.detail, outcome.waiter,
                   outcome.token, outcome.revision)


cdef void collect_handles(const index_t* index, handles_t* all) noexcept nogil:
    """Every handle of an index, in tag order; for those who look at everything."""
    cdef uint64_t tag = 0, tag_next = 0
    cdef uint32_t total = index_count(index)
    cdef void* items = realloc(all.items, (<size_t>total + 1) * sizeof(uint32_t))
    if items == NULL:
        out_of_memory()
    all.items = <uint32_t*>items
    all.capacity = total + 1
    all.count = 0
    while tag < <uint64_t>1 << 32 and all.count < total:
        all.count += index_scan(index, tag, all.items + all.count, total - all.count, &tag_next)
        tag = tag_next


cdef int64_t lease_left_ms(table_t* t, const lease_t* lease, int64_t now_ms) noexcept nogil:
    """Time left of a lease, as the leader knows it; -1 elsewhere."""
    cdef uint64_t now, deadline_ms
    if now_ms < 0 or not t.is_leading:
        return -1
    if lease.timer == 0:
        return lease.ttl_ms
    now = wheel_clock(t, <uint64_t>now_ms)
    deadline_ms = lease_deadline_ms(t, lease)
    return <int64_t>(deadline_ms - now) if deadline_ms > now else 0


cdef list claim_states(table_t* t, uint32_t handle, uint32_t shown_max, int64_t now_ms):
    cdef list states = []
    cdef claim_t* claim
    cdef lease_t* lease
    while handle and <uint32_t>len(states) < shown_max:
        claim = claim_at(t, handle)
        lease = lease_at(t, claim.lease)
        states.append({
            "mode": claim_mode(claim),
            "count": claim.count,
            "revision": claim.revision,
            "ttlMs": lease.ttl_ms,
            "remainingMs": lease_left_ms(t, lease, now_ms),
            "owner": bytes_of(lease_owner(lease)),
        })
        handle = claim.next
    return states


cdef dict lock_state(table_t* t, uint32_t handle, int64_t now_ms):
    cdef row_t* row = row_at(t, handle)
    cdef lock_row_t image
    fill_lock_row(t, row, &image)
    return {
        "key": bytes_of(image.key),
        "mode": image.mode,
        "limit": image.limit,
        "waiterCount": row.waiter_count,
        "delayMs": image.delay_ms,
        "valueRevision": image.value_revision,
        "revision": t.revision,
        "value": bytes_of(image.value),
        "holders": claim_states(t, row.holder_first, CLAIMS_SHOWN_MAX, now_ms),
        "waiters": claim_states(t, row.waiter_first, WAITERS_SHOWN_MAX, now_ms),
    }


# Pages over all rows. A cursor is the tag to go on with; tags come from keys and the group's hashSeed alone.

cdef uint64_t tag_of_cursor(bytes cursor) except? 0xFFFFFFFFFFFFFFFF:
    if not cursor:
        return 0
    if len(cursor) != 4:
        raise ValueError("not a cursor this table gave")
    return int.from_bytes(cursor, "big")


cdef bytes cursor_of_tag(uint64_t tag):
    return b"" if tag >= <uint64_t>1 << 32 else tag.to_bytes(4, "big")


cdef uint32_t* scan_page(table_t* t, uint64_t tag, uint32_t room, uint32_t* count, uint64_t* tag_next) except NULL:
    """Some rows from a tag on, in an array the caller frees; more than `room` if one tag alone has more."""
    cdef uint32_t capacity = min(max(room, <uint32_t>1), <uint32_t>SCAN_PAGE)
    cdef uint32_t* handles
    while True:
        handles = <uint32_t*>malloc(<size_t>capacity * sizeof(uint32_t))
        if handles == NULL:
            raise MemoryError
        count[0] = index_scan(&t.row_index, tag, handles, capacity, tag_next)
        if count[0] <= capacity:
            return handles
        capacity = count[0]
        free(handles)


cdef tuple list_rows(table_t* t, bytes prefix, bytes cursor, uint32_t limit, int64_t now_ms, uint32_t scanned_max):
    cdef uint32_t* handles
    cdef uint32_t count, i, scanned = 0
    cdef uint64_t tag = tag_of_cursor(cursor), tag_next = tag
    cdef slice_t wanted = slice_of(prefix)
    cdef slice_t key
    cdef list page = []
    while tag < <uint64_t>1 << 32 and <uint32_t>len(page) < limit and scanned < scanned_max:
        handles = scan_page(t, tag, limit - <uint32_t>len(page), &count, &tag_next)
        for i in range(count):
            key = row_key(row_at(t, handles[i]))
            if (key.size >= wanted.size and memcmp(key.data, wanted.data, wanted.size) == 0
                    and t.slot_states[row_at(t, handles[i]).slot] == SLOT_STATE_OWNED):
                page.append(lock_state(t, handles[i], now_ms))
        scanned += count + 1
        tag = tag_next
        free(handles)
    return page, cursor_of_tag(tag)


cdef tuple read_events(table_t* t, uint64_t after_revision, bytes key, bint is_prefix, uint32_t limit):
    cdef event_t* events
    cdef uint64_t resume = 0
    cdef uint32_t count, i
    if history_outran(&t.history, after_revision):
        raise EventsLost(t.history.floor)
    events = <event_t*>malloc((<size_t>limit + 1) * sizeof(event_t))
    if events == NULL:
        raise MemoryError
    count = history_read(&t.history, after_revision, slice_of(key), is_prefix, events, limit, EVENTS_SCANNED_MAX,
                         &resume)
    # Behind the last event there is nothing up to the present revision either. A watcher that resumes from there
    # is not told that it was outrun after a restart, when the history begins at the checkpoint's revision.
    if resume >= t.history.last_revision:
        resume = max(resume, t.revision)
    page = []
    for i in range(count):
        page.append(Event(events[i].revision, events[i].kind, events[i].mode, events[i].token,
                          bytes_of(events[i].key), bytes_of(events[i].owner), bytes_of(events[i].value)))
    free(events)
    return page, resume


# The whole state.

cdef tuple SETTING_NAMES = (
    "unset", "keyBytesMax", "ownerBytesMax", "valueBytesMax", "ttlMsMax", "lockDelayMsMax", "locksMax", "leasesMax",
    "sessionsMax", "claimsPerLeaseMax", "waitersPerLockMax", "keysPerAcquireMax", "semaphoreLimitMax",
    "answersPerSessionMax", "sessionLifetimeMs", "hashSeed",
)


cdef list dump_slots(table_t* t):
    cdef list runs = []
    cdef uint32_t first = 0, last
    while first < SLOTS_TOTAL:
        last = first
        while (last + 1 < SLOTS_TOTAL and t.slot_states[last + 1] == t.slot_states[first]
                and t.slot_targets[last + 1] == t.slot_targets[first]):
            last += 1
        if t.slot_states[first] != SLOT_STATE_FOREIGN:
            runs.append((first, last, t.slot_states[first], t.slot_targets[first]))
        first = last + 1
    return runs


cdef dict dump_session(const session_t* session):
    cdef uint32_t i
    cdef answer_t* answer
    answers = {}
    for i in range(session.capacity):
        answer = find_answer(session, session.watermark + i)
        if answer != NULL:
            answers[answer.sequence] = (answer.code, answer.kind, answer.count, answer.detail, answer.token,
                                        answer.revision)
    return {"watermark": session.watermark, "uses": session.uses, "lifetime_ms": session.lifetime_ms,
            "answers": answers}


cdef dict dump_lease(const lease_t* lease):
    return {"ttl_ms": lease.ttl_ms, "owner": bytes_of(lease_owner(lease)), "bound": bool(lease.bound),
            "generation": lease.generation, "remaining_ms": lease.remaining_ms,
            "lost_revision": lease.lost_revision}


cdef list dump_claims(table_t* t, uint32_t handle):
    cdef claim_row_t claim
    cdef list claims = []
    while handle:
        fill_claim_row(t, claim_at(t, handle), &claim)
        claims.append((claim.lease_high, claim.lease_low, claim.request, claim.revision, claim.mode, claim.count,
                       claim.lock_delay_ms, claim.position, claim.key_total))
        handle = claim_at(t, handle).next
    return claims


cdef dict dump_row(table_t* t, const row_t* row):
    cdef lock_row_t image
    fill_lock_row(t, row, &image)
    return {"mode": image.mode, "limit": image.limit, "holders": dump_claims(t, row.holder_first),
            "waiters": dump_claims(t, row.waiter_first),
            "value": bytes_of(image.value) if image.value_revision else None,
            "value_revision": image.value_revision, "value_token": image.value_token,
            "delay_ms": image.delay_ms, "delay_generation": image.delay_generation}


cdef dict dump_table(table_t* t):
    cdef handles_t all
    cdef uint32_t i
    memset(&all, 0, sizeof(all))
    sessions, leases, rows = {}, {}, {}
    collect_handles(&t.session_index, &all)
    for i in range(all.count):
        sessions[session_at(t, all.items[i]).id] = dump_session(session_at(t, all.items[i]))
    collect_handles(&t.lease_index, &all)
    for i in range(all.count):
        leases[lease_at(t, all.items[i]).high, lease_at(t, all.items[i]).low] = dump_lease(lease_at(t, all.items[i]))
    collect_handles(&t.row_index, &all)
    for i in range(all.count):
        rows[bytes_of(row_key(row_at(t, all.items[i])))] = dump_row(t, row_at(t, all.items[i]))
    handles_free(&all)
    return {"revision": t.revision,
            "settings": {SETTING_NAMES[i]: t.settings[i] for i in range(1, SETTING_ID_TOTAL)},
            "slots": dump_slots(t), "sessions": sessions, "leases": leases, "rows": rows}


cdef uint64_t hash_items(table_t* t, const index_t* index, uint32_t kind) noexcept:
    """The sum over all items of one kind, so that their order does not matter."""
    cdef handles_t all
    cdef uint64_t total = 0
    cdef uint32_t i
    memset(&all, 0, sizeof(all))
    collect_handles(index, &all)
    for i in range(all.count):
        t.scratch.size = 0
        encode_item(t, &t.scratch, kind, all.items[i])
        total += key_hash(t.scratch.data, <uint32_t>t.scratch.size, kind + 1)
    handles_free(&all)
    return total


cdef uint64_t hash_table(table_t* t) except? 0:
    cdef uint64_t total
    t.scratch.size = 0
    encode_group(t, &t.scratch, 0, 0, 0, None)
    total = key_hash(t.scratch.data, <uint32_t>t.scratch.size, 0)
    return (total + hash_items(t, &t.row_index, DIRTY_ROWS) + hash_items(t, &t.lease_index, DIRTY_LEASES)
            + hash_items(t, &t.session_index, DIRTY_SESSIONS))
