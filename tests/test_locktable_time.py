"""Time in the lock table: what runs out does so on the leader, never too early and not never."""

from __future__ import annotations

from commands import CREATE, KIND_NAMES, NO_EXPIRY_TTL_MS, Command, encode_entry

from fastlock._core.locktable import LockTable

OK, LEASE_LOST, STALE_GENERATION = 0, 4, 17
TICK_MS = 8  # a timer may fire so much late


class Table:
    """A lock table that owns every slot, and the clock of its node."""

    def __init__(self) -> None:
        self.table = LockTable(1)
        self.index = 0
        self.now_ms = 1_000_000
        self.run(Command("ownSlots", first=0, last=16383))

    def run(self, *commands: Command) -> list[int]:
        """Applies one entry; returns the codes of its replies."""
        self.index += 1
        self.table.apply(encode_entry(commands, self.index), self.now_ms)
        return [one.code for one in self.table.outcomes_list() if one.position >= 0]

    def acquire(self, lease: int, key: bytes = b"k", ttl_ms: int = 10_000, **fields: int) -> None:
        assert self.run(
            Command("acquire", lease=lease, key=key, lease_use=CREATE, ttl_ms=ttl_ms, **fields)
        ) == [OK]

    def due(self, after_ms: int = 0) -> list[tuple[str, int]]:
        """What has run out so many milliseconds from now: (kind of command, generation)."""
        self.now_ms += after_ms
        found = []
        while True:
            found += self.table.due(self.now_ms, 100)
            if not self.table.timers_late(self.now_ms):
                return [(KIND_NAMES[one.kind], one.generation) for one in found]

    def generation(self, lease: int) -> int:
        return self.table.dump()["leases"][lease >> 64, lease & (1 << 64) - 1]["generation"]


def test_a_lease_runs_out_after_its_ttl_and_is_said_once() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7)
    assert table.due(9_999) == []
    assert table.due(1 + TICK_MS) == [("expire", table.generation(7))]
    assert table.due(60_000) == []


def test_a_keep_alive_gives_the_full_ttl_again() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7)
    table.now_ms += 9_000
    assert table.table.keep_alive(0, 7, table.now_ms).code == OK
    assert table.due(9_999) == []
    assert [kind for kind, _ in table.due(1 + TICK_MS)] == ["expire"]


def test_a_keep_alive_of_an_expiring_lease_waits_for_the_apply() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7)
    ((_, generation),) = table.due(20_000)
    assert table.table.keep_alive(0, 7, table.now_ms).expiring
    assert table.run(Command("expire", lease=7, generation=generation)) == [OK]
    assert table.table.keep_alive(0, 7, table.now_ms).code == LEASE_LOST


def test_an_expire_that_lost_its_race_arms_the_lease_again() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7)
    ((_, generation),) = table.due(20_000)
    assert table.run(
        Command("changeTtl", lease=7, ttl_ms=10_000), Command("expire", lease=7, generation=generation)
    ) == [OK, STALE_GENERATION]
    assert not table.table.keep_alive(0, 7, table.now_ms).expiring
    assert table.due(9_999) == []
    assert table.due(1 + TICK_MS) == [("expire", table.generation(7))]


def test_a_new_leader_gives_every_lease_its_full_ttl() -> None:
    table = Table()
    table.acquire(7)
    table.now_ms += 3_600_000
    table.table.lead(table.now_ms)
    assert table.due(9_999) == []
    assert [kind for kind, _ in table.due(1 + TICK_MS)] == ["expire"]


def test_a_new_lead_says_again_what_the_last_one_left_open() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7)
    assert len(table.due(20_000)) == 1
    table.table.follow()
    assert table.due(0) == []
    table.table.lead(table.now_ms)
    assert not table.table.keep_alive(0, 7, table.now_ms).expiring
    assert table.due(9_999) == []
    assert len(table.due(1 + TICK_MS)) == 1


def test_a_dropped_proposal_is_said_again_after_rearm() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7)
    first = table.due(20_000)
    table.table.rearm()
    assert table.due(0) == first


def test_a_gap_in_which_the_node_did_not_run_is_given_to_the_leases() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7)
    table.now_ms += 60_000
    table.table.skip_time(60_000)
    assert table.due(9_999) == []
    assert len(table.due(1 + TICK_MS)) == 1


def test_a_lease_without_expiry_never_runs_out() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7, ttl_ms=NO_EXPIRY_TTL_MS)
    assert table.due(1 << 45) == []


def test_what_remains_of_a_long_silent_lease_is_noted_and_counts_for_the_next_leader() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7, ttl_ms=1_000_000)
    table.now_ms += 500_000 + TICK_MS
    (due,) = table.table.due(table.now_ms, 10)
    assert KIND_NAMES[due.kind] == "noteRemaining"
    assert 500_000 - 2 * TICK_MS <= due.amount_ms <= 500_000
    note = Command("noteRemaining", lease=7, generation=due.generation, remaining_ms=due.amount_ms)
    assert table.run(note) == [OK]
    table.table.follow()
    table.table.lead(table.now_ms)
    said = []
    for _ in range(60):
        said += table.due(10_000)
    assert ("expire", table.generation(7)) in said


def test_a_keep_alive_says_that_less_than_the_ttl_is_logged() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7, ttl_ms=1_000_000)
    assert not table.table.keep_alive(0, 7, table.now_ms).noted
    table.run(Command("noteRemaining", lease=7, generation=table.generation(7), remaining_ms=5_000))
    assert table.table.keep_alive(0, 7, table.now_ms).noted
    table.run(Command("noteRemaining", lease=7, generation=table.generation(7), remaining_ms=0))
    assert not table.table.keep_alive(0, 7, table.now_ms).noted


def test_a_lease_kept_alive_every_third_of_its_ttl_is_never_noted() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7, ttl_ms=900_000)
    for _ in range(20):
        assert table.due(300_000) == []
        assert table.table.keep_alive(0, 7, table.now_ms).code == OK


def test_a_session_runs_out_a_lifetime_after_its_last_use() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.run(Command("openSession"))
    session = table.table.revision
    table.now_ms += 59_000
    table.run(Command("revoke", session=session, sequence=0, lease=7))
    assert table.due(59_999) == []
    assert table.due(1 + TICK_MS) == [("expireSession", 1)]
    assert table.run(Command("expireSession", target=session, uses=1)) == [OK]


def test_a_delay_ends_after_its_time() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    table.acquire(7, lock_delay_ms=700)
    assert table.run(Command("expire", lease=7, generation=table.generation(7))) == [OK]
    assert table.due(699) == []
    ((kind, generation),) = table.due(1 + TICK_MS)
    assert kind == "endDelay"
    assert table.run(Command("endDelay", key=b"k", generation=generation)) == [OK]
    assert table.table.lock_count == 0


def test_many_leases_due_at_once_leave_in_batches() -> None:
    table = Table()
    table.table.lead(table.now_ms)
    for begin in range(1, 3_001, 50):
        leases = range(begin, begin + 50)
        table.run(*(Command("createLease", lease=lease, ttl_ms=10_000) for lease in leases))
    table.now_ms += 20_000
    batches = []
    while batch := table.table.due(table.now_ms, 64):
        batches.append(len(batch))
    assert sum(batches) == 3_000
    assert max(batches) == 64
