"""Rows, claims, leases and sessions: finding, adding, linking and removing them; nothing here decides anything."""


# Memory for a batch is set aside before its first command acts (reserve_batch). What is asked for in
# the middle of a command cannot be refused any more: going on would make this replica differ from the others.
cdef void out_of_memory() noexcept nogil:
    Py_FatalError("fastlock: out of memory in the middle of an apply; stopping is safe, going on is not")


cdef inline void handles_push(handles_t* list, uint32_t handle) noexcept nogil:
    cdef uint32_t capacity
    cdef void* items
    if list.count == list.capacity:
        capacity = list.capacity * 2 if list.capacity else 64
        items = realloc(list.items, <size_t>capacity * sizeof(uint32_t))
        if items == NULL:
            out_of_memory()
        list.items = <uint32_t*>items
        list.capacity = capacity
    list.items[list.count] = handle
    list.count += 1


cdef inline void handles_free(handles_t* list) noexcept nogil:
    free(list.items)
    memset(list, 0, sizeof(handles_t))


cdef inline void orders_push(orders_t* list, uint64_t revision, uint16_t slot, uint16_t position,
                             uint32_t handle) noexcept nogil:
    cdef uint32_t capacity
    cdef void* items
    if list.count == list.capacity:
        capacity = list.capacity * 2 if list.capacity else 64
        items = realloc(list.items, <size_t>capacity * sizeof(order_t))
        if items == NULL:
            out_of_memory()
        list.items = <order_t*>items
        list.capacity = capacity
    list.items[list.count].revision = revision
    list.items[list.count].slot = slot
    list.items[list.count].position = position
    list.items[list.count].handle = handle
    list.count += 1


cdef inline bint order_is_less(const order_t* a, const order_t* b) noexcept nogil:
    if a.revision != b.revision:
        return a.revision < b.revision
    if a.slot != b.slot:
        return a.slot < b.slot
    return a.position < b.position


cdef int order_compare(const void* a, const void* b) noexcept nogil:
    if order_is_less(<const order_t*>a, <const order_t*>b):
        return -1
    return 1 if order_is_less(<const order_t*>b, <const order_t*>a) else 0


cdef void orders_sort(orders_t* list) noexcept nogil:
    cdef uint32_t i
    for i in range(1, list.count):
        if order_is_less(&list.items[i], &list.items[i - 1]):
            qsort(list.items, list.count, sizeof(order_t), order_compare)
            return


cdef inline void prefetch_item(const void* item, size_t size) noexcept nogil:
    """Asks for every cache line of an item of a slab. Only those of a line's size never straddle two."""
    prefetch(item)
    if size > LINE_BYTES:
        prefetch(<const uint8_t*>item + LINE_BYTES)
    if size != LINE_BYTES:
        prefetch(<const uint8_t*>item + size - 1)


cdef inline uint32_t take_item(slab_t* slab, size_t size) noexcept nogil:
    """A zeroed item; `size` is the slab's, known to the compiler.

    Asks for the memory of the next one, which was given back some time ago and may be far away.
    """
    cdef uint32_t handle = slab.free_first
    cdef uint8_t* item
    cdef uint32_t after
    if handle == 0:
        handle = slab_take(slab)
        if handle == 0:
            out_of_memory()
        return handle
    item = slab.chunks[handle >> SLAB_CHUNK_BITS] + (handle & SLAB_CHUNK_MASK) * size
    after = (<uint32_t*>item)[0]
    slab.free_first = after
    slab.live += 1
    memset(item, 0, size)
    if after:
        prefetch_item(slab.chunks[after >> SLAB_CHUNK_BITS] + (after & SLAB_CHUNK_MASK) * size, size)
    return handle


# slab_at for the types that every command touches: with the size known, the multiplication is a shift or two.

