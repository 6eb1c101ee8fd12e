"""What a leader knows about one other member."""

from typing import Final, final

STATE_NAMES: Final[tuple[str, ...]]

@final
class Progress:
    node: Final[int]
    incarnation: Final[int]
    state: Final[int]
    match: Final[int]
    next: Final[int]
    snapshot_id: Final[int]
    snapshot_index: Final[int]
    snapshot_offset: Final[int]
    inflight_count: Final[int]
    inflight_bytes: Final[int]
