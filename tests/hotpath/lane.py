"""One group behind an intake, with connections that show what they were answered."""

from __future__ import annotations

from typing import Any

from fastlock._core import codec
from fastlock._core.forwards import Forwards
from fastlock._core.intake import Intake
from fastlock._core.locktable import LockTable
from fastlock._core.proposals import Proposals
from fastlock._core.replies import Replies, Switchboard

OWN_ALL = {"ownSlots": {"first": 0, "last": 16383}}
GROUP = 1
NODE = 6


def acquire(key: bytes, lease: int = 1, **fields: Any) -> dict[str, Any]:
    return {"key": key, "leaseLow": lease, "acquire": {"ttlMs": 1000, "lease": "create", **fields}}


def release(key: bytes, lease: int, token: int) -> dict[str, Any]:
    return {"key": key, "leaseLow": lease, "release": {"token": token}}


def request(number: int, command: dict[str, Any], group: int = GROUP) -> bytes:
    return codec.encode_request({"id": number, "group": group, "command": command})


def frames_of(data: bytes) -> list[bytes]:
    frames = []
    while data:
        size = codec.frame_size(data)
        frames.append(data[:size])
        data = data[size:]
    return frames


def decoded(data: bytes) -> list[dict[str, Any]]:
    return [codec.decode_reply(frame) for frame in frames_of(data)]


def said(replies: Replies) -> list[tuple[int, str]]:
    return [(reply["id"], reply["code"]) for reply in decoded(replies.take())]


class Lane:
    """A leader that commits at once whatever it is asked to."""

    def __init__(self, node: int = NODE, group: int = GROUP, leading: bool = True) -> None:
        self.board = Switchboard()
        self.forwards = Forwards(node, self.board, 99)
        self.intake = Intake(self.board, self.forwards)
        self.proposals = Proposals(group, node, self.board)
        self.intake.add_group(self.proposals)
        self.table = LockTable(group)
        if leading:
            self.proposals.lead()

    def connect(self, **flags: bool) -> Replies:
        return self.board.open(**({"is_trusted": True} | flags))

    def send(self, replies: Replies, *commands: dict[str, Any], first_id: int = 1) -> int:
        frames = b"".join(request(first_id + i, command) for i, command in enumerate(commands))
        consumed = self.intake.take(replies, frames, 0)
        assert consumed == len(frames)
        return consumed

    def commit(self) -> None:
        while self.proposals.next_bytes:
            self.table.apply(self.proposals.seal(1, self.table.applied_index + 1), 0)
            self.proposals.applied(self.table)
