"""Who belongs to a group: the configuration in force, those before it, and which change may follow."""

from collections.abc import Iterable
from typing import Final, final

from fastlock._core.raft_message import Member

@final
class Configuration:
    index: Final[int]
    members: Final[tuple[Member, ...]]
    def __init__(self, index: int, members: Iterable[Member]) -> None: ...

@final
class Configurations:
    current: Final[Configuration]
    def __init__(self, index: int, members: Iterable[Member]) -> None: ...

def node_of(member: Member) -> int: ...
