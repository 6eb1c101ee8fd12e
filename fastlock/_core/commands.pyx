"""Commands and the log entries they travel in: decoded in place, encoded once."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from fastlock._core.buffer cimport buffer_free, buffer_reserve, buffer_t
from fastlock._core.layout cimport *
from fastlock._core.types cimport command_t, slice_t
from fastlock._core.wire cimport *


cdef enum:
    COMMAND_WORDS = COMMAND_DATA_WORDS + COMMAND_POINTERS
    COMMAND_BYTES = COMMAND_WORDS * WORD_BYTES
    MEMBER_WORDS = MEMBER_DATA_WORDS + MEMBER_POINTERS
    SETTING_WORDS = SETTING_DATA_WORDS + SETTING_POINTERS
    # Root pointer, the entry's struct, and the tag of its list of commands.
    ENTRY_OVERHEAD_WORDS = 1 + LOG_ENTRY_DATA_WORDS + LOG_ENTRY_POINTERS + 1


cdef int command_decode(message_t* message, const struct_t* view, command_t* out) noexcept nogil:
    cdef uint8_t padded[COMMAND_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields = fields_of(view, padded, COMMAND_DATA_WORDS * WORD_BYTES)
    cdef int code
    memset(out, 0, sizeof(command_t))
    out.kind = load16(fields + COMMAND_WHICH_AT)
    out.session = load64(fields + COMMAND_SESSION_AT)
    out.sequence = load64(fields + COMMAND_SEQUENCE_AT)
    out.acknowledged_below = load64(fields + COMMAND_ACKNOWLEDGED_BELOW_AT)
    out.lease_high = load64(fields + COMMAND_LEASE_HIGH_AT)
    out.lease_low = load64(fields + COMMAND_LEASE_LOW_AT)
    code = read_bytes(message, pointer_at(view, COMMAND_KEY_POINTER), &out.key)
    if code != CODE_OK:
        return code
    if out.kind == COMMAND_ACQUIRE:
        return decode_acquire(message, view, fields, out)
    if out.kind == COMMAND_RELEASE:
        out.token = load64(fields + COMMAND_RELEASE_TOKEN_AT)
        return CODE_OK
    return decode_other(message, view, fields, out)


cdef inline int decode_acquire(message_t* message, const struct_t* view, const uint8_t* fields,
                               command_t* out) noexcept nogil:
    out.request = load64(fields + COMMAND_ACQUIRE_REQUEST_AT)
    out.ttl_ms = <int64_t>load64(fields + COMMAND_ACQUIRE_TTL_MS_AT)
    out.mode = load16(fields + COMMAND_ACQUIRE_MODE_AT)
    out.lease_use = load16(fields + COMMAND_ACQUIRE_LEASE_AT)
    out.wait = load_bit(fields, COMMAND_ACQUIRE_WAIT_BIT)
    out.limit = load32(fields + COMMAND_ACQUIRE_LIMIT_AT)
    out.count = load32(fields + COMMAND_ACQUIRE_COUNT_AT)
    out.lock_delay_ms = load32(fields + COMMAND_ACQUIRE_LOCK_DELAY_MS_AT)
    return read_bytes(message, pointer_at(view, COMMAND_ACQUIRE_OWNER_POINTER), &out.owner)


cdef int decode_acquire_all(message_t* message, const struct_t* view, const uint8_t* fields,
                            command_t* out) noexcept nogil:
    cdef int code
    out.request = load64(fields + COMMAND_ACQUIRE_ALL_REQUEST_AT)
    out.ttl_ms = <int64_t>load64(fields + COMMAND_ACQUIRE_ALL_TTL_MS_AT)
    out.mode = load16(fields + COMMAND_ACQUIRE_ALL_MODE_AT)
    out.lease_use = load16(fields + COMMAND_ACQUIRE_ALL_LEASE_AT)
    out.wait = load_bit(fields, COMMAND_ACQUIRE_ALL_WAIT_BIT)
    out.lock_delay_ms = load32(fields + COMMAND_ACQUIRE_ALL_LOCK_DELAY_MS_AT)
    code = read_bytes(message, pointer_at(view, COMMAND_ACQUIRE_ALL_OWNER_POINTER), &out.owner)
    if code != CODE_OK:
        return code
    return read_bytes_list(message, pointer_at(view, COMMAND_ACQUIRE_ALL_KEYS_POINTER), &out.list_data,
                           &out.list_count)


cdef int decode_other(message_t* message, const struct_t* view, const uint8_t* fields,
                      command_t* out) noexcept nogil:
    cdef int kind = out.kind
    cdef int code
    if kind == COMMAND_OPEN_SESSION:
        out.amount_ms = load64(fields + COMMAND_OPEN_SESSION_LIFETIME_MS_AT)
    elif kind == COMMAND_CLOSE_SESSION or kind == COMMAND_REVOKE:
        return CODE_OK
    elif kind == COMMAND_EXPIRE_SESSION:
        out.target = load64(fields + COMMAND_EXPIRE_SESSION_SESSION_AT)
        out.generation = load64(fields + COMMAND_EXPIRE_SESSION_USES_AT)
    elif kind == COMMAND_CREATE_LEASE:
        out.ttl_ms = <int64_t>load64(fields + COMMAND_CREATE_LEASE_TTL_MS_AT)
        return read_bytes(message, pointer_at(view, COMMAND_CREATE_LEASE_OWNER_POINTER), &out.owner)
    elif kind == COMMAND_CHANGE_TTL:
        out.ttl_ms = <int64_t>load64(fields + COMMAND_CHANGE_TTL_TTL_MS_AT)
    elif kind == COMMAND_NOTE_REMAINING:
        out.generation = load64(fields + COMMAND_NOTE_REMAINING_GENERATION_AT)
        out.amount_ms = load64(fields + COMMAND_NOTE_REMAINING_REMAINING_MS_AT)
    elif kind == COMMAND_EXPIRE:
        out.generation = load64(fields + COMMAND_EXPIRE_GENERATION_AT)
    elif kind == COMMAND_ACQUIRE_ALL:
        return decode_acquire_all(message, view, fields, out)
    elif kind == COMMAND_CANCEL_WAIT:
        out.request = load64(fields + COMMAND_CANCEL_WAIT_REQUEST_AT)
        out.target = load64(fields + COMMAND_CANCEL_WAIT_SEQUENCE_AT)
        return read_bytes_list(message, pointer_at(view, COMMAND_CANCEL_WAIT_KEYS_POINTER), &out.list_data,
                               &out.list_count)
    elif kind == COMMAND_FORCE_RELEASE:
        out.token = load64(fields + COMMAND_FORCE_RELEASE_TOKEN_AT)
        code = read_bytes(message, pointer_at(view, COMMAND_FORCE_RELEASE_ACTOR_POINTER), &out.owner)
        if code != CODE_OK:
            return code
        return read_bytes(message, pointer_at(view, COMMAND_FORCE_RELEASE_REASON_POINTER), &out.value)
    elif kind == COMMAND_END_DELAY:
        out.generation = load64(fields + COMMAND_END_DELAY_GENERATION_AT)
    elif kind == COMMAND_PUT_VALUE:
        out.token = load64(fields + COMMAND_PUT_VALUE_TOKEN_AT)
        return read_bytes(message, pointer_at(view, COMMAND_PUT_VALUE_VALUE_POINTER), &out.value)
    elif kind == COMMAND_DELETE_VALUE:
        out.token = load64(fields + COMMAND_DELETE_VALUE_TOKEN_AT)
    else:
        return decode_group_command(message, view, fields, out)
    return CODE_OK


cdef int decode_group_command(message_t* message, const struct_t* view, const uint8_t* fields,
                              command_t* out) noexcept nogil:
    cdef int kind = out.kind
    if kind == COMMAND_CONFIGURE:
        return decode_settings(message, view, out)
    elif kind == COMMAND_OWN_SLOTS:
        out.slot_first = load16(fields + COMMAND_OWN_SLOTS_FIRST_AT)
        out.slot_last = load16(fields + COMMAND_OWN_SLOTS_LAST_AT)
    elif kind == COMMAND_EXPORT_SLOTS:
        out.slot_first = load16(fields + COMMAND_EXPORT_SLOTS_FIRST_AT)
        out.slot_last = load16(fields + COMMAND_EXPORT_SLOTS_LAST_AT)
        out.to_group = load32(fields + COMMAND_EXPORT_SLOTS_TO_GROUP_AT)
    elif kind == COMMAND_IMPORT_SLOTS:
        out.slot_first = load16(fields + COMMAND_IMPORT_SLOTS_FIRST_AT)
        out.slot_last = load16(fields + COMMAND_IMPORT_SLOTS_LAST_AT)
        out.complete = load_bit(fields, COMMAND_IMPORT_SLOTS_COMPLETE_BIT)
        out.target = load64(fields + COMMAND_IMPORT_SLOTS_TOKEN_FLOOR_AT)
        return read_bytes_list(message, pointer_at(view, COMMAND_IMPORT_SLOTS_ROWS_POINTER), &out.list_data,
                               &out.list_count)
    elif kind == COMMAND_DROP_SLOTS:
        out.slot_first = load16(fields + COMMAND_DROP_SLOTS_FIRST_AT)
        out.slot_last = load16(fields + COMMAND_DROP_SLOTS_LAST_AT)
    else:
        return CODE_UNKNOWN_COMMAND
    return CODE_OK


cdef int decode_settings(message_t* message, const struct_t* view, command_t* out) noexcept nogil:
    cdef list_t settings
    cdef int code = read_list(message, pointer_at(view, COMMAND_CONFIGURE_SETTINGS_POINTER), &settings)
    if code == CODE_OK and settings.data != NULL:
        # From the tag on, which says how wide the elements are.
        out.list_data = settings.data - WORD_BYTES
        out.list_count = settings.count
    return code


cdef setting_t command_setting(const command_t* command, uint32_t i) noexcept nogil:
    cdef uint64_t tag = load64(command.list_data)
    cdef uint8_t padded[SETTING_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef setting_t setting
    cdef const uint8_t* fields
    view.data_bytes = (<uint32_t>(tag >> 32) & 0xFFFF) * WORD_BYTES
    view.data = command.list_data + WORD_BYTES + i * (<size_t>view.data_bytes + <uint32_t>(tag >> 48) * WORD_BYTES)
    fields = fields_of(&view, padded, SETTING_DATA_WORDS * WORD_BYTES)
    setting.id = load16(fields + SETTING_ID_AT)
    setting.value = load64(fields + SETTING_VALUE_AT)
    return setting


cdef size_t command_blob_words(const command_t* command) noexcept nogil:
    cdef size_t words = bytes_words(&command.key) + bytes_words(&command.owner) + bytes_words(&command.value)
    cdef slice_t item
    cdef uint32_t i
    if command.list_data == NULL:
        return words
    if command.kind == COMMAND_CONFIGURE:
        return words + 1 + <size_t>command.list_count * SETTING_WORDS
    for i in range(command.list_count):
        item = bytes_element(command.list_data, i)
        words += 1 + bytes_words(&item)
    return words


cdef inline uint8_t* blob_write(uint8_t* target, uint32_t pointer, const uint8_t* blobs, uint8_t* cursor,
                                const slice_t* value) noexcept nogil:
    cdef uint8_t* after = put_bytes(target + (COMMAND_DATA_WORDS + pointer) * WORD_BYTES, cursor, value)
    if value.data != NULL:
        blob_point(target, pointer, blobs, cursor, ELEMENT_BYTE, value.size)
    return after


cdef inline void blob_point(uint8_t* target, uint32_t pointer, const uint8_t* blobs, const uint8_t* cursor,
                            uint32_t element_size, uint32_t count) noexcept nogil:
    store64(target + (COMMAND_DATA_WORDS + pointer) * WORD_BYTES,
            <uint32_t>((cursor - blobs) >> 1) | POINTER_LIST | (<uint64_t>element_size << 32) | (<uint64_t>count << 35))


cdef void command_point(uint8_t* target, int64_t distance_words) noexcept nogil:
    cdef uint8_t* pointer
    cdef uint64_t word
    cdef int64_t i
    for i in range(COMMAND_POINTERS):
        pointer = target + (COMMAND_DATA_WORDS + i) * WORD_BYTES
        word = load64(pointer)
        if word != 0:
            # The offset is the upper thirty bits of the low half; offsets in an entry never carry out of it.
            store64(pointer, word + (<uint64_t>(distance_words - COMMAND_DATA_WORDS - i - 1) << 2))


cdef uint8_t* command_write(uint8_t* target, const uint8_t* blobs, uint8_t* cursor,
                            const command_t* command) noexcept nogil:
    memset(target, 0, COMMAND_BYTES)
    store16(target + COMMAND_WHICH_AT, command.kind)
    store64(target + COMMAND_SESSION_AT, command.session)
    store64(target + COMMAND_SEQUENCE_AT, command.sequence)
    store64(target + COMMAND_ACKNOWLEDGED_BELOW_AT, command.acknowledged_below)
    store64(target + COMMAND_LEASE_HIGH_AT, command.lease_high)
    store64(target + COMMAND_LEASE_LOW_AT, command.lease_low)
    cursor = blob_write(target, COMMAND_KEY_POINTER, blobs, cursor, &command.key)
    if command.kind == COMMAND_ACQUIRE:
        store64(target + COMMAND_ACQUIRE_REQUEST_AT, command.request)
        store64(target + COMMAND_ACQUIRE_TTL_MS_AT, <uint64_t>command.ttl_ms)
        store16(target + COMMAND_ACQUIRE_MODE_AT, command.mode)
        store16(target + COMMAND_ACQUIRE_LEASE_AT, command.lease_use)
        store_bit(target, COMMAND_ACQUIRE_WAIT_BIT, command.wait)
        store32(target + COMMAND_ACQUIRE_LIMIT_AT, command.limit)
        store32(target + COMMAND_ACQUIRE_COUNT_AT, command.count)
        store32(target + COMMAND_ACQUIRE_LOCK_DELAY_MS_AT, command.lock_delay_ms)
        return blob_write(target, COMMAND_ACQUIRE_OWNER_POINTER, blobs, cursor, &command.owner)
    if command.kind == COMMAND_RELEASE:
        store64(target + COMMAND_RELEASE_TOKEN_AT, command.token)
        return cursor
    return write_other(target, blobs, cursor, command)


cdef uint8_t* write_other(uint8_t* target, const uint8_t* blobs, uint8_t* cursor,
                          const command_t* command) noexcept nogil:
    cdef int kind = command.kind
    if kind == COMMAND_OPEN_SESSION:
        store64(target + COMMAND_OPEN_SESSION_LIFETIME_MS_AT, command.amount_ms)
    elif kind == COMMAND_EXPIRE_SESSION:
        store64(target + COMMAND_EXPIRE_SESSION_SESSION_AT, command.target)
        store64(target + COMMAND_EXPIRE_SESSION_USES_AT, command.generation)
    elif kind == COMMAND_CREATE_LEASE:
        store64(target + COMMAND_CREATE_LEASE_TTL_MS_AT, <uint64_t>command.ttl_ms)
        return blob_write(target, COMMAND_CREATE_LEASE_OWNER_POINTER, blobs, cursor, &command.owner)
    elif kind == COMMAND_CHANGE_TTL:
        store64(target + COMMAND_CHANGE_TTL_TTL_MS_AT, <uint64_t>command.ttl_ms)
    elif kind == COMMAND_NOTE_REMAINING:
        store64(target + COMMAND_NOTE_REMAINING_GENERATION_AT, command.generation)
        store64(target + COMMAND_NOTE_REMAINING_REMAINING_MS_AT, command.amount_ms)
    elif kind == COMMAND_EXPIRE:
        store64(target + COMMAND_EXPIRE_GENERATION_AT, command.generation)
    elif kind == COMMAND_ACQUIRE_ALL:
        store64(target + COMMAND_ACQUIRE_ALL_REQUEST_AT, command.request)
        store64(target + COMMAND_ACQUIRE_ALL_TTL_MS_AT, <uint64_t>command.ttl_ms)
        store16(target + COMMAND_ACQUIRE_ALL_MODE_AT, command.mode)
        store16(target + COMMAND_ACQUIRE_ALL_LEASE_AT, command.lease_use)
        store_bit(target, COMMAND_ACQUIRE_ALL_WAIT_BIT, command.wait)
        store32(target + COMMAND_ACQUIRE_ALL_LOCK_DELAY_MS_AT, command.lock_delay_ms)
        cursor = blob_write(target, COMMAND_ACQUIRE_ALL_OWNER_POINTER, blobs, cursor, &command.owner)
        return items_write(target, COMMAND_ACQUIRE_ALL_KEYS_POINTER, blobs, cursor, command)
    elif kind == COMMAND_CANCEL_WAIT:
        store64(target + COMMAND_CANCEL_WAIT_REQUEST_AT, command.request)
        store64(target + COMMAND_CANCEL_WAIT_SEQUENCE_AT, command.target)
        return items_write(target, COMMAND_CANCEL_WAIT_KEYS_POINTER, blobs, cursor, command)
    elif kind == COMMAND_FORCE_RELEASE:
        store64(target + COMMAND_FORCE_RELEASE_TOKEN_AT, command.token)
        cursor = blob_write(target, COMMAND_FORCE_RELEASE_ACTOR_POINTER, blobs, cursor, &command.owner)
        return blob_write(target, COMMAND_FORCE_RELEASE_REASON_POINTER, blobs, cursor, &command.value)
    elif kind == COMMAND_END_DELAY:
        store64(target + COMMAND_END_DELAY_GENERATION_AT, command.generation)
    elif kind == COMMAND_PUT_VALUE:
        store64(target + COMMAND_PUT_VALUE_TOKEN_AT, command.token)
        return blob_write(target, COMMAND_PUT_VALUE_VALUE_POINTER, blobs, cursor, &command.value)
    elif kind == COMMAND_DELETE_VALUE:
        store64(target + COMMAND_DELETE_VALUE_TOKEN_AT, command.token)
    else:
        return write_group_command(target, blobs, cursor, command)
    return cursor


cdef uint8_t* write_group_command(uint8_t* target, const uint8_t* blobs, uint8_t* cursor,
                                  const command_t* command) noexcept nogil:
    cdef int kind = command.kind
    if kind == COMMAND_CONFIGURE:
        return settings_write(target, blobs, cursor, command)
    elif kind == COMMAND_OWN_SLOTS:
        store16(target + COMMAND_OWN_SLOTS_FIRST_AT, command.slot_first)
        store16(target + COMMAND_OWN_SLOTS_LAST_AT, command.slot_last)
    elif kind == COMMAND_EXPORT_SLOTS:
        store16(target + COMMAND_EXPORT_SLOTS_FIRST_AT, command.slot_first)
        store16(target + COMMAND_EXPORT_SLOTS_LAST_AT, command.slot_last)
        store32(target + COMMAND_EXPORT_SLOTS_TO_GROUP_AT, command.to_group)
    elif kind == COMMAND_IMPORT_SLOTS:
        store16(target + COMMAND_IMPORT_SLOTS_FIRST_AT, command.slot_first)
        store16(target + COMMAND_IMPORT_SLOTS_LAST_AT, command.slot_last)
        store_bit(target, COMMAND_IMPORT_SLOTS_COMPLETE_BIT, command.complete)
        store64(target + COMMAND_IMPORT_SLOTS_TOKEN_FLOOR_AT, command.target)
        return items_write(target, COMMAND_IMPORT_SLOTS_ROWS_POINTER, blobs, cursor, command)
    elif kind == COMMAND_DROP_SLOTS:
        store16(target + COMMAND_DROP_SLOTS_FIRST_AT, command.slot_first)
        store16(target + COMMAND_DROP_SLOTS_LAST_AT, command.slot_last)
    return cursor


cdef uint8_t* items_write(uint8_t* target, uint32_t pointer, const uint8_t* blobs, uint8_t* cursor,
                          const command_t* command) noexcept nogil:
    cdef uint8_t* after = cursor + <size_t>command.list_count * WORD_BYTES
    cdef slice_t item
    cdef uint32_t i
    if command.list_data == NULL:
        return cursor
    blob_point(target, pointer, blobs, cursor, ELEMENT_POINTER, command.list_count)
    for i in range(command.list_count):
        item = bytes_element(command.list_data, i)
        after = put_bytes(cursor + <size_t>i * WORD_BYTES, after, &item)
    return after


cdef uint8_t* settings_write(uint8_t* target, const uint8_t* blobs, uint8_t* cursor,
                             const command_t* command) noexcept nogil:
    cdef uint8_t* at
    cdef setting_t setting
    cdef uint32_t i
    if command.list_data == NULL:
        return cursor
    at = put_list(target + (COMMAND_DATA_WORDS + COMMAND_CONFIGURE_SETTINGS_POINTER) * WORD_BYTES, cursor,
                  command.list_count, SETTING_DATA_WORDS, SETTING_POINTERS)
    blob_point(target, COMMAND_CONFIGURE_SETTINGS_POINTER, blobs, cursor, ELEMENT_COMPOSITE,
               command.list_count * SETTING_WORDS)
    for i in range(command.list_count):
        setting = command_setting(command, i)
        store16(at + SETTING_ID_AT, setting.id)
        store64(at + SETTING_VALUE_AT, setting.value)
        at += SETTING_WORDS * WORD_BYTES
    return at


cdef int entry_open(const uint8_t* frame, size_t size, entry_t* out) noexcept nogil:
    cdef uint8_t padded[LOG_ENTRY_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields
    cdef struct_t view
    cdef int code = single_open(frame, size, &out.message)
    if code == CODE_OK:
        code = read_root(&out.message, &view)
    if code != CODE_OK:
        return CODE_MALFORMED_FRAME
    fields = fields_of(&view, padded, LOG_ENTRY_DATA_WORDS * WORD_BYTES)
    out.version = load16(fields + LOG_ENTRY_VERSION_AT)
    out.kind = load16(fields + LOG_ENTRY_KIND_AT)
    out.group = load32(fields + LOG_ENTRY_GROUP_AT)
    out.term = load64(fields + LOG_ENTRY_TERM_AT)
    out.index = load64(fields + LOG_ENTRY_INDEX_AT)
    if out.version != FORMAT_VERSION:
        return CODE_UNSUPPORTED_VERSION
    if out.kind >= ENTRY_KIND_TOTAL:
        return CODE_UNKNOWN_COMMAND
    code = read_list(&out.message, pointer_at(&view, LOG_ENTRY_COMMANDS_POINTER), &out.commands)
    if code == CODE_OK:
        code = membership_read(&out.message, pointer_at(&view, LOG_ENTRY_MEMBERSHIP_POINTER),
                               &out.membership_present, &out.membership_version, &out.members)
    entry_rewind(out)
    # An entry is always written in one segment without far pointers.
    return CODE_MALFORMED_FRAME if code == WIRE_FAR else code


cdef int entry_command(entry_t* entry, uint32_t i, command_t* out) noexcept nogil:
    cdef struct_t view
    cdef int code
    element_of(&entry.commands, i, &view)
    code = command_decode(&entry.message, &view, out)
    return CODE_MALFORMED_FRAME if code == WIRE_FAR else code


cdef void entry_rewind(entry_t* entry) noexcept nogil:
    message_open(&entry.message, entry.message.base, entry.message.words)


cdef int membership_read(message_t* message, const uint8_t* pointer, uint8_t* present, uint16_t* version,
                         list_t* members) noexcept nogil:
    cdef uint8_t padded[MEMBERSHIP_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef member_t member
    cdef uint32_t i
    cdef int code = read_struct(message, pointer, &view)
    if code != CODE_OK:
        return code
    present[0] = view.data != NULL
    version[0] = load16(fields_of(&view, padded, MEMBERSHIP_DATA_WORDS * WORD_BYTES) + MEMBERSHIP_VERSION_AT)
    code = read_list(message, pointer_at(&view, MEMBERSHIP_MEMBERS_POINTER), members)
    if code != CODE_OK:
        return code
    for i in range(members.count):
        code = member_decode(message, members, i, &member)
        if code != CODE_OK:
            return code
    return CODE_OK


cdef int member_decode(message_t* message, const list_t* members, uint32_t i, member_t* out) noexcept nogil:
    cdef uint8_t padded[MEMBER_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields
    cdef struct_t view
    element_of(members, i, &view)
    fields = fields_of(&view, padded, MEMBER_DATA_WORDS * WORD_BYTES)
    out.node = load64(fields + MEMBER_NODE_AT)
    out.incarnation = load64(fields + MEMBER_INCARNATION_AT)
    out.role = load16(fields + MEMBER_ROLE_AT)
    return read_text(message, pointer_at(&view, MEMBER_ADDRESS_POINTER), &out.address)


cdef int membership_open(const uint8_t* frame, size_t size, message_t* message, uint16_t* version,
                         list_t* members) noexcept nogil:
    cdef uint8_t present
    cdef int code = single_open(frame, size, message)
    if code == CODE_OK:
        code = membership_read(message, message.base, &present, version, members)
        message_open(message, message.base, message.words)
    return CODE_MALFORMED_FRAME if code == WIRE_FAR else code


cdef int membership_encode(buffer_t* out, const membership_t* membership) noexcept nogil:
    cdef size_t words = 1 + membership_words(membership)
    cdef uint8_t* frame
    if buffer_reserve(out, SINGLE_HEADER_BYTES + words * WORD_BYTES) != 0:
        return -1
    frame = out.data + out.size
    out.size += SINGLE_HEADER_BYTES + words * WORD_BYTES
    store64(frame, <uint64_t>words << 32)
    membership_write(frame + SINGLE_HEADER_BYTES, frame + SINGLE_HEADER_BYTES + WORD_BYTES, membership)
    return 0


cdef size_t membership_words(const membership_t* membership) noexcept nogil:
    cdef size_t words = MEMBERSHIP_DATA_WORDS + MEMBERSHIP_POINTERS
    cdef uint32_t i
    if membership.members == NULL:
        return words
    words += 1
    for i in range(membership.count):
        words += MEMBER_WORDS + text_words(&membership.members[i].address)
    return words


cdef uint8_t* membership_write(uint8_t* pointer, uint8_t* cursor, const membership_t* membership) noexcept nogil:
    cdef uint8_t* target = cursor
    cdef const member_t* member
    cdef uint8_t* at
    cdef uint32_t i
    put_struct_pointer(pointer, target, MEMBERSHIP_DATA_WORDS, MEMBERSHIP_POINTERS)
    memset(target, 0, (MEMBERSHIP_DATA_WORDS + MEMBERSHIP_POINTERS) * WORD_BYTES)
    store16(target + MEMBERSHIP_VERSION_AT, membership.version)
    cursor = target + (MEMBERSHIP_DATA_WORDS + MEMBERSHIP_POINTERS) * WORD_BYTES
    if membership.members == NULL:
        return cursor
    at = put_list(target + (MEMBERSHIP_DATA_WORDS + MEMBERSHIP_MEMBERS_POINTER) * WORD_BYTES, cursor,
                  membership.count, MEMBER_DATA_WORDS, MEMBER_POINTERS)
    cursor = at + <size_t>membership.count * MEMBER_WORDS * WORD_BYTES
    for i in range(membership.count):
        member = &membership.members[i]
        store64(at + MEMBER_NODE_AT, member.node)
        store64(at + MEMBER_INCARNATION_AT, member.incarnation)
        store16(at + MEMBER_ROLE_AT, member.role)
        cursor = put_text(at + (MEMBER_DATA_WORDS + MEMBER_ADDRESS_POINTER) * WORD_BYTES, cursor, &member.address)
        at += MEMBER_WORDS * WORD_BYTES
    return cursor


cdef size_t builder_bytes(const builder_t* builder) noexcept nogil:
    return SINGLE_HEADER_BYTES + ENTRY_OVERHEAD_WORDS * WORD_BYTES + builder.structs.size + builder.blobs.size


cdef size_t builder_bytes_with(const builder_t* builder, const command_t* command) noexcept nogil:
    return builder_bytes(builder) + COMMAND_BYTES + command_blob_words(command) * WORD_BYTES


cdef int builder_add(builder_t* builder, const command_t* command) noexcept nogil:
    cdef uint8_t* after
    if buffer_reserve(&builder.structs, COMMAND_BYTES) != 0:
        return -1
    if buffer_reserve(&builder.blobs, command_blob_words(command) * WORD_BYTES) != 0:
        return -1
    after = command_write(builder.structs.data + builder.structs.size, builder.blobs.data,
                          builder.blobs.data + builder.blobs.size, command)
    builder.structs.size += COMMAND_BYTES
    builder.blobs.size = after - builder.blobs.data
    builder.count += 1
    return 0


cdef uint8_t* entry_begin(uint8_t* frame, size_t frame_size, uint16_t kind, uint32_t group, uint64_t term,
                          uint64_t index) noexcept nogil:
    cdef uint8_t* root = put_root(frame, (frame_size - SINGLE_HEADER_BYTES) // WORD_BYTES, LOG_ENTRY_DATA_WORDS,
                                  LOG_ENTRY_POINTERS)
    store16(root + LOG_ENTRY_VERSION_AT, <uint16_t>FORMAT_VERSION)
    store16(root + LOG_ENTRY_KIND_AT, kind)
    store32(root + LOG_ENTRY_GROUP_AT, group)
    store64(root + LOG_ENTRY_TERM_AT, term)
    store64(root + LOG_ENTRY_INDEX_AT, index)
    return root


cdef void builder_seal(builder_t* builder, uint32_t group, uint64_t term, uint64_t index, uint8_t* out) noexcept nogil:
    cdef uint8_t* root = entry_begin(out, builder_bytes(builder), ENTRY_KIND_BATCH, group, term, index)
    cdef uint8_t* tag = root + (LOG_ENTRY_DATA_WORDS + LOG_ENTRY_POINTERS) * WORD_BYTES
    cdef uint8_t* structs = tag + WORD_BYTES
    cdef uint32_t i
    put_list_pointer(root + (LOG_ENTRY_DATA_WORDS + LOG_ENTRY_COMMANDS_POINTER) * WORD_BYTES, tag, ELEMENT_COMPOSITE,
                     builder.count * COMMAND_WORDS)
    store64(tag, (<uint64_t>builder.count << 2) | (<uint64_t>COMMAND_DATA_WORDS << 32)
            | (<uint64_t>COMMAND_POINTERS << 48))
    if builder.structs.size:
        memcpy(structs, builder.structs.data, builder.structs.size)
    if builder.blobs.size:
        memcpy(structs + builder.structs.size, builder.blobs.data, builder.blobs.size)
    for i in range(builder.count):
        command_point(structs + <size_t>i * COMMAND_BYTES, <int64_t>(builder.count - i) * COMMAND_WORDS)
    builder_clear(builder)


cdef void builder_clear(builder_t* builder) noexcept nogil:
    builder.structs.size = 0
    builder.blobs.size = 0
    builder.count = 0


cdef void builder_free(builder_t* builder) noexcept nogil:
    buffer_free(&builder.structs)
    buffer_free(&builder.blobs)
    builder.count = 0


cdef int entry_encode_noop(buffer_t* out, uint32_t group, uint64_t term, uint64_t index) noexcept nogil:
    cdef size_t size = SINGLE_HEADER_BYTES + (ENTRY_OVERHEAD_WORDS - 1) * WORD_BYTES
    if buffer_reserve(out, size) != 0:
        return -1
    entry_begin(out.data + out.size, size, ENTRY_KIND_NOOP, group, term, index)
    out.size += size
    return 0


cdef int entry_encode_membership(buffer_t* out, uint32_t group, uint64_t term, uint64_t index,
                                 const membership_t* membership) noexcept nogil:
    cdef size_t size = SINGLE_HEADER_BYTES + (ENTRY_OVERHEAD_WORDS - 1 + membership_words(membership)) * WORD_BYTES
    cdef uint8_t* root
    if buffer_reserve(out, size) != 0:
        return -1
    root = entry_begin(out.data + out.size, size, ENTRY_KIND_MEMBERSHIP, group, term, index)
    membership_write(root + (LOG_ENTRY_DATA_WORDS + LOG_ENTRY_MEMBERSHIP_POINTER) * WORD_BYTES,
                     root + (LOG_ENTRY_DATA_WORDS + LOG_ENTRY_POINTERS) * WORD_BYTES, membership)
    out.size += size
    return 0
