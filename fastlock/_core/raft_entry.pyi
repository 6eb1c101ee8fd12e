"""Log entries as LogEntry frames: what Raft itself writes into the log, and what it reads from frames."""

from fastlock._core.raft_message import Entry, Member

def noop_entry(group: int, term: int, index: int) -> Entry: ...
def membership_entry(group: int, term: int, index: int, members: tuple[Member, ...]) -> Entry: ...
def read_entry(data: bytes) -> Entry:
    """The entry whose frame this is; ValueError if it is none."""

def read_members(data: bytes) -> tuple[Member, ...]:
    """The configuration in a membership entry's frame; ValueError if it has none."""
