"""Stream framing: where a frame ends, and messages of several segments brought into one."""

def frame_size(data: bytes | bytearray | memoryview, frame_bytes_max: int = 1048576) -> int:
    """How many bytes the frame has that starts here; 0 while its header is incomplete.

    Raises FrameTooLarge as soon as the header shows it.
    """
