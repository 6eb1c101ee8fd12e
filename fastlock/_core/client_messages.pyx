"""What clients and nodes say to each other: Request, Reply and Hello, decoded in place and encoded to frames."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from fastlock._core.buffer cimport buffer_reserve, buffer_t
from fastlock._core.commands cimport command_blob_words, command_decode, command_point, command_write
from fastlock._core.framing cimport frame_flatten, frame_open
from fastlock._core.layout cimport *
from fastlock._core.types cimport outcome_t
from fastlock._core.wire cimport *


cdef enum:
    COMMAND_WORDS = COMMAND_DATA_WORDS + COMMAND_POINTERS
    HELLO_WORDS = HELLO_DATA_WORDS + HELLO_POINTERS
    REQUEST_WORDS = REQUEST_DATA_WORDS + REQUEST_POINTERS
    REPLY_WORDS = REPLY_DATA_WORDS + REPLY_POINTERS
    REPLY_BYTES = SINGLE_HEADER_BYTES + (1 + REPLY_WORDS) * WORD_BYTES
    KEEP_ALIVE_WORDS = KEEP_ALIVE_DATA_WORDS + KEEP_ALIVE_POINTERS
    KEPT_ALIVE_WORDS = KEPT_ALIVE_DATA_WORDS + KEPT_ALIVE_POINTERS
    LOCK_STATE_WORDS = LOCK_STATE_DATA_WORDS + LOCK_STATE_POINTERS
    CLAIM_STATE_WORDS = CLAIM_STATE_DATA_WORDS + CLAIM_STATE_POINTERS
    EVENT_WORDS = EVENT_DATA_WORDS + EVENT_POINTERS


cdef int request_decode(const uint8_t* frame, size_t size, buffer_t* scratch, request_t* out) noexcept nogil:
    cdef message_t message
    cdef int code
    out.id_known = 0
    out.id = 0
    code = frame_open(frame, size, scratch, &message)
    if code != CODE_OK:
        return code
    code = request_read(&message, out)
    if code == WIRE_FAR:
        code = frame_flatten(frame, size, scratch, &message)
        if code == CODE_OK:
            code = request_read(&message, out)
    return code


cdef int request_read(message_t* message, request_t* out) noexcept nogil:
    cdef uint8_t padded[REQUEST_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields
    cdef struct_t root, view
    cdef int code = read_root(message, &root)
    if code != CODE_OK:
        return code
    fields = fields_of(&root, padded, REQUEST_DATA_WORDS * WORD_BYTES)
    out.id = load64(fields + REQUEST_ID_AT)
    out.id_known = 1
    out.group = load32(fields + REQUEST_GROUP_AT)
    out.timeout_ms = load32(fields + REQUEST_TIMEOUT_MS_AT)
    out.which = load16(fields + REQUEST_WHICH_AT)
    if out.which == REQUEST_COMMAND:
        code = read_struct(message, pointer_at(&root, REQUEST_COMMAND_POINTER), &view)
        return command_decode(message, &view, &out.command) if code == CODE_OK else code
    return request_read_other(message, &root, fields, out)


cdef int request_read_other(message_t* message, const struct_t* root, const uint8_t* fields,
                            request_t* out) noexcept nogil:
    cdef int which = out.which
    cdef struct_t view
    cdef int code
    if which == REQUEST_GET_LOCK:
        out.stale = load_bit(fields, REQUEST_GET_LOCK_STALE_BIT)
        return read_bytes(message, pointer_at(root, REQUEST_GET_LOCK_KEY_POINTER), &out.key)
    if which == REQUEST_LIST:
        out.limit = load32(fields + REQUEST_LIST_LIMIT_AT)
        out.stale = load_bit(fields, REQUEST_LIST_STALE_BIT)
        code = read_bytes(message, pointer_at(root, REQUEST_LIST_PREFIX_POINTER), &out.key)
        if code != CODE_OK:
            return code
        return read_bytes(message, pointer_at(root, REQUEST_LIST_CURSOR_POINTER), &out.cursor)
    if which == REQUEST_WATCH:
        out.prefix = load_bit(fields, REQUEST_WATCH_PREFIX_BIT)
        code = read_bytes(message, pointer_at(root, REQUEST_WATCH_KEY_POINTER), &out.key)
        if code != CODE_OK:
            return code
        return read_bytes(message, pointer_at(root, REQUEST_WATCH_POSITION_POINTER), &out.cursor)
    if which == REQUEST_UNWATCH:
        out.watch = load64(fields + REQUEST_UNWATCH_WATCH_AT)
        return CODE_OK
    if which == REQUEST_KEEP_ALIVE:
        return read_list(message, pointer_at(root, REQUEST_KEEP_ALIVE_POINTER), &out.keep_alives)
    if which == REQUEST_HELLO:
        code = read_struct(message, pointer_at(root, REQUEST_HELLO_POINTER), &view)
        return hello_decode(message, &view, &out.hello) if code == CODE_OK else code
    return CODE_OK if which == REQUEST_DESCRIBE else CODE_UNKNOWN_COMMAND


cdef int hello_decode(message_t* message, const struct_t* view, hello_t* out) noexcept nogil:
    cdef uint8_t padded[HELLO_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields = fields_of(view, padded, HELLO_DATA_WORDS * WORD_BYTES)
    cdef int code
    out.version = load16(fields + HELLO_VERSION_AT)
    out.role = load16(fields + HELLO_ROLE_AT)
    out.code = load16(fields + HELLO_CODE_AT)
    out.cluster_high = load64(fields + HELLO_CLUSTER_HIGH_AT)
    out.cluster_low = load64(fields + HELLO_CLUSTER_LOW_AT)
    out.node = load64(fields + HELLO_NODE_AT)
    out.incarnation = load64(fields + HELLO_INCARNATION_AT)
    code = read_text(message, pointer_at(view, HELLO_SOFTWARE_POINTER), &out.software)
    if code == CODE_OK:
        code = read_bytes(message, pointer_at(view, HELLO_CREDENTIALS_POINTER), &out.credentials)
    if code == CODE_OK:
        code = read_text(message, pointer_at(view, HELLO_MESSAGE_POINTER), &out.message)
    return code


cdef size_t hello_words(const hello_t* hello) noexcept nogil:
    return (HELLO_WORDS + text_words(&hello.software) + bytes_words(&hello.credentials)
            + text_words(&hello.message))


cdef uint8_t* hello_write(uint8_t* pointer, uint8_t* cursor, const hello_t* hello) noexcept nogil:
    cdef uint8_t* target = cursor
    cdef uint8_t* pointers = target + HELLO_DATA_WORDS * WORD_BYTES
    put_struct_pointer(pointer, target, HELLO_DATA_WORDS, HELLO_POINTERS)
    memset(target, 0, HELLO_WORDS * WORD_BYTES)
    store16(target + HELLO_VERSION_AT, hello.version)
    store16(target + HELLO_ROLE_AT, hello.role)
    store16(target + HELLO_CODE_AT, hello.code)
    store64(target + HELLO_CLUSTER_HIGH_AT, hello.cluster_high)
    store64(target + HELLO_CLUSTER_LOW_AT, hello.cluster_low)
    store64(target + HELLO_NODE_AT, hello.node)
    store64(target + HELLO_INCARNATION_AT, hello.incarnation)
    cursor = target + HELLO_WORDS * WORD_BYTES
    cursor = put_text(pointers + HELLO_SOFTWARE_POINTER * WORD_BYTES, cursor, &hello.software)
    cursor = put_bytes(pointers + HELLO_CREDENTIALS_POINTER * WORD_BYTES, cursor, &hello.credentials)
    return put_text(pointers + HELLO_MESSAGE_POINTER * WORD_BYTES, cursor, &hello.message)


cdef int hello_check(const hello_t* hello, const identity_t* identity) noexcept nogil:
    cdef bint cluster_named = hello.cluster_high != 0 or hello.cluster_low != 0
    cdef bint cluster_known = identity.cluster_high != 0 or identity.cluster_low != 0
    if hello.version != PROTOCOL_VERSION or hello.role >= ROLE_TOTAL:
        return CODE_UNSUPPORTED_VERSION
    # A client may come without a cluster id to learn it; a member never.
    if cluster_known and (cluster_named or hello.role == ROLE_MEMBER):
        if hello.cluster_high != identity.cluster_high or hello.cluster_low != identity.cluster_low:
            return CODE_WRONG_CLUSTER
    if hello.role != ROLE_MEMBER:
        return CODE_OK
    if hello.node == 0 or hello.node == identity.node:
        return CODE_WRONG_NODE
    if identity.peer_node != 0 and hello.node != identity.peer_node:
        return CODE_WRONG_NODE
    return CODE_STALE_INCARNATION if hello.incarnation < identity.peer_incarnation else CODE_OK


cdef void keep_alive_at(const list_t* items, uint32_t i, keep_alive_t* out) noexcept nogil:
    cdef uint8_t padded[KEEP_ALIVE_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    element_of(items, i, &view)
    fields = fields_of(&view, padded, KEEP_ALIVE_DATA_WORDS * WORD_BYTES)
    out.group = load32(fields + KEEP_ALIVE_GROUP_AT)
    out.lease_high = load64(fields + KEEP_ALIVE_LEASE_HIGH_AT)
    out.lease_low = load64(fields + KEEP_ALIVE_LEASE_LOW_AT)


cdef size_t request_words(const request_t* request, const keep_alive_t* keep_alives, uint32_t count) noexcept nogil:
    cdef int which = request.which
    if which == REQUEST_COMMAND:
        return REQUEST_WORDS + COMMAND_WORDS + command_blob_words(&request.command)
    if which == REQUEST_GET_LOCK:
        return REQUEST_WORDS + bytes_words(&request.key)
    if which == REQUEST_LIST or which == REQUEST_WATCH:
        return REQUEST_WORDS + bytes_words(&request.key) + bytes_words(&request.cursor)
    if which == REQUEST_KEEP_ALIVE and keep_alives != NULL:
        return REQUEST_WORDS + 1 + <size_t>count * KEEP_ALIVE_WORDS
    if which == REQUEST_HELLO:
        return REQUEST_WORDS + hello_words(&request.hello)
    return REQUEST_WORDS


cdef int request_encode(buffer_t* out, const request_t* request, const keep_alive_t* keep_alives,
                        uint32_t count) noexcept nogil:
    cdef size_t words = 1 + request_words(request, keep_alives, count)
    cdef size_t size = SINGLE_HEADER_BYTES + words * WORD_BYTES
    cdef uint8_t* root
    cdef uint8_t* cursor
    if buffer_reserve(out, size) != 0:
        return -1
    root = put_root(out.data + out.size, words, REQUEST_DATA_WORDS, REQUEST_POINTERS)
    out.size += size
    store64(root + REQUEST_ID_AT, request.id)
    store32(root + REQUEST_GROUP_AT, request.group)
    store32(root + REQUEST_TIMEOUT_MS_AT, request.timeout_ms)
    store16(root + REQUEST_WHICH_AT, request.which)
    if request.which == REQUEST_COMMAND:
        cursor = root + REQUEST_WORDS * WORD_BYTES
        put_struct_pointer(root + (REQUEST_DATA_WORDS + REQUEST_COMMAND_POINTER) * WORD_BYTES, cursor,
                           COMMAND_DATA_WORDS, COMMAND_POINTERS)
        command_write(cursor, cursor + COMMAND_WORDS * WORD_BYTES, cursor + COMMAND_WORDS * WORD_BYTES,
                      &request.command)
        command_point(cursor, COMMAND_WORDS)
    else:
        request_write_other(root, request, keep_alives, count)
    return 0


cdef void request_write_other(uint8_t* root, const request_t* request, const keep_alive_t* keep_alives,
                              uint32_t count) noexcept nogil:
    cdef int which = request.which
    cdef uint8_t* pointers = root + REQUEST_DATA_WORDS * WORD_BYTES
    cdef uint8_t* cursor = root + REQUEST_WORDS * WORD_BYTES
    if which == REQUEST_GET_LOCK:
        store_bit(root, REQUEST_GET_LOCK_STALE_BIT, request.stale)
        put_bytes(pointers + REQUEST_GET_LOCK_KEY_POINTER * WORD_BYTES, cursor, &request.key)
    elif which == REQUEST_LIST:
        store32(root + REQUEST_LIST_LIMIT_AT, request.limit)
        store_bit(root, REQUEST_LIST_STALE_BIT, request.stale)
        cursor = put_bytes(pointers + REQUEST_LIST_PREFIX_POINTER * WORD_BYTES, cursor, &request.key)
        put_bytes(pointers + REQUEST_LIST_CURSOR_POINTER * WORD_BYTES, cursor, &request.cursor)
    elif which == REQUEST_WATCH:
        store_bit(root, REQUEST_WATCH_PREFIX_BIT, request.prefix)
        cursor = put_bytes(pointers + REQUEST_WATCH_KEY_POINTER * WORD_BYTES, cursor, &request.key)
        put_bytes(pointers + REQUEST_WATCH_POSITION_POINTER * WORD_BYTES, cursor, &request.cursor)
    elif which == REQUEST_UNWATCH:
        store64(root + REQUEST_UNWATCH_WATCH_AT, request.watch)
    elif which == REQUEST_KEEP_ALIVE:
        keep_alives_write(pointers + REQUEST_KEEP_ALIVE_POINTER * WORD_BYTES, cursor, keep_alives, count)
    elif which == REQUEST_HELLO:
        hello_write(pointers + REQUEST_HELLO_POINTER * WORD_BYTES, cursor, &request.hello)


cdef void keep_alives_write(uint8_t* pointer, uint8_t* cursor, const keep_alive_t* items,
                            uint32_t count) noexcept nogil:
    cdef uint8_t* at
    cdef uint32_t i
    if items == NULL:
        return
    at = put_list(pointer, cursor, count, KEEP_ALIVE_DATA_WORDS, KEEP_ALIVE_POINTERS)
    for i in range(count):
        store32(at + KEEP_ALIVE_GROUP_AT, items[i].group)
        store64(at + KEEP_ALIVE_LEASE_HIGH_AT, items[i].lease_high)
        store64(at + KEEP_ALIVE_LEASE_LOW_AT, items[i].lease_low)
        at += KEEP_ALIVE_WORDS * WORD_BYTES


cdef int reply_decode(const uint8_t* frame, size_t size, buffer_t* scratch, reply_t* out) noexcept nogil:
    cdef message_t message
    cdef int code
    memset(out, 0, sizeof(reply_t))
    code = frame_open(frame, size, scratch, &message)
    if code != CODE_OK:
        return code
    code = reply_read(&message, out)
    if code == WIRE_FAR:
        code = frame_flatten(frame, size, scratch, &message)
        if code == CODE_OK:
            code = reply_read(&message, out)
    message_open(&out.message, message.base, message.words)
    return code


cdef int reply_read(message_t* message, reply_t* out) noexcept nogil:
    cdef uint8_t padded[REPLY_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields
    cdef struct_t root
    cdef int code = read_root(message, &root)
    if code != CODE_OK:
        return code
    fields = fields_of(&root, padded, REPLY_DATA_WORDS * WORD_BYTES)
    out.id = load64(fields + REPLY_ID_AT)
    out.code = load16(fields + REPLY_CODE_AT)
    out.which = load16(fields + REPLY_WHICH_AT)
    out.group = load32(fields + REPLY_GROUP_AT)
    out.detail = load32(fields + REPLY_DETAIL_AT)
    out.leader = load64(fields + REPLY_LEADER_AT)
    out.revision = load64(fields + REPLY_REVISION_AT)
    code = read_text(message, pointer_at(&root, REPLY_MESSAGE_POINTER), &out.text)
    if code != CODE_OK:
        return code
    if out.which == REPLY_GRANT:
        out.token = load64(fields + REPLY_GRANT_TOKEN_AT)
        out.count = load32(fields + REPLY_GRANT_COUNT_AT)
    elif out.which == REPLY_CONFLICT:
        out.retry_ms = load32(fields + REPLY_CONFLICT_RETRY_MS_AT)
        out.waiters = load32(fields + REPLY_CONFLICT_WAITERS_AT)
    elif out.which == REPLY_SESSION:
        out.session = load64(fields + REPLY_SESSION_AT)
    elif out.which != REPLY_DONE:
        return reply_read_content(message, &root, out)
    return CODE_OK


cdef int reply_read_content(message_t* message, const struct_t* root, reply_t* out) noexcept nogil:
    """The members of the union that have lists and structs. All of it is checked here, down to the last pointer."""
    cdef int which = out.which
    cdef lock_state_t lock
    cdef struct_t view
    cdef int code
    if which == REPLY_LOCK:
        code = read_struct(message, pointer_at(root, REPLY_LOCK_POINTER), &out.lock)
        if code == CODE_OK:
            code = lock_state_decode(message, &out.lock, &lock)
        return claims_check(message, &lock) if code == CODE_OK else code
    if which == REPLY_PAGE:
        code = read_list(message, pointer_at(root, REPLY_PAGE_LOCKS_POINTER), &out.items)
        if code == CODE_OK:
            code = locks_check(message, &out.items)
        if code == CODE_OK:
            code = read_bytes(message, pointer_at(root, REPLY_PAGE_CURSOR_POINTER), &out.cursor)
        return code
    if which == REPLY_EVENTS:
        code = read_list(message, pointer_at(root, REPLY_EVENTS_EVENTS_POINTER), &out.items)
        if code == CODE_OK:
            code = events_check(message, &out.items)
        if code == CODE_OK:
            code = read_bytes(message, pointer_at(root, REPLY_EVENTS_POSITION_POINTER), &out.cursor)
        return code
    if which == REPLY_KEPT_ALIVE:
        return read_list(message, pointer_at(root, REPLY_KEPT_ALIVE_POINTER), &out.items)
    if which == REPLY_HELLO:
        code = read_struct(message, pointer_at(root, REPLY_HELLO_POINTER), &view)
        return hello_decode(message, &view, &out.hello) if code == CODE_OK else code
    # The description of a cluster is rare: the schema's own reader serves it.
    return CODE_OK if which == REPLY_CLUSTER else CODE_UNKNOWN_COMMAND


cdef int claims_check(message_t* message, const lock_state_t* lock) noexcept nogil:
    cdef claim_state_t claim
    cdef uint32_t i
    cdef int code
    for i in range(lock.holders.count):
        code = claim_state_at(message, &lock.holders, i, &claim)
        if code != CODE_OK:
            return code
    for i in range(lock.waiters.count):
        code = claim_state_at(message, &lock.waiters, i, &claim)
        if code != CODE_OK:
            return code
    return CODE_OK


cdef int locks_check(message_t* message, const list_t* items) noexcept nogil:
    cdef lock_state_t lock
    cdef uint32_t i
    cdef int code
    for i in range(items.count):
        code = lock_state_at(message, items, i, &lock)
        if code == CODE_OK:
            code = claims_check(message, &lock)
        if code != CODE_OK:
            return code
    return CODE_OK


cdef int events_check(message_t* message, const list_t* items) noexcept nogil:
    cdef event_t event
    cdef uint32_t i
    cdef int code
    for i in range(items.count):
        code = event_at(message, items, i, &event)
        if code != CODE_OK:
            return code
    return CODE_OK


cdef int lock_state_at(message_t* message, const list_t* items, uint32_t i, lock_state_t* out) noexcept nogil:
    cdef struct_t view
    element_of(items, i, &view)
    return lock_state_decode(message, &view, out)


cdef int lock_state_decode(message_t* message, const struct_t* view, lock_state_t* out) noexcept nogil:
    cdef uint8_t padded[LOCK_STATE_DATA_WORDS * WORD_BYTES]
    cdef const uint8_t* fields = fields_of(view, padded, LOCK_STATE_DATA_WORDS * WORD_BYTES)
    cdef int code
    out.mode = load16(fields + LOCK_STATE_MODE_AT)
    out.limit = load32(fields + LOCK_STATE_LIMIT_AT)
    out.waiter_count = load32(fields + LOCK_STATE_WAITER_COUNT_AT)
    out.delay_ms = load32(fields + LOCK_STATE_DELAY_MS_AT)
    out.value_revision = load64(fields + LOCK_STATE_VALUE_REVISION_AT)
    out.revision = load64(fields + LOCK_STATE_REVISION_AT)
    out.holder_items = NULL
    out.waiter_items = NULL
    code = read_bytes(message, pointer_at(view, LOCK_STATE_KEY_POINTER), &out.key)
    if code == CODE_OK:
        code = read_bytes(message, pointer_at(view, LOCK_STATE_VALUE_POINTER), &out.value)
    if code == CODE_OK:
        code = read_list(message, pointer_at(view, LOCK_STATE_HOLDERS_POINTER), &out.holders)
    if code == CODE_OK:
        code = read_list(message, pointer_at(view, LOCK_STATE_WAITERS_POINTER), &out.waiters)
    return code


cdef int claim_state_at(message_t* message, const list_t* items, uint32_t i, claim_state_t* out) noexcept nogil:
    cdef uint8_t padded[CLAIM_STATE_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    element_of(items, i, &view)
    fields = fields_of(&view, padded, CLAIM_STATE_DATA_WORDS * WORD_BYTES)
    out.mode = load16(fields + CLAIM_STATE_MODE_AT)
    out.count = load32(fields + CLAIM_STATE_COUNT_AT)
    out.revision = load64(fields + CLAIM_STATE_REVISION_AT)
    out.ttl_ms = <int64_t>load64(fields + CLAIM_STATE_TTL_MS_AT)
    out.remaining_ms = <int64_t>load64(fields + CLAIM_STATE_REMAINING_MS_AT)
    return read_bytes(message, pointer_at(&view, CLAIM_STATE_OWNER_POINTER), &out.owner)


cdef int event_at(message_t* message, const list_t* items, uint32_t i, event_t* out) noexcept nogil:
    cdef uint8_t padded[EVENT_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    cdef int code
    element_of(items, i, &view)
    fields = fields_of(&view, padded, EVENT_DATA_WORDS * WORD_BYTES)
    out.revision = load64(fields + EVENT_REVISION_AT)
    out.kind = load16(fields + EVENT_KIND_AT)
    out.mode = load16(fields + EVENT_MODE_AT)
    out.token = load64(fields + EVENT_TOKEN_AT)
    code = read_bytes(message, pointer_at(&view, EVENT_KEY_POINTER), &out.key)
    if code == CODE_OK:
        code = read_bytes(message, pointer_at(&view, EVENT_OWNER_POINTER), &out.owner)
    if code == CODE_OK:
        code = read_bytes(message, pointer_at(&view, EVENT_VALUE_POINTER), &out.value)
    return code


cdef void kept_alive_at(const list_t* items, uint32_t i, kept_alive_t* out) noexcept nogil:
    cdef uint8_t padded[KEPT_ALIVE_DATA_WORDS * WORD_BYTES]
    cdef struct_t view
    cdef const uint8_t* fields
    element_of(items, i, &view)
    fields = fields_of(&view, padded, KEPT_ALIVE_DATA_WORDS * WORD_BYTES)
    out.group = load32(fields + KEPT_ALIVE_GROUP_AT)
    out.code = load16(fields + KEPT_ALIVE_CODE_AT)
    out.lost_revision = load64(fields + KEPT_ALIVE_LOST_REVISION_AT)
    out.lease_high = load64(fields + KEPT_ALIVE_LEASE_HIGH_AT)
    out.lease_low = load64(fields + KEPT_ALIVE_LEASE_LOW_AT)


cdef int reply_encode_outcome(buffer_t* out, uint64_t id, uint32_t group, uint64_t leader, uint32_t retry_ms,
                              const outcome_t* outcome) noexcept nogil:
    cdef uint8_t* root
    if buffer_reserve(out, REPLY_BYTES) != 0:
        return -1
    root = put_root(out.data + out.size, 1 + REPLY_WORDS, REPLY_DATA_WORDS, REPLY_POINTERS)
    out.size += REPLY_BYTES
    store64(root + REPLY_ID_AT, id)
    store16(root + REPLY_CODE_AT, outcome.code)
    store32(root + REPLY_GROUP_AT, group)
    store32(root + REPLY_DETAIL_AT, outcome.detail)
    store64(root + REPLY_LEADER_AT, leader)
    store64(root + REPLY_REVISION_AT, outcome.revision)
    if outcome.code == CODE_OK:
        if outcome.kind == COMMAND_ACQUIRE or outcome.kind == COMMAND_ACQUIRE_ALL:
            store16(root + REPLY_WHICH_AT, REPLY_GRANT)
            store64(root + REPLY_GRANT_TOKEN_AT, outcome.token)
            store32(root + REPLY_GRANT_COUNT_AT, outcome.count)
        elif outcome.kind == COMMAND_OPEN_SESSION:
            store16(root + REPLY_WHICH_AT, REPLY_SESSION)
            store64(root + REPLY_SESSION_AT, outcome.revision)
    elif outcome.code == CODE_NOT_ACQUIRED or outcome.code == CODE_LOCK_DELAYED:
        store16(root + REPLY_WHICH_AT, REPLY_CONFLICT)
        store64(root + REPLY_REVISION_AT, outcome.token)
        store32(root + REPLY_CONFLICT_RETRY_MS_AT, retry_ms)
        store32(root + REPLY_CONFLICT_WAITERS_AT, outcome.count)
    return 0


cdef size_t claims_words(const claim_state_t* items, uint32_t count) noexcept nogil:
    cdef size_t words = 1
    cdef uint32_t i
    if items == NULL:
        return 0
    for i in range(count):
        words += CLAIM_STATE_WORDS + bytes_words(&items[i].owner)
    return words


cdef size_t lock_state_words(const lock_state_t* lock) noexcept nogil:
    return (LOCK_STATE_WORDS + bytes_words(&lock.key) + bytes_words(&lock.value)
            + claims_words(lock.holder_items, lock.holder_item_count)
            + claims_words(lock.waiter_items, lock.waiter_item_count))


cdef size_t reply_words(const reply_t* reply, const void* items, uint32_t count) noexcept nogil:
    cdef size_t words = REPLY_WORDS + text_words(&reply.text) + bytes_words(&reply.cursor)
    cdef const lock_state_t* locks = <const lock_state_t*>items
    cdef const event_t* events = <const event_t*>items
    cdef uint32_t i
    if reply.which == REPLY_HELLO:
        return words + hello_words(&reply.hello)
    if items == NULL:
        return words
    if reply.which == REPLY_LOCK:
        return words + lock_state_words(locks)
    words += 1
    if reply.which == REPLY_PAGE:
        for i in range(count):
            words += lock_state_words(&locks[i])
    elif reply.which == REPLY_EVENTS:
        for i in range(count):
            words += (EVENT_WORDS + bytes_words(&events[i].key) + bytes_words(&events[i].owner)
                      + bytes_words(&events[i].value))
    elif reply.which == REPLY_KEPT_ALIVE:
        words += <size_t>count * KEPT_ALIVE_WORDS
    return words


cdef int reply_encode(buffer_t* out, const reply_t* reply, const void* items, uint32_t count) noexcept nogil:
    cdef size_t words = 1 + reply_words(reply, items, count)
    cdef size_t reserved = SINGLE_HEADER_BYTES + words * WORD_BYTES
    cdef uint8_t* frame
    cdef uint8_t* root
    cdef uint8_t* cursor
    if buffer_reserve(out, reserved) != 0:
        return -1
    frame = out.data + out.size
    root = put_root(frame, words, REPLY_DATA_WORDS, REPLY_POINTERS)
    store64(root + REPLY_ID_AT, reply.id)
    store16(root + REPLY_CODE_AT, reply.code)
    store16(root + REPLY_WHICH_AT, reply.which)
    store32(root + REPLY_GROUP_AT, reply.group)
    store32(root + REPLY_DETAIL_AT, reply.detail)
    store64(root + REPLY_LEADER_AT, reply.leader)
    store64(root + REPLY_REVISION_AT, reply.revision)
    cursor = put_text(root + (REPLY_DATA_WORDS + REPLY_MESSAGE_POINTER) * WORD_BYTES, root + REPLY_WORDS * WORD_BYTES,
                      &reply.text)
    cursor = reply_write_content(root, cursor, reply, items, count)
    # What `which` does not use was counted but not written.
    words = (cursor - frame - SINGLE_HEADER_BYTES) // WORD_BYTES
    store32(frame + 4, <uint32_t>words)
    out.size += cursor - frame
    return 0


cdef uint8_t* reply_write_content(uint8_t* root, uint8_t* cursor, const reply_t* reply, const void* items,
                                  uint32_t count) noexcept nogil:
    cdef uint8_t* pointers = root + REPLY_DATA_WORDS * WORD_BYTES
    cdef int which = reply.which
    if which == REPLY_GRANT:
        store64(root + REPLY_GRANT_TOKEN_AT, reply.token)
        store32(root + REPLY_GRANT_COUNT_AT, reply.count)
    elif which == REPLY_CONFLICT:
        store32(root + REPLY_CONFLICT_RETRY_MS_AT, reply.retry_ms)
        store32(root + REPLY_CONFLICT_WAITERS_AT, reply.waiters)
    elif which == REPLY_SESSION:
        store64(root + REPLY_SESSION_AT, reply.session)
    elif which == REPLY_LOCK and items != NULL:
        put_struct_pointer(pointers + REPLY_LOCK_POINTER * WORD_BYTES, cursor, LOCK_STATE_DATA_WORDS,
                           LOCK_STATE_POINTERS)
        memset(cursor, 0, LOCK_STATE_WORDS * WORD_BYTES)
        return lock_state_write(cursor, cursor + LOCK_STATE_WORDS * WORD_BYTES, <const lock_state_t*>items)
    elif which == REPLY_PAGE:
        cursor = put_bytes(pointers + REPLY_PAGE_CURSOR_POINTER * WORD_BYTES, cursor, &reply.cursor)
        return locks_write(pointers + REPLY_PAGE_LOCKS_POINTER * WORD_BYTES, cursor, <const lock_state_t*>items, count)
    elif which == REPLY_EVENTS:
        cursor = put_bytes(pointers + REPLY_EVENTS_POSITION_POINTER * WORD_BYTES, cursor, &reply.cursor)
        return events_write(pointers + REPLY_EVENTS_EVENTS_POINTER * WORD_BYTES, cursor, <const event_t*>items, count)
    elif which == REPLY_KEPT_ALIVE:
        return kept_alives_write(pointers + REPLY_KEPT_ALIVE_POINTER * WORD_BYTES, cursor,
                                 <const kept_alive_t*>items, count)
    elif which == REPLY_HELLO:
        return hello_write(pointers + REPLY_HELLO_POINTER * WORD_BYTES, cursor, &reply.hello)
    return cursor


cdef uint8_t* lock_state_write(uint8_t* target, uint8_t* cursor, const lock_state_t* lock) noexcept nogil:
    cdef uint8_t* pointers = target + LOCK_STATE_DATA_WORDS * WORD_BYTES
    store16(target + LOCK_STATE_MODE_AT, lock.mode)
    store32(target + LOCK_STATE_LIMIT_AT, lock.limit)
    store32(target + LOCK_STATE_WAITER_COUNT_AT, lock.waiter_count)
    store32(target + LOCK_STATE_DELAY_MS_AT, lock.delay_ms)
    store64(target + LOCK_STATE_VALUE_REVISION_AT, lock.value_revision)
    store64(target + LOCK_STATE_REVISION_AT, lock.revision)
    cursor = put_bytes(pointers + LOCK_STATE_KEY_POINTER * WORD_BYTES, cursor, &lock.key)
    cursor = put_bytes(pointers + LOCK_STATE_VALUE_POINTER * WORD_BYTES, cursor, &lock.value)
    cursor = claims_write(pointers + LOCK_STATE_HOLDERS_POINTER * WORD_BYTES, cursor, lock.holder_items,
                          lock.holder_item_count)
    return claims_write(pointers + LOCK_STATE_WAITERS_POINTER * WORD_BYTES, cursor, lock.waiter_items,
                        lock.waiter_item_count)


cdef uint8_t* claims_write(uint8_t* pointer, uint8_t* cursor, const claim_state_t* items,
                           uint32_t count) noexcept nogil:
    cdef uint8_t* at
    cdef uint32_t i
    if items == NULL:
        return cursor
    at = put_list(pointer, cursor, count, CLAIM_STATE_DATA_WORDS, CLAIM_STATE_POINTERS)
    cursor = at + <size_t>count * CLAIM_STATE_WORDS * WORD_BYTES
    for i in range(count):
        store16(at + CLAIM_STATE_MODE_AT, items[i].mode)
        store32(at + CLAIM_STATE_COUNT_AT, items[i].count)
        store64(at + CLAIM_STATE_REVISION_AT, items[i].revision)
        store64(at + CLAIM_STATE_TTL_MS_AT, <uint64_t>items[i].ttl_ms)
        store64(at + CLAIM_STATE_REMAINING_MS_AT, <uint64_t>items[i].remaining_ms)
        cursor = put_bytes(at + (CLAIM_STATE_DATA_WORDS + CLAIM_STATE_OWNER_POINTER) * WORD_BYTES, cursor,
                           &items[i].owner)
        at += CLAIM_STATE_WORDS * WORD_BYTES
    return cursor


cdef uint8_t* locks_write(uint8_t* pointer, uint8_t* cursor, const lock_state_t* locks, uint32_t count) noexcept nogil:
    cdef uint8_t* at
    cdef uint32_t i
    if locks == NULL:
        return cursor
    at = put_list(pointer, cursor, count, LOCK_STATE_DATA_WORDS, LOCK_STATE_POINTERS)
    cursor = at + <size_t>count * LOCK_STATE_WORDS * WORD_BYTES
    for i in range(count):
        cursor = lock_state_write(at, cursor, &locks[i])
        at += LOCK_STATE_WORDS * WORD_BYTES
    return cursor


cdef uint8_t* events_write(uint8_t* pointer, uint8_t* cursor, const event_t* events, uint32_t count) noexcept nogil:
    cdef uint8_t* at
    cdef uint8_t* pointers
    cdef uint32_t i
    if events == NULL:
        return cursor
    at = put_list(pointer, cursor, count, EVENT_DATA_WORDS, EVENT_POINTERS)
    cursor = at + <size_t>count * EVENT_WORDS * WORD_BYTES
    for i in range(count):
        pointers = at + EVENT_DATA_WORDS * WORD_BYTES
        store64(at + EVENT_REVISION_AT, events[i].revision)
        store16(at + EVENT_KIND_AT, events[i].kind)
        store16(at + EVENT_MODE_AT, events[i].mode)
        store64(at + EVENT_TOKEN_AT, events[i].token)
        cursor = put_bytes(pointers + EVENT_KEY_POINTER * WORD_BYTES, cursor, &events[i].key)
        cursor = put_bytes(pointers + EVENT_OWNER_POINTER * WORD_BYTES, cursor, &events[i].owner)
        cursor = put_bytes(pointers + EVENT_VALUE_POINTER * WORD_BYTES, cursor, &events[i].value)
        at += EVENT_WORDS * WORD_BYTES
    return cursor


cdef uint8_t* kept_alives_write(uint8_t* pointer, uint8_t* cursor, const kept_alive_t* items,
                                uint32_t count) noexcept nogil:
    cdef uint8_t* at
    cdef uint32_t i
    if items == NULL:
        return cursor
    at = put_list(pointer, cursor, count, KEPT_ALIVE_DATA_WORDS, KEPT_ALIVE_POINTERS)
    for i in range(count):
        store32(at + KEPT_ALIVE_GROUP_AT, items[i].group)
        store16(at + KEPT_ALIVE_CODE_AT, items[i].code)
        store64(at + KEPT_ALIVE_LOST_REVISION_AT, items[i].lost_revision)
        store64(at + KEPT_ALIVE_LEASE_HIGH_AT, items[i].lease_high)
        store64(at + KEPT_ALIVE_LEASE_LOW_AT, items[i].lease_low)
        at += KEPT_ALIVE_WORDS * WORD_BYTES
    return at
