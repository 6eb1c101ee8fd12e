"""The watchdog: turns are measured, and a loop that was held up is noticed."""

from __future__ import annotations

import asyncio
import time

from fastlock.node.watchdog import STEP_NS_MAX, Watchdog
from tests.node.cluster import run, until


def test_the_longest_turn_and_those_that_were_too_long_are_counted() -> None:
    watchdog = Watchdog()
    watchdog.note_turn(1_000, 900)
    watchdog.note_turn(STEP_NS_MAX + 1, 2_000)
    watchdog.note_turn(2 * STEP_NS_MAX, STEP_NS_MAX + 1)
    figures = watchdog.figures
    assert (figures.turns, figures.turn_ns_total) == (3, 3 * STEP_NS_MAX + 1_001)
    assert (figures.turn_ns_max, figures.turns_late) == (2 * STEP_NS_MAX, 2)
    assert (figures.turn_cpu_ns_max, figures.turns_cpu_late) == (STEP_NS_MAX + 1, 1)
    watchdog.reset()
    assert not any(watchdog.figures)


def test_whatever_holds_the_loop_up_is_noticed() -> None:
    held_up_s = 0.15

    async def scenario() -> None:
        watchdog = Watchdog()
        watchdog.start(asyncio.get_running_loop())
        busy_until = time.monotonic() + held_up_s
        while time.monotonic() < busy_until:
            pass
        await until(lambda: watchdog.figures.probe_late_ns_max > 0.05e9, "the delay is seen")
        watchdog.stop()

    run(scenario())
