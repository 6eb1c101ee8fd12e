"""The table's writer: a native thread that makes checkpoints visible, each in one step.

Changes to the checkpoint before go into one transaction together with the (index, term) they lead to. A whole
checkpoint is written as a new generation of rows in slices, which nobody sees until one put makes it the
visible one; the generation before is deleted in slices afterwards.
"""

cimport cython
from libc.errno cimport EEXIST, ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from fastlock.storage.environment cimport (
    Environment, environment_begin_write, environment_commit, environment_grow, environment_t, load_acquire,
)
from fastlock.storage.lmdb_api cimport (
    MDB_MAP_FULL, MDB_NOTFOUND, MDB_RESERVE, MDB_SET_RANGE, MDB_val, lmdb,
)
from fastlock.storage.records cimport (
    CHECKPOINT_RECORD_BYTES, GROUP_KEY_BYTES, KEY_CHECKPOINT, ROW_HEAD_BYTES, ROW_KEY_HEAD_BYTES, ROW_PREFIX_BYTES,
    STORED_KEY_BYTES_MAX, checkpoint_t, checkpoint_write, group_key, load32, load64, row_checksum, row_prefix,
    row_stored_key, store32, store64,
)
from fastlock.storage.worker cimport (
    WORKER_JOBS_MAX, worker_fail, worker_failed, worker_finish, worker_free, worker_init, worker_push,
    worker_should_stop, worker_start, worker_stop, worker_t, worker_wait,
)

from fastlock.storage import StorageFailed
from fastlock.storage.lmdb_api import describe

cdef extern from *:
    """
    #define fastlock_add(at, value) __atomic_add_fetch((at), (value), __ATOMIC_RELAXED)
    """
    uint64_t atomic_add "fastlock_add"(uint64_t*, uint64_t) noexcept nogil


cdef enum:
    CHECKPOINTS_MAX = 4096
    DOOMED_MAX = 8192
    # Jobs share a transaction up to this many bytes of rows. A checkpoint of changes is never split.
    COMMIT_BYTES_MAX = 1 << 20
    # Rows of a generation that nobody sees any more go in slices, one after each pause.
    SWEEP_ROWS_MAX = 1024
    SWEEP_PAUSE_MS = 20
    # LMDB gives out a page again two commits after the one that freed it.
    COMMITS_UNTIL_REUSE = 2
    DELETED = 0xFFFFFFFF          # as the size of a row: the row goes

    JOB_CHANGES = 1               # rows, then (index, term)
    JOB_SLICE = 2                 # rows of a generation that is not visible
    JOB_FLIP = 3                  # the generation becomes the visible one, as (index, term)
    JOB_DOOM = 4                  # the generation will never be visible


cdef struct chunk_t:
    chunk_t* next
    size_t size
    # Then rows: key size, row size or DELETED, key, row.


cdef struct table_job_t:
    int kind
    uint32_t group
    uint64_t generation
    uint64_t index
    uint64_t term
    uint64_t bytes
    chunk_t* chunks


cdef struct doomed_t:
    uint32_t group
    uint64_t generation


cdef struct table_t:
    worker_t worker
    environment_t* environment
    uint64_t secret
    # The checkpoints as the newest commit left them, and as the transaction under way will.
    checkpoint_t* committed
    checkpoint_t* working
    uint32_t checkpoint_count
    uint32_t working_count
    # Generations to delete; those behind doomed_count are the transaction's.
    doomed_t* doomed
    uint32_t doomed_count
    uint32_t working_doomed
    const char* step
    uint64_t backlog_bytes        # atomic


cdef checkpoint_t* checkpoint_of(table_t* table, uint32_t group) noexcept nogil:
    cdef uint32_t position
    for position in range(table.working_count):
        if table.working[position].group == group:
            return &table.working[position]
    if table.working_count == CHECKPOINTS_MAX:
        return NULL
    position = table.working_count
    table.working_count += 1
    memset(&table.working[position], 0, sizeof(checkpoint_t))
    table.working[position].group = group
    # Generation 0 is never stored: changes to nothing start the first one.
    table.working[position].generation = 1
    return &table.working[position]


cdef bint is_same_key(const MDB_val* record, const uint8_t* key, uint32_t key_size) noexcept nogil:
    """Whether a stored record is of this row key; only two long keys with the same hash can differ."""
    cdef const uint8_t* at = <const uint8_t*>record.mv_data
    cdef uint32_t tail_size = key_size - ROW_KEY_HEAD_BYTES if key_size > ROW_KEY_HEAD_BYTES else 0
    return (
        record.mv_size >= ROW_HEAD_BYTES + tail_size
        and load32(at + 8) == tail_size
        and (tail_size == 0 or memcmp(at + ROW_HEAD_BYTES, key + ROW_KEY_HEAD_BYTES, tail_size) == 0)
    )


