"""Taking locks, waiting for them, calling waits off, letting go, whatever happens to the cluster meanwhile.

An acquire is named by (lease, request) for ever: repeating it finds what it did the first time. So an acquire
in doubt is either repeated until it is answered, or called off until that is answered; it is never left
behind.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from fastlock._core.codec import slot_of
from fastlock.client.cluster import NS_PER_MS
from fastlock.client.flows import NEVER_NS, Cancelled, Signal, moment
from fastlock.client.leases import Hold, Lease, Leases
from fastlock.client.messages import Answer
from fastlock.client.refusals import refusal
from fastlock.client.requests import RETRYABLE, Command
from fastlock.errors import FastlockError, LockLost, Unavailable, WaitTimeout
from fastlock.schema.enums import Code

# The claim is gone although nobody refused the acquire: it is entered again, as somebody new.
GONE = frozenset((Code.leaseLost, Code.waitCancelled, Code.sequenceStale))
NS_PER_S = 1_000_000_000
WRONG_SLOT_PAUSE_MS = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller asks for."""

    keys: tuple[bytes, ...]
    ttl_ms: int
    mode: str = "exclusive"
    limit: int = 0
    count: int = 0
    own_lease: bool = False
    lock_delay_ms: int = 0


class Entry(Command):
    """One acquire and its wait, under one lease and request number."""

    __slots__ = ("lease", "number", "queued", "wanted")

    def __init__(self, wanted: Wanted, wait: bool, lease: Lease, number: int) -> None:
        acquire: dict[str, Any] = {"request": number, "mode": wanted.mode, "wait": wait}
        if wanted.lock_delay_ms:
            acquire["lockDelayMs"] = wanted.lock_delay_ms
        fields: dict[str, Any] = lease.fields
        if len(wanted.keys) > 1:
            fields["acquireAll"] = {**acquire, "keys": list(wanted.keys)}
        else:
            if wanted.mode == "semaphore":
                acquire |= {"limit": wanted.limit, "count": wanted.count}
            fields |= {"key": wanted.keys[0], "acquire": acquire}
        super().__init__(lease.group, fields)
        self.wanted = wanted
        self.lease = lease
        self.number = number
        self.queued = False

    def use_lease(self, use: str, owner: bytes) -> None:
        """Say whether this acquire creates its lease or finds it."""
        acquire = self.fields["acquireAll" if "acquireAll" in self.fields else "acquire"]
        acquire["lease"] = use
        if use == "existing":
            acquire.pop("ttlMs", None)
            acquire.pop("owner", None)
        else:
            acquire |= {"ttlMs": self.lease.ttl_ms, "owner": owner}


class Cancel(Command):
    """Calls an acquire off, whatever became of it."""

    __slots__ = ("entry",)

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.group, {})
        self.entry = entry

    def content(self) -> dict[str, Any]:
        entry = self.entry
        called_off: dict[str, Any] = {"request": entry.number}
        if self.session is entry.session:
            # Where the acquire was not seen yet, the group remembers under its sequence that it must not act.
            # In another session that sequence is another command's.
            called_off["sequence"] = entry.sequence
        if len(entry.wanted.keys) > 1:
            return {**entry.lease.fields, "cancelWait": {**called_off, "keys": list(entry.wanted.keys)}}
        return {**entry.lease.fields, "key": entry.wanted.keys[0], "cancelWait": called_off}


