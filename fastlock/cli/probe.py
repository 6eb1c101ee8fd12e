"""Questions that commands ask a node: one native request at a time, or one HTTP GET."""

from __future__ import annotations

import asyncio
import json
import secrets
from types import TracebackType
from typing import Any

from fastlock._core.codec_client import decode_reply, encode_request
from fastlock._core.framing import frame_size
from fastlock.config import Address

PROTOCOL_VERSION = 1
FRAME_BYTES_MAX = 1 << 20
BODY_BYTES_MAX = 4 << 20
_HEAD_BYTES = 8
_TEST_TTL_MS = 5_000


class ProbeFailed(Exception):
    """The node did not answer as it should."""


class Probe:
    """One native connection, used for one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._id = 0

    @classmethod
    async def open(cls, address: Address) -> Probe:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        probe = cls(reader, writer)
        reply = await probe.ask(
            {"hello": {"version": PROTOCOL_VERSION, "role": "client", "software": "fastlock cli"}}
        )
        if reply["code"] != "ok":
            writer.close()
            raise ProbeFailed(f"{address} refused the hello: {reply['message'] or reply['code']}")
        return probe

    async def __aenter__(self) -> Probe:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._id += 1
        self._writer.write(encode_request({"id": self._id, **request}))
        while True:
            reply = await self.next_reply()
            if reply["id"] in (self._id, 0):
                return reply

    async def next_reply(self) -> dict[str, Any]:
        """Whatever comes next: the end of a wait, or events."""
        return decode_reply(await self._frame(), FRAME_BYTES_MAX)

    async def _frame(self) -> bytes:
        head = await self._reader.readexactly(_HEAD_BYTES)
        size = frame_size(head, FRAME_BYTES_MAX)
        return head + await self._reader.readexactly(size - _HEAD_BYTES)

    async def try_lock(self, key: bytes) -> str:
        """Takes a lock and gives it back; empty if that worked, else what was said."""
        lease = {"leaseHigh": secrets.randbits(64) | 1, "leaseLow": secrets.randbits(64)}
        acquire = {
            "request": 1,
            "ttlMs": _TEST_TTL_MS,
            "mode": "exclusive",
            "lease": "createBound",
            "owner": b"probe",
        }
        reply = await self.ask({"command": {"key": key, **lease, "acquire": acquire}})
        if reply["code"] != "ok":
            return str(reply["code"])
        release = {"token": reply["grant"]["token"]}
        reply = await self.ask({"command": {"key": key, **lease, "release": release}})
        return "" if reply["code"] == "ok" else str(reply["code"])


async def fetch(address: Address, path: str) -> tuple[int, bytes]:
    """Status and body of one HTTP GET."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read(BODY_BYTES_MAX)
        while more := await reader.read(BODY_BYTES_MAX):
            answer += more
            if len(answer) > BODY_BYTES_MAX:
                raise ProbeFailed(f"{address}{path}: more than {BODY_BYTES_MAX} bytes")
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise ProbeFailed(f"{address}{path}: not an HTTP answer")
    return int(words[1]), body


async def fetch_status(address: Address, timeout_s: float) -> dict[str, Any] | None:
    """What a node says about itself, or None if it does not answer in time."""
    try:
        async with asyncio.timeout(timeout_s):
            code, body = await fetch(address, "/status")
            status: dict[str, Any] = json.loads(body)
            return status if code == 200 else None
    except (OSError, TimeoutError, ValueError, ProbeFailed, asyncio.IncompleteReadError):
        return None
