"""The replicated lock table of one group: commands in, replies, wakes and events out (docs/LOCKS.md).

One compilation unit, so that the compiler sees through the whole path of a command; the parts are
    memory    rows, claims, leases, sessions and their lists
    dirty     what the next checkpoint has to write, and rows as they are stored
    timers    what has run out (this node's own)
    queues    grants, departures, serving
    sessions, leases, acquire, release, groups, import: the commands
    checkpoint, inspect: what the node and tests ask for from Python
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport bsearch, calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from fastlock._core.buffer cimport buffer_free, buffer_reserve, buffer_t
from fastlock._core.commands cimport (
    BATCH_COMMANDS_MAX,
    command_item,
    command_setting,
    entry_command,
    entry_open,
    entry_t,
    member_decode,
    member_t,
    membership_t,
    setting_t,
)
from fastlock._core.hashing cimport hash_fold, key_hash
from fastlock._core.history cimport (
    event_t,
    history_append,
    history_free,
    history_init,
    history_outran,
    history_read,
    history_reset,
)
from fastlock._core.index cimport (
    index_count,
    index_find_first,
    index_find_next,
    index_free,
    index_init,
    index_prefetch,
    index_put,
    index_remove,
    index_scan,
    index_t,
    probe_t,
)
from fastlock._core.layout cimport *
from fastlock._core.prefetch cimport prefetch, prefetch_to_write
from fastlock._core.rows cimport (
    answer_row_at,
    answer_row_t,
    claim_row_at,
    claim_row_t,
    group_row_decode,
    group_row_encode,
    group_row_t,
    lease_row_decode,
    lease_row_encode,
    lease_row_t,
    lock_row_decode,
    lock_row_encode,
    lock_row_t,
    moved_slots_at,
    moved_slots_t,
    session_row_decode,
    session_row_encode,
    session_row_t,
    setting_row_at,
)
from fastlock._core.slab cimport (
    SLAB_CHUNK_BITS,
    SLAB_CHUNK_MASK,
    slab_add_chunk,
    slab_at,
    slab_clear,
    slab_give,
    slab_init,
    slab_t,
    slab_take,
)
from fastlock._core.slots cimport SLOTS_TOTAL, key_slot
from fastlock._core.timers cimport (
    WHEEL_TOUCHES_MAX,
    due_node_t,
    wheel_add,
    wheel_advance,
    wheel_free,
    wheel_init,
    wheel_move,
    wheel_next_deadline_hint,
    wheel_node,
    wheel_node_t,
    wheel_rearm_due,
    wheel_remove,
)
from fastlock._core.types cimport command_t, outcome_t, slice_t
from fastlock._core.wire cimport list_t, load64, message_t

from typing import NamedTuple

from fastlock.errors import EventsLost, MalformedFrame, UnknownCommand, UnsupportedVersion


cdef extern from "Python.h":
    void Py_FatalError(const char* message) noexcept nogil

cdef extern from *:
    """
    #ifndef FASTLOCK_DEBUG
    #define FASTLOCK_DEBUG 0
    #endif

    /* memcmp of a key that ends near the end of its cache line reads beyond it, into the line of another row that
       nobody asked for: with a cold table that was a fifth of a release. This reads nothing but the keys. */
    static inline int fastlock_same_bytes(const uint8_t* a, const uint8_t* b, uint32_t size) {
        uint64_t x, y;
        if (size < 8) {
            while (size && a[size - 1] == b[size - 1]) size--;
            return size == 0;
        }
        for (uint32_t at = 0; at + 8 < size; at += 8) {
            memcpy(&x, a + at, 8);
            memcpy(&y, b + at, 8);
            if (x != y) return 0;
        }
        memcpy(&x, a + size - 8, 8);
        memcpy(&y, b + size - 8, 8);
        return x == y;
    }
    """
    bint same_bytes "fastlock_same_bytes"(const uint8_t* a, const uint8_t* b, uint32_t size) noexcept nogil
    const int FASTLOCK_DEBUG


cdef enum:
    HISTORY_BYTES_MAX = 4 << 20
    HISTORY_EVENTS_MAX = 1 << 16
    PREFETCH_COMMANDS = 64
    LIST_SCANNED_MAX = 4096
    DEBUG_CHECK_ROWS_MAX = 4096

ROW_GROUP = ROW_KIND_GROUP
ROW_SESSION = ROW_KIND_SESSION
ROW_LEASE = ROW_KIND_LEASE
ROW_LOCK = ROW_KIND_LOCK


class Outcome(NamedTuple):
    """A reply (position ≥ 0) or a wake (position −1). Fields LOCKS.md does not name are 0."""

    position: int
    code: int
    kind: int
    count: int
    detail: int
    waiter: int
    token: int
    revision: int


class Event(NamedTuple):
    """A change of a lock, as watchers see it."""

    revision: int
    kind: int
    mode: int
    token: int
    key: bytes
    owner: bytes
    value: bytes


class Due(NamedTuple):
    """One command the leader should propose: expire, noteRemaining, expireSession or endDelay."""

    kind: int
    lease_high: int
    lease_low: int
    session: int
    key: bytes
    generation: int
    amount_ms: int


class KeptAlive(NamedTuple):
    """What a keep-alive did."""

    code: int
    lost_revision: int
    expiring: bool
    noted: bool
    generation: int


class Frozen(NamedTuple):
    """What a checkpoint covers, and how many rows and deletes it will write, the group row included."""

    index: int
    term: int
    revision: int
    rows: int


cdef uint8_t no_byte = 0
cdef const uint8_t* NO_BYTES = &no_byte
cdef slice_t NOTHING
NOTHING.data = NO_BYTES
NOTHING.size = 0

# What a look ahead found out about a command.
cdef struct hint_t:
    uint64_t hash                    # of its key
    uint32_t slot                    # of its key, or SLOTS_TOTAL: not looked at


# Commands of the entry being applied: one apply runs at a time, under the GIL.
cdef command_t* decoded = <command_t*>malloc(BATCH_COMMANDS_MAX * sizeof(command_t))
if decoded == NULL:
    raise MemoryError


cdef inline bytes bytes_of(slice_t content):
    return PyBytes_FromStringAndSize(<const char*>content.data, content.size)


include "locktable_memory.pxi"
include "locktable_dirty.pxi"
include "locktable_timers.pxi"
include "locktable_queues.pxi"
include "locktable_leases.pxi"
include "locktable_sessions.pxi"
include "locktable_acquire.pxi"
include "locktable_release.pxi"
include "locktable_groups.pxi"
include "locktable_import.pxi"
include "locktable_checkpoint.pxi"
include "locktable_inspect.pxi"
include "locktable_invariants.pxi"


cdef bint table_init(table_t* t, uint32_t group, uint64_t history_bytes_max,
                     uint64_t history_events_max) noexcept nogil:
    memset(t, 0, sizeof(table_t))
    t.group = group
    default_settings(t.settings)
    slab_init(&t.rows, sizeof(row_t))
    slab_init(&t.claims, sizeof(claim_t))
    slab_init(&t.leases, sizeof(lease_t))
    slab_init(&t.sessions, sizeof(session_t))
    slab_init(&t.extras, sizeof(extra_t))
    t.slot_states = <uint8_t*>calloc(SLOTS_TOTAL, sizeof(uint8_t))
    t.slot_targets = <uint32_t*>calloc(SLOTS_TOTAL, sizeof(uint32_t))
    return (t.slot_states != NULL and t.slot_targets != NULL
            and index_init(&t.row_index) and index_init(&t.lease_index) and index_init(&t.session_index)
            and history_init(&t.history, history_bytes_max, history_events_max, 0) and wheel_init(&t.wheel, 0))


cdef void table_free(table_t* t) noexcept:
    """Gives back everything, also of a table whose initialisation failed half-way."""
    cdef uint32_t i
    free_contents(t)
    slab_clear(&t.rows)
    slab_clear(&t.claims)
    slab_clear(&t.leases)
    slab_clear(&t.sessions)
    slab_clear(&t.extras)
    index_free(&t.row_index)
    index_free(&t.lease_index)
    index_free(&t.session_index)
    history_free(&t.history)
    wheel_free(&t.wheel)
    free(t.slot_states)
    free(t.slot_targets)
    free(t.row_slots)
    free(t.outcomes)
    for i in range(DIRTY_KINDS):
        handles_free(&t.dirty.listed0[i])
        handles_free(&t.dirty.listed1[i])
    for i in range(2):
        buffer_free(&t.dirty.deletes[i])
    buffer_free(&t.dirty.images)
    buffer_free(&t.dirty.group_row)
    handles_free(&t.serving)
    handles_free(&t.linked)
    handles_free(&t.found)
    handles_free(&t.freed)
    handles_free(&t.swept_rows)
    handles_free(&t.swept_leases)
    free(t.waiting.items)
    free(t.holding.items)
    buffer_free(&t.scratch)
    memset(t, 0, sizeof(table_t))


cdef void free_contents(table_t* t) noexcept nogil:
    """Keys, values, owners and answers that have memory of their own."""
    cdef handles_t all
    cdef row_t* row
    cdef uint32_t i
    memset(&all, 0, sizeof(all))
    if t.row_index.table.cells == NULL or t.lease_index.table.cells == NULL or t.session_index.table.cells == NULL:
        return
    collect_handles(&t.row_index, &all)
    for i in range(all.count):
        row = row_at(t, all.items[i])
        if row.key_size > KEY_INLINE_BYTES:
            free(<void*>row_key(row).data)
        if row.extra:
            free(extra_at(t, row.extra).value)
    collect_handles(&t.lease_index, &all)
    for i in range(all.count):
        drop_lease_owner(lease_at(t, all.items[i]))
    collect_handles(&t.session_index, &all)
    for i in range(all.count):
        free(session_at(t, all.items[i]).answers)
    handles_free(&all)


cdef void act(table_t* t, const command_t* command, const hint_t* hint, uint32_t session,
              outcome_t* reply) noexcept nogil:
    """Carries out a command that its session lets through; `reply` comes as a plain ok."""
    cdef uint32_t kind = command.kind
    if kind == COMMAND_ACQUIRE:
        acquire(t, command, hint, reply)
    elif kind == COMMAND_RELEASE:
        release(t, command, hint, reply)
    elif kind == COMMAND_ACQUIRE_ALL:
        acquire_all(t, command, reply)
    elif kind == COMMAND_CANCEL_WAIT:
        cancel_wait(t, command, hint, session, reply)
    elif kind == COMMAND_EXPIRE:
        expire_lease(t, command, reply)
    elif kind == COMMAND_CREATE_LEASE:
        create_lease(t, command, reply)
    elif kind == COMMAND_CHANGE_TTL:
        change_ttl(t, command, reply)
    elif kind == COMMAND_NOTE_REMAINING:
        note_remaining(t, command, reply)
    elif kind == COMMAND_REVOKE:
        revoke_lease(t, command, reply)
    elif kind == COMMAND_PUT_VALUE:
        put_value(t, command, hint, reply)
    elif kind == COMMAND_DELETE_VALUE:
        delete_value(t, command, hint, reply)
    elif kind == COMMAND_FORCE_RELEASE:
        force_release(t, command, hint, reply)
    elif kind == COMMAND_END_DELAY:
        end_delay(t, command, hint, reply)
    elif kind == COMMAND_OPEN_SESSION:
        open_session(t, command, reply)
    elif kind == COMMAND_CLOSE_SESSION:
        close_session(t, command, session, reply)
    elif kind == COMMAND_EXPIRE_SESSION:
        expire_session(t, command, reply)
    else:
        act_on_group(t, command, reply)


cdef void act_on_group(table_t* t, const command_t* command, outcome_t* reply) noexcept nogil:
    cdef uint32_t kind = command.kind
    if kind == COMMAND_CONFIGURE:
        configure(t, command, reply)
    elif kind == COMMAND_OWN_SLOTS:
        own_slots(t, command, reply)
    elif kind == COMMAND_EXPORT_SLOTS:
        export_slots(t, command, reply)
    elif kind == COMMAND_IMPORT_SLOTS:
        import_slots(t, command, reply)
    elif kind == COMMAND_DROP_SLOTS:
        drop_slots(t, command, reply)


cdef inline void apply_command(table_t* t, const command_t* command, const hint_t* hint,
                               int32_t position) noexcept nogil:
    cdef outcome_t reply
    cdef uint32_t session = 0
    memset(&reply, 0, sizeof(reply))
    reply.position = position
    reply.kind = command.kind
    if command.session:
        session = find_session(t, command.session)
    if command.session == 0 or not session_decides(t, command, session, &reply):
        act(t, command, hint, session, &reply)
        if session and command.kind != COMMAND_CLOSE_SESSION:
            record_answer(session_at(t, session), command.sequence, &reply)
        if t.swept_rows.count or t.swept_leases.count:
            sweep(t)
    add_outcome(t)[0] = reply


cdef void prefetch_commands(table_t* t, const command_t* commands, uint32_t count, hint_t* hints) noexcept nogil:
    """Asks for the memory of a run of commands, one level of indirection at a time over all of them.

    What is read on the way may have changed when a command's turn comes; only the hash and the slot are kept.
    """
    cdef uint32_t[PREFETCH_COMMANDS] rows
    cdef uint32_t[PREFETCH_COMMANDS] leases
    cdef uint32_t free_row = t.rows.free_first, free_lease = t.leases.free_first
    cdef uint32_t i
    cdef probe_t probe
    for i in range(count):
        hints[i].hash = hash_of_key(t, commands[i].key)
        hints[i].slot = SLOTS_TOTAL
        index_prefetch(&t.row_index, tag_of_hash(hints[i].hash))
        leases[i] = tag_of_lease(t, commands[i].lease_high, commands[i].lease_low)
        index_prefetch(&t.lease_index, leases[i])
    for i in range(count):
        rows[i] = index_find_first(&t.row_index, tag_of_hash(hints[i].hash), &probe)
        if rows[i]:
            prefetch(row_at(t, rows[i]))
        elif commands[i].kind == COMMAND_ACQUIRE:
            hints[i].slot = key_slot(commands[i].key)
        leases[i] = index_find_first(&t.lease_index, leases[i], &probe)
        if leases[i]:
            prefetch_item(lease_at(t, leases[i]), sizeof(lease_t))
    for i in range(count):
        if rows[i]:
            if row_at(t, rows[i]).holder_first:
                prefetch(claim_at(t, row_at(t, rows[i]).holder_first))
        elif commands[i].kind == COMMAND_ACQUIRE:
            free_row = prefetch_next_row(t, free_row)
            if leases[i] == 0:
                free_lease = prefetch_next_lease(t, free_lease)


cdef inline uint32_t prefetch_next_row(table_t* t, uint32_t handle) noexcept nogil:
    """What a row to come needs beside the given-back one it will take; the handle of the one after it."""
    if handle == 0:
        return 0
    prefetch_to_write(&t.row_slots[handle])
    return (<uint32_t*>row_at(t, handle))[0]


cdef inline uint32_t prefetch_next_lease(table_t* t, uint32_t handle) noexcept nogil:
    """Like prefetch_next_row: the timer that comes with the handle."""
    if handle == 0:
        return 0
    if lease_at(t, handle).timer:
        prefetch_item(wheel_node(&t.wheel, lease_at(t, handle).timer), sizeof(wheel_node_t))
    return (<uint32_t*>lease_at(t, handle))[0]


cdef void apply_commands(table_t* t, const command_t* commands, uint32_t count) noexcept nogil:
    cdef hint_t[PREFETCH_COMMANDS] hints
    cdef uint32_t begin = 0, size, i
    while begin < count:
        # Hints are good up to a command that may change the seed.
        size = 1
        while (begin + size < count and size < PREFETCH_COMMANDS
                and commands[begin + size - 1].kind != COMMAND_CONFIGURE):
            size += 1
        prefetch_commands(t, commands + begin, size, hints)
        for i in range(size):
            apply_command(t, &commands[begin + i], &hints[i], <int32_t>(begin + i))
        begin += size


cdef object decode_error(int code):
    if code == CODE_UNSUPPORTED_VERSION:
        return UnsupportedVersion(code, "log entry of another format version: upgrade this node")
    if code == CODE_UNKNOWN_COMMAND:
        return UnknownCommand(code, "log entry with a command this release does not know: upgrade this node")
    return MalformedFrame(CODE_MALFORMED_FRAME, "damaged log entry: restore it from another member")


cdef int check_revisions(table_t* t, const command_t* commands, uint32_t count) except -1:
    """Stops the group before its revisions leave the range in which they are safe numbers everywhere."""
    cdef uint64_t highest = t.revision
    cdef uint32_t i
    for i in range(count):
        if commands[i].kind == COMMAND_IMPORT_SLOTS and commands[i].target < <uint64_t>1 << 53:
            highest = max(highest, commands[i].target)
    if highest >= <uint64_t>REVISION_STOP:
        raise OverflowError(f"group {t.group} has used up its revisions: move its slots to another group")
    return 0


cdef list read_members(message_t* message, const list_t* members):
    cdef member_t member
    cdef uint32_t i
    cdef list read = []
    for i in range(members.count):
        if member_decode(message, members, i, &member) != CODE_OK:
            raise decode_error(CODE_MALFORMED_FRAME)
        read.append((member.node, member.incarnation, member.role, bytes_of(member.address)))
    return read


@cython.final
cdef class LockTable:
    """The replicated state of one group and this node's timers, history and dirty rows for it."""

    def __cinit__(self, uint32_t group, *, history_bytes_max=HISTORY_BYTES_MAX, history_events_max=HISTORY_EVENTS_MAX):
        self.history_bytes_max = history_bytes_max
        self.history_events_max = history_events_max
        self.members = []
        self.load_links = {}
        if not table_init(&self.table, group, self.history_bytes_max, self.history_events_max):
            raise MemoryError

    def __dealloc__(self):
        table_free(&self.table)

    def clear(self):
        """Back to an empty group at revision 0."""
        cdef uint32_t group = self.table.group
        table_free(&self.table)
        self.outcomes = NULL
        self.outcome_count = 0
        self.members = []
        self.load_links = {}
        self.load_key_last = None
        self.load_ended = 0
        if not table_init(&self.table, group, self.history_bytes_max, self.history_events_max):
            raise MemoryError

    @property
    def group(self):
        return self.table.group

    @property
    def revision(self):
        return self.table.revision

    @property
    def applied_index(self):
        return self.table.applied_index

    @property
    def applied_term(self):
        return self.table.applied_term

    @property
    def lock_count(self):
        """Rows: locks held or waited for, values, delays."""
        return self.table.rows.live

    @property
    def lease_count(self):
        return self.table.leases.live

    @property
    def session_count(self):
        return self.table.sessions.live

    @property
    def claim_count(self):
        """Holders and waiters."""
        return self.table.claims.live

    @property
    def waiter_count(self):
        return self.table.waiter_count

    @property
    def holder_count(self):
        return self.table.claims.live - self.table.waiter_count

    @property
    def history_floor(self):
        """Events after this revision are in the history."""
        return self.table.history.floor

    @property
    def membership(self):
        """What the last membership entry said: (node, incarnation, role, address) of each member."""
        return list(self.members)

    @membership.setter
    def membership(self, members):
        self.members = [(node, incarnation, role, bytes(address)) for node, incarnation, role, address in members]

    # Applying

    cdef int apply_frame(self, const uint8_t* frame, size_t size, uint64_t now_ms) except -1:
        """Applies one LogEntry frame; its outcomes are in `outcomes` until the next call."""
        cdef table_t* t = &self.table
        cdef entry_t entry
        cdef uint32_t i
        cdef int code = entry_open(frame, size, &entry)
        if code != CODE_OK:
            raise decode_error(code)
        if entry.group != t.group:
            raise ValueError(f"entry of group {entry.group} given to group {t.group}")
        assert t.applied_index == 0 or entry.index == t.applied_index + 1, (
            f"entry {entry.index} after {t.applied_index}")
        assert entry.term >= t.applied_term, f"term {entry.term} after {t.applied_term}"
        if entry.commands.count > BATCH_COMMANDS_MAX:
            raise decode_error(CODE_MALFORMED_FRAME)
        for i in range(entry.commands.count):
            code = entry_command(&entry, i, &decoded[i])
            if code != CODE_OK:
                raise decode_error(code)
        check_revisions(t, decoded, entry.commands.count)
        if not reserve_batch(t, decoded, entry.commands.count):
            raise MemoryError
        if entry.kind == ENTRY_KIND_MEMBERSHIP:
            self.members = read_members(&entry.message, &entry.members)
        t.now_ms = wheel_clock(t, now_ms)
        t.outcome_count = 0
        if entry.kind == ENTRY_KIND_BATCH:
            apply_commands(t, decoded, entry.commands.count)
        t.applied_index = entry.index
        t.applied_term = entry.term
        self.outcomes = t.outcomes
        self.outcome_count = t.outcome_count
        if FASTLOCK_DEBUG and t.rows.live <= DEBUG_CHECK_ROWS_MAX and t.leases.live <= DEBUG_CHECK_ROWS_MAX:
            check_table(t)
        return 0

    def apply(self, entry, uint64_t now_ms):
        """Applies one LogEntry frame and returns the number of outcomes."""
        cdef Py_buffer view
        PyObject_GetBuffer(entry, &view, PyBUF_SIMPLE)
        try:
            self.apply_frame(<const uint8_t*>view.buf, view.len, now_ms)
        finally:
            PyBuffer_Release(&view)
        return self.outcome_count

    def outcomes_list(self):
        """What the last apply said, wakes and replies in their order. For tests and tools."""
        cdef Py_ssize_t i
        return [outcome_tuple(&self.outcomes[i]) for i in range(self.outcome_count)]

    # Time

    def lead(self, uint64_t now_ms):
        """Leadership begins: every lease, session and delay has its full time from now on."""
        self.table.is_leading = True
        self.table.lead_ms = wheel_clock(&self.table, now_ms)
        wheel_rearm_due(&self.table.wheel)

    def follow(self):
        """Leadership ends."""
        self.table.is_leading = False
        wheel_rearm_due(&self.table.wheel)

    def rearm(self):
        """Lets due() say again what it said and what nothing came of."""
        wheel_rearm_due(&self.table.wheel)

    def skip_time(self, uint64_t gap_ms):
        """Moves every deadline by a gap in which this node did not run."""
        self.table.skipped_ms += gap_ms

    def due(self, uint64_t now_ms, uint32_t max_count):
        """What has run out, each said once."""
        if not self.table.is_leading:
            return []
        return collect_due(&self.table, wheel_clock(&self.table, now_ms), max_count)

    def timers_late(self, uint64_t now_ms):
        """Whether another due() at the same time would find more to look at."""
        cdef uint64_t now = wheel_clock(&self.table, now_ms)
        return bool(self.table.is_leading and wheel_next_deadline_hint(&self.table.wheel, now) <= now)

    def keep_alive(self, uint64_t lease_high, uint64_t lease_low, uint64_t now_ms):
        """Gives a lease its full TTL again, unless it is lost or an expire for it is under way."""
        cdef table_t* t = &self.table
        cdef uint32_t handle = find_live_lease(t, lease_high, lease_low)
        cdef lease_t* lease
        cdef uint64_t now = wheel_clock(t, now_ms)
        cdef bint expiring = False
        assert t.is_leading, "only a leader keeps leases alive"
        if handle == 0:
            return KeptAlive(CODE_LEASE_LOST, 0, False, False, 0)
        lease = lease_at(t, handle)
        if lease.timer:
            expiring = wheel_node(&t.wheel, lease.timer).maybe_due and lease_deadline_ms(t, lease) <= now
            if not expiring:
                set_lease_timer(t, handle, now, now + <uint64_t>lease.ttl_ms)
        # 1. due() asks for a note. 2. A keep-alive gives the full TTL. 3. The note commits. 4. The next leader
        # gives only what it says. So a keep-alive meets the note from the moment it was asked for.
        noted = lease.remaining_ms != 0 or lease.marks & MARK_NOTING
        return KeptAlive(CODE_OK, lease.lost_revision, bool(expiring), bool(noted), lease.generation)

    # Reading

    def get(self, key, int64_t now_ms=-1):
        """The row as a client.capnp LockState, or None."""
        cdef bytes held = bytes(key)
        cdef slice_t wanted = slice_of(held)
        cdef uint32_t row = find_row(&self.table, wanted, hash_of_key(&self.table, wanted))
        return lock_state(&self.table, row, now_ms) if row else None

    def list(self, prefix, cursor, uint32_t limit, int64_t now_ms=-1, uint32_t scanned_max=LIST_SCANNED_MAX):
        """Rows in owned slots below `prefix`, and where to go on; an empty cursor ends it."""
        return list_rows(&self.table, bytes(prefix), bytes(cursor), limit, now_ms, scanned_max)

    def slot_owner(self, key):
        """SlotState of the key's slot and the group it was exported to (0 = none)."""
        cdef bytes held = bytes(key)
        cdef uint16_t slot = key_slot(slice_of(held))
        return self.table.slot_states[slot], self.table.slot_targets[slot]

    def events(self, uint64_t after_revision, key, bint is_prefix, uint32_t limit):
        """Events after a revision on a key or below a prefix, and the revision to go on after."""
        return read_events(&self.table, after_revision, bytes(key), is_prefix, limit)

    def dump(self):
        """The whole replicated state, for comparison."""
        return dump_table(&self.table)

    def state_hash(self):
        """64 bits over everything dump() shows, whatever order the rows are kept in."""
        return hash_table(&self.table)

    def check_invariants(self):
        """Walks everything; raises AssertionError saying what is wrong."""
        check_table(&self.table)

    # Checkpoints and slots

    @property
    def dirty_count(self):
        """Rows and deletes the next checkpoint would write, without the group row."""
        return dirty_total(&self.table)

    @property
    def is_frozen(self):
        return bool(self.table.dirty.is_frozen)

    def freeze(self):
        """Fixes a checkpoint at the applied index."""
        return freeze_table(self)

    def frozen_rows(self, uint32_t max_rows):
        """The next rows of the frozen checkpoint: deletes (None) first, the group row last, then []."""
        assert self.table.dirty.is_frozen, "no checkpoint is under way"
        return take_frozen(&self.table, max_rows)

    def thaw(self):
        """Ends a checkpoint whose rows were all taken."""
        thaw_table(&self.table)

    def load_row(self, row_key, row):
        """Takes a checkpoint's rows in the byte order of their keys, into a clear table."""
        load_one(self, bytes(row_key), bytes(row))

    def finish_load(self):
        """Checks that a load was complete; the table goes on after the checkpoint's index."""
        end_load(self)

    def export_rows(self, uint16_t first, uint16_t last, cursor, uint32_t max_rows):
        """Records for importSlots out of exported slots, and where to go on; an empty cursor ends it."""
        return export_page(&self.table, first, last, bytes(cursor), max_rows)
