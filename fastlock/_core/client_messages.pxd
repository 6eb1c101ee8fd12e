"""What clients and nodes say to each other: Request, Reply and Hello, decoded in place and encoded to frames."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.types cimport command_t, outcome_t, slice_t
from fastlock._core.wire cimport list_t, message_t, struct_t


cdef struct hello_t:
    uint16_t version
    uint16_t role                  # Role, raw
    uint16_t code
    uint64_t cluster_high
    uint64_t cluster_low
    uint64_t node
    uint64_t incarnation
    slice_t software
    slice_t credentials
    slice_t message


# What this side knows, to check the other side's Hello against. Zero stands for "not known yet".
cdef struct identity_t:
    uint64_t cluster_high
    uint64_t cluster_low
    uint64_t node                  # our own: nobody else may claim it
    uint64_t peer_node             # the member we expect at the other end
    uint64_t peer_incarnation      # the lowest we accept of it


cdef struct keep_alive_t:
    uint32_t group
    uint64_t lease_high
    uint64_t lease_low


# `which` says which of the members below the first four are set; the others are left as they were.
cdef struct request_t:
    uint64_t id
    uint32_t group
    uint32_t timeout_ms
    uint16_t which                 # REQUEST_...
    uint8_t id_known               # a refused frame can be answered by id
    uint8_t stale                  # getLock, list
    uint8_t prefix                 # watch
    uint32_t limit                 # list
    uint64_t watch                 # unwatch
    slice_t key                    # getLock, watch; list: its prefix
    slice_t cursor                 # list; watch: its position
    list_t keep_alives             # keepAlive: read elements with keep_alive_at
    hello_t hello
    command_t command


cdef struct claim_state_t:
    uint16_t mode
    uint32_t count
    uint64_t revision
    int64_t ttl_ms
    int64_t remaining_ms
    slice_t owner


cdef struct lock_state_t:
    uint16_t mode
    uint32_t limit
    uint32_t waiter_count
    uint32_t delay_ms
    uint64_t value_revision
    uint64_t revision
    slice_t key
    slice_t value
    list_t holders                 # decoded: read elements with claim_state_at
    list_t waiters
    const claim_state_t* holder_items   # to encode; NULL leaves the list out
    uint32_t holder_item_count
    const claim_state_t* waiter_items
    uint32_t waiter_item_count


cdef struct event_t:
    uint64_t revision
    uint16_t kind                  # EventKind
    uint16_t mode
    uint64_t token
    slice_t key
    slice_t owner
    slice_t value


cdef struct kept_alive_t:
    uint32_t group
    uint16_t code
    uint64_t lost_revision
    uint64_t lease_high
    uint64_t lease_low


cdef struct reply_t:
    message_t message
    uint64_t id
    uint16_t code
    uint16_t which                 # REPLY_...
    uint32_t group
    uint32_t detail
    uint64_t leader
    uint64_t revision
    slice_t text                   # the message for people
    uint64_t token                 # grant
    uint32_t count                 # grant
    uint32_t retry_ms              # conflict
    uint32_t waiters               # conflict
    uint64_t session               # session
    slice_t cursor                 # page; events: the position
    list_t items                   # page: lock_state_at; events: event_at; keptAlive: kept_alive_at
    struct_t lock                  # lock: lock_state_decode
    hello_t hello


# A whole frame; several segments are first copied into `scratch`, which then must outlive the slices. CODE_OK,
# CODE_MALFORMED_FRAME, CODE_UNKNOWN_COMMAND (also: a union member of a later release).
cdef int request_decode(const uint8_t* frame, size_t size, buffer_t* scratch, request_t* out) noexcept nogil
cdef int reply_decode(const uint8_t* frame, size_t size, buffer_t* scratch, reply_t* out) noexcept nogil

# Element i < count of a decoded list. Those that return a code cannot fail after `reply_decode`, within one pass.
cdef void keep_alive_at(const list_t* items, uint32_t i, keep_alive_t* out) noexcept nogil
cdef void kept_alive_at(const list_t* items, uint32_t i, kept_alive_t* out) noexcept nogil
cdef int lock_state_decode(message_t* message, const struct_t* view, lock_state_t* out) noexcept nogil
cdef int lock_state_at(message_t* message, const list_t* items, uint32_t i, lock_state_t* out) noexcept nogil
cdef int claim_state_at(message_t* message, const list_t* items, uint32_t i, claim_state_t* out) noexcept nogil
cdef int event_at(message_t* message, const list_t* items, uint32_t i, event_t* out) noexcept nogil

# Encoders append one frame to `out`: 0, or -1 without memory.
# `keep_alives` only counts for keepAlive; NULL leaves the list out.
cdef int request_encode(buffer_t* out, const request_t* request, const keep_alive_t* keep_alives,
                        uint32_t count) noexcept nogil
# `items` are lock_state_t (lock: one; page), event_t or kept_alive_t, as `which` says; NULL leaves the list out.
cdef int reply_encode(buffer_t* out, const reply_t* reply, const void* items, uint32_t count) noexcept nogil
# The fast path: what apply said, as the answer to request `id`.
cdef int reply_encode_outcome(buffer_t* out, uint64_t id, uint32_t group, uint64_t leader, uint32_t retry_ms,
                              const outcome_t* outcome) noexcept nogil

cdef int hello_decode(message_t* message, const struct_t* view, hello_t* out) noexcept nogil
cdef size_t hello_words(const hello_t* hello) noexcept nogil
cdef uint8_t* hello_write(uint8_t* pointer, uint8_t* cursor, const hello_t* hello) noexcept nogil
# CODE_OK, CODE_UNSUPPORTED_VERSION, CODE_WRONG_CLUSTER, CODE_WRONG_NODE or CODE_STALE_INCARNATION.
cdef int hello_check(const hello_t* hello, const identity_t* identity) noexcept nogil
