"""importSlots: rows of another group, checked whole before the first is taken; and rows as a checkpoint has them."""


cdef enum:
    RECORD_HEADER_BYTES = 8
    CLAIM_COUNT_CEILING = 0x7FFFFFFF
    REVISION_STOP = 9_007_194_959_773_696      # 2^53 - 2^32


# A claim as an import brings it, for the checks across rows.
cdef struct arrival_t:
    uint64_t lease_high
    uint64_t lease_low
    uint64_t request
    uint64_t revision
    uint32_t lock_delay_ms
    uint16_t slot
    uint16_t position
    uint16_t key_total
    uint16_t mode


cdef int identity_compare(const void* a, const void* b) noexcept nogil:
    cdef const claim_row_t* x = <const claim_row_t*>a
    cdef const claim_row_t* y = <const claim_row_t*>b
    if x.lease_high != y.lease_high:
        return -1 if x.lease_high < y.lease_high else 1
    if x.lease_low != y.lease_low:
        return -1 if x.lease_low < y.lease_low else 1
    if x.request != y.request:
        return -1 if x.request < y.request else 1
    return 0


cdef int arrival_compare(const void* a, const void* b) noexcept nogil:
    cdef const arrival_t* x = <const arrival_t*>a
    cdef const arrival_t* y = <const arrival_t*>b
    if x.slot != y.slot:
        return -1 if x.slot < y.slot else 1
    if x.revision != y.revision:
        return -1 if x.revision < y.revision else 1
    if x.position != y.position:
        return -1 if x.position < y.position else 1
    return 0


cdef int hash_compare(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t*>a)[0]
    cdef uint64_t y = (<const uint64_t*>b)[0]
    return -1 if x < y else (1 if x > y else 0)


cdef bint lease_row_is_sound(const lease_row_t* row, uint64_t revision_max) noexcept nogil:
    if row.lease_high == 0 and row.lease_low == 0:
        return False
    if row.ttl_ms != NO_EXPIRY_TTL_MS and not (TTL_MS_MIN <= row.ttl_ms <= <int64_t>TTL_MS_CEILING):
        return False
    return (row.remaining_ms <= <uint64_t>row.ttl_ms and row.owner.size <= OWNER_BYTES_CEILING
            and row.generation <= revision_max and row.lost_revision <= revision_max)


cdef bint claim_row_is_sound(const lock_row_t* row, const claim_row_t* claim, bint waits,
                             uint64_t revision_max) noexcept nogil:
    """A claim by itself; how claims of one row go together is the row's."""
    if claim.lease_high == 0 and claim.lease_low == 0:
        return False
    if claim.revision == 0 or claim.revision > revision_max or claim.lock_delay_ms > LOCK_DELAY_MS_CEILING:
        return False
    if row.mode == ROW_MODE_SEMAPHORE:
        if claim.mode != LOCK_MODE_SEMAPHORE or not (1 <= claim.count <= row.limit) or claim.key_total:
            return False
    elif row.mode != ROW_MODE_LOCK or claim.mode >= LOCK_MODE_SEMAPHORE or claim.count != 1:
        return False
    if not waits or claim.key_total == 0:
        return claim.key_total == 0 and claim.position == 0
    return claim.key_total <= KEYS_PER_ACQUIRE_CEILING and claim.position < claim.key_total


cdef bint claims_are_sound(const lock_row_t* row, const list_t* claims, bint wait,
                           uint64_t revision_max) noexcept nogil:
    cdef claim_row_t claim
    cdef uint64_t revision_last = 0, taken = 0
    cdef bint any_exclusive = False
    cdef uint32_t i
    for i in range(claims.count):
        claim_row_at(claims, i, &claim)
        if not claim_row_is_sound(row, &claim, wait, revision_max) or claim.revision <= revision_last:
            return False
        revision_last = claim.revision
        taken += claim.count
        any_exclusive |= claim.mode == LOCK_MODE_EXCLUSIVE
    if wait:
        return True
    if any_exclusive:
        return claims.count == 1
    return row.mode != ROW_MODE_SEMAPHORE or taken <= row.limit


