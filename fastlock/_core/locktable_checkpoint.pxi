"""Checkpoints out and in, and rows for another group."""


cdef enum:
    EXPORT_SCANNED_MAX = 8192
    CHECKPOINT_BYTES_KEPT = 1 << 20    # of a buffer, between two checkpoints
    TAKEN_AHEAD = 8                    # how far ahead of its turn a dirty item is asked for


cdef uint64_t dirty_total(table_t* t) noexcept:
    return t.dirty.delete_count[t.dirty.now] + t.dirty.to_write


cdef int encode_group(table_t* t, buffer_t* out, uint64_t index, uint64_t term, uint64_t floor,
                      list members) except -1:
    """Appends the group row; members None leaves the membership out."""
    cdef group_row_t row
    cdef setting_t[SETTING_ID_TOTAL] settings
    cdef membership_t membership
    cdef member_t* array = NULL
    cdef moved_slots_t* moved = NULL
    cdef uint32_t moved_count = 0, i
    cdef int failed
    memset(&row, 0, sizeof(row))
    memset(&membership, 0, sizeof(membership))
    row.group = t.group
    row.index = index
    row.term = term
    row.revision = t.revision
    row.history_floor = floor
    row.slots.data = t.slot_states
    row.slots.size = SLOTS_TOTAL
    for i in range(1, SETTING_ID_TOTAL):
        settings[i - 1].id = <uint16_t>i
        settings[i - 1].value = t.settings[i]
    moved = moved_runs(t, &moved_count)
    array = <member_t*>calloc(len(members) + 1 if members else 1, sizeof(member_t))
    if moved == NULL or array == NULL:
        free(moved)
        free(array)
        raise MemoryError
    membership.version = FORMAT_VERSION
    membership.members = array
    for member in members or ():
        array[membership.count].node = member[0]
        array[membership.count].incarnation = member[1]
        array[membership.count].role = member[2]
        array[membership.count].address = slice_of(member[3])
        membership.count += 1
    failed = group_row_encode(out, &row, settings, SETTING_ID_TOTAL - 1, moved if moved_count else NULL, moved_count,
                              &membership if members else NULL)
    free(moved)
    free(array)
    if failed:
        raise MemoryError
    return 0


cdef moved_slots_t* moved_runs(table_t* t, uint32_t* count) noexcept nogil:
    """Runs of slots exported to one group."""
    cdef moved_slots_t* runs = <moved_slots_t*>malloc(SLOTS_TOTAL * sizeof(moved_slots_t))
    cdef uint32_t slot
    count[0] = 0
    if runs == NULL:
        return NULL
    for slot in range(SLOTS_TOTAL):
        if t.slot_states[slot] != SLOT_STATE_EXPORTED:
            continue
        if (count[0] and runs[count[0] - 1].last + 1 == <int>slot
                and runs[count[0] - 1].to_group == t.slot_targets[slot]):
            runs[count[0] - 1].last = <uint16_t>slot
            continue
        runs[count[0]].first = runs[count[0]].last = <uint16_t>slot
        runs[count[0]].to_group = t.slot_targets[slot]
        count[0] += 1
    return runs


cdef object freeze_table(LockTable self):
    cdef table_t* t = &self.table
    cdef dirty_t* dirty = &t.dirty
    cdef uint64_t rows = dirty_total(t)
    assert not dirty.is_frozen, "a checkpoint is under way"
    dirty.group_row.size = 0
    encode_group(t, &dirty.group_row, t.applied_index, t.applied_term, t.history.floor, self.members)
    dirty.is_frozen = True
    dirty.group_taken = False
    dirty.now = 1 - dirty.now
    dirty.to_write = 0
    return Frozen(t.applied_index, t.applied_term, t.revision, rows + 1)


cdef inline bytes read_sized(const buffer_t* source, uint64_t* at):
    cdef uint32_t size
    memcpy(&size, source.data + at[0], sizeof(uint32_t))
    cdef bytes content = PyBytes_FromStringAndSize(<const char*>source.data + at[0] + sizeof(uint32_t), size)
    at[0] += sizeof(uint32_t) + size
    return content


