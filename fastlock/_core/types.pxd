"""The plain C structs the compiled core passes around: byte slices, commands, outcomes."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef struct slice_t:
    const uint8_t* data
    uint32_t size


# One command as decoded in place: slices point into the frame it came from. `kind` is the union
# discriminant of log.capnp's Command; which fields a kind uses is said there, fields a kind does
# not have are zero.
cdef struct command_t:
    uint16_t kind
    uint16_t mode              # LockMode, raw: may be unknown
    uint16_t lease_use         # LeaseUse, raw: may be unknown
    uint8_t wait
    uint8_t complete
    uint16_t slot_first
    uint16_t slot_last
    uint32_t limit
    uint32_t count
    uint32_t lock_delay_ms
    uint32_t to_group
    uint64_t session
    uint64_t sequence
    uint64_t acknowledged_below
    uint64_t lease_high
    uint64_t lease_low
    uint64_t request
    int64_t ttl_ms
    uint64_t token
    uint64_t generation        # expire, noteRemaining, endDelay; expireSession: uses
    uint64_t amount_ms         # openSession: lifetimeMs; noteRemaining: remainingMs
    uint64_t target            # expireSession: session; cancelWait: sequence; importSlots: tokenFloor
    slice_t key
    slice_t owner              # also forceRelease: actor
    slice_t value              # also forceRelease: reason
    # A list stays in the frame; codec.pxd has the readers for its elements.
    const uint8_t* list_data   # first word of the list's content; keys, settings or rows
    uint32_t list_count


# What apply says about a command (position >= 0) or about an earlier waiter (a wake).
cdef struct outcome_t:
    int32_t position           # of the command in its batch; -1 for a wake
    uint16_t code
    uint16_t kind
    uint32_t count
    uint32_t detail
    uint64_t waiter            # wakes: the revision the waiter was enqueued at
    uint64_t token
    uint64_t revision


# One message between members, as decoded in place. Which fields a kind uses is said in peer.capnp.
cdef struct raft_message_t:
    uint16_t kind
    uint8_t reject
    uint8_t force
    uint8_t last
    uint32_t group
    uint64_t source
    uint64_t target
    uint64_t term
    uint64_t index
    uint64_t log_term
    uint64_t commit
    uint64_t context
    uint64_t hint_index
    uint64_t hint_term
    slice_t chunk
    const uint8_t* entries_data   # list of Data pointers; codec.pxd has the reader for its elements
    uint32_t entries_count
