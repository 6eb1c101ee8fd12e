"""A checkpoint's rows for another member, dumped to an unnamed file by a native thread.

A long reader pins every page that is freed meanwhile, so the read transaction lasts only as long as the dump, which
runs at the speed of memory; the member takes its chunks from the file at its own pace.
"""

import os

cimport cython
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport close, read, write

from fastlock.storage.crc32 cimport crc32, crc32_prepare
from fastlock.storage.environment cimport (
    Environment, environment_begin_read, environment_end_read, environment_t, load_acquire, store_release,
)
from fastlock.storage.lmdb_api cimport MDB_NEXT, MDB_NOTFOUND, MDB_SET_RANGE, MDB_val, lmdb
from fastlock.storage.records cimport (
    GROUP_KEY_BYTES, KEY_CHECKPOINT, ROW_HEAD_BYTES, ROW_PREFIX_BYTES, checkpoint_read, checkpoint_t, group_key, load32,
    load64, row_is_whole, row_key_head_size, row_prefix, store32,
)
from fastlock.storage.worker cimport (
    monotonic_ns, worker_fail, worker_failed, worker_finish, worker_free, worker_init, worker_should_stop, worker_start,
    worker_stop, worker_t,
)

from fastlock.storage import StorageFailed
from fastlock.storage.damage import RowsDamaged
from fastlock.storage.lmdb_api import describe


cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd*, unsigned long, int)
    short POLLIN


cdef extern from "sys/eventfd.h" nogil:
    int eventfd(unsigned int, int)
    int EFD_NONBLOCK
    int EFD_CLOEXEC


cdef enum:
    ROW_PACK_HEAD_BYTES = 12      # as rowpack.py writes it: key size, row size, CRC-32 of both
    WRITE_BYTES = 256 << 10
    CHUNK_WAIT_MS_MAX = 50


cdef struct dump_t:
    worker_t worker               # `done` counts the bytes that are in the file
    environment_t* environment
    void* transaction
    checkpoint_t checkpoint
    int file_fd
    uint64_t complete             # atomic: `done` is the end
    uint64_t damaged              # atomic: a row is not what was written
    uint8_t* buffer
    size_t buffered
    size_t buffer_size
    uint64_t written


cdef int flush(dump_t* dump) noexcept nogil:
    cdef size_t at = 0
    cdef ssize_t count
    while at < dump.buffered:
        count = write(dump.file_fd, dump.buffer + at, dump.buffered - at)
        if count <= 0:
            return EIO
        at += count
    dump.written += dump.buffered
    dump.buffered = 0
    worker_finish(&dump.worker, dump.written)
    return 0


cdef int add_row(dump_t* dump, const MDB_val* key, const MDB_val* record) noexcept nogil:
    """Packs one whole row behind the others."""
    cdef const uint8_t* name = <const uint8_t*>key.mv_data + ROW_PREFIX_BYTES
    cdef const uint8_t* at = <const uint8_t*>record.mv_data
    cdef uint32_t tail_size = load32(at + 8)
    cdef size_t head_size = row_key_head_size(key.mv_size, tail_size)
    cdef size_t row_size = record.mv_size - ROW_HEAD_BYTES - tail_size
    cdef size_t size = ROW_PACK_HEAD_BYTES + head_size + tail_size + row_size
    cdef uint8_t* out
    cdef int code
    if dump.buffered + size > WRITE_BYTES:
        code = flush(dump)
        if code != 0:
            return code
    if size > dump.buffer_size:
        free(dump.buffer)
        dump.buffer = <uint8_t*>malloc(size)
        dump.buffer_size = size
        if dump.buffer == NULL:
            return ENOMEM
    out = dump.buffer + dump.buffered
    store32(out, <uint32_t>(head_size + tail_size))
    store32(out + 4, <uint32_t>row_size)
    memcpy(out + ROW_PACK_HEAD_BYTES, name, head_size)
    memcpy(out + ROW_PACK_HEAD_BYTES + head_size, at + ROW_HEAD_BYTES, tail_size + row_size)
    store32(out + 8, crc32(out + ROW_PACK_HEAD_BYTES, size - ROW_PACK_HEAD_BYTES))
    dump.buffered += size
    return 0


