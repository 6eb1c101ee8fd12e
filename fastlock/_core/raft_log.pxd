"""The log as Raft sees it: the tail in memory, and how much of it is durable."""

from libc.stdint cimport uint64_t

from fastlock._core.raft_message cimport Entry


cdef class RaftLog:
    cdef list tail
    cdef Py_ssize_t head              # tail[head] is entry base_index + 1; what is before it is gone
    cdef readonly uint64_t base_index # the entry before the tail: a checkpoint has everything up to it
    cdef readonly uint64_t base_term
    cdef readonly uint64_t last_index
    cdef readonly uint64_t last_term
    cdef readonly uint64_t cut_index  # storage has nothing at or below this
    cdef readonly uint64_t cut_term   # of that entry; 0 = not known
    cdef readonly uint64_t tail_bytes
    cdef readonly uint64_t durable_index
    # What the next write has to say.
    cdef uint64_t issued_index        # every entry up to here is in a write that was issued
    cdef uint64_t truncate_from       # 0 = nothing to drop
    cdef bint reset                   # drop everything and go on after the base
    # One (seq, last index) for every write that was issued and not acknowledged, oldest first.
    cdef list unconfirmed

    cdef Entry at(self, uint64_t index)
    cdef uint64_t term_at(self, uint64_t index) noexcept
    cdef int append(self, Entry entry) except -1
    cdef int truncate(self, uint64_t from_index) except -1
    cdef int compact(self, uint64_t index) except -1
    cdef int restart_after(self, uint64_t index, uint64_t term) except -1
    cdef int covered_by_snapshot(self, uint64_t index) except -1
    cdef int cut(self, uint64_t index, uint64_t term) except -1
    cdef bint in_storage_after(self, uint64_t index) noexcept
    cdef list slice_from(self, uint64_t first, uint64_t last, uint64_t bytes_max)
    cdef uint64_t conflict_by_term(self, uint64_t index, uint64_t term) noexcept
    cdef bint has_unissued(self) noexcept
    cdef list take_unissued(self)
    cdef int issue(self, uint64_t seq) except -1
    cdef int confirm(self, uint64_t seq) except -1
    cdef int check(self) except -1
