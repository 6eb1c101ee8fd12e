"""Slabs: fixed-size items behind 32-bit handles, growing chunk by chunk without ever copying an item."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef extern from "stdlib.h" nogil:
    void* aligned_alloc(size_t alignment, size_t size)


cdef enum:
    SLAB_LINE_BYTES = 64             # chunks begin with a cache line, so that items cross as few as possible
    SLAB_CHUNK_BITS = 12
    SLAB_CHUNK_ITEMS = 1 << SLAB_CHUNK_BITS
    SLAB_CHUNK_MASK = SLAB_CHUNK_ITEMS - 1
    SLAB_TABLE_CHUNKS_MIN = 16
    SLAB_CHUNKS_MAX = 1 << (32 - SLAB_CHUNK_BITS)


# Items stay where they are until they are given back, so a pointer from slab_at is good as long as
# its handle is. A free item holds the handle of the next free one in its first four bytes.
cdef struct slab_t:
    uint8_t** chunks
    uint32_t chunk_count
    uint32_t chunk_capacity      # entries allocated in `chunks`
    uint32_t item_bytes
    uint32_t free_first          # 0: no given-back item
    uint64_t fresh               # the lowest handle that was never taken
    uint32_t live


cdef inline void slab_init(slab_t* slab, uint32_t item_bytes) noexcept nogil:
    """An empty slab; `item_bytes` is at least 4, and a multiple of the item's alignment."""
    memset(slab, 0, sizeof(slab_t))
    slab.item_bytes = item_bytes
    slab.fresh = 1


cdef inline void* slab_at(slab_t* slab, uint32_t handle) noexcept nogil:
    """The item of a live handle; anything else is undefined."""
    return slab.chunks[handle >> SLAB_CHUNK_BITS] + <uint64_t>(handle & SLAB_CHUNK_MASK) * slab.item_bytes


cdef inline bint slab_add_chunk(slab_t* slab) noexcept nogil:
    cdef uint32_t capacity
    cdef void* table
    cdef uint8_t* chunk
    if slab.chunk_count == SLAB_CHUNKS_MAX:
        return False
    if slab.chunk_count == slab.chunk_capacity:
        capacity = slab.chunk_capacity * 2 if slab.chunk_capacity else SLAB_TABLE_CHUNKS_MIN
        table = realloc(slab.chunks, <size_t>capacity * sizeof(uint8_t*))
        if table == NULL:
            return False
        slab.chunks = <uint8_t**>table
        slab.chunk_capacity = capacity
    chunk = <uint8_t*>aligned_alloc(SLAB_LINE_BYTES, <size_t>SLAB_CHUNK_ITEMS * slab.item_bytes)
    if chunk == NULL:
        return False
    slab.chunks[slab.chunk_count] = chunk
    slab.chunk_count += 1
    return True


cdef inline uint32_t slab_take(slab_t* slab) noexcept nogil:
    """The handle of a zeroed item, or 0 when there is no memory."""
    cdef uint32_t handle = slab.free_first
    cdef void* item
    if handle:
        item = slab_at(slab, handle)
        slab.free_first = (<uint32_t*>item)[0]
    else:
        if slab.fresh >> SLAB_CHUNK_BITS == slab.chunk_count and not slab_add_chunk(slab):
            return 0
        handle = <uint32_t>slab.fresh
        slab.fresh += 1
        item = slab_at(slab, handle)
    memset(item, 0, slab.item_bytes)
    slab.live += 1
    return handle


cdef inline void slab_give(slab_t* slab, uint32_t handle) noexcept nogil:
    """Gives an item back; its handle may be taken again at once."""
    (<uint32_t*>slab_at(slab, handle))[0] = slab.free_first
    slab.free_first = handle
    slab.live -= 1


cdef inline uint64_t slab_bytes(slab_t* slab) noexcept nogil:
    """Bytes allocated; a chunk that was only begun is resident only as far as it was touched."""
    return (<uint64_t>slab.chunk_count * SLAB_CHUNK_ITEMS * slab.item_bytes
            + <uint64_t>slab.chunk_capacity * sizeof(uint8_t*))


cdef inline void slab_clear(slab_t* slab) noexcept nogil:
    """Frees everything; the slab is empty and usable again."""
    cdef uint32_t position
    for position in range(slab.chunk_count):
        free(slab.chunks[position])
    free(slab.chunks)
    slab_init(slab, slab.item_bytes)
