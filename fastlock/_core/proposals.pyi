"""One group's commands on this node: collected into batches, proposed, answered when applied.

The group's part of a turn:

    while proposals.next_bytes and raft.can_propose(proposals.next_bytes):
        raft.propose(proposals.seal(raft.term, raft.next_index))
    for entry in ready.committed:
        table.apply(entry.data, now_ms)
        proposals.applied(table)
"""

from collections.abc import Mapping
from typing import Any, Final, final

from fastlock._core.locktable import LockTable
from fastlock._core.replies import Replies, Switchboard

PENDING_COMMANDS_MAX: Final[int]
PENDING_BYTES_MAX: Final[int]

@final
class Proposals:
    """Takes commands while this node leads the group; knows whom to send others to."""

    group: Final[int]
    node: Final[int]
    leader: Final[int]  # 0 = not known
    leading: Final[bool]
    retry_ms: int  # recommended to those who did not get a lock
    def __init__(self, group: int, node: int, board: Switchboard) -> None: ...
    def lead(self) -> None:
        """This node leads from here on."""

    def follow(self, leader: int) -> None:
        """Another node leads, or nobody known (0).

        What was under way here is unknown from now on; waits and what was never proposed go to the next
        leader.
        """

    @property
    def pending_count(self) -> int:
        """Commands that were not proposed yet."""
    @property
    def inflight_count(self) -> int:
        """Batches that were proposed and not applied yet."""
    @property
    def waiter_count(self) -> int:
        """Origins that are told when a wait ends."""
    def submit(self, command: Mapping[str, Any], replies: Replies | None = None, request_id: int = 0) -> int:
        """Adds a command of the leader's own, given as a dict; its answer goes to `replies` if there are any.

        The code of a refusal (then nothing is written), or ok. It is never BUSY: what ends leases makes room.
        """

    @property
    def next_bytes(self) -> int:
        """Bytes of the entry that would be sealed next; 0 = there is nothing to propose."""
    def seal(self, term: int, index: int) -> bytes:
        """The next entry's frame; its commands are answered once it was applied."""

    def applied(self, table: LockTable) -> None:
        """The table applied an entry: answers its commands if they are ours, and ends the waits it ended."""
