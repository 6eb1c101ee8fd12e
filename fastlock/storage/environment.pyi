from typing import Final, final

FILE_MODE: int

@final
class Environment:
    """One LMDB environment: opened with durable commits, growing while nobody is in a transaction."""

    path: Final[str]
    def __init__(self, path: str, map_bytes: int, map_bytes_max: int) -> None: ...
    def close(self) -> None:
        """The caller has ended every transaction and thread that uses it."""
    @property
    def map_bytes(self) -> int: ...
    @property
    def map_bytes_max(self) -> int: ...
    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that hold data, as of the newest commit."""
    def get(self, key: bytes) -> bytes | None:
        """The record under a key, or None."""
    def put(self, key: bytes, record: bytes) -> None:
        """Stores one record durably; only before a thread writes here."""
