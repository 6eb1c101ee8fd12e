"""What simulated clients do: take locks, wait, write under them, release, forget, come back too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastlock.node.group import Answer
from fastlock.schema.enums import NO_EXPIRY_TTL_MS, Code, SlotState
from fastlock.testing.simulator.catalogue import Target
from fastlock.testing.simulator.client import ATTEMPT_TIMEOUT_NS, BACKOFF_MAX_NS, RETRYABLE, Client
from fastlock.testing.simulator.process import Process, Steps
from fastlock.testing.simulator.session import Attempt, Hold, Lease
from fastlock.testing.simulator.time import MILLISECOND, SECOND
from fastlock.testing.simulator.watcher import follow

if TYPE_CHECKING:
    from fastlock.testing.simulator.world import World

COMMAND_TIMEOUT_NS = 6 * SECOND
CANCEL_TIMEOUT_NS = 20 * SECOND
IDLE_SLICE_NS = 1 * SECOND
REATTACH_NS = 1500 * MILLISECOND

# How likely a client watches something, and a lease on a key that operators take away never expires.
WATCHING = 0.3
ENDLESS = 0.2

# When clients that come late renew a lease, in percent of its TTL.
LATE_PERCENT = (75, 102)

# Answers after which a command certainly did not act and never will.
REFUSED_UNSEEN = frozenset((Code.wrongSlot, Code.limitExceeded))


class Workload(Client):
    """A client that keeps itself busy until the world says stop."""

    def __init__(self, world: World, address: int, *parts: Any) -> None:
        super().__init__(address, *parts)
        self.world = world
        self.holds: list[Hold] = []
        self.leases: list[Lease] = []
        self.workers: list[Process] = []
        self._default: dict[int, Lease] = {}
        self._numbers = 0

    def _number(self) -> int:
        """Unique in the whole run: lease ids and request numbers."""
        self._numbers += 1
        return (self.address << 24) + self._numbers

    def start(self, threads: int) -> None:
        self.workers = [self.spawn(self.work()) for _ in range(threads)]
        if self.random.chance(WATCHING):
            key = self.random.pick(self.random.pick(self.world.catalogue.targets).keys)
            is_prefix = self.random.chance(0.5)
            self.watch(self._group(key), key[: key.index(b"/")] if is_prefix else key, is_prefix)

    def watch(self, group: int, key: bytes, is_prefix: bool) -> None:
        self.spawn(follow(self, group, key, is_prefix))

    def _idle(self, wait_ns: int) -> Steps[None]:
        """Sleep, but not beyond the end of the run."""
        end_ns = self.timeline.now_ns + wait_ns
        while self.timeline.now_ns < end_ns and not self.world.stopping:
            yield min(end_ns - self.timeline.now_ns, IDLE_SLICE_NS)

    def _leave_session(self, group: int) -> Steps[None]:
        """Go on with another session; the old one is closed where nothing is under way in it."""
        session = self.forget_session(group)
        if session is None or session.busy:
            return
        number, sequence = session.number, session.begin()
        command = {"session": number, "sequence": sequence, "closeSession": None}
        attempt = Attempt(group, command, 0)
        yield from self.run(attempt, COMMAND_TIMEOUT_NS)
        self.close(attempt)
        self.world.reach("session closed")

    def clock_changed(self) -> None:
        for lease in self.leases:
            lease.clock_changed()

    def die(self) -> None:
        """Gone without a word: what it held is left to its leases."""
        self.dead = True
        for hold in self.holds:
            hold.end_ns = hold.end_ns or self.timeline.now_ns

    def work(self) -> Steps[None]:
        """The main loop of one thread of this client."""
        world = self.world
        random = self.random
        while not world.stopping:
            yield from self._idle(random.below(world.think_max_ns))
            if world.stopping:
                return
            dice = random.below(100)
            target = random.pick(world.catalogue.targets)
            if dice < 72:
                yield from self._lock(target)
            elif dice < 90:
                yield from self.get(random.pick(target.keys))
            elif dice < 95:
                yield from self._put(random.pick(target.keys), None)
            elif dice < 96:
                yield from self._delete(random.pick(target.keys), None)
            elif dice < 97:
                yield from self._leave_session(self._group(target.keys[0]))
            elif target.forced:
                yield from self._force(target.keys[0])

    # Leases.

    def _new_lease(self, group: int, bound: bool) -> Lease:
        random = self.random
        number = (self._number() << 64) | random.next64()
        self.world.recorder.lease_begins(number, group)
        ttl_ms = random.pick(self.world.ttls_ms)
        lease = Lease(number, group, ttl_ms, self.clock, bound)
        self.leases.append(lease)
        return lease

    def _default_lease(self, group: int) -> Steps[Lease | None]:
        """The lease most locks of this client hang on, created when first needed or after it was lost."""
        lease = self._default.get(group)
        if lease is not None and not lease.lost and not lease.given_up:
            return lease
        lease = self._new_lease(group, bound=False)
        command = {**lease_fields(lease), "createLease": {"ttlMs": lease.ttl_ms, "owner": owner_of(lease)}}
        attempt = yield from self.prepare(group, command, COMMAND_TIMEOUT_NS)
        if attempt is None:
            return None
        answer = yield from self.run(attempt, COMMAND_TIMEOUT_NS)
        self.close(attempt)
        if answer is None or answer.code != Code.ok:
            return None
        self._lease_lives(lease, attempt)
        self._default[group] = lease
        return lease

    def _lease_lives(self, lease: Lease, attempt: Attempt) -> None:
        """The server said that the lease exists. It counts from the first send: the rest were repetitions."""
        if not lease.created:
            lease.created = True
            lease.touched_ns = self.timeline.now_ns
            lease.confirmed(attempt.first_sent_ns, self.timeline.now_ns)
            self.spawn(self._keep(lease))

    def _keep(self, lease: Lease) -> Steps[None]:
        """Keep a lease alive every third of its TTL for as long as it is wanted; some clients come late."""
        late = self.random.chance(0.2)
        while not lease.lost and not self.world.stopping:
            share = self.random.between(*LATE_PERCENT) if late else 33
            yield from self.sleep(lease.ttl_ms * MILLISECOND * share // 100)
            if not lease.wanted and lease is not self._default.get(lease.group):
                return
            lease.touched_ns = self.timeline.now_ns
            if late and not lease.unsure and self.random.chance(0.5):
                yield from self._change_ttl(lease)
            else:
                yield from self._keep_alive(lease)

    def _keep_alive(self, lease: Lease) -> Steps[None]:
        attempt = Attempt(lease.group, {}, 0)
        sent_ns = self.clock.now_ns()
        sent_true_ns = self.timeline.now_ns
        self.send(attempt, "keep_alive", lease.high, lease.low)
        answer = yield from self.answer_to(attempt, min(ATTEMPT_TIMEOUT_NS, lease.ttl_ms * MILLISECOND // 2))
        self.close(attempt)
        self.world.operations += 1
        if answer is None or lease.lost:
            return
        if answer.code == Code.leaseLost:
            self.lease_lost(lease, lease.group)
        elif answer.code == Code.ok:
            if answer.revision > lease.lost_revision:
                lease.lost_revision = answer.revision
                self._suspect(lease)
            self._lives_on(lease, sent_ns, sent_true_ns)

    def _change_ttl(self, lease: Lease) -> Steps[None]:
        """Renew a lease by the log. An outcome that is not known may still come, with the shorter TTL."""
        ttl_ms = self.random.pick(self.world.ttls_ms)
        command = {**lease_fields(lease), "changeTtl": {"ttlMs": ttl_ms}}
        attempt = yield from self.prepare(lease.group, command, COMMAND_TIMEOUT_NS)
        if attempt is None or lease.lost:
            return
        sent_true_ns = lease.touched_ns = self.timeline.now_ns
        lease.change(ttl_ms)
        answer = yield from self.run(attempt, COMMAND_TIMEOUT_NS)
        self.close(attempt)
        self.world.operations += 1
        lease.unsure = answer is None
        if answer is None or lease.lost:
            return
        if answer.code == Code.leaseLost:
            self.lease_lost(lease, lease.group)
        elif answer.code == Code.ok:
            self.world.reach("TTL changed")
            lease.ttl_ms = ttl_ms
            if self.world.slots_move:
                # What was lost with a slot that moved is told by keep-alives only.
                self.world.recorder.lease_lives(lease.number, sent_true_ns)
            else:
                self._lives_on(lease, attempt.first_sent_ns, sent_true_ns)

    def _lives_on(self, lease: Lease, sent_ns: int, sent_true_ns: int) -> None:
        lease.confirmed(sent_ns, self.timeline.now_ns)
        self.world.recorder.lease_lives(lease.number, sent_true_ns)

    def lease_lost(self, lease: Lease, group: int) -> None:
        """A group said that the lease is gone; a copy that moved there with a key says nothing of ours."""
        if group == lease.group and not lease.lost:
            lease.lose(self.timeline.now_ns)
            self.world.recorder.lease_lost(lease.number)
            self.world.reach("lease loss told")
            self.world.say(f"client {self.address} lost lease {lease.number:x}")

    def _suspect(self, lease: Lease) -> None:
        """A lock of this lease was taken away by force: which one is not said, so trust none."""
        for hold in self.holds:
            if hold.lease is lease:
                hold.end_ns = hold.end_ns or self.timeline.now_ns

    # Locks.

    def _lock(self, target: Target) -> Steps[None]:
        random = self.random
        world = self.world
        group = world.catalogue.group_of(target.keys[0])
        own = random.chance(0.4)
        lease = self._new_lease(group, random.chance(0.5)) if own else (yield from self._default_lease(group))
        if own and target.forced and random.chance(ENDLESS):
            # Only an operator can take the lock away from one who forgets it.
            assert lease is not None
            lease.ttl_ms = lease.ttl_max_ms = NO_EXPIRY_TTL_MS
            world.reach("lease without end")
        if lease is None:
            return
        mode, units, limit = self._mode(target)
        wait = random.chance(0.55)
        request = self._number()
        fields = {
            "keys": target.keys,
            "lease": lease.number,
            "request": request,
            "mode": mode,
            "limit": limit,
            "count": units,
            "wait": wait,
            "bound": lease.bound,
            "lock_delay": target.lock_delay_ms > 0,
        }
        acquire = {"request": request, "mode": mode, "wait": wait, "lockDelayMs": target.lock_delay_ms}
        if own:
            use = "createBound" if lease.bound else "create"
            acquire |= {"lease": use, "ttlMs": lease.ttl_ms, "owner": owner_of(lease)}
        if mode == "semaphore":
            acquire |= {"limit": limit, "count": units}
        command: dict[str, Any] = lease_fields(lease)
        if len(target.keys) > 1:
            command["acquireAll"] = {**acquire, "keys": list(target.keys)}
        else:
            command |= {"key": target.keys[0], "acquire": acquire}
        attempt = yield from self.prepare(group, command, COMMAND_TIMEOUT_NS)
        if attempt is None:
            return
        highest = [world.tokens.highest(key) for key in target.keys]
        operation = world.recorder.begin("acquire", **fields)
        answer = yield from self.run(attempt, COMMAND_TIMEOUT_NS)
        world.operations += 1
        lease.wanted = True
        attempt.request = request
        granted = yield from self._entered(attempt, answer, operation, lease, target, wait)
        if granted is not None:
            holds = self._hold(granted, target, lease, request, mode, units, limit, highest)
            yield from self._use(holds, target)
        lease.wanted = False

    def _mode(self, target: Target) -> tuple[str, int, int]:
        if target.style == "semaphore":
            return "semaphore", self.random.between(1, target.limit), target.limit
        if target.style == "mixed" and self.random.chance(0.6):
            return "shared", 1, 1
        return "exclusive", 1, 1

    def _entered(
        self,
        attempt: Attempt,
        answer: Answer | None,
        operation: int,
        lease: Lease,
        target: Target,
        wait: bool,
    ) -> Steps[Answer | None]:
        """Follow an acquire to its end; the grant, or None."""
        recorder = self.world.recorder
        if answer is None:
            self.world.reach("acquire unknown")
            yield from self._cancel(attempt, lease, target)
            return None
        name = Code(answer.code).name
        if answer.code == Code.ok:
            self._lease_lives(lease, attempt)
            self.close(attempt)
            if wait:
                recorder.finish(operation, "entered", token=answer.token)
            else:
                recorder.finish(operation, "ok", token=answer.token, revision=answer.token)
        elif answer.code == Code.queued:
            self._lease_lives(lease, attempt)
            if attempt.session is not None:
                # A wait does not hold the watermark back: the claim itself answers for it.
                attempt.session.finish(attempt.sequence)
            recorder.finish(operation, name, revision=answer.revision)
            return (yield from self._await_grant(attempt, operation, lease, target))
        elif answer.code == Code.leaseLost:
            self.close(attempt)
            if not wait:
                # A wait that was enqueued and then lost its lease says the same: its outcome stays unknown.
                recorder.finish(operation, name)
            self.lease_lost(lease, attempt.group)
            return None
        elif answer.code == Code.sequenceStale:
            self.close(attempt)
            return None
        elif answer.code == Code.wrongSlot and wait and recorder.may_have_left(operation):
            # A wait that was enqueued and then moved away with its slot says the same: it stays unknown.
            self.close(attempt)
            return None
        elif answer.code in REFUSED_UNSEEN:
            self.close(attempt)
            recorder.forget(operation)
            return None
        else:
            self.close(attempt)
            single = len(target.keys) == 1 and answer.code == Code.notAcquired
            recorder.finish(operation, name, token=answer.token if single else 0)
            return None
        if wait:
            self._observe_grant(operation, answer, attempt, lease, target)
        return answer

    def _observe_grant(
        self, operation: int, answer: Answer, attempt: Attempt, lease: Lease, target: Target
    ) -> None:
        self.world.recorder.observe(
            "granted",
            operation,
            keys=target.keys,
            lease=lease.number,
            request=attempt.request,
            code="ok",
            token=answer.token,
        )

    def _await_grant(
        self, attempt: Attempt, operation: int, lease: Lease, target: Target
    ) -> Steps[Answer | None]:
        """Wait in the queue, re-attaching wherever the leader is, and call it off when time is up."""
        deadline_ns = self.timeline.now_ns + self.random.between(20, 6000) * MILLISECOND
        while self.timeline.now_ns < deadline_ns and not lease.lost:
            left_ns = deadline_ns - self.timeline.now_ns
            answer = yield from self.answer_to(attempt, min(left_ns, REATTACH_NS))
            if answer is None or answer.code in RETRYABLE:
                yield from self.sleep(self.random.below(BACKOFF_MAX_NS))
                self.world.reach("re-attach")
                self.submit(attempt)
            elif answer.code == Code.ok:
                self.close(attempt)
                self._observe_grant(operation, answer, attempt, lease, target)
                return answer
            elif answer.code == Code.leaseLost:
                self.lease_lost(lease, attempt.group)
            elif answer.code != Code.queued:
                break
        yield from self._cancel(attempt, lease, target)
        return None

    def _cancel(self, attempt: Attempt, lease: Lease, target: Target) -> Steps[None]:
        """Call an acquire off, whatever became of it."""
        recorder = self.world.recorder
        request = attempt.request
        called_off: dict[str, Any] = {"request": request}
        command: dict[str, Any] = {**lease_fields(lease), "cancelWait": called_off}
        if len(target.keys) > 1:
            called_off["keys"] = list(target.keys)
        else:
            command["key"] = target.keys[0]
        cancel = yield from self.prepare(attempt.group, command, COMMAND_TIMEOUT_NS)
        if cancel is None:
            self.close(attempt)
            return
        same_session = cancel.session is attempt.session
        called_off["sequence"] = attempt.sequence if same_session else 0
        operation = recorder.begin("cancel", keys=target.keys, lease=lease.number, request=request)
        answer = yield from self.run(cancel, CANCEL_TIMEOUT_NS)
        self.world.operations += 1
        self.close(cancel)
        self.close(attempt)
        if answer is not None and answer.code in REFUSED_UNSEEN:
            recorder.forget(operation)
        elif answer is not None:
            recorder.finish(operation, Code(answer.code).name, revision=answer.revision)

    def _hold(
        self,
        granted: Answer,
        target: Target,
        lease: Lease,
        request: int,
        mode: str,
        units: int,
        limit: int,
        highest: list[int],
    ) -> list[Hold]:
        world = self.world
        now_ns = self.timeline.now_ns
        holds = []
        for offset, key in enumerate(target.keys):
            token = granted.token + offset
            hold = Hold(key, lease, request, token, mode, units, limit, now_ns)
            holds.append(hold)
            self.holds.append(hold)
            world.tokens.granted(key, token, hold.claim, highest[offset], fresh=True)
            world.acknowledged(key, token, hold.claim)
            if target.forced:
                # Somebody may take it away by force at any time: belief means nothing here.
                hold.end_ns = now_ns
        world.grants += 1
        return holds

    def _use(self, holds: list[Hold], target: Target) -> Steps[None]:
        """Work under the lock, then let it go one way or the other."""
        random = self.random
        for _ in range(random.below(4)):
            yield from self.sleep(random.below(self.world.hold_max_ns))
            hold = random.pick(holds)
            if not hold.lease.trusted():
                break
            dice = random.below(10)
            if dice < 6:
                self._write_outside(hold)
            elif dice < 8:
                yield from self._put(hold.key, hold)
            elif dice < 9:
                yield from self.get(hold.key)
            else:
                yield from self._delete(hold.key, hold)
        hold = random.pick(holds)
        if random.chance(0.1):
            # A client that never looks at the clock before it writes: fencing alone must stop it.
            longest_ms = 2 * min(hold.lease.ttl_ms, self.world.ttls_ms[-1])
            yield from self._idle(random.below(longest_ms) * MILLISECOND)
            self._write_outside(hold)
        if random.chance(0.07) and hold.lease is not self._default.get(hold.lease.group):
            # Forgotten: only its lease can end it.
            return
        if random.chance(0.06):
            yield from self._revoke(hold.lease)
            return
        for hold in holds:
            yield from self._release(hold)

    def _write_outside(self, hold: Hold) -> None:
        world = self.world
        if hold.mode != "exclusive":
            return
        accepted = world.resource.write(hold.key, hold.token, hold.claim)
        if not accepted and hold.lease.trusted() and not hold.end_ns and world.clocks_honest:
            world.resource.refused_to_believer(hold.key, hold.token, hold.claim)

    def _command(self, group: int, command: dict[str, Any], wait_ns: int) -> Steps[Answer | None]:
        attempt = yield from self.prepare(group, command, wait_ns)
        if attempt is None:
            return None
        answer = yield from self.run(attempt, wait_ns)
        self.close(attempt)
        self.world.operations += 1
        return answer

    def _release(self, hold: Hold) -> Steps[None]:
        hold.end_ns = hold.end_ns or self.timeline.now_ns
        recorder = self.world.recorder
        lease = hold.lease
        operation = recorder.begin(
            "release", keys=(hold.key,), lease=lease.number, request=hold.request, token=hold.token
        )
        command = {**lease_fields(lease), "key": hold.key, "release": {"token": hold.token}}
        group = self._group(hold.key)
        answer = yield from self._command(group, command, COMMAND_TIMEOUT_NS)
        if answer is None:
            return
        if answer.code in REFUSED_UNSEEN:
            recorder.forget(operation)
            return
        recorder.finish(operation, Code(answer.code).name, revision=answer.revision)
        if answer.code == Code.leaseLost and not lease.bound:
            self.lease_lost(lease, group)

    def _revoke(self, lease: Lease) -> Steps[None]:
        """Give the whole lease up: it ends by this, or by whatever came first."""
        lease.give_up(self.timeline.now_ns)
        recorder = self.world.recorder
        operation = recorder.begin("lost", lease=lease.number)
        command = {**lease_fields(lease), "revoke": None}
        answer = yield from self._command(lease.group, command, COMMAND_TIMEOUT_NS)
        if answer is not None and answer.code == Code.ok:
            recorder.finish(operation, "revoked")
        elif answer is not None:
            self.lease_lost(lease, lease.group)
        lease.lose(self.timeline.now_ns)

    def _group(self, key: bytes) -> int:
        return self.world.catalogue.group_of(key)

    # Values, reads, force.

    def _put(self, key: bytes, hold: Hold | None) -> Steps[None]:
        recorder = self.world.recorder
        value = b"%d" % self._number()
        fields: dict[str, Any] = {"keys": (key,), "value": value}
        put: dict[str, Any] = {"value": value}
        command: dict[str, Any] = {"key": key, "putValue": put}
        if hold is not None:
            fields |= {"lease": hold.lease.number, "request": hold.request, "token": hold.token}
            command |= lease_fields(hold.lease)
            put["token"] = hold.token
        yield from self._change_value(recorder.begin("put", **fields), key, command)

    def _delete(self, key: bytes, hold: Hold | None) -> Steps[None]:
        fields: dict[str, Any] = {"keys": (key,)}
        command: dict[str, Any] = {"key": key, "deleteValue": {"token": 0}}
        if hold is not None:
            fields |= {"lease": hold.lease.number, "request": hold.request, "token": hold.token}
            command |= {**lease_fields(hold.lease), "deleteValue": {"token": hold.token}}
        yield from self._change_value(self.world.recorder.begin("delete", **fields), key, command)

    def _change_value(self, operation: int, key: bytes, command: dict[str, Any]) -> Steps[None]:
        recorder = self.world.recorder
        answer = yield from self._command(self._group(key), command, COMMAND_TIMEOUT_NS)
        if answer is None:
            return
        if answer.code in REFUSED_UNSEEN:
            recorder.forget(operation)
        else:
            recorder.finish(operation, Code(answer.code).name, revision=answer.revision)

    def get(self, key: bytes) -> Steps[None]:
        """A linearizable read on any node."""
        recorder = self.world.recorder
        operation = recorder.begin("get", keys=(key,))
        answer = yield from self.ask(self._group(key), "get", (key,), COMMAND_TIMEOUT_NS)
        self.world.operations += 1
        if answer is None or answer.content[0] != SlotState.owned:
            recorder.forget(operation)
            return
        state = answer.content[1]
        if state is None:
            recorder.finish(operation, "ok", revision=answer.revision)
            return
        holders = tuple((int(holder["owner"], 16), holder["revision"]) for holder in state["holders"])
        value = state["value"] if state["valueRevision"] else None
        recorder.finish(
            operation,
            "ok",
            revision=answer.revision,
            holders=holders,
            waiters=state["waiterCount"],
            value=value,
        )

    def _force(self, key: bytes) -> Steps[None]:
        """An operator takes a lock away."""
        recorder = self.world.recorder
        operation = recorder.begin("force", keys=(key,))
        command = {"key": key, "forceRelease": {"token": 0, "actor": b"operator", "reason": b"simulated"}}
        answer = yield from self._command(self._group(key), command, COMMAND_TIMEOUT_NS)
        if answer is None:
            return
        if answer.code in REFUSED_UNSEEN:
            recorder.forget(operation)
        else:
            recorder.finish(operation, Code(answer.code).name)


def lease_fields(lease: Lease) -> dict[str, int]:
    return {"leaseHigh": lease.high, "leaseLow": lease.low}


def owner_of(lease: Lease) -> bytes:
    return b"%x" % lease.number