cdef bint identities_differ(const lock_row_t* row) noexcept nogil:
    """No two claims of the row have one (lease, request)."""
    cdef uint32_t total = row.holders.count + row.waiters.count
    cdef claim_row_t* claims
    cdef uint32_t i
    cdef bint differ = True
    if total < 2:
        return True
    claims = <claim_row_t*>malloc(<size_t>total * sizeof(claim_row_t))
    if claims == NULL:
        out_of_memory()
    for i in range(row.holders.count):
        claim_row_at(&row.holders, i, &claims[i])
    for i in range(row.waiters.count):
        claim_row_at(&row.waiters, i, &claims[row.holders.count + i])
    qsort(claims, total, sizeof(claim_row_t), identity_compare)
    for i in range(1, total):
        differ &= identity_compare(&claims[i - 1], &claims[i]) != 0
    free(claims)
    return differ


cdef bint lock_row_is_sound(const lock_row_t* row, uint64_t revision_max) noexcept nogil:
    """Whether a group could have such a row by itself."""
    cdef bint has_claims = row.holders.count + row.waiters.count != 0
    if row.key.size == 0 or row.key.size > KEY_BYTES_CEILING or row.slot != key_slot(row.key):
        return False
    if row.mode >= ROW_MODE_TOTAL or has_claims != (row.mode != ROW_MODE_FREE):
        return False
    if row.mode == ROW_MODE_SEMAPHORE:
        if row.limit == 0 or row.limit > CLAIM_COUNT_CEILING:
            return False
    elif row.limit:
        return False
    if row.value_revision == 0 and (row.value.size or row.value_token):
        return False
    if row.value.size > VALUE_BYTES_CEILING or row.delay_ms > LOCK_DELAY_MS_CEILING:
        return False
    if (row.delay_ms != 0) != (row.delay_generation != 0):
        return False
    if max(row.value_revision, max(row.value_token, row.delay_generation)) > revision_max:
        return False
    if not has_claims and row.value_revision == 0 and row.delay_ms == 0:
        return False
    return (claims_are_sound(row, &row.holders, False, revision_max)
            and claims_are_sound(row, &row.waiters, True, revision_max) and identities_differ(row))


# Records of an import. Each was decoded once in the check, so the second time it cannot fail.

cdef inline uint32_t record_kind(slice_t record) noexcept nogil:
    """RowKind, or unset if the header is not one."""
    if record.size <= RECORD_HEADER_BYTES or record.data[0] != load64(record.data):
        return ROW_KIND_UNSET
    return record.data[0]


cdef inline bint read_lock_record(slice_t record, lock_row_t* row) noexcept nogil:
    return lock_row_decode(record.data + RECORD_HEADER_BYTES, record.size - RECORD_HEADER_BYTES, row) == CODE_OK


cdef inline bint read_lease_record(slice_t record, lease_row_t* row) noexcept nogil:
    return lease_row_decode(record.data + RECORD_HEADER_BYTES, record.size - RECORD_HEADER_BYTES, row) == CODE_OK


# What an import's checks across rows need to remember.
cdef struct import_t:
    uint64_t* hashes                 # of the keys
    uint32_t hash_count
    uint64_t* leases                 # ids of the chunk's leases, hashed
    uint32_t lease_count
    arrival_t* arrivals              # claims of waiting acquireAlls
    uint32_t arrival_count
    uint32_t arrival_capacity


cdef inline uint64_t lease_id_hash(uint64_t high, uint64_t low) noexcept nogil:
    cdef uint64_t[2] id
    id[0] = high
    id[1] = low
    return key_hash(<uint8_t*>id, sizeof(id), 0)


cdef bint chunk_has_lease(table_t* t, const command_t* command, const import_t* chunk, uint64_t high,
                          uint64_t low) noexcept nogil:
    """Whether a lease row for this id is in the chunk; equal hashes are compared by id."""
    cdef uint64_t hash = lease_id_hash(high, low)
    cdef lease_row_t row
    cdef uint32_t i
    if chunk.lease_count == 0:
        return False
    if bsearch(&hash, chunk.leases, chunk.lease_count, sizeof(uint64_t), hash_compare) == NULL:
        return False
    for i in range(command.list_count):
        if record_kind(command_item(command, i)) == ROW_KIND_LEASE:
            read_lease_record(command_item(command, i), &row)
            if row.lease_high == high and row.lease_low == low:
                return True
    return False


