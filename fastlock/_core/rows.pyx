"""Checkpoint rows as plain C structs: encoded to and decoded from single-segment frames."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_reserve, buffer_t
from fastlock._core.commands cimport membership_read, membership_t, membership_words, membership_write, setting_t
from fastlock._core.layout cimport *
from fastlock._core.wire cimport *


cdef enum:
    CLAIM_ROW_WORDS = CLAIM_ROW_DATA_WORDS + CLAIM_ROW_POINTERS
    ANSWER_ROW_WORDS = ANSWER_ROW_DATA_WORDS + ANSWER_ROW_POINTERS
    SETTING_WORDS = SETTING_DATA_WORDS + SETTING_POINTERS
    MOVED_SLOTS_WORDS = MOVED_SLOTS_DATA_WORDS + MOVED_SLOTS_POINTERS
    LOCK_ROW_WORDS = LOCK_ROW_DATA_WORDS + LOCK_ROW_POINTERS
    LEASE_ROW_WORDS = LEASE_ROW_DATA_WORDS + LEASE_ROW_POINTERS
    SESSION_ROW_WORDS = SESSION_ROW_DATA_WORDS + SESSION_ROW_POINTERS
    GROUP_ROW_WORDS = GROUP_ROW_DATA_WORDS + GROUP_ROW_POINTERS


cdef inline size_t list_words(const void* elements, uint32_t count, size_t element_words) noexcept nogil:
    return 1 + count * element_words if elements != NULL else 0


cdef inline uint8_t* row_begin(buffer_t* out, size_t words, uint32_t data_words, uint32_t pointer_count) noexcept nogil:
    """Room for a frame whose segment has the root pointer and `words` more; returns the root struct, or NULL."""
    cdef size_t size = SINGLE_HEADER_BYTES + (1 + words) * WORD_BYTES
    cdef uint8_t* root
    if buffer_reserve(out, size) != 0:
        return NULL
    root = put_root(out.data + out.size, 1 + words, data_words, pointer_count)
    out.size += size
    return root


cdef uint8_t* claims_write(uint8_t* pointer, uint8_t* cursor, const claim_row_t* claims, uint32_t count) noexcept nogil:
    cdef uint8_t* at
    cdef uint32_t i
    if claims == NULL:
        return cursor
    at = put_list(pointer, cursor, count, CLAIM_ROW_DATA_WORDS, CLAIM_ROW_POINTERS)
    for i in range(count):
        store64(at + CLAIM_ROW_LEASE_HIGH_AT, claims[i].lease_high)
        store64(at + CLAIM_ROW_LEASE_LOW_AT, claims[i].lease_low)
        store64(at + CLAIM_ROW_REQUEST_AT, claims[i].request)
        store64(at + CLAIM_ROW_REVISION_AT, claims[i].revision)
        store32(at + CLAIM_ROW_COUNT_AT, claims[i].count)
        store32(at + CLAIM_ROW_LOCK_DELAY_MS_AT, claims[i].lock_delay_ms)
        store16(at + CLAIM_ROW_MODE_AT, claims[i].mode)
        store16(at + CLAIM_ROW_POSITION_AT, claims[i].position)
        store16(at + CLAIM_ROW_KEY_TOTAL_AT, claims[i].key_total)
        at += CLAIM_ROW_WORDS * WORD_BYTES
    return at


cdef inline size_t lock_row_words(const lock_row_t* row, const claim_row_t* holders, uint32_t holder_count,
                                  const claim_row_t* waiters, uint32_t waiter_count) noexcept nogil:
    return (LOCK_ROW_WORDS + bytes_words(&row.key) + bytes_words(&row.value)
            + list_words(holders, holder_count, CLAIM_ROW_WORDS)
            + list_words(waiters, waiter_count, CLAIM_ROW_WORDS))


cdef size_t lock_row_bytes(const lock_row_t* row, const claim_row_t* holders, uint32_t holder_count,
                           const claim_row_t* waiters, uint32_t waiter_count) noexcept nogil:
    return SINGLE_HEADER_BYTES + WORD_BYTES * (1 + lock_row_words(row, holders, holder_count, waiters, waiter_count))


cdef int lock_row_encode(buffer_t* out, const lock_row_t* row, const claim_row_t* holders, uint32_t holder_count,
                         const claim_row_t* waiters, uint32_t waiter_count) noexcept nogil:
    cdef size_t words = lock_row_words(row, holders, holder_count, waiters, waiter_count)
    cdef uint8_t* root = row_begin(out, words, LOCK_ROW_DATA_WORDS, LOCK_ROW_POINTERS)
    cdef uint8_t* pointers
    cdef uint8_t* cursor
    if root == NULL:
        return -1
    store16(root + LOCK_ROW_VERSION_AT, <uint16_t>FORMAT_VERSION)
    store16(root + LOCK_ROW_MODE_AT, row.mode)
    store16(root + LOCK_ROW_SLOT_AT, row.slot)
    store32(root + LOCK_ROW_LIMIT_AT, row.limit)
    store32(root + LOCK_ROW_DELAY_MS_AT, row.delay_ms)
    store64(root + LOCK_ROW_DELAY_GENERATION_AT, row.delay_generation)
    store64(root + LOCK_ROW_VALUE_REVISION_AT, row.value_revision)
    store64(root + LOCK_ROW_VALUE_TOKEN_AT, row.value_token)
    pointers = root + LOCK_ROW_DATA_WORDS * WORD_BYTES
    cursor = root + LOCK_ROW_WORDS * WORD_BYTES
    cursor = put_bytes(pointers + LOCK_ROW_KEY_POINTER * WORD_BYTES, cursor, &row.key)
    cursor = put_bytes(pointers + LOCK_ROW_VALUE_POINTER * WORD_BYTES, cursor, &row.value)
    cursor = claims_write(pointers + LOCK_ROW_HOLDERS_POINTER * WORD_BYTES, cursor, holders, holder_count)
    claims_write(pointers + LOCK_ROW_WAITERS_POINTER * WORD_BYTES, cursor, waiters, waiter_count)
    return 0


cdef int lease_row_encode(buffer_t* out, const lease_row_t* row) noexcept nogil:
    cdef uint8_t* root = row_begin(out, LEASE_ROW_WORDS + bytes_words(&row.owner), LEASE_ROW_DATA_WORDS,
                                   LEASE_ROW_POINTERS)
    if root == NULL:
        return -1
    store16(root + LEASE_ROW_VERSION_AT, <uint16_t>FORMAT_VERSION)
    store_bit(root, LEASE_ROW_BOUND_BIT, row.bound)
    store64(root + LEASE_ROW_LEASE_HIGH_AT, row.lease_high)
    store64(root + LEASE_ROW_LEASE_LOW_AT, row.lease_low)
    store64(root + LEASE_ROW_TTL_MS_AT, <uint64_t>row.ttl_ms)
    store64(root + LEASE_ROW_GENERATION_AT, row.generation)
    store64(root + LEASE_ROW_REMAINING_MS_AT, row.remaining_ms)
    store64(root + LEASE_ROW_LOST_REVISION_AT, row.lost_revision)
    put_bytes(root + (LEASE_ROW_DATA_WORDS + LEASE_ROW_OWNER_POINTER) * WORD_BYTES,
              root + LEASE_ROW_WORDS * WORD_BYTES, &row.owner)
    return 0


cdef int session_row_encode(buffer_t* out, const session_row_t* row, const answer_row_t* answers,
                            uint32_t answer_count) noexcept nogil:
    cdef size_t words = SESSION_ROW_WORDS + list_words(answers, answer_count, ANSWER_ROW_WORDS)
    cdef uint8_t* root = row_begin(out, words, SESSION_ROW_DATA_WORDS, SESSION_ROW_POINTERS)
    cdef uint8_t* at
    cdef uint32_t i
    if root == NULL:
        return -1
    store16(root + SESSION_ROW_VERSION_AT, <uint16_t>FORMAT_VERSION)
    store64(root + SESSION_ROW_SESSION_AT, row.session)
    store64(root + SESSION_ROW_WATERMARK_AT, row.watermark)
    store64(root + SESSION_ROW_USES_AT, row.uses)
    store64(root + SESSION_ROW_LIFETIME_MS_AT, row.lifetime_ms)
    if answers == NULL:
        return 0
    at = put_list(root + (SESSION_ROW_DATA_WORDS + SESSION_ROW_ANSWERS_POINTER) * WORD_BYTES,
                  root + SESSION_ROW_WORDS * WORD_BYTES, answer_count, ANSWER_ROW_DATA_WORDS, ANSWER_ROW_POINTERS)
    for i in range(answer_count):
        store64(at + ANSWER_ROW_SEQUENCE_AT, answers[i].sequence)
        store16(at + ANSWER_ROW_CODE_AT, answers[i].code)
        store16(at + ANSWER_ROW_KIND_AT, answers[i].kind)
        store32(at + ANSWER_ROW_COUNT_AT, answers[i].count)
        store32(at + ANSWER_ROW_DETAIL_AT, answers[i].detail)
        store64(at + ANSWER_ROW_TOKEN_AT, answers[i].token)
        store64(at + ANSWER_ROW_REVISION_AT, answers[i].revision)
        at += ANSWER_ROW_WORDS * WORD_BYTES
    return 0


cdef uint8_t* settings_write(uint8_t* pointer, uint8_t* cursor, const setting_t* settings,
                             uint32_t count) noexcept nogil:
    cdef uint8_t* at
    cdef uint32_t i
    if settings == NULL:
        return cursor
    at = put_list(pointer, cursor, count, SETTING_DATA_WORDS, SETTING_POINTERS)
    for i in range(count):
        store16(at + SETTING_ID_AT, settings[i].id)
        store64(at + SETTING_VALUE_AT, settings[i].value)
        at += SETTING_WORDS * WORD_BYTES
    return at


cdef uint8_t* moved_write(uint8_t* pointer, uint8_t* cursor, const moved_slots_t* moved_to,
                          uint32_t count) noexcept nogil:
    cdef uint8_t* at
    cdef uint32_t i
    if moved_to == NULL:
        return cursor
    at = put_list(pointer, cursor, count, MOVED_SLOTS_DATA_WORDS, MOVED_SLOTS_POINTERS)
    for i in range(count):
        store16(at + MOVED_SLOTS_FIRST_AT, moved_to[i].first)
        store16(at + MOVED_SLOTS_LAST_AT, moved_to[i].last)
        store32(at + MOVED_SLOTS_TO_GROUP_AT, moved_to[i].to_group)
        at += MOVED_SLOTS_WORDS * WORD_BYTES
    return at


cdef int group_row_encode(buffer_t* out, const group_row_t* row, const setting_t* settings, uint32_t setting_count,
                          const moved_slots_t* moved_to, uint32_t moved_count,
                          const membership_t* membership) noexcept nogil:
    cdef size_t words = (GROUP_ROW_WORDS + bytes_words(&row.slots)
                         + list_words(settings, setting_count, SETTING_WORDS)
                         + list_words(moved_to, moved_count, MOVED_SLOTS_WORDS)
                         + (membership_words(membership) if membership != NULL else 0))
    cdef uint8_t* root = row_begin(out, words, GROUP_ROW_DATA_WORDS, GROUP_ROW_POINTERS)
    cdef uint8_t* pointers
    cdef uint8_t* cursor
    if root == NULL:
        return -1
    store16(root + GROUP_ROW_VERSION_AT, <uint16_t>FORMAT_VERSION)
    store32(root + GROUP_ROW_GROUP_AT, row.group)
    store64(root + GROUP_ROW_INDEX_AT, row.index)
    store64(root + GROUP_ROW_TERM_AT, row.term)
    store64(root + GROUP_ROW_REVISION_AT, row.revision)
    store64(root + GROUP_ROW_HISTORY_FLOOR_AT, row.history_floor)
    pointers = root + GROUP_ROW_DATA_WORDS * WORD_BYTES
    cursor = root + GROUP_ROW_WORDS * WORD_BYTES
    cursor = settings_write(pointers + GROUP_ROW_SETTINGS_POINTER * WORD_BYTES, cursor, settings, setting_count)
    cursor = put_bytes(pointers + GROUP_ROW_SLOTS_POINTER * WORD_BYTES, cursor, &row.slots)
    cursor = moved_write(pointers + GROUP_ROW_MOVED_TO_POINTER * WORD_BYTES, cursor, moved_to, moved_count)
    if membership != NULL:
        membership_write(pointers + GROUP_ROW_MEMBERSHIP_POINTER * WORD_BYTES, cursor, membership)
    return 0


cdef int row_open(const uint8_t* frame, size_t size, message_t* message, struct_t* root) noexcept nogil:
    cdef int code = single_open(frame, size, message)
    return read_root(message, root) if code == CODE_OK else code


cdef inline int row_code(int code, uint16_t version) noexcept nogil:
    """What a row decoder answers. A newer row's unknown shape is no damage, so that the version goes first."""
    if version != FORMAT_VERSION:
        return CODE_UNSUPPORTED_VERSION
    return CODE_MALFORMED_FRAME if code == WIRE_FAR else code