cdef int dump_rows(dump_t* dump, void* cursor) noexcept nogil:
    cdef uint8_t[ROW_PREFIX_BYTES] prefix
    cdef MDB_val key, record
    cdef uint64_t count = 0
    cdef uint64_t total = 0
    cdef int code
    row_prefix(prefix, dump.checkpoint.group, dump.checkpoint.generation)
    key.mv_size = ROW_PREFIX_BYTES
    key.mv_data = prefix
    code = lmdb.cursor_get(cursor, &key, &record, MDB_SET_RANGE)
    while code == 0 and not worker_should_stop(&dump.worker):
        if key.mv_size < ROW_PREFIX_BYTES or memcmp(key.mv_data, prefix, ROW_PREFIX_BYTES) != 0:
            break
        if not row_is_whole(<const uint8_t*>key.mv_data, key.mv_size, <const uint8_t*>record.mv_data, record.mv_size):
            store_release(&dump.damaged, 1)
            return EIO
        count += 1
        total += load64(<const uint8_t*>record.mv_data)
        code = add_row(dump, &key, &record)
        if code != 0:
            return code
        code = lmdb.cursor_get(cursor, &key, &record, MDB_NEXT)
    if code != 0 and code != MDB_NOTFOUND:
        return code
    if not worker_should_stop(&dump.worker) and (
        count != dump.checkpoint.row_count or total != dump.checkpoint.row_sum
    ):
        store_release(&dump.damaged, 1)
        return EIO
    return flush(dump)


cdef void run(void* context) noexcept nogil:
    cdef dump_t* dump = <dump_t*>context
    cdef void* cursor
    cdef uint64_t end
    cdef int code = lmdb.cursor_open(dump.transaction, dump.environment.dbi, &cursor)
    if code == 0:
        code = dump_rows(dump, cursor)
        lmdb.cursor_close(cursor)
    environment_end_read(dump.environment, dump.transaction)
    dump.transaction = NULL
    if code != 0:
        worker_fail(&dump.worker, code, "dump")
        return
    end = dump.written
    store_release(&dump.complete, 1)
    worker_finish(&dump.worker, end)


cdef bint begin(dump_t* dump, Environment environment, uint32_t group) except -1:
    """Opens the read transaction on the newest checkpoint; False if there is none."""
    cdef uint8_t[GROUP_KEY_BYTES] name
    cdef MDB_val key, record
    cdef int code
    environment.check(environment_begin_read(&environment.c, &dump.transaction), "read")
    group_key(name, KEY_CHECKPOINT, group)
    key.mv_size = GROUP_KEY_BYTES
    key.mv_data = name
    code = lmdb.get(dump.transaction, environment.c.dbi, &key, &record)
    if code == MDB_NOTFOUND:
        return False
    environment.check(code, "read")
    dump.checkpoint.group = group
    if not checkpoint_read(<const uint8_t*>record.mv_data, record.mv_size, &dump.checkpoint):
        raise RowsDamaged(f"{environment.path}: the checkpoint of group {group} is damaged")
    return True