cdef bint arrivals_push(import_t* chunk, const lock_row_t* row, const claim_row_t* claim) noexcept nogil:
    cdef arrival_t* arrival
    cdef void* items
    if chunk.arrival_count == chunk.arrival_capacity:
        chunk.arrival_capacity = chunk.arrival_capacity * 2 if chunk.arrival_capacity else 64
        items = realloc(chunk.arrivals, <size_t>chunk.arrival_capacity * sizeof(arrival_t))
        if items == NULL:
            out_of_memory()
        chunk.arrivals = <arrival_t*>items
    arrival = &chunk.arrivals[chunk.arrival_count]
    chunk.arrival_count += 1
    arrival.lease_high = claim.lease_high
    arrival.lease_low = claim.lease_low
    arrival.request = claim.request
    arrival.revision = claim.revision
    arrival.lock_delay_ms = claim.lock_delay_ms
    arrival.slot = row.slot
    arrival.position = claim.position
    arrival.key_total = claim.key_total
    arrival.mode = claim.mode
    return True


cdef bint check_claims_of(table_t* t, const command_t* command, import_t* chunk, const lock_row_t* row,
                          const list_t* claims) noexcept nogil:
    """Every claim's lease is here or in the chunk; waiting acquireAlls are noted."""
    cdef claim_row_t claim
    cdef uint32_t i
    for i in range(claims.count):
        claim_row_at(claims, i, &claim)
        if not find_live_lease(t, claim.lease_high, claim.lease_low):
            if not chunk_has_lease(t, command, chunk, claim.lease_high, claim.lease_low):
                return False
        if claim.key_total:
            arrivals_push(chunk, row, &claim)
    return True


cdef bint check_records_alone(table_t* t, const command_t* command, import_t* chunk) noexcept nogil:
    """Each record by itself; fills the chunk's hashes of keys and leases."""
    cdef lock_row_t lock
    cdef lease_row_t lease
    cdef slice_t record
    cdef uint32_t i, kind
    for i in range(command.list_count):
        record = command_item(command, i)
        kind = record_kind(record)
        if kind == ROW_KIND_LEASE:
            if not read_lease_record(record, &lease) or not lease_row_is_sound(&lease, command.target):
                return False
            chunk.leases[chunk.lease_count] = lease_id_hash(lease.lease_high, lease.lease_low)
            chunk.lease_count += 1
        elif kind == ROW_KIND_LOCK:
            if not read_lock_record(record, &lock) or not lock_row_is_sound(&lock, command.target):
                return False
            if not (command.slot_first <= lock.slot <= command.slot_last):
                return False
            chunk.hashes[chunk.hash_count] = hash_of_key(t, lock.key)
            if find_row(t, lock.key, chunk.hashes[chunk.hash_count]):
                return False
            chunk.hash_count += 1
        else:
            return False
    return True


cdef bint keys_differ(const command_t* command, import_t* chunk) noexcept nogil:
    """No key is there twice. Only keys of equal hashes are compared, and those are as good as never different."""
    cdef lock_row_t a, b
    cdef uint32_t i, j
    cdef bint suspicious = False
    qsort(chunk.hashes, chunk.hash_count, sizeof(uint64_t), hash_compare)
    for i in range(1, chunk.hash_count):
        suspicious |= chunk.hashes[i] == chunk.hashes[i - 1]
    if not suspicious:
        return True
    for i in range(command.list_count):
        if record_kind(command_item(command, i)) != ROW_KIND_LOCK:
            continue
        read_lock_record(command_item(command, i), &a)
        for j in range(i):
            if record_kind(command_item(command, j)) == ROW_KIND_LOCK:
                read_lock_record(command_item(command, j), &b)
                if slices_equal(a.key, b.key):
                    return False
    return True


