"""A hash index from 32-bit tags to handles, kept in tag order, that grows and shrinks without a stall.

Linear probing where the home of an entry is given by the *top* bits of its tag, and entries of one
run are kept sorted. The whole array is therefore sorted by tag, which gives three things: a lookup
stops at the first larger tag, a scan can be resumed from a tag whatever happened in between, and a
resize is a merge that moves a bounded number of cells with each put or remove. While a resize runs
every tag lives in exactly one of the two arrays: below `moved_below` in the filling one, else in the
draining one. So no operation ever looks into both.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from fastlock._core.prefetch cimport prefetch

cdef extern from "sys/mman.h" nogil:
    int PROT_READ
    int PROT_WRITE
    int MAP_PRIVATE
    int MAP_ANONYMOUS
    void* MAP_FAILED
    void* mmap(void* address, size_t size, int protection, int flags, int file, long offset)
    int munmap(void* address, size_t size)


cdef enum:
    INDEX_BITS_MIN = 6
    INDEX_BITS_MAX = 31
    # Cells a put or remove moves on while a resize runs. A growing array of C cells is drained after
    # C / 16 operations, which is how far its load can rise above 3/4.
    INDEX_MOVES_PER_OPERATION = 16
    # From here on arrays are mapped: zero pages come lazily, and a drained array goes slice by slice.
    INDEX_MAP_BYTES_MIN = 1 << 17
    INDEX_RELEASE_BYTES = 1 << 16
    # Cells index_scan looks at beyond the entries it returns.
    INDEX_SCAN_EMPTY_MAX = 4096


# A cell is tag << 32 | handle, so cells compare like tags; 0 is an empty cell.
# Invariant: an entry stands at or after begin = max(its home, first), all cells from there up to it are
# full, and the cells from `first` on are in order.
cdef struct cells_t:
    uint64_t* cells
    uint64_t first             # cells before it are drained: dead, perhaps unmapped
    uint64_t released_bytes    # of a mapped array: unmapped already, from its start
    uint64_t allocated_bytes
    uint32_t shift             # 32 - bits: home = tag >> shift
    uint32_t count


cdef struct index_t:
    cells_t table              # everything, or what a running resize has moved
    cells_t old                # cells == NULL: no resize is running
    uint64_t moved_below       # tags below it are in `table`; 2^32 while no resize is running


# Where a lookup stands; any put or remove ends it.
cdef struct probe_t:
    const uint64_t* cell
    uint32_t tag


cdef inline bint cells_allocate(cells_t* array, uint32_t bits) noexcept nogil:
    # Room for as many displaced entries as there are homes: an array never holds more entries than
    # it has homes, so even if all had the last home none would run off the end. Untouched room of a
    # mapped array costs no memory. The last cell stays empty and ends every loop.
    cdef uint64_t size_bytes = ((<uint64_t>2 << bits) + 1) * sizeof(uint64_t)
    cdef void* memory
    memset(array, 0, sizeof(cells_t))
    if size_bytes < INDEX_MAP_BYTES_MIN:
        memory = calloc(1, size_bytes)
    else:
        size_bytes = (size_bytes + INDEX_RELEASE_BYTES - 1) & ~<uint64_t>(INDEX_RELEASE_BYTES - 1)
        memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if memory == MAP_FAILED:
            memory = NULL
    if memory == NULL:
        return False
    array.cells = <uint64_t*>memory
    array.allocated_bytes = size_bytes
    array.shift = 32 - bits
    return True


cdef inline void cells_free(cells_t* array) noexcept nogil:
    if array.allocated_bytes < INDEX_MAP_BYTES_MIN:
        free(array.cells)
    elif array.released_bytes < array.allocated_bytes:
        munmap(<uint8_t*>array.cells + array.released_bytes, array.allocated_bytes - array.released_bytes)
    memset(array, 0, sizeof(cells_t))


cdef inline uint64_t cells_begin(const cells_t* array, uint32_t tag) noexcept nogil:
    cdef uint64_t home = tag >> array.shift
    return home if home > array.first else array.first


cdef inline uint64_t cells_homes(const cells_t* array) noexcept nogil:
    return <uint64_t>1 << (32 - array.shift)


cdef inline void cells_insert(cells_t* array, uint64_t entry) noexcept nogil:
    """Puts the entry behind its equals and shifts the rest of the run by one."""
    cdef uint64_t* cell = &array.cells[cells_begin(array, <uint32_t>(entry >> 32))]
    cdef uint64_t equal_max = entry | 0xFFFFFFFFU
    cdef uint64_t carried
    while cell[0] != 0 and cell[0] <= equal_max:
        cell += 1
    while entry != 0:
        carried = cell[0]
        cell[0] = entry
        entry = carried
        cell += 1
    array.count += 1


cdef inline bint cells_remove(cells_t* array, uint64_t entry) noexcept nogil:
    cdef uint64_t position = cells_begin(array, <uint32_t>(entry >> 32))
    cdef uint64_t equal_max = entry | 0xFFFFFFFFU
    cdef uint64_t* cells = array.cells
    cdef uint64_t follower
    while cells[position] != entry:
        if cells[position] == 0 or cells[position] > equal_max:
            return False
        position += 1
    while True:
        follower = cells[position + 1]
        if follower == 0 or cells_begin(array, <uint32_t>(follower >> 32)) > position:
            break
        cells[position] = follower
        position += 1
    cells[position] = 0
    array.count -= 1
    return True


cdef inline void index_end_resize(index_t* index) noexcept nogil:
    cells_free(&index.old)
    index.moved_below = <uint64_t>1 << 32


cdef inline void index_begin_resize(index_t* index, uint32_t bits) noexcept nogil:
    """Starts a resize if there is memory for it; without, the index goes on as it is."""
    cdef cells_t array
    if not cells_allocate(&array, bits):
        return
    index.old = index.table
    index.table = array
    index.moved_below = 0


cdef inline void index_move_some(index_t* index) noexcept nogil:
    """Moves the next cells of a running resize; entries of one tag move together."""
    cdef cells_t* old = &index.old
    cdef uint32_t budget = INDEX_MOVES_PER_OPERATION
    cdef uint64_t cell, drained_bytes
    while old.count and (budget or (old.cells[old.first] != 0
                                    and old.cells[old.first] >> 32 < index.moved_below)):
        cell = old.cells[old.first]
        old.first += 1
        if cell:
            old.count -= 1
            cells_insert(&index.table, cell)
            index.moved_below = (cell >> 32) + 1
        if budget:
            budget -= 1
    if old.count == 0:
        index_end_resize(index)
        return
    if old.allocated_bytes >= INDEX_MAP_BYTES_MIN:
        drained_bytes = old.first * sizeof(uint64_t) & ~<uint64_t>(INDEX_RELEASE_BYTES - 1)
        if drained_bytes > old.released_bytes:
            munmap(<uint8_t*>old.cells + old.released_bytes, drained_bytes - old.released_bytes)
            old.released_bytes = drained_bytes


cdef inline bint index_init(index_t* index) noexcept nogil:
    """An empty index; False when there is no memory."""
    memset(index, 0, sizeof(index_t))
    index.moved_below = <uint64_t>1 << 32
    return cells_allocate(&index.table, INDEX_BITS_MIN)


cdef inline void index_free(index_t* index) noexcept nogil:
    """Frees everything; only index_init makes the index usable again."""
    cells_free(&index.table)
    if index.old.cells != NULL:
        cells_free(&index.old)


cdef inline uint32_t index_count(const index_t* index) noexcept nogil:
    return index.table.count + index.old.count


cdef inline uint64_t index_bytes(const index_t* index) noexcept nogil:
    """Bytes of the arrays that can be resident: homes, without the untouched room behind them."""
    return (index.table.allocated_bytes + index.old.allocated_bytes) // 2


cdef inline const cells_t* index_cells(const index_t* index, uint32_t tag) noexcept nogil:
    return &index.table if tag < index.moved_below else &index.old


cdef inline void index_prefetch(const index_t* index, uint32_t tag) noexcept nogil:
    cdef const cells_t* array = index_cells(index, tag)
    prefetch(&array.cells[tag >> array.shift])


cdef inline uint32_t index_find_next(probe_t* probe) noexcept nogil:
    """The next handle with the probe's tag, or 0."""
    probe.cell += 1
    return <uint32_t>probe.cell[0] if probe.cell[0] >> 32 == probe.tag else 0


