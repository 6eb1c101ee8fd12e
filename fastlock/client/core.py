"""The client without I/O: bytes, time and connections go in; bytes, dials and results come out.

A driver owns sockets and clock. It reports what happens (`opened`, `received`, `closed`, `drained`), lets
time pass (`run`), and then does what the core wants: connect `take_dials()`, drop `take_hangups()`, write
`take_output()`, tell `take_notices()`, and call `run` again at `wake_ns`. Operations are coroutines that the
core runs; `start` hands out a `Flow` whose `on_finish` is called from within `run`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from random import Random
from typing import Any, TypeVar

from fastlock.client.cluster import NS_PER_MS, Cluster
from fastlock.client.flows import Flow, Flows
from fastlock.client.leases import Hold, Lease, Leases
from fastlock.client.links import Link, LinkState
from fastlock.client.locking import Locking
from fastlock.client.messages import Answer
from fastlock.client.refusals import refusal
from fastlock.client.requests import Command, Requests
from fastlock.client.settings import ClientSettings
from fastlock.client.watching import Watching
from fastlock.errors import FastlockError, LockLost, Unavailable
from fastlock.schema.enums import Code

Result = TypeVar("Result")


class Core:
    """Everything one client knows and wants."""

    def __init__(
        self, endpoints: Iterable[str], settings: ClientSettings, random: Random, now_ns: int
    ) -> None:
        self.settings = settings
        self.flows = Flows(now_ns)
        self.cluster = Cluster(endpoints, self.flows, settings, random)
        self.requests = Requests(self.cluster)
        self.leases = Leases(self.requests)
        self.locking = Locking(self.leases)

    # What the driver reports.

    def opened(self, link: Link) -> None:
        self.cluster.opened(link)

    def received(self, link: Link, data: bytes) -> None:
        self.cluster.received(link, data)

    def closed(self, link: Link, reason: str) -> None:
        self.cluster.closed(link, reason)

    def congested(self, link: Link) -> None:
        link.congested = True

    def drained(self, link: Link) -> None:
        self.cluster.drained(link)

    def run(self, now_ns: int) -> None:
        self.flows.run(now_ns)

    @property
    def wake_ns(self) -> int:
        return self.flows.wake_ns

    def start(self, operation: Coroutine[Any, Any, Result]) -> Flow[Result]:
        return self.flows.start(operation)

    # What the driver does.

    def take_dials(self) -> list[Link]:
        dials, self.cluster.dials = self.cluster.dials, []
        return dials

    def take_hangups(self) -> list[Link]:
        hangups, self.cluster.hangups = self.cluster.hangups, []
        return hangups

    def take_output(self) -> list[tuple[Link, bytes]]:
        written = []
        for link in self.cluster.links.values():
            if link.output:
                written.append((link, b"".join(link.output)))
                link.output = []
        return written

    def take_notices(self) -> list[Hold]:
        notices, self.leases.notices = self.leases.notices, []
        return notices

    # Operations other than acquire and release, which are in `locking`.

    async def connect(self, deadline_ns: int) -> None:
        await self.cluster.known(deadline_ns)

    async def get(self, key: bytes, stale: bool, deadline_ns: int) -> dict[str, Any] | None:
        """The lock's state; None if there is nothing under this key. Raises Unavailable."""
        while True:
            await self.cluster.known(deadline_ns)
            group = self.cluster.group_of(key)
            request = {"group": group, "getLock": {"key": key, "stale": stale}}
            answer = await self.requests.ask(request, group, deadline_ns, anywhere=stale)
            if answer.code is Code.wrongSlot:
                await self.locking.look_for_slot(deadline_ns)
            elif answer.code is Code.notFound:
                return None
            elif answer.code is not Code.ok:
                raise refusal(answer)
            else:
                state: dict[str, Any] = answer.content
                return state

    async def locks_page(
        self, prefix: bytes, cursor: bytes, stale: bool, deadline_ns: int
    ) -> tuple[list[dict[str, Any]], bytes]:
        """Locks below a prefix, and where to go on; an empty cursor ends it. Raises Unavailable."""
        await self.cluster.known(deadline_ns)
        request = {"list": {"prefix": prefix, "cursor": cursor, "stale": stale}}
        answer = await self.requests.ask(request, 0, deadline_ns, anywhere=True)
        if answer.code is not Code.ok:
            raise refusal(answer)
        return answer.content.get("locks", []), answer.content.get("cursor", b"")

    def watch(self, key: bytes, is_prefix: bool, position: bytes) -> Watching:
        return Watching(self.requests, key, is_prefix, position)

    async def command(self, key: bytes, fields: dict[str, Any], deadline_ns: int) -> Answer:
        """A command on a key that must not be repeated in another session: in doubt it raises Unavailable."""
        while True:
            await self.cluster.known(deadline_ns)
            command = Command(self.cluster.group_of(key), {"key": key, **fields})
            answer = await self.requests.run(command, deadline_ns)
            if answer.code is Code.ok:
                return answer
            if answer.code is Code.sessionUnknown:
                raise Unavailable("whether the command acted is not known: look at the key, then decide")
            if answer.code is not Code.wrongSlot:
                raise refusal(answer)
            await self.locking.look_for_slot(deadline_ns)

    async def put(self, key: bytes, value: bytes, held: Hold | None, deadline_ns: int) -> int:
        """Write the key's value, under the lock where one is given; the revision of the write."""
        fields: dict[str, Any] = {"putValue": {"value": value}}
        if held is not None:
            fields = {**held.lease.fields, "putValue": {"value": value, "token": _token_of(held, key)}}
        return (await self.command(key, fields, deadline_ns)).revision

    async def delete(self, key: bytes, held: Hold | None, deadline_ns: int) -> int:
        fields: dict[str, Any] = {"deleteValue": {}}
        if held is not None:
            fields = {**held.lease.fields, "deleteValue": {"token": _token_of(held, key)}}
        return (await self.command(key, fields, deadline_ns)).revision

    async def force_release(
        self, key: bytes, token: int, actor: bytes, reason: bytes, deadline_ns: int
    ) -> int:
        """Take a lock away from its holders; how many there were."""
        fields = {"forceRelease": {"token": token, "actor": actor, "reason": reason}}
        await self.command(key, fields, deadline_ns)
        return 1

    # The end.

    async def close(self, deadline_ns: int) -> None:
        """Give everything back that the cluster can be told about in time, and hang up."""
        leases, locking, flows = self.leases, self.locking, self.flows
        ends = [self.start(self._revoke(lease, deadline_ns)) for lease in leases.alive()]
        while flows.now_ns < deadline_ns and (locking.unfinished or any(not end.finished for end in ends)):
            await locking.finished.until(min(deadline_ns, flows.now_ns + NS_PER_MS))
        leases.closing = True
        self.cluster.closing = True
        for link in self.cluster.links.values():
            if link.state is not LinkState.DOWN:
                self.cluster.hang_up(link, "the client was closed")

    async def _revoke(self, lease: Lease, deadline_ns: int) -> None:
        for held in list(lease.holds.values()):
            self.leases.let_go(held)
        try:
            command = Command(lease.group, {**lease.fields, "revoke": None})
            await self.requests.run(command, deadline_ns)
        except FastlockError:
            # Out of reach: the lease ends by itself.
            return
        finally:
            self.leases.lose(lease)


def _token_of(held: Hold, key: bytes) -> int:
    if key not in held.keys:
        raise LockLost("the lock does not cover this key")
    return held.tokens[held.keys.index(key)]