cdef inline row_t* row_at(table_t* t, uint32_t handle) noexcept nogil:
    return <row_t*>t.rows.chunks[handle >> SLAB_CHUNK_BITS] + (handle & SLAB_CHUNK_MASK)


cdef inline claim_t* claim_at(table_t* t, uint32_t handle) noexcept nogil:
    return <claim_t*>t.claims.chunks[handle >> SLAB_CHUNK_BITS] + (handle & SLAB_CHUNK_MASK)


cdef inline lease_t* lease_at(table_t* t, uint32_t handle) noexcept nogil:
    return <lease_t*>t.leases.chunks[handle >> SLAB_CHUNK_BITS] + (handle & SLAB_CHUNK_MASK)


cdef inline session_t* session_at(table_t* t, uint32_t handle) noexcept nogil:
    return <session_t*>slab_at(&t.sessions, handle)


cdef inline extra_t* extra_at(table_t* t, uint32_t handle) noexcept nogil:
    return <extra_t*>slab_at(&t.extras, handle)


cdef inline uint32_t claim_mode(const claim_t* claim) noexcept nogil:
    return claim.packed >> CLAIM_MODE_SHIFT & 3


cdef inline uint32_t claim_lock_delay_ms(const claim_t* claim) noexcept nogil:
    return claim.packed & CLAIM_DELAY_MASK


cdef inline bint claim_waits(const claim_t* claim) noexcept nogil:
    return (claim.packed & CLAIM_WAITS) != 0


cdef inline slice_t row_key(const row_t* row) noexcept nogil:
    cdef slice_t key
    key.size = row.key_size
    if row.key_size <= KEY_INLINE_BYTES:
        key.data = row.key
    else:
        memcpy(&key.data, row.key, sizeof(key.data))
    return key


cdef inline slice_t lease_owner(const lease_t* lease) noexcept nogil:
    cdef slice_t owner
    owner.size = lease.owner_size
    if lease.owner_size <= OWNER_INLINE_BYTES:
        owner.data = lease.owner
    else:
        memcpy(&owner.data, lease.owner, sizeof(owner.data))
    return owner


cdef inline void set_lease_owner(lease_t* lease, slice_t owner) noexcept nogil:
    """Sets the owner of a lease that has none."""
    cdef uint8_t* copy
    lease.owner_size = <uint16_t>owner.size
    if owner.size > OWNER_INLINE_BYTES:
        copy = copy_of(owner)
        memcpy(lease.owner, &copy, sizeof(copy))
    elif owner.size:
        memcpy(lease.owner, owner.data, owner.size)


cdef inline void drop_lease_owner(lease_t* lease) noexcept nogil:
    if lease.owner_size > OWNER_INLINE_BYTES:
        free(<void*>lease_owner(lease).data)
    lease.owner_size = 0


cdef inline bint row_is_delayed(table_t* t, const row_t* row) noexcept nogil:
    return row.extra != 0 and extra_at(t, row.extra).delay_generation != 0


cdef inline bint row_has_value(table_t* t, const row_t* row) noexcept nogil:
    return row.extra != 0 and extra_at(t, row.extra).value_revision != 0


# Tags of the indexes. The lock index's is the same on every node, because list cursors are made of it.

cdef inline uint64_t hash_of_key(table_t* t, slice_t key) noexcept nogil:
    return key_hash(key.data if key.size else NO_BYTES, key.size, t.settings[SETTING_ID_HASH_SEED])


cdef inline uint32_t tag_of_hash(uint64_t hash) noexcept nogil:
    return <uint32_t>(hash >> 32)


cdef inline uint32_t tag_of_lease(table_t* t, uint64_t high, uint64_t low) noexcept nogil:
    # Lease ids are random unless somebody means harm; the seed is for him.
    cdef uint64_t first = hash_fold(high ^ t.settings[SETTING_ID_HASH_SEED] ^ <uint64_t>0x9E3779B97F4A7C15,
                                    <uint64_t>0xC2B2AE3D27D4EB4F)
    return tag_of_hash(hash_fold(low ^ first, <uint64_t>0x165667B19E3779F9) ^ first)


