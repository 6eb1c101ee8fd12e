"""All groups of one node, turn by turn: requests and messages in; writes, messages and replies out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from fastlock._core.forwards import Forwards
from fastlock._core.intake import Intake
from fastlock._core.raft_message import Member, Message
from fastlock._core.replies import Replies, Switchboard
from fastlock.node.group import Answer, Group, GroupSettings, Observer
from fastlock.storage import Storage

# A forwarded request without an answer for so long has an unknown outcome.
FORWARD_TIMEOUT_MS = 10_000


class Engine:
    """Deterministic and without I/O: the loop around it owns sockets, clock and disk.

    A turn of that loop: hand in what arrived (`receive`, `step`, `forwards.answer`), serve `take_requests`,
    call `turn`, then send what `take_messages`, `take_forwards`, `take_answers` and `take_replies` give.
    """

    def __init__(
        self,
        node: int,
        storage: Storage,
        settings: GroupSettings,
        groups: Sequence[int],
        members: Sequence[Member],
        seed: Callable[[], int],
        now_ms: int,
        observer: Observer,
    ) -> None:
        self.node = node
        self._storage = storage
        self.board = Switchboard()
        self.forwards = Forwards(node, self.board, seed())
        self.intake = Intake(self.board, self.forwards)
        self._messages: list[Message] = []
        # Groups that something came in for, and when the others want their next turn: (time, number). Of each
        # group one plan is the earliest; a later one that is found outdated is ignored.
        self._touched: list[Group] = []
        self._plans: list[tuple[int, int]] = []
        self._planned_ms: dict[int, int] = {}
        self.groups: dict[int, Group] = {}
        for number in groups:
            group = Group(
                number, node, storage, settings, members, seed(), now_ms, observer, self.board, self._touched
            )
            self.groups[number] = group
            self.intake.add_group(group.proposals)
            self._plan(group)

    # Connections and what they send.

    def connect(self, owner: Any = None, *, is_trusted: bool = False, is_forwarder: bool = False) -> Replies:
        """A connection whose requests are to be answered; `close` it when it is gone."""
        return self.board.open(owner, is_trusted=is_trusted, is_forwarder=is_forwarder)

    def receive(self, replies: Replies, data: bytes | bytearray | memoryview, now_ms: int) -> int:
        """Take in Request frames; how many bytes are done with. Raises if the connection must be closed."""
        return self.intake.take(replies, data, now_ms)

    def forward_lost(self, node: int) -> None:
        """The link to a node broke."""
        self.forwards.lost(node)

    def step(self, message: Message, now_ms: int) -> None:
        group = self.groups.get(message.group)
        if group is not None and message.target == self.node:
            group.step(message, now_ms)

    # The turn.

    def turn(self, now_ms: int) -> None:
        """Take in what the disk finished, then give a turn to every group that has something to do."""
        for number, write_seq in self._storage.take_durable():
            self.groups[number].durable(write_seq)
        for number, index in self._storage.take_checkpoints():
            self.groups[number].checkpoint_durable(index)
        if self.forwards.count:
            self.forwards.expire(max(now_ms - FORWARD_TIMEOUT_MS, 0))
        for number in self.intake.take_fed():
            self.groups[number].touch()
        self._wake(now_ms)
        for group in self._touched[:]:
            group.turn(now_ms)
            self._plan(group)
            if group.outbox:
                self._messages.extend(group.outbox)
                group.outbox = []
        self._touched.clear()

    def _wake(self, now_ms: int) -> None:
        """Touch the groups whose time has come."""
        plans = self._plans
        while plans and plans[0][0] <= now_ms:
            planned_ms, number = heappop(plans)
            if self._planned_ms.get(number) != planned_ms:
                continue
            del self._planned_ms[number]
            group = self.groups[number]
            if group.wake_ms <= now_ms:
                group.touch()
            else:
                self._plan(group)

    def _plan(self, group: Group) -> None:
        """A plan that comes too early is made again then: most turns only postpone what is planned."""
        planned_ms = self._planned_ms.get(group.number)
        if planned_ms is None or group.wake_ms < planned_ms:
            self._planned_ms[group.number] = group.wake_ms
            heappush(self._plans, (group.wake_ms, group.number))

    @property
    def wake_ms(self) -> int:
        """When `turn` must be called next, at the latest."""
        return self._plans[0][0]

    # What leaves.

    def take_messages(self) -> list[Message]:
        """What may leave this node, in order."""
        messages, self._messages = self._messages, []
        return messages

    def take_forwards(self) -> list[tuple[int, bytes]]:
        """(node, Request frames) for groups that other nodes lead."""
        return self.forwards.take()

    def take_replies(self) -> list[Replies]:
        """The connections that have something to be written to them."""
        return [replies for replies in self.board.take_touched() if replies.size]

    def take_requests(self) -> list[tuple[Replies, dict[str, Any]]]:
        """The requests that are no commands."""
        return self.intake.take_others()

    def take_answers(self) -> list[Answer]:
        answers: list[Answer] = []
        for group in self.groups.values():
            if group.answers:
                answers.extend(group.answers)
                group.answers = []
        return answers
