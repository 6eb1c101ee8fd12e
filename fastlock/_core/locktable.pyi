"""The replicated lock table of one group. docs/LOCKS.md is its contract."""

import builtins
from typing import Any, NamedTuple, TypeAlias, final

_Buffer: TypeAlias = bytes | bytearray | memoryview
# lease high, lease low, request, token or enqueue revision, LockMode, count, lockDelayMs, position, keyTotal
_ClaimTuple: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]

# The first byte of a row key. In this order a checkpoint is loaded: byte order of the row keys.
ROW_GROUP: int  # row key: the byte alone
ROW_SESSION: int  # + session id, 8 bytes big endian
ROW_LEASE: int  # + lease high, lease low, 8 bytes big endian each
ROW_LOCK: int  # + the key

class Outcome(NamedTuple):
    """A reply (position ≥ 0) or a wake (position −1). Fields LOCKS.md does not name are 0."""

    position: int
    code: int
    kind: int
    count: int  # type: ignore[assignment]
    detail: int
    waiter: int
    token: int
    revision: int

class Event(NamedTuple):
    revision: int
    kind: int
    mode: int
    token: int
    key: bytes
    owner: bytes
    value: bytes

class Due(NamedTuple):
    """One command the leader should propose: expire, noteRemaining, expireSession or endDelay.

    `kind` is the command's union discriminant; `generation` is `uses` for an expireSession, and
    `amount_ms` what remains for a noteRemaining.
    """

    kind: int
    lease_high: int
    lease_low: int
    session: int
    key: bytes
    generation: int
    amount_ms: int

class KeptAlive(NamedTuple):
    """What a keep-alive did.

    `expiring`: nothing, an expire is under way; answer only once its fate is known.
    `noted`: a remaining time is logged or about to be, which is all that the next leader would give
    it. Propose noteRemaining(0) and answer only once that is applied; if it is refused because the
    generation changed, ask again.
    """

    code: int
    lost_revision: int
    expiring: bool
    noted: bool
    generation: int

class Frozen(NamedTuple):
    """What a checkpoint covers, and how many rows and deletes it will write, the group row included."""

    index: int  # type: ignore[assignment]
    term: int
    revision: int
    rows: int

