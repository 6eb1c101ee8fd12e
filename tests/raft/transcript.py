"""The language of the transcripts: one command a line, and how messages, writes and states are printed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from fastlock._core.raft import ROLE_NAMES, Ready, Refused, Write
from fastlock._core.raft_message import (
    APPEND,
    APPEND_REPLY,
    ENTRY_MEMBERSHIP,
    ENTRY_NOOP,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    KIND_NAMES,
    PRE_VOTE,
    READ_INDEX,
    READ_INDEX_REPLY,
    ROLE_LEARNER,
    ROLE_VOTER,
    ROLE_WITNESS,
    SNAPSHOT_CHUNK,
    SNAPSHOT_REPLY,
    VOTE,
    Entry,
    Member,
    Message,
)
from fastlock._core.raft_settings import RaftSettings

from .cluster import Cluster, Node, key_of

ROLES = {"voter": ROLE_VOTER, "learner": ROLE_LEARNER, "witness": ROLE_WITNESS}
ROLE_MARKS = {ROLE_VOTER: "", ROLE_LEARNER: "(learner)", ROLE_WITNESS: "(witness)"}


class Block(NamedTuple):
    comment: list[str]
    commands: list[str]
    output: str


def parse(text: str) -> list[Block]:
    """Comment lines, commands, `----`, output up to an empty line; and again."""
    blocks = []
    for part in text.strip().split("\n\n"):
        head, _, output = part.partition("\n----")
        lines = head.splitlines()
        comment = [line for line in lines if line.startswith("#")]
        blocks.append(
            Block(comment, [line for line in lines if not line.startswith("#")], output.lstrip("\n"))
        )
    return blocks


def render(blocks: list[Block]) -> str:
    parts = []
    for block in blocks:
        lines = [*block.comment, *block.commands]
        if block.commands:
            lines += ["----", *block.output.splitlines()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def describe_entry(entry: Entry) -> str:
    what = {ENTRY_NOOP: "noop", ENTRY_MEMBERSHIP: "members"}.get(entry.kind) or key_of(entry)
    return f"{entry.index}/{entry.term}:{what}"


def describe_members(members: tuple[Member, ...]) -> str:
    return " ".join(f"{member.node}{ROLE_MARKS[member.role]}" for member in members)


def describe(message: Message, nonces: dict[int, int]) -> str:
    """One line: kind, direction, term, and the fields that the kind uses."""

    def context() -> str:
        # Read ids start at a random number; only their order says something.
        base = nonces.setdefault(message.context >> 32, message.context >> 32) << 32
        return f" context={message.context - base if message.context >> 32 else message.context}"

    text = f"{KIND_NAMES[message.kind]} {message.source}->{message.target} term={message.term}"
    if message.kind in (APPEND, PRE_VOTE, VOTE, SNAPSHOT_CHUNK):
        text += f" at={message.index}/{message.log_term}"
    if message.kind in (APPEND_REPLY, READ_INDEX_REPLY):
        text += f" index={message.index}"
    if message.kind in (APPEND, HEARTBEAT):
        text += f" commit={message.commit}"
    if message.kind in (HEARTBEAT, HEARTBEAT_REPLY, READ_INDEX, READ_INDEX_REPLY):
        text += context()
    if message.kind in (SNAPSHOT_CHUNK, SNAPSHOT_REPLY):
        text += f" offset={message.hint_index}"
    if message.kind == APPEND_REPLY and message.reject:
        text += f" hint={message.hint_index}/{message.hint_term}"
    text += "".join(f" {flag}" for flag in ("reject", "force", "last") if getattr(message, flag))
    if message.kind == APPEND:
        text += f" [{' '.join(describe_entry(entry) for entry in message.entries)}]"
    return text


def describe_write(write: Write) -> str:
    text = f"write {write.seq}"
    if write.hard_state:
        text += f" term={write.term} vote={write.vote}"
    if write.reset_index:
        text += f" reset={write.reset_index}/{write.reset_term}"
    if write.truncate_from:
        text += f" truncate from {write.truncate_from}"
    if write.entries:
        text += f" [{' '.join(describe_entry(entry) for entry in write.entries)}]"
    return text


@dataclasses.dataclass
class Filter:
    """Which messages a command is about: `1->2`, `->2`, `1->`, kinds, or all."""

    source: int = 0
    target: int = 0
    kinds: tuple[str, ...] = ()

    @classmethod
    def read(cls, words: list[str]) -> Filter:
        wanted = cls()
        for word in words:
            if "->" in word:
                source, target = word.split("->")
                wanted.source, wanted.target = int(source or 0), int(target or 0)
            elif word in KIND_NAMES:
                wanted.kinds += (word,)
            else:
                raise ValueError(f"no message is like {word!r}")
        return wanted

    def __call__(self, message: Message) -> bool:
        return (
            (not self.source or self.source == message.source)
            and (not self.target or self.target == message.target)
            and (not self.kinds or KIND_NAMES[message.kind] in self.kinds)
        )


class Transcript:
    """Plays commands on a cluster and writes down what happens."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.nonces: dict[int, int] = {}
        self.quiet = False
        self.cluster: Cluster

    def play(self, commands: list[str]) -> str:
        self.lines = []
        for command in commands:
            name, *words = command.split()
            method: Callable[..., None] | None = getattr(self, "do_" + name.replace("-", "_"), None)
            if method is None:
                raise ValueError(f"no command {name!r}")
            try:
                method(*words)
            except Refused as refused:
                self.note(f"refused: {refused}")
            self.quiet = False
        return "\n".join(self.lines) or "ok"

    def note(self, line: str) -> None:
        if not self.quiet:
            self.lines.append(line)

    def node(self, word: str) -> Node:
        return self.cluster[int(word)]

    # The group

    def do_group(self, *words: str) -> None:
        """group 3 | group 1 2 3:witness 4:learner | with window=…, inflight=…, append-bytes=…"""
        options = dict(word.split("=") for word in words if "=" in word)
        settings = RaftSettings(
            election_ms_min=150,
            election_ms_max=300,
            heartbeat_ms=50,
            inflight_messages_max=int(options.get("inflight", 32)),
            append_bytes_max=int(options.get("append-bytes", 1 << 20)),
            window_batches=int(options.get("window", 2)),
            commit_notice_ms=int(options.get("commit-notice-ms", 0)),
        )
        members = []
        for word in (word for word in words if "=" not in word):
            node, _, role = word.partition(":")
            members.append(Member(int(node), ROLES[role or "voter"]))
        if len(members) == 1:
            members = [Member(node) for node in range(1, members[0].node + 1)]
        self.cluster = Cluster(members, settings=settings)
        self.cluster.observe = self.observe
        for node in self.cluster.nodes.values():
            node.auto_sync = False

    def do_join(self, node: str) -> None:
        self.cluster.join(int(node)).auto_sync = False

    def observe(self, node: Node, ready: Ready) -> None:
        if ready.soft_changed:
            self.note(f"{node.id}: {ROLE_NAMES[ready.role]} in term {ready.term}, leader {ready.leader}")
        if ready.write is not None:
            self.note(f"{node.id}: {describe_write(ready.write)}")
        for message in ready.messages:
            self.note(f"{node.id}: sends {describe(message, self.nonces)}")
        if ready.committed:
            self.note(f"{node.id}: applies {' '.join(describe_entry(entry) for entry in ready.committed)}")
        for read in ready.reads:
            self.note(f"{node.id}: read {read.context} is safe at {read.index}")
        for context in ready.reads_lost:
            self.note(f"{node.id}: read {context} is lost")
        for wanted in ready.entries_wanted:
            self.note(
                f"{node.id}: wants entries {wanted.first}..{wanted.last} from storage for {wanted.node}"
            )
        for other in ready.snapshots_wanted:
            self.note(f"{node.id}: wants a snapshot for {other}")
        for chunk in ready.chunks_wanted:
            self.note(f"{node.id}: wants the chunk at {chunk.offset} for {chunk.node}")
        for message in ready.chunks:
            self.note(f"{node.id}: stores the chunk at {message.hint_index}{' (the last)' * message.last}")

    # What a member is told

    def do_campaign(self, node: str) -> None:
        self.node(node).raft.campaign()

    def do_propose(self, node: str, *keys: str) -> None:
        for key in keys:
            self.note(f"index {self.node(node).propose(key)}")

    def do_can_propose(self, node: str, batch_bytes: str) -> None:
        self.note("yes" if self.node(node).raft.can_propose(int(batch_bytes)) else "no")

    def do_read(self, node: str, *contexts: str) -> None:
        for context in contexts:
            self.node(node).raft.read_index(int(context))

    def do_transfer(self, node: str, target: str) -> None:
        self.node(node).raft.transfer(int(target))

    def do_members(self, node: str, *words: str) -> None:
        """members 1 1 2 3:learner: the whole configuration from here on."""
        members = []
        for word in words:
            name, _, role = word.partition(":")
            members.append(Member(int(name), ROLES[role or "voter"]))
        self.note(f"index {self.node(node).raft.propose_membership(members)}")

    def do_tick(self, ms: str, *nodes: str) -> None:
        """Time passes for everyone; the named members' timers (or all) fire."""
        self.cluster.now_ms += int(ms)
        for node in [self.node(name) for name in nodes] or list(self.cluster.nodes.values()):
            if node.alive:
                node.raft.tick(self.cluster.now_ms)
                node.raft.check_invariants()

    def do_run(self, ms: str, *words: str) -> None:
        """Time passes in small steps for everyone, and everything is delivered and durable at once."""
        end_ms = self.cluster.now_ms + int(ms)
        while self.cluster.now_ms < end_ms:
            self.quiet = "quietly" in words
            self.do_tick("10")
            self.do_settle(*words)

    # Disks and network

    def do_ready(self, *nodes: str) -> None:
        for node in [self.node(name) for name in nodes] or list(self.cluster.nodes.values()):
            while node.take_ready():
                pass

    def do_sync(self, node: str, count: str = "") -> None:
        """Storage acknowledges writes, oldest first; what waited for them leaves."""
        member = self.node(node)
        for _ in range(int(count) if count else len(member.disk.pending)):
            seq = member.disk.sync_one()
            released = member.raft.persisted(seq)
            self.note(f"{node}: write {seq} is durable up to index {member.raft.durable_index}")
            for message in released:
                self.note(f"{node}: sends {describe(message, self.nonces)}")
            self.cluster.send(released)
            member.raft.check_invariants()

    def do_deliver(self, *words: str) -> None:
        wanted = Filter.read(list(words))
        if not self.cluster.deliver(wanted):
            self.note("nothing to deliver")

    def do_drop(self, *words: str) -> None:
        dropped = self.cluster.drop(Filter.read(list(words)))
        self.note(f"{len(dropped)} lost")

    def do_wire(self) -> None:
        for message in self.cluster.wire:
            self.note(describe(message, self.nonces))

    def do_settle(self, *words: str) -> None:
        """Readys, syncs and deliveries until nothing moves; `settle quietly` prints nothing."""
        self.quiet = "quietly" in words
        for _ in range(1000):
            self.do_ready()
            synced = False
            for node in self.cluster.nodes.values():
                if node.alive and node.disk.pending:
                    self.do_sync(str(node.id))
                    synced = True
            if not synced and not self.cluster.deliver():
                return
        raise AssertionError("the group does not come to rest")

    def do_isolate(self, *nodes: str) -> None:
        self.cluster.isolate(*map(int, nodes))

    def do_heal(self) -> None:
        self.cluster.heal()

    def do_crash(self, node: str) -> None:
        self.node(node).crash()

    def do_restart(self, node: str) -> None:
        self.node(node).start()

    def do_amnesia(self, node: str) -> None:
        """The disk of a member is gone, and its identity is not."""
        member = self.node(node)
        member.disk.__init__(member.raft.members)  # type: ignore[misc]
        member.may_vote = False
        member.start()

    def do_checkpoint(self, node: str, index: str = "") -> None:
        self.node(node).checkpoint(int(index) if index else None)

    def do_cut(self, node: str, index: str = "") -> None:
        self.node(node).cut(int(index) if index else None)

    # What can be seen

    def do_status(self, *nodes: str) -> None:
        for node in [self.node(name) for name in nodes] or list(self.cluster.nodes.values()):
            if not node.alive:
                self.note(f"{node.id}: down")
                continue
            state = node.raft.status()
            shown = " ".join(
                f"{name}={state[name]}" for name in ("term", "vote", "leader", "commit", "durable")
            )
            last_index, last_term = state["last"]
            self.note(f"{node.id}: {state['role']} {shown} last={last_index}/{last_term}")

    def do_peers(self, node: str) -> None:
        for other, peer in self.node(node).raft.status()["peers"].items():
            paused = " paused" if peer["paused"] else ""
            self.note(
                f"{other}: {peer['state']} match={peer['match']} next={peer['next']} "
                f"inflight={peer['inflight']}{paused}"
            )

    def do_log(self, *nodes: str) -> None:
        for node in [self.node(name) for name in nodes] or list(self.cluster.nodes.values()):
            entries = " ".join(describe_entry(entry) for entry in node.raft.log_entries())
            base = node.raft.status()["base"]
            self.note(f"{node.id}: {f'({base[0]}/{base[1]}) ' if base[0] else ''}{entries}")

    def do_configuration(self, *nodes: str) -> None:
        for node in [self.node(name) for name in nodes] or list(self.cluster.nodes.values()):
            self.note(f"{node.id}: {describe_members(node.raft.members)} since {node.raft.members_index}")
