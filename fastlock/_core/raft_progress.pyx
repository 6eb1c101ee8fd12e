"""What a leader knows about one other member."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free


STATE_NAMES = ("probe", "replicate", "snapshot")


@cython.final
cdef class Progress:
    def __cinit__(
        self, uint64_t node, uint64_t incarnation, uint64_t next, uint64_t now_ms,
        int inflight_messages_max, uint64_t inflight_bytes_max,
    ):
        self.node = node
        self.incarnation = incarnation
        self.next = next
        self.contact_ms = now_ms
        self.inflight_bytes_max = inflight_bytes_max
        self.ring_capacity = inflight_messages_max
        self.ring_index = <uint64_t*>calloc(inflight_messages_max, sizeof(uint64_t))
        self.ring_bytes = <uint32_t*>calloc(inflight_messages_max, sizeof(uint32_t))
        if self.ring_index == NULL or self.ring_bytes == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.ring_index)
        free(self.ring_bytes)

    cdef bint window_full(self) noexcept:
        return self.inflight_count == self.ring_capacity or self.inflight_bytes >= self.inflight_bytes_max

    cdef bint is_paused(self) noexcept:
        if self.state == PROBE:
            return self.paused or self.fetching
        if self.state == REPLICATE:
            return self.fetching or self.window_full()
        return True

    cdef int sent(self, uint64_t last_index, uint64_t size) except -1:
        """Entries from `next` up to `last_index` left in one append."""
        cdef int slot
        if self.state == PROBE:
            self.paused = True
            return 0
        assert self.state == REPLICATE and not self.window_full()
        slot = (self.ring_start + self.inflight_count) % self.ring_capacity
        self.ring_index[slot] = last_index
        self.ring_bytes[slot] = <uint32_t>size
        self.inflight_count += 1
        self.inflight_bytes += size
        self.next = last_index + 1
        return 0

    cdef bint acknowledged(self, uint64_t index) noexcept:
        """Its log is durable and ours up to `index`. True if that says anything."""
        cdef bint told = index > self.match or self.paused
        if index > self.match:
            self.match = index
        if self.next <= index:
            self.next = index + 1
            self.fetching = False
        self.paused = False
        while self.inflight_count and self.ring_index[self.ring_start] <= index:
            self.inflight_bytes -= self.ring_bytes[self.ring_start]
            self.ring_start = (self.ring_start + 1) % self.ring_capacity
            self.inflight_count -= 1
        if self.state == PROBE or (self.state == SNAPSHOT and self.snapshot_id and self.match >= self.snapshot_index):
            self.become_replicate()
            told = True
        return told

    cdef bint rejected(self, uint64_t index, uint64_t hint) noexcept:
        """It has no entry like ours at `index`; `hint` is the last place that may match. False if stale."""
        if self.state == REPLICATE:
            if index <= self.match:
                return False
            self.become_probe()
            return True
        if self.state == SNAPSHOT or self.next != index + 1:
            return False
        self.next = max(min(index, hint + 1), self.match + 1)
        self.paused = False
        self.fetching = False
        return True

    cdef void become_probe(self) noexcept:
        if self.state == SNAPSHOT and self.snapshot_id:
            self.next = max(self.match, self.snapshot_index) + 1
        else:
            self.next = self.match + 1
        self.state = PROBE
        self.paused = False
        self.fetching = False
        self.snapshot_id = 0
        self.snapshot_members = None
        self.free_window()

    cdef void become_replicate(self) noexcept:
        self.become_probe()
        self.next = self.match + 1
        self.state = REPLICATE

    cdef void become_snapshot(self) noexcept:
        self.state = SNAPSHOT
        self.paused = False
        self.fetching = False
        self.snapshot_id = 0
        self.snapshot_index = 0
        self.snapshot_offset = 0
        self.free_window()

    cdef void free_window(self) noexcept:
        self.ring_start = 0
        self.inflight_count = 0
        self.inflight_bytes = 0
