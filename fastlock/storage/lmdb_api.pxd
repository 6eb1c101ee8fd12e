"""LMDB's C functions, resolved when this module is imported."""

from libc.stddef cimport size_t

cdef enum:
    # Flags of mdb_env_open. Durable commits are what LMDB does without any flag.
    MDB_NOTLS = 0x200000          # a read transaction belongs to whoever has its handle, not to a thread
    MDB_NORDAHEAD = 0x800000
    # Flags of mdb_txn_begin and mdb_put.
    MDB_RDONLY = 0x20000
    MDB_NOOVERWRITE = 0x10
    MDB_RESERVE = 0x10000
    # Cursor operations.
    MDB_FIRST = 0
    MDB_NEXT = 8
    MDB_SET_RANGE = 17
    # Return codes; positive ones are errno.
    MDB_SUCCESS = 0
    MDB_KEYEXIST = -30799
    MDB_NOTFOUND = -30798
    MDB_MAP_FULL = -30792


cdef struct MDB_val:
    size_t mv_size
    void* mv_data


cdef struct MDB_stat:
    unsigned int ms_psize
    unsigned int ms_depth
    size_t ms_branch_pages
    size_t ms_leaf_pages
    size_t ms_overflow_pages
    size_t ms_entries


cdef struct MDB_envinfo:
    void* me_mapaddr
    size_t me_mapsize
    size_t me_last_pgno
    size_t me_last_txnid
    unsigned int me_maxreaders
    unsigned int me_numreaders


# Handles are opaque here: env, txn and cursor are void*.
cdef struct lmdb_api_t:
    const char* (*version)(int*, int*, int*) noexcept nogil
    const char* (*strerror)(int) noexcept nogil
    int (*env_create)(void**) noexcept nogil
    int (*env_open)(void*, const char*, unsigned int, unsigned int) noexcept nogil
    void (*env_close)(void*) noexcept nogil
    int (*env_set_mapsize)(void*, size_t) noexcept nogil
    int (*env_info)(void*, MDB_envinfo*) noexcept nogil
    int (*txn_begin)(void*, void*, unsigned int, void**) noexcept nogil
    int (*txn_commit)(void*) noexcept nogil
    void (*txn_abort)(void*) noexcept nogil
    int (*dbi_open)(void*, const char*, unsigned int, unsigned int*) noexcept nogil
    int (*stat)(void*, unsigned int, MDB_stat*) noexcept nogil
    int (*get)(void*, unsigned int, MDB_val*, MDB_val*) noexcept nogil
    int (*put)(void*, unsigned int, MDB_val*, MDB_val*, unsigned int) noexcept nogil
    int (*delete)(void*, unsigned int, MDB_val*, MDB_val*) noexcept nogil
    int (*cursor_open)(void*, unsigned int, void**) noexcept nogil
    void (*cursor_close)(void*) noexcept nogil
    int (*cursor_get)(void*, MDB_val*, MDB_val*, int) noexcept nogil
    int (*cursor_del)(void*, unsigned int) noexcept nogil


cdef lmdb_api_t lmdb
