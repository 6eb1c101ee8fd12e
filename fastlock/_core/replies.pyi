"""Where answers go: one buffer of outgoing bytes per connection, and who is to be written to.

The end of a turn of the loop:

    for replies in switchboard.take_touched():
        connection = replies.owner
        connection.transport.write(replies.take())
        if replies.overflowed: connection.close()
"""

from typing import Any, Final, final

BYTES_MAX: Final[int]

@final
class Switchboard:
    """All connections of a node that answers go out on."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def open(
        self,
        owner: Any = None,
        *,
        bytes_max: int = 8388608,
        is_trusted: bool = False,
        is_forwarder: bool = False,
    ) -> Replies:
        """A connection's answers, until it is closed.

        `is_trusted`: a member or the node itself, who may also send what only a group's own leader proposes.
        `is_forwarder`: a member that handed the requests on; they are never forwarded again.
        """

    def take_touched(self) -> list[Replies]:
        """The connections that have bytes to be written, each once, by when they got the first."""

@final
class Replies:
    """One connection's answers: Reply frames, one after the other."""

    owner: Any
    is_trusted: Final[bool]
    is_forwarder: Final[bool]
    @property
    def size(self) -> int:
        """Bytes that wait to be taken."""
    @property
    def closed(self) -> bool: ...
    @property
    def overflowed(self) -> bool:
        """Whether answers were dropped because nobody took them: the connection must be closed."""
    def put(self, frame: bytes | bytearray | memoryview) -> None:
        """Appends a frame that was encoded elsewhere; nothing happens once closed."""
    def take(self) -> bytes:
        """Everything since the last call."""
    def close(self) -> None:
        """Drops what was not taken and every answer to come."""
