"""Leases as a client sees them: until when it may believe in one, and what keeps it alive."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Any

from fastlock.client.cluster import NS_PER_MS
from fastlock.client.flows import NEVER_NS, Signal
from fastlock.client.links import Link
from fastlock.client.messages import Answer, Call
from fastlock.client.refusals import refusal
from fastlock.client.requests import Command, Requests
from fastlock.client.settings import KEEP_ALIVES_PER_FRAME_MAX
from fastlock.errors import FastlockError, Unavailable
from fastlock.schema.enums import NO_EXPIRY_TTL_MS, Code

# A lease is renewed every third of its TTL; others that are due within a twelfth travel along.
RENEWALS_PER_TTL = 3
TRAVEL_ALONG_SHARE = 12
# After a keep-alive that was not answered or not confirmed, the next one follows within this share of the
# TTL.
RETRIES_PER_TTL = 20
RETRY_MS_MIN = 5
RETRY_MS_MAX = 500
# Entries of leases that ended stay in the agenda until their time; with more than this it is swept now and
# then.
AGENDA_MIN = 1_024


class HoldState(Enum):
    """What a holder may rely on."""

    HELD = "held"
    SUSPENDED = "suspended"  # unconfirmed for too long: somebody else may have it, or it may come back
    LOST = "lost"
    RELEASED = "released"


class Hold:
    """One or more keys the cluster granted to this client, each with its token."""

    __slots__ = ("keys", "lease", "lost", "on_change", "released", "request", "suspected", "tokens", "told")

    def __init__(self, keys: tuple[bytes, ...], tokens: tuple[int, ...], lease: Lease, request: int) -> None:
        self.keys = keys
        self.tokens = tokens
        self.lease = lease
        self.request = request
        self.lost = False
        self.released = False
        # A lock of the lease was taken away by force; whether it is this one is being asked.
        self.suspected = False
        self.told = HoldState.HELD
        self.on_change: Any = None

    def state(self, now_ns: int) -> HoldState:
        if self.released:
            return HoldState.RELEASED
        if self.lost or self.lease.lost:
            return HoldState.LOST
        if self.suspected or now_ns >= self.lease.trusted_until_ns:
            return HoldState.SUSPENDED
        return HoldState.HELD


class Lease:
    """One lease in one group."""

    __slots__ = (
        "_drift_fraction",
        "avoid",
        "bound",
        "changed",
        "created",
        "error",
        "group",
        "holds",
        "lost",
        "lost_revision",
        "number",
        "renew_ns",
        "renewing",
        "trusted_until_ns",
        "ttl_ms",
        "wake_ns",
    )

    def __init__(self, number: int, group: int, ttl_ms: int, bound: bool, drift_fraction: float) -> None:
        self.number = number
        self.group = group
        self.ttl_ms = ttl_ms
        # It ends with the last lock or wait it has.
        self.bound = bound
        self.created = False
        self.lost = False
        self.error: FastlockError | None = None
        self.changed = Signal()
        self.holds: dict[int, Hold] = {}
        self.trusted_until_ns = 0
        self.lost_revision = 0
        self.renew_ns = NEVER_NS
        self.renewing = False
        # When it is looked at next.
        self.wake_ns = NEVER_NS
        self.avoid: Link | None = None
        self._drift_fraction = drift_fraction

    @property
    def fields(self) -> dict[str, int]:
        return {"leaseHigh": self.number >> 64, "leaseLow": self.number & (1 << 64) - 1}

    def confirmed(self, sent_ns: int) -> None:
        """The cluster answered for a start or keep-alive that was sent at this time."""
        if self.ttl_ms == NO_EXPIRY_TTL_MS:
            self.trusted_until_ns = NEVER_NS
            self.renew_ns = NEVER_NS
            return
        ttl_ns = self.ttl_ms * NS_PER_MS
        self.trusted_until_ns = max(self.trusted_until_ns, sent_ns + int(ttl_ns * (1 - self._drift_fraction)))
        self.renew_ns = sent_ns + ttl_ns // RENEWALS_PER_TTL


class Leases:
    """All leases of one client, and the keep-alives that travel together."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.cluster = requests.cluster
        self.flows = requests.flows
        self.settings = requests.settings
        # Holds whose state changed; the driver tells their owners.
        self.notices: list[Hold] = []
        self.closing = False
        self._shared: dict[tuple[int, int], Lease] = {}
        self._alive: dict[tuple[int, int], Lease] = {}
        # When to look at which lease; an entry stands while its time is that of its lease.
        self._agenda: list[tuple[int, int, Lease]] = []
        self._sweep_at = AGENDA_MIN
        self._touched = Signal()
        self.flows.start(self._keep())

    def new(self, group: int, ttl_ms: int, bound: bool) -> Lease:
        """A lease with an id that nobody can guess; it exists once a command created it."""
        number = self.cluster.random.getrandbits(128) or 1
        return Lease(number, group, ttl_ms, bound, self.settings.drift_fraction)

    async def shared(self, group: int, ttl_ms: int, deadline_ns: int) -> Lease:
        """The lease that all locks with this TTL hang on in this group. Raises Unavailable, LimitExceeded."""
        lease = self._shared.get((group, ttl_ms))
        if lease is None:
            lease = self._shared[group, ttl_ms] = self.new(group, ttl_ms, bound=False)
            self.flows.start(self._create(lease))
        while not lease.created and lease.error is None:
            if not await lease.changed.until(deadline_ns):
                raise self.cluster.unavailable()
        if lease.error is not None:
            raise lease.error
        return lease

    async def _create(self, lease: Lease) -> None:
        fields = {**lease.fields, "createLease": {"ttlMs": lease.ttl_ms, "owner": self.settings.owner}}
        first_sent_ns = 0
        deadline_ns = self.requests.deadline_ns()
        try:
            while True:
                command = Command(lease.group, fields)
                answer = await self.requests.run(command, deadline_ns)
                first_sent_ns = first_sent_ns or command.first_sent_ns
                if answer.code is not Code.sessionUnknown:
                    break
            # It can only exist already because an earlier repetition created it: the id is ours alone.
            if answer.code not in (Code.ok, Code.leaseExists):
                raise refusal(answer)
            self.lives(lease, first_sent_ns)
        except FastlockError as error:
            self._shared.pop((lease.group, lease.ttl_ms), None)
            lease.error = error
            lease.changed.fire()

    def lives(self, lease: Lease, first_sent_ns: int) -> None:
        """The cluster said that the lease exists. It counts from its first send: the rest were repeats."""
        if not lease.created:
            lease.created = True
            lease.confirmed(first_sent_ns)
            self._alive[lease.group, lease.number] = lease
            lease.changed.fire()
            self._schedule(lease)

    def hold(self, lease: Lease, keys: tuple[bytes, ...], tokens: tuple[int, ...], request: int) -> Hold:
        held = Hold(keys, tokens, lease, request)
        lease.holds[request] = held
        return held

    def let_go(self, held: Hold) -> None:
        """The client gave the lock up, whether or not the cluster knows yet."""
        if not held.released:
            held.released = True
            held.lease.holds.pop(held.request, None)
            self._tell(held)
            self.forget_if_bound(held.lease)

    def forget_if_bound(self, lease: Lease) -> None:
        """A bound lease ends with its last lock: nothing is left to keep alive."""
        if lease.bound and not lease.holds:
            self._alive.pop((lease.group, lease.number), None)

    def lose(self, lease: Lease) -> None:
        """The group said that the lease is gone, with everything on it."""
        if lease.lost:
            return
        lease.lost = True
        self._alive.pop((lease.group, lease.number), None)
        if self._shared.get((lease.group, lease.ttl_ms)) is lease:
            del self._shared[lease.group, lease.ttl_ms]
        for held in lease.holds.values():
            self._tell(held)
        lease.changed.fire()

    def lose_hold(self, held: Hold) -> None:
        if not held.lost:
            held.lost = True
            held.lease.holds.pop(held.request, None)
            self._tell(held)

    def alive(self) -> list[Lease]:
        return list(self._alive.values())

    def _tell(self, held: Hold) -> None:
        state = held.state(self.flows.now_ns)
        if state is not held.told:
            held.told = state
            self.notices.append(held)

    # Keep-alives.

    def _schedule(self, lease: Lease) -> None:
        """Note when this lease needs attention next: to be renewed, or to be believed in no longer."""
        wake_ns = NEVER_NS if lease.renewing else lease.renew_ns
        if lease.trusted_until_ns > self.flows.now_ns:
            wake_ns = min(wake_ns, lease.trusted_until_ns)
        lease.wake_ns = wake_ns
        if wake_ns == NEVER_NS:
            return
        if len(self._agenda) >= self._sweep_at:
            self._agenda = [entry for entry in self._agenda if self._stands(*entry)]
            heapify(self._agenda)
            self._sweep_at = max(AGENDA_MIN, 2 * len(self._agenda))
        if not self._agenda or wake_ns < self._agenda[0][0]:
            self._touched.fire()
        heappush(self._agenda, (wake_ns, lease.number, lease))

    def _stands(self, wake_ns: int, number: int, lease: Lease) -> bool:
        return lease.wake_ns == wake_ns and (lease.group, number) in self._alive

    async def _keep(self) -> None:
        """Renew what is due, one frame for each node, and notice what could not be renewed in time."""
        while not self.closing:
            now_ns = self.flows.now_ns
            horizon_ns = now_ns
            attended: list[Lease] = []
            while self._agenda and self._agenda[0][0] <= horizon_ns:
                entry = heappop(self._agenda)
                if self._stands(*entry):
                    lease = entry[2]
                    attended.append(lease)
                    horizon_ns = min(now_ns + lease.ttl_ms * NS_PER_MS // TRAVEL_ALONG_SHARE, NEVER_NS)
            self._renew_all(each for each in attended if not each.renewing and each.renew_ns <= horizon_ns)
            for lease in attended:
                for held in lease.holds.values():
                    self._tell(held)
                self._schedule(lease)
            await self._touched.until(self._agenda[0][0] if self._agenda else NEVER_NS)

    def _renew_all(self, due: Iterable[Lease]) -> None:
        batches: dict[Link, list[Lease]] = {}
        for lease in due:
            link = self.cluster.route(lease.group, lease.avoid)
            if link is None:
                self._retry(lease)
            else:
                lease.renewing = True
                batches.setdefault(link, []).append(lease)
        for link, leases in batches.items():
            for first in range(0, len(leases), KEEP_ALIVES_PER_FRAME_MAX):
                self.flows.start(self._renew(link, leases[first : first + KEEP_ALIVES_PER_FRAME_MAX]))

    async def _renew(self, link: Link, leases: list[Lease]) -> None:
        sent_ns = self.flows.now_ns
        call = Call(leases[0].group, {})
        self.cluster.send(
            link, call, {"keepAlive": [{"group": each.group, **each.fields} for each in leases]}
        )
        timeout_ms = min(
            self.settings.attempt_timeout_ms, *(each.ttl_ms // RENEWALS_PER_TTL for each in leases)
        )
        answer = await call.next(self.flows, sent_ns + timeout_ms * NS_PER_MS)
        call.close()
        if answer is None:
            for lease in leases:
                self.cluster.suspect(lease.group, link)
        kept = _kept(answer)
        for lease in leases:
            lease.renewing = False
            code, lost_revision = kept.get((lease.group, lease.number), (None, 0))
            lease.avoid = None
            if code is Code.ok:
                lease.confirmed(sent_ns)
                if lost_revision > lease.lost_revision:
                    lease.lost_revision = lost_revision
                    self.flows.start(self._ask_what_was_lost(lease, lost_revision))
            elif code is Code.leaseLost:
                self.lose(lease)
            else:
                lease.avoid = link
                self._retry(lease)
            if not lease.lost:
                for held in lease.holds.values():
                    self._tell(held)
                self._schedule(lease)

    def _retry(self, lease: Lease) -> None:
        retry_ms = min(max(lease.ttl_ms // RETRIES_PER_TTL, RETRY_MS_MIN), RETRY_MS_MAX)
        share = 0.5 + self.cluster.random.random() / 2
        lease.renew_ns = self.flows.now_ns + int(retry_ms * NS_PER_MS * share)

    async def _ask_what_was_lost(self, lease: Lease, lost_revision: int) -> None:
        """Something of this lease was taken away by force; only what was granted before that can be it."""
        suspects = [held for held in lease.holds.values() if held.tokens[0] < lost_revision]
        for held in suspects:
            held.suspected = True
            self._tell(held)
        for held in suspects:
            while not held.released and not lease.lost:
                try:
                    gone = await self._is_gone(held)
                except Unavailable:
                    continue
                held.suspected = False
                if gone:
                    self.lose_hold(held)
                else:
                    self._tell(held)
                break

    async def _is_gone(self, held: Hold) -> bool:
        for key, token in zip(held.keys, held.tokens, strict=True):
            request = {"group": self.cluster.group_of(key), "getLock": {"key": key, "stale": False}}
            answer = await self.requests.ask(request, held.lease.group, self.requests.deadline_ns())
            holders = answer.content.get("holders", ()) if answer.which == "lock" else ()
            if not any(holder["revision"] == token for holder in holders):
                return True
        return False


def _kept(answer: Answer | None) -> dict[tuple[int, int], tuple[Code | None, int]]:
    """What a keep-alive's answer says about each lease, by group and id."""
    if answer is None or answer.which != "keptAlive":
        return {}
    return {
        (kept["group"], kept["leaseHigh"] << 64 | kept["leaseLow"]): (
            Code.__members__.get(kept["code"]),
            kept["lostRevision"],
        )
        for kept in answer.content
    }
