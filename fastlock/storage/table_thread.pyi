from collections.abc import Iterable
from typing import final

from fastlock.storage import Row
from fastlock.storage.environment import Environment

@final
class TableThread:
    """The table's writer: a native thread that makes checkpoints visible, each in one step.

    `checkpoints` are (group, generation, index, term, row count, row sum) as read from the environment,
    `orphans` are the (group, generation) of rows that nobody sees.
    """

    def __init__(
        self,
        environment: Environment,
        secret: int,
        checkpoints: Iterable[tuple[int, int, int, int, int, int]],
        orphans: Iterable[tuple[int, int]],
        event_fd: int,
    ) -> None: ...
    def begin(self, group: int, whole: bool) -> None: ...
    def put_rows(self, group: int, rows: Iterable[Row]) -> None: ...
    def commit(self, group: int, index: int, term: int) -> None: ...
    def take_checkpoints(self) -> list[tuple[int, int, int]]:
        """(group, index, term) of the checkpoints that became durable since the last call."""
    def raise_if_failed(self) -> None: ...
    def close(self) -> None:
        """Makes visible what was committed, unless the thread failed, and ends the thread."""
    @property
    def queued_jobs(self) -> int: ...
    @property
    def backlog_bytes(self) -> int: ...
