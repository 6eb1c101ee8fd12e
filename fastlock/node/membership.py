"""A group's configuration inside its checkpoint: the cold path, so pycapnp reads and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlock._core.raft_message import Member
from fastlock.schema import load

_log: Any = load("log")
_ROLES = ("voter", "learner", "witness")


def encode_members(members: Sequence[Member]) -> bytes:
    """A Membership frame."""
    message = _log.Membership.new_message(version=_log.formatVersion)
    listed = message.init("members", len(members))
    for place, member in zip(listed, members, strict=True):
        place.node = member.node
        place.incarnation = member.incarnation
        place.role = _ROLES[member.role]
        place.address = member.address
    frame: bytes = message.to_bytes()
    return frame


def members_of_row(row: bytes) -> tuple[Member, ...]:
    """The configuration in a stored GroupRow."""
    with _log.GroupRow.from_bytes(row) as group_row:
        return tuple(
            Member(member.node, _ROLES.index(str(member.role)), member.incarnation, member.address)
            for member in group_row.membership.members
        )
