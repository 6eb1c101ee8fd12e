"""The seeded hash of a key, for Python."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


def hash_of(const uint8_t[::1] key not None, uint64_t seed=0) -> int:
    """64 bits that are the same on every platform."""
    return key_hash(&key[0] if key.shape[0] else NULL, <uint32_t>key.shape[0], seed)
