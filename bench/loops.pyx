"""C loops for the benchmarks: the yardstick that figures are divided by, and the structures on their own.

Only benchmarks use this module; it is built by `make bench` and not part of the package.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from fastlock._core.hashing cimport key_hash
from fastlock._core.history cimport event_t, history_append, history_free, history_init, history_t
from fastlock._core.index cimport (
    index_find_first,
    index_free,
    index_init,
    index_put,
    index_t,
    probe_t,
)
from fastlock._core.timers cimport (
    due_node_t,
    wheel_add,
    wheel_advance,
    wheel_free,
    wheel_init,
    wheel_move,
    wheel_next_deadline_hint,
    wheel_t,
)

cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec moment
    clock_gettime(CLOCK_MONOTONIC, &moment)
    return <int64_t>moment.tv_sec * 1_000_000_000 + moment.tv_nsec


cdef inline uint64_t mix(uint64_t number) noexcept nogil:
    """A repeatable spread of small numbers over 64 bits."""
    number = (number ^ (number >> 31)) * <uint64_t>0x7FB5D329728EA185U
    number = (number ^ (number >> 27)) * <uint64_t>0x81DADEF4BC2DD44DU
    return number ^ (number >> 33)


def memcpy_and_hash_ns(bytes keys, uint32_t key_bytes, uint32_t rounds):
    """The yardstick: nanoseconds to copy one key out of a random place among `keys`, and to hash the copy."""
    cdef const uint8_t* data = keys
    cdef uint64_t count = len(keys) // key_bytes
    cdef uint64_t position, digest = 0
    cdef uint8_t copy[256]
    cdef int64_t begin_ns
    cdef uint32_t round_number
    if not 0 < key_bytes <= sizeof(copy) or count == 0:
        raise ValueError("keys must hold at least one key of 1 to 256 bytes")
    with nogil:
        begin_ns = now_ns()
        for round_number in range(rounds):
            for position in range(count):
                memcpy(copy, data + (mix(position + (digest & 1)) % count) * key_bytes, key_bytes)
                digest ^= key_hash(copy, key_bytes, 0)
    return <double>(now_ns() - begin_ns) / (count * rounds)


def index_growth_ns(uint32_t count):
    """(mean, longest) nanoseconds of a put while an index grows from nothing to `count` entries."""
    cdef index_t index
    cdef uint32_t handle
    cdef int64_t begin_ns, before_ns, after_ns = 0, longest_ns = 0
    if not index_init(&index):
        raise MemoryError
    with nogil:
        begin_ns = before_ns = now_ns()
        for handle in range(1, count + 1):
            index_put(&index, <uint32_t>mix(handle), handle)
            after_ns = now_ns()
            longest_ns = max(longest_ns, after_ns - before_ns)
            before_ns = after_ns
        index_free(&index)
    return <double>(after_ns - begin_ns) / count, longest_ns


def index_find_ns(uint32_t count, uint32_t finds):
    """Nanoseconds of one lookup, without prefetch, in an index of `count` entries."""
    cdef index_t index
    cdef uint32_t handle, find
    cdef uint64_t digest = 0
    cdef int64_t begin_ns
    cdef probe_t probe
    if not index_init(&index):
        raise MemoryError
    for handle in range(1, count + 1):
        index_put(&index, <uint32_t>mix(handle), handle)
    begin_ns = now_ns()
    for find in range(finds):
        digest += index_find_first(&index, <uint32_t>mix(1 + mix(find) % count), &probe)
    begin_ns = now_ns() - begin_ns
    index_free(&index)
    return <double>begin_ns / finds if digest else 0.0


def history_append_ns(uint32_t appends, uint64_t bytes_max, uint32_t key_bytes, uint32_t owner_bytes):
    """Nanoseconds of one append to a history that is full and evicts."""
    cdef history_t history
    cdef event_t event
    cdef uint8_t content[512]
    cdef uint32_t number
    cdef int64_t begin_ns
    memset(content, 7, sizeof(content))
    memset(&event, 0, sizeof(event))
    event.key.data = event.owner.data = content
    event.key.size = min(key_bytes, <uint32_t>sizeof(content))
    event.owner.size = min(owner_bytes, <uint32_t>sizeof(content))
    if not history_init(&history, bytes_max, <uint64_t>1 << 40, 0):
        raise MemoryError
    for number in range(appends):
        event.revision += 1
        history_append(&history, &event)
    begin_ns = now_ns()
    for number in range(appends):
        event.revision += 1
        history_append(&history, &event)
    begin_ns = now_ns() - begin_ns
    history_free(&history)
    return <double>begin_ns / appends


def wheel_drain_ns(uint32_t count, bint postponed, uint32_t page):
    """(mean per timer, longest call) nanoseconds to take `count` timers that stand at one deadline
    out of the wheel, or to find that all were postponed. The slab is in random order."""
    cdef wheel_t wheel
    cdef uint32_t* nodes = <uint32_t*>malloc(count * sizeof(uint32_t))
    cdef due_node_t* due = <due_node_t*>malloc(page * sizeof(due_node_t))
    cdef uint32_t number, other, kept
    cdef int64_t begin_ns, before_ns, after_ns = 0, longest_ns = 0
    if nodes == NULL or due == NULL or not wheel_init(&wheel, 0):
        raise MemoryError
    for number in range(count):
        nodes[number] = wheel_add(&wheel, 0, number, 100)
    for number in range(count - 1, 0, -1):
        other = <uint32_t>(mix(number) % number)
        kept = nodes[number]
        nodes[number] = nodes[other]
        nodes[other] = kept
    # Moving earlier relinks, so the slot's list runs through the slab in random order.
    for number in range(count):
        wheel_move(&wheel, nodes[number], 99)
        wheel_move(&wheel, nodes[number], 30_000 if postponed else 100)
    with nogil:
        begin_ns = before_ns = now_ns()
        while wheel_next_deadline_hint(&wheel, 104) <= 104:
            wheel_advance(&wheel, 104, due, page)
            after_ns = now_ns()
            longest_ns = max(longest_ns, after_ns - before_ns)
            before_ns = after_ns
    wheel_free(&wheel)
    free(nodes)
    free(due)
    return <double>(after_ns - begin_ns) / count, longest_ns
