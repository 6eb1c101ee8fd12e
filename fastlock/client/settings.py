"""What a client may tune, and the limits it keeps to."""

from __future__ import annotations

from dataclasses import dataclass

# Requests one client has under way at most; the next ones wait for their turn.
REQUESTS_MAX = 65_536
# A session keeps 1,024 answers; commands beyond this many unanswered ones wait for their turn.
SESSION_WINDOW = 1_000
# Leases in one keep-alive frame.
KEEP_ALIVES_PER_FRAME_MAX = 1_024


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """All times are those of the client's own clock."""

    # Of a lock or lease that names no other.
    ttl_ms: int = 30_000
    # How long an operation is repeated before it fails with Unavailable.
    timeout_ms: int = 10_000
    # How long one node is waited for before the request goes to another one; doubles up to the maximum.
    attempt_timeout_ms: int = 1_000
    attempt_timeout_ms_max: int = 8_000
    # Pause before a refused request is repeated: a random share of this, doubling up to the maximum.
    backoff_ms: int = 10
    backoff_ms_max: int = 320
    dial_timeout_ms: int = 3_000
    redial_ms: int = 50
    redial_ms_max: int = 2_000
    # A queued acquire is repeated this often, in case the node that would wake it cannot.
    reattach_ms: int = 5_000
    # A lease is believed in for its TTL less this share, so that clocks may drift apart by as much.
    drift_fraction: float = 0.02
    # Shown to people who look at the lock.
    owner: bytes = b""