cdef inline uint32_t index_find_first(const index_t* index, uint32_t tag, probe_t* probe) noexcept nogil:
    """The first handle with this tag, or 0; the caller compares keys and asks index_find_next for more."""
    cdef const cells_t* array = index_cells(index, tag)
    cdef const uint64_t* cell = &array.cells[cells_begin(array, tag)]
    cdef uint64_t lowest = <uint64_t>tag << 32
    # An empty cell wraps to the largest number, so one comparison ends the loop for both reasons.
    while cell[0] - 1 < lowest:
        cell += 1
    probe.cell = cell
    probe.tag = tag
    return <uint32_t>cell[0] if cell[0] >> 32 == tag else 0


cdef inline bint index_put(index_t* index, uint32_t tag, uint32_t handle) noexcept nogil:
    """Adds (tag, handle), which must not be there yet; False when there is no memory."""
    cdef cells_t* array
    cdef uint64_t homes
    if index.old.cells != NULL:
        index_move_some(index)
    else:
        homes = cells_homes(&index.table)
        if index.table.count >= homes // 4 * 3 and index.table.shift > 32 - INDEX_BITS_MAX:
            index_begin_resize(index, 33 - index.table.shift)
    array = &index.table if tag < index.moved_below else &index.old
    if array.count >= cells_homes(array):
        return False
    cells_insert(array, <uint64_t>tag << 32 | handle)
    return True


