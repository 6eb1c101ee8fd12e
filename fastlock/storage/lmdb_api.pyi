from collections.abc import Iterator

NAMES: tuple[bytes, ...]
PREFIXES: tuple[bytes, ...]
EXTENSIONS: tuple[str, ...]
LIBRARY: str
VERSION: str

def libraries() -> Iterator[str]:
    """Paths that may have LMDB in them, the best first."""

def find() -> str: ...
def describe(code: int) -> str:
    """What LMDB says about a return code."""