cdef int put_row(table_t* table, void* transaction, uint32_t group, uint64_t generation, const uint8_t* key,
                 uint32_t key_size, const uint8_t* row, uint32_t row_size, uint64_t* count,
                 uint64_t* total) noexcept nogil:
    """Stores or deletes a row, and keeps count and sum of the generation's checksums."""
    cdef uint8_t[STORED_KEY_BYTES_MAX] stored
    cdef MDB_val name, record
    cdef uint8_t* at
    cdef uint32_t tail_size = key_size - ROW_KEY_HEAD_BYTES if key_size > ROW_KEY_HEAD_BYTES else 0
    cdef int code
    name.mv_size = row_stored_key(stored, group, generation, table.secret, key, key_size)
    name.mv_data = stored
    code = lmdb.get(transaction, table.environment.dbi, &name, &record)
    if code == 0:
        if not is_same_key(&record, key, key_size):
            return EEXIST
        count[0] -= 1
        total[0] -= load64(<const uint8_t*>record.mv_data)
        if row_size == DELETED:
            return lmdb.delete(transaction, table.environment.dbi, &name, NULL)
    elif code != MDB_NOTFOUND:
        return code
    elif row_size == DELETED:
        return 0
    record.mv_size = ROW_HEAD_BYTES + tail_size + row_size
    code = lmdb.put(transaction, table.environment.dbi, &name, &record, MDB_RESERVE)
    if code != 0:
        return code
    at = <uint8_t*>record.mv_data
    store32(at + 8, tail_size)
    memcpy(at + ROW_HEAD_BYTES, key + key_size - tail_size, tail_size)
    memcpy(at + ROW_HEAD_BYTES + tail_size, row, row_size)
    store64(at, row_checksum(group, generation, stored, name.mv_size, at + 8, <uint32_t>record.mv_size - 8))
    count[0] += 1
    total[0] += load64(at)
    return 0


cdef int put_chunks(table_t* table, void* transaction, const table_job_t* job, uint64_t generation, uint64_t* count,
                    uint64_t* total) noexcept nogil:
    cdef const chunk_t* chunk = job.chunks
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef uint32_t key_size, row_size
    cdef int code
    while chunk != NULL:
        at = <const uint8_t*>(chunk + 1)
        end = at + chunk.size
        while at < end:
            key_size = load32(at)
            row_size = load32(at + 4)
            at += 8
            code = put_row(
                table, transaction, job.group, generation, at, key_size, at + key_size, row_size, count, total
            )
            if code != 0:
                return code
            at += key_size
            if row_size != DELETED:
                at += row_size
        chunk = chunk.next
    return 0


cdef int doom(table_t* table, uint32_t group, uint64_t generation) noexcept nogil:
    if table.working_doomed == DOOMED_MAX:
        return ENOMEM
    table.doomed[table.working_doomed].group = group
    table.doomed[table.working_doomed].generation = generation
    table.working_doomed += 1
    return 0


cdef int apply_job(table_t* table, void* transaction, const table_job_t* job) noexcept nogil:
    cdef checkpoint_t* checkpoint = checkpoint_of(table, job.group)
    cdef uint64_t before
    if checkpoint == NULL:
        return ENOMEM
    if job.kind == JOB_CHANGES:
        checkpoint.index = job.index
        checkpoint.term = job.term
        checkpoint.changed = True
        return put_chunks(
            table, transaction, job, checkpoint.generation, &checkpoint.row_count, &checkpoint.row_sum
        )
    if job.kind == JOB_DOOM:
        return doom(table, job.group, job.generation)
    if checkpoint.staged_generation != job.generation:
        checkpoint.staged_generation = job.generation
        checkpoint.staged_count = checkpoint.staged_sum = 0
    if job.kind == JOB_SLICE:
        return put_chunks(
            table, transaction, job, job.generation, &checkpoint.staged_count, &checkpoint.staged_sum
        )
    before = checkpoint.generation
    checkpoint.generation = job.generation
    checkpoint.index = job.index
    checkpoint.term = job.term
    checkpoint.row_count = checkpoint.staged_count
    checkpoint.row_sum = checkpoint.staged_sum
    checkpoint.staged_generation = checkpoint.staged_count = checkpoint.staged_sum = 0
    checkpoint.changed = True
    return doom(table, job.group, before)


