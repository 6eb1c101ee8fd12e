"""Checkpoint rows as plain C structs: encoded to and decoded from single-segment frames.

Lists are arrays of the caller's when encoding. When decoding they stay in the frame: `claims_of` and the like say how
many elements there are, and a `..._decode` reads one. As everywhere, a slice or list with `data` NULL is absent.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.commands cimport membership_t, setting_t
from fastlock._core.types cimport slice_t
from fastlock._core.wire cimport list_t, message_t


cdef struct claim_row_t:
    uint64_t lease_high
    uint64_t lease_low
    uint64_t request
    uint64_t revision          # holder: its token; waiter: the revision it was enqueued at
    uint32_t count
    uint32_t lock_delay_ms
    uint16_t mode              # LockMode, raw
    uint16_t position
    uint16_t key_total


cdef struct lock_row_t:
    uint16_t version
    uint16_t mode              # RowMode, raw
    uint16_t slot
    uint32_t limit
    uint32_t delay_ms
    uint64_t delay_generation
    uint64_t value_revision
    uint64_t value_token
    slice_t key
    slice_t value
    list_t holders             # decoded: read elements with claim_row_at
    list_t waiters


cdef struct lease_row_t:
    uint16_t version
    uint8_t bound
    uint64_t lease_high
    uint64_t lease_low
    int64_t ttl_ms
    uint64_t generation
    uint64_t remaining_ms
    uint64_t lost_revision
    slice_t owner


cdef struct answer_row_t:
    uint64_t sequence
    uint16_t code
    uint16_t kind
    uint32_t count
    uint32_t detail
    uint64_t token
    uint64_t revision


cdef struct session_row_t:
    uint16_t version
    uint64_t session
    uint64_t watermark
    uint64_t uses
    uint64_t lifetime_ms
    list_t answers             # decoded: read elements with answer_row_at


cdef struct moved_slots_t:
    uint16_t first
    uint16_t last
    uint32_t to_group


cdef struct group_row_t:
    message_t message          # decoded: for member_decode
    uint16_t version
    uint16_t membership_version
    uint8_t membership_present
    uint32_t group
    uint64_t index
    uint64_t term
    uint64_t revision
    uint64_t history_floor
    slice_t slots
    list_t settings            # decoded: read elements with setting_row_at
    list_t moved_to            # moved_slots_at
    list_t members             # member_decode


# Encoders append one frame to `out`: 0, or -1 without memory. The row's own `version` is ignored: FORMAT_VERSION is
# written. Its list_t members are ignored too: the arrays beside them count, and a NULL array leaves the list out.
cdef int lock_row_encode(buffer_t* out, const lock_row_t* row, const claim_row_t* holders, uint32_t holder_count,
                         const claim_row_t* waiters, uint32_t waiter_count) noexcept nogil
cdef int lease_row_encode(buffer_t* out, const lease_row_t* row) noexcept nogil
cdef int session_row_encode(buffer_t* out, const session_row_t* row, const answer_row_t* answers,
                            uint32_t answer_count) noexcept nogil
cdef int group_row_encode(buffer_t* out, const group_row_t* row, const setting_t* settings, uint32_t setting_count,
                          const moved_slots_t* moved_to, uint32_t moved_count,
                          const membership_t* membership) noexcept nogil

# The exact size `lock_row_encode` will write.
cdef size_t lock_row_bytes(const lock_row_t* row, const claim_row_t* holders, uint32_t holder_count,
                           const claim_row_t* waiters, uint32_t waiter_count) noexcept nogil

# Decoders: CODE_OK, CODE_MALFORMED_FRAME or CODE_UNSUPPORTED_VERSION. Rows have one segment and no far pointers.
cdef int lock_row_decode(const uint8_t* frame, size_t size, lock_row_t* out) noexcept nogil
cdef int lease_row_decode(const uint8_t* frame, size_t size, lease_row_t* out) noexcept nogil
cdef int session_row_decode(const uint8_t* frame, size_t size, session_row_t* out) noexcept nogil
cdef int group_row_decode(const uint8_t* frame, size_t size, group_row_t* out) noexcept nogil

# Element i < count of a decoded list.
cdef void claim_row_at(const list_t* claims, uint32_t i, claim_row_t* out) noexcept nogil
cdef void answer_row_at(const list_t* answers, uint32_t i, answer_row_t* out) noexcept nogil
cdef void setting_row_at(const list_t* settings, uint32_t i, setting_t* out) noexcept nogil
cdef void moved_slots_at(const list_t* moved_to, uint32_t i, moved_slots_t* out) noexcept nogil
