"""What the dict codecs share: memory for a message under construction, and fields in and out of dicts."""

from typing import Final, final

from fastlock.errors import ProtocolError

ERRORS: Final[dict[int, tuple[type[ProtocolError], str]]]

@final
class Arena:
    """Nothing of it is for Python."""

@final
class Output:
    """Nothing of it is for Python."""
