"""What a leader knows about one other member."""

from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    PROBE = 0        # where its log matches is not known: one append at a time
    REPLICATE = 1    # appends are pipelined
    SNAPSHOT = 2     # it needs what the log no longer has: appends wait


cdef class Progress:
    cdef readonly uint64_t node
    cdef readonly uint64_t incarnation
    cdef readonly int state
    cdef readonly uint64_t match
    cdef readonly uint64_t next
    cdef bint paused                  # probe: an append is out and not answered
    cdef bint fetching                # entries from `next` on were asked from storage
    cdef uint64_t contact_ms          # when it was last heard of
    cdef uint64_t read_confirmed      # the newest read id it confirmed our leadership for
    cdef uint64_t commit_sent
    # The snapshot on its way.
    cdef readonly uint64_t snapshot_id        # 0 = asked for and not opened
    cdef readonly uint64_t snapshot_index
    cdef uint64_t snapshot_term
    cdef tuple snapshot_members
    cdef readonly uint64_t snapshot_offset
    cdef uint64_t snapshot_due_ms     # the chunk is asked for again then
    # Appends that are out, oldest first: a ring of the last index and size of each.
    cdef uint64_t* ring_index
    cdef uint32_t* ring_bytes
    cdef int ring_capacity
    cdef int ring_start
    cdef readonly int inflight_count
    cdef readonly uint64_t inflight_bytes
    cdef uint64_t inflight_bytes_max

    cdef bint window_full(self) noexcept
    cdef bint is_paused(self) noexcept
    cdef int sent(self, uint64_t last_index, uint64_t size) except -1
    cdef bint acknowledged(self, uint64_t index) noexcept
    cdef bint rejected(self, uint64_t index, uint64_t hint) noexcept
    cdef void become_probe(self) noexcept
    cdef void become_replicate(self) noexcept
    cdef void become_snapshot(self) noexcept
    cdef void free_window(self) noexcept