cdef inline uint32_t tag_of_session(uint64_t id) noexcept nogil:
    # Session ids are revisions, so they are distinct already; the multiplication spreads them.
    return <uint32_t>((id * <uint64_t>0x9E3779B97F4A7C15) >> 32)


cdef inline uint32_t find_row(table_t* t, slice_t key, uint64_t hash) noexcept nogil:
    cdef probe_t probe
    cdef uint32_t handle = index_find_first(&t.row_index, tag_of_hash(hash), &probe)
    cdef slice_t found
    while handle:
        found = row_key(row_at(t, handle))
        if found.size == key.size and same_bytes(found.data, key.data, key.size):
            return handle
        handle = index_find_next(&probe)
    return 0


cdef inline uint32_t find_lease(table_t* t, uint64_t high, uint64_t low) noexcept nogil:
    """A lease by its id, also an ended one."""
    cdef probe_t probe
    cdef uint32_t handle = index_find_first(&t.lease_index, tag_of_lease(t, high, low), &probe)
    while handle:
        if lease_at(t, handle).high == high and lease_at(t, handle).low == low:
            return handle
        handle = index_find_next(&probe)
    return 0


cdef inline uint32_t find_live_lease(table_t* t, uint64_t high, uint64_t low) noexcept nogil:
    cdef uint32_t handle = find_lease(t, high, low)
    return handle if handle and lease_at(t, handle).generation else 0


cdef inline uint32_t find_session(table_t* t, uint64_t id) noexcept nogil:
    cdef probe_t probe
    cdef uint32_t handle = index_find_first(&t.session_index, tag_of_session(id), &probe)
    while handle:
        if session_at(t, handle).id == id:
            return handle
        handle = index_find_next(&probe)
    return 0


cdef inline uint32_t find_claim(table_t* t, uint32_t row, uint32_t lease, uint64_t request) noexcept nogil:
    """The claim of (lease, request) on a row, or 0; walks the row's and the lease's claims side by side."""
    cdef uint32_t of_row = row_at(t, row).holder_first
    cdef uint32_t of_lease = lease_at(t, lease).claim_first
    cdef bint in_queue = False
    cdef claim_t* claim
    while True:
        if of_row == 0 and not in_queue:
            of_row = row_at(t, row).waiter_first
            in_queue = True
        if of_row == 0 or of_lease == 0:
            return 0
        claim = claim_at(t, of_row)
        if claim.lease == lease and claim.request == request:
            return of_row
        of_row = claim.next
        claim = claim_at(t, of_lease)
        if claim.row == row and claim.request == request:
            return of_lease
        of_lease = claim.lease_next


cdef inline uint32_t find_holder(table_t* t, uint32_t row, uint32_t lease, uint64_t token) noexcept nogil:
    """The holder with a lease and a token on a row, or 0; walks like find_claim."""
    cdef uint32_t of_row = row_at(t, row).holder_first
    cdef uint32_t of_lease = lease_at(t, lease).claim_first
    cdef claim_t* claim
    while of_row and of_lease:
        claim = claim_at(t, of_row)
        if claim.lease == lease and claim.revision == token:
            return of_row
        of_row = claim.next
        claim = claim_at(t, of_lease)
        if claim.row == row and claim.revision == token and not claim_waits(claim):
            return of_lease
        of_lease = claim.lease_next
    return 0


cdef uint8_t* copy_of(slice_t content) noexcept nogil:
    cdef uint8_t* copy
    if content.size == 0:
        return NULL
    copy = <uint8_t*>malloc(content.size)
    if copy == NULL:
        out_of_memory()
    memcpy(copy, content.data, content.size)
    return copy


