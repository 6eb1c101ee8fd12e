"""Reads the log back, and believes nothing whose checksum is wrong."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from fastlock.storage.environment cimport Environment, environment_begin_read, environment_end_read
from fastlock.storage.lmdb_api cimport MDB_NEXT, MDB_NOTFOUND, MDB_SET_RANGE, MDB_val, lmdb
from fastlock.storage.records cimport (
    ENTRY_HEAD_BYTES, ENTRY_KEY_BYTES, GROUP_KEY_BYTES, KEY_ENTRY, KEY_GROUP, entry_is_whole, entry_key, group_key,
    group_read, group_t, load16, load32_big, load64, load64_big,
)

from fastlock.storage import StorageDamaged


def read_groups(Environment environment not None):
    """(group, term, vote, cut index, last index) of every group in the log."""
    cdef void* transaction
    cdef void* cursor
    cdef uint8_t[GROUP_KEY_BYTES] first
    cdef MDB_val key, record
    cdef const uint8_t* name
    cdef group_t group
    cdef int code
    cdef list found = []
    environment.check(environment_begin_read(&environment.c, &transaction), "read")
    try:
        environment.check(lmdb.cursor_open(transaction, environment.c.dbi, &cursor), "read")
        group_key(first, KEY_GROUP, 0)
        key.mv_size = GROUP_KEY_BYTES
        key.mv_data = first
        code = lmdb.cursor_get(cursor, &key, &record, MDB_SET_RANGE)
        while code == 0:
            name = <const uint8_t*>key.mv_data
            if key.mv_size != GROUP_KEY_BYTES or name[0] != KEY_GROUP:
                break
            group.group = load32_big(name + 1)
            if not group_read(<const uint8_t*>record.mv_data, record.mv_size, &group):
                lmdb.cursor_close(cursor)
                raise StorageDamaged(f"{environment.path}: term and vote of group {group.group} are damaged")
            found.append((group.group, group.term, group.vote, group.cut_index, group.last_index))
            code = lmdb.cursor_get(cursor, &key, &record, MDB_NEXT)
        lmdb.cursor_close(cursor)
        if code != MDB_NOTFOUND:
            environment.check(code, "read")
        return found
    finally:
        environment_end_read(&environment.c, transaction)


def read_entries(Environment environment not None, uint32_t group, uint64_t first, uint64_t last, uint64_t bytes_max):
    """(term, index, kind, data) of the entries first..last that are there and fit; at least one"""
    cdef void* transaction
    cdef void* cursor
    cdef uint8_t[ENTRY_KEY_BYTES] wanted
    cdef MDB_val key, record
    cdef uint64_t index = first
    cdef uint64_t size = 0
    cdef int code
    cdef list found = []
    environment.check(environment_begin_read(&environment.c, &transaction), "read")
    try:
        environment.check(lmdb.cursor_open(transaction, environment.c.dbi, &cursor), "read")
        try:
            entry_key(wanted, group, first)
            key.mv_size = ENTRY_KEY_BYTES
            key.mv_data = wanted
            code = lmdb.cursor_get(cursor, &key, &record, MDB_SET_RANGE)
            while code == 0 and index <= last and is_entry(&key, group, index):
                if not entry_is_whole(<const uint8_t*>record.mv_data, record.mv_size, group, index):
                    raise StorageDamaged(f"{environment.path}: entry {index} of group {group} is damaged")
                size += record.mv_size - ENTRY_HEAD_BYTES
                if found and size > bytes_max:
                    break
                found.append(entry_tuple(&record, index))
                index += 1
                code = lmdb.cursor_get(cursor, &key, &record, MDB_NEXT)
            if code != MDB_NOTFOUND:
                environment.check(code, "read")
        finally:
            lmdb.cursor_close(cursor)
        return found
    finally:
        environment_end_read(&environment.c, transaction)


cdef bint is_entry(const MDB_val* key, uint32_t group, uint64_t index) noexcept:
    cdef const uint8_t* name = <const uint8_t*>key.mv_data
    return (
        key.mv_size == ENTRY_KEY_BYTES
        and name[0] == KEY_ENTRY
        and load32_big(name + 1) == group
        and load64_big(name + 5) == index
    )


cdef tuple entry_tuple(const MDB_val* record, uint64_t index):
    cdef const uint8_t* head = <const uint8_t*>record.mv_data
    return (
        load64(head + 8), index, load16(head + 16), (<const char*>head)[ENTRY_HEAD_BYTES:record.mv_size]
    )
