"""Raft for one group: compiled, deterministic, no I/O, no clock, no randomness of its own.

A turn of the caller's loop:

    for message in received: raft.step(message, now_ms)
    for seq in storage_acknowledgements: send(raft.persisted(seq))
    raft.tick(now_ms)
    if raft.can_propose(batch_bytes): raft.propose(batch.seal(raft.term, raft.next_index))
    while raft.has_ready:
        ready = raft.ready()
        send(ready.messages)                        # these may leave at once
        if ready.write: storage.submit(ready.write) # what must wait for it comes out of persisted()
        apply(ready.committed); answer(ready.reads); fail(ready.reads_lost)
        serve(ready.entries_wanted, ready.snapshots_wanted, ready.chunks_wanted, ready.chunks)
"""

from collections.abc import Sequence
from typing import Any, Final, final

from fastlock._core.raft_message import Entry, Member, Message
from fastlock._core.raft_outbox import Write as Write
from fastlock._core.raft_reads import Read as Read
from fastlock._core.raft_replication import ChunkWanted as ChunkWanted
from fastlock._core.raft_replication import EntriesWanted as EntriesWanted
from fastlock._core.raft_settings import RaftSettings

FOLLOWER: Final = 0
PRE_CANDIDATE: Final = 1
CANDIDATE: Final = 2
LEADER: Final = 3

ROLE_NAMES: Final[tuple[str, ...]]

class Refused(Exception):
    """A proposal, read, transfer or membership change that Raft did not take; nothing changed.

    `reason` is one of: not-leader, transferring, window-full, too-large, change-in-flight,
    too-early, invalid-change, not-caught-up, invalid-target, muted, too-many-reads, wrong-position.
    """

    reason: str
    def __init__(self, reason: str, detail: str = "") -> None: ...

@final
class Ready:
    """What one step wants from its caller."""

    messages: Final[list[Message]]  # may leave at once
    write: Final[Write | None]  # to storage; then persisted(write.seq)
    committed: Final[list[Entry]]  # apply in this order, each exactly once, after sending messages
    reads: Final[list[Read]]  # answer after applying `committed`; their index is covered by then
    reads_lost: Final[list[int]]  # contexts: not confirmed, ask again
    entries_wanted: Final[list[EntriesWanted]]
    snapshots_wanted: Final[list[int]]  # nodes: open a snapshot and call begin_snapshot
    chunks_wanted: Final[list[ChunkWanted]]  # call supply_chunk
    chunks: Final[list[Message]]  # received: store, then chunk_stored, at the last one snapshot_installed
    soft_changed: Final[bool]  # role, leader or term differ from the Ready before
    role: Final[int]
    leader: Final[int]
    term: Final[int]