cdef uint32_t add_row(table_t* t, slice_t key, uint64_t hash, uint16_t slot) noexcept nogil:
    cdef uint32_t before = row_at(t, t.rows.free_first).marks if t.rows.free_first else 0
    cdef uint32_t handle = take_item(&t.rows, sizeof(row_t))
    cdef row_t* row
    cdef uint8_t* copy
    if not index_put(&t.row_index, tag_of_hash(hash), handle):
        out_of_memory()
    row = row_at(t, handle)
    inherit_listing(t, &row.marks, before)
    row.slot = slot
    row.key_size = <uint16_t>key.size
    if key.size <= KEY_INLINE_BYTES:
        memcpy(row.key, key.data, key.size)
    else:
        copy = copy_of(key)
        memcpy(row.key, &copy, sizeof(copy))
    # Set aside already, unless the row comes from a checkpoint.
    if handle >= t.row_slots_capacity and not reserve_row_slots(t, 1):
        out_of_memory()
    t.row_slots[handle] = slot
    touch_row(t, handle)
    return handle


cdef void free_row_content(table_t* t, row_t* row) noexcept nogil:
    if row.key_size > KEY_INLINE_BYTES:
        free(<void*>row_key(row).data)
    if row.extra:
        free_extra(t, row)


cdef void remove_row(table_t* t, uint32_t handle) noexcept nogil:
    """Forgets a row without claims; what is left in it goes too."""
    cdef row_t* row = row_at(t, handle)
    forget_row(t, handle)
    index_remove(&t.row_index, tag_of_hash(hash_of_key(t, row_key(row))), handle)
    free_row_content(t, row)
    row.key_size = 0
    slab_give(&t.rows, handle)


cdef extra_t* need_extra(table_t* t, row_t* row) noexcept nogil:
    if row.extra == 0:
        row.extra = take_item(&t.extras, sizeof(extra_t))
    return extra_at(t, row.extra)


cdef void free_extra(table_t* t, row_t* row) noexcept nogil:
    cdef extra_t* extra = extra_at(t, row.extra)
    free(extra.value)
    if extra.timer:
        wheel_remove(&t.wheel, extra.timer)
    slab_give(&t.extras, row.extra)
    row.extra = 0


cdef void settle_extra(table_t* t, row_t* row) noexcept nogil:
    """Gives a row's extra back if nothing is left in it."""
    cdef extra_t* extra = extra_at(t, row.extra)
    if extra.value_revision == 0 and extra.delay_generation == 0 and row.mode != ROW_MODE_SEMAPHORE:
        free_extra(t, row)


cdef void become_semaphore(table_t* t, row_t* row, uint32_t limit) noexcept nogil:
    """Makes a row with its first claim a semaphore."""
    row.mode = ROW_MODE_SEMAPHORE
    need_extra(t, row).limit = limit


cdef void become_free(table_t* t, row_t* row) noexcept nogil:
    """After the last claim went: the row has no mode."""
    cdef bint was_semaphore = row.mode == ROW_MODE_SEMAPHORE
    row.mode = ROW_MODE_FREE
    if was_semaphore:
        extra_at(t, row.extra).limit = 0
        settle_extra(t, row)


cdef void drop_value(table_t* t, row_t* row) noexcept nogil:
    cdef extra_t* extra = extra_at(t, row.extra)
    free(extra.value)
    extra.value = NULL
    extra.value_size = 0
    extra.value_revision = extra.value_token = 0
    settle_extra(t, row)


cdef void drop_delay(table_t* t, row_t* row) noexcept nogil:
    cdef extra_t* extra = extra_at(t, row.extra)
    extra.delay_ms = 0
    extra.delay_generation = 0
    if extra.timer:
        wheel_remove(&t.wheel, extra.timer)
        extra.timer = 0
    settle_extra(t, row)


# The lists a claim is in.

