"""Acquires many locks in a fresh process: prints resident bytes per lock and the longest apply in ms."""

import os
import sys

import loops
from traffic import GROUP, Traffic, new_lane

from fastlock._core.codec_commands import encode_entry
from fastlock._core.locktable import LockTable

ROUND_COMMANDS = 6400


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(lock_count: int) -> None:
    lane = new_lane()
    # What frames and entries cost is allocated, used and free again before the count begins.
    entry = encode_entry(GROUP, 1, 1, [{"ownSlots": {"first": 0, "last": 16383}}])
    warm, table = LockTable(GROUP), LockTable(GROUP)
    for each in (warm, table):
        each.apply(entry, 0)
    loops.lead(*lane, warm, Traffic(seed=0, revision=0).acquires(2 * ROUND_COMMANDS), 0)
    del warm
    traffic = Traffic(seed=1, revision=table.revision)
    before_bytes = resident_bytes()
    longest_ns = 0
    while table.lock_count < lock_count:
        requests = traffic.acquires(min(ROUND_COMMANDS, lock_count - table.lock_count))
        traffic.held.clear()
        longest_ns = max(longest_ns, loops.lead_longest(*lane, table, requests, 0))
        del requests
    assert table.lock_count == table.lease_count == lock_count
    print((resident_bytes() - before_bytes) / lock_count, longest_ns / 1e6)


main(int(sys.argv[1]))
