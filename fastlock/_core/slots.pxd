"""The slot of a key: CRC-16/XMODEM of the key or its hash tag, modulo 16384, as Redis Cluster has it."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memchr

from fastlock._core.types cimport slice_t


cdef enum:
    SLOTS_TOTAL = 16384


cdef extern from *:
    """
    #include <stdint.h>

    #ifndef FASTLOCK_SLOTS
    #define FASTLOCK_SLOTS
    /* Table k, entry i: the remainder of byte i followed by k zero bytes, modulo x^16 + x^12 + x^5 + 1. Remainders
       are linear, so an entry is the sum of those of its bits, and the compiler works the tables out. Eight
       of them take eight bytes of a key in one step, instead of a chain of eight dependent loads. */
    #define FASTLOCK_CRC16_ENTRY(i, a, b, c, d, e, f, g, h) \\
        (((i) & 1 ? a : 0) ^ ((i) & 2 ? b : 0) ^ ((i) & 4 ? c : 0) ^ ((i) & 8 ? d : 0) ^ ((i) & 16 ? e : 0) \\
         ^ ((i) & 32 ? f : 0) ^ ((i) & 64 ? g : 0) ^ ((i) & 128 ? h : 0))
    #define FASTLOCK_CRC16_T0(i) FASTLOCK_CRC16_ENTRY(i, 0x1021, 0x2042, 0x4084, 0x8108, 0x1231, 0x2462, 0x48c4, 0x9188)
    #define FASTLOCK_CRC16_T1(i) FASTLOCK_CRC16_ENTRY(i, 0x3331, 0x6662, 0xccc4, 0x89a9, 0x0373, 0x06e6, 0x0dcc, 0x1b98)
    #define FASTLOCK_CRC16_T2(i) FASTLOCK_CRC16_ENTRY(i, 0x3730, 0x6e60, 0xdcc0, 0xa9a1, 0x4363, 0x86c6, 0x1dad, 0x3b5a)
    #define FASTLOCK_CRC16_T3(i) FASTLOCK_CRC16_ENTRY(i, 0x76b4, 0xed68, 0xcaf1, 0x85c3, 0x1ba7, 0x374e, 0x6e9c, 0xdd38)
    #define FASTLOCK_CRC16_T4(i) FASTLOCK_CRC16_ENTRY(i, 0xaa51, 0x4483, 0x8906, 0x022d, 0x045a, 0x08b4, 0x1168, 0x22d0)
    #define FASTLOCK_CRC16_T5(i) FASTLOCK_CRC16_ENTRY(i, 0x45a0, 0x8b40, 0x06a1, 0x0d42, 0x1a84, 0x3508, 0x6a10, 0xd420)
    #define FASTLOCK_CRC16_T6(i) FASTLOCK_CRC16_ENTRY(i, 0xb861, 0x60e3, 0xc1c6, 0x93ad, 0x377b, 0x6ef6, 0xddec, 0xabf9)
    #define FASTLOCK_CRC16_T7(i) FASTLOCK_CRC16_ENTRY(i, 0x47d3, 0x8fa6, 0x0f6d, 0x1eda, 0x3db4, 0x7b68, 0xf6d0, 0xfd81)
    #define FASTLOCK_CRC16_4(t, i) t(i), t(i + 1), t(i + 2), t(i + 3)
    #define FASTLOCK_CRC16_16(t, i) \\
        FASTLOCK_CRC16_4(t, i), FASTLOCK_CRC16_4(t, i + 4), FASTLOCK_CRC16_4(t, i + 8), FASTLOCK_CRC16_4(t, i + 12)
    #define FASTLOCK_CRC16_64(t, i) \\
        FASTLOCK_CRC16_16(t, i), FASTLOCK_CRC16_16(t, i + 16), \\
        FASTLOCK_CRC16_16(t, i + 32), FASTLOCK_CRC16_16(t, i + 48)
    #define FASTLOCK_CRC16_TABLE(t) \\
        {FASTLOCK_CRC16_64(t, 0), FASTLOCK_CRC16_64(t, 64), FASTLOCK_CRC16_64(t, 128), FASTLOCK_CRC16_64(t, 192)}
    static const uint16_t fastlock_crc16[8][256] = {
        FASTLOCK_CRC16_TABLE(FASTLOCK_CRC16_T0), FASTLOCK_CRC16_TABLE(FASTLOCK_CRC16_T1),
        FASTLOCK_CRC16_TABLE(FASTLOCK_CRC16_T2), FASTLOCK_CRC16_TABLE(FASTLOCK_CRC16_T3),
        FASTLOCK_CRC16_TABLE(FASTLOCK_CRC16_T4), FASTLOCK_CRC16_TABLE(FASTLOCK_CRC16_T5),
        FASTLOCK_CRC16_TABLE(FASTLOCK_CRC16_T6), FASTLOCK_CRC16_TABLE(FASTLOCK_CRC16_T7),
    };

    static inline uint16_t fastlock_key_crc16(const uint8_t* data, uint32_t size) {
        uint16_t crc = 0;
        for (; size >= 8; data += 8, size -= 8)
            crc = fastlock_crc16[7][data[0] ^ (crc >> 8)] ^ fastlock_crc16[6][data[1] ^ (crc & 255)]
                ^ fastlock_crc16[5][data[2]] ^ fastlock_crc16[4][data[3]] ^ fastlock_crc16[3][data[4]]
                ^ fastlock_crc16[2][data[5]] ^ fastlock_crc16[1][data[6]] ^ fastlock_crc16[0][data[7]];
        for (; size; data++, size--) crc = (uint16_t)(crc << 8) ^ fastlock_crc16[0][(crc >> 8) ^ *data];
        return crc;
    }
    #endif
    """
    uint16_t key_crc16 "fastlock_key_crc16"(const uint8_t* data, uint32_t size) noexcept nogil


cdef inline slice_t hash_tag(slice_t key) noexcept nogil:
    """The bytes between the first `{` and the next `}` after it, if there is at least one; else the whole key."""
    cdef const uint8_t* left
    cdef const uint8_t* right
    cdef slice_t tag
    if key.size == 0:
        return key
    left = <const uint8_t*>memchr(key.data, c'{', key.size)
    if left == NULL:
        return key
    left += 1
    if left == key.data + key.size:
        return key
    right = <const uint8_t*>memchr(left, c'}', key.data + key.size - left)
    if right == NULL or right == left:
        return key
    tag.data = left
    tag.size = <uint32_t>(right - left)
    return tag


cdef inline uint16_t key_slot(slice_t key) noexcept nogil:
    cdef slice_t tag = hash_tag(key)
    return key_crc16(tag.data, tag.size) & (SLOTS_TOTAL - 1)