cdef int take_listed(table_t* t, uint32_t kind, list rows) except -1:
    """Takes the last handle out of a frozen list, and encodes its item if that is still to be written."""
    cdef uint32_t frozen = 1 - t.dirty.now
    cdef handles_t* list = dirty_list(&t.dirty, frozen, kind)
    cdef uint32_t handle
    cdef uint8_t* marks
    cdef uint64_t at = 0
    list.count -= 1
    handle = list.items[list.count]
    if list.count >= TAKEN_AHEAD:
        prefetch(dirty_marks(t, kind, list.items[list.count - TAKEN_AHEAD]))
    marks = dirty_marks(t, kind, handle)
    if not marks[0] & (MARK_LIST_0 << frozen):
        return 0
    if marks[0] & MARK_GONE:
        marks[0] = MARK_GONE
        return 0
    t.scratch.size = 0
    append_row_key(t, &t.scratch, kind, handle)
    key = read_sized(&t.scratch, &at)
    t.scratch.size = 0
    encode_item(t, &t.scratch, kind, handle)
    mark_stored(marks)
    rows.append((key, PyBytes_FromStringAndSize(<const char*>t.scratch.data, t.scratch.size)))
    return 0


cdef list take_frozen(table_t* t, uint32_t max_rows):
    cdef dirty_t* dirty = &t.dirty
    cdef buffer_t* deletes = &dirty.deletes[1 - dirty.now]
    cdef uint32_t kind
    cdef list rows = []
    while <uint32_t>len(rows) < max_rows and dirty.deletes_read < deletes.size:
        rows.append((read_sized(deletes, &dirty.deletes_read), None))
    while <uint32_t>len(rows) < max_rows and dirty.images_read < dirty.images.size:
        key = read_sized(&dirty.images, &dirty.images_read)
        rows.append((key, read_sized(&dirty.images, &dirty.images_read)))
    for kind in range(DIRTY_KINDS):
        while <uint32_t>len(rows) < max_rows and dirty_list(dirty, 1 - dirty.now, kind).count:
            take_listed(t, kind, rows)
    if <uint32_t>len(rows) < max_rows and not dirty.group_taken:
        dirty.group_taken = True
        rows.append((bytes([ROW_KIND_GROUP]),
                     PyBytes_FromStringAndSize(<const char*>dirty.group_row.data, dirty.group_row.size)))
    return rows


cdef void reset_buffer(buffer_t* buffer) noexcept nogil:
    if buffer.capacity > CHECKPOINT_BYTES_KEPT:
        buffer_free(buffer)
    buffer.size = 0


cdef int thaw_table(table_t* t) except -1:
    cdef dirty_t* dirty = &t.dirty
    cdef uint32_t frozen = 1 - dirty.now
    assert dirty.is_frozen, "no checkpoint is under way"
    assert dirty.group_taken, "rows of the checkpoint were not taken"
    reset_buffer(&dirty.deletes[frozen])
    reset_buffer(&dirty.images)
    dirty.delete_count[frozen] = 0
    dirty.image_count = 0
    dirty.deletes_read = dirty.images_read = 0
    dirty.is_frozen = False
    return 0


# Loading. Leases come before the locks that name them, because rows come in the order of their keys.

cdef object bad_row(bytes key, str why):
    return MalformedFrame(CODE_MALFORMED_FRAME, f"checkpoint row {key!r}: {why}; restore it from another member")


cdef int load_one(LockTable self, bytes key, bytes row) except -1:
    cdef uint32_t kind = key[0] if key else 0
    cdef const uint8_t* frame = row
    assert self.load_key_last is not None or (
        self.table.applied_index == 0 and self.table.revision == 0), "rows are loaded into a clear table"
    if self.load_key_last is not None and key <= self.load_key_last:
        raise bad_row(key, "not in the order of keys")
    if (self.load_key_last is None) != (kind == ROW_KIND_GROUP):
        raise bad_row(key, "the group row comes first, and once")
    self.table.dirty.is_loading = True
    self.load_key_last = key
    if kind == ROW_KIND_GROUP:
        load_group(self, key, frame, len(row))
    elif kind == ROW_KIND_SESSION:
        load_session(&self.table, key, frame, len(row))
    elif kind == ROW_KIND_LEASE:
        load_lease(self, key, frame, len(row))
    elif kind == ROW_KIND_LOCK:
        load_lock(self, key, frame, len(row))
    else:
        raise bad_row(key, "of an unknown kind")
    return 0