cdef int put_checkpoints(table_t* table, void* transaction) noexcept nogil:
    cdef uint8_t[GROUP_KEY_BYTES] name
    cdef uint8_t[CHECKPOINT_RECORD_BYTES] bytes_
    cdef MDB_val key, record
    cdef checkpoint_t* checkpoint
    cdef uint32_t position
    cdef int code
    for position in range(table.working_count):
        checkpoint = &table.working[position]
        if not checkpoint.changed:
            continue
        checkpoint.changed = False
        group_key(name, KEY_CHECKPOINT, checkpoint.group)
        checkpoint_write(bytes_, checkpoint)
        key.mv_size = GROUP_KEY_BYTES
        key.mv_data = name
        record.mv_size = CHECKPOINT_RECORD_BYTES
        record.mv_data = bytes_
        code = lmdb.put(transaction, table.environment.dbi, &key, &record, 0)
        if code != 0:
            return code
    return 0


cdef int sweep_doomed(table_t* table, void* transaction) noexcept nogil:
    """Deletes a slice of the last doomed generation, and strikes it off the list once nothing is left."""
    cdef uint8_t[ROW_PREFIX_BYTES] prefix
    cdef MDB_val key, record
    cdef void* cursor
    cdef doomed_t* last = &table.doomed[table.working_doomed - 1]
    cdef int deleted = 0
    cdef int code = lmdb.cursor_open(transaction, table.environment.dbi, &cursor)
    if code != 0:
        return code
    row_prefix(prefix, last.group, last.generation)
    while deleted < SWEEP_ROWS_MAX:
        key.mv_size = ROW_PREFIX_BYTES
        key.mv_data = prefix
        code = lmdb.cursor_get(cursor, &key, &record, MDB_SET_RANGE)
        if code == MDB_NOTFOUND or (code == 0 and not has_prefix(&key, prefix)):
            table.working_doomed -= 1
            code = 0
            break
        if code == 0:
            code = lmdb.cursor_del(cursor, 0)
        if code != 0:
            break
        deleted += 1
    lmdb.cursor_close(cursor)
    return code


cdef bint has_prefix(const MDB_val* key, const uint8_t* prefix) noexcept nogil:
    return key.mv_size >= ROW_PREFIX_BYTES and memcmp(key.mv_data, prefix, ROW_PREFIX_BYTES) == 0


cdef int fill_transaction(table_t* table, void* transaction, uint64_t first, uint64_t end) noexcept nogil:
    """The jobs, or with none a slice of what nobody sees any more."""
    cdef uint64_t position = first
    cdef int code
    table.step = "write to"
    while position < end:
        code = apply_job(table, transaction, <const table_job_t*>table.worker.slots[position % WORKER_JOBS_MAX])
        if code != 0:
            return code
        position += 1
    if first == end and table.working_doomed > 0:
        code = sweep_doomed(table, transaction)
        if code != 0:
            return code
    return put_checkpoints(table, transaction)


cdef int try_commit(table_t* table, uint64_t first, uint64_t end) noexcept nogil:
    cdef void* transaction
    cdef int code
    memcpy(table.working, table.committed, table.checkpoint_count * sizeof(checkpoint_t))
    table.working_count = table.checkpoint_count
    table.working_doomed = table.doomed_count
    table.step = "begin a transaction in"
    code = environment_begin_write(table.environment, &transaction)
    if code != 0:
        return code
    code = fill_transaction(table, transaction, first, end)
    if code != 0:
        lmdb.txn_abort(transaction)
        return code
    table.step = "commit to"
    code = environment_commit(table.environment, transaction)
    if code == 0:
        memcpy(table.committed, table.working, table.working_count * sizeof(checkpoint_t))
        table.checkpoint_count = table.working_count
        table.doomed_count = table.working_doomed
    return code


cdef int make_room(table_t* table) noexcept nogil:
    """Deletes a slice of what nobody sees and lets its pages become free; MDB_MAP_FULL if there is no such thing."""
    cdef int _commit, code
    if table.doomed_count == 0:
        return MDB_MAP_FULL
    for _commit in range(1 + COMMITS_UNTIL_REUSE):
        # A transaction that changes nothing would not count.
        table.committed[0].changed = table.checkpoint_count > 0
        code = try_commit(table, 0, 0)
        table.committed[0].changed = False
        if code != 0:
            return code
    return 0


cdef int commit(table_t* table, uint64_t first, uint64_t end) noexcept nogil:
    """try_commit, in a larger map if it does not fit; at its bound, after deleting what nobody sees any more."""
    cdef int code
    while True:
        code = try_commit(table, first, end)
        if code != MDB_MAP_FULL:
            return code
        code = environment_grow(table.environment)
        if code == MDB_MAP_FULL:
            code = make_room(table)
        if code != 0:
            return code


