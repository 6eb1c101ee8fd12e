"""The log's writer: a native thread that makes everything queued by all groups durable in one commit."""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from fastlock.storage.environment cimport (
    Environment, environment_begin_write, environment_commit, environment_grow, environment_t, load_acquire,
    store_release,
)
from fastlock.storage.lmdb_api cimport (
    MDB_MAP_FULL, MDB_NOOVERWRITE, MDB_NOTFOUND, MDB_RESERVE, MDB_SET_RANGE, MDB_val, lmdb,
)
from fastlock.storage.records cimport (
    ENTRY_HEAD_BYTES, ENTRY_KEY_BYTES, GROUP_KEY_BYTES, GROUP_RECORD_BYTES, KEY_ENTRY, KEY_GROUP, entry_key,
    entry_write, group_key, group_t, group_write, load32_big, load64_big,
)
from fastlock.storage.worker cimport (
    WORKER_JOBS_MAX, monotonic_ns, worker_fail, worker_failed, worker_finish, worker_free, worker_init, worker_push,
    worker_should_stop, worker_start, worker_stop, worker_t, worker_wait,
)

from fastlock.storage import StorageFailed
from fastlock.storage.lmdb_api import describe


cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/statvfs.h>

    /* What an unprivileged process can still write there; UINT64_MAX if it cannot be known. */
    static uint64_t fastlock_disk_free_bytes(int fd) {
        struct statvfs disk;
        if (fstatvfs(fd, &disk) != 0) return UINT64_MAX;
        return (uint64_t)disk.f_bavail * disk.f_frsize;
    }
    """
    uint64_t disk_free_bytes "fastlock_disk_free_bytes"(int fd) noexcept nogil


cdef enum:
    GROUPS_MAX = 4096
    # One transaction takes what is queued, up to this much.
    COMMIT_BYTES_MAX = 32 << 20
    QUEUED_BYTES_MAX = 512 << 20
    # Cut entries are deleted in slices: twice as many as were appended since the slice before, so that the file
    # stays flat, and a slice only now and then, so that a commit seldom has one to do.
    SWEEP_AFTER_ENTRIES = 64
    SWEEP_ROWS_MIN = 128
    SWEEP_ROWS_MAX = 8192
    # With nothing else to write, one slice after this pause.
    SWEEP_IDLE_MS = 20
    # LMDB gives out a page again two commits after the one that freed it.
    COMMITS_UNTIL_REUSE = 2
    DISK_LOOK_EVERY_COMMITS = 64


cdef struct log_entry_t:
    uint64_t index
    uint64_t term
    const uint8_t* data
    PyObject* owner               # of the data; kept alive until the job is released
    uint32_t size
    uint16_t kind


cdef struct log_job_t:
    uint32_t group
    uint32_t entry_count
    uint64_t bytes
    uint64_t seq                  # of the write; 0 = a cut
    uint64_t cut_index
    bint hard_state
    uint64_t term
    uint64_t vote
    uint64_t reset_index
    uint64_t truncate_from
    log_entry_t* entries          # in the same allocation


cdef struct log_t:
    worker_t worker
    environment_t* environment
    # The groups as the newest commit left them, and as the transaction under way will.
    group_t* committed
    group_t* working
    uint32_t group_count
    uint32_t working_count
    uint32_t sweep_turn
    uint64_t entries_since_sweep
    const char* step              # what the thread is about to do, for the message if it fails
    int directory_fd
    # Figures for the loop; atomic.
    uint64_t commits
    uint64_t commit_ns_total
    uint64_t commit_ns_max
    uint64_t disk_free


cdef group_t* group_of(log_t* log, uint32_t group) noexcept nogil:
    """The group in the working copy, new if it is not known; NULL when there are too many."""
    cdef uint32_t position
    for position in range(log.working_count):
        if log.working[position].group == group:
            return &log.working[position]
    if log.working_count == GROUPS_MAX:
        return NULL
    position = log.working_count
    log.working_count += 1
    memset(&log.working[position], 0, sizeof(group_t))
    log.working[position].group = group
    return &log.working[position]


cdef int delete_entries(void* transaction, unsigned int dbi, uint32_t group, uint64_t first,
                        uint64_t last) noexcept nogil:
    cdef uint8_t[ENTRY_KEY_BYTES] name
    cdef MDB_val key
    cdef uint64_t index = first
    cdef int code
    while index <= last:
        entry_key(name, group, index)
        key.mv_size = ENTRY_KEY_BYTES
        key.mv_data = name
        code = lmdb.delete(transaction, dbi, &key, NULL)
        if code != 0 and code != MDB_NOTFOUND:
            return code
        index += 1
    return 0


cdef int put_entries(void* transaction, unsigned int dbi, group_t* group, const log_job_t* job) noexcept nogil:
    cdef uint8_t[ENTRY_KEY_BYTES] name
    cdef MDB_val key, record
    cdef const log_entry_t* entry
    cdef uint32_t position
    cdef int code
    for position in range(job.entry_count):
        entry = &job.entries[position]
        if entry.index != group.last_index + 1:
            return EINVAL
        entry_key(name, group.group, entry.index)
        key.mv_size = ENTRY_KEY_BYTES
        key.mv_data = name
        record.mv_size = ENTRY_HEAD_BYTES + entry.size
        code = lmdb.put(transaction, dbi, &key, &record, MDB_NOOVERWRITE | MDB_RESERVE)
        if code != 0:
            return code
        entry_write(<uint8_t*>record.mv_data, group.group, entry.index, entry.term, entry.kind, entry.data, entry.size)
        group.last_index = entry.index
    return 0


cdef int apply_job(log_t* log, void* transaction, const log_job_t* job) noexcept nogil:
    """What one write says, in its order. Nothing counts before the commit."""
    cdef unsigned int dbi = log.environment.dbi
    cdef group_t* group = group_of(log, job.group)
    cdef int code
    if group == NULL:
        return ENOMEM
    group.changed = True
    if job.seq == 0:
        if group.cut_index < job.cut_index <= group.last_index:
            group.cut_index = job.cut_index
            group.sweeping = True
        return 0
    if job.hard_state:
        group.term = job.term
        group.vote = job.vote
    if job.reset_index != 0:
        code = delete_entries(transaction, dbi, job.group, job.reset_index + 1, group.last_index)
        if code != 0:
            return code
        # The rest lies at or below the cut and goes in slices.
        group.cut_index = group.last_index = job.reset_index
        group.sweeping = True
    if job.truncate_from != 0 and job.truncate_from <= group.last_index:
        if job.truncate_from <= group.cut_index:
            return EINVAL
        code = delete_entries(transaction, dbi, job.group, job.truncate_from, group.last_index)
        if code != 0:
            return code
        group.last_index = job.truncate_from - 1
    log.entries_since_sweep += job.entry_count
    return put_entries(transaction, dbi, group, job)


cdef int sweep_group(void* transaction, unsigned int dbi, group_t* group, uint64_t* rows_left) noexcept nogil:
    """Deletes entries that were cut, as many as may be."""
    cdef uint8_t[ENTRY_KEY_BYTES] name
    cdef MDB_val key, record
    cdef void* cursor
    cdef const uint8_t* found
    cdef uint64_t first, last
    cdef int code = lmdb.cursor_open(transaction, dbi, &cursor)
    if code != 0:
        return code
    entry_key(name, group.group, 0)
    key.mv_size = ENTRY_KEY_BYTES
    key.mv_data = name
    code = lmdb.cursor_get(cursor, &key, &record, MDB_SET_RANGE)
    lmdb.cursor_close(cursor)
    if code != 0 and code != MDB_NOTFOUND:
        return code
    found = <const uint8_t*>key.mv_data
    if (
        code == MDB_NOTFOUND
        or key.mv_size != ENTRY_KEY_BYTES
        or found[0] != KEY_ENTRY
        or load32_big(found + 1) != group.group
        or load64_big(found + 5) > group.cut_index
    ):
        group.sweeping = False
        return 0
    first = load64_big(found + 5)
    last = min(group.cut_index, first + rows_left[0] - 1)
    rows_left[0] -= last + 1 - first
    return delete_entries(transaction, dbi, group.group, first, last)


cdef bint has_sweeping(const log_t* log) noexcept nogil:
    cdef uint32_t position
    for position in range(log.group_count):
        if log.committed[position].sweeping:
            return True
    return False


cdef int sweep_slice(log_t* log, void* transaction) noexcept nogil:
    """A slice of what was cut, of one group after the other."""
    cdef uint64_t rows_left = min(max(2 * log.entries_since_sweep, <uint64_t>SWEEP_ROWS_MIN), <uint64_t>SWEEP_ROWS_MAX)
    cdef uint32_t tried, position
    cdef int code
    log.entries_since_sweep = 0
    for tried in range(log.working_count):
        position = (log.sweep_turn + tried) % log.working_count
        if log.working[position].sweeping:
            code = sweep_group(transaction, log.environment.dbi, &log.working[position], &rows_left)
            if code != 0:
                return code
            if rows_left == 0:
                log.sweep_turn = position
                break
    return 0


cdef int put_groups(log_t* log, void* transaction) noexcept nogil:
    cdef uint8_t[GROUP_KEY_BYTES] name
    cdef uint8_t[GROUP_RECORD_BYTES] bytes_
    cdef MDB_val key, record
    cdef group_t* group
    cdef uint32_t position
    cdef int code
    for position in range(log.working_count):
        group = &log.working[position]
        if not group.changed:
            continue
        group.changed = False
        group_key(name, KEY_GROUP, group.group)
        group_write(bytes_, group)
        key.mv_size = GROUP_KEY_BYTES
        key.mv_data = name
        record.mv_size = GROUP_RECORD_BYTES
        record.mv_data = bytes_
        code = lmdb.put(transaction, log.environment.dbi, &key, &record, 0)
        if code != 0:
            return code
    return 0


cdef int fill_transaction(log_t* log, void* transaction, uint64_t first, uint64_t end, bint sweep) noexcept nogil:
    cdef uint64_t position = first
    cdef int code
    log.step = "write to"
    while position < end:
        code = apply_job(log, transaction, <const log_job_t*>log.worker.slots[position % WORKER_JOBS_MAX])
        if code != 0:
            return code
        position += 1
    if sweep or log.entries_since_sweep >= SWEEP_AFTER_ENTRIES:
        code = sweep_slice(log, transaction)
        if code != 0:
            return code
    return put_groups(log, transaction)


cdef int try_commit(log_t* log, uint64_t first, uint64_t end, bint sweep) noexcept nogil:
    """Everything from `first` to `end` in one durable transaction, or nothing of it."""
    cdef void* transaction
    cdef int code
    memcpy(log.working, log.committed, log.group_count * sizeof(group_t))
    log.working_count = log.group_count
    log.step = "begin a transaction in"
    code = environment_begin_write(log.environment, &transaction)
    if code != 0:
        return code
    code = fill_transaction(log, transaction, first, end, sweep)
    if code != 0:
        lmdb.txn_abort(transaction)
        return code
    log.step = "commit to"
    code = environment_commit(log.environment, transaction)
    if code == 0:
        memcpy(log.committed, log.working, log.working_count * sizeof(group_t))
        log.group_count = log.working_count
    return code


cdef int make_room(log_t* log) noexcept nogil:
    """Deletes a slice of what was cut and lets its pages become free; MDB_MAP_FULL if there is nothing to delete."""
    cdef int commits, code
    if not has_sweeping(log):
        return MDB_MAP_FULL
    for commits in range(1 + COMMITS_UNTIL_REUSE):
        # A transaction that changes nothing would not count.
        log.committed[0].changed = True
        code = try_commit(log, 0, 0, commits == 0)
        log.committed[0].changed = False
        if code != 0:
            return code
    return 0


cdef int commit(log_t* log, uint64_t first, uint64_t end, bint sweep) noexcept nogil:
    """try_commit, in a larger map if it does not fit.

    MDB_MAP_FULL is the one error after which another attempt is right: LMDB finds it while it looks for free pages,
    before it writes anything. At the bound of the map only deleting what was cut can help.
    """
    cdef int code
    while True:
        code = try_commit(log, first, end, sweep)
        if code != MDB_MAP_FULL:
            return code
        code = environment_grow(log.environment)
        if code == MDB_MAP_FULL:
            code = make_room(log)
        if code != 0:
            return code


cdef uint64_t bounded_end(const log_t* log, uint64_t first, uint64_t tail) noexcept nogil:
    cdef uint64_t size = 0
    cdef uint64_t end = first
    while end < tail:
        size += (<const log_job_t*>log.worker.slots[end % WORKER_JOBS_MAX]).bytes
        if size > COMMIT_BYTES_MAX and end > first:
            break
        end += 1
    return end


cdef void note_commit(log_t* log, uint64_t started_ns) noexcept nogil:
    cdef uint64_t took_ns = monotonic_ns() - started_ns
    store_release(&log.commit_ns_total, log.commit_ns_total + took_ns)
    store_release(&log.commit_ns_max, max(log.commit_ns_max, took_ns))
    store_release(&log.commits, log.commits + 1)
    if log.commits % DISK_LOOK_EVERY_COMMITS == 0:
        store_release(&log.disk_free, disk_free_bytes(log.directory_fd))


cdef void run(void* context) noexcept nogil:
    cdef log_t* log = <log_t*>context
    cdef uint64_t taken = 0
    cdef uint64_t tail, end, started_ns
    cdef int code
    while True:
        tail = worker_wait(&log.worker, taken, SWEEP_IDLE_MS if has_sweeping(log) else -1)
        if tail == taken and worker_should_stop(&log.worker):
            return
        if tail == taken and not has_sweeping(log):
            continue
        started_ns = monotonic_ns()
        end = bounded_end(log, taken, tail)
        code = commit(log, taken, end, tail == taken)
        if code != 0:
            worker_fail(&log.worker, code, log.step)
            return
        note_commit(log, started_ns)
        if end != taken:
            taken = end
            worker_finish(&log.worker, taken)


@cython.final
@cython.no_gc_clear  # what it holds must be there until its thread ended
cdef class LogThread:
    cdef log_t log
    cdef Environment environment
    cdef dict durable             # group -> index of its last durable entry
    cdef uint64_t queued
    cdef bint closed

    def __cinit__(self):
        memset(&self.log, 0, sizeof(log_t))

    def __init__(self, Environment environment not None, groups, int event_fd, int directory_fd):
        cdef group_t* group
        self.environment = environment
        self.durable = {}
        self.log.environment = &environment.c
        self.log.directory_fd = directory_fd
        self.log.disk_free = disk_free_bytes(directory_fd)
        self.log.committed = <group_t*>calloc(GROUPS_MAX, sizeof(group_t))
        self.log.working = <group_t*>calloc(GROUPS_MAX, sizeof(group_t))
        if self.log.committed == NULL or self.log.working == NULL:
            raise MemoryError
        for number, term, vote, cut_index, last_index in groups:
            if self.log.group_count == GROUPS_MAX:
                raise StorageFailed(f"{environment.path} has more than {GROUPS_MAX} groups")
            group = &self.log.committed[self.log.group_count]
            self.log.group_count += 1
            group.group = number
            group.term = term
            group.vote = vote
            group.cut_index = cut_index
            group.last_index = last_index
            group.sweeping = True
            self.durable[number] = last_index
        worker_init(&self.log.worker, event_fd)
        worker_start(&self.log.worker, run, &self.log)

    def __dealloc__(self):
        self.close()
        free(self.log.committed)
        free(self.log.working)

    def close(self):
        """Makes durable what is queued, unless the thread failed, and ends the thread."""
        if self.closed:
            return
        self.closed = True
        worker_stop(&self.log.worker)
        if self.log.worker.slots != NULL:
            self.release(self.log.worker.tail)
            worker_free(&self.log.worker)

    cdef int push(self, log_job_t* job) except -1:
        """Takes over the job, whatever happens."""
        if self.closed or worker_failed(&self.log.worker):
            free_job(job)
            self.raise_if_failed()
            raise StorageFailed("the storage is closed")
        if self.queued + job.bytes > QUEUED_BYTES_MAX or not worker_push(&self.log.worker, job):
            free_job(job)
            raise StorageFailed(
                f"the disk under {self.environment.path} does not keep up: {self.queued >> 20} MiB wait for it; "
                "look at its health and load, then start the node again"
            )
        self.queued += job.bytes
        return 0

    def append(self, uint32_t group, write):
        """Queues one write; the bytes of its entries stay alive until it is released."""
        entries = write.entries
        cdef uint32_t position = 0
        cdef log_entry_t* slot
        cdef bytes data
        cdef log_job_t* job = new_job(group, len(entries))
        try:
            job.seq = write.seq
            job.hard_state = write.hard_state
            job.term = write.term
            job.vote = write.vote
            job.reset_index = write.reset_index
            job.truncate_from = write.truncate_from
            assert job.seq != 0, "write sequence numbers start at 1"
            for entry in entries:
                slot = &job.entries[position]
                data = entry.data
                slot.index = entry.index
                slot.term = entry.term
                slot.kind = entry.kind
                slot.data = <const uint8_t*><char*>data
                slot.size = len(data)
                slot.owner = <PyObject*>data
                Py_INCREF(data)
                job.bytes += slot.size + ENTRY_HEAD_BYTES
                position += 1
        except BaseException:
            free_job(job)
            raise
        self.push(job)

    def cut(self, uint32_t group, uint64_t index):
        cdef log_job_t* job = new_job(group, 0)
        job.cut_index = index
        self.push(job)

    cdef list release(self, uint64_t end):
        """Gives back the jobs up to `end`; the newest write of each group."""
        cdef worker_t* worker = &self.log.worker
        cdef log_job_t* job
        cdef dict newest = {}
        while worker.released < end:
            job = <log_job_t*>worker.slots[worker.released % WORKER_JOBS_MAX]
            if job.seq != 0:
                newest[job.group] = job.seq
                self.note_durable(job)
            self.queued -= job.bytes
            free_job(job)
            worker.released += 1
        return list(newest.items())

    cdef int note_durable(self, const log_job_t* job) except -1:
        cdef uint64_t last = self.durable.get(job.group, 0)
        if job.reset_index != 0:
            last = job.reset_index
        if job.truncate_from != 0:
            last = min(last, job.truncate_from - 1)
        if job.entry_count != 0:
            last = job.entries[job.entry_count - 1].index
        self.durable[job.group] = last
        return 0

    def raise_if_failed(self):
        if worker_failed(&self.log.worker):
            raise StorageFailed(
                f"could not {(<bytes>self.log.worker.failure_step).decode()} {self.environment.path}: "
                f"{describe(self.log.worker.failure_code)}; the node stops, nothing is acknowledged any more"
            )

    def take_durable(self):
        """(group, write seq) of what became durable since the last call, the highest of each group."""
        self.raise_if_failed()
        if self.closed:
            return []
        return self.release(load_acquire(&self.log.worker.done))

    def durable_index(self, uint32_t group):
        """The last entry that take_durable has told to be there."""
        return self.durable.get(group, 0)

    @property
    def queued_bytes(self):
        return self.queued

    @property
    def queued_writes(self):
        return self.log.worker.tail - self.log.worker.released

    @property
    def commits(self):
        return load_acquire(&self.log.commits)

    @property
    def commit_ns_total(self):
        return load_acquire(&self.log.commit_ns_total)

    @property
    def commit_ns_max(self):
        return load_acquire(&self.log.commit_ns_max)

    @property
    def disk_free_bytes(self):
        return load_acquire(&self.log.disk_free)


cdef log_job_t* new_job(uint32_t group, size_t entry_count) except NULL:
    cdef log_job_t* job = <log_job_t*>calloc(1, sizeof(log_job_t) + entry_count * sizeof(log_entry_t))
    if job == NULL:
        raise MemoryError
    job.group = group
    job.entry_count = <uint32_t>entry_count
    job.bytes = sizeof(log_job_t)
    job.entries = <log_entry_t*>(job + 1)
    return job


cdef void free_job(log_job_t* job) noexcept:
    cdef uint32_t position
    for position in range(job.entry_count):
        if job.entries[position].owner != NULL:
            Py_DECREF(<object>job.entries[position].owner)
    free(job)