cdef inline bint index_remove(index_t* index, uint32_t tag, uint32_t handle) noexcept nogil:
    """Removes (tag, handle); False when it was not there."""
    cdef cells_t* array = &index.table if tag < index.moved_below else &index.old
    cdef bint removed = cells_remove(array, <uint64_t>tag << 32 | handle)
    if index.old.cells != NULL:
        index_move_some(index)
    elif (index.table.shift < 32 - INDEX_BITS_MIN
            and index.table.count < cells_homes(&index.table) >> 4):
        index_begin_resize(index, 30 - index.table.shift if index.table.shift < 30 - INDEX_BITS_MIN
                           else <uint32_t>INDEX_BITS_MIN)
    return removed


cdef inline uint32_t cells_scan(const cells_t* array, uint64_t tag_from, uint64_t tag_end,
                                uint32_t* handles_out, uint32_t handles_max,
                                uint32_t* empty_budget, uint64_t* tag_next) noexcept nogil:
    """index_scan within one array and below tag_end; `tag_next` is tag_end when all was seen."""
    cdef uint64_t position, cell, tag, run_tag = <uint64_t>1 << 32
    cdef uint32_t count = 0, run_begin = 0
    tag_next[0] = tag_end
    if tag_from >= tag_end or array.count == 0:
        return 0
    position = cells_begin(array, <uint32_t>tag_from)
    while True:
        cell = array.cells[position]
        if cell == 0:
            # No entry whose home is at or before an empty cell stands behind it.
            position += 1
            if position >= cells_homes(array):
                return count
            if empty_budget[0] == 0:
                tag_next[0] = position << array.shift
                return count
            empty_budget[0] -= 1
            continue
        tag = cell >> 32
        if tag >= tag_end:
            return count
        if tag >= tag_from:
            if tag != run_tag:
                run_tag = tag
                run_begin = count
            if count >= handles_max and run_begin:
                tag_next[0] = run_tag
                return run_begin
            if count < handles_max:
                handles_out[count] = <uint32_t>cell
            count += 1
        position += 1


cdef inline uint32_t index_scan(const index_t* index, uint64_t tag_from, uint32_t* handles_out,
                                uint32_t handles_max, uint64_t* tag_next) noexcept nogil:
    """Handles in tag order, from tag_from on; resume at `tag_next`, 2^32 means that all was seen.

    All entries of one tag come in one page. A page may be short, or empty, because the work is bounded.
    If one tag alone has more than handles_max entries their number is returned, and the caller
    asks again from the same tag with that much room.
    """
    cdef uint64_t tag_end = <uint64_t>1 << 32
    cdef uint64_t old_from = tag_from if tag_from > index.moved_below else index.moved_below
    cdef uint32_t empty_budget = INDEX_SCAN_EMPTY_MAX
    cdef uint32_t count, more
    count = cells_scan(&index.table, tag_from, index.moved_below, handles_out, handles_max,
                       &empty_budget, tag_next)
    if index.old.cells == NULL or tag_next[0] != index.moved_below or count >= handles_max:
        return count
    more = cells_scan(&index.old, old_from, tag_end, handles_out + count, handles_max - count,
                      &empty_budget, tag_next)
    if count and more > handles_max - count:
        tag_next[0] = old_from
        return count
    return count + more
