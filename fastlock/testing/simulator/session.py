"""A simulated client's exactly-once sessions and leases: what it may repeat, and how long it may believe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastlock.testing.simulator.process import Process
from fastlock.testing.simulator.time import MILLISECOND, Clock

# A client trusts a lease for its TTL less this share, so that clocks may drift apart by as much.
DRIFT_SHARE = 0.02


class Session:
    """Sequence numbers towards one group, and below which of them every answer was received."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._next = 1
        self._open: dict[int, None] = {}

    def begin(self) -> int:
        sequence = self._next
        self._next += 1
        self._open[sequence] = None
        return sequence

    def finish(self, sequence: int) -> None:
        self._open.pop(sequence, None)

    @property
    def busy(self) -> bool:
        return bool(self._open)

    def acknowledged_below(self) -> int:
        # Insertion order is sequence order.
        return next(iter(self._open), self._next)


@dataclass(slots=True)
class Attempt:
    """One command and all its repetitions: the same session and sequence, so it acts once."""

    group: int
    command: dict[str, Any]
    size: int
    session: Session | None = None
    sequence: int = 0
    # Of an acquire: with its lease, who the holder is.
    request: int = 0
    first_sent_ns: int = 0
    sent: int = 0
    requests: list[int] = field(default_factory=list)
    inbox: list[Any] = field(default_factory=list)
    waiter: Process | None = None


class Lease:
    """What the client knows of one lease in one group: until when it may believe in it, and when it did."""

    def __init__(self, number: int, group: int, ttl_ms: int, clock: Clock, bound: bool) -> None:
        self.number = number
        self.group = group
        self.ttl_ms = ttl_ms
        # The longest TTL it may ever have had.
        self.ttl_max_ms = ttl_ms
        # True time at which the client last sent anything that gives it time.
        self.touched_ns = 0
        # Whether a change of its TTL was sent and may still come: its TTL does not rise again.
        self.unsure = False
        self.bound = bound
        self.lost = False
        # Whether its end was asked for: the client counts on it no longer, whatever comes of that.
        self.given_up = False
        self.created = False
        # Whether a lock or a wait of it is in use, so that it has to be kept alive.
        self.wanted = False
        self.lost_revision = 0
        self.holds: list[Hold] = []
        self._clock = clock
        self._trusted_ns = 0
        # Spans of true time in which the lease was trusted.
        self.spans: list[tuple[int, int]] = []

    @property
    def high(self) -> int:
        return self.number >> 64

    @property
    def low(self) -> int:
        return self.number & ((1 << 64) - 1)

    def confirmed(self, sent_ns: int, now_true_ns: int) -> None:
        """The server answered for a command or keep-alive sent at this local time."""
        until_ns = sent_ns + self._validity_ns()
        if self.given_up or until_ns <= max(self._trusted_ns, self._clock.now_ns()):
            return
        until_true_ns = self._clock.true_ns(until_ns)
        if self.spans and self._clock.now_ns() < self._trusted_ns:
            self.spans[-1] = (self.spans[-1][0], until_true_ns)
        else:
            self.spans.append((now_true_ns, until_true_ns))
        self._trusted_ns = until_ns

    def change(self, ttl_ms: int) -> None:
        """A change of the TTL is sent: until it is confirmed the shorter one counts, from this moment on."""
        self.ttl_max_ms = max(self.ttl_max_ms, ttl_ms)
        self.ttl_ms = min(self.ttl_ms, ttl_ms)
        until_ns = self._clock.now_ns() + self._validity_ns()
        if until_ns < self._trusted_ns:
            self._trusted_ns = until_ns
            start_ns, _ = self.spans[-1]
            self.spans[-1] = (start_ns, self._clock.true_ns(until_ns))

    def _validity_ns(self) -> int:
        return int(self.ttl_ms * MILLISECOND * (1 - DRIFT_SHARE))

    def clock_changed(self) -> None:
        """The client's clock leapt or changed its speed: its belief ends at another true time."""
        if self.spans and self.spans[-1][1] > self._clock.true_now_ns():
            self.spans[-1] = (self.spans[-1][0], self._clock.true_ns(self._trusted_ns))

    def trusted(self) -> bool:
        return not self.lost and not self.given_up and self._clock.now_ns() < self._trusted_ns

    def lose(self, now_true_ns: int) -> None:
        if not self.lost:
            self.lost = True
            self._stop_believing(now_true_ns)

    def give_up(self, now_true_ns: int) -> None:
        self.given_up = True
        self._stop_believing(now_true_ns)

    def _stop_believing(self, now_true_ns: int) -> None:
        if self.spans and self.spans[-1][1] > now_true_ns:
            self.spans[-1] = (self.spans[-1][0], now_true_ns)


@dataclass(slots=True)
class Hold:
    """A lock the client was told it holds."""

    key: bytes
    lease: Lease
    request: int
    token: int
    mode: str
    units: int
    limit: int
    start_ns: int
    # True time at which the client stopped believing by its own decision; 0 = it has not.
    end_ns: int = 0

    @property
    def claim(self) -> str:
        return f"{self.lease.number:x}/{self.request}"
