from typing import final

from fastlock.storage.environment import Environment

def read_checkpoints(environment: Environment) -> list[tuple[int, int, int, int, int, int]]:
    """(group, generation, index, term, row count, row sum) of every checkpoint."""

def read_generations(environment: Environment) -> list[tuple[int, int]]:
    """The (group, generation) pairs that have rows, found by jumping from one to the next."""

@final
class RowReader:
    """The rows of a group's visible checkpoint, from one read transaction that lasts until `close`."""

    def __init__(self, environment: Environment, group: int) -> None: ...
    def take(self, row_count: int) -> list[tuple[bytes, bytes]]:
        """The next (key, row) pairs; long keys with one head are together, but in no order. [] ends it."""
    def close(self) -> None: ...
