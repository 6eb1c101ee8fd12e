from collections.abc import Iterable
from typing import final

from fastlock._core.raft import Write
from fastlock.storage.environment import Environment

@final
class LogThread:
    """The log's writer: a native thread that makes everything queued by all groups durable in one commit.

    `groups` are (group, term, vote, cut index, last index) as read from the environment. The eventfd is
    told when writes became durable, or the thread failed.
    """

    def __init__(
        self,
        environment: Environment,
        groups: Iterable[tuple[int, int, int, int, int]],
        event_fd: int,
        directory_fd: int,
    ) -> None: ...
    def append(self, group: int, write: Write) -> None:
        """Queues one write; the bytes of its entries stay alive until it is released."""
    def cut(self, group: int, index: int) -> None: ...
    def take_durable(self) -> list[tuple[int, int]]:
        """(group, write seq) of what became durable since the last call, the highest of each group."""
    def durable_index(self, group: int) -> int:
        """The last entry that take_durable has told to be there."""
    def raise_if_failed(self) -> None: ...
    def close(self) -> None:
        """Makes durable what is queued, unless the thread failed, and ends the thread."""
    @property
    def queued_bytes(self) -> int: ...
    @property
    def queued_writes(self) -> int: ...
    @property
    def commits(self) -> int: ...
    @property
    def commit_ns_total(self) -> int: ...
    @property
    def commit_ns_max(self) -> int: ...
    @property
    def disk_free_bytes(self) -> int: ...
