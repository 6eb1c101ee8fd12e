"""All groups of one node, turn by turn: storage acknowledgements in, one batch of writes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastlock._core.raft_message import Member, Message
from fastlock.node.group import Answer, Group, GroupSettings, Observer
from fastlock.storage import Storage


class Engine:
    """Deterministic and without I/O: the loop around it owns sockets, clock and disk."""

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
        self.groups: dict[int, Group] = {
            number: Group(number, node, storage, settings, members, seed(), now_ms, observer)
            for number in groups
        }

    def step(self, message: Message, now_ms: int) -> None:
        group = self.groups.get(message.group)
        if group is not None and message.target == self.node:
            group.step(message, now_ms)

    def turn(self, now_ms: int) -> None:
        """Take in what the disk finished, then give every group its turn."""
        for number, write_seq in self._storage.take_durable():
            self.groups[number].durable(write_seq)
        for number, index in self._storage.take_checkpoints():
            self.groups[number].checkpoint_durable(index)
        for group in self.groups.values():
            group.turn(now_ms)

    @property
    def wake_ms(self) -> int:
        """When `turn` must be called next, at the latest."""
        return min(group.wake_ms for group in self.groups.values())

    def take_messages(self) -> list[Message]:
        """What may leave this node, in order."""
        messages: list[Message] = []
        for group in self.groups.values():
            if group.outbox:
                messages.extend(group.outbox)
                group.outbox = []
        return messages

    def take_answers(self) -> list[Answer]:
        answers: list[Answer] = []
        for group in self.groups.values():
            if group.answers:
                answers.extend(group.answers)
                group.answers = []
        return answers
