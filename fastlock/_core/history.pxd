"""The bounded event history of a group: a ring of variable-length records, and where in it a revision is.

Bounded by bytes and by number. An append evicts the oldest records; `floor` is the revision up to which
events are gone, so a reader that stands below it is told that it was outrun. Every
HISTORY_SAMPLE_RECORDS-th record is sampled, so a start position is found by binary search and a short walk.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from fastlock._core.prefetch cimport prefetch_to_write
from fastlock._core.types cimport slice_t


cdef enum:
    HISTORY_BYTES_MIN = 1 << 12
    HISTORY_SAMPLE_RECORDS = 64
    HISTORY_RECORD_ALIGNMENT = 32    # sizeof(history_record_t)
    HISTORY_PREFETCH_BYTES = 512     # where a few appends from now will evict and write


cdef struct event_t:
    uint64_t revision
    uint64_t token
    uint16_t kind
    uint16_t mode
    slice_t key                # at most 65535 bytes, like the owner
    slice_t owner
    slice_t value


# Followed by key, owner and value, padded to HISTORY_RECORD_ALIGNMENT. A record never wraps: if it does
# not fit between the last one and the end of the ring, a filler (revision 0) takes that room, which is
# at least a header because everything is aligned to one.
cdef struct history_record_t:
    uint64_t revision
    uint64_t token
    uint32_t record_bytes
    uint32_t value_bytes
    uint16_t key_bytes
    uint16_t owner_bytes
    uint16_t kind
    uint16_t mode


cdef struct history_sample_t:
    uint64_t revision
    uint64_t offset


# Offsets count all bytes ever appended; a place in the ring is offset & mask.
cdef struct history_t:
    uint8_t* ring
    uint64_t mask              # bytes of the ring - 1
    uint64_t begin             # offset of the oldest record
    uint64_t end               # offset behind the latest
    uint64_t count
    uint64_t count_max
    uint64_t floor             # events up to this revision are gone
    uint64_t last_revision     # of the latest event ever appended, or the floor
    history_sample_t* samples  # ring: sample n is at n & samples_mask
    uint64_t samples_mask
    uint64_t samples_begin
    uint64_t samples_end
    uint32_t until_sample      # records to append before the next sample


cdef inline uint64_t history_power_of_two(uint64_t number) noexcept nogil:
    """The smallest power of two that is not below the number."""
    cdef uint64_t power = 1
    while power < number:
        power <<= 1
    return power


cdef inline void history_reset(history_t* history, uint64_t floor) noexcept nogil:
    """Forgets all events: those up to `floor` are gone, later ones are yet to come."""
    history.begin = history.end
    history.count = 0
    history.floor = history.last_revision = floor
    history.samples_begin = history.samples_end
    history.until_sample = 0


cdef inline bint history_init(history_t* history, uint64_t bytes_max, uint64_t count_max,
                              uint64_t floor) noexcept nogil:
    """An empty history of at most `bytes_max` (rounded down to a power of two, at least
    HISTORY_BYTES_MIN) and `count_max` (at least 1) records; False when there is no memory."""
    cdef uint64_t ring_bytes = history_power_of_two(max(bytes_max, <uint64_t>HISTORY_BYTES_MIN) // 2 + 1)
    # No ring holds more records than headers fit into it. One sample can be half evicted, one half filled.
    cdef uint64_t held_max = min(count_max, ring_bytes // sizeof(history_record_t))
    cdef uint64_t sample_count = history_power_of_two(held_max // HISTORY_SAMPLE_RECORDS + 2)
    memset(history, 0, sizeof(history_t))
    history.mask = ring_bytes - 1
    history.count_max = max(count_max, <uint64_t>1)
    history.samples_mask = sample_count - 1
    history.ring = <uint8_t*>malloc(ring_bytes)
    history.samples = <history_sample_t*>malloc(sample_count * sizeof(history_sample_t))
    history_reset(history, floor)
    return history.ring != NULL and history.samples != NULL


cdef inline void history_free(history_t* history) noexcept nogil:
    free(history.ring)
    free(history.samples)
    history.ring = NULL
    history.samples = NULL


cdef inline uint64_t history_bytes(const history_t* history) noexcept nogil:
    return history.mask + 1 + (history.samples_mask + 1) * sizeof(history_sample_t)


cdef inline history_record_t* history_at(const history_t* history, uint64_t offset) noexcept nogil:
    return <history_record_t*>(history.ring + (offset & history.mask))


cdef inline void history_evict(history_t* history) noexcept nogil:
    """Drops the oldest record (or filler)."""
    cdef history_record_t* record = history_at(history, history.begin)
    if record.revision:
        history.floor = record.revision
        history.count -= 1
        if (history.samples_begin != history.samples_end
                and history.samples[history.samples_begin & history.samples_mask].offset == history.begin):
            history.samples_begin += 1
    history.begin += record.record_bytes


cdef inline void history_fill_to_ring_end(history_t* history, uint64_t room) noexcept nogil:
    cdef history_record_t* filler
    while history.end + room - history.begin > history.mask + 1:
        history_evict(history)
    filler = history_at(history, history.end)
    filler.revision = 0
    filler.record_bytes = <uint32_t>room
    history.end += room


cdef inline void history_append(history_t* history, const event_t* event) noexcept nogil:
    """Appends an event, whose revision is above all before it, and evicts what it displaces."""
    cdef uint64_t record_bytes = (sizeof(history_record_t) + event.key.size + event.owner.size
                                  + event.value.size + HISTORY_RECORD_ALIGNMENT - 1)
    record_bytes &= ~<uint64_t>(HISTORY_RECORD_ALIGNMENT - 1)
    cdef uint64_t ring_bytes = history.mask + 1
    cdef uint64_t room = ring_bytes - (history.end & history.mask)
    cdef history_record_t* record
    cdef uint8_t* content
    if record_bytes > ring_bytes:
        history_reset(history, event.revision)
        return
    if record_bytes > room:
        history_fill_to_ring_end(history, room)
    while history.end + record_bytes - history.begin > ring_bytes or history.count >= history.count_max:
        history_evict(history)
    record = history_at(history, history.end)
    record.revision = event.revision
    record.token = event.token
    record.record_bytes = <uint32_t>record_bytes
    record.value_bytes = event.value.size
    record.key_bytes = <uint16_t>event.key.size
    record.owner_bytes = <uint16_t>event.owner.size
    record.kind = event.kind
    record.mode = event.mode
    content = <uint8_t*>record + sizeof(history_record_t)
    # An empty slice may have no data, and memcpy must not see a null pointer even then.
    if event.key.size:
        memcpy(content, event.key.data, event.key.size)
    if event.owner.size:
        memcpy(content + event.key.size, event.owner.data, event.owner.size)
    if event.value.size:
        memcpy(content + event.key.size + event.owner.size, event.value.data, event.value.size)
    if history.until_sample == 0:
        history.samples[history.samples_end & history.samples_mask].revision = event.revision
        history.samples[history.samples_end & history.samples_mask].offset = history.end
        history.samples_end += 1
        history.until_sample = HISTORY_SAMPLE_RECORDS
    history.until_sample -= 1
    history.end += record_bytes
    prefetch_to_write(history.ring + ((history.end + HISTORY_PREFETCH_BYTES) & history.mask))
    history.count += 1
    history.last_revision = event.revision


cdef inline const history_record_t* history_next(const history_t* history, uint64_t* offset) noexcept nogil:
    """The record at `offset`, which moves behind it; NULL at the end."""
    cdef history_record_t* record
    while offset[0] != history.end:
        record = history_at(history, offset[0])
        offset[0] += record.record_bytes
        if record.revision:
            return record
    return NULL


cdef inline uint64_t history_seek(const history_t* history, uint64_t after_revision) noexcept nogil:
    """The offset of the first event after a revision that is not below the floor."""
    cdef uint64_t low = history.samples_begin, high = history.samples_end, middle
    cdef uint64_t offset = history.begin, behind
    cdef const history_record_t* record
    # Samples below `low` are at or before the revision, samples from `high` on are after it.
    while low < high:
        middle = (low + high) >> 1
        if history.samples[middle & history.samples_mask].revision <= after_revision:
            low = middle + 1
        else:
            high = middle
    if low > history.samples_begin:
        offset = history.samples[(low - 1) & history.samples_mask].offset
    while True:
        behind = offset
        record = history_next(history, &behind)
        if record == NULL or record.revision > after_revision:
            return offset
        offset = behind


cdef inline void history_event(const history_record_t* record, event_t* event) noexcept nogil:
    """The event of a record; its slices point into the ring and are good until the next append."""
    cdef const uint8_t* content = <const uint8_t*>record + sizeof(history_record_t)
    event.revision = record.revision
    event.token = record.token
    event.kind = record.kind
    event.mode = record.mode
    event.key.data = content
    event.key.size = record.key_bytes
    event.owner.data = content + record.key_bytes
    event.owner.size = record.owner_bytes
    event.value.data = content + record.key_bytes + record.owner_bytes
    event.value.size = record.value_bytes


cdef inline bint history_matches(const history_record_t* record, slice_t key, bint is_prefix) noexcept nogil:
    if record.key_bytes < key.size or (record.key_bytes > key.size and not is_prefix):
        return False
    return key.size == 0 or memcmp(<const uint8_t*>record + sizeof(history_record_t), key.data, key.size) == 0


cdef inline bint history_outran(const history_t* history, uint64_t after_revision) noexcept nogil:
    """Whether events after this revision are gone already."""
    return after_revision < history.floor


cdef inline uint32_t history_read(const history_t* history, uint64_t after_revision, slice_t key,
                                  bint is_prefix, event_t* events_out, uint32_t events_max,
                                  uint32_t scanned_max, uint64_t* next_revision) noexcept nogil:
    """Writes events after a revision (not below the floor) whose key matches; their number.

    `next_revision` is up to where everything was looked at: the `after_revision` to go on with.
    """
    cdef uint64_t offset = history_seek(history, after_revision)
    cdef const history_record_t* record
    cdef uint32_t count = 0, scanned = 0
    next_revision[0] = after_revision
    while count < events_max and scanned < scanned_max:
        record = history_next(history, &offset)
        if record == NULL:
            next_revision[0] = max(after_revision, history.last_revision)
            break
        scanned += 1
        next_revision[0] = record.revision
        if history_matches(record, key, is_prefix):
            history_event(record, &events_out[count])
            count += 1
    return count
