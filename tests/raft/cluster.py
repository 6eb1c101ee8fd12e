"""A group of Raft members in one process: messages travel and disks sync only when a test says so."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable

from fastlock._core.raft import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE, Raft, Ready, Write
from fastlock._core.raft_message import ENTRY_BATCH, ROLE_VOTER, Entry, Member, Message
from fastlock._core.raft_settings import RaftSettings
from fastlock.schema import load

__all__ = [
    "CANDIDATE",
    "FOLLOWER",
    "GROUP",
    "LEADER",
    "PRE_CANDIDATE",
    "Cluster",
    "Disk",
    "Node",
    "batch",
    "voters",
]

GROUP = 7
CHUNK_BYTES = 64
SETTLE_ROUNDS_MAX = 10_000
FAST = RaftSettings(election_ms_min=150, election_ms_max=300, heartbeat_ms=50)


def voters(*nodes: int) -> tuple[Member, ...]:
    return tuple(Member(node, ROLE_VOTER) for node in nodes)


def batch(term: int, index: int, key: str = "") -> bytes:
    """A batch of one command, sealed for its place in the log."""
    entry = load("log").LogEntry.new_message(version=1, kind="batch", group=GROUP, term=term, index=index)
    command = entry.init("commands", 1)[0]
    command.key = key.encode()
    command.revoke = None
    return bytes(entry.to_bytes())


def key_of(entry: Entry) -> str:
    """What a test wrote into a batch; empty for entries of Raft itself."""
    if entry.kind != ENTRY_BATCH:
        return ""
    with load("log").LogEntry.from_bytes(entry.data) as read:
        return str(bytes(read.commands[0].key).decode())


class Disk:
    """What survives a crash, and the writes that do not yet."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.term = 0
        self.vote = 0
        self.entries: list[Entry] = []
        self.cut = (0, 0)
        self.checkpoint: tuple[int, int, tuple[Member, ...], tuple[tuple[int, int, str], ...]]
        self.checkpoint = (0, 0, tuple(members), ())
        self.pending: list[Write] = []

    def sync_one(self) -> int:
        write = self.pending.pop(0)
        if write.hard_state:
            self.term, self.vote = write.term, write.vote
        if write.reset_index:
            self.entries = []
            self.cut = (write.reset_index, write.reset_term)
        if write.truncate_from:
            self.entries = [entry for entry in self.entries if entry.index < write.truncate_from]
        for entry in write.entries:
            assert entry.index == self.last_index + 1, "storage never holds a log with a hole"
            self.entries.append(entry)
        return write.seq

    @property
    def last_index(self) -> int:
        return self.entries[-1].index if self.entries else self.cut[0]


class Node:
    def __init__(
        self, cluster: Cluster, node: int, members: Iterable[Member], settings: RaftSettings
    ) -> None:
        self.cluster = cluster
        self.id = node
        self.settings = settings
        self.disk = Disk(members)
        self.starts = 0
        self.alive = False
        self.may_vote = True
        self.auto_sync = True
        self.start()

    def start(self) -> None:
        index, term, members, applied = self.disk.checkpoint
        self.starts += 1
        self.alive = True
        self.applied: list[tuple[int, int, str]] = list(applied)
        self.reads: list[tuple[int, int, int]] = []  # context, index, applied when it was answered
        self.reads_lost: list[int] = []
        self.received = b""  # of a snapshot
        self.snapshots: dict[int, bytes] = {}  # open for sending
        self.disk.pending.clear()
        self.raft = Raft(
            group=GROUP,
            node=self.id,
            members=members,
            seed=self.id * 1_000_003 + self.starts + self.cluster.seed,
            now_ms=self.cluster.now_ms,
            settings=self.settings,
            term=self.disk.term,
            vote=self.disk.vote,
            snapshot_index=index,
            snapshot_term=term,
            cut_index=self.disk.cut[0],
            entries=self.disk.entries,
            may_vote=self.may_vote,
        )

    def crash(self) -> None:
        self.alive = False
        self.disk.pending.clear()

    def propose(self, key: str = "") -> int:
        return self.raft.propose(batch(self.raft.term, self.raft.next_index, key))

    def take_ready(self) -> bool:
        """One Ready, done with as a caller would; False if there was none."""
        if not self.alive or not self.raft.has_ready:
            return False
        ready = self.raft.ready()
        if self.cluster.observe is not None:
            self.cluster.observe(self, ready)
        if ready.write is not None:
            self.disk.pending.append(ready.write)
        self.cluster.send(ready.messages)
        self.apply(ready)
        self.serve(ready)
        self.raft.check_invariants()
        return True

    def apply(self, ready: Ready) -> None:
        for entry in ready.committed:
            assert entry.index == (self.applied[-1][0] if self.applied else 0) + 1, "applied once, in order"
            self.applied.append((entry.index, entry.term, key_of(entry)))
        self.reads += [(read.context, read.index, self.applied_index) for read in ready.reads]
        assert all(read.index <= self.applied_index for read in ready.reads), (
            "a read never runs ahead of apply"
        )
        self.reads_lost += ready.reads_lost

    @property
    def applied_index(self) -> int:
        return self.applied[-1][0] if self.applied else 0

    def serve(self, ready: Ready) -> None:
        for wanted in ready.entries_wanted:
            stored = [entry for entry in self.disk.entries if wanted.first <= entry.index <= wanted.last]
            self.raft.supply_entries(wanted.node, stored[:8])
        for node in ready.snapshots_wanted:
            index, term, members, applied = self.disk.checkpoint
            snapshot_id = index * 1000 + self.starts
            self.snapshots[snapshot_id] = pickle.dumps(applied)
            self.raft.begin_snapshot(node, snapshot_id, index, term, members)
        for chunk in ready.chunks_wanted:
            stream = self.snapshots[chunk.snapshot_id]
            part = stream[chunk.offset : chunk.offset + CHUNK_BYTES]
            last = chunk.offset + CHUNK_BYTES >= len(stream)
            self.raft.supply_chunk(chunk.node, chunk.snapshot_id, chunk.offset, part, last)
        for message in ready.chunks:
            self.store_chunk(message)

    def store_chunk(self, message: Message) -> None:
        self.received = self.received[: message.hint_index] + message.chunk
        if not message.last:
            self.raft.chunk_stored(message.context, len(self.received))
            return
        assert message.members is not None
        self.applied = list(pickle.loads(self.received))
        self.disk.checkpoint = (message.index, message.log_term, message.members, tuple(self.applied))
        self.raft.snapshot_installed(message.context)

    def sync(self, count: int | None = None) -> int:
        """Makes writes durable, oldest first, and lets go what waited for them."""
        done = 0
        while self.alive and self.disk.pending and (count is None or done < count):
            self.cluster.send(self.raft.persisted(self.disk.sync_one()))
            done += 1
        self.raft.check_invariants()
        return done

    def checkpoint(self, index: int | None = None) -> None:
        """A checkpoint at `index`, by default at everything applied and durable."""
        index = min(self.applied_index, self.raft.durable_index) if index is None else index
        if index > self.disk.checkpoint[0]:
            applied = tuple(done for done in self.applied if done[0] <= index)
            self.disk.checkpoint = (index, applied[-1][1], self.raft.members_at(index), applied)
            self.raft.compact(index)

    def cut(self, index: int | None = None) -> None:
        """Cuts the stored log behind the checkpoint."""
        index = self.disk.checkpoint[0] if index is None else index
        index = min(index, self.disk.checkpoint[0], self.raft.log_keep_from)
        gone = [entry for entry in self.disk.entries if entry.index <= index]
        if gone:
            self.disk.cut = (gone[-1].index, gone[-1].term)
            self.disk.entries = self.disk.entries[len(gone) :]
            self.raft.log_cut(*self.disk.cut)


