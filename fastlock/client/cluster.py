"""What a client knows of the cluster: nodes and the links to them, who leads which group, where keys live."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from fastlock._core.codec import slot_of
from fastlock.client.flows import NEVER_NS, Flows, Signal, moment
from fastlock.client.links import HELLO_ID, Link, LinkState
from fastlock.client.messages import Answer, Call
from fastlock.client.settings import ClientSettings
from fastlock.errors import ProtocolError, Unavailable
from fastlock.schema.enums import Code

NS_PER_MS = 1_000_000
SLOT_COUNT = 16_384
# The map is asked for again at most this often, however many requests find it out of date.
DESCRIBE_INTERVAL_MS = 50
# How long a leader that did not answer is not believed to lead when another node says so.
SUSPECT_MS = 2_000


class Cluster:
    """Links, leaders and slots. The driver connects what `dials` names and drops what `hangups` names."""

    def __init__(
        self, endpoints: Iterable[str], flows: Flows, settings: ClientSettings, random: Random
    ) -> None:
        self.flows = flows
        self.settings = settings
        self.random = random
        self.links: dict[str, Link] = {address: Link(address) for address in endpoints}
        self.up: dict[int, Link] = {}
        self.leaders: dict[int, int] = {}
        # A link came up or drained, the map or a leader changed: who found no way looks again.
        self.changed = Signal()
        self.dials: list[Link] = []
        self.hangups: list[Link] = []
        # Told when another node leads a group than before.
        self.on_leader: Callable[[int, int], None] = lambda group, leader: None
        # Leaders that did not answer in time, by group, and until when others are looked for.
        self._suspects: dict[int, tuple[Link, int]] = {}
        self.cluster_id = 0
        self.closing = False
        self._addresses: dict[int, str] = {}
        self._slots: list[int] = []
        self._map_stale = Signal()
        self._map_wanted = True
        self._requests = 0
        flows.start(self._keep_connected())
        flows.start(self._keep_described())

    # Links, as the driver reports them.

    def opened(self, link: Link) -> None:
        link.opened()

    def received(self, link: Link, data: bytes) -> None:
        try:
            answers = link.received(data)
        except ProtocolError as error:
            self.hang_up(link, f"it sent something that is not fastlock's protocol ({error})")
            return
        for number, answer in answers:
            if link.state is LinkState.GREETING:
                if number != HELLO_ID or answer.which != "hello":
                    self.hang_up(link, "it did not answer with a hello: is this the native port?")
                    return
                if not self._greeted(link, answer):
                    return
                continue
            call = link.calls.get(number)
            if call is not None:
                if answer.code is Code.notLeader and not answer.leader:
                    self.leaders.pop(call.group, None)
                call.deliver(answer)
            # Afterwards: who has its answer does not ask again because the leader is another one.
            if answer.leader and answer.group:
                if answer.code is not Code.notLeader:
                    self._suspects.pop(answer.group, None)
                self._learn_leader(answer.group, answer.leader)

    def closed(self, link: Link, reason: str) -> None:
        """The connection is gone, or could not be opened."""
        if link.state is LinkState.UP and self.up.get(link.node) is link:
            del self.up[link.node]
        link.closed(reason)
        settings = self.settings
        delay_ms = min(settings.redial_ms << min(link.failures, 16), settings.redial_ms_max)
        link.redial_ns = self.flows.now_ns + int(delay_ms * NS_PER_MS * (0.5 + self.random.random() / 2))
        link.failures += 1
        self._map_stale.fire()
        self.changed.fire()

    def drained(self, link: Link) -> None:
        link.congested = False
        self.changed.fire()

    def hang_up(self, link: Link, reason: str) -> None:
        self.hangups.append(link)
        self.closed(link, reason)

    def _greeted(self, link: Link, answer: Answer) -> bool:
        hello: dict[str, Any] = answer.content
        if hello["code"] != "ok":
            self.hang_up(link, hello.get("message") or f"it refused the connection: {hello['code']}")
            return False
        cluster_id = hello["clusterHigh"] << 64 | hello["clusterLow"]
        if self.cluster_id and cluster_id != self.cluster_id:
            self.hang_up(link, "it belongs to another cluster than the first endpoint that answered")
            return False
        link.node = hello["node"]
        if link.node in self.up:
            self.hang_up(link, "the same node answers at another address")
            return False
        self.cluster_id = cluster_id
        link.state = LinkState.UP
        link.failures = 0
        self.up[link.node] = link
        self._map_wanted = True
        self._map_stale.fire()
        self.changed.fire()
        return True

    # Where a request goes.

    async def known(self, deadline_ns: int) -> None:
        """Wait until the slot map is known. Raises Unavailable."""
        while not self._slots:
            if not await self.changed.until(deadline_ns) and not self._slots:
                raise self.unavailable()

    def group_of(self, key: bytes) -> int:
        return self._slots[slot_of(key)]

    def groups(self) -> set[int]:
        return set(self._slots)

    def route(self, group: int, avoid: Link | None = None) -> Link | None:
        """The leader's link if there is one, else any other: every node forwards."""
        leader = self.up.get(self.leaders.get(group, 0))
        if leader is not None and leader is not avoid and not leader.congested:
            return leader
        return self.any_link(avoid)

    def any_link(self, avoid: Link | None = None) -> Link | None:
        usable = [link for link in self.up.values() if not link.congested]
        others = [link for link in usable if link is not avoid] or usable
        if not others:
            return None
        return others[0] if len(others) == 1 else self.random.choice(others)

    def send(self, link: Link, call: Call, request: dict[str, Any]) -> None:
        self._requests += 1
        number = self._requests
        request["id"] = number
        link.send(number, call, request)
        call.places.append((link, number))
        call.sent += 1
        if not call.first_sent_ns:
            call.first_sent_ns = self.flows.now_ns

    def suspect(self, group: int, link: Link) -> None:
        """A request to this node was not answered in time: perhaps it no longer leads."""
        if self.leaders.get(group) == link.node:
            del self.leaders[group]
            self._suspects[group] = (link, self.flows.now_ns + SUSPECT_MS * NS_PER_MS)
        self.describe_again()

    def describe_again(self) -> None:
        self._map_wanted = True
        self._map_stale.fire()

    def unavailable(self) -> Unavailable:
        """Why nothing could be reached, as far as the links know."""
        if self.up:
            return Unavailable(
                "no node could tell who leads: is a majority of the cluster running? try again"
            )
        reasons = "; ".join(f"{link.address}: {link.reason or 'no answer'}" for link in self.links.values())
        return Unavailable(
            f"no node can be reached ({reasons}): check the endpoints and the network, then try again"
        )

    def _learn_leader(self, group: int, node: int) -> None:
        if self.leaders.get(group) != node:
            self.leaders[group] = node
            if group in self._suspects and self._suspects[group][0].node != node:
                del self._suspects[group]
            if node not in self._addresses:
                self.describe_again()
            self.on_leader(group, node)

    # Keeping connected and up to date.

    async def _keep_connected(self) -> None:
        """One link to every node, redialled with growing pauses."""
        flows = self.flows
        while not self.closing:
            now_ns = flows.now_ns
            wake_ns = now_ns + self.settings.redial_ms_max * NS_PER_MS
            for link in list(self.links.values()):
                if link.state in (LinkState.DIALING, LinkState.GREETING):
                    if now_ns >= link.deadline_ns:
                        self.hang_up(link, "no answer")
                    else:
                        wake_ns = min(wake_ns, link.deadline_ns)
                if link.state is LinkState.DOWN and self._wanted(link):
                    if now_ns >= link.redial_ns:
                        link.state = LinkState.DIALING
                        link.deadline_ns = now_ns + self.settings.dial_timeout_ms * NS_PER_MS
                        self.dials.append(link)
                        wake_ns = min(wake_ns, link.deadline_ns)
                    else:
                        wake_ns = min(wake_ns, link.redial_ns)
            await self.changed.until(wake_ns)

    def _wanted(self, link: Link) -> bool:
        """Addresses of members always; what else the user named only while it may be the only way in."""
        if link.node in self.up:
            return False
        return not self.up or not self._addresses or link.address in self._addresses.values()

    async def _keep_described(self) -> None:
        flows = self.flows
        while not self.closing:
            if not self._map_wanted or not self.up:
                await self._map_stale.until(NEVER_NS)
                continue
            link = self.any_link(next((suspect for suspect, _ in self._suspects.values()), None))
            if link is None:
                await self.changed.until(NEVER_NS)
                continue
            self._map_wanted = False
            call = Call(0, {})
            self.send(link, call, {"describe": None})
            answer = await call.next(flows, flows.now_ns + self.settings.attempt_timeout_ms * NS_PER_MS)
            call.close()
            if answer is None or answer.code is not Code.ok or not self._take_map(answer.content):
                self._map_wanted = True
            await moment(flows.now_ns + DESCRIBE_INTERVAL_MS * NS_PER_MS)

    def _take_map(self, cluster: dict[str, Any]) -> bool:
        """Whether the map is complete: all slots are known, and who leads instead of every suspect."""
        slots = [0] * SLOT_COUNT
        for span in cluster.get("slotGroups", ()):
            slots[span["first"] : span["last"] + 1] = [span["group"]] * (span["last"] + 1 - span["first"])
        self._addresses = {member["id"]: member["native"] for member in cluster.get("members", ())}
        for node, address in self._addresses.items():
            link = self.links.setdefault(address, Link(address))
            link.node = link.node or node
        now_ns = self.flows.now_ns
        self._suspects = {group: each for group, each in self._suspects.items() if each[1] > now_ns}
        for group in cluster.get("groups", ()):
            number, leader = group["id"], group["leader"]
            is_suspect = number in self._suspects and self._suspects[number][0].node == leader
            if leader and not is_suspect and number not in self.leaders:
                self._learn_leader(number, leader)
        if all(slots):
            self._slots = slots
        self.changed.fire()
        return all(slots) and not self._suspects
