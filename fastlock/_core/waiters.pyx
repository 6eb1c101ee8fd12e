"""Whose wait ends when a wake comes: origins by the slot and revision of the claim they wait with.

Waiters that came with a moved slot have revisions of another group's, so that a revision alone names nobody.
"""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from fastlock._core.index cimport (
    index_find_first,
    index_find_next,
    index_free,
    index_init,
    index_put,
    index_remove,
    index_scan,
    probe_t,
)
from fastlock._core.layout cimport COMMAND_ACQUIRE
from fastlock._core.replies cimport Switchboard, origin_t
from fastlock._core.slab cimport slab_at, slab_clear, slab_give, slab_init, slab_take
from fastlock._core.types cimport outcome_t


cdef enum:
    # A client asks again where it was cut off; more than these for one claim are not a client's doing.
    ORIGINS_PER_CLAIM_MAX = 8
    SCAN_PAGE = 256


cdef inline uint32_t tag_of(uint32_t slot, uint64_t revision) noexcept:
    # Revisions stay below 2^53: shifted by the bits of a slot only those few leave that hardly ever differ.
    return <uint32_t>(((revision << 14 | slot) * <uint64_t>0x9E3779B97F4A7C15U) >> 32)


@cython.final
cdef class Waiters:
    """One group's waits as this node has to answer them."""

    def __cinit__(self):
        slab_init(&self.waiters, sizeof(waiter_t))
        if not index_init(&self.index):
            raise MemoryError

    def __dealloc__(self):
        index_free(&self.index)
        slab_clear(&self.waiters)

    cdef int add(self, uint16_t slot, uint64_t revision, const origin_t* origin) noexcept:
        """One more who waits with a claim; -1 without memory. The oldest gives way where a claim has too many."""
        cdef uint32_t tag = tag_of(slot, revision)
        cdef probe_t probe
        cdef uint32_t handle = index_find_first(&self.index, tag, &probe)
        cdef uint32_t same = 0, oldest = 0
        cdef waiter_t* waiter
        while handle:
            waiter = <waiter_t*>slab_at(&self.waiters, handle)
            if waiter.revision == revision and waiter.slot == slot:
                # Entries of one tag stand in the order in which they came.
                if oldest == 0:
                    oldest = handle
                same += 1
            handle = index_find_next(&probe)
        if same >= ORIGINS_PER_CLAIM_MAX:
            self.remove(tag, oldest)
        handle = slab_take(&self.waiters)
        if handle == 0:
            return -1
        if not index_put(&self.index, tag, handle):
            slab_give(&self.waiters, handle)
            return -1
        waiter = <waiter_t*>slab_at(&self.waiters, handle)
        waiter.revision = revision
        waiter.slot = slot
        waiter.origin = origin[0]
        self.count += 1
        return 0

    cdef void remove(self, uint32_t tag, uint32_t handle) noexcept:
        index_remove(&self.index, tag, handle)
        slab_give(&self.waiters, handle)
        self.count -= 1

    cdef void wake(self, Switchboard board, uint32_t group, uint64_t leader, const outcome_t* outcome) noexcept:
        """Tells everyone who waits with the claim that a wake names, and forgets them."""
        cdef uint32_t tag = tag_of(outcome.detail, outcome.waiter)
        cdef probe_t probe
        cdef uint32_t handle = index_find_first(&self.index, tag, &probe)
        cdef waiter_t* waiter
        cdef outcome_t told = outcome[0]
        told.kind = COMMAND_ACQUIRE
        # A wake's detail is its slot, which means something else to a client.
        told.detail = 0
        while handle:
            waiter = <waiter_t*>slab_at(&self.waiters, handle)
            if waiter.revision != outcome.waiter or waiter.slot != outcome.detail:
                handle = index_find_next(&probe)
                continue
            board.answer(&waiter.origin, group, leader, 0, &told)
            self.remove(tag, handle)
            handle = index_find_first(&self.index, tag, &probe)

    cdef int fail_all(self, Switchboard board, uint32_t group, int code, uint64_t leader) except -1:
        """Tells everyone the same, and forgets them."""
        cdef uint32_t[SCAN_PAGE] handles
        cdef uint64_t tag = 0
        cdef uint32_t found, position
        while tag < <uint64_t>1 << 32:
            found = index_scan(&self.index, tag, handles, SCAN_PAGE, &tag)
            assert found <= SCAN_PAGE, "a tag has a few origins at most"
            for position in range(found):
                board.refuse(&(<waiter_t*>slab_at(&self.waiters, handles[position])).origin, code, group, leader)
        index_free(&self.index)
        slab_clear(&self.waiters)
        self.count = 0
        if not index_init(&self.index):
            raise MemoryError
        return 0
