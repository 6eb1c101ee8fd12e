"""Refusals, the checks that many commands share, and the lease commands."""


cdef enum:
    TTL_MS_MIN = 50


cdef inline void refuse_argument(outcome_t* reply, uint32_t argument) noexcept nogil:
    reply.code = CODE_INVALID_ARGUMENT
    reply.detail = argument


cdef inline void refuse_limit(outcome_t* reply, uint32_t setting) noexcept nogil:
    reply.code = CODE_LIMIT_EXCEEDED
    reply.detail = setting


cdef inline void refuse_slot(table_t* t, uint16_t slot, outcome_t* reply) noexcept nogil:
    reply.code = CODE_WRONG_SLOT
    reply.detail = t.slot_targets[slot]


cdef inline bint key_is_fine(table_t* t, slice_t key, outcome_t* reply) noexcept nogil:
    if key.size == 0:
        refuse_argument(reply, ARGUMENT_KEY)
        return False
    if key.size > t.settings[SETTING_ID_KEY_BYTES_MAX]:
        refuse_limit(reply, SETTING_ID_KEY_BYTES_MAX)
        return False
    return True


cdef inline bint slot_is_owned(table_t* t, uint16_t slot, outcome_t* reply) noexcept nogil:
    if t.slot_states[slot] == SLOT_STATE_OWNED:
        return True
    refuse_slot(t, slot, reply)
    return False


cdef inline bint lease_is_named(const command_t* command, outcome_t* reply) noexcept nogil:
    if command.lease_high | command.lease_low:
        return True
    refuse_argument(reply, ARGUMENT_LEASE_ID)
    return False


cdef inline bint ttl_is_fine(table_t* t, int64_t ttl_ms, outcome_t* reply) noexcept nogil:
    if ttl_ms == NO_EXPIRY_TTL_MS or TTL_MS_MIN <= ttl_ms <= <int64_t>t.settings[SETTING_ID_TTL_MS_MAX]:
        return True
    reply.code = CODE_TTL_OUT_OF_RANGE
    return False


cdef bint may_create_lease(table_t* t, const command_t* command, bint is_known, outcome_t* reply) noexcept nogil:
    if not ttl_is_fine(t, command.ttl_ms, reply):
        return False
    if command.owner.size > t.settings[SETTING_ID_OWNER_BYTES_MAX]:
        refuse_limit(reply, SETTING_ID_OWNER_BYTES_MAX)
        return False
    if is_known:
        reply.code = CODE_LEASE_EXISTS
        return False
    if t.leases.live >= t.settings[SETTING_ID_LEASES_MAX]:
        refuse_limit(reply, SETTING_ID_LEASES_MAX)
        return False
    return True


cdef void create_lease(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    if not lease_is_named(command, reply):
        return
    if not may_create_lease(t, command, find_lease(t, command.lease_high, command.lease_low) != 0, reply):
        return
    reply.revision = next_revision(t)
    add_lease(t, command.lease_high, command.lease_low, command.ttl_ms, command.owner, False, reply.revision)


cdef inline void renew_generation(table_t* t, lease_t* lease, outcome_t* reply) noexcept nogil:
    """A logged change: expires and notes that are under way come too late from here on."""
    lease.generation = reply.revision = next_revision(t)
    lease.marks &= <uint8_t>~MARK_NOTING


cdef void change_ttl(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t handle
    cdef lease_t* lease
    if not lease_is_named(command, reply) or not ttl_is_fine(t, command.ttl_ms, reply):
        return
    handle = find_live_lease(t, command.lease_high, command.lease_low)
    if handle == 0:
        reply.code = CODE_LEASE_LOST
        return
    touch_lease(t, handle)
    lease = lease_at(t, handle)
    lease.ttl_ms = command.ttl_ms
    lease.remaining_ms = 0
    renew_generation(t, lease, reply)
    arm_lease(t, handle)


cdef uint32_t lease_of_generation(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    """The live lease an expire or note names, if it is still of that generation; else 0 and a refusal."""
    cdef uint32_t handle
    if not lease_is_named(command, reply):
        return 0
    handle = find_live_lease(t, command.lease_high, command.lease_low)
    if handle == 0:
        reply.code = CODE_LEASE_LOST
        return 0
    if lease_at(t, handle).generation != command.generation:
        reply.code = CODE_STALE_GENERATION
        rearm_lease(t, handle)
        return 0
    return handle


cdef void note_remaining(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t handle = lease_of_generation(t, command, reply)
    cdef lease_t* lease
    if handle == 0:
        return
    touch_lease(t, handle)
    lease = lease_at(t, handle)
    lease.remaining_ms = min(command.amount_ms, <uint64_t>lease.ttl_ms)
    renew_generation(t, lease, reply)
    note_lease(t, handle)


cdef void expire_lease(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t handle = lease_of_generation(t, command, reply)
    if handle:
        end_lease(t, handle, EVENT_KIND_EXPIRED)
        reply.revision = t.revision


cdef void revoke_lease(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t handle
    if not lease_is_named(command, reply):
        return
    handle = find_live_lease(t, command.lease_high, command.lease_low)
    if handle == 0:
        reply.code = CODE_LEASE_LOST
        return
    end_lease(t, handle, EVENT_KIND_REVOKED)
    reply.revision = t.revision
