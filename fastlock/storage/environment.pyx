"""One LMDB environment: opened with durable commits, growing while nobody is in a transaction."""

import os

cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memset

from fastlock.storage.lmdb_api cimport (
    MDB_MAP_FULL, MDB_NORDAHEAD, MDB_NOTFOUND, MDB_NOTLS, MDB_RDONLY, MDB_envinfo, MDB_stat, MDB_val, lmdb,
)

from fastlock.storage import StorageFailed
from fastlock.storage.lmdb_api import describe

FILE_MODE = 0o600
# One growth doubles the map, and never asks for less than this.
cdef uint64_t GROWTH_BYTES_MIN = 1 << 20


cdef int environment_begin_read(environment_t* environment, void** transaction) noexcept nogil:
    """A read transaction; while it is open the map stays where it is."""
    cdef int code
    pthread_mutex_lock(&environment.mutex)
    environment.readers += 1
    pthread_mutex_unlock(&environment.mutex)
    code = lmdb.txn_begin(environment.handle, NULL, MDB_RDONLY, transaction)
    if code != 0:
        leave(environment)
    return code


cdef void environment_end_read(environment_t* environment, void* transaction) noexcept nogil:
    lmdb.txn_abort(transaction)
    leave(environment)


cdef void leave(environment_t* environment) noexcept nogil:
    pthread_mutex_lock(&environment.mutex)
    environment.readers -= 1
    if environment.readers == 0:
        pthread_cond_broadcast(&environment.nobody_reads)
    pthread_mutex_unlock(&environment.mutex)


cdef int environment_begin_write(environment_t* environment, void** transaction) noexcept nogil:
    return lmdb.txn_begin(environment.handle, NULL, 0, transaction)


cdef int environment_commit(environment_t* environment, void* transaction) noexcept nogil:
    """Durable when it returns 0; the transaction is gone either way."""
    cdef MDB_stat pages
    cdef int code = lmdb.stat(transaction, environment.dbi, &pages)
    if code != 0:
        lmdb.txn_abort(transaction)
        return code
    code = lmdb.txn_commit(transaction)
    if code == 0:
        store_release(&environment.used_bytes, <uint64_t>environment.page_bytes * (
            pages.ms_branch_pages + pages.ms_leaf_pages + pages.ms_overflow_pages
        ))
    return code


cdef int environment_grow(environment_t* environment) noexcept nogil:
    """Doubles the map, once the last reader left; MDB_MAP_FULL at the bound. The caller has no transaction open."""
    cdef uint64_t wanted = environment.map_bytes + max(environment.map_bytes, GROWTH_BYTES_MIN)
    cdef int code
    wanted = min(wanted, environment.map_bytes_max)
    if wanted <= environment.map_bytes:
        return MDB_MAP_FULL
    pthread_mutex_lock(&environment.mutex)
    while environment.readers > 0:
        pthread_cond_wait(&environment.nobody_reads, &environment.mutex)
    # Readers wait at the mutex meanwhile.
    code = lmdb.env_set_mapsize(environment.handle, wanted)
    if code == 0:
        environment.map_bytes = wanted
    pthread_mutex_unlock(&environment.mutex)
    return code


@cython.final
cdef class Environment:
    def __cinit__(self):
        memset(&self.c, 0, sizeof(environment_t))
        pthread_mutex_init(&self.c.mutex, NULL)
        pthread_cond_init(&self.c.nobody_reads, NULL)

    def __init__(self, str path, uint64_t map_bytes, uint64_t map_bytes_max):
        cdef void* transaction
        cdef MDB_stat pages
        cdef MDB_envinfo info
        cdef bytes encoded = os.fsencode(path)
        assert not self.is_open
        self.path = path
        self.check(lmdb.env_create(&self.c.handle), "create")
        self.is_open = True
        data = os.path.join(path, "data.mdb")
        if os.path.exists(data):
            # A map smaller than the file would be refused; the bound may have been set below it since.
            map_bytes = max(map_bytes, (os.stat(data).st_size + 4095) // 4096 * 4096)
        self.c.map_bytes_max = max(map_bytes, map_bytes_max)
        self.check(lmdb.env_set_mapsize(self.c.handle, map_bytes), "set the map size of")
        self.check(lmdb.env_open(self.c.handle, encoded, MDB_NOTLS | MDB_NORDAHEAD, FILE_MODE), "open")
        self.check(lmdb.env_info(self.c.handle, &info), "inspect")
        self.c.map_bytes = info.me_mapsize
        self.check(lmdb.txn_begin(self.c.handle, NULL, MDB_RDONLY, &transaction), "read")
        try:
            self.check(lmdb.dbi_open(transaction, NULL, 0, &self.c.dbi), "read")
            self.check(lmdb.stat(transaction, self.c.dbi, &pages), "read")
        finally:
            lmdb.txn_abort(transaction)
        self.c.page_bytes = pages.ms_psize
        self.c.used_bytes = <uint64_t>pages.ms_psize * (
            pages.ms_branch_pages + pages.ms_leaf_pages + pages.ms_overflow_pages
        )

    def __dealloc__(self):
        if self.is_open:
            lmdb.env_close(self.c.handle)
        pthread_cond_destroy(&self.c.nobody_reads)
        pthread_mutex_destroy(&self.c.mutex)

    cdef int check(self, int code, str what) except -1:
        if code != 0:
            raise StorageFailed(f"cannot {what} {self.path}: {describe(code)}")
        return 0

    def close(self):
        """The caller has ended every transaction and thread that uses it."""
        if self.is_open:
            assert self.c.readers == 0, "a reader is still inside"
            self.is_open = False
            lmdb.env_close(self.c.handle)
            self.c.handle = NULL

    @property
    def map_bytes(self):
        return self.c.map_bytes

    @property
    def map_bytes_max(self):
        return self.c.map_bytes_max

    @property
    def used_bytes(self):
        """Bytes of the pages that hold data, as of the newest commit."""
        return load_acquire(&self.c.used_bytes)

    def get(self, bytes key not None):
        """The record under a key, or None."""
        cdef void* transaction
        cdef MDB_val name, record
        cdef int code
        name.mv_size = len(key)
        name.mv_data = <char*>key
        self.check(environment_begin_read(&self.c, &transaction), "read")
        try:
            code = lmdb.get(transaction, self.c.dbi, &name, &record)
            if code == MDB_NOTFOUND:
                return None
            self.check(code, "read")
            return (<char*>record.mv_data)[:record.mv_size]
        finally:
            environment_end_read(&self.c, transaction)

    def put(self, bytes key not None, bytes record not None):
        """Stores one record durably; only before a thread writes here."""
        cdef void* transaction
        cdef MDB_val name, value
        cdef int code
        name.mv_size = len(key)
        name.mv_data = <char*>key
        value.mv_size = len(record)
        value.mv_data = <char*>record
        self.check(environment_begin_write(&self.c, &transaction), "write")
        code = lmdb.put(transaction, self.c.dbi, &name, &value, 0)
        if code != 0:
            lmdb.txn_abort(transaction)
            self.check(code, "write")
        self.check(environment_commit(&self.c, transaction), "write")