cdef bint arrivals_agree(const arrival_t* a, const arrival_t* b) noexcept nogil:
    """Whether two claims with one slot and revision can belong to one acquireAll."""
    return (a.position != b.position and a.lease_high == b.lease_high and a.lease_low == b.lease_low
            and a.request == b.request and a.mode == b.mode and a.lock_delay_ms == b.lock_delay_ms
            and a.key_total == b.key_total)


cdef uint32_t ring_of(table_t* t, uint32_t lease, uint16_t slot, uint64_t revision) noexcept nogil:
    """A claim of the lease's waiting acquireAll with this slot and revision, or 0."""
    cdef uint32_t handle = lease_at(t, lease).claim_first
    cdef claim_t* claim
    while handle:
        claim = claim_at(t, handle)
        if (claim.revision == revision and claim.key_total and claim_waits(claim)
                and row_at(t, claim.row).slot == slot):
            return handle
        handle = claim.lease_next
    return 0


cdef bint agrees_with_table(table_t* t, const arrival_t* arrival) noexcept nogil:
    """Whether what is already here of an acquireAll can go with an arriving claim of it."""
    cdef uint32_t lease = find_live_lease(t, arrival.lease_high, arrival.lease_low)
    cdef uint32_t first = ring_of(t, lease, arrival.slot, arrival.revision) if lease else 0
    cdef uint32_t handle = first
    cdef claim_t* claim
    while handle:
        claim = claim_at(t, handle)
        if (claim.position == arrival.position or claim.request != arrival.request
                or claim_mode(claim) != arrival.mode or claim_lock_delay_ms(claim) != arrival.lock_delay_ms
                or claim.key_total != arrival.key_total):
            return False
        handle = claim.linked if claim.linked != first else 0
    return True


cdef bint check_chunk(table_t* t, const command_t* command, import_t* chunk) noexcept nogil:
    cdef lock_row_t row
    cdef uint32_t i
    if not check_records_alone(t, command, chunk) or not keys_differ(command, chunk):
        return False
    qsort(chunk.leases, chunk.lease_count, sizeof(uint64_t), hash_compare)
    for i in range(command.list_count):
        if record_kind(command_item(command, i)) == ROW_KIND_LOCK:
            read_lock_record(command_item(command, i), &row)
            if not (check_claims_of(t, command, chunk, &row, &row.holders)
                    and check_claims_of(t, command, chunk, &row, &row.waiters)):
                return False
    if chunk.arrival_count:
        qsort(chunk.arrivals, chunk.arrival_count, sizeof(arrival_t), arrival_compare)
    for i in range(chunk.arrival_count):
        if not agrees_with_table(t, &chunk.arrivals[i]):
            return False
        if (i and chunk.arrivals[i - 1].slot == chunk.arrivals[i].slot
                and chunk.arrivals[i - 1].revision == chunk.arrivals[i].revision
                and not arrivals_agree(&chunk.arrivals[i - 1], &chunk.arrivals[i])):
            return False
    return True


cdef bint chunk_is_fine(table_t* t, const command_t* command) noexcept nogil:
    cdef import_t chunk
    cdef bint fine
    memset(&chunk, 0, sizeof(chunk))
    chunk.hashes = <uint64_t*>malloc((<size_t>command.list_count + 1) * sizeof(uint64_t))
    chunk.leases = <uint64_t*>malloc((<size_t>command.list_count + 1) * sizeof(uint64_t))
    if chunk.hashes == NULL or chunk.leases == NULL:
        out_of_memory()
    fine = check_chunk(t, command, &chunk)
    free(chunk.hashes)
    free(chunk.leases)
    free(chunk.arrivals)
    return fine


