"""One group on one node: Raft, the lock table and storage, and the order between them.

Deterministic and without I/O: time, randomness, messages and storage acknowledgements are handed
in; messages and answers come out. The node and the simulator drive this same code.

A turn: take in messages and acknowledgements, let time pass, propose what collected, and then do
what Raft says until it is silent. Nothing is answered before it was applied, nothing is applied
before it was committed, nothing is acknowledged before it was durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fastlock._core.codec_client import decode_reply
from fastlock._core.framing import frame_size
from fastlock._core.locktable import Due, LockTable
from fastlock._core.proposals import Proposals
from fastlock._core.raft import LEADER, Raft, Ready, Refused
from fastlock._core.raft_message import Entry, Member, Message
from fastlock._core.raft_settings import RaftSettings
from fastlock._core.replies import Switchboard
from fastlock.errors import EventsLost
from fastlock.node.checkpoints import Checkpointer
from fastlock.node.snapshots import SnapshotReceiver, SnapshotSender
from fastlock.schema.enums import Code, CommandWhich
from fastlock.storage import Storage

# Beyond this a group answers BUSY before it takes more reads in.
READS_WAITING_MAX = 65_536

# Expires proposed in one turn; more are taken in the next one.
DUE_PER_TURN_MAX = 256

EVENTS_PER_PUSH_MAX = 256


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Local tunables; nothing here reaches the replicated state."""

    raft: RaftSettings
    heartbeat_ms: int = 200
    # How often a leader looks for leases that ran out.
    expiry_poll_ms: int = 20
    checkpoint_dirty_rows: int = 2048
    checkpoint_slice_rows: int = 256
    # Entries kept behind a checkpoint for members that lag a little.
    log_keep_entries: int = 4096
    snapshot_chunk_bytes: int = 64 << 10
    # A snapshot whose sender fell silent for so long no longer holds up our own checkpoints.
    snapshot_idle_ms: int = 10_000
    history_events_max: int = 65_536
    history_bytes_max: int = 16 << 20


class Answer(NamedTuple):
    """What a request is told. A queued acquire is answered again when its wait ends."""

    handle: Any
    code: int
    token: int = 0
    revision: int = 0
    count: int = 0  # type: ignore[assignment]
    detail: int = 0
    leader: int = 0
    # get: the lock's state; watch: events; export: records.
    content: Any = None


class Noting(NamedTuple):
    """The handle of a noteRemaining: whose it is."""

    lease_high: int
    lease_low: int


class Watch:
    """One stream of events out of this replica."""

    __slots__ = ("handle", "is_prefix", "key", "position", "told")

    def __init__(self, handle: Any, key: bytes, is_prefix: bool, position: int) -> None:
        self.handle = handle
        self.key = key
        self.is_prefix = is_prefix
        self.position = position
        # The position in the last push: the next one says that it continues there.
        self.told = position


class Observer(Protocol):
    """Who wants to know what a group does; the simulator's checkers and the node's counters."""

    def elected(self, group: Group) -> None: ...
    def applied(self, group: Group, entry: Entry) -> None: ...
    def frozen(self, group: Group) -> None: ...
    def loaded(self, group: Group) -> None: ...