cdef int load_group(LockTable self, bytes key, const uint8_t* frame, size_t size) except -1:
    cdef table_t* t = &self.table
    cdef group_row_t row
    cdef setting_t setting
    cdef moved_slots_t moved
    cdef uint32_t i, slot
    if group_row_decode(frame, size, &row) != CODE_OK:
        raise bad_row(key, "damaged, or of another version")
    if row.group != t.group:
        raise bad_row(key, f"of group {row.group}")
    if row.slots.size != SLOTS_TOTAL or row.revision >= <uint64_t>1 << 53:
        raise bad_row(key, "not the state of a group")
    for i in range(row.settings.count):
        setting_row_at(&row.settings, i, &setting)
        if not setting_is_fine(setting.id, setting.value):
            raise bad_row(key, f"setting {setting.id} cannot be {setting.value}")
        t.settings[setting.id] = setting.value
    for slot in range(SLOTS_TOTAL):
        if row.slots.data[slot] >= SLOT_STATE_TOTAL:
            raise bad_row(key, f"slot {slot} is in no known state")
        t.slot_states[slot] = row.slots.data[slot]
    for i in range(row.moved_to.count):
        moved_slots_at(&row.moved_to, i, &moved)
        for slot in range(moved.first, moved.last + 1):
            if slot >= SLOTS_TOTAL or t.slot_states[slot] != SLOT_STATE_EXPORTED:
                raise bad_row(key, f"slot {slot} moved without being exported")
            t.slot_targets[slot] = moved.to_group
    self.members = read_members(&row.message, &row.members)
    t.revision = row.revision
    t.applied_index = row.index
    t.applied_term = row.term
    history_reset(&t.history, row.revision)
    return 0


cdef int load_session(table_t* t, bytes key, const uint8_t* frame, size_t size) except -1:
    cdef session_row_t row
    cdef answer_row_t source
    cdef outcome_t answer
    cdef uint32_t i, handle
    cdef uint64_t last = 0
    if session_row_decode(frame, size, &row) != CODE_OK:
        raise bad_row(key, "damaged, or of another version")
    if key[1:] != (<uint64_t>row.session).to_bytes(8, "big") or row.session == 0 or row.session > t.revision:
        raise bad_row(key, f"session {row.session} cannot be there")
    if not (SESSION_LIFETIME_MS_MIN <= row.lifetime_ms <= <uint64_t>SESSION_LIFETIME_MS_MAX):
        raise bad_row(key, f"a lifetime of {row.lifetime_ms} ms")
    handle = add_session(t, row.session, row.lifetime_ms)
    session_at(t, handle).watermark = row.watermark
    session_at(t, handle).uses = row.uses
    for i in range(row.answers.count):
        answer_row_at(&row.answers, i, &source)
        if (source.sequence < row.watermark or source.sequence - row.watermark >= ANSWERS_PER_SESSION_CEILING
                or (i and source.sequence <= last)):
            raise bad_row(key, f"an answer for sequence {source.sequence}")
        last = source.sequence
        memset(&answer, 0, sizeof(answer))
        answer.code = source.code
        answer.kind = source.kind
        answer.count = source.count
        answer.detail = source.detail
        answer.token = source.token
        answer.revision = source.revision
        record_answer(session_at(t, handle), source.sequence, &answer)
    return 0


cdef int load_lease(LockTable self, bytes key, const uint8_t* frame, size_t size) except -1:
    cdef table_t* t = &self.table
    cdef lease_row_t row
    cdef uint32_t handle
    if lease_row_decode(frame, size, &row) != CODE_OK:
        raise bad_row(key, "damaged, or of another version")
    if key[1:] != (<uint64_t>row.lease_high).to_bytes(8, "big") + (<uint64_t>row.lease_low).to_bytes(8, "big"):
        raise bad_row(key, "another lease's")
    if not lease_row_is_sound(&row, t.revision):
        raise bad_row(key, "not a lease a group could have")
    handle = add_lease(t, row.lease_high, row.lease_low, row.ttl_ms, row.owner, row.bound, row.generation)
    lease_at(t, handle).remaining_ms = row.remaining_ms
    lease_at(t, handle).lost_revision = row.lost_revision
    if row.generation == 0:
        disarm_lease(t, handle)
        self.load_ended += 1
    return 0


cdef int load_lock(LockTable self, bytes key, const uint8_t* frame, size_t size) except -1:
    cdef table_t* t = &self.table
    cdef lock_row_t row
    cdef uint32_t handle
    if lock_row_decode(frame, size, &row) != CODE_OK:
        raise bad_row(key, "damaged, or of another version")
    if key[1:] != bytes_of(row.key) or not lock_row_is_sound(&row, t.revision):
        raise bad_row(key, "not a lock a group could have")
    if t.slot_states[row.slot] == SLOT_STATE_FOREIGN:
        raise bad_row(key, f"slot {row.slot} is not here")
    check_loaded_leases(t, key, &row, &row.holders)
    check_loaded_leases(t, key, &row, &row.waiters)
    handle = put_lock_row(t, &row)
    count_ended(self, row_at(t, handle).holder_first)
    count_ended(self, row_at(t, handle).waiter_first)
    link_loaded(self, key, handle)
    return 0