class Locking:
    """Acquires and releases of one client."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self.requests = leases.requests
        self.cluster = leases.cluster
        self.flows = leases.flows
        self.settings = leases.settings
        # Who waits in which group, so that all of them look for the next leader when one is heard of.
        self._queued: dict[int, dict[Entry, None]] = {}
        self._numbers = 0
        # Cleaning up that goes on without a caller.
        self.unfinished = 0
        self.finished = Signal()
        self.requests.on_leader = self._leader_changed

    # Acquire.

    async def acquire(self, wanted: Wanted, wait: bool, deadline_ns: int) -> Hold:
        """Take the lock, or wait in its queue until the deadline.

        Raises NotAcquired or WaitTimeout, Unavailable, or what the lock table refuses. Whatever it raises,
        and if it is cancelled: nothing is left behind that the cluster will not be told to undo.
        """
        start_ns = self.flows.now_ns
        while True:
            entry_deadline_ns = min(deadline_ns, self.requests.deadline_ns())
            await self.cluster.known(entry_deadline_ns)
            entry = await self._enter(wanted, wait, entry_deadline_ns)
            try:
                answer = await self._first_answer(entry, entry_deadline_ns)
                if answer.code is Code.queued:
                    answer = await self._in_queue(entry, deadline_ns)
            except (Unavailable, Cancelled) as error:
                self._call_off(entry)
                if entry.queued and isinstance(error, Unavailable) and self.flows.now_ns >= deadline_ns:
                    raise WaitTimeout((self.flows.now_ns - start_ns) / NS_PER_S) from None
                raise
            if answer.code is Code.ok:
                entry.close()
                return self._granted(entry, answer)
            entry.close()
            self.leases.forget_if_bound(entry.lease)
            if answer.code is Code.wrongSlot:
                await self.look_for_slot(deadline_ns)
            elif answer.code not in GONE:
                raise refusal(answer)
            elif answer.code is Code.leaseLost:
                self.leases.lose(entry.lease)
            if self.flows.now_ns >= deadline_ns:
                raise WaitTimeout((self.flows.now_ns - start_ns) / NS_PER_S)

    async def _enter(self, wanted: Wanted, wait: bool, deadline_ns: int) -> Entry:
        group = self.cluster.group_of(wanted.keys[0])
        if wanted.own_lease:
            entry = self._entry(wanted, wait, self.leases.new(group, wanted.ttl_ms, bound=True))
            entry.use_lease("createBound", self.settings.owner)
        else:
            entry = self._entry(wanted, wait, await self.leases.shared(group, wanted.ttl_ms, deadline_ns))
            entry.use_lease("existing", b"")
        return entry

    def _entry(self, wanted: Wanted, wait: bool, lease: Lease) -> Entry:
        self._numbers += 1
        return Entry(wanted, wait, lease, self._numbers)

    async def _first_answer(self, entry: Entry, deadline_ns: int) -> Answer:
        """Repeat the acquire until the lock table answers, in another session if the first was forgotten."""
        while True:
            answer = await self.requests.perform(entry, deadline_ns)
            if answer.code is Code.sessionUnknown:
                # 1. A repetition whose answer was lost may have been granted or queued, and made the lease.
                # 2. The session was forgotten, so no copy on its way can act any more.
                # 3. Asked again under the same lease and request, the table says what stands. A lease that
                #    this acquire was to create must not be created twice, so it is only looked for.
                entry.use_lease("existing", b"")
                continue
            if answer.code in (Code.ok, Code.queued):
                self.leases.lives(entry.lease, entry.first_sent_ns)
            if answer.code is Code.queued:
                entry.queued = True
                # A wait does not hold the session's watermark back: the claim itself answers for it.
                entry.acknowledge()
            return answer

    async def _in_queue(self, entry: Entry, deadline_ns: int) -> Answer:
        """Wait for the grant, re-attaching wherever the leader is. Raises Unavailable when time is up."""
        settings, flows = self.settings, self.flows
        waiting = self._queued.setdefault(entry.group, {})
        waiting[entry] = None
        try:
            while True:
                reattach_ns = flows.now_ns + settings.reattach_ms * NS_PER_MS
                answer = await entry.next(flows, min(deadline_ns, reattach_ns))
                if answer is None and flows.now_ns >= deadline_ns:
                    raise Unavailable("the lock did not become free in time: wait longer")
                if answer is None or answer.code in RETRYABLE:
                    await self._pause(deadline_ns)
                    # Out of reach for longer than the lease lasts, there is no place in the queue to come
                    # back to.
                    patience_ms = max(settings.timeout_ms, min(entry.lease.ttl_ms, 1 << 40))
                    reach_ns = min(deadline_ns, flows.now_ns + patience_ms * NS_PER_MS)
                    answer = await self._first_answer(entry, reach_ns)
                else:
                    self.requests.observe(entry, answer)
                if answer.code is not Code.queued:
                    return answer
        finally:
            del waiting[entry]

    async def _pause(self, deadline_ns: int) -> None:
        """Waiters that lost the same leader do not all come back at the same moment."""
        pause_ns = int(self.settings.backoff_ms * NS_PER_MS * self.cluster.random.random())
        await moment(min(deadline_ns, self.flows.now_ns + pause_ns))

    def _leader_changed(self, group: int) -> None:
        """The node that would have woken these waiters no longer leads, or perhaps cannot say so."""
        for entry in self._queued.get(group, ()):
            if not entry.inbox:
                entry.deliver(Answer(Code.notLeader))

    def _granted(self, entry: Entry, answer: Answer) -> Hold:
        first = answer.content["token"]
        tokens = tuple(range(first, first + len(entry.wanted.keys)))
        return self.leases.hold(entry.lease, entry.wanted.keys, tokens, entry.number)

    async def look_for_slot(self, deadline_ns: int) -> None:
        self.cluster.describe_again()
        await moment(min(deadline_ns, self.flows.now_ns + WRONG_SLOT_PAUSE_MS * NS_PER_MS))

    # Call off and release. Both go on without the caller until the cluster answered.

    def _call_off(self, entry: Entry) -> None:
        if entry.sent:
            self._unattended(self._cancel_wait(entry))
        else:
            entry.close()

    async def _cancel_wait(self, entry: Entry) -> None:
        try:
            while True:
                answer = await self._insist(Cancel(entry), entry.lease)
                if answer is None or answer.code is not Code.sessionUnknown:
                    break
        finally:
            entry.close()
            self.leases.forget_if_bound(entry.lease)

    async def release(self, held: Hold, deadline_ns: int) -> None:
        """Let go. Raises LockLost if it was gone, Unavailable if the answer is late; then it tries on."""
        if held.released:
            return
        lost = held.lost or held.lease.lost
        self.leases.let_go(held)
        if lost:
            raise LockLost
        outcome: list[Answer | None] = []
        answered = Signal()
        self._unattended(self._release(held, outcome, answered))
        while not outcome:
            if not await answered.until(deadline_ns) and not outcome:
                raise self.cluster.unavailable()
        answer = outcome[0]
        if answer is None:
            raise LockLost
        if answer.code is not Code.ok:
            if answer.code is Code.staleToken:
                raise LockLost("it was taken away")
            raise refusal(answer)

    async def _release(self, held: Hold, outcome: list[Answer | None], answered: Signal) -> None:
        """One release for each key, all under way at once; the first that is not ok is the outcome."""
        answers: list[Answer | None] = []

        async def one(key: bytes, token: int) -> None:
            answers.append(await self._release_key(held.lease, key, token))
            if len(answers) == len(held.keys):
                refused = [each for each in answers if each is None or each.code is not Code.ok]
                outcome.append(refused[0] if refused else answers[0])
                answered.fire()

        for key, token in zip(held.keys[1:], held.tokens[1:], strict=True):
            self._unattended(one(key, token))
        await one(held.keys[0], held.tokens[0])

    async def _release_key(self, lease: Lease, key: bytes, token: int) -> Answer | None:
        fields = {**lease.fields, "key": key, "release": {"token": token}}
        in_doubt = False
        while True:
            command = Command(self.cluster.group_of(key), fields)
            answer = await self._insist(command, lease)
            in_doubt = in_doubt or command.in_doubt
            if answer is None:
                return None
            if answer.code is Code.wrongSlot:
                await self.look_for_slot(NEVER_NS)
            elif answer.code is not Code.sessionUnknown:
                break
        if in_doubt and answer.code in (Code.staleToken, Code.leaseLost):
            # An earlier repetition may have been the one that let go, in a session that was forgotten since;
            # a bound lease goes with its lock. Either way the lock is not held any more, which is what was
            # asked for.
            return Answer(Code.ok)
        return answer

    async def _insist(self, command: Command, lease: Lease) -> Answer | None:
        """Repeat until answered, however long that takes, unless the lease is gone and everything with it."""
        try:
            while True:
                try:
                    return await self.requests.perform(command, self.requests.deadline_ns())
                except Unavailable:
                    if lease.lost or self.leases.closing:
                        return None
        finally:
            command.close()

    def _unattended(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.unfinished += 1
        self.flows.start(self._attend(coroutine))

    async def _attend(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        finally:
            self.unfinished -= 1
            self.finished.fire()

    # Several keys.

    async def acquire_ordered(self, wanted: Wanted, wait: bool, deadline_ns: int) -> list[Hold]:
        """Keys of one slot in one step; slots one after the other in a fixed order, so nobody deadlocks."""
        if len(wanted.keys) == 1:
            return [await self.acquire(wanted, wait, deadline_ns)]
        by_slot: dict[int, list[bytes]] = {}
        for key in wanted.keys:
            by_slot.setdefault(slot_of(key), []).append(key)
        holds: list[Hold] = []
        try:
            for slot in sorted(by_slot):
                part = Wanted(
                    tuple(by_slot[slot]),
                    wanted.ttl_ms,
                    wanted.mode,
                    own_lease=wanted.own_lease,
                    lock_delay_ms=wanted.lock_delay_ms,
                )
                holds.append(await self.acquire(part, wait, deadline_ns))
        except BaseException:
            for held in holds:
                self.give_back(held)
            raise
        return holds

    async def release_ordered(self, holds: Sequence[Hold], deadline_ns: int) -> None:
        """Let go of what was taken in order. Raises as `release`, after all of it was let go."""
        refused: FastlockError | None = None
        for held in reversed(holds):
            try:
                await self.release(held, deadline_ns)
            except FastlockError as error:
                refused = error
        if refused is not None:
            raise refused

    def give_back(self, held: Hold) -> None:
        """Release what nobody wants any more, without anyone who waits for it."""
        self._unattended(self._give_back(held))

    async def _give_back(self, held: Hold) -> None:
        try:
            await self.release(held, NEVER_NS)
        except LockLost:
            return