@final
class Raft:
    """One member of one group.

    `members`, `snapshot_index` and `snapshot_term` describe the checkpoint the caller restored
    (index 0: the initial configuration of an empty log); `entries` is the log after it, as read from
    storage; storage holds nothing at or below `cut_index` (snapshot_index unless said). `seed` must
    differ from start to start. A member that may have lost an entry, a term or a vote is started with
    may_vote=False: it stays mute under that identity.
    """

    def __init__(
        self,
        *,
        group: int,
        node: int,
        members: Sequence[Member],
        seed: int,
        now_ms: int = 0,
        settings: RaftSettings | None = None,
        term: int = 0,
        vote: int = 0,
        snapshot_index: int = 0,
        snapshot_term: int = 0,
        cut_index: int = -1,
        entries: Sequence[Entry] = (),
        may_vote: bool = True,
    ) -> None: ...

    group: Final[int]
    node: Final[int]
    may_vote: Final[bool]
    @property
    def term(self) -> int: ...
    @property
    def vote(self) -> int: ...
    @property
    def role(self) -> int: ...
    @property
    def leader(self) -> int:
        """The node id of the leader of this term, 0 if not known."""
    @property
    def commit_index(self) -> int: ...
    @property
    def handed_index(self) -> int:
        """Everything up to here came out in Ready.committed or was in the snapshot."""
    @property
    def durable_index(self) -> int:
        """Everything up to here is known to be in this member's storage; no checkpoint goes beyond."""
    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...
    @property
    def next_index(self) -> int:
        """The index the next proposal must be sealed with, together with `term`."""
    @property
    def members(self) -> tuple[Member, ...]:
        """The configuration in force: the newest in the log, committed or not. By node id."""
    @property
    def members_index(self) -> int: ...
    def members_at(self, index: int) -> tuple[Member, ...]:
        """The configuration a checkpoint at `index` must record."""
    @property
    def tail_bytes(self) -> int:
        """Bytes of the entries kept in memory."""
    @property
    def log_keep_from(self) -> int:
        """Entries after this index must stay in storage: a snapshot on its way ends there. 2**64-1 = none."""
    @property
    def next_tick_ms(self) -> int:
        """When tick must be called next, at the latest."""
    @property
    def has_ready(self) -> bool: ...
    def step(self, message: Message, now_ms: int) -> None:
        """Takes in one message. Never raises for what a peer sent."""
    def tick(self, now_ms: int) -> None:
        """Lets the timers that are due fire. Time never goes back: an earlier now_ms counts as the last."""
    def ready(self) -> Ready: ...
    def persisted(self, write_seq: int) -> list[Message]:
        """Storage made every write up to write_seq durable. Returns the messages that waited for it."""
    def can_propose(self, batch_bytes: int = 0) -> bool:
        """Whether a batch of this size should be proposed now: one in flight, more only if large."""
    def propose(self, data: bytes) -> int:
        """Appends a LogEntry frame sealed with `term` and `next_index`; returns its index."""
    def propose_membership(self, members: Sequence[Member]) -> int:
        """Appends a configuration that differs from `members` in one member; returns its index."""
    def read_index(self, context: int) -> None:
        """Asks for a linearizable read; comes back in Ready.reads or Ready.reads_lost."""
    def transfer(self, target: int) -> None:
        """Hands leadership to `target`; no proposals meanwhile; given up after election_ms_max."""
    def campaign(self) -> None:
        """Behaves as if the election timeout had passed."""
    def compact(self, index: int) -> None:
        """Forgets the entries up to `index` in memory: a checkpoint at `index` is durable."""
    def log_cut(self, index: int, term: int = 0) -> None:
        """Storage no longer has the entries up to `index`; `term` is that entry's, 0 = not known."""
    def supply_entries(self, node: int, entries: Sequence[Entry]) -> None:
        """Answers EntriesWanted; an empty list means that storage no longer has them."""
    def begin_snapshot(
        self, node: int, snapshot_id: int, index: int, term: int, members: Sequence[Member]
    ) -> None:
        """Answers snapshots_wanted: a snapshot of (index, term) can be read in chunks."""
    def snapshot_unavailable(self, node: int) -> None:
        """Answers snapshots_wanted, or ends a transfer: none can be read; asked again later."""
    def supply_chunk(self, node: int, snapshot_id: int, offset: int, chunk: bytes, last: bool) -> None:
        """Answers ChunkWanted."""
    def chunk_stored(self, snapshot_id: int, next_offset: int) -> None:
        """A received chunk that was not the last one is stored."""
    def snapshot_installed(self, snapshot_id: int) -> None:
        """The received snapshot is durable and is the state that applies go on from."""
    def snapshot_refused(self, snapshot_id: int) -> None:
        """The received snapshot could not be stored; the state before it is untouched."""
    def report_unreachable(self, node: int) -> None:
        """The link to `node` broke: what was in flight may be lost."""
    def status(self) -> dict[str, Any]: ...
    def log_entries(self) -> list[Entry]:
        """The entries in memory, oldest first; for tests and diagnosis."""
    def check_invariants(self) -> None:
        """Asserts everything that must hold between two calls."""
