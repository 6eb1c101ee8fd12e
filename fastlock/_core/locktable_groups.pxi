"""Settings, and slots that come and go: configure, ownSlots, exportSlots, dropSlots."""


cdef enum:
    SETTING_MAX = 0x7FFFFFFF
    KEY_BYTES_CEILING = 4096
    OWNER_BYTES_CEILING = 4096
    VALUE_BYTES_CEILING = 65536
    LOCK_DELAY_MS_CEILING = 3_600_000
    KEYS_PER_ACQUIRE_CEILING = 1024
    ANSWERS_PER_SESSION_CEILING = 65536
    TTL_MS_CEILING = 4_398_046_511_104          # 2^42


cdef void default_settings(uint64_t* settings) noexcept nogil:
    settings[SETTING_ID_UNSET] = 0
    settings[SETTING_ID_KEY_BYTES_MAX] = 1024
    settings[SETTING_ID_OWNER_BYTES_MAX] = 256
    settings[SETTING_ID_VALUE_BYTES_MAX] = 4096
    settings[SETTING_ID_TTL_MS_MAX] = 31_536_000_000
    settings[SETTING_ID_LOCK_DELAY_MS_MAX] = 60_000
    settings[SETTING_ID_LOCKS_MAX] = 16_000_000
    settings[SETTING_ID_LEASES_MAX] = 16_000_000
    settings[SETTING_ID_SESSIONS_MAX] = 100_000
    settings[SETTING_ID_CLAIMS_PER_LEASE_MAX] = 10_000
    settings[SETTING_ID_WAITERS_PER_LOCK_MAX] = 10_000
    settings[SETTING_ID_KEYS_PER_ACQUIRE_MAX] = 64
    settings[SETTING_ID_SEMAPHORE_LIMIT_MAX] = 10_000
    settings[SETTING_ID_ANSWERS_PER_SESSION_MAX] = 1024
    settings[SETTING_ID_SESSION_LIFETIME_MS] = 60_000
    settings[SETTING_ID_HASH_SEED] = 0


cdef uint64_t setting_ceiling(uint32_t id) noexcept nogil:
    if id == SETTING_ID_KEY_BYTES_MAX:
        return KEY_BYTES_CEILING
    if id == SETTING_ID_OWNER_BYTES_MAX:
        return OWNER_BYTES_CEILING
    if id == SETTING_ID_VALUE_BYTES_MAX:
        return VALUE_BYTES_CEILING
    if id == SETTING_ID_TTL_MS_MAX or id == SETTING_ID_SESSION_LIFETIME_MS:
        return TTL_MS_CEILING
    if id == SETTING_ID_LOCK_DELAY_MS_MAX:
        return LOCK_DELAY_MS_CEILING
    if id == SETTING_ID_KEYS_PER_ACQUIRE_MAX:
        return KEYS_PER_ACQUIRE_CEILING
    if id == SETTING_ID_ANSWERS_PER_SESSION_MAX:
        return ANSWERS_PER_SESSION_CEILING
    if id == SETTING_ID_HASH_SEED:
        return ~<uint64_t>0
    return SETTING_MAX


cdef uint64_t setting_floor(uint32_t id) noexcept nogil:
    if id == SETTING_ID_ANSWERS_PER_SESSION_MAX:
        return 1
    if id == SETTING_ID_SESSION_LIFETIME_MS:
        return SESSION_LIFETIME_MS_MIN
    return 0


cdef inline bint setting_is_fine(uint32_t id, uint64_t value) noexcept nogil:
    return (id != SETTING_ID_UNSET and id < SETTING_ID_TOTAL
            and setting_floor(id) <= value <= setting_ceiling(id))


