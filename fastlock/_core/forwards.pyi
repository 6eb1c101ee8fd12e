"""Requests for groups that another node leads: handed on once, in batches, and their answers handed back."""

from typing import Final, final

from fastlock._core.replies import Replies, Switchboard

@final
class Forwards:
    """One node's requests under way to the others."""

    node: Final[int]
    count: Final[int]
    def __init__(self, node: int, board: Switchboard, seed: int) -> None:
        """`seed` must differ from start to start."""

    def __len__(self) -> int: ...
    def put(
        self,
        replies: Replies,
        request_id: int,
        group: int,
        node: int,
        frame: bytes | bytearray | memoryview,
        now_ms: int,
    ) -> int:
        """Hands a Request frame that this node itself wrote on to `node`.

        Its answer comes into `replies` under `request_id`. Returns the code of a refusal, or ok.
        """

    def take(self) -> list[tuple[int, bytes]]:
        """(node, Request frames) of everything collected since the last call: one batch for each node."""

    def answer(self, node: int, data: bytes | bytearray | memoryview) -> None:
        """Takes in Reply frames from `node`, and hands each on under its own id to whoever asked.

        Raises for bytes that are not whole frames: the link they came from must be closed.
        """

    def lost(self, node: int) -> None:
        """The link to `node` broke: what was sent has an unknown outcome, what was not is unavailable."""

    def expire(self, before_ms: int) -> None:
        """Everything handed on before this time and never answered has an unknown outcome."""

    @property
    def oldest_ms(self) -> int:
        """When the oldest request that was not answered yet was handed on; 0 = there is none."""
