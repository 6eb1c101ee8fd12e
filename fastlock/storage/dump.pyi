from typing import BinaryIO, Final, final

from fastlock.storage.environment import Environment

@final
class Dump:
    """A checkpoint's rows for another member, dumped to an unnamed file by a native thread.

    Takes over the file. LookupError if the group has no checkpoint.
    """

    index: int
    term: int
    closed: Final[bool]
    def __init__(self, environment: Environment, group: int, file: BinaryIO) -> None: ...
    @property
    def complete(self) -> bool: ...
    def chunk(self, offset: int, bytes_max: int) -> tuple[bytes, bool]:
        """Whole packed rows from an offset a chunk ended at (or 0), and whether they are the last.

        The dump is ahead of whoever takes it; where it is not, this waits for a bounded time, and then
        returns what there is, possibly nothing.
        """
    def close(self) -> None: ...
    def raise_failure(self) -> None: ...
