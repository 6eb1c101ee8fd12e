"""All groups of one node, turn by turn: requests and messages in; writes, messages and replies out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        self.groups: dict[int, Group] = {
            number: Group(number, node, storage, settings, members, seed(), now_ms, observer, self.board)
            for number in groups
        }
        for group in self.groups.values():
            self.intake.add_group(group.proposals)

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
        """Take in what the disk finished, then give every group its turn."""
        for number, write_seq in self._storage.take_durable():
            self.groups[number].durable(write_seq)
        for number, index in self._storage.take_checkpoints():
            self.groups[number].checkpoint_durable(index)
        if self.forwards.count:
            self.forwards.expire(max(now_ms - FORWARD_TIMEOUT_MS, 0))
        for group in self.groups.values():
            group.turn(now_ms)

    @property
    def wake_ms(self) -> int:
        """When `turn` must be called next, at the latest."""
        return min(group.wake_ms for group in self.groups.values())

    # What leaves.

    def take_messages(self) -> list[Message]:
        """What may leave this node, in order."""
        messages: list[Message] = []
        for group in self.groups.values():
            if group.outbox:
                messages.extend(group.outbox)
                group.outbox = []
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
