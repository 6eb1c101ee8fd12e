"""A hierarchical timer wheel: timers by deadline, with cheap postponing and bounded work per call.

Time is an argument, in milliseconds of any clock that does not go back. A timer stands in the slot
named by the highest base-64 digit in which its tick differs from the wheel's: level = that digit's
position, slot = the digit's value. All slots in use on a level are then later than the wheel's own digit
there, the lowest level in use has the earliest slot, and moving the wheel up to the begin of that
slot leaves every other timer where it belongs. So a jump in time costs what is due, not the ticks between.

Slots are circular lists through sentinel nodes, so a timer leaves its list without knowing which it is,
and a whole slot moves to another list by one splice.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from fastlock._core.prefetch cimport prefetch
from fastlock._core.slab cimport (
    SLAB_CHUNK_BITS,
    SLAB_CHUNK_MASK,
    slab_bytes,
    slab_clear,
    slab_give,
    slab_init,
    slab_t,
    slab_take,
)

cdef extern from *:
    int __builtin_clzll(unsigned long long number) nogil
    int __builtin_ctzll(unsigned long long number) nogil


cdef enum:
    # A timer fires at its deadline or up to one tick later, never earlier.
    WHEEL_TICK_BITS = 3
    WHEEL_TICK_MS = 1 << WHEEL_TICK_BITS
    WHEEL_LEVEL_BITS = 6
    WHEEL_SLOTS = 1 << WHEEL_LEVEL_BITS
    # Digits of a 61-bit tick: any 64-bit deadline has a slot.
    WHEEL_LEVELS = 11
    # Timers one wheel_advance looks at, whether they fire, were postponed or come down a level.
    WHEEL_TOUCHES_MAX = 2048
    # Sentinels are the first nodes of the slab: one per slot, and two lists beside the slots.
    WHEEL_REACHED = 1 + WHEEL_LEVELS * WHEEL_SLOTS    # its time has come, to be looked at
    WHEEL_DUE = WHEEL_REACHED + 1                     # reported by wheel_advance, not yet answered
    WHEEL_SENTINELS = WHEEL_DUE


cdef struct wheel_node_t:
    uint32_t next
    uint32_t previous
    uint32_t owner
    uint16_t kind
    uint16_t maybe_due         # 0: certainly not on the due list
    uint64_t deadline_ms       # may be later than the slot says: a postponed timer is moved when reached


cdef struct wheel_t:
    slab_t nodes
    uint64_t tick              # everything before it was taken out of the slots
    uint32_t levels            # bit per level that has a bit in `slots`
    uint64_t[WHEEL_LEVELS] slots   # bit per slot that may have a timer


cdef struct due_node_t:
    uint64_t deadline_ms
    uint32_t node
    uint32_t owner
    uint16_t kind


cdef inline wheel_node_t* wheel_node(wheel_t* wheel, uint32_t handle) noexcept nogil:
    # slab_at with the size known to the compiler.
    return <wheel_node_t*>wheel.nodes.chunks[handle >> SLAB_CHUNK_BITS] + (handle & SLAB_CHUNK_MASK)


cdef inline uint64_t wheel_tick_of(uint64_t deadline_ms) noexcept nogil:
    return (deadline_ms >> WHEEL_TICK_BITS) + ((deadline_ms & (WHEEL_TICK_MS - 1)) != 0)


cdef inline void wheel_empty_list(wheel_t* wheel, uint32_t sentinel) noexcept nogil:
    cdef wheel_node_t* head = wheel_node(wheel, sentinel)
    head.next = sentinel
    head.previous = sentinel


cdef inline bint wheel_init(wheel_t* wheel, uint64_t now_ms) noexcept nogil:
    """An empty wheel at this time; False when there is no memory."""
    cdef uint32_t sentinel
    memset(wheel, 0, sizeof(wheel_t))
    slab_init(&wheel.nodes, sizeof(wheel_node_t))
    wheel.tick = now_ms >> WHEEL_TICK_BITS
    for sentinel in range(1, WHEEL_SENTINELS + 1):
        if slab_take(&wheel.nodes) == 0:
            return False
        wheel_empty_list(wheel, sentinel)
    return True


cdef inline void wheel_free(wheel_t* wheel) noexcept nogil:
    """Frees everything; only wheel_init makes the wheel usable again."""
    slab_clear(&wheel.nodes)


cdef inline uint32_t wheel_count(const wheel_t* wheel) noexcept nogil:
    """Timers in the wheel, due ones included."""
    return wheel.nodes.live - WHEEL_SENTINELS


cdef inline uint64_t wheel_bytes(wheel_t* wheel) noexcept nogil:
    return slab_bytes(&wheel.nodes)


cdef inline void wheel_append(wheel_t* wheel, uint32_t sentinel, uint32_t handle) noexcept nogil:
    cdef wheel_node_t* head = wheel_node(wheel, sentinel)
    cdef wheel_node_t* node = wheel_node(wheel, handle)
    node.next = sentinel
    node.previous = head.previous
    wheel_node(wheel, head.previous).next = handle
    head.previous = handle


cdef inline void wheel_unlink(wheel_t* wheel, const wheel_node_t* node) noexcept nogil:
    wheel_node(wheel, node.previous).next = node.next
    wheel_node(wheel, node.next).previous = node.previous


cdef inline void wheel_splice(wheel_t* wheel, uint32_t source, uint32_t target) noexcept nogil:
    """Moves all nodes of one list to the end of another."""
    cdef wheel_node_t* source_head = wheel_node(wheel, source)
    cdef wheel_node_t* target_head = wheel_node(wheel, target)
    if source_head.next == source:
        return
    wheel_node(wheel, target_head.previous).next = source_head.next
    wheel_node(wheel, source_head.next).previous = target_head.previous
    wheel_node(wheel, source_head.previous).next = target
    target_head.previous = source_head.previous
    wheel_empty_list(wheel, source)


cdef inline void wheel_link(wheel_t* wheel, uint32_t handle, uint64_t deadline_ms) noexcept nogil:
    cdef uint64_t tick = wheel_tick_of(deadline_ms)
    cdef uint32_t level, slot
    if tick <= wheel.tick:
        wheel_append(wheel, WHEEL_REACHED, handle)
        return
    level = <uint32_t>(63 - __builtin_clzll(tick ^ wheel.tick)) // WHEEL_LEVEL_BITS
    slot = (tick >> (level * WHEEL_LEVEL_BITS)) & (WHEEL_SLOTS - 1)
    wheel.slots[level] |= <uint64_t>1 << slot
    wheel.levels |= <uint32_t>1 << level
    wheel_append(wheel, 1 + level * WHEEL_SLOTS + slot, handle)


cdef inline uint32_t wheel_add(wheel_t* wheel, uint16_t kind, uint32_t owner,
                               uint64_t deadline_ms) noexcept nogil:
    """The handle of a new timer, or 0 when there is no memory."""
    cdef uint32_t handle = slab_take(&wheel.nodes)
    cdef wheel_node_t* node
    if handle == 0:
        return 0
    node = wheel_node(wheel, handle)
    node.owner = owner
    node.kind = kind
    node.deadline_ms = deadline_ms
    wheel_link(wheel, handle, deadline_ms)
    return handle


cdef inline void wheel_move(wheel_t* wheel, uint32_t handle, uint64_t deadline_ms) noexcept nogil:
    """Sets the deadline, and arms the timer again if it was due. Postponing touches only the timer itself."""
    cdef wheel_node_t* node = wheel_node(wheel, handle)
    if deadline_ms >= node.deadline_ms and not node.maybe_due:
        node.deadline_ms = deadline_ms
        return
    wheel_unlink(wheel, node)
    node.deadline_ms = deadline_ms
    node.maybe_due = 0
    wheel_link(wheel, handle, deadline_ms)


cdef inline void wheel_remove(wheel_t* wheel, uint32_t handle) noexcept nogil:
    """Takes a timer out, armed or due; its handle may be used again at once."""
    wheel_unlink(wheel, wheel_node(wheel, handle))
    slab_give(&wheel.nodes, handle)


cdef inline uint32_t wheel_earliest(wheel_t* wheel, uint64_t* begin_tick) noexcept nogil:
    """The sentinel of the earliest slot in use and the tick it begins at; 0 when there is none."""
    cdef uint32_t level, slot, sentinel, shift
    while wheel.levels:
        level = __builtin_ctzll(wheel.levels)
        if wheel.slots[level] == 0:
            wheel.levels &= wheel.levels - 1
            continue
        slot = __builtin_ctzll(wheel.slots[level])
        sentinel = 1 + level * WHEEL_SLOTS + slot
        if wheel_node(wheel, sentinel).next == sentinel:
            wheel.slots[level] &= wheel.slots[level] - 1
            continue
        # The wheel's digits above this level, this slot's digit, zeros below. The top level has
        # no digits above it, and a shift by 66 would not be defined.
        shift = level * WHEEL_LEVEL_BITS
        begin_tick[0] = <uint64_t>slot << shift
        if level + 1 < WHEEL_LEVELS:
            begin_tick[0] |= wheel.tick >> (shift + WHEEL_LEVEL_BITS) << (shift + WHEEL_LEVEL_BITS)
        return sentinel
    return 0


cdef inline uint32_t wheel_advance(wheel_t* wheel, uint64_t now_ms, due_node_t* out,
                                   uint32_t out_max) noexcept nogil:
    """Moves the wheel up to now and writes timers that are due; their number.

    Looks at no more than WHEEL_TOUCHES_MAX timers. wheel_next_deadline_hint says `now` while there is
    more to do. A timer written here is not written again until it is moved or wheel_rearm_due is called.
    """
    cdef uint64_t now_tick = now_ms >> WHEEL_TICK_BITS
    cdef uint64_t begin_tick = 0
    cdef uint32_t count = 0, touches = 0, handle, sentinel
    cdef wheel_node_t* node
    cdef wheel_node_t* reached = wheel_node(wheel, WHEEL_REACHED)
    if now_tick < wheel.tick:
        now_tick = wheel.tick
    while True:
        while reached.next != WHEEL_REACHED:
            if touches == WHEEL_TOUCHES_MAX or count == out_max:
                return count
            touches += 1
            handle = reached.next
            node = wheel_node(wheel, handle)
            prefetch(wheel_node(wheel, node.next))
            wheel_unlink(wheel, node)
            if wheel_tick_of(node.deadline_ms) > now_tick:
                node.maybe_due = 0
                wheel_link(wheel, handle, node.deadline_ms)
                continue
            node.maybe_due = 1
            wheel_append(wheel, WHEEL_DUE, handle)
            out[count].node = handle
            out[count].owner = node.owner
            out[count].kind = node.kind
            out[count].deadline_ms = node.deadline_ms
            count += 1
        sentinel = wheel_earliest(wheel, &begin_tick)
        if sentinel == 0 or begin_tick > now_tick:
            wheel.tick = now_tick
            return count
        # Lower levels are empty and the other slots of this one are later, so all other timers still
        # stand in the slots that their ticks and this one name.
        wheel.tick = begin_tick
        wheel_splice(wheel, sentinel, WHEEL_REACHED)


cdef inline void wheel_rearm_due(wheel_t* wheel) noexcept nogil:
    """Lets wheel_advance look again at every timer it reported and nobody answered, in O(1)."""
    wheel_splice(wheel, WHEEL_DUE, WHEEL_REACHED)


cdef inline uint64_t wheel_next_deadline_hint(wheel_t* wheel, uint64_t now_ms) noexcept nogil:
    """Until when wheel_advance has nothing to do: `now_ms` if there is work, 2^64 - 1 if never.

    May be earlier than the next deadline (a slot of a higher level must be taken apart first), never
    more than a tick later.
    """
    cdef uint64_t begin_tick = 0
    if wheel_node(wheel, WHEEL_REACHED).next != WHEEL_REACHED:
        return now_ms
    if wheel_earliest(wheel, &begin_tick) == 0:
        return ~<uint64_t>0
    return max(now_ms, begin_tick << WHEEL_TICK_BITS)