@cython.final
@cython.no_gc_clear  # what it holds must be there until its thread ended
cdef class Dump:
    cdef dump_t dump
    cdef Environment environment
    cdef object file
    cdef int event_fd
    cdef readonly uint64_t index
    cdef readonly uint64_t term
    cdef readonly bint closed

    def __cinit__(self):
        memset(&self.dump, 0, sizeof(dump_t))
        self.event_fd = -1
        self.closed = True

    def __init__(self, Environment environment not None, uint32_t group, file):
        crc32_prepare()
        self.environment = environment
        self.dump.environment = &environment.c
        self.file = file
        self.dump.file_fd = file.fileno()
        if not begin(&self.dump, environment, group):
            raise LookupError(f"group {group} has no checkpoint")
        self.index = self.dump.checkpoint.index
        self.term = self.dump.checkpoint.term
        self.dump.buffer = <uint8_t*>malloc(WRITE_BYTES)
        self.dump.buffer_size = WRITE_BYTES
        if self.dump.buffer == NULL:
            raise MemoryError
        self.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if self.event_fd < 0:
            raise OSError("no file descriptor left for a checkpoint stream: raise the limit of open files")
        worker_init(&self.dump.worker, self.event_fd)
        self.closed = False
        worker_start(&self.dump.worker, run, &self.dump)

    def __dealloc__(self):
        self.close()
        free(self.dump.buffer)
        if self.event_fd >= 0:
            close(self.event_fd)

    @property
    def complete(self):
        return load_acquire(&self.dump.complete) != 0

    def close(self):
        worker_stop(&self.dump.worker)
        if not self.closed:
            self.closed = True
            worker_free(&self.dump.worker)
            self.file.close()
        if self.dump.transaction != NULL:
            environment_end_read(&self.environment.c, self.dump.transaction)
            self.dump.transaction = NULL

    cdef uint64_t wait_for(self, uint64_t end) except? 0:
        """How much of the file is there, once it reaches `end` or is complete, or a bounded time has passed."""
        cdef pollfd waiting
        cdef uint64_t deadline_ns = monotonic_ns() + <uint64_t>CHUNK_WAIT_MS_MAX * 1000000
        cdef uint64_t now_ns, ignored
        while True:
            read(self.event_fd, &ignored, sizeof(ignored))
            if worker_failed(&self.dump.worker):
                self.raise_failure()
            if load_acquire(&self.dump.complete) or load_acquire(&self.dump.worker.done) >= end:
                return load_acquire(&self.dump.worker.done)
            now_ns = monotonic_ns()
            if now_ns >= deadline_ns:
                return load_acquire(&self.dump.worker.done)
            waiting.fd = self.event_fd
            waiting.events = POLLIN
            waiting.revents = 0
            with nogil:
                poll(&waiting, 1, <int>((deadline_ns - now_ns) // 1000000) + 1)

    def raise_failure(self):
        if load_acquire(&self.dump.damaged):
            raise RowsDamaged(f"{self.environment.path}: a row of group {self.dump.checkpoint.group} is damaged")
        raise StorageFailed(
            f"cannot copy the checkpoint of group {self.dump.checkpoint.group}: "
            f"{describe(self.dump.worker.failure_code)}; look at the free space of the data directory"
        )

    def chunk(self, uint64_t offset, uint64_t bytes_max):
        """Whole packed rows from an offset a chunk ended at (or 0), and whether they are the last."""
        cdef uint64_t there
        cdef bint complete
        cdef bytes data
        cdef uint64_t end
        assert not self.closed, "the stream is closed"
        there = self.wait_for(offset + max(bytes_max, <uint64_t>1))
        complete = load_acquire(&self.dump.complete) != 0
        if complete:
            there = load_acquire(&self.dump.worker.done)
        assert offset <= there, "no chunk ended there"
        data = os.pread(self.dump.file_fd, min(bytes_max, there - offset), offset)
        end = whole_rows(data, len(data))
        if end == 0 and offset < there:
            # The first row is larger than asked for: it comes alone.
            data = os.pread(self.dump.file_fd, ROW_PACK_HEAD_BYTES, offset)
            data = os.pread(self.dump.file_fd, packed_size(data), offset)
            end = len(data)
        return data[:<Py_ssize_t>end], complete and offset + end == there


cdef uint64_t packed_size(bytes head) except? 0:
    assert len(head) == ROW_PACK_HEAD_BYTES
    return <uint64_t>ROW_PACK_HEAD_BYTES + load32(<const uint8_t*><char*>head) + load32(<const uint8_t*><char*>head + 4)


cdef uint64_t whole_rows(const uint8_t* data, uint64_t size) noexcept:
    """How many of these bytes are whole packed rows."""
    cdef uint64_t at = 0
    cdef uint64_t next
    while at + ROW_PACK_HEAD_BYTES <= size:
        next = at + ROW_PACK_HEAD_BYTES + load32(data + at) + load32(data + at + 4)
        if next > size:
            break
        at = next
    return at
