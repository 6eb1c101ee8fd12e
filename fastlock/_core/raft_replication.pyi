"""A leader's side of replication: who has what, what to send next, and what a majority has."""

from typing import NamedTuple, final

class EntriesWanted(NamedTuple):
    """Read entries first..last from storage (fewer is fine) and hand them to supply_entries."""

    node: int
    first: int
    last: int
    bytes_max: int

class ChunkWanted(NamedTuple):
    """Read the chunk at `offset` of an open snapshot and hand it to supply_chunk."""

    node: int
    snapshot_id: int
    offset: int

@final
class Replication: ...