class Group:
    """Everything one node knows about one group."""

    def __init__(
        self,
        number: int,
        node: int,
        storage: Storage,
        settings: GroupSettings,
        members: Sequence[Member],
        seed: int,
        now_ms: int,
        observer: Observer,
        board: Switchboard,
        touched: list[Group],
        may_vote: bool = True,
    ) -> None:
        self.number = number
        self.node = node
        self.storage = storage
        self.settings = settings
        self.observer = observer
        # Differs from start to start, so that what was asked before a restart is not taken for ours.
        self.start_id = seed & 0xFFFFFFFF
        # The engine's list of groups that something came in for since their last turn.
        self._touched_groups = touched
        self._touched = False
        self.outbox: list[Message] = []
        self.answers: list[Answer] = []
        self.table = LockTable(
            number,
            history_bytes_max=settings.history_bytes_max,
            history_events_max=settings.history_events_max,
        )
        stored = storage.load(number)
        # The configuration at the newest durable checkpoint.
        self.checkpoint_members = tuple(members)
        self.table.membership = [(m.node, m.incarnation, m.role, m.address.encode()) for m in members]
        if stored.checkpoint_index:
            self.load_rows()
        self.raft = Raft(
            group=number,
            node=node,
            members=self.checkpoint_members,
            seed=seed,
            now_ms=now_ms,
            settings=settings.raft,
            term=stored.term,
            vote=stored.vote,
            snapshot_index=stored.checkpoint_index,
            snapshot_term=stored.checkpoint_term,
            cut_index=stored.cut_index,
            entries=[e for e in stored.entries if e.index > stored.checkpoint_index],
            may_vote=may_vote,
        )
        self.leading = False
        self._leading_term = 0
        self.proposals = Proposals(number, node, board)
        # The answers to what is submitted here, and to whom they go.
        self._own = board.open(self, is_trusted=True)
        self._handles: dict[int, Any] = {}
        self._submitted = 0
        self._reads_collected: list[tuple[str, Any, tuple[Any, ...]]] = []
        self._reads: dict[int, list[tuple[str, Any, tuple[Any, ...]]]] = {}
        self._read_context = self.start_id << 24
        # Keep-alives of leases whose expire, or whose note of the time left, is under way.
        self._expiring: list[tuple[Any, int, int]] = []
        self._noting: dict[Noting, None] = {}
        self._watches: dict[Any, Watch] = {}
        self._watched_revision = self.table.revision
        # After a gap expires wait for a confirmation; the context of the read that gives it.
        self._unconfirmed = False
        self._confirming = 0
        self._turn_ms = now_ms
        # When `turn` must be called next, at the latest.
        self.wake_ms = now_ms
        self._poll_ms = now_ms
        self.checkpointer = Checkpointer(self)
        self.sender = SnapshotSender(self)
        self.receiver = SnapshotReceiver(self)
        self.touch()

    def load_rows(self) -> None:
        """Restore the table from the newest durable checkpoint."""
        self.table.clear()
        for key, row in self.storage.rows(self.number):
            self.table.load_row(key, row)
        self.table.finish_load()
        self.checkpoint_members = tuple(
            Member(node, role, incarnation, address.decode())
            for node, incarnation, role, address in self.table.membership
        )
        self.observer.loaded(self)

    # What the world hands in.

    def touch(self) -> None:
        """Something came in: the engine's next turn includes this group."""
        if not self._touched:
            self._touched = True
            self._touched_groups.append(self)

    def step(self, message: Message, now_ms: int) -> None:
        self.touch()
        self.raft.step(message, now_ms)

    def submit(self, content: Any, handle: Any) -> None:
        """Propose a command of the node's own.

        It is answered once it was applied here, or once that can no longer be known. Requests of clients
        do not come this way: they go into `proposals` as the frames they are.
        """
        self.touch()
        self._submitted += 1
        code = self.proposals.submit(content, self._own, self._submitted)
        if code == Code.ok:
            self._handles[self._submitted] = handle
        else:
            self.answers.append(Answer(handle, code, leader=self.raft.leader))

    def keep_alive(self, lease_high: int, lease_low: int, handle: Any) -> None:
        """Extend a lease by its TTL, if this node can show that it still leads."""
        if not self.leading:
            self.answers.append(Answer(handle, Code.notLeader, leader=self.raft.leader))
            return
        self._collect("keep_alive", handle, (lease_high, lease_low, self._leading_term))

    def get(self, key: bytes, handle: Any) -> None:
        """Read a lock as it is at some moment between this call and the answer."""
        self._collect("get", handle, (key,))

    def confirm(self, handle: Any) -> None:
        """Answer once this replica has everything that was committed before this call: then read it."""
        self._collect("confirm", handle, ())

    def export(self, first: int, last: int, cursor: bytes, max_rows: int, handle: Any) -> None:
        """One page of records out of exported slots."""
        self._collect("export", handle, (first, last, cursor, max_rows))

    def _collect(self, kind: str, handle: Any, arguments: tuple[Any, ...]) -> None:
        self.touch()
        if len(self._reads_collected) >= READS_WAITING_MAX:
            self.answers.append(Answer(handle, Code.busy, leader=self.raft.leader))
        else:
            self._reads_collected.append((kind, handle, arguments))

    def watch(self, key: bytes, is_prefix: bool, position: int | None, handle: Any) -> None:
        """Stream events from this replica, after a position or from now on."""
        if not self.raft.leader:
            # Nothing comes in here: cut off, or no member any more without having been told. Waiting for
            # a leader it could stay silent for ever, and the watcher would not know.
            self.answers.append(Answer(handle, Code.unavailable, leader=self.raft.leader))
            return
        start = self.table.revision if position is None else position
        watch = self._watches[handle] = Watch(handle, key, is_prefix, start)
        self.answers.append(Answer(handle, Code.ok, revision=start))
        self._push(watch)

    def unwatch(self, handle: Any) -> None:
        self._watches.pop(handle, None)

    def durable(self, write_seq: int) -> None:
        """Storage acknowledged; what waited for it may leave."""
        self.touch()
        self.outbox.extend(self.raft.persisted(write_seq))

    def checkpoint_durable(self, index: int) -> None:
        self.touch()
        if self.receiver.awaits(index):
            self.receiver.installed()
        else:
            self.checkpointer.durable(index)

    # The turn.

    def turn(self, now_ms: int) -> None:
        """Let time pass and do everything there is to do."""
        self._touched = False
        raft = self.raft
        if self.leading:
            self._mind_the_gap(now_ms)
        self._turn_ms = now_ms
        raft.tick(now_ms)
        if self.leading and now_ms >= self._poll_ms:
            self._expire(now_ms)
        if self._reads_collected:
            self._ask_reads()
        while True:
            if self.leading:
                self._propose()
            if not raft.has_ready:
                break
            self._take(raft.ready(), now_ms)
        self.checkpointer.step(now_ms)
        if self._watches and self.table.revision != self._watched_revision:
            self._watched_revision = self.table.revision
            for watch in list(self._watches.values()):
                self._push(watch)
        self.wake_ms = now_ms if self.checkpointer.busy else self._next_wake_ms(now_ms)

    def _next_wake_ms(self, now_ms: int) -> int:
        wake_ms = self.raft.next_tick_ms
        if self.leading and self._poll_ms < wake_ms:
            wake_ms = self._poll_ms
        return wake_ms if wake_ms > now_ms else now_ms

    def _mind_the_gap(self, now_ms: int) -> None:
        """A leader that did not run for a while may not blame its clients for the silence.

        Their keep-alives may lie in its own input queue, and it may be deposed without knowing: it
        moves all deadlines by the gap and confirms that it leads before it proposes an expire.
        """
        if now_ms - self.wake_ms <= self.settings.heartbeat_ms:
            return
        self.table.skip_time(now_ms - self._turn_ms)
        self._unconfirmed = True

    def _expire(self, now_ms: int) -> None:
        self._poll_ms = now_ms + self.settings.expiry_poll_ms
        if self._unconfirmed:
            self._confirm()
            return
        for due in self.table.due(now_ms, DUE_PER_TURN_MAX):
            self.proposals.submit(_command_of(due))
        if self.table.timers_late(now_ms):
            self._poll_ms = now_ms

    def _confirm(self) -> None:
        """Ask once whether this node still leads; asked again at the next poll if that fails."""
        if self._confirming:
            return
        context = self._next_context()
        try:
            self.raft.read_index(context)
        except Refused:
            return
        self._confirming = context

    def _propose(self) -> None:
        """Natural batching: what collected while the last entry was under way is the next one."""
        proposals, raft = self.proposals, self.raft
        while (size := proposals.next_bytes) and raft.can_propose(size):
            raft.propose(proposals.seal(raft.term, raft.next_index))

    def _next_context(self) -> int:
        self._read_context += 1
        return self._read_context

    def _ask_reads(self) -> None:
        """Everything collected since the last turn is confirmed by one read."""
        collected, self._reads_collected = self._reads_collected, []
        context = self._next_context()
        try:
            self.raft.read_index(context)
        except Refused:
            self._fail_reads(collected)
            return
        self._reads[context] = collected

    def _fail_reads(self, reads: list[tuple[str, Any, tuple[Any, ...]]]) -> None:
        for _, handle, _ in reads:
            self.answers.append(Answer(handle, Code.unavailable, leader=self.raft.leader))

    def _take(self, ready: Ready, now_ms: int) -> None:
        """Do what Raft wants, in the order it wants it."""
        self.outbox.extend(ready.messages)
        if ready.write is not None:
            self.storage.append(self.number, ready.write)
        for entry in ready.committed:
            self._apply(entry, now_ms)
        if ready.soft_changed:
            self._follow_role(ready, now_ms)
        for read in ready.reads:
            self._answer_reads(read.context, now_ms)
        for context in ready.reads_lost:
            self._lose_reads(context)
        self._serve(ready, now_ms)

    def _serve(self, ready: Ready, now_ms: int) -> None:
        """What other members need from this one's storage, and what they sent for it."""
        for wanted in ready.entries_wanted:
            entries = self.storage.read(self.number, wanted.first, wanted.last, wanted.bytes_max)
            self.raft.supply_entries(wanted.node, entries)
        for node in ready.snapshots_wanted:
            self.sender.begin(node)
        for chunk_wanted in ready.chunks_wanted:
            self.sender.supply(chunk_wanted)
        for message in ready.chunks:
            self.receiver.store(message, now_ms)

    def _apply(self, entry: Entry, now_ms: int) -> None:
        self.table.apply(entry.data, now_ms)
        self.observer.applied(self, entry)
        self.proposals.applied(self.table)
        if self._own.size:
            self._take_own()
        if self._expiring:
            waiting, self._expiring = self._expiring, []
            for handle, lease_high, lease_low in waiting:
                self._extend(handle, lease_high, lease_low, now_ms)

    def _take_own(self) -> None:
        """Hand out the answers to what was submitted here; a wait gets another one when it ends."""
        frames = memoryview(self._own.take())
        while frames:
            size = frame_size(frames)
            reply = decode_reply(frames[:size])
            frames = frames[size:]
            code = Code[reply["code"]]
            handle = self._handles[reply["id"]] if code == Code.queued else self._handles.pop(reply["id"])
            if isinstance(handle, Noting):
                self._noting.pop(handle, None)
            elif handle is not None:
                grant = reply.get("grant", {})
                token, count = grant.get("token", 0), grant.get("count", 0)
                if code == Code.notAcquired:
                    token = reply["revision"]
                self.answers.append(
                    Answer(handle, code, token, reply["revision"], count, reply["detail"], reply["leader"])
                )

    def _follow_role(self, ready: Ready, now_ms: int) -> None:
        if self.leading and (ready.role != LEADER or ready.term != self._leading_term):
            self._step_down()
        if ready.role != LEADER:
            self.proposals.follow(ready.leader)
        elif not self.leading:
            self.leading = True
            self.proposals.lead()
            self._leading_term = ready.term
            self._poll_ms = now_ms
            self.table.lead(now_ms)
            self.observer.elected(self)

    def _step_down(self) -> None:
        """Whatever was under way is unknown from here on; clients repeat it at the next leader."""
        self.leading = False
        self._unconfirmed = False
        self._confirming = 0
        self.table.follow()
        self.proposals.follow(self.raft.leader)
        self._take_own()
        for handle, _, _ in self._expiring:
            self.answers.append(Answer(handle, Code.outcomeUnknown, leader=self.raft.leader))
        self._expiring.clear()
        self._noting.clear()

    def _answer_reads(self, context: int, now_ms: int) -> None:
        if context == self._confirming:
            self._confirming = 0
            self._unconfirmed = False
            return
        for kind, handle, arguments in self._reads.pop(context, ()):
            if kind == "get":
                state = self.table.get(arguments[0], now_ms)
                slot_state, moved_to = self.table.slot_owner(arguments[0])
                self.answers.append(
                    Answer(
                        handle,
                        Code.ok,
                        revision=self.table.revision,
                        detail=moved_to,
                        content=(slot_state, state),
                    )
                )
            elif kind == "confirm":
                self.answers.append(Answer(handle, Code.ok, revision=self.table.revision))
            elif kind == "export":
                page = self.table.export_rows(*arguments)
                self.answers.append(Answer(handle, Code.ok, revision=self.table.revision, content=page))
            elif not self.leading or self._leading_term != arguments[2]:
                self.answers.append(Answer(handle, Code.outcomeUnknown, leader=self.raft.leader))
            else:
                self._extend(handle, arguments[0], arguments[1], now_ms)

    def _extend(self, handle: Any, lease_high: int, lease_low: int, now_ms: int) -> None:
        kept = self.table.keep_alive(lease_high, lease_low, now_ms)
        if kept.expiring or kept.noted:
            self._expiring.append((handle, lease_high, lease_low))
            if not kept.expiring:
                self._note_full_time(lease_high, lease_low, kept.generation)
        else:
            self.answers.append(Answer(handle, kept.code, revision=kept.lost_revision, leader=self.node))

    def _note_full_time(self, lease_high: int, lease_low: int, generation: int) -> None:
        """The log says that less than the TTL is left: the next leader must be told otherwise first."""
        noting = Noting(lease_high, lease_low)
        if noting not in self._noting:
            self._noting[noting] = None
            note = {"generation": generation, "remainingMs": 0}
            command = {"leaseHigh": lease_high, "leaseLow": lease_low, "noteRemaining": note}
            self.submit(command, noting)

    def _lose_reads(self, context: int) -> None:
        if context == self._confirming:
            self._confirming = 0
        self._fail_reads(self._reads.pop(context, []))

    def _push(self, watch: Watch) -> None:
        """Send a watcher what it has not seen, or where to go on if that is gone."""
        while True:
            try:
                events, position = self.table.events(
                    watch.position, watch.key, watch.is_prefix, EVENTS_PER_PUSH_MAX
                )
            except EventsLost as lost:
                self.unwatch(watch.handle)
                self.answers.append(Answer(watch.handle, Code.eventsLost, revision=lost.floor))
                return
            if position <= watch.position:
                return
            if events:
                self.answers.append(
                    Answer(watch.handle, Code.ok, revision=position, token=watch.told, content=events)
                )
                watch.told = position
            watch.position = position

    # Members and leadership.

    def change_members(self, members: Sequence[Member]) -> int:
        """Propose a configuration that differs in one member; raises Refused."""
        self.touch()
        return self.raft.propose_membership(members)

    def transfer(self, target: int) -> None:
        """Hand leadership over; raises Refused."""
        self.touch()
        self.raft.transfer(target)

    def campaign(self) -> None:
        """Ask for leadership at once; raises Refused."""
        self.touch()
        self.raft.campaign()

    def unreachable(self, node: int) -> None:
        """The link to a member broke: what was under way to it may be lost."""
        self.touch()
        self.raft.report_unreachable(node)


def _command_of(due: Due) -> dict[str, Any]:
    """The command that ends what ran out."""
    if due.kind == CommandWhich.expire:
        lease = {"leaseHigh": due.lease_high, "leaseLow": due.lease_low}
        return {**lease, "expire": {"generation": due.generation}}
    if due.kind == CommandWhich.noteRemaining:
        lease = {"leaseHigh": due.lease_high, "leaseLow": due.lease_low}
        return {**lease, "noteRemaining": {"generation": due.generation, "remainingMs": due.amount_ms}}
    if due.kind == CommandWhich.expireSession:
        return {"expireSession": {"session": due.session, "uses": due.generation}}
    assert due.kind == CommandWhich.endDelay
    return {"key": due.key, "endDelay": {"generation": due.generation}}
