"""C loops for the benchmarks: the yardstick that figures are divided by, and the structures on their own.

Only benchmarks use this module; it is built by `make bench` and not part of the package.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, clock_gettime, timespec

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
from fastlock._core.intake cimport Intake
from fastlock._core.locktable cimport LockTable
from fastlock._core.proposals cimport Proposals
from fastlock._core.replies cimport Replies
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


cdef inline int64_t own_ns() noexcept nogil:
    """Time this thread has run, in user space or in the kernel for it. For the longest of many calls: while other
    processes want the same cores, the longest by the clock only says for how long one of them had it."""
    cdef timespec moment
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &moment)
    return <int64_t>moment.tv_sec * 1_000_000_000 + moment.tv_nsec


cdef inline uint64_t mix(uint64_t number) noexcept nogil:
    """A repeatable spread of small numbers over 64 bits."""
    number = (number ^ (number >> 31)) * <uint64_t>0x7FB5D329728EA185U
    number = (number ^ (number >> 27)) * <uint64_t>0x81DADEF4BC2DD44DU
    return number ^ (number >> 33)


def memcpy_and_hash_ns(bytes keys, uint32_t key_bytes, uint32_t copies):
    """The yardstick: nanoseconds to copy one key out of a random place among `keys`, and to hash the copy."""
    cdef const uint8_t* data = keys
    cdef uint64_t count = len(keys) // key_bytes
    cdef uint64_t digest = 0
    cdef uint8_t copy[256]
    cdef int64_t begin_ns
    cdef uint32_t position
    if not 0 < key_bytes <= sizeof(copy) or count == 0:
        raise ValueError("keys must hold at least one key of 1 to 256 bytes")
    with nogil:
        begin_ns = now_ns()
        for position in range(copies):
            # Where the next key is depends on the hash of this one: nothing overlaps.
            memcpy(copy, data + (mix(position + (digest & 1)) % count) * key_bytes, key_bytes)
            digest ^= key_hash(copy, key_bytes, 0)
    return <double>(now_ns() - begin_ns) / copies


def index_growth_ns(uint32_t count):
    """Nanoseconds of one put, on average, while an index grows from nothing to `count` entries."""
    cdef index_t index
    cdef uint32_t handle
    cdef int64_t begin_ns
    if not index_init(&index):
        raise MemoryError
    with nogil:
        begin_ns = now_ns()
        for handle in range(1, count + 1):
            index_put(&index, <uint32_t>mix(handle), handle)
        begin_ns = now_ns() - begin_ns
        index_free(&index)
    return <double>begin_ns / count


def index_growth_longest_ns(uint32_t count):
    """Nanoseconds of the longest put in such a growth."""
    cdef index_t index
    cdef uint32_t handle
    cdef int64_t before_ns, after_ns, longest_ns = 0
    if not index_init(&index):
        raise MemoryError
    with nogil:
        before_ns = own_ns()
        for handle in range(1, count + 1):
            index_put(&index, <uint32_t>mix(handle), handle)
            after_ns = own_ns()
            longest_ns = max(longest_ns, after_ns - before_ns)
            before_ns = after_ns
        index_free(&index)
    return longest_ns


def index_find_ns(uint32_t count, uint32_t finds, uint32_t rounds):
    """Nanoseconds of one lookup, without prefetch, in an index of `count` entries; the best round."""
    cdef index_t index
    cdef uint32_t handle, find
    cdef uint64_t digest = 0
    cdef int64_t begin_ns, best_ns = INT64_MAX
    cdef probe_t probe
    if not index_init(&index):
        raise MemoryError
    for handle in range(1, count + 1):
        index_put(&index, <uint32_t>mix(handle), handle)
    for _ in range(rounds):
        begin_ns = now_ns()
        for find in range(finds):
            digest += index_find_first(&index, <uint32_t>mix(1 + mix(find + digest) % count), &probe)
        best_ns = min(best_ns, now_ns() - begin_ns)
    index_free(&index)
    return <double>best_ns / finds


def history_append_ns(uint64_t bytes_max, uint32_t key_bytes, uint32_t owner_bytes, uint32_t appends, uint32_t rounds):
    """Nanoseconds of one append to a history that is full and evicts; the best round."""
    cdef history_t history
    cdef event_t event
    cdef uint8_t content[512]
    cdef uint32_t number
    cdef int64_t begin_ns, best_ns = INT64_MAX
    memset(content, 7, sizeof(content))
    memset(&event, 0, sizeof(event))
    event.key.data = event.owner.data = content
    event.key.size = min(key_bytes, <uint32_t>sizeof(content))
    event.owner.size = min(owner_bytes, <uint32_t>sizeof(content))
    if not history_init(&history, bytes_max, <uint64_t>1 << 40, 0):
        raise MemoryError
    while history.floor == 0:
        event.revision += 1
        history_append(&history, &event)
    for _ in range(rounds):
        begin_ns = now_ns()
        for number in range(appends):
            event.revision += 1
            history_append(&history, &event)
        best_ns = min(best_ns, now_ns() - begin_ns)
    history_free(&history)
    return <double>best_ns / appends


def wheel_drain_longest_ns(uint32_t count, bint postponed, uint32_t page):
    """Nanoseconds of the longest call when `count` timers that stand at one deadline are taken out of the wheel, or
    are found to be postponed. Their list runs through the slab in random order."""
    cdef wheel_t wheel
    cdef uint32_t* nodes = <uint32_t*>malloc(count * sizeof(uint32_t))
    cdef due_node_t* due = <due_node_t*>malloc(page * sizeof(due_node_t))
    cdef uint32_t number, other, kept
    cdef int64_t before_ns, after_ns, longest_ns = 0
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
        before_ns = own_ns()
        while wheel_next_deadline_hint(&wheel, 104) <= 104:
            wheel_advance(&wheel, 104, due, page)
            after_ns = own_ns()
            longest_ns = max(longest_ns, after_ns - before_ns)
            before_ns = after_ns
    wheel_free(&wheel)
    free(nodes)
    free(due)
    return longest_ns


def lead(Intake intake, Proposals proposals, Replies replies, LockTable table, list requests, uint64_t now_ms):
    """Nanoseconds in which a leader makes one batch of each string of request frames, applies it and writes the
    replies; and the entries in between."""
    cdef int64_t begin_ns = now_ns()
    cdef bytes frames, entry
    cdef list entries = [], taken = []
    for frames in requests:
        intake.take(replies, frames, now_ms)
        entry = proposals.seal(1, table.applied_index + 1)
        table.apply_frame(entry, len(entry), now_ms)
        proposals.applied(table)
        taken.append(replies.take())
        entries.append(entry)
    return now_ns() - begin_ns, entries


def follow(LockTable table, list entries, uint64_t now_ms):
    """Nanoseconds in which a follower applies entries."""
    cdef int64_t begin_ns = now_ns()
    cdef bytes entry
    for entry in entries:
        table.apply_frame(entry, len(entry), now_ms)
    return now_ns() - begin_ns


def lead_longest(
    Intake intake, Proposals proposals, Replies replies, LockTable table, list requests, uint64_t now_ms
):
    """The longest apply, in nanoseconds, among the batches that the strings of request frames make."""
    cdef int64_t begin_ns, longest_ns = 0
    cdef bytes frames, entry
    for frames in requests:
        intake.take(replies, frames, now_ms)
        entry = proposals.seal(1, table.applied_index + 1)
        begin_ns = own_ns()
        table.apply_frame(entry, len(entry), now_ms)
        longest_ns = max(longest_ns, own_ns() - begin_ns)
        proposals.applied(table)
        replies.take()
    return longest_ns


def drain_due(LockTable table, uint64_t now_ms, uint32_t page, uint32_t expected):
    """The longest due() call, in nanoseconds, until everything that ran out was said."""
    cdef int64_t begin_ns, longest_ns = 0
    cdef uint32_t found = 0
    while table.timers_late(now_ms):
        begin_ns = own_ns()
        due = table.due(now_ms, page)
        longest_ns = max(longest_ns, own_ns() - begin_ns)
        found += <uint32_t>len(due)
    if found != expected:
        raise AssertionError(f"{found} of {expected} were due")
    return longest_ns
