"""From the bytes of a connection to the queue of a group: commands never become Python objects."""

from typing import Any, Final, final

from fastlock._core.forwards import Forwards
from fastlock._core.proposals import Proposals
from fastlock._core.replies import Replies, Switchboard

GROUPS_MAX: Final[int]

@final
class Intake:
    """One node's requests, from every connection to every group."""

    forwards: Final[Forwards]
    commands: Final[int]  # taken or handed on, ever
    forwarded: Final[int]
    is_full: bool  # short of space: what adds state is refused
    def __init__(self, board: Switchboard, forwards: Forwards) -> None: ...
    def add_group(self, proposals: Proposals) -> None:
        """From here on the group is known."""

    def remove_group(self, group: int) -> None:
        """From here on the group is unknown."""

    def route(self, first: int, last: int, group: int | None = None) -> None:
        """The slots first … last are said to belong to a group, or to nobody known.

        A hint: the group decides at apply.
        """

    def group_of(self, slot: int) -> int | None:
        """The group a slot is said to belong to, or None."""

    def take(
        self,
        replies: Replies,
        data: bytes | bytearray | memoryview,
        now_ms: int,
        frame_bytes_max: int = 1048576,
    ) -> int:
        """Takes in the whole frames of concatenated Request frames; returns how many bytes are done with.

        A request that cannot be served is refused by its id. Bytes that do not even show an id raise, and the
        connection they came from must be closed; what came before them was taken.
        """

    def take_fed(self) -> list[int]:
        """The numbers of the groups that got commands since the last call."""

    def take_others(self) -> list[tuple[Replies, dict[str, Any]]]:
        """The requests that are no commands, as (replies, dict), since the last call."""
