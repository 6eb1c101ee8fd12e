"""Decides whether what clients saw can be explained by one lock table acting one command at a time.

Keys that no command names together are independent objects, so every such family of keys is
searched on its own. The search is Wing and Gong's with Lowe's memory of visited configurations: a
configuration is (which operations have acted, the state they left), and one that failed once is
never tried again. An operation without an answer may act at any time after its call, or never.

What keeps the search short:
- Answers that carry a revision act in the order of their revisions, which is what revisions promise.
- What is gone stays gone: a step is not taken if it removes a claim, ends a lease or calls an acquire off
  that an outstanding answer or event needs (outstanding.py).
- The unseen end of a lease that only waits in line is put off until somebody could tell: until its claim is
  the first in its queue or would be served, a read counts the queue, or its owner is answered.
- What changes nothing acts as soon as it fits: for everything else all later moments are still possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fastlock.testing.lock_model import Happening, LockModel, Operation, State
from fastlock.testing.lock_step import step
from fastlock.testing.outstanding import Outstanding, Place

# Configurations a search may visit in one family before it gives up; honest histories need few.
CONFIGURATIONS_MAX = 200_000

_NEVER = 1 << 63
_ENDS = ("end", "end_importing", "end_delay")

# What tells nothing of a copy of the lease in another group.
_OF_A_LEASE = ("end", "lost", "alive")

# What changes nothing, whatever the answer.
_LOOKS = ("get", "granted", "lost", "alive", "copied")

# Answers to commands that changed something.
_CHANGES = ("ok", "queued", "entered")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the search found: `decided` is False where the budget ran out first."""

    linearizable: bool
    decided: bool
    configurations: int
    explanation: str = ""


