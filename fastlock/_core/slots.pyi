"""The slot of a key, for Python."""

def slot_of(key: bytes | bytearray | memoryview) -> int:
    """The slot (0 … 16383) a key belongs to: of its hash tag, if it has one."""
