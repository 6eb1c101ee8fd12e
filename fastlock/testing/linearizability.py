"""Decides whether what clients saw can be explained by one lock table acting one command at a time.

Keys that no command names together are independent objects, so every such family of keys is
searched on its own. The search is Wing and Gong's with Lowe's memory of visited configurations: a
configuration is (which operations have acted, the state they left), and one that failed once is
never tried again. An operation without an answer may act at any time after its call, or never.
Answers that carry a revision act in the order of their revisions, which is what revisions promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fastlock.testing.lock_model import LockModel, Operation, State

# Configurations a search may visit in one family before it gives up; honest histories need few.
CONFIGURATIONS_MAX = 200_000

_NEVER = 1 << 63
_ENDS = ("end", "end_delay")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the search found: `decided` is False where the budget ran out first."""

    linearizable: bool
    decided: bool
    configurations: int
    explanation: str = ""


def check(operations: Iterable[Operation], configurations_max: int = CONFIGURATIONS_MAX) -> Verdict:
    """Judge a whole history; the first family that cannot be explained decides."""
    visited = 0
    undecided = ""
    for keys, family in _families(list(operations)):
        verdict = _search(LockModel(keys, family), family, configurations_max)
        visited += verdict.configurations
        if verdict.decided and not verdict.linearizable:
            return replace(verdict, configurations=visited)
        if not verdict.decided:
            undecided = undecided or verdict.explanation
    return Verdict(not undecided, not undecided, visited, undecided)


def _families(operations: list[Operation]) -> list[tuple[tuple[bytes, ...], list[Operation]]]:
    """Group operations by the keys they link; the end of a lease goes wherever the lease was used.

    An end that names keys is the lease's end there alone: a key that moved to another group took a
    copy of the lease along, which lives its own life.
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
    ends_there: dict[tuple[bytes, int], None] = {}
    for operation in operations:
        if operation.keys:
            name = root(operation.keys[0])
            members[name].append(operation)
            if operation.kind == "end":
                ends_there[name, operation.lease] = None
            elif operation.lease:
                families_of_lease.setdefault(operation.lease, {})[name] = None
    for operation in operations:
        if not operation.keys:
            for name in families_of_lease.get(operation.lease, ()):
                if operation.kind != "end" or (name, operation.lease) not in ends_there:
                    members[name].append(operation)
    return [(tuple(sorted(keys_of[name])), members[name]) for name in keys_of]


def _search(model: LockModel, family: Sequence[Operation], configurations_max: int) -> Verdict:
    """Depth first: what must act before what may act, so that honest histories need no detours."""
    family = _that_matter(family)
    must = sorted((o for o in family if o.end is not None), key=lambda o: (o.call, o.end))
    may = sorted((o for o in family if o.end is None), key=lambda o: o.call)
    operations = must + may
    must_count = len(must)
    numbered = sorted((o.revision, p) for p, o in enumerate(must) if o.revision)
    # The unseen end of a lease matters only while the lease has a claim: those are found by lease.
    free: list[int] = []
    by_lease: dict[int, list[int]] = {}
    for position in range(must_count, len(operations)):
        if operations[position].kind in _ENDS:
            by_lease.setdefault(operations[position].lease, []).append(position)
        else:
            free.append(position)

    # Answers that can only come while a claim is there: until they did, its lease has not ended.
    needs: dict[tuple[int, int], int] = {}
    for position, operation in enumerate(must):
        if _needs_claim(operation):
            claim = (operation.lease, operation.request)
            needs[claim] = needs.get(claim, 0) | 1 << position

    # And the end must come before an acquire that was told of it, claim or not.
    told_lost = [
        o.lease for o in must if o.kind == "acquire" and o.code == "leaseLost" and o.lease in by_lease
    ]

    def candidates_of(state: State, first: int, done: int) -> list[int]:
        """What may act next: all that was called before the earliest answer missing. Last is tried first."""
        found, earliest_end = _required(operations, must_count, first, done)
        lowest = next((revision for revision, p in numbered if not done >> p & 1), _NEVER)
        found = [p for p in found if operations[p].revision <= lowest]
        optional = list(free)
        for lease in [*model.involved(state), *told_lost]:
            if not any(needs[claim] & ~done for claim in model.claims(state, lease) if claim in needs):
                optional.extend(by_lease.get(lease, ()))
        return [p for p in optional if operations[p].call <= earliest_end and not done >> p & 1] + found

    all_must = (1 << must_count) - 1

    state: State = model.initial()
    done = 0
    first = 0
    visited: set[tuple[int, State]] = set()
    # One frame per operation that acted: where to return to, and which candidates are left there.
    trail: list[tuple[int, State, int, list[int]]] = []
    best = 0
    best_state = state
    candidates = candidates_of(state, first, done)
    while True:
        if done & all_must == all_must:
            return Verdict(True, True, len(visited))
        while candidates:
            position = candidates.pop()
            operation = operations[position]
            following = model.step(state, operation)
            if following is None:
                continue
            if following == state:
                if position >= must_count:
                    continue
                # What changes nothing can act as soon as it fits: every other order allows that too.
                candidates = []
            # The unseen end of a lease is not used up: its effect says whether it can come again.
            acted = done if operation.kind in _ENDS and position >= must_count else done | 1 << position
            if (acted, following) in visited:
                continue
            visited.add((acted, following))
            if len(visited) > configurations_max:
                return Verdict(False, False, len(visited), f"gave up on keys {model.keys}")
            trail.append((done, state, first, candidates))
            done, state = acted, following
            while first < must_count and done >> first & 1:
                first += 1
            if first > best:
                best, best_state = first, state
            candidates = candidates_of(state, first, done)
            break
        else:
            if not trail:
                return Verdict(
                    False, True, len(visited), _explain(model, operations, must_count, best, best_state)
                )
            done, state, first, candidates = trail.pop()


def _that_matter(family: Sequence[Operation]) -> list[Operation]:
    """Without what can explain nothing: unanswered reads, and unanswered puts of a value nobody ever read.

    Values are unique in a history.
    """
    seen = {operation.value for operation in family if operation.kind == "get"}
    unseen = ("get", "granted")
    return [
        o
        for o in family
        if o.end is not None or (o.kind not in unseen and (o.kind != "put" or o.value in seen))
    ]


def _needs_claim(operation: Operation) -> bool:
    if operation.kind == "granted":
        return True
    if operation.kind in ("release", "put", "delete"):
        return operation.code == "ok" and operation.token > 0
    return operation.kind == "cancel" and operation.revision > 0


def _required(
    operations: Sequence[Operation], must_count: int, first: int, done: int
) -> tuple[list[int], int]:
    """Answered operations that may act next, the earliest call last, and the earliest answer among them."""
    earliest_end = _NEVER
    found: list[int] = []
    for position in range(first, must_count):
        operation = operations[position]
        if operation.call > earliest_end:
            break
        if not done >> position & 1:
            found.append(position)
            assert operation.end is not None
            earliest_end = min(earliest_end, operation.end)
    found.reverse()
    return found, earliest_end


def _explain(
    model: LockModel, operations: Sequence[Operation], must_count: int, best: int, state: State
) -> str:
    """The longest explanation found, and the answer that no continuation of it can give."""
    lines = [f"no order of commands explains what was seen on {b', '.join(model.keys)!r}"]
    lines.append(f"  state after the longest explained prefix: {model.describe(state)}")
    lines.extend(f"  explained:   {o}" for o in operations[max(0, best - 12) : best])
    lines.extend(f"  unexplained: {o}" for o in operations[best : min(must_count, best + 12)])
    return "\n".join(lines)
