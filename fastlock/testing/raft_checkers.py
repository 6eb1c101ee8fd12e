"""What must hold between the nodes of a group, seen from outside: Raft's own safety properties.

All of them are fed as things happen and remember across crashes: a node that forgets is compared
with what it said before.
"""

from __future__ import annotations

from typing import Protocol

from fastlock._core.raft_message import (
    APPEND_REPLY,
    HEARTBEAT_REPLY,
    KIND_NAMES,
    VOTE,
    VOTE_REPLY,
    Entry,
    Member,
    Message,
)
from fastlock.testing.violation import Violation

# Messages that others rely on after a crash of the sender.
PROMISES = frozenset((APPEND_REPLY, HEARTBEAT_REPLY, VOTE, VOTE_REPLY))

# Leaders of one group that may lose their place in one run although nothing was wrong with them.
UNSEATED_MAX = 3


class OneLeaderPerTerm:
    """Election safety: at most one node ever leads a group in a term."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[int, int], int] = {}
        self.changes = 0

    def elected(self, group: int, term: int, node: int) -> None:
        leader = self._leaders.setdefault((group, term), node)
        if leader != node:
            raise Violation("one leader per term", f"group {group} term {term}: nodes {leader} and {node}")
        self.changes += 1


class LogMatching:
    """Two logs with the same entry at an index are the same up to there.

    It is enough that an (index, term) names one content and one predecessor, for ever.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int, int], tuple[int, int]] = {}

    def appended(self, group: int, index: int, term: int, previous_term: int, digest: int, node: int) -> None:
        known = self._entries.setdefault((group, index, term), (previous_term, digest))
        if known != (previous_term, digest):
            message = f"group {group} index {index} term {term} on node {node}: follows term {previous_term}"
            raise Violation("log matching", f"{message}, elsewhere it follows term {known[0]} or differs")


class CommittedForEver:
    """What was committed stays: every node applies the same entries, every later leader has them all."""

    def __init__(self) -> None:
        self._committed: dict[int, list[tuple[int, int]]] = {}

    def committed_index(self, group: int) -> int:
        return len(self._committed.get(group, ()))

    def term_at(self, group: int, index: int) -> int:
        """The term of a committed entry; 0 before the first."""
        return self._committed[group][index - 1][0] if index else 0

    def applied(self, group: int, index: int, term: int, digest: int, node: int) -> bool:
        """Note that `node` applies an entry; True if it is the first one ever to do so."""
        entries = self._committed.setdefault(group, [])
        if index > len(entries) + 1:
            message = (
                f"group {group} node {node} applies index {index} before anybody applied {len(entries) + 1}"
            )
            raise Violation("committed for ever", message)
        if index == len(entries) + 1:
            entries.append((term, digest))
            return True
        if entries[index - 1] != (term, digest):
            message = f"group {group} index {index}: node {node} applies term {term}, others applied term"
            raise Violation("committed for ever", f"{message} {entries[index - 1][0]} or another content")
        return False

    def leads(self, group: int, term: int, node: int, last_index: int, term_at_committed: int) -> None:
        """Leader completeness; `term_at_committed` is the leader's own term at our committed index."""
        committed = self.committed_index(group)
        if last_index < committed or term_at_committed != self.term_at(group, committed):
            message = f"group {group} term {term}: node {node} leads with log end {last_index}"
            raise Violation(
                "leader completeness", f"{message}, index {committed} was committed and it lacks it"
            )


class SameState:
    """Replicas that applied the same entries have the same state, however they got there."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[int, int], tuple[int, str]] = {}
        self.compared = 0

    def observed(self, group: int, index: int, state_hash: int, where: str) -> None:
        known, elsewhere = self._hashes.setdefault((group, index), (state_hash, where))
        if known != state_hash:
            message = f"group {group} index {index}: {where} has {state_hash:016x}"
            raise Violation("same state", f"{message}, {elsewhere} has {known:016x}")
        self.compared += 1


class DurableFirst:
    """Nothing that a member promises leaves it before its disk has it: entries, term and vote."""

    def leaves(self, message: Message, term: int, disk: DurableState) -> None:
        """A message is about to leave a member that is in `term`; what is of earlier ones binds nobody."""
        kind = message.kind
        if message.term != term or kind not in PROMISES or message.reject:
            return
        durable_term, durable_vote = disk.hard_state(message.group)
        vote = message.source if kind == VOTE else message.target if kind == VOTE_REPLY else 0
        if durable_term != term or (vote and durable_vote != vote):
            what = f"its disk has term {durable_term} and a vote for {durable_vote}"
        elif kind == APPEND_REPLY and not disk.holds(message.group, message.index):
            what = f"index {message.index} is not on its disk"
        else:
            return
        name = KIND_NAMES[kind]
        raise Violation(
            "durable first", f"group {message.group}: node {message.source} sends {name}, but {what}"
        )


class DurableState(Protocol):
    """What a member's disk has for certain."""

    def hard_state(self, group: int) -> tuple[int, int]:
        """Term and vote."""

    def holds(self, group: int, index: int) -> bool:
        """Whether it has the entry that the member's log has there, and all before it."""


class OneChangeAtATime:
    """A leader changes members only once the change before, and something of its own term, is committed."""

    def logged(self, group: int, entry: Entry, previous: int, commit: int, commit_term: int) -> None:
        """A leader logs a configuration after the one at `previous`, having committed up to `commit`."""
        message = f"group {group} index {entry.index}: members change in term {entry.term}"
        if previous > commit:
            raise Violation("one change at a time", f"{message} while the change at {previous} is under way")
        if commit_term != entry.term:
            raise Violation(
                "one change at a time", f"{message}, but the last commit is of term {commit_term}"
            )


class SameMembers:
    """Replicas that applied the same entries agree on who belongs to the group, and as what."""

    def __init__(self) -> None:
        self._members: dict[tuple[int, int], tuple[tuple[Member, ...], int]] = {}

    def observed(self, group: int, index: int, members: tuple[Member, ...], node: int) -> None:
        known, elsewhere = self._members.setdefault((group, index), (members, node))
        if known != members:
            message = f"group {group} index {index}: node {node} has {members}"
            raise Violation("same members", f"{message}, node {elsewhere} has {known}")


class Disruption:
    """A leader that works, with a majority that can hear it, stays: whoever returns must not unseat it.

    Now and then one has to go all the same: a member that was cut off in the middle of a campaign comes
    back with a higher term. What must not happen is that it goes whenever somebody comes back.
    """

    def __init__(self) -> None:
        self.unseated: dict[int, list[str]] = {}

    def unseats(self, group: int, what: str) -> None:
        """A new leader took the place of one that nothing was wrong with."""
        self.unseated.setdefault(group, []).append(what)

    def verify(self) -> None:
        for group, cases in self.unseated.items():
            if len(cases) > UNSEATED_MAX:
                message = f"group {group}: {len(cases)} working leaders lost their place"
                raise Violation("disruption", f"{message}: {'; '.join(cases[:5])}")
