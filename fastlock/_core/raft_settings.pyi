"""Local tunables of one group; members may differ in them without harm."""

from typing import Final, final

@final
class RaftSettings:
    """ValueError where a setting makes no sense. Defaults suit a network with a few milliseconds of delay."""

    election_ms_min: Final[int]
    election_ms_max: Final[int]
    heartbeat_ms: Final[int]
    append_bytes_max: Final[int]  # entries of one append message; one entry always goes
    inflight_messages_max: Final[int]  # appends to one member that are not acknowledged
    inflight_bytes_max: Final[int]
    window_batches: Final[int]  # proposed and not committed, where each but the first must be large
    window_large_bytes: Final[int]
    committed_bytes_max: Final[int]  # entries of one Ready.committed
    reads_pending_max: Final[int]
    commit_notice_ms: Final[int]  # how long a commit waits for an append to travel on; 0 = not at all
    def __init__(
        self,
        *,
        election_ms_min: int = 1000,
        election_ms_max: int = 2000,
        heartbeat_ms: int = 200,
        append_bytes_max: int = 1 << 20,
        inflight_messages_max: int = 32,
        inflight_bytes_max: int = 4 << 20,
        window_batches: int = 2,
        window_large_bytes: int = 16 << 10,
        committed_bytes_max: int = 4 << 20,
        reads_pending_max: int = 65536,
        commit_notice_ms: int = 0,
    ) -> None: ...
