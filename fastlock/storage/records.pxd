"""How keys and records lie in the two environments, and their checksums.

Keys sort by their bytes, so numbers in them are big endian; numbers in records are little endian.

    log     'E' group index              entry record: checksum, term, kind, 0, size, data
            'G' group                    group record: checksum, term, vote, cut index, last index
            'F'                          founding record: checksum, Introduction frame (peer.capnp)
    table   'C' group                    checkpoint record: checksum, generation, index, term, row count, row sum
            'R' group generation row key row record: checksum, size of the key's tail, the tail, row
    both    'I'                          identity record

Every checksum is seeded with what its key says, so a record under a wrong key is found too.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastlock._core.hashing cimport key_hash
from fastlock._core.wire cimport load16, load32, load64, store16, store32, store64


cdef enum:
    KEY_ENTRY = 0x45
    KEY_GROUP = 0x47
    KEY_CHECKPOINT = 0x43
    KEY_ROW = 0x52
    KEY_IDENTITY = 0x49

    GROUP_KEY_BYTES = 5
    ENTRY_KEY_BYTES = 13
    ROW_PREFIX_BYTES = 13
    # LMDB takes keys of up to 511 bytes. A longer row key is stored as its head and 16 bytes of hash, and
    # its tail goes into the record.
    ROW_KEY_HEAD_BYTES = 464
    ROW_KEY_HASH_BYTES = 16
    STORED_KEY_BYTES_MAX = ROW_PREFIX_BYTES + ROW_KEY_HEAD_BYTES + ROW_KEY_HASH_BYTES

    ENTRY_HEAD_BYTES = 24
    GROUP_RECORD_BYTES = 40
    CHECKPOINT_RECORD_BYTES = 48
    ROW_HEAD_BYTES = 12


cdef struct group_t:
    uint32_t group
    bint changed              # its record is to be written
    bint sweeping             # entries at or below cut_index may still be there
    uint64_t term
    uint64_t vote
    uint64_t cut_index        # the log goes on after it
    uint64_t last_index


cdef struct checkpoint_t:
    uint32_t group
    bint changed
    uint64_t generation       # of the rows that are visible; 0 = there are none
    uint64_t index
    uint64_t term
    uint64_t row_count
    uint64_t row_sum          # of the rows' checksums: a row too few or too many is found
    # The generation that is being written.
    uint64_t staged_generation
    uint64_t staged_count
    uint64_t staged_sum


cdef inline void store32_big(uint8_t* at, uint32_t number) noexcept nogil:
    at[0] = <uint8_t>(number >> 24)
    at[1] = <uint8_t>(number >> 16)
    at[2] = <uint8_t>(number >> 8)
    at[3] = <uint8_t>number


cdef inline void store64_big(uint8_t* at, uint64_t number) noexcept nogil:
    store32_big(at, <uint32_t>(number >> 32))
    store32_big(at + 4, <uint32_t>number)


cdef inline uint32_t load32_big(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline uint64_t load64_big(const uint8_t* at) noexcept nogil:
    return <uint64_t>load32_big(at) << 32 | load32_big(at + 4)


cdef inline uint64_t seed_of(uint8_t kind, uint32_t group, uint64_t number, uint64_t other) noexcept nogil:
    cdef uint8_t[21] name
    name[0] = kind
    store32(name + 1, group)
    store64(name + 5, number)
    store64(name + 13, other)
    return key_hash(name, 21, 0)


cdef inline void entry_key(uint8_t* key, uint32_t group, uint64_t index) noexcept nogil:
    key[0] = KEY_ENTRY
    store32_big(key + 1, group)
    store64_big(key + 5, index)


cdef inline void group_key(uint8_t* key, uint8_t kind, uint32_t group) noexcept nogil:
    key[0] = kind
    store32_big(key + 1, group)


cdef inline uint64_t entry_checksum(uint32_t group, uint64_t index, uint64_t term, uint16_t kind,
                                    const uint8_t* data, uint32_t size) noexcept nogil:
    return key_hash(data, size, seed_of(KEY_ENTRY, group, index, term) + kind)


cdef inline void entry_write(uint8_t* record, uint32_t group, uint64_t index, uint64_t term, uint16_t kind,
                             const uint8_t* data, uint32_t size) noexcept nogil:
    store64(record, entry_checksum(group, index, term, kind, data, size))
    store64(record + 8, term)
    store16(record + 16, kind)
    store16(record + 18, 0)
    store32(record + 20, size)
    memcpy(record + ENTRY_HEAD_BYTES, data, size)


cdef inline bint entry_is_whole(const uint8_t* record, size_t size, uint32_t group, uint64_t index) noexcept nogil:
    return (
        size >= ENTRY_HEAD_BYTES
        and load32(record + 20) == size - ENTRY_HEAD_BYTES
        and load16(record + 18) == 0
        and load64(record) == entry_checksum(
            group, index, load64(record + 8), load16(record + 16), record + ENTRY_HEAD_BYTES, load32(record + 20)
        )
    )


cdef inline void group_write(uint8_t* record, const group_t* group) noexcept nogil:
    store64(record + 8, group.term)
    store64(record + 16, group.vote)
    store64(record + 24, group.cut_index)
    store64(record + 32, group.last_index)
    store64(record, key_hash(record + 8, GROUP_RECORD_BYTES - 8, seed_of(KEY_GROUP, group.group, 0, 0)))


cdef inline bint group_read(const uint8_t* record, size_t size, group_t* group) noexcept nogil:
    """Fills all but group.group, which must be set; False if the record is damaged."""
    if size != GROUP_RECORD_BYTES:
        return False
    group.term = load64(record + 8)
    group.vote = load64(record + 16)
    group.cut_index = load64(record + 24)
    group.last_index = load64(record + 32)
    group.changed = False
    group.sweeping = True
    return load64(record) == key_hash(record + 8, GROUP_RECORD_BYTES - 8, seed_of(KEY_GROUP, group.group, 0, 0))


cdef inline void checkpoint_write(uint8_t* record, const checkpoint_t* checkpoint) noexcept nogil:
    store64(record + 8, checkpoint.generation)
    store64(record + 16, checkpoint.index)
    store64(record + 24, checkpoint.term)
    store64(record + 32, checkpoint.row_count)
    store64(record + 40, checkpoint.row_sum)
    store64(record, key_hash(
        record + 8, CHECKPOINT_RECORD_BYTES - 8, seed_of(KEY_CHECKPOINT, checkpoint.group, 0, 0)
    ))


cdef inline bint checkpoint_read(const uint8_t* record, size_t size, checkpoint_t* checkpoint) noexcept nogil:
    """Fills all but checkpoint.group, which must be set; False if the record is damaged."""
    if size != CHECKPOINT_RECORD_BYTES:
        return False
    checkpoint.generation = load64(record + 8)
    checkpoint.index = load64(record + 16)
    checkpoint.term = load64(record + 24)
    checkpoint.row_count = load64(record + 32)
    checkpoint.row_sum = load64(record + 40)
    checkpoint.changed = False
    checkpoint.staged_generation = checkpoint.staged_count = checkpoint.staged_sum = 0
    return load64(record) == key_hash(
        record + 8, CHECKPOINT_RECORD_BYTES - 8, seed_of(KEY_CHECKPOINT, checkpoint.group, 0, 0)
    )


cdef inline void row_prefix(uint8_t* key, uint32_t group, uint64_t generation) noexcept nogil:
    key[0] = KEY_ROW
    store32_big(key + 1, group)
    store64_big(key + 5, generation)


cdef inline size_t row_stored_key(uint8_t* stored, uint32_t group, uint64_t generation, uint64_t secret,
                                  const uint8_t* key, uint32_t size) noexcept nogil:
    """The key a row is stored under; `secret` differs from directory to directory, so that nobody can aim at a hash."""
    row_prefix(stored, group, generation)
    if size <= ROW_KEY_HEAD_BYTES:
        memcpy(stored + ROW_PREFIX_BYTES, key, size)
        return ROW_PREFIX_BYTES + size
    memcpy(stored + ROW_PREFIX_BYTES, key, ROW_KEY_HEAD_BYTES)
    store64(stored + ROW_PREFIX_BYTES + ROW_KEY_HEAD_BYTES, key_hash(key, size, secret))
    store64(stored + ROW_PREFIX_BYTES + ROW_KEY_HEAD_BYTES + 8, key_hash(key, size, ~secret))
    return STORED_KEY_BYTES_MAX


cdef inline uint64_t row_checksum(uint32_t group, uint64_t generation, const uint8_t* stored_key, size_t stored_size,
                                  const uint8_t* after_checksum, uint32_t size) noexcept nogil:
    """Over the row's place, its key and everything in the record behind the checksum."""
    cdef uint64_t seed = key_hash(stored_key, <uint32_t>stored_size, seed_of(KEY_ROW, group, generation, size))
    return key_hash(after_checksum, size, seed)


cdef inline bint row_is_whole(const uint8_t* stored_key, size_t stored_size, const uint8_t* record,
                              size_t size) noexcept nogil:
    """Whether a record under a row's key, ROW_PREFIX_BYTES or longer, is what was written there."""
    return (
        size >= ROW_HEAD_BYTES
        and load32(record + 8) <= size - ROW_HEAD_BYTES
        and (load32(record + 8) == 0 or stored_size == STORED_KEY_BYTES_MAX)
        and load64(record) == row_checksum(
            load32_big(stored_key + 1), load64_big(stored_key + 5), stored_key, stored_size, record + 8,
            <uint32_t>size - 8,
        )
    )


cdef inline size_t row_key_head_size(size_t stored_size, uint32_t tail_size) noexcept nogil:
    """How much of a row's key is in the key it is stored under."""
    return ROW_KEY_HEAD_BYTES if tail_size != 0 else stored_size - ROW_PREFIX_BYTES