cdef void configure(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t i
    cdef setting_t setting
    cdef uint64_t seed = t.settings[SETTING_ID_HASH_SEED]
    for i in range(command.list_count):
        setting = command_setting(command, i)
        if not setting_is_fine(setting.id, setting.value):
            refuse_argument(reply, ARGUMENT_SETTING)
            return
        if setting.id == SETTING_ID_HASH_SEED:
            seed = setting.value
    if seed != t.settings[SETTING_ID_HASH_SEED] and t.rows.live + t.leases.live + t.sessions.live:
        refuse_argument(reply, ARGUMENT_SETTING)
        return
    for i in range(command.list_count):
        setting = command_setting(command, i)
        t.settings[setting.id] = setting.value


cdef bint check_slots(table_t* t, const command_t* command, uint32_t state, uint32_t or_state,
                      outcome_t* reply) noexcept nogil:
    """Whether the command's range is one, and all of it is in one of two states."""
    cdef uint32_t slot
    if command.slot_first > command.slot_last or command.slot_last >= SLOTS_TOTAL:
        refuse_argument(reply, ARGUMENT_SLOTS)
        return False
    for slot in range(command.slot_first, command.slot_last + 1):
        if t.slot_states[slot] != state and t.slot_states[slot] != or_state:
            reply.code = CODE_WRONG_SLOT
            return False
    return True


cdef void set_slots(table_t* t, const command_t* command, uint8_t state, uint32_t target) noexcept nogil:
    cdef uint32_t slot
    for slot in range(command.slot_first, command.slot_last + 1):
        t.slot_states[slot] = state
        t.slot_targets[slot] = target


cdef void own_slots(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    if check_slots(t, command, SLOT_STATE_FOREIGN, SLOT_STATE_OWNED, reply):
        set_slots(t, command, SLOT_STATE_OWNED, 0)


cdef void export_slots(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t i
    cdef claim_t* claim
    if not check_slots(t, command, SLOT_STATE_OWNED, SLOT_STATE_OWNED, reply):
        return
    reply.revision = next_revision(t)
    gather_rows(t, command.slot_first, command.slot_last)
    tell_holders_of_loss(t, reply.revision)
    set_slots(t, command, SLOT_STATE_EXPORTED, command.to_group)
    gather_waiters(t)
    for i in range(t.waiting.count):
        if starts_wait(&t.waiting, i):
            claim = claim_at(t, t.waiting.items[i].handle)
            wake(t, CODE_WRONG_SLOT, claim, claim.revision)


cdef void gather_rows(table_t* t, uint16_t first, uint16_t last) noexcept nogil:
    """All rows in a range of slots, in no order, to t.found."""
    cdef uint32_t handle
    t.found.count = 0
    for handle in range(1, <uint32_t>t.rows.fresh):
        # Handles that were given back keep their last entry.
        if first <= t.row_slots[handle] <= last and row_at(t, handle).key_size:
            handles_push(&t.found, handle)


cdef void tell_holders_of_loss(table_t* t, uint64_t revision) noexcept nogil:
    """A keep-alive here no longer keeps what moves away alive, so every holder's client must notice."""
    cdef uint32_t i, handle, lease
    for i in range(t.found.count):
        handle = row_at(t, t.found.items[i]).holder_first
        while handle:
            lease = claim_at(t, handle).lease
            touch_lease(t, lease)
            lease_at(t, lease).lost_revision = revision
            handle = claim_at(t, handle).next


cdef void gather_waiters(table_t* t) noexcept nogil:
    """All waiting claims of the rows in t.found, in order, to t.waiting."""
    cdef uint32_t i, handle
    cdef claim_t* claim
    cdef row_t* row
    t.waiting.count = 0
    for i in range(t.found.count):
        row = row_at(t, t.found.items[i])
        handle = row.waiter_first
        while handle:
            claim = claim_at(t, handle)
            orders_push(&t.waiting, claim.revision, row.slot, claim.position, handle)
            handle = claim.next
    orders_sort(&t.waiting)


cdef void serve_slots(table_t* t, const command_t* command) noexcept nogil:
    """Serves every queue in the command's slots, by its first waiter."""
    cdef uint32_t i
    cdef claim_t* claim
    cdef row_t* row
    gather_rows(t, command.slot_first, command.slot_last)
    t.holding.count = 0
    for i in range(t.found.count):
        row = row_at(t, t.found.items[i])
        if row.waiter_first:
            claim = claim_at(t, row.waiter_first)
            orders_push(&t.holding, claim.revision, row.slot, claim.position, t.found.items[i])
    orders_sort(&t.holding)
    for i in range(t.holding.count):
        serve(t, t.holding.items[i].handle)


cdef void drop_slots(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t i
    if not check_slots(t, command, SLOT_STATE_EXPORTED, SLOT_STATE_EXPORTED, reply):
        return
    gather_rows(t, command.slot_first, command.slot_last)
    for i in range(t.found.count):
        drop_row(t, t.found.items[i])
    set_slots(t, command, SLOT_STATE_FOREIGN, 0)


cdef void drop_row(table_t* t, uint32_t row) noexcept nogil:
    """Forgets a row with its claims, and the leases that lived only for them."""
    cdef uint32_t handle, lease
    touch_row(t, row)
    while True:
        handle = row_at(t, row).holder_first
        if handle == 0:
            handle = row_at(t, row).waiter_first
        if handle == 0:
            break
        lease = claim_at(t, handle).lease
        remove_claim(t, handle)
        if lease_at(t, lease).claim_count == 0 and (lease_at(t, lease).bound or lease_at(t, lease).generation == 0):
            remove_lease(t, lease)
    remove_row(t, row)