cdef inline void list_append(table_t* t, uint32_t* first, uint32_t* last, uint32_t handle) noexcept nogil:
    cdef claim_t* claim = claim_at(t, handle)
    claim.next = 0
    claim.previous = last[0]
    if last[0]:
        claim_at(t, last[0]).next = handle
    else:
        first[0] = handle
    last[0] = handle


cdef inline void list_remove(table_t* t, uint32_t* first, uint32_t* last, uint32_t handle) noexcept nogil:
    cdef claim_t* claim = claim_at(t, handle)
    if claim.previous:
        claim_at(t, claim.previous).next = claim.next
    else:
        first[0] = claim.next
    if claim.next:
        claim_at(t, claim.next).previous = claim.previous
    else:
        last[0] = claim.previous


cdef inline void append_holder(table_t* t, row_t* row, uint32_t handle) noexcept nogil:
    list_append(t, &row.holder_first, &row.holder_last, handle)
    if row.mode == ROW_MODE_SEMAPHORE:
        extra_at(t, row.extra).taken += claim_at(t, handle).count


cdef inline void append_waiter(table_t* t, row_t* row, uint32_t handle) noexcept nogil:
    list_append(t, &row.waiter_first, &row.waiter_last, handle)
    row.waiter_count += 1
    t.waiter_count += 1


cdef inline void unlink_from_row(table_t* t, row_t* row, uint32_t handle) noexcept nogil:
    if claim_waits(claim_at(t, handle)):
        list_remove(t, &row.waiter_first, &row.waiter_last, handle)
        row.waiter_count -= 1
        t.waiter_count -= 1
    else:
        list_remove(t, &row.holder_first, &row.holder_last, handle)
        if row.mode == ROW_MODE_SEMAPHORE:
            extra_at(t, row.extra).taken -= claim_at(t, handle).count


cdef inline uint32_t add_claim(table_t* t, uint32_t row, uint32_t lease, uint64_t request, uint32_t mode,
                               uint32_t count, uint32_t lock_delay_ms, bint waits) noexcept nogil:
    """A claim in its lease's list; revision, and the row's list, are the caller's to set."""
    cdef uint32_t handle = take_item(&t.claims, sizeof(claim_t))
    cdef claim_t* claim
    cdef lease_t* owner = lease_at(t, lease)
    claim = claim_at(t, handle)
    claim.request = request
    claim.row = row
    claim.lease = lease
    claim.count = count
    claim.packed = lock_delay_ms | mode << CLAIM_MODE_SHIFT | (<uint32_t>CLAIM_WAITS if waits else 0)
    claim.lease_next = owner.claim_first
    if owner.claim_first:
        claim_at(t, owner.claim_first).lease_previous = handle
    owner.claim_first = handle
    owner.claim_count += 1
    return handle


cdef inline void remove_claim(table_t* t, uint32_t handle) noexcept nogil:
    """Takes a claim out of its row, its lease and its acquireAll; the row's mode follows."""
    cdef claim_t* claim = claim_at(t, handle)
    cdef row_t* row = row_at(t, claim.row)
    cdef lease_t* lease = lease_at(t, claim.lease)
    unlink_from_row(t, row, handle)
    if row.holder_first == 0 and row.waiter_first == 0:
        become_free(t, row)
    if claim.lease_previous:
        claim_at(t, claim.lease_previous).lease_next = claim.lease_next
    else:
        lease.claim_first = claim.lease_next
    if claim.lease_next:
        claim_at(t, claim.lease_next).lease_previous = claim.lease_previous
    lease.claim_count -= 1
    if claim.key_total:
        leave_ring(t, handle)
    slab_give(&t.claims, handle)


# The waiting claims of one acquireAll form a ring in order of their positions.

cdef void leave_ring(table_t* t, uint32_t handle) noexcept nogil:
    cdef uint32_t before = handle
    while claim_at(t, before).linked != handle:
        before = claim_at(t, before).linked
    claim_at(t, before).linked = claim_at(t, handle).linked