@final
class LockTable:
    def __init__(self, group: int, *, history_bytes_max: int = ..., history_events_max: int = ...) -> None:
        """An empty group that owns no slot, with default settings, at revision 0."""

    # Replicated state.

    @property
    def group(self) -> int: ...
    @property
    def revision(self) -> int: ...
    @property
    def applied_index(self) -> int: ...
    @property
    def applied_term(self) -> int: ...
    @property
    def lock_count(self) -> int:
        """Rows: locks held or waited for, values, delays."""
    @property
    def lease_count(self) -> int: ...
    @property
    def session_count(self) -> int: ...
    @property
    def claim_count(self) -> int:
        """Holders and waiters."""
    @property
    def waiter_count(self) -> int: ...
    @property
    def holder_count(self) -> int: ...
    @property
    def history_floor(self) -> int:
        """Events after this revision are in the history."""
    @property
    def membership(self) -> builtins.list[tuple[int, int, int, bytes]]:
        """(node, incarnation, MemberRole, address) of each member, as the last membership entry or row said.

        The table only keeps it, for the group row. Whoever starts a group without such an entry sets it.
        """
    @membership.setter
    def membership(self, members: builtins.list[tuple[int, int, int, bytes]]) -> None: ...
    def apply(self, entry: _Buffer, now_ms: int) -> int:
        """Applies one LogEntry frame and returns the number of outcomes.

        Raises with the state untouched if anything in the entry is malformed or unknown, names
        another group, or is not the next index. `now_ms` arms timers and decides nothing.
        """

    def outcomes_list(self) -> builtins.list[Outcome]:
        """What the last apply said, wakes and replies in their order. For tests and tools."""

    def get(self, key: _Buffer, now_ms: int = -1) -> dict[str, Any] | None:
        """The row as a client.capnp LockState, or None. Times are known while leading and now_ms ≥ 0."""

    def list(
        self, prefix: _Buffer, cursor: _Buffer, limit: int, now_ms: int = -1, scanned_max: int = ...
    ) -> tuple[builtins.list[dict[str, Any]], bytes]:
        """Rows in owned slots below `prefix`, and where to go on; an empty cursor ends it.

        A page may be empty before the end, because a call looks at no more than about `scanned_max`
        rows. A row that exists from the first call to the last is seen exactly once, on whichever
        node, restart or table size each page was read.
        """

    def slot_owner(self, key: _Buffer) -> tuple[int, int]:
        """SlotState of the key's slot and the group it was exported to (0 = none)."""

    def events(
        self, after_revision: int, key: _Buffer, is_prefix: bool, limit: int
    ) -> tuple[builtins.list[Event], int]:
        """Events after a revision on a key or below a prefix, and the revision to go on after.

        Raises errors.EventsLost if the history starts later. A page may be empty before the end,
        because a call looks at a bounded number of events: the end is where the revision stands still.
        """

    def dump(self) -> dict[str, Any]:
        """The whole replicated state, for comparison.

        {"revision": int,
         "settings": {name in log.capnp's SettingId: int, …} (all fifteen),
         "slots": [(first, last, SlotState, to_group), …], maximal runs, ascending, foreign left out,
                  to_group 0 unless exported,
         "sessions": {id: {"watermark": int, "uses": int, "lifetime_ms": int,
                           "answers": {sequence: (code, kind, count, detail, token, revision)}}},
         "leases": {(high, low): {"ttl_ms": int, "owner": bytes, "bound": bool, "generation": int,
                                  "remaining_ms": int, "lost_revision": int}},
         "rows": {key: {"mode": RowMode, "limit": int, "holders": [_ClaimTuple], "waiters": [_ClaimTuple],
                        "value": bytes | None, "value_revision": int, "value_token": int,
                        "delay_ms": int, "delay_generation": int}}}

        `limit` is 0 unless the row is a semaphore. Holders are in token order, waiters in queue order;
        a claim's count is at least 1; position and keyTotal are 0 for holders and single acquires.
        """

    def state_hash(self) -> int:
        """64 bits over everything dump() shows, whatever order the rows are kept in."""

    def check_invariants(self) -> None:
        """Walks everything; raises AssertionError saying what is wrong.

        Debug builds call it after each apply while the table is small.
        """

    def clear(self) -> None:
        """Back to an empty group at revision 0."""

    # Time: the leader's only. `now_ms` is one monotonic clock throughout.

    def lead(self, now_ms: int) -> None:
        """Leadership begins: every lease, session and delay has its full time from now on."""

    def follow(self) -> None:
        """Leadership ends: due() says nothing any more."""
    def rearm(self) -> None:
        """Lets due() say again what it said, for proposals that were dropped while leading."""
    def due(self, now_ms: int, max_count: int) -> builtins.list[Due]:
        """What has run out, each said once; a proposal refused at apply, or a new lead(), arms it anew.

        Looks at a bounded number of timers, so fewer than max_count does not mean that none is left:
        see timers_late().
        """

    def timers_late(self, now_ms: int) -> bool:
        """Whether another due() at the same time would find more."""

    def keep_alive(self, lease_high: int, lease_low: int, now_ms: int) -> KeptAlive: ...
    def skip_time(self, gap_ms: int) -> None:
        """Moves every deadline by a gap in which this node did not run."""

    # Checkpoints. A checkpoint: freeze(), frozen_rows() until it returns [], thaw().

    @property
    def dirty_count(self) -> int:
        """Rows and deletes the next checkpoint would write, without the group row."""
    @property
    def is_frozen(self) -> bool: ...
    def freeze(self) -> Frozen:
        """Fixes a checkpoint at the applied index."""

    def frozen_rows(self, max_rows: int) -> builtins.list[tuple[bytes, bytes | None]]:
        """The next rows of the frozen checkpoint: deletes (None) first, the group row last, then []."""

    def thaw(self) -> None:
        """Ends a checkpoint whose rows were all taken."""

    def load_row(self, row_key: _Buffer, row: _Buffer) -> None:
        """Takes a checkpoint's rows in the byte order of their keys, into a clear table."""

    def finish_load(self) -> None:
        """Checks that a load was complete; the table goes on after the checkpoint's index."""

    # Slots.

    def export_rows(
        self, first: int, last: int, cursor: _Buffer, max_rows: int
    ) -> tuple[builtins.list[bytes], bytes]:
        """Records for importSlots out of exported slots, and where to go on; an empty cursor ends it.

        Every page has the leases its locks need, before the lock that needs them; only locks count for
        `max_rows`. A page may be empty before the end. Rows do not change once exported, but leases do,
        so the floor of the import is this group's revision when the page was made, not the export's reply.
        """
