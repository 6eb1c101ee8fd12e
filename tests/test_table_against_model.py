"""The compiled lock table does exactly what the slow model does, whatever it is asked.

FASTLOCK_LOCK_SEED=n replays the scenario of one seed. `make fuzz` runs scenarios of fresh seeds, on the
sanitizer build, for as long as it is told to.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import count
from random import Random
from time import monotonic

import pytest
from commands import ARGUMENT_IDS, CODE_NAMES, EVENT_NAMES, KIND_NAMES, SETTING_IDS, Command, own
from hypothesis import given, settings
from lockstep import Lockstep, Reached, Scenario, run_seed
from strategies import COMMAND_BYTES, KEY_SLOTS, LEASES, steps

REPLAYED = os.environ.get("FASTLOCK_LOCK_SEED")
FUZZ_SECONDS = float(os.environ.get("FASTLOCK_FUZZ_SECONDS", "0"))
FUZZ_SEED = int(os.environ.get("FASTLOCK_FUZZ_SEED", "1"))
FUZZ_SEEDS_APART = 1_000_000
SEEDS_PER_PART = 200
PART_TOTAL = 6
STEP_TOTAL = 60
EXAMPLE_TOTAL = 100

# The table's own codes come before those of the edge: see log.capnp.
TABLE_CODES = CODE_NAMES[: CODE_NAMES.index("malformedFrame")]
SETTINGS_THAT_LIMIT_NOTHING = {"unset", "ttlMsMax", "sessionLifetimeMs", "hashSeed"}
ARGUMENTS_NEVER_BLAMED = {"unset", "sequence"}


def expected_to_be_reached() -> set[tuple[str | int, ...]]:
    limits = SETTING_IDS.keys() - SETTINGS_THAT_LIMIT_NOTHING
    arguments = ARGUMENT_IDS.keys() - ARGUMENTS_NEVER_BLAMED
    return {
        *(("kind", kind) for kind in KIND_NAMES if kind != "unset"),
        *(("code", code) for code in TABLE_CODES),
        *(("event", kind) for kind in EVENT_NAMES if kind != "unset"),
        *(("wake", code) for code in ("ok", "leaseLost", "waitCancelled", "wrongSlot")),
        *(("limitExceeded", SETTING_IDS[name]) for name in limits),
        *(("invalidArgument", ARGUMENT_IDS[name]) for name in arguments),
    }


def run_seeds(seeds: Sequence[int]) -> Reached:
    reached: Reached = Counter()
    for seed in seeds:
        reached += run_seed(seed, STEP_TOTAL)
    return reached


@pytest.mark.parametrize("part", range(PART_TOTAL))
def test_seeded_scenarios_agree_and_reach_everything(part: int) -> None:
    if REPLAYED is not None:
        run_seeds([int(REPLAYED)])
        return
    reached = run_seeds(range(part * SEEDS_PER_PART, (part + 1) * SEEDS_PER_PART))
    assert expected_to_be_reached() - set(reached) == set()


@pytest.mark.fuzz
def test_fresh_seeds_agree() -> None:
    """One seed in `make test`; in `make fuzz` as many as there is time for."""
    end = monotonic() + FUZZ_SECONDS
    for seed in count(FUZZ_SEED * FUZZ_SEEDS_APART):
        run_seed(seed, STEP_TOTAL)
        if monotonic() >= end:
            break


@given(steps)
@settings(max_examples=EXAMPLE_TOTAL)
def test_drawn_scenarios_agree(drawn: list[tuple[int, list[bytes]]]) -> None:
    scenario = Scenario()
    try:
        for what, recipes in drawn:
            scenario.step(what, recipes)
        scenario.finish()
    except BaseException as error:
        error.add_note(scenario.explain())
        raise


@pytest.mark.parametrize("seed", range(40))
def test_slots_move_by_the_records_of_the_table_itself(seed: int) -> None:
    """Random histories, then every slot goes to the other group page by page; both go on from there."""
    random = Random(seed)
    scenario = Scenario()
    source, target = scenario.groups
    for _ in range(3):
        for _ in range(25):
            source.run_drawn([random.randbytes(COMMAND_BYTES) for _ in range(4)])
        for slot in KEY_SLOTS:
            move_slot(random, source, target, slot)
        source, target = target, source
    scenario.finish()


def move_slot(random: Random, source: Lockstep, target: Lockstep, slot: int) -> None:
    span = {"first": slot, "last": slot}
    source.run(Command("exportSlots", to_group=target.group, **span))
    if source.model.slots.get(slot) != "exported" or target.model.slots.get(slot, "foreign") != "foreign":
        return
    pages = list(source.export_pages(slot, random.choice((1, 2, 50))))
    floor = source.model.revision
    for number, page in enumerate(pages, start=1):
        complete = number == len(pages)
        rows = source.named(page)
        chunk = Command("importSlots", complete=complete, token_floor=floor, rows=rows, **span)
        assert target.run_import(chunk, page).code == "ok"
        if random.random() < 0.3:
            target.run(Command("revoke", lease=random.choice(LEASES)))
    source.run(Command("dropSlots", **span))


@pytest.mark.parametrize("seed", range(4))
def test_a_list_sees_what_stays_exactly_once(seed: int) -> None:
    """Pages are read while rows come and go by the hundred, the table grows, and another node takes over."""
    random = Random(seed)
    group = Lockstep()
    staying = {b"{t}stay%d" % i for i in range(60)}
    coming = [b"{t}come%d" % i for i in range(700)]
    group.run(*own(b"{t}"), *(Command("putValue", key=key) for key in staying))
    seen: list[bytes] = []
    cursor = b""
    while True:
        page, cursor = group.table.list(b"{t}", cursor, 7, -1, random.choice((1, 10, 1_000)))
        seen += [state["key"] for state in page if state["key"] in staying]
        if not cursor:
            break
        group.run(
            *(Command("putValue", key=key) for key in random.sample(coming, random.choice((0, 5, 300))))
        )
        group.run(
            *(Command("deleteValue", key=key) for key in random.sample(coming, random.choice((0, 5, 300))))
        )
        if random.random() < 0.1:
            group.finish_checkpoint(1_000, restart=True)
    assert sorted(seen) == sorted(staying)
