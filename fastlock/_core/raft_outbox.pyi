"""What leaves a member: messages that may go at once, messages that wait for storage, and the writes."""

from typing import Final, final

from fastlock._core.raft_log import RaftLog
from fastlock._core.raft_message import Entry

@final
class Write:
    """What storage must make durable, in one step and in this order, before it acknowledges `seq`.

    1. term and vote, if `hard_state`;
    2. if `reset_index`: drop the whole log; it goes on after (reset_index, reset_term);
    3. if `truncate_from`: drop every entry from that index on;
    4. append `entries`.
    Storage acknowledges writes of a group in the order of `seq`.
    """

    seq: Final[int]
    hard_state: Final[bool]
    term: Final[int]
    vote: Final[int]
    reset_index: Final[int]
    reset_term: Final[int]
    truncate_from: Final[int]
    entries: Final[list[Entry]]

@final
class Outbox:
    term: Final[int]
    vote: Final[int]
    durable_term: Final[int]
    durable_vote: Final[int]
    def __init__(self, log: RaftLog, term: int, vote: int) -> None: ...
