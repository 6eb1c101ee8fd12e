from fastlock.storage.environment import Environment

def read_groups(environment: Environment) -> list[tuple[int, int, int, int, int]]:
    """(group, term, vote, cut index, last index) of every group in the log."""

def read_entries(
    environment: Environment, group: int, first: int, last: int, bytes_max: int
) -> list[tuple[int, int, int, bytes]]:
    """(term, index, kind, data) of the entries first..last that are there and fit; at least one"""