def check(
    operations: Iterable[Operation],
    events: Iterable[Happening] | None = None,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> Verdict:
    """Judge a whole history; the first family that cannot be explained decides.

    `events` are all events on all keys, if somebody watched: then they have to be explained too.
    """
    visited = 0
    undecided = ""
    events_of: dict[bytes, list[Happening]] = {}
    for event in events or ():
        events_of.setdefault(event.key, []).append(event)
    for keys, family in _families(list(operations)):
        seen = None if events is None else [event for key in keys for event in events_of.get(key, ())]
        verdict = _search(LockModel(keys, family, seen), family, configurations_max)
        visited += verdict.configurations
        if verdict.decided and not verdict.linearizable:
            return replace(verdict, configurations=visited)
        if not verdict.decided:
            undecided = undecided or verdict.explanation
    return Verdict(not undecided, not undecided, visited, undecided)


def _families(operations: list[Operation]) -> list[tuple[tuple[bytes, ...], list[Operation]]]:
    """Group operations by the keys they link; the end of a lease goes wherever the lease was used.

    A key that moved to another group took a copy of the lease along, which lives its own life: there, only
    what names the key says anything about it.
    """
    parent: dict[bytes, bytes] = {}

    def root(key: bytes) -> bytes:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for operation in operations:
        for key in operation.keys:
            parent.setdefault(key, key)
            parent[root(key)] = root(operation.keys[0])

    keys_of: dict[bytes, list[bytes]] = {}
    for key in parent:
        keys_of.setdefault(root(key), []).append(key)
    members: dict[bytes, list[Operation]] = {name: [] for name in keys_of}
    families_of_lease: dict[int, dict[bytes, None]] = {}
    copied_there: dict[tuple[bytes, int], None] = {}
    for operation in operations:
        if operation.keys:
            name = root(operation.keys[0])
            members[name].append(operation)
            if operation.kind == "copied":
                copied_there[name, operation.lease] = None
            elif operation.lease:
                families_of_lease.setdefault(operation.lease, {})[name] = None
    for operation in operations:
        if not operation.keys:
            for name in families_of_lease.get(operation.lease, ()):
                if operation.kind not in _OF_A_LEASE or (name, operation.lease) not in copied_there:
                    members[name].append(operation)
    return [(tuple(sorted(keys_of[name])), members[name]) for name in keys_of]


# An operation and its position: among the answered ones, then the unanswered; -1 for the unseen end of a
# lease.
Choice = tuple[Operation, int]


class _Frame:
    """One configuration on the way to an explanation, and what was not tried there yet."""

    __slots__ = ("choices", "earliest_end", "last_resorts", "offered", "place", "state")

    def __init__(self, place: Place, state: State, earliest_end: int) -> None:
        self.place = place
        self.state = state
        # Nothing that was called later may act here.
        self.earliest_end = earliest_end
        # The most promising is the last.
        self.choices: list[Choice] = []
        # So many of the first are tried only when nothing else is left.
        self.last_resorts = 0
        # Leases whose unseen ends are or were among the choices.
        self.offered: set[int] = set()

    @property
    def progress(self) -> int:
        """How much is explained."""
        return self.place.first + self.place.beyond.bit_count() + self.state.events


class _Family:
    """The operations of one family of keys, and what each of them rests on."""

    def __init__(self, model: LockModel, operations: Sequence[Operation]) -> None:
        operations = _that_matter(operations, model.events is not None)
        self.model = model
        self.answered = sorted((o for o in operations if o.end is not None), key=lambda o: (o.call, o.end))
        self._unanswered: list[Operation] = []
        # Ends nobody was told of are found by lease.
        self._unseen_ends: dict[int, list[Operation]] = {}
        for operation in sorted((o for o in operations if o.end is None), key=lambda o: o.call):
            if operation.kind in _ENDS:
                self._unseen_ends.setdefault(model.lease_number[operation.lease], []).append(operation)
            else:
                self._unanswered.append(operation)
        self._promise = [_promise(o) for o in self.answered]
        self._rank = [_rank(o) for o in self.answered]
        positions: dict[int, list[int]] = {}
        for position, rank in enumerate(self._rank):
            positions.setdefault(rank, []).append(position)
        self._by_rank = sorted((rank, found) for rank, found in positions.items() if rank)
        self._outstanding = Outstanding(model, self.answered, self._unanswered)

    def frame(self, place: Place, state: State) -> _Frame:
        """A configuration with everything that may act next."""
        answered = self.answered
        found, earliest_end = self._ready(place)
        frame = _Frame(place, state, earliest_end)
        frame.choices = [
            (operation, len(answered) + number)
            for number, operation in enumerate(self._unanswered)
            if operation.call <= earliest_end and not place.used >> number & 1
        ]
        frame.last_resorts = len(frame.choices)
        for lease in self._leases_that_matter(state, found):
            self._offer_end(frame, lease)
        found.sort(key=self._promise.__getitem__, reverse=True)
        frame.choices.extend((answered[p], p) for p in found)
        return frame

    def _ready(self, place: Place) -> tuple[list[int], int]:
        """Answered operations that may act next, and the earliest answer missing."""
        answered = self.answered
        earliest_end = _NEVER
        found: list[int] = []
        for position in range(place.first, len(answered)):
            operation = answered[position]
            if operation.call > earliest_end:
                break
            if not place.has(position):
                found.append(position)
                assert operation.end is not None
                if operation.end < earliest_end:
                    earliest_end = operation.end
        lowest = self._lowest_rank(place)
        return [p for p in found if not self._rank[p] or self._rank[p] == lowest], earliest_end

    def _lowest_rank(self, place: Place) -> int:
        # Ranks act in order, so those that have acted come before the others.
        low, high = 0, len(self._by_rank)
        while low < high:
            middle = (low + high) // 2
            if all(place.has(p) for p in self._by_rank[middle][1]):
                low = middle + 1
            else:
                high = middle
        return self._by_rank[low][0] if low < len(self._by_rank) else 0

    def _leases_that_matter(self, state: State, found: list[int]) -> dict[int, None]:
        """Leases whose end can make a difference to what acts next."""
        model = self.model
        leases = model.foremost(state)
        for position in found:
            operation = self.answered[position]
            if operation.lease:
                leases[model.lease_number[operation.lease]] = None
            elif operation.kind == "get":
                queue = state.rows[model.position[operation.keys[0]]].queue
                if operation.waiters < len(queue):
                    leases |= dict.fromkeys(model.claims[claim].lease for claim in queue)
        return leases

    def _offer_end(self, frame: _Frame, lease: int) -> None:
        if lease not in frame.offered:
            frame.offered.add(lease)
            ends = self._unseen_ends.get(lease, ())
            place = min(frame.last_resorts, len(frame.choices))
            frame.choices[place:place] = [(end, -1) for end in ends if end.call <= frame.earliest_end]

    def served(self, frame: _Frame, claims: list[int]) -> None:
        """Claims would leave their queues with a grant: instead, their leases can have ended by then."""
        for claim in claims:
            self._offer_end(frame, self.model.claims[claim].lease)

    def acted(self, place: Place, position: int) -> Place:
        if position < 0:
            # The unseen end of a lease is not used up: its effect says whether it can come again.
            return place
        if position < len(self.answered):
            return place.with_answered(position)
        return Place(place.first, place.beyond, place.used | 1 << (position - len(self.answered)))

    def rules_out(self, before: State, after: State, place: Place) -> bool:
        return self._outstanding.rules_out(before, after, place)


def _search(model: LockModel, operations: Sequence[Operation], configurations_max: int) -> Verdict:
    """Depth first, with the most promising operation first, so that honest histories need few detours."""
    if model.contradictions:
        return Verdict(False, True, 0, f"told two tokens: {'; '.join(map(str, model.contradictions))}")
    family = _Family(model, operations)
    total = len(family.answered)
    events_total = 0 if model.events is None else len(model.events)
    visited: set[tuple[Place, State]] = set()
    frame = family.frame(Place(0, 0, 0), model.initial())
    trail: list[_Frame] = []
    best = frame
    while frame.place.first < total or frame.state.events < events_total:
        following = _next_frame(family, frame, visited)
        if following is None:
            if not trail:
                return Verdict(False, True, len(visited), _explain(family, best))
            frame = trail.pop()
            continue
        if len(visited) > configurations_max:
            return Verdict(False, False, len(visited), f"gave up: {_explain(family, best)}")
        trail.append(frame)
        frame = following
        if frame.progress > best.progress:
            best = frame
    return Verdict(True, True, len(visited))


def _next_frame(family: _Family, frame: _Frame, visited: set[tuple[Place, State]]) -> _Frame | None:
    """Let the most promising choice act that leads anywhere; None where there is none left."""
    state = frame.state
    while frame.choices:
        operation, position = frame.choices.pop()
        following, served = step(family.model, state, operation)
        if served:
            family.served(frame, served)
        if following is None:
            continue
        if following == state:
            if not 0 <= position < len(family.answered):
                continue
            # What changes nothing can act as soon as it fits: every other order allows that too.
            frame.choices.clear()
        place = family.acted(frame.place, position)
        if (place, following) in visited or family.rules_out(state, following, place):
            continue
        visited.add((place, following))
        return family.frame(place, following)
    return None


def _rank(operation: Operation) -> int:
    """Where its revision puts an operation among the others: what has seen a change comes after it."""
    return 2 * operation.revision + (operation.kind in ("get", "end")) if operation.revision else 0


def _promise(operation: Operation) -> tuple[int, int]:
    """In which order operations are tried, the least first.

    What changes nothing costs nothing where it fits; the end of a lease rules the most out, unless its place
    is known. And an answer usually comes soon after its command acted.
    """
    assert operation.end is not None
    if operation.kind in _ENDS:
        return 1 if operation.revision else 2, operation.end
    changes_nothing = operation.kind in _LOOKS or operation.code not in _CHANGES
    return 0 if changes_nothing else 1, operation.end


def _that_matter(family: Sequence[Operation], watched: bool) -> list[Operation]:
    """Without what can explain nothing: unanswered reads, and unanswered puts that nobody ever saw.

    Values are unique in a history.
    """
    read = {operation.value for operation in family if operation.kind == "get"}
    return [
        o
        for o in family
        if o.end is not None or (o.kind not in _LOOKS and (o.kind != "put" or watched or o.value in read))
    ]


def _explain(family: _Family, best: _Frame) -> str:
    """The longest explanation found, and the answers that no continuation of it can give."""
    answered, place = family.answered, best.place
    lines = [f"no order of commands explains what was seen on {b', '.join(family.model.keys)!r}"]
    lines.append(f"  state after the longest explanation: {family.model.describe(best.state)}")
    around = range(max(0, place.first - 12), min(len(answered), place.first + 20))
    lines.extend(f"  {'explained:  ' if place.has(p) else 'unexplained:'} {answered[p]}" for p in around)
    return "\n".join(lines)
