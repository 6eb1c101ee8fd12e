"""The commands that become one log entry, and whom each of them is to be answered to."""

from typing import Final, final

COMMANDS_MAX: Final[int]
BYTES_MAX: Final[int]

@final
class Batch:
    """Collects commands and seals them as one log entry; its origins outlive the sealing."""
