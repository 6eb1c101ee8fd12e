"""The lock table's memory: rows, claims, leases, sessions, and the lists that tie them together.

Everything replicated lives in slabs and is named by 32-bit handles; 0 is no handle. docs/LOCKS.md says
what the fields mean, names here are its names.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.history cimport history_t
from fastlock._core.index cimport index_t
from fastlock._core.layout cimport SETTING_ID_TOTAL
from fastlock._core.slab cimport slab_t
from fastlock._core.slots cimport SLOTS_TOTAL
from fastlock._core.timers cimport wheel_t
from fastlock._core.types cimport outcome_t, slice_t


cdef enum:
    LINE_BYTES = 64
    KEY_INLINE_BYTES = 34
    # `marks` of a row, lease or session: which dirty list it is in (list n: bit n), whether the last
    # frozen checkpoint has it, and whether this command still has to see if it may go.
    MARK_LIST_0 = 1
    MARK_LIST_1 = 2
    MARK_STORED = 4
    MARK_SWEEP = 8
    MARK_NOTING = 16           # of a lease: due() asked for a note, and it was not changed since
    MARK_GONE = 32             # given back to the slab; which list its handle is in still holds
    # Dirty lists, by what they hold.
    DIRTY_ROWS = 0
    DIRTY_LEASES = 1
    DIRTY_SESSIONS = 2
    DIRTY_KINDS = 3
    # Claim: lockDelayMs, mode and whether it waits share a word.
    CLAIM_DELAY_MASK = (1 << 22) - 1
    CLAIM_MODE_SHIFT = 24
    CLAIM_WAITS = 1 << 30
    OWNER_INLINE_BYTES = 20
    # What a timer of the wheel is for.
    TIMER_LEASE = 1
    TIMER_SESSION = 2
    TIMER_DELAY = 3


# A lock: one cache line with a key of up to KEY_INLINE_BYTES; of a longer key `key` holds the address.
cdef struct row_t:
    uint32_t holder_first            # holders by token
    uint32_t holder_last
    uint32_t waiter_first            # waiters in queue order
    uint32_t waiter_last
    uint32_t waiter_count
    uint32_t extra                   # what few rows have, if this one does
    uint16_t slot
    uint16_t key_size                # 0: given back to the slab
    uint8_t mode
    uint8_t marks
    uint8_t[KEY_INLINE_BYTES] key


# A holder or a waiter, in two lists at once: its row's and its lease's. One cache line.
cdef struct claim_t:
    uint64_t request
    uint64_t revision                # holder: token; waiter: enqueued at
    uint32_t row
    uint32_t lease
    uint32_t next                    # in the row's holders or waiters
    uint32_t previous
    uint32_t lease_next
    uint32_t lease_previous
    uint32_t linked                  # waiting acquireAll: a ring of its claims, by position
    uint32_t count
    uint32_t packed                  # lockDelayMs, mode, CLAIM_WAITS
    uint16_t position
    uint16_t key_total
    uint64_t padding


# 88 bytes with an owner of up to OWNER_INLINE_BYTES; of a longer one `owner` holds the address.
cdef struct lease_t:
    uint64_t high
    uint64_t low
    int64_t ttl_ms
    uint64_t generation              # 0: ended, kept for its claims in exported slots
    uint64_t remaining_ms
    uint64_t lost_revision
    uint8_t[OWNER_INLINE_BYTES] owner
    uint32_t claim_first             # in no order
    uint32_t claim_count
    uint32_t timer                   # 0: never expires, or ended
    uint32_t ahead_s                 # it runs out so much later than its timer fires
    uint16_t owner_size
    uint8_t bound
    uint8_t marks


# What few rows have: a semaphore, a value, a delay.
cdef struct extra_t:
    uint8_t* value
    uint64_t value_revision          # 0: no value
    uint64_t value_token
    uint64_t delay_generation        # 0: not in delay
    uint32_t value_size
    uint32_t delay_ms
    uint32_t timer                   # of the delay
    uint32_t limit                   # of a semaphore
    uint32_t taken                   # the sum of its holders' counts


cdef struct answer_t:
    uint64_t sequence
    uint64_t token
    uint64_t revision
    uint32_t count
    uint32_t detail
    uint16_t code
    uint16_t kind
    uint8_t is_recorded


# The answer of sequence s is in answers[s & (capacity - 1)]; those below the watermark are leftovers.
cdef struct session_t:
    uint64_t id
    uint64_t watermark
    uint64_t uses
    uint64_t lifetime_ms
    uint64_t last_use_ms
    answer_t* answers
    uint32_t capacity                # 0 or a power of two
    uint32_t timer
    uint8_t marks


cdef struct handles_t:
    uint32_t* items
    uint32_t count
    uint32_t capacity


# A claim or row on its way through a sort: by revision, slot, position.
cdef struct order_t:
    uint64_t revision
    uint32_t handle
    uint16_t slot
    uint16_t position


cdef struct orders_t:
    order_t* items
    uint32_t count
    uint32_t capacity


# Dirty lists and deletes of the checkpoint to come (list `now`) and of the frozen one (the other).
cdef struct dirty_t:
    handles_t[DIRTY_KINDS] listed0
    handles_t[DIRTY_KINDS] listed1
    uint64_t to_write                # live items in the lists of the checkpoint to come
    buffer_t[2] deletes              # row keys, each behind its size
    uint32_t[2] delete_count
    buffer_t images                  # rows of the frozen checkpoint that were touched or dropped since
    uint32_t image_count
    buffer_t group_row
    uint64_t deletes_read
    uint64_t images_read
    uint8_t now
    uint8_t is_frozen
    uint8_t is_loading               # what is added comes from a checkpoint
    uint8_t group_taken


cdef struct table_t:
    # Replicated.
    uint32_t group
    uint64_t revision
    uint64_t applied_index
    uint64_t applied_term
    uint64_t[SETTING_ID_TOTAL] settings
    uint8_t* slot_states
    uint32_t* slot_targets           # the group an exported slot went to
    slab_t rows
    slab_t claims
    slab_t leases
    slab_t sessions
    slab_t extras
    # Ways to find them.
    index_t row_index
    index_t lease_index
    index_t session_index
    uint16_t* row_slots              # by a row's handle, so that slot commands find their rows in one fast pass
    uint32_t row_slots_capacity
    uint32_t waiter_count
    # This node's own.
    history_t history
    wheel_t wheel
    dirty_t dirty
    uint64_t now_ms                  # of the entry being applied, on the wheel's clock
    uint64_t skipped_ms              # the wheel's clock lags the caller's by so much
    uint64_t lead_ms                 # leading since, on the wheel's clock
    uint8_t is_leading
    # Work of one command.
    outcome_t* outcomes
    uint32_t outcome_count
    uint32_t outcome_capacity
    handles_t serving                # rows whose queues are to be served, first in first out
    handles_t linked                 # claims of one acquireAll by position
    handles_t found                  # rows of an acquireAll's keys
    handles_t freed                  # rows a lease's waiters left
    handles_t swept_rows             # rows that may have become empty
    handles_t swept_leases           # bound leases that may have lost their last claim
    orders_t waiting
    orders_t holding
    buffer_t scratch                 # a row being encoded
    uint64_t[1024] hashes            # of an acquireAll's keys


cdef class LockTable:
    cdef table_t table
    cdef outcome_t* outcomes         # of the last apply; valid until the next
    cdef Py_ssize_t outcome_count
    cdef uint64_t history_bytes_max
    cdef uint64_t history_events_max
    cdef list members                # as the last membership entry said: (node, incarnation, role, address)
    cdef bytes load_key_last
    cdef dict load_links             # (slot, revision) of a waiting acquireAll: one of its claims
    cdef uint32_t load_ended         # ended leases of which no claim was seen yet

    cdef int apply_frame(self, const uint8_t* frame, size_t size, uint64_t now_ms) except -1
