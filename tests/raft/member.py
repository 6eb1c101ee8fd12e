"""One member under a microscope: its log and term are given, messages go in by hand and come out in lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastlock._core.raft import Raft
from fastlock._core.raft_entry import membership_entry, noop_entry
from fastlock._core.raft_message import (
    APPEND,
    APPEND_REPLY,
    ENTRY_BATCH,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    VOTE,
    VOTE_REPLY,
    Entry,
    Member,
    Message,
)
from fastlock._core.raft_settings import RaftSettings

from .cluster import FAST, GROUP, batch, voters


def entry(term: int, index: int, key: str = "") -> Entry:
    return Entry(term, index, ENTRY_BATCH, batch(term, index, key))


def log_of(*terms: int) -> list[Entry]:
    """A log with these terms, from index 1 on."""
    return [entry(term, index) for index, term in enumerate(terms, 1)]


def change(term: int, index: int, members: Sequence[Member]) -> Entry:
    return membership_entry(GROUP, term, index, tuple(members))


def noop(term: int, index: int) -> Entry:
    return noop_entry(GROUP, term, index)


class Lone:
    """Member 1, by default of three, without the others."""

    def __init__(
        self,
        *,
        members: Sequence[Member] = voters(1, 2, 3),
        log: Iterable[Entry] = (),
        term: int | None = None,
        settings: RaftSettings = FAST,
        **options: Any,
    ) -> None:
        entries = list(log)
        if term is None:
            term = entries[-1].term if entries else 0
        self.raft = Raft(
            group=GROUP,
            node=1,
            members=members,
            seed=1,
            settings=settings,
            term=term,
            entries=entries,
            **options,
        )
        self.now_ms = 0
        self.unsynced: list[int] = []
        self.applied: list[Entry] = []
        self.reads: list[int] = []
        self.lost: list[int] = []
        self.chunks: list[Message] = []

    def receive(self, kind: int, source: int = 2, term: int | None = None, **fields: Any) -> list[Message]:
        """Hands a message in; returns what may leave at once. The disk does nothing meanwhile."""
        term = self.raft.term if term is None else term
        message = Message(kind, group=GROUP, source=source, target=1, term=term, **fields)
        self.raft.step(message, self.now_ms)
        return self.flush()

    def tick(self, ms: int) -> list[Message]:
        self.now_ms += ms
        self.raft.tick(self.now_ms)
        return self.flush()

    def flush(self) -> list[Message]:
        """Everything Raft has ready, with the disk standing still."""
        left: list[Message] = []
        while self.raft.has_ready:
            ready = self.raft.ready()
            left += ready.messages
            if ready.write is not None:
                self.unsynced.append(ready.write.seq)
            self.applied += ready.committed
            self.reads += [read.context for read in ready.reads]
            self.lost += ready.reads_lost
            self.chunks += ready.chunks
            self.raft.check_invariants()
        self.raft.check_invariants()
        return left

    def sync(self, count: int | None = None) -> list[Message]:
        """Storage acknowledges; returns what waited for it and what follows."""
        left = self.flush()
        for _ in range(len(self.unsynced) if count is None else count):
            left += self.raft.persisted(self.unsynced.pop(0))
        return left + self.flush()

    def append(self, index: int, log_term: int, *entries: Entry, **fields: Any) -> list[Message]:
        return self.receive(APPEND, index=index, log_term=log_term, entries=list(entries), **fields)

    def acknowledge(self, source: int, index: int) -> list[Message]:
        return self.receive(APPEND_REPLY, source, index=index)

    def ask_vote(self, source: int, term: int, index: int, log_term: int, **fields: Any) -> list[Message]:
        return self.receive(VOTE, source, term, index=index, log_term=log_term, **fields)

    def ask_pre_vote(self, source: int, term: int, index: int, log_term: int) -> list[Message]:
        return self.receive(PRE_VOTE, source, term, index=index, log_term=log_term)

    def become_candidate(self) -> None:
        """Times out and gets its pre-votes; term and own vote are not durable yet."""
        self.tick(self.raft.next_tick_ms - self.now_ms)
        for member in self.raft.members:
            if member.node != 1:
                self.receive(PRE_VOTE_REPLY, member.node, self.raft.term + 1)

    def become_leader(self) -> list[Message]:
        """Wins an election; returns what it sends first. Its own no-op is durable, and nobody else's."""
        self.become_candidate()
        self.sync()
        left: list[Message] = []
        for member in self.raft.members:
            if member.node != 1:
                left += self.receive(VOTE_REPLY, member.node)
        return left + self.sync()

    def terms(self) -> list[int]:
        return [found.term for found in self.raft.log_entries()]


def only(messages: Iterable[Message], kind: int) -> list[Message]:
    return [message for message in messages if message.kind == kind]