class Cluster:
    def __init__(
        self,
        count: int | Iterable[Member] = 3,
        *,
        settings: RaftSettings = FAST,
        seed: int = 0,
        watch: Callable[[Message], None] | None = None,
    ) -> None:
        members = voters(*range(1, count + 1)) if isinstance(count, int) else tuple(count)
        self.seed = seed
        self.settings = settings
        self.now_ms = 0
        self.wire: list[Message] = []
        self.watch = watch
        self.observe: Callable[[Node, Ready], None] | None = None
        self.cut_links: set[tuple[int, int]] = set()
        self.nodes = {member.node: Node(self, member.node, members, settings) for member in members}

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def join(self, node: int) -> Node:
        """A node with nothing on its disk, which the group does not know yet."""
        self.nodes[node] = Node(self, node, (), self.settings)
        return self.nodes[node]

    def send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if self.watch is not None:
                self.watch(message)
            self.wire.append(message)

    def isolate(self, *nodes: int) -> None:
        """Cuts every link between these nodes and the others."""
        for inside in nodes:
            for outside in self.nodes:
                if outside not in nodes:
                    self.cut_links |= {(inside, outside), (outside, inside)}

    def heal(self) -> None:
        self.cut_links.clear()

    def deliver(self, wanted: Callable[[Message], bool] = lambda _: True) -> int:
        """Hands over the messages on the wire that are wanted; what cannot arrive is lost."""
        taken = [message for message in self.wire if wanted(message)]
        self.wire = [message for message in self.wire if not wanted(message)]
        for message in taken:
            self.hand_over(message)
        return len(taken)

    def hand_over(self, message: Message) -> None:
        node = self.nodes.get(message.target)
        if node is not None and node.alive and (message.source, message.target) not in self.cut_links:
            node.raft.step(message, self.now_ms)
            node.raft.check_invariants()

    def drop(self, wanted: Callable[[Message], bool] = lambda _: True) -> list[Message]:
        dropped = [message for message in self.wire if wanted(message)]
        self.wire = [message for message in self.wire if not wanted(message)]
        return dropped

    def work(self) -> bool:
        """Everything but the network: Readys and, on disks that are not held, syncs."""
        busy = False
        for node in self.nodes.values():
            while node.take_ready() or (node.auto_sync and node.sync()):
                busy = True
        return busy

    def settle(self) -> None:
        """Until nothing happens any more without the clock."""
        for _ in range(SETTLE_ROUNDS_MAX):
            self.work()
            if not self.deliver():
                return
        raise AssertionError("the group does not come to rest")

    def run(self, ms: int, step_ms: int = 10) -> None:
        """Lets time pass, with everything delivered at once."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms += step_ms
            for node in self.nodes.values():
                if node.alive:
                    node.raft.tick(self.now_ms)
                    node.raft.check_invariants()
            self.settle()

    def elect(self, node: int) -> Node:
        """Makes `node` the leader, and lets everyone know."""
        self.now_ms += self.settings.election_ms_min
        self[node].raft.campaign()
        self.settle()
        assert self[node].raft.role == LEADER
        return self[node]

    @property
    def leaders(self) -> list[int]:
        return [node.id for node in self.nodes.values() if node.alive and node.raft.role == LEADER]

    def leader(self) -> Node:
        """The leader of the highest term."""
        return max((self[node] for node in self.leaders), key=lambda node: node.raft.term)