cdef void join_ring(table_t* t, uint32_t member, uint32_t handle) noexcept nogil:
    """Puts a claim into the ring of `member`, or alone if that is 0."""
    cdef uint32_t position = claim_at(t, handle).position
    cdef uint32_t before = member, after, here
    if member == 0:
        claim_at(t, handle).linked = handle
        return
    while True:
        after = claim_at(t, before).linked
        here = claim_at(t, before).position
        # The right place is between its neighbours, or where the ring wraps around.
        if here < position < claim_at(t, after).position:
            break
        if claim_at(t, after).position <= here and (position > here or position < claim_at(t, after).position):
            break
        before = after
    claim_at(t, handle).linked = after
    claim_at(t, before).linked = handle


cdef bint collect_ring(table_t* t, uint32_t handle) noexcept nogil:
    """Writes the ring's claims to t.linked from its lowest position on; whether all have arrived."""
    cdef uint32_t member = handle
    cdef uint32_t lowest = handle
    t.linked.count = 0
    while claim_at(t, member).linked != handle:
        member = claim_at(t, member).linked
        if claim_at(t, member).position < claim_at(t, lowest).position:
            lowest = member
    member = lowest
    while True:
        handles_push(&t.linked, member)
        member = claim_at(t, member).linked
        if member == lowest:
            return t.linked.count == claim_at(t, handle).key_total


cdef uint32_t add_lease(table_t* t, uint64_t high, uint64_t low, int64_t ttl_ms, slice_t owner, bint bound,
                        uint64_t generation) noexcept nogil:
    cdef uint32_t marks_before = 0, timer_before = 0
    cdef uint32_t handle = t.leases.free_first
    cdef lease_t* lease
    if handle:
        marks_before = lease_at(t, handle).marks
        timer_before = lease_at(t, handle).timer
    handle = take_item(&t.leases, sizeof(lease_t))
    if not index_put(&t.lease_index, tag_of_lease(t, high, low), handle):
        out_of_memory()
    lease = lease_at(t, handle)
    inherit_listing(t, &lease.marks, marks_before)
    lease.timer = timer_before
    lease.high = high
    lease.low = low
    lease.ttl_ms = ttl_ms
    set_lease_owner(lease, owner)
    lease.bound = bound
    lease.generation = generation
    arm_lease(t, handle)
    touch_lease(t, handle)
    return handle


cdef void remove_lease(table_t* t, uint32_t handle) noexcept nogil:
    """Forgets a lease without claims. Its timer stays with its handle, for whatever takes that next."""
    cdef lease_t* lease = lease_at(t, handle)
    forget_lease(t, handle)
    index_remove(&t.lease_index, tag_of_lease(t, lease.high, lease.low), handle)
    drop_lease_owner(lease)
    slab_give(&t.leases, handle)


cdef uint32_t add_session(table_t* t, uint64_t id, uint64_t lifetime_ms) noexcept nogil:
    cdef uint32_t before = session_at(t, t.sessions.free_first).marks if t.sessions.free_first else 0
    cdef uint32_t handle = take_item(&t.sessions, sizeof(session_t))
    cdef session_t* session
    if not index_put(&t.session_index, tag_of_session(id), handle):
        out_of_memory()
    session = session_at(t, handle)
    inherit_listing(t, &session.marks, before)
    session.id = id
    session.lifetime_ms = lifetime_ms
    arm_session(t, handle)
    touch_session(t, handle)
    return handle


cdef void remove_session(table_t* t, uint32_t handle) noexcept nogil:
    cdef session_t* session = session_at(t, handle)
    forget_session(t, handle)
    index_remove(&t.session_index, tag_of_session(session.id), handle)
    if session.timer:
        wheel_remove(&t.wheel, session.timer)
    free(session.answers)
    slab_give(&t.sessions, handle)


# Rows and bound leases that may have become empty are looked at once, when the command is done.

