"""Reads checkpoints back, and believes nothing whose checksum is wrong."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from fastlock.storage.environment cimport Environment, environment_begin_read, environment_end_read
from fastlock.storage.lmdb_api cimport MDB_NEXT, MDB_NOTFOUND, MDB_SET_RANGE, MDB_val, lmdb
from fastlock.storage.records cimport (
    GROUP_KEY_BYTES, KEY_CHECKPOINT, KEY_ROW, ROW_HEAD_BYTES, ROW_KEY_HEAD_BYTES, ROW_PREFIX_BYTES, checkpoint_read,
    checkpoint_t, group_key, load32, load32_big, load64, load64_big, row_is_whole, row_key_head_size, row_prefix,
)

from fastlock.storage.damage import RowsDamaged


def read_checkpoints(Environment environment not None):
    """(group, generation, index, term, row count, row sum) of every checkpoint."""
    cdef void* transaction
    cdef void* cursor
    cdef uint8_t[GROUP_KEY_BYTES] first
    cdef MDB_val key, record
    cdef const uint8_t* name
    cdef checkpoint_t checkpoint
    cdef int code
    cdef list found = []
    environment.check(environment_begin_read(&environment.c, &transaction), "read")
    try:
        environment.check(lmdb.cursor_open(transaction, environment.c.dbi, &cursor), "read")
        try:
            group_key(first, KEY_CHECKPOINT, 0)
            key.mv_size = GROUP_KEY_BYTES
            key.mv_data = first
            code = lmdb.cursor_get(cursor, &key, &record, MDB_SET_RANGE)
            while code == 0:
                name = <const uint8_t*>key.mv_data
                if key.mv_size != GROUP_KEY_BYTES or name[0] != KEY_CHECKPOINT:
                    break
                checkpoint.group = load32_big(name + 1)
                if not checkpoint_read(<const uint8_t*>record.mv_data, record.mv_size, &checkpoint):
                    raise RowsDamaged(f"{environment.path}: the checkpoint of group {checkpoint.group} is damaged")
                found.append((
                    checkpoint.group, checkpoint.generation, checkpoint.index, checkpoint.term, checkpoint.row_count,
                    checkpoint.row_sum,
                ))
                code = lmdb.cursor_get(cursor, &key, &record, MDB_NEXT)
            if code != MDB_NOTFOUND:
                environment.check(code, "read")
        finally:
            lmdb.cursor_close(cursor)
        return found
    finally:
        environment_end_read(&environment.c, transaction)


def read_generations(Environment environment not None):
    """The (group, generation) pairs that have rows, found by jumping from one to the next."""
    cdef void* transaction
    cdef void* cursor
    cdef uint8_t[ROW_PREFIX_BYTES] prefix
    cdef MDB_val key, record
    cdef const uint8_t* name
    cdef uint32_t group = 0
    cdef uint64_t generation = 0
    cdef int code
    cdef list found = []
    environment.check(environment_begin_read(&environment.c, &transaction), "read")
    try:
        environment.check(lmdb.cursor_open(transaction, environment.c.dbi, &cursor), "read")
        try:
            while True:
                row_prefix(prefix, group, generation)
                key.mv_size = ROW_PREFIX_BYTES
                key.mv_data = prefix
                code = lmdb.cursor_get(cursor, &key, &record, MDB_SET_RANGE)
                name = <const uint8_t*>key.mv_data
                if code == MDB_NOTFOUND or (code == 0 and (key.mv_size < ROW_PREFIX_BYTES or name[0] != KEY_ROW)):
                    return found
                environment.check(code, "read")
                group = load32_big(name + 1)
                generation = load64_big(name + 5)
                found.append((group, generation))
                generation += 1
                if generation == 0:
                    raise RowsDamaged(f"{environment.path}: a row of group {group} has an impossible generation")
        finally:
            lmdb.cursor_close(cursor)
    finally:
        environment_end_read(&environment.c, transaction)


@cython.final
@cython.no_gc_clear  # the environment must be there until the transaction ended
cdef class RowReader:
    cdef Environment environment
    cdef void* transaction
    cdef void* cursor
    cdef uint8_t[ROW_PREFIX_BYTES] prefix
    cdef checkpoint_t checkpoint
    cdef uint64_t count
    cdef uint64_t total
    cdef bint started
    cdef bint ended

    def __init__(self, Environment environment not None, uint32_t group):
        cdef uint8_t[GROUP_KEY_BYTES] name
        cdef MDB_val key, record
        cdef int code
        self.environment = environment
        environment.check(environment_begin_read(&environment.c, &self.transaction), "read")
        environment.check(lmdb.cursor_open(self.transaction, environment.c.dbi, &self.cursor), "read")
        group_key(name, KEY_CHECKPOINT, group)
        key.mv_size = GROUP_KEY_BYTES
        key.mv_data = name
        code = lmdb.get(self.transaction, environment.c.dbi, &key, &record)
        if code == MDB_NOTFOUND:
            self.ended = True
            return
        environment.check(code, "read")
        self.checkpoint.group = group
        if not checkpoint_read(<const uint8_t*>record.mv_data, record.mv_size, &self.checkpoint):
            raise RowsDamaged(f"{environment.path}: the checkpoint of group {group} is damaged")
        row_prefix(self.prefix, group, self.checkpoint.generation)

    def __dealloc__(self):
        self.close()

    def close(self):
        if self.cursor != NULL:
            lmdb.cursor_close(self.cursor)
            self.cursor = NULL
        if self.transaction != NULL:
            environment_end_read(&self.environment.c, self.transaction)
            self.transaction = NULL

    def take(self, int row_count):
        """The next (key, row) pairs; long keys with one head are together, but in no order. [] ends it."""
        cdef MDB_val key, record
        cdef int code = 0
        cdef list found = []
        cdef tuple row
        cdef bint in_run = False
        while not self.ended and (len(found) < row_count or in_run):
            key.mv_size = ROW_PREFIX_BYTES
            key.mv_data = self.prefix
            code = lmdb.cursor_get(self.cursor, &key, &record, MDB_NEXT if self.started else MDB_SET_RANGE)
            self.started = True
            if code == MDB_NOTFOUND or (code == 0 and not self.is_ours(&key)):
                self.ended = True
                self.check_totals()
                break
            self.environment.check(code, "read")
            row = self.row_of(&key, &record)
            found.append(row)
            in_run = len(<bytes>row[0]) > ROW_KEY_HEAD_BYTES
        return found

    cdef bint is_ours(self, const MDB_val* key) noexcept:
        return key.mv_size >= ROW_PREFIX_BYTES and memcmp(key.mv_data, self.prefix, ROW_PREFIX_BYTES) == 0

    cdef tuple row_of(self, const MDB_val* key, const MDB_val* record):
        cdef const uint8_t* name = <const uint8_t*>key.mv_data
        cdef const uint8_t* at = <const uint8_t*>record.mv_data
        cdef uint32_t tail_size
        cdef bytes row_key
        if not row_is_whole(name, key.mv_size, at, record.mv_size):
            raise RowsDamaged(f"{self.environment.path}: a row of group {self.checkpoint.group} is damaged")
        tail_size = load32(at + 8)
        row_key = (<const char*>name)[ROW_PREFIX_BYTES:ROW_PREFIX_BYTES + row_key_head_size(key.mv_size, tail_size)]
        if tail_size != 0:
            row_key += (<const char*>at)[ROW_HEAD_BYTES:ROW_HEAD_BYTES + tail_size]
        self.count += 1
        self.total += load64(at)
        return row_key, (<const char*>at)[ROW_HEAD_BYTES + tail_size:record.mv_size]

    cdef int check_totals(self) except -1:
        if self.count != self.checkpoint.row_count or self.total != self.checkpoint.row_sum:
            raise RowsDamaged(
                f"{self.environment.path}: group {self.checkpoint.group} has {self.count} rows, "
                f"not the {self.checkpoint.row_count} of its checkpoint"
            )
        return 0
