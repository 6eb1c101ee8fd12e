"""Linearizable reads: one FIFO, confirmed by a prefix, on the leader; asked of the leader on a follower."""

from typing import NamedTuple, final

class Read(NamedTuple):
    """A linearizable read may be answered once everything up to `index` is applied."""

    context: int
    index: int  # type: ignore[assignment]  # tuple.index is of no use here

@final
class ReadBatch: ...

@final
class Reads:
    def __init__(self, pending_max: int, nonce: int) -> None: ...
