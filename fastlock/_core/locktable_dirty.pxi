"""What the next checkpoint has to write: dirty lists, deletes, and images of frozen rows touched too early.

Lists hold handles. Each row, lease and session is in at most one: the one of the checkpoint to come, or the
frozen one's until its row was taken. Whoever is about to change it calls touch_… first, so that

1. a frozen one is encoded as it was at the checkpoint's index before it changes, and
2. the checkpoint to come will write it.

Whoever drops it calls forget_…: only if an earlier checkpoint has it (or the frozen one is about to) does the
checkpoint to come delete it. Its handle stays in the list, because taking it out would touch memory that
nothing else needs; the item's mark says so also after it was given back. Whatever takes the handle next finds
itself listed, and a handle that nothing took is passed over.
"""


cdef inline handles_t* dirty_list(dirty_t* dirty, uint32_t which, uint32_t kind) noexcept nogil:
    return &dirty.listed1[kind] if which else &dirty.listed0[kind]


cdef inline uint8_t* dirty_marks(table_t* t, uint32_t kind, uint32_t handle) noexcept nogil:
    if kind == DIRTY_ROWS:
        return &row_at(t, handle).marks
    if kind == DIRTY_LEASES:
        return &lease_at(t, handle).marks
    return &session_at(t, handle).marks


cdef inline void dirty_enlist(table_t* t, uint32_t kind, uint32_t handle) noexcept nogil:
    handles_push(dirty_list(&t.dirty, t.dirty.now, kind), handle)
    dirty_marks(t, kind, handle)[0] |= <uint8_t>(MARK_LIST_0 << t.dirty.now)
    t.dirty.to_write += 1


cdef inline void mark_stored(uint8_t* marks) noexcept nogil:
    """The frozen checkpoint has the item; its handle in the frozen list means nothing any more."""
    marks[0] = <uint8_t>(marks[0] & ~(MARK_LIST_0 | MARK_LIST_1) | MARK_STORED)


cdef void keep_image(table_t* t, uint32_t kind, uint32_t handle) noexcept nogil:
    """Moves a frozen item from its list to the images."""
    append_image(t, kind, handle)
    mark_stored(dirty_marks(t, kind, handle))


cdef inline void touch_item(table_t* t, uint32_t kind, uint32_t handle) noexcept nogil:
    cdef uint32_t marks = dirty_marks(t, kind, handle)[0]
    if marks & (MARK_LIST_0 << t.dirty.now):
        return
    if t.dirty.is_loading:
        dirty_marks(t, kind, handle)[0] |= MARK_STORED
        return
    if marks & (MARK_LIST_0 | MARK_LIST_1):
        keep_image(t, kind, handle)
    dirty_enlist(t, kind, handle)


cdef inline void touch_row(table_t* t, uint32_t handle) noexcept nogil:
    touch_item(t, DIRTY_ROWS, handle)


cdef inline void touch_lease(table_t* t, uint32_t handle) noexcept nogil:
    touch_item(t, DIRTY_LEASES, handle)


cdef inline void touch_session(table_t* t, uint32_t handle) noexcept nogil:
    touch_item(t, DIRTY_SESSIONS, handle)


cdef void delete_stored(table_t* t, uint32_t kind, uint32_t handle) noexcept nogil:
    append_row_key(t, &t.dirty.deletes[t.dirty.now], kind, handle)
    t.dirty.delete_count[t.dirty.now] += 1


cdef inline void forget_item(table_t* t, uint32_t kind, uint32_t handle) noexcept nogil:
    cdef uint8_t* marks = dirty_marks(t, kind, handle)
    cdef uint32_t listed = marks[0] & (MARK_LIST_0 << t.dirty.now)
    if listed:
        t.dirty.to_write -= 1
    elif marks[0] & (MARK_LIST_0 | MARK_LIST_1):
        keep_image(t, kind, handle)
    if marks[0] & MARK_STORED:
        delete_stored(t, kind, handle)
    marks[0] = <uint8_t>(listed | MARK_GONE)


