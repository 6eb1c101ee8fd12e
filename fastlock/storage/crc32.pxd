"""CRC-32 as zlib computes it, for threads that have no interpreter."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    #ifndef FASTLOCK_CRC32
    #define FASTLOCK_CRC32
    static uint32_t fastlock_crc32_tables[8][256];

    static void fastlock_crc32_prepare(void) {
        if (fastlock_crc32_tables[0][1] != 0) return;
        for (uint32_t byte = 256; byte-- > 0;) {
            uint32_t rest = byte;
            for (int bit = 0; bit < 8; bit++) rest = (rest >> 1) ^ (rest & 1 ? UINT32_C(0xEDB88320) : 0);
            fastlock_crc32_tables[0][byte] = rest;
        }
        for (int table = 1; table < 8; table++)
            for (int byte = 0; byte < 256; byte++) {
                uint32_t before = fastlock_crc32_tables[table - 1][byte];
                fastlock_crc32_tables[table][byte] = (before >> 8) ^ fastlock_crc32_tables[0][before & 255];
            }
    }

    /* Eight bytes a step: table k holds what a byte followed by k zero bytes leaves. */
    static uint32_t fastlock_crc32(const uint8_t* data, size_t size) {
        uint32_t rest = UINT32_MAX;
        for (; size >= 8; data += 8, size -= 8) {
            rest ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
            rest = fastlock_crc32_tables[7][rest & 255] ^ fastlock_crc32_tables[6][rest >> 8 & 255]
                ^ fastlock_crc32_tables[5][rest >> 16 & 255] ^ fastlock_crc32_tables[4][rest >> 24]
                ^ fastlock_crc32_tables[3][data[4]] ^ fastlock_crc32_tables[2][data[5]]
                ^ fastlock_crc32_tables[1][data[6]] ^ fastlock_crc32_tables[0][data[7]];
        }
        for (; size > 0; data++, size--) rest = (rest >> 8) ^ fastlock_crc32_tables[0][(rest ^ *data) & 255];
        return ~rest;
    }
    #endif
    """
    # Call it once, with the GIL, before the first crc32.
    void crc32_prepare "fastlock_crc32_prepare"() noexcept nogil
    uint32_t crc32 "fastlock_crc32"(const uint8_t* data, size_t size) noexcept nogil
