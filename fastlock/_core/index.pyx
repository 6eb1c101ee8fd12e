"""A tag index that Python can use and check, for tests."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

MOVES_PER_OPERATION = INDEX_MOVES_PER_OPERATION


@cython.final
cdef class TagIndex:
    """Handles (never 0) by 32-bit tag, in tag order."""

    cdef index_t index

    def __cinit__(self):
        if not index_init(&self.index):
            raise MemoryError

    def __dealloc__(self):
        index_free(&self.index)

    def __len__(self):
        return index_count(&self.index)

    @property
    def resizing(self):
        return self.index.old.cells != NULL

    @property
    def homes(self):
        return cells_homes(&self.index.table)

    @property
    def drained(self):
        """Cells a running resize has left behind; 0 when none is running."""
        return self.index.old.first

    @property
    def used_bytes(self):
        return index_bytes(&self.index)

    def put(self, uint32_t tag, uint32_t handle):
        """Adds an entry, which must not be there yet."""
        if handle == 0:
            raise ValueError("0 is no handle")
        if not index_put(&self.index, tag, handle):
            raise MemoryError

    def remove(self, uint32_t tag, uint32_t handle):
        """Whether the entry was there."""
        return bool(index_remove(&self.index, tag, handle))

    def find(self, uint32_t tag):
        """All handles with this tag."""
        cdef probe_t probe
        cdef uint32_t handle
        cdef list found = []
        index_prefetch(&self.index, tag)
        handle = index_find_first(&self.index, tag, &probe)
        while handle:
            found.append(handle)
            handle = index_find_next(&probe)
        return found

    def scan(self, uint64_t tag_from, uint32_t handles_max):
        """(handles from tag_from on, the tag to go on from); asks for more room if one tag needs it."""
        cdef uint64_t tag_next
        cdef uint32_t count
        cdef uint32_t* handles
        while True:
            handles = <uint32_t*>malloc(handles_max * sizeof(uint32_t))
            if handles == NULL:
                raise MemoryError
            try:
                count = index_scan(&self.index, tag_from, handles, handles_max, &tag_next)
                if count <= handles_max:
                    return [handles[position] for position in range(count)], tag_next
                handles_max = count
            finally:
                free(handles)

    def check(self):
        """Asserts the invariants of both arrays."""
        check_cells(&self.index.table, 0, self.index.moved_below)
        if self.index.old.cells != NULL:
            check_cells(&self.index.old, self.index.moved_below, <uint64_t>1 << 32)


cdef int check_cells(const cells_t* array, uint64_t tag_from, uint64_t tag_end) except -1:
    cdef uint64_t position, cell, before = 0, run_begin = array.first
    cdef uint32_t count = 0
    for position in range(array.first, 2 * cells_homes(array) + 1):
        cell = array.cells[position]
        if cell == 0:
            run_begin = position + 1
            continue
        assert tag_from <= cell >> 32 < tag_end, "a tag is in the wrong array"
        assert cell >> 32 >= before >> 32, "cells are out of order"
        assert run_begin <= cells_begin(array, <uint32_t>(cell >> 32)) <= position, "an entry is cut off from its home"
        before = cell
        count += 1
    assert array.cells[2 * cells_homes(array)] == 0, "the last cell is in use"
    assert count == array.count, "the count is wrong"
    return 0