cdef int lock_row_decode(const uint8_t* frame, size_t size, lock_row_t* out) noexcept nogil:
    cdef uint8_t padded[LOCK_ROW_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields
    cdef message_t message
    cdef struct_t view
    cdef int code = row_open(frame, size, &message, &view)
    if code != CODE_OK:
        return CODE_MALFORMED_FRAME
    fields = fields_of(&view, padded, LOCK_ROW_DATA_WORDS * WORD_BYTES)
    out.version = load16(fields + LOCK_ROW_VERSION_AT)
    out.mode = load16(fields + LOCK_ROW_MODE_AT)
    out.slot = load16(fields + LOCK_ROW_SLOT_AT)
    out.limit = load32(fields + LOCK_ROW_LIMIT_AT)
    out.delay_ms = load32(fields + LOCK_ROW_DELAY_MS_AT)
    out.delay_generation = load64(fields + LOCK_ROW_DELAY_GENERATION_AT)
    out.value_revision = load64(fields + LOCK_ROW_VALUE_REVISION_AT)
    out.value_token = load64(fields + LOCK_ROW_VALUE_TOKEN_AT)
    code = read_bytes(&message, pointer_at(&view, LOCK_ROW_KEY_POINTER), &out.key)
    if code == CODE_OK:
        code = read_bytes(&message, pointer_at(&view, LOCK_ROW_VALUE_POINTER), &out.value)
    if code == CODE_OK:
        code = read_list(&message, pointer_at(&view, LOCK_ROW_HOLDERS_POINTER), &out.holders)
    if code == CODE_OK:
        code = read_list(&message, pointer_at(&view, LOCK_ROW_WAITERS_POINTER), &out.waiters)
    return row_code(code, out.version)


cdef int lease_row_decode(const uint8_t* frame, size_t size, lease_row_t* out) noexcept nogil:
    cdef uint8_t padded[LEASE_ROW_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields
    cdef message_t message
    cdef struct_t view
    cdef int code = row_open(frame, size, &message, &view)
    if code != CODE_OK:
        return CODE_MALFORMED_FRAME
    fields = fields_of(&view, padded, LEASE_ROW_DATA_WORDS * WORD_BYTES)
    out.version = load16(fields + LEASE_ROW_VERSION_AT)
    out.bound = load_bit(fields, LEASE_ROW_BOUND_BIT)
    out.lease_high = load64(fields + LEASE_ROW_LEASE_HIGH_AT)
    out.lease_low = load64(fields + LEASE_ROW_LEASE_LOW_AT)
    out.ttl_ms = <int64_t>load64(fields + LEASE_ROW_TTL_MS_AT)
    out.generation = load64(fields + LEASE_ROW_GENERATION_AT)
    out.remaining_ms = load64(fields + LEASE_ROW_REMAINING_MS_AT)
    out.lost_revision = load64(fields + LEASE_ROW_LOST_REVISION_AT)
    code = read_bytes(&message, pointer_at(&view, LEASE_ROW_OWNER_POINTER), &out.owner)
    return row_code(code, out.version)


cdef int session_row_decode(const uint8_t* frame, size_t size, session_row_t* out) noexcept nogil:
    cdef uint8_t padded[SESSION_ROW_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields
    cdef message_t message
    cdef struct_t view
    cdef int code = row_open(frame, size, &message, &view)
    if code != CODE_OK:
        return CODE_MALFORMED_FRAME
    fields = fields_of(&view, padded, SESSION_ROW_DATA_WORDS * WORD_BYTES)
    out.version = load16(fields + SESSION_ROW_VERSION_AT)
    out.session = load64(fields + SESSION_ROW_SESSION_AT)
    out.watermark = load64(fields + SESSION_ROW_WATERMARK_AT)
    out.uses = load64(fields + SESSION_ROW_USES_AT)
    out.lifetime_ms = load64(fields + SESSION_ROW_LIFETIME_MS_AT)
    code = read_list(&message, pointer_at(&view, SESSION_ROW_ANSWERS_POINTER), &out.answers)
    return row_code(code, out.version)


cdef int group_row_decode(const uint8_t* frame, size_t size, group_row_t* out) noexcept nogil:
    cdef uint8_t padded[GROUP_ROW_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields
    cdef struct_t view
    cdef int code = row_open(frame, size, &out.message, &view)
    if code != CODE_OK:
        return CODE_MALFORMED_FRAME
    fields = fields_of(&view, padded, GROUP_ROW_DATA_WORDS * WORD_BYTES)
    out.version = load16(fields + GROUP_ROW_VERSION_AT)
    out.group = load32(fields + GROUP_ROW_GROUP_AT)
    out.index = load64(fields + GROUP_ROW_INDEX_AT)
    out.term = load64(fields + GROUP_ROW_TERM_AT)
    out.revision = load64(fields + GROUP_ROW_REVISION_AT)
    out.history_floor = load64(fields + GROUP_ROW_HISTORY_FLOOR_AT)
    code = read_list(&out.message, pointer_at(&view, GROUP_ROW_SETTINGS_POINTER), &out.settings)
    if code == CODE_OK:
        code = read_bytes(&out.message, pointer_at(&view, GROUP_ROW_SLOTS_POINTER), &out.slots)
    if code == CODE_OK:
        code = read_list(&out.message, pointer_at(&view, GROUP_ROW_MOVED_TO_POINTER), &out.moved_to)
    if code == CODE_OK:
        code = membership_read(&out.message, pointer_at(&view, GROUP_ROW_MEMBERSHIP_POINTER),
                               &out.membership_present, &out.membership_version, &out.members)
    message_open(&out.message, out.message.base, out.message.words)
    return row_code(code, out.version)


cdef void claim_row_at(const list_t* claims, uint32_t i, claim_row_t* out) noexcept nogil:
    cdef uint8_t padded[CLAIM_ROW_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    element_of(claims, i, &view)
    fields = fields_of(&view, padded, CLAIM_ROW_DATA_WORDS * WORD_BYTES)
    out.lease_high = load64(fields + CLAIM_ROW_LEASE_HIGH_AT)
    out.lease_low = load64(fields + CLAIM_ROW_LEASE_LOW_AT)
    out.request = load64(fields + CLAIM_ROW_REQUEST_AT)
    out.revision = load64(fields + CLAIM_ROW_REVISION_AT)
    out.count = load32(fields + CLAIM_ROW_COUNT_AT)
    out.lock_delay_ms = load32(fields + CLAIM_ROW_LOCK_DELAY_MS_AT)
    out.mode = load16(fields + CLAIM_ROW_MODE_AT)
    out.position = load16(fields + CLAIM_ROW_POSITION_AT)
    out.key_total = load16(fields + CLAIM_ROW_KEY_TOTAL_AT)


cdef void answer_row_at(const list_t* answers, uint32_t i, answer_row_t* out) noexcept nogil:
    cdef uint8_t padded[ANSWER_ROW_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    element_of(answers, i, &view)
    fields = fields_of(&view, padded, ANSWER_ROW_DATA_WORDS * WORD_BYTES)
    out.sequence = load64(fields + ANSWER_ROW_SEQUENCE_AT)
    out.code = load16(fields + ANSWER_ROW_CODE_AT)
    out.kind = load16(fields + ANSWER_ROW_KIND_AT)
    out.count = load32(fields + ANSWER_ROW_COUNT_AT)
    out.detail = load32(fields + ANSWER_ROW_DETAIL_AT)
    out.token = load64(fields + ANSWER_ROW_TOKEN_AT)
    out.revision = load64(fields + ANSWER_ROW_REVISION_AT)


cdef void setting_row_at(const list_t* settings, uint32_t i, setting_t* out) noexcept nogil:
    cdef uint8_t padded[SETTING_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    element_of(settings, i, &view)
    fields = fields_of(&view, padded, SETTING_DATA_WORDS * WORD_BYTES)
    out.id = load16(fields + SETTING_ID_AT)
    out.value = load64(fields + SETTING_VALUE_AT)


cdef void moved_slots_at(const list_t* moved_to, uint32_t i, moved_slots_t* out) noexcept nogil:
    cdef uint8_t padded[MOVED_SLOTS_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    element_of(moved_to, i, &view)
    fields = fields_of(&view, padded, MOVED_SLOTS_DATA_WORDS * WORD_BYTES)
    out.first = load16(fields + MOVED_SLOTS_FIRST_AT)
    out.last = load16(fields + MOVED_SLOTS_LAST_AT)
    out.to_group = load32(fields + MOVED_SLOTS_TO_GROUP_AT)
