"""The seeded hash of a key, for Python."""

def hash_of(key: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """64 bits that are the same on every platform."""