cdef inline void inherit_listing(table_t* t, uint8_t* marks, uint32_t before) noexcept nogil:
    """A new item takes over from the one that was behind its handle that the handle is in the list to come."""
    marks[0] = <uint8_t>(before & (MARK_LIST_0 << t.dirty.now))
    t.dirty.to_write += marks[0] != 0


cdef inline void forget_row(table_t* t, uint32_t handle) noexcept nogil:
    forget_item(t, DIRTY_ROWS, handle)


cdef inline void forget_lease(table_t* t, uint32_t handle) noexcept nogil:
    forget_item(t, DIRTY_LEASES, handle)


cdef inline void forget_session(table_t* t, uint32_t handle) noexcept nogil:
    forget_item(t, DIRTY_SESSIONS, handle)


cdef void append_image(table_t* t, uint32_t kind, uint32_t handle) noexcept nogil:
    """The item's row key and row, each behind its size."""
    cdef buffer_t* images = &t.dirty.images
    append_row_key(t, images, kind, handle)
    t.scratch.size = 0
    encode_item(t, &t.scratch, kind, handle)
    append_sized(images, t.scratch.data, <uint32_t>t.scratch.size)
    t.dirty.image_count += 1


cdef void append_sized(buffer_t* out, const uint8_t* data, uint32_t size) noexcept nogil:
    if buffer_reserve(out, sizeof(uint32_t) + size) != 0:
        out_of_memory()
    memcpy(out.data + out.size, &size, sizeof(uint32_t))
    memcpy(out.data + out.size + sizeof(uint32_t), data, size)
    out.size += sizeof(uint32_t) + size


cdef inline void put_big_endian(uint8_t* at, uint64_t number) noexcept nogil:
    cdef int i
    for i in range(8):
        at[i] = <uint8_t>(number >> (56 - 8 * i))


cdef void append_row_key(table_t* t, buffer_t* out, uint32_t kind, uint32_t handle) noexcept nogil:
    cdef uint8_t[17] id
    cdef uint8_t* at
    cdef uint32_t size
    cdef slice_t key
    if kind == DIRTY_ROWS:
        key = row_key(row_at(t, handle))
        size = key.size + 1
        if buffer_reserve(out, sizeof(uint32_t) + size) != 0:
            out_of_memory()
        at = out.data + out.size
        memcpy(at, &size, sizeof(uint32_t))
        at[sizeof(uint32_t)] = ROW_KIND_LOCK
        memcpy(at + sizeof(uint32_t) + 1, key.data, key.size)
        out.size += sizeof(uint32_t) + size
    elif kind == DIRTY_LEASES:
        id[0] = ROW_KIND_LEASE
        put_big_endian(&id[1], lease_at(t, handle).high)
        put_big_endian(&id[9], lease_at(t, handle).low)
        append_sized(out, id, 17)
    else:
        id[0] = ROW_KIND_SESSION
        put_big_endian(&id[1], session_at(t, handle).id)
        append_sized(out, id, 9)


# Rows, leases and sessions as they are stored.

cdef void encode_item(table_t* t, buffer_t* out, uint32_t kind, uint32_t handle) noexcept nogil:
    if kind == DIRTY_ROWS:
        encode_lock(t, out, handle)
    elif kind == DIRTY_LEASES:
        encode_lease(t, out, handle)
    else:
        encode_session(t, out, handle)


cdef inline void fill_claim_row(table_t* t, const claim_t* claim, claim_row_t* out) noexcept nogil:
    cdef lease_t* lease = lease_at(t, claim.lease)
    out.lease_high = lease.high
    out.lease_low = lease.low
    out.request = claim.request
    out.revision = claim.revision
    out.count = claim.count
    out.lock_delay_ms = claim_lock_delay_ms(claim)
    out.mode = <uint16_t>claim_mode(claim)
    out.position = claim.position
    out.key_total = claim.key_total


