"""The receiving side of a snapshot: which chunk is expected, and what storage is busy with."""

from typing import Final, final

@final
class SnapshotReceiver:
    snapshot_id: Final[int]
    source: Final[int]
    index: Final[int]
    term: Final[int]
    offset: Final[int]
    installing: Final[bool]
    def __init__(self) -> None: ...
