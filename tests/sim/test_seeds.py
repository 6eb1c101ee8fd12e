"""The default fault mix over the real core: 200 seeds, none of which may break a promise."""

import pytest

from fastlock.testing.simulate import did_too_little, replay_command, run_seed
from fastlock.testing.simulator.trace import LINES_SHOWN

SEEDS = 200
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_no_seed_breaks_a_promise(first):
    elections = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        summary = run_seed(seed)
        if summary.violation:
            trace = run_seed(seed, keep_trace=True).trace[-LINES_SHOWN:]
            lines = [*trace, f"{summary.checker}: {summary.violation}", f"replay: {replay_command(seed)}"]
            pytest.fail("\n".join(lines), pytrace=False)
        assert did_too_little(summary) == "", f"seed {seed}"
        elections += summary.elections
    assert elections >= SEEDS_PER_TEST
