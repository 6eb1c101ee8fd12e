"""Bytes from a socket as whole frames: one growing buffer per connection that asyncio reads into."""

from __future__ import annotations

from collections.abc import Iterator

from fastlock._core.framing import frame_size

BUFFER_BYTES = 64 << 10
# A buffer that a large frame made larger than this is given back afterwards.
BUFFER_BYTES_KEPT = 1 << 20
# Below so much room for the next read, what is left is moved to the front.
ROOM_BYTES_MIN = 4 << 10


class FrameBuffer:
    """What arrived and was not taken yet. A frame that is too large is refused when its head shows it."""

    __slots__ = ("_bytes", "_end", "_frame_bytes_max", "_start", "_view")

    def __init__(self, frame_bytes_max: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._replace(bytearray(buffer_bytes))
        self._start = 0
        self._end = 0

    def _replace(self, content: bytearray) -> None:
        self._bytes = content
        self._view = memoryview(content)

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._bytes) > BUFFER_BYTES_KEPT:
                self._replace(bytearray(BUFFER_BYTES))
        elif len(self._bytes) - self._end < ROOM_BYTES_MIN:
            self._make_room()
        return self._view[self._end :]

    def _make_room(self) -> None:
        held = self._view[self._start : self._end]
        size = max(len(self._bytes), 2 * len(held))
        content = bytearray(size)
        content[: len(held)] = held
        self._start, self._end = 0, len(held)
        held.release()
        self._replace(content)

    def filled(self, size: int) -> None:
        self._end += size

    @property
    def content(self) -> memoryview:
        """Everything that was not taken yet."""
        return self._view[self._start : self._end]

    def taken(self, size: int) -> None:
        self._start += size

    def frames(self) -> Iterator[memoryview]:
        """Whole frames, each valid until the next one is asked for. Raises FrameTooLarge."""
        while True:
            rest = self._view[self._start : self._end]
            size = frame_size(rest, self._frame_bytes_max)
            if size == 0 or size > len(rest):
                return
            self._start += size
            yield rest[:size]