cdef void import_slots(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t i
    if not check_slots(t, command, SLOT_STATE_FOREIGN, SLOT_STATE_IMPORTING, reply):
        return
    if command.target >= <uint64_t>1 << 53:
        refuse_argument(reply, ARGUMENT_TOKEN_FLOOR)
        return
    if not chunk_is_fine(t, command):
        refuse_argument(reply, ARGUMENT_ROWS)
        return
    t.revision = max(t.revision, command.target)
    for i in range(command.list_count):
        if record_kind(command_item(command, i)) == ROW_KIND_LEASE:
            import_lease(t, command_item(command, i))
    for i in range(command.list_count):
        if record_kind(command_item(command, i)) == ROW_KIND_LOCK:
            import_lock(t, command_item(command, i))
    set_slots(t, command, SLOT_STATE_OWNED if command.complete else SLOT_STATE_IMPORTING, 0)
    if command.complete:
        serve_slots(t, command)


cdef void import_lease(table_t* t, slice_t record) noexcept nogil:
    """A lease that is not here comes to life, and its client is told of a loss.

    1. A wait of the lease moves away with its slot, and a copy of the lease with it; 2. the lease ends here, and what
    it held goes to others; 3. the slot comes back, and the copy with it; 4. the next keep-alive says that the
    lease lives. The client, which was away in between, must not believe in what it held before.
    """
    cdef lease_row_t row
    cdef uint32_t handle
    cdef lease_t* lease
    read_lease_record(record, &row)
    handle = find_lease(t, row.lease_high, row.lease_low)
    if handle and lease_at(t, handle).generation:
        return
    if handle == 0:
        handle = add_lease(t, row.lease_high, row.lease_low, row.ttl_ms, row.owner, row.bound, t.revision)
        lease = lease_at(t, handle)
    else:
        touch_lease(t, handle)
        lease = lease_at(t, handle)
        drop_lease_owner(lease)
        set_lease_owner(lease, row.owner)
        lease.ttl_ms = row.ttl_ms
        lease.bound = row.bound
        lease.generation = t.revision
    lease.remaining_ms = row.remaining_ms
    lease.lost_revision = t.revision
    arm_lease(t, handle)


cdef void import_lock(table_t* t, slice_t record) noexcept nogil:
    cdef lock_row_t row
    cdef claim_row_t claim
    cdef uint32_t handle, i, lease, member
    read_lock_record(record, &row)
    handle = put_lock_row(t, &row)
    member = row_at(t, handle).waiter_first
    for i in range(row.waiters.count):
        claim_row_at(&row.waiters, i, &claim)
        if claim.key_total:
            lease = claim_at(t, member).lease
            # Not yet marked as one of an acquireAll, so the search finds the others only.
            claim_at(t, member).key_total = 0
            claim_at(t, member).linked = ring_of(t, lease, row.slot, claim.revision)
            claim_at(t, member).key_total = claim.key_total
            join_ring(t, claim_at(t, member).linked, member)
        member = claim_at(t, member).next


cdef uint32_t put_lock_row(table_t* t, const lock_row_t* row) noexcept nogil:
    """Adds a sound row with its claims, whose leases are here; acquireAlls are not linked yet."""
    cdef uint32_t handle = add_row(t, row.key, hash_of_key(t, row.key), row.slot)
    cdef row_t* lock = row_at(t, handle)
    cdef extra_t* extra
    lock.mode = <uint8_t>row.mode
    if row.mode == ROW_MODE_SEMAPHORE:
        become_semaphore(t, lock, row.limit)
    if row.value_revision or row.delay_generation:
        extra = need_extra(t, lock)
        extra.value = copy_of(row.value)
        extra.value_size = row.value.size
        extra.value_revision = row.value_revision
        extra.value_token = row.value_token
        if row.delay_generation:
            begin_delay(t, handle, row.delay_ms, row.delay_generation)
    put_claim_rows(t, handle, &row.holders, False)
    put_claim_rows(t, handle, &row.waiters, True)
    return handle


cdef void put_claim_rows(table_t* t, uint32_t row, const list_t* claims, bint wait) noexcept nogil:
    cdef claim_row_t source
    cdef claim_t* claim
    cdef uint32_t i, handle
    for i in range(claims.count):
        claim_row_at(claims, i, &source)
        handle = add_claim(t, row, find_lease(t, source.lease_high, source.lease_low), source.request, source.mode,
                           source.count, source.lock_delay_ms, wait)
        claim = claim_at(t, handle)
        claim.revision = source.revision
        claim.position = source.position
        claim.key_total = source.key_total
        if wait:
            append_waiter(t, row_at(t, row), handle)
        else:
            append_holder(t, row_at(t, row), handle)