cdef uint64_t bounded_end(const table_t* table, uint64_t first, uint64_t tail) noexcept nogil:
    cdef uint64_t size = 0
    cdef uint64_t end = first
    while end < tail:
        size += (<const table_job_t*>table.worker.slots[end % WORKER_JOBS_MAX]).bytes
        if size > COMMIT_BYTES_MAX and end > first:
            break
        end += 1
    return end


cdef void free_chunks(table_t* table, uint64_t first, uint64_t end) noexcept nogil:
    """The rows are durable: the memory they waited in goes at once."""
    cdef table_job_t* job
    cdef uint64_t position = first
    while position < end:
        job = <table_job_t*>table.worker.slots[position % WORKER_JOBS_MAX]
        atomic_add(&table.backlog_bytes, -job.bytes)
        chunks_free(job.chunks)
        job.chunks = NULL
        position += 1


cdef void chunks_free(chunk_t* chunk) noexcept nogil:
    cdef chunk_t* next
    while chunk != NULL:
        next = chunk.next
        free(chunk)
        chunk = next


cdef void run(void* context) noexcept nogil:
    cdef table_t* table = <table_t*>context
    cdef uint64_t taken = 0
    cdef uint64_t tail, end
    cdef int code
    while True:
        tail = worker_wait(&table.worker, taken, SWEEP_PAUSE_MS if table.doomed_count > 0 else -1)
        if tail == taken and worker_should_stop(&table.worker):
            return
        if tail == taken and table.doomed_count == 0:
            continue
        end = bounded_end(table, taken, tail)
        code = commit(table, taken, end)
        if code != 0:
            worker_fail(&table.worker, code, table.step)
            return
        if end != taken:
            free_chunks(table, taken, end)
            taken = end
            worker_finish(&table.worker, taken)


@cython.final
cdef class _Staging:
    """A checkpoint that was begun and not committed."""

    cdef bint whole
    cdef uint64_t generation
    cdef uint64_t bytes
    cdef chunk_t* first
    cdef chunk_t* last

    def __dealloc__(self):
        chunks_free(self.first)

    cdef chunk_t* take(self) noexcept:
        cdef chunk_t* taken = self.first
        self.first = self.last = NULL
        self.bytes = 0
        return taken