cdef inline void sweep_row_later(table_t* t, uint32_t handle) noexcept nogil:
    cdef row_t* row = row_at(t, handle)
    if row.holder_first == 0 and row.waiter_first == 0 and not row.marks & MARK_SWEEP:
        row.marks |= MARK_SWEEP
        handles_push(&t.swept_rows, handle)


cdef inline void sweep_lease_later(table_t* t, uint32_t handle) noexcept nogil:
    cdef lease_t* lease = lease_at(t, handle)
    if lease.claim_count == 0 and lease.bound and not lease.marks & MARK_SWEEP:
        lease.marks |= MARK_SWEEP
        handles_push(&t.swept_leases, handle)


cdef void sweep(table_t* t) noexcept nogil:
    cdef uint32_t i, handle
    cdef row_t* row
    for i in range(t.swept_rows.count):
        handle = t.swept_rows.items[i]
        row = row_at(t, handle)
        row.marks &= <uint8_t>~MARK_SWEEP
        if row.holder_first == 0 and row.waiter_first == 0 and row.extra == 0:
            remove_row(t, handle)
    t.swept_rows.count = 0
    for i in range(t.swept_leases.count):
        handle = t.swept_leases.items[i]
        lease_at(t, handle).marks &= <uint8_t>~MARK_SWEEP
        if lease_at(t, handle).claim_count == 0:
            remove_lease(t, handle)
    t.swept_leases.count = 0


# Slabs for a batch, set aside while refusing is still possible.

cdef bint slab_reserve(slab_t* slab, uint64_t items) noexcept nogil:
    cdef uint64_t given_back = slab.fresh - 1 - slab.live
    if items <= given_back:
        return True
    items -= given_back
    while (<uint64_t>slab.chunk_count << SLAB_CHUNK_BITS) < slab.fresh + items:
        if not slab_add_chunk(slab):
            return False
    return True


cdef bint reserve_row_slots(table_t* t, uint64_t rows) noexcept nogil:
    cdef uint64_t capacity = max(t.row_slots_capacity, <uint32_t>1024)
    cdef void* slots
    while capacity < t.rows.fresh + rows:
        capacity *= 2
    if capacity > t.row_slots_capacity:
        slots = realloc(t.row_slots, capacity * sizeof(uint16_t))
        if slots == NULL:
            return False
        t.row_slots = <uint16_t*>slots
        t.row_slots_capacity = <uint32_t>capacity
    return True


cdef bint reserve_batch(table_t* t, const command_t* commands, uint32_t count) noexcept nogil:
    """Room for all that the commands could add, and that it takes to say so."""
    cdef uint64_t rows = 0, leases = 0, sessions = 0
    cdef uint32_t i, kind
    cdef void* outcomes
    cdef uint32_t capacity
    for i in range(count):
        kind = commands[i].kind
        if kind == COMMAND_ACQUIRE or kind == COMMAND_CREATE_LEASE or kind == COMMAND_PUT_VALUE:
            rows += 1
            leases += 1
        elif kind == COMMAND_ACQUIRE_ALL or kind == COMMAND_IMPORT_SLOTS:
            rows += commands[i].list_count
            leases += commands[i].list_count
        elif kind == COMMAND_OPEN_SESSION:
            sessions += 1
    if t.outcome_capacity < count:
        capacity = max(count, <uint32_t>256)
        outcomes = realloc(t.outcomes, <size_t>capacity * sizeof(outcome_t))
        if outcomes == NULL:
            return False
        t.outcomes = <outcome_t*>outcomes
        t.outcome_capacity = capacity
    return (reserve_row_slots(t, rows) and slab_reserve(&t.rows, rows) and slab_reserve(&t.extras, rows)
            and slab_reserve(&t.claims, rows) and slab_reserve(&t.leases, leases)
            and slab_reserve(&t.sessions, sessions) and slab_reserve(&t.wheel.nodes, leases + sessions))
