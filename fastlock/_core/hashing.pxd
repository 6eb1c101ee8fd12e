"""A fast seeded 64-bit hash of a key: the same on every platform, not cryptographic."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #ifndef FASTLOCK_HASHING
    #define FASTLOCK_HASHING
    static inline uint64_t fastlock_hash_load(const uint8_t* at) {
        uint64_t word;
        memcpy(&word, at, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    /* Both halves of the 128-bit product, folded: every input bit reaches every output bit. */
    static inline uint64_t fastlock_hash_fold(uint64_t a, uint64_t b) {
        __extension__ typedef unsigned __int128 wide_t;
        wide_t product = (wide_t)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }

    static inline uint64_t fastlock_key_hash(const uint8_t* data, uint32_t size, uint64_t seed) {
        const uint64_t odd_a = UINT64_C(0x9e3779b97f4a7c15), odd_b = UINT64_C(0xc2b2ae3d27d4eb4f);
        const uint64_t odd_c = UINT64_C(0x165667b19e3779f9);
        uint64_t state = fastlock_hash_fold(seed ^ odd_a, odd_b ^ size);
        uint32_t left = size;
        uint64_t first = 0, second = 0;
        while (left > 16) {
            state = fastlock_hash_fold(fastlock_hash_load(data) ^ odd_b ^ state, fastlock_hash_load(data + 8) ^ odd_c);
            data += 16;
            left -= 16;
        }
        if (left >= 8) {
            /* The last words may overlap: no byte-wise tail. */
            first = fastlock_hash_load(data);
            second = fastlock_hash_load(data + left - 8);
        } else {
            for (uint32_t i = 0; i < left; i++) first |= (uint64_t)data[i] << (8 * i);
        }
        state = fastlock_hash_fold(first ^ odd_b ^ state, second ^ odd_c ^ seed);
        return fastlock_hash_fold(state ^ odd_a, odd_c ^ size);
    }
    #endif
    """
    uint64_t hash_fold "fastlock_hash_fold"(uint64_t a, uint64_t b) noexcept nogil
    uint64_t key_hash "fastlock_key_hash"(const uint8_t* data, uint32_t size, uint64_t seed) noexcept nogil