cdef uint32_t holders_of(table_t* t, const row_t* row) noexcept nogil:
    cdef uint32_t handle = row.holder_first, count = 0
    while handle:
        count += 1
        handle = claim_at(t, handle).next
    return count


cdef void fill_lock_row(table_t* t, const row_t* row, lock_row_t* out) noexcept nogil:
    cdef extra_t* extra
    memset(out, 0, sizeof(lock_row_t))
    out.mode = row.mode
    out.slot = row.slot
    out.key = row_key(row)
    if row.extra:
        extra = extra_at(t, row.extra)
        out.limit = extra.limit
        out.delay_ms = extra.delay_ms
        out.delay_generation = extra.delay_generation
        out.value_revision = extra.value_revision
        out.value_token = extra.value_token
        if extra.value_revision:
            out.value.data = extra.value if extra.value_size else NO_BYTES
            out.value.size = extra.value_size


cdef void encode_lock(table_t* t, buffer_t* out, uint32_t handle) noexcept nogil:
    cdef row_t* row = row_at(t, handle)
    cdef uint32_t holder_count = holders_of(t, row)
    cdef uint32_t total = holder_count + row.waiter_count
    cdef claim_row_t[8] few
    cdef claim_row_t* claims = few
    cdef uint32_t i = 0, claim
    cdef lock_row_t image
    if total > 8:
        claims = <claim_row_t*>malloc(<size_t>total * sizeof(claim_row_t))
        if claims == NULL:
            out_of_memory()
    claim = row.holder_first
    while claim:
        fill_claim_row(t, claim_at(t, claim), &claims[i])
        i += 1
        claim = claim_at(t, claim).next
    claim = row.waiter_first
    while claim:
        fill_claim_row(t, claim_at(t, claim), &claims[i])
        i += 1
        claim = claim_at(t, claim).next
    fill_lock_row(t, row, &image)
    if lock_row_encode(out, &image, claims if holder_count else NULL, holder_count,
                       claims + holder_count if row.waiter_count else NULL, row.waiter_count) != 0:
        out_of_memory()
    if claims != few:
        free(claims)


cdef void encode_lease(table_t* t, buffer_t* out, uint32_t handle) noexcept nogil:
    cdef lease_t* lease = lease_at(t, handle)
    cdef lease_row_t image
    memset(&image, 0, sizeof(image))
    image.bound = lease.bound
    image.lease_high = lease.high
    image.lease_low = lease.low
    image.ttl_ms = lease.ttl_ms
    image.generation = lease.generation
    image.remaining_ms = lease.remaining_ms
    image.lost_revision = lease.lost_revision
    if lease.owner_size:
        image.owner = lease_owner(lease)
    if lease_row_encode(out, &image) != 0:
        out_of_memory()


cdef void encode_session(table_t* t, buffer_t* out, uint32_t handle) noexcept nogil:
    cdef session_t* session = session_at(t, handle)
    cdef session_row_t image
    cdef answer_row_t* answers = NULL
    cdef answer_t* answer
    cdef uint32_t i, count = 0
    memset(&image, 0, sizeof(image))
    image.session = session.id
    image.watermark = session.watermark
    image.uses = session.uses
    image.lifetime_ms = session.lifetime_ms
    if session.capacity:
        answers = <answer_row_t*>malloc(<size_t>session.capacity * sizeof(answer_row_t))
        if answers == NULL:
            out_of_memory()
    for i in range(session.capacity):
        answer = find_answer(session, session.watermark + i)
        if answer == NULL:
            continue
        answers[count].sequence = answer.sequence
        answers[count].code = answer.code
        answers[count].kind = answer.kind
        answers[count].count = answer.count
        answers[count].detail = answer.detail
        answers[count].token = answer.token
        answers[count].revision = answer.revision
        count += 1
    if session_row_encode(out, &image, answers if count else NULL, count) != 0:
        out_of_memory()
    free(answers)
