"""The event history as a Python class."""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc


@cython.final
cdef class EventHistory:
    """The latest events of a group, bounded by bytes and by number."""

    cdef history_t history

    def __cinit__(self, uint64_t bytes_max, uint64_t count_max, uint64_t floor=0):
        if not history_init(&self.history, bytes_max, count_max, floor):
            raise MemoryError

    def __dealloc__(self):
        history_free(&self.history)

    def __len__(self):
        return self.history.count

    @property
    def floor(self):
        return self.history.floor

    @property
    def last_revision(self):
        return self.history.last_revision

    @property
    def used_bytes(self):
        return history_bytes(&self.history)

    def append(self, uint64_t revision, uint16_t kind, uint16_t mode, uint64_t token,
               bytes key, bytes owner, bytes value):
        """Appends an event and evicts what it displaces."""
        cdef event_t event
        if revision <= self.history.last_revision:
            raise ValueError("revisions strictly increase")
        if len(key) > 0xFFFF or len(owner) > 0xFFFF or len(value) > 0xFFFFFFF:
            raise ValueError("a field is too long for a record")
        event.revision = revision
        event.token = token
        event.kind = kind
        event.mode = mode
        event.key = as_slice(key)
        event.owner = as_slice(owner)
        event.value = as_slice(value)
        history_append(&self.history, &event)

    def read(self, uint64_t after_revision, bytes key, bint is_prefix, uint32_t events_max, uint32_t scanned_max):
        """(events, revision to go on from), or None when the reader was outrun."""
        cdef uint64_t next_revision
        cdef uint32_t count
        cdef event_t* events
        if history_outran(&self.history, after_revision):
            return None
        events = <event_t*>malloc(max(events_max, <uint32_t>1) * sizeof(event_t))
        if events == NULL:
            raise MemoryError
        try:
            count = history_read(&self.history, after_revision, as_slice(key), is_prefix, events, events_max,
                                 scanned_max, &next_revision)
            return [as_tuple(&events[position]) for position in range(count)], next_revision
        finally:
            free(events)

    def reset(self, uint64_t floor):
        """Forgets all events; those up to `floor` are gone."""
        history_reset(&self.history, floor)


cdef slice_t as_slice(bytes content):
    cdef slice_t result
    result.data = content
    result.size = <uint32_t>len(content)
    return result


cdef tuple as_tuple(const event_t* event):
    return (event.revision, event.kind, event.mode, event.token, event.key.data[:event.key.size],
            event.owner.data[:event.owner.size], event.value.data[:event.value.size])