cdef int check_loaded_leases(table_t* t, bytes key, const lock_row_t* row, const list_t* claims) except -1:
    cdef claim_row_t claim
    cdef uint32_t i, lease
    for i in range(claims.count):
        claim_row_at(claims, i, &claim)
        lease = find_lease(t, claim.lease_high, claim.lease_low)
        if lease == 0:
            raise bad_row(key, "names a lease that is not there")
        if lease_at(t, lease).generation == 0:
            if t.slot_states[row.slot] != SLOT_STATE_EXPORTED:
                raise bad_row(key, "names a lease that has ended")
    return 0


cdef void count_ended(LockTable self, uint32_t claim) noexcept:
    """Notes which ended leases have a claim. A lease's first one is at the end of its list."""
    cdef table_t* t = &self.table
    while claim:
        if lease_at(t, claim_at(t, claim).lease).generation == 0 and claim_at(t, claim).lease_next == 0:
            self.load_ended -= 1
        claim = claim_at(t, claim).next


cdef int link_loaded(LockTable self, bytes key, uint32_t row) except -1:
    """Puts the row's waiters into the rings of their acquireAlls."""
    cdef table_t* t = &self.table
    cdef uint32_t handle = row_at(t, row).waiter_first
    cdef uint32_t member, first
    cdef claim_t* claim
    cdef claim_t* other
    while handle:
        claim = claim_at(t, handle)
        if claim.key_total:
            place = (row_at(t, row).slot, claim.revision)
            first = member = self.load_links.setdefault(place, handle)
            while member != handle:
                other = claim_at(t, member)
                if (other.lease != claim.lease or other.request != claim.request or other.packed != claim.packed
                        or other.key_total != claim.key_total or other.position == claim.position):
                    raise bad_row(key, "an acquireAll that does not fit together")
                member = other.linked
                if member == first:
                    break
            join_ring(t, first if first != handle else 0, handle)
        handle = claim.next
    return 0


cdef int end_load(LockTable self) except -1:
    if self.load_key_last is None:
        raise MalformedFrame(CODE_MALFORMED_FRAME, "checkpoint without a group row; restore it from another member")
    if self.load_ended:
        raise MalformedFrame(
            CODE_MALFORMED_FRAME, "checkpoint with an ended lease that nothing names; restore it from another member")
    self.table.dirty.is_loading = False
    self.load_links = {}
    self.load_key_last = None
    return 0


# Export.

cdef bytes record_of(table_t* t, uint32_t kind, uint32_t handle):
    cdef uint64_t header = ROW_KIND_LOCK if kind == DIRTY_ROWS else ROW_KIND_LEASE
    t.scratch.size = 0
    encode_item(t, &t.scratch, kind, handle)
    return header.to_bytes(8, "little") + PyBytes_FromStringAndSize(<const char*>t.scratch.data, t.scratch.size)


cdef int export_leases(table_t* t, uint32_t claim, list records, set seen) except -1:
    cdef uint32_t lease
    while claim:
        lease = claim_at(t, claim).lease
        if lease not in seen:
            seen.add(lease)
            records.append(record_of(t, DIRTY_LEASES, lease))
        claim = claim_at(t, claim).next
    return 0


cdef tuple export_page(table_t* t, uint16_t first, uint16_t last, bytes cursor, uint32_t max_rows):
    cdef uint32_t* handles
    cdef uint32_t count, i, exported = 0, scanned = 0
    cdef uint64_t tag = tag_of_cursor(cursor), tag_next = tag
    cdef row_t* row
    cdef list records = []
    cdef set seen = set()
    while tag < <uint64_t>1 << 32 and exported < max_rows and scanned < EXPORT_SCANNED_MAX:
        handles = scan_page(t, tag, max_rows - exported, &count, &tag_next)
        for i in range(count):
            row = row_at(t, handles[i])
            if first <= row.slot <= last and t.slot_states[row.slot] == SLOT_STATE_EXPORTED:
                export_leases(t, row.holder_first, records, seen)
                export_leases(t, row.waiter_first, records, seen)
                records.append(record_of(t, DIRTY_ROWS, handles[i]))
                exported += 1
        scanned += count + 1
        tag = tag_next
        free(handles)
    return records, cursor_of_tag(tag)