@cython.final
@cython.no_gc_clear  # what it holds must be there until its thread ended
cdef class TableThread:
    cdef table_t table
    cdef Environment environment
    cdef dict staged              # group -> _Staging
    cdef dict generations         # group -> the highest ever used
    cdef bint closed

    def __cinit__(self):
        memset(&self.table, 0, sizeof(table_t))

    def __init__(self, Environment environment not None, uint64_t secret, checkpoints, orphans, int event_fd):
        cdef checkpoint_t* checkpoint
        self.environment = environment
        self.staged = {}
        self.generations = {}
        self.table.environment = &environment.c
        self.table.secret = secret
        self.table.committed = <checkpoint_t*>calloc(CHECKPOINTS_MAX, sizeof(checkpoint_t))
        self.table.working = <checkpoint_t*>calloc(CHECKPOINTS_MAX, sizeof(checkpoint_t))
        self.table.doomed = <doomed_t*>calloc(DOOMED_MAX, sizeof(doomed_t))
        if self.table.committed == NULL or self.table.working == NULL or self.table.doomed == NULL:
            raise MemoryError
        for group, generation, index, term, row_count, row_sum in checkpoints:
            if self.table.checkpoint_count == CHECKPOINTS_MAX:
                raise StorageFailed(f"{environment.path} has more than {CHECKPOINTS_MAX} groups")
            checkpoint = &self.table.committed[self.table.checkpoint_count]
            self.table.checkpoint_count += 1
            checkpoint.group = group
            checkpoint.generation = generation
            checkpoint.index = index
            checkpoint.term = term
            checkpoint.row_count = row_count
            checkpoint.row_sum = row_sum
            self.generations[group] = generation
        for group, generation in orphans:
            self.generations[group] = max(self.generations.get(group, 1), generation)
            # Beyond the bound they stay until the next start.
            doom(&self.table, group, generation)
        self.table.doomed_count = self.table.working_doomed
        worker_init(&self.table.worker, event_fd)
        worker_start(&self.table.worker, run, &self.table)

    def __dealloc__(self):
        self.close()
        free(self.table.committed)
        free(self.table.working)
        free(self.table.doomed)

    def close(self):
        """Makes visible what was committed, unless the thread failed, and ends the thread."""
        if self.closed:
            return
        self.closed = True
        worker_stop(&self.table.worker)
        if self.table.worker.slots != NULL:
            self.release(self.table.worker.tail)
            worker_free(&self.table.worker)

    def begin(self, uint32_t group, bint whole):
        cdef _Staging before = self.staged.pop(group, None)
        cdef _Staging staging = _Staging.__new__(_Staging)
        if before is not None and before.whole:
            self.push(JOB_DOOM, group, before, 0, 0)
        staging.whole = whole
        if whole:
            staging.generation = self.generations.get(group, 1) + 1
            self.generations[group] = staging.generation
        self.staged[group] = staging

    def put_rows(self, uint32_t group, rows):
        cdef _Staging staging = self.staged.get(group)
        assert staging is not None, "no checkpoint was begun"
        cdef list taken = list(rows)
        cdef chunk_t* chunk = packed(taken)
        if chunk == NULL:
            return
        if staging.last == NULL:
            staging.first = chunk
        else:
            staging.last.next = chunk
        staging.last = chunk
        staging.bytes += chunk.size
        if staging.whole:
            self.push(JOB_SLICE, group, staging, 0, 0)

    def commit(self, uint32_t group, uint64_t index, uint64_t term):
        cdef _Staging staging = self.staged.pop(group, None)
        assert staging is not None, "no checkpoint was begun"
        self.push(JOB_FLIP if staging.whole else JOB_CHANGES, group, staging, index, term)

    cdef int push(self, int kind, uint32_t group, _Staging staging, uint64_t index, uint64_t term) except -1:
        cdef table_job_t* job
        self.raise_if_failed()
        if self.closed:
            raise StorageFailed("the storage is closed")
        job = <table_job_t*>calloc(1, sizeof(table_job_t))
        if job == NULL:
            raise MemoryError
        job.kind = kind
        job.group = group
        job.generation = staging.generation
        job.index = index
        job.term = term
        job.bytes = staging.bytes
        job.chunks = staging.take()
        atomic_add(&self.table.backlog_bytes, job.bytes)
        if not worker_push(&self.table.worker, job):
            free_job(job)
            raise StorageFailed(
                f"the disk under {self.environment.path} does not keep up with checkpoints; "
                "look at its health and load, then start the node again"
            )
        return 0

    cdef list release(self, uint64_t end):
        cdef worker_t* worker = &self.table.worker
        cdef table_job_t* job
        cdef list visible = []
        while worker.released < end:
            job = <table_job_t*>worker.slots[worker.released % WORKER_JOBS_MAX]
            if job.kind == JOB_CHANGES or job.kind == JOB_FLIP:
                visible.append((job.group, job.index, job.term))
            free_job(job)
            worker.released += 1
        return visible

    def raise_if_failed(self):
        if worker_failed(&self.table.worker):
            raise StorageFailed(
                f"could not {(<bytes>self.table.worker.failure_step).decode()} {self.environment.path}: "
                f"{describe(self.table.worker.failure_code)}; the node stops, nothing is acknowledged any more"
            )

    def take_checkpoints(self):
        """(group, index, term) of the checkpoints that became durable since the last call."""
        self.raise_if_failed()
        if self.closed:
            return []
        return self.release(load_acquire(&self.table.worker.done))

    @property
    def queued_jobs(self):
        return self.table.worker.tail - self.table.worker.released

    @property
    def backlog_bytes(self):
        return load_acquire(&self.table.backlog_bytes)


cdef void free_job(table_job_t* job) noexcept:
    chunks_free(job.chunks)
    free(job)


cdef chunk_t* packed(list rows) except? NULL:
    """The rows in one allocation; NULL for none."""
    cdef size_t size = 0
    cdef bytes key
    cdef bytes row
    cdef uint8_t* at
    cdef chunk_t* chunk
    for key, row in rows:
        size += 8 + len(key) + (0 if row is None else len(row))
    if size == 0:
        return NULL
    chunk = <chunk_t*>malloc(sizeof(chunk_t) + size)
    if chunk == NULL:
        raise MemoryError
    chunk.next = NULL
    chunk.size = size
    at = <uint8_t*>(chunk + 1)
    for key, row in rows:
        store32(at, <uint32_t>len(key))
        store32(at + 4, DELETED if row is None else <uint32_t>len(row))
        memcpy(at + 8, <char*>key, len(key))
        at += 8 + len(key)
        if row is not None:
            memcpy(at, <char*>row, len(row))
            at += len(row)
    return chunk
