"""One TCP link per pair of members, for all groups: who dials, who is let in, and what may be sent.

The member with the higher node id dials. Both say hello, then introduce themselves; Raft's messages and
forwarded requests flow once both belong to the same cluster. A link that broke is dialled again, with growing
pauses. What a slow member does not take is dropped beyond a bound: Raft repeats what matters.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

from fastlock._core.codec_client import check_hello
from fastlock._core.codec_peer import decode_peer_message, encode_peer_message
from fastlock.config import Address, LinksSection
from fastlock.errors import ProtocolError
from fastlock.node.bootstrap import Introduced
from fastlock.node.frames import FrameBuffer
from fastlock.node.listeners import bound_address, listen, tune_socket
from fastlock.schema.enums import Code, Stage
from fastlock.storage.directory import Identity

_log = logging.getLogger("fastlock.links")

PROTOCOL_VERSION = 1
PEER_FRAME_BYTES_MAX = 16 << 20
BUFFER_BYTES = 256 << 10
# Connections to the peer listener that have not introduced themselves.
STRANGERS_MAX = 64


class LinkUser(Protocol):
    """Who is told what happens on the links."""

    def introduction(self) -> dict[str, Any]:
        """What this node says about itself at the moment."""

    def introduced(self, other: Introduced, fields: Mapping[str, Any]) -> None: ...
    def link_lost(self, node: int) -> None: ...
    def receive(self, node: int, frame: memoryview) -> None:
        """One PeerMessage frame from a member of this cluster. Raises ProtocolError if it is malformed."""


class Link(asyncio.BufferedProtocol):
    """One connection, from the first byte to the last. `node` is 0 until the other side said who it is."""

    def __init__(self, links: Links, node: int = 0) -> None:
        self._links = links
        self.dialled = node != 0
        self.node = node
        self.other: Introduced | None = None
        self.process = 0
        self.is_member = False
        self.transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = links.loop.create_future()
        self._frames = FrameBuffer(PEER_FRAME_BYTES_MAX, BUFFER_BYTES)
        self._greeted = False
        self._timer: asyncio.TimerHandle | None = None
        self.parts: list[bytes] = []

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        links = self._links
        links.tune(self.transport)
        if not self.dialled and not links.admit(self):
            self.transport.abort()
            return
        self._timer = links.loop.call_later(links.settings.hello_timeout_ms / 1000, self._silent)
        if self.dialled:
            self.write(links.hello())

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.transport = None
        self.parts.clear()
        if not self.closed.done():
            self.closed.set_result(None)
        self._links.lost(self)

    def get_buffer(self, _size: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, size: int) -> None:
        self._frames.filled(size)
        try:
            for frame in self._frames.frames():
                self._take(frame)
                if self.transport is None or self.transport.is_closing():
                    return
        except ProtocolError as error:
            _log.warning("the link with %s sent what cannot be read (%s): closed", self.name, error)
            self.refuse(Code(error.code), str(error))

    def eof_received(self) -> None:
        return None

    # What arrives

    @property
    def name(self) -> str:
        address = self.transport.get_extra_info("peername") if self.transport is not None else None
        where = f"{address[0]}:{address[1]}" if address else "?"
        return f"node {self.node} ({where})" if self.node else where

    def _take(self, frame: memoryview) -> None:
        if self.is_member:
            # Introductions are rare: whoever handles the frame hands them back.
            self._links.user.receive(self.node, frame)
            return
        message = decode_peer_message(frame, PEER_FRAME_BYTES_MAX)
        if not self._greeted:
            self._greet(message.get("hello"))
        elif "introduction" in message:
            self.introduce(message["introduction"])
        # Anything else comes from a member that is founded while this node, or its word to us, is not.

    def _greet(self, hello: Mapping[str, Any] | None) -> None:
        links = self._links
        if hello is None:
            self.refuse(Code.helloExpected, "the first frame on a link is a hello")
            return
        if hello["code"] != "ok":
            why = hello["message"] or hello["code"]
            links.complain(self.node, f"{self.name} does not let this node in: {why}", why)
            self.drop()
            return
        code, message = links.judge(hello, self.node)
        if code != Code.ok:
            links.complain(hello["node"], f"{self.name} is not let in: {message}", message)
            self.refuse(code, message)
            return
        self._greeted = True
        self.node = hello["node"]
        if not self.dialled:
            self.write(links.hello())
        self.write(encode_peer_message({"introduction": links.user.introduction()}))

    def introduce(self, fields: Mapping[str, Any]) -> None:
        try:
            other = Introduced.read(fields)
        except (KeyError, ValueError):
            self.refuse(Code.malformedFrame, "an introduction that says too little")
            return
        if other.node != self.node:
            self.refuse(Code.wrongNode, f"said hello as node {self.node}, introduced itself as {other.node}")
            return
        self.process = fields["process"]
        if self.other is None and not self._links.accept(self):
            return
        self.other = other
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._links.met(self, other, fields)

    # What leaves

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def refuse(self, code: Code, message: str) -> None:
        """Say why, and close."""
        self.write(self._links.hello(code, message))
        self.drop()

    def drop(self) -> None:
        self.is_member = False
        if self.transport is not None:
            self.transport.close()

    def _silent(self) -> None:
        _log.warning("%s said nothing for too long: closed", self.name)
        self.drop()


class Links:
    """All links of one node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        identity: Identity,
        settings: LinksSection,
        user: LinkUser,
        software: str,
    ) -> None:
        self.loop = loop
        self.settings = settings
        self.user = user
        self._software = software
        self._identity = identity
        self._addresses: dict[int, Address] = {}
        self._links: dict[int, Link] = {}
        self._strangers: set[Link] = set()
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None
        self._complaints: dict[int, str] = {}
        self.dropped_messages = 0

    # Listening and dialling

    async def listen(self, address: Address) -> Address:
        self._server = await listen(self.loop, lambda: Link(self), address, "peer")
        return bound_address(self._server, address)

    def connect(self, members: Mapping[int, Address]) -> None:
        """Keep a link with each of these; who is not among them is not let in."""
        self._addresses = {node: address for node, address in members.items() if node != self._identity.node}
        for node in self._addresses:
            if node < self._identity.node and node not in self._dialling:
                self._dialling[node] = self.loop.create_task(self._dial(node))
        for node in [node for node in self._dialling if node not in self._addresses]:
            self._dialling.pop(node).cancel()

    async def _dial(self, node: int) -> None:
        settings = self.settings
        pause_ms = settings.retry_ms_min
        while True:
            link = Link(self, node)
            try:
                async with asyncio.timeout(settings.hello_timeout_ms / 1000):
                    host, port = self._addresses[node]
                    await self.loop.create_connection(lambda link=link: link, host, port)  # type: ignore[misc]
            except (OSError, TimeoutError) as error:
                _log.debug("node %d at %s cannot be reached: %s", node, self._addresses[node], error)
            else:
                await link.closed
                if link.other is not None:
                    pause_ms = settings.retry_ms_min
            # Jitter, so that members that lost each other do not meet again and again at the same moment.
            await asyncio.sleep(pause_ms * random.uniform(0.5, 1.0) / 1000)
            pause_ms = min(2 * pause_ms, settings.retry_ms_max)

    def tune(self, transport: asyncio.Transport) -> None:
        tune_socket(transport, self.settings.dead_ms)

    # Who is let in

    @property
    def identity(self) -> Identity:
        return self._identity

    @identity.setter
    def identity(self, identity: Identity) -> None:
        """The node was founded: everybody is told."""
        self._identity = identity
        self.introduce_again()

    def introduce_again(self) -> None:
        """Something in the introduction changed."""
        frame = encode_peer_message({"introduction": self.user.introduction()})
        for link in self._links.values():
            link.write(frame)
            self._decide_membership(link)

    def hello(self, code: Code = Code.ok, message: str = "") -> bytes:
        cluster, node, incarnation = self._identity
        hello = {
            "version": PROTOCOL_VERSION,
            "role": "member",
            "clusterHigh": cluster >> 64,
            "clusterLow": cluster & (1 << 64) - 1,
            "node": node,
            "incarnation": incarnation,
            "software": self._software,
            "code": code.name,
            "message": message,
        }
        return encode_peer_message({"hello": hello})

    def judge(self, hello: Mapping[str, Any], expected: int) -> tuple[Code, str]:
        """Whether a hello is one of a member's, and why not."""
        cluster, node, _ = self._identity
        theirs = hello["clusterHigh"] << 64 | hello["clusterLow"]
        # Who is empty has no cluster yet: the introduction says what it is to do about that.
        known = cluster if theirs else 0
        high, low = known >> 64, known & (1 << 64) - 1
        code = Code(check_hello(hello, cluster_high=high, cluster_low=low, peer_node=expected))
        if code == Code.wrongCluster:
            return code, f"this is cluster {cluster:032x}, not {theirs:032x}: check --cluster and --data-dir"
        if code != Code.ok:
            return code, f"{code.name}: a hello of version {hello['version']} as node {hello['node']}"
        if hello["role"] != "member":
            return Code.forbidden, "this is the members' port: clients use the native one"
        if hello["node"] == node:
            return Code.wrongNode, f"node {node} is me: two nodes have this number"
        if hello["node"] not in self._addresses:
            return Code.wrongNode, f"node {hello['node']} is not a member of this cluster: check --cluster"
        if not expected and hello["node"] < node:
            return Code.wrongNode, f"node {hello['node']} waits to be dialled by node {node}"
        return Code.ok, ""

    def admit(self, link: Link) -> bool:
        """A connection that has not said who it is."""
        if len(self._strangers) >= STRANGERS_MAX:
            return False
        self._strangers.add(link)
        return True

    def accept(self, link: Link) -> bool:
        """A member's new link replaces the one before, unless that is another process's."""
        before = self._links.get(link.node)
        if before is not None and before is not link:
            if before.process != link.process and not link.dialled:
                message = (
                    f"node {link.node} is linked already, as {before.name}: two processes have this number"
                )
                self.complain(link.node, message, message)
                link.refuse(Code.wrongNode, message)
                return False
            before.drop()
            self._forget(before)
        self._strangers.discard(link)
        self._links[link.node] = link
        self._complaints.pop(link.node, None)
        _log.info("linked with %s", link.name)
        return True

    def met(self, link: Link, other: Introduced, fields: Mapping[str, Any]) -> None:
        self._decide_membership(link)
        self.user.introduced(other, fields)

    def _decide_membership(self, link: Link) -> None:
        other = link.other
        if other is not None:
            link.is_member = other.stage != Stage.empty and other.cluster == self._identity.cluster

    def complain(self, node: int, line: str, why: str) -> None:
        """Said once for each reason, not at every attempt."""
        if self._complaints.get(node) != why:
            if len(self._complaints) >= STRANGERS_MAX:
                self._complaints.clear()
            self._complaints[node] = why
            _log.error("%s", line)

    def lost(self, link: Link) -> None:
        self._strangers.discard(link)
        if self._links.get(link.node) is link:
            _log.info("the link with node %d is lost", link.node)
            self._forget(link)

    def _forget(self, link: Link) -> None:
        del self._links[link.node]
        self.user.link_lost(link.node)

    # Sending

    @property
    def linked(self) -> list[int]:
        """Members with which messages can be exchanged."""
        return [node for node, link in self._links.items() if link.is_member]

    def is_linked(self, node: int) -> bool:
        link = self._links.get(node)
        return link is not None and link.is_member

    def introduce(self, node: int, fields: Mapping[str, Any]) -> None:
        """An introduction that came among a member's other messages."""
        self._links[node].introduce(fields)

    def send(self, node: int, parts: Iterable[bytes], repeated: bool = True) -> bool:
        """Queue a frame, in parts, until `flush`; False if there is no link or no room.

        Where there is no room, what Raft repeats is dropped; for anything else the link is given up, so that
        the other side learns that it will never come.
        """
        link = self._links.get(node)
        if link is None or not link.is_member or link.transport is None:
            return False
        if link.transport.get_write_buffer_size() > self.settings.queue_bytes_max:
            self.dropped_messages += 1
            if not repeated:
                _log.warning("%s does not take what is sent to it: the link is given up", link.name)
                link.transport.abort()
            return False
        link.parts.extend(parts)
        return True

    def flush(self) -> None:
        """One write per link for everything queued."""
        for link in self._links.values():
            if link.parts and link.transport is not None:
                parts, link.parts = link.parts, []
                link.transport.writelines(parts)

    async def close(self) -> None:
        for task in self._dialling.values():
            task.cancel()
        self._dialling.clear()
        if self._server is not None:
            self._server.close()
        for link in [*self._links.values(), *self._strangers]:
            if link.transport is not None:
                link.transport.close()
