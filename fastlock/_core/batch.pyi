"""The commands a leader collects in one turn: from request frames to one log entry to reply frames."""

from typing import Final, final

from fastlock._core.locktable import LockTable

COMMANDS_MAX: Final[int]
BYTES_MAX: Final[int]

# Why feed() stopped.
FEED_MORE: Final[int]
FEED_FULL: Final[int]
FEED_OTHER: Final[int]

@final
class Batch:
    """Collects commands, seals them as one log entry, and answers them once it was applied."""

    group: Final[int]
    count: Final[int]
    stopped: Final[int]
    def __init__(self, group: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes the entry's frame would have."""

    def feed(self, data: bytes | bytearray | memoryview, frame_bytes_max: int = 1048576) -> int:
        """Takes the commands out of concatenated Request frames; returns how many bytes are done with.

        `stopped` says why it ended. A request that cannot be a command gets a refusal by its id; bytes that
        do not even show an id raise, and the connection they came from must be closed.
        """

    def take_refusals(self) -> bytes:
        """The Reply frames of requests that never became a command, since the last call."""

    def seal(self, term: int, index: int) -> bytes:
        """The LogEntry frame of everything collected. The batch then only answers, until clear()."""

    def replies(
        self, table: LockTable, first: int = 0, end: int = 1024, *, leader: int = 0, retry_ms: int = 0
    ) -> bytes:
        """The Reply frames for the commands first ≤ position < end, right after `table` applied the entry.

        Each feed() added the commands of one connection, so `count` before and after it is that
        connection's range.
        """

    def request_id(self, position: int) -> int:
        """The id of the request whose command is at this position."""

    def timeout_ms(self, position: int) -> int:
        """How long the caller of the command at this position waits; 0 = no limit."""

    def clear(self) -> None:
        """Empties the batch for the next turn."""
