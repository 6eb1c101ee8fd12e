"""A group's configuration inside its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlock._core.codec_commands import encode_membership
from fastlock._core.raft_message import Member
from fastlock.schema import load
from fastlock.schema.enums import FORMAT_VERSION, MemberRole

_log: Any = load("log")


def encode_members(members: Sequence[Member]) -> bytes:
    """A Membership frame."""
    listed = [
        {
            "node": member.node,
            "incarnation": member.incarnation,
            "role": MemberRole(member.role).name,
            "address": member.address,
        }
        for member in members
    ]
    return encode_membership({"version": FORMAT_VERSION, "members": listed})


def members_of_row(row: bytes) -> tuple[Member, ...]:
    """The configuration in a stored GroupRow."""
    with _log.GroupRow.from_bytes(row) as group_row:
        return tuple(
            Member(member.node, MemberRole[str(member.role)], member.incarnation, member.address)
            for member in group_row.membership.members
        )
