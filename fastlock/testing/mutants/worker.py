"""Runs seeds one after the other, with whatever bug the environment switches on, and says how each ended.

One line of JSON a seed; the process ends with the first seed that broke a promise.
"""

from __future__ import annotations

import json
import resource
import signal
import sys

from fastlock.testing.simulate import run_seed

# A bug may well eat all memory there is; then it has been found. Many runs leave holes in the heap.
ADDRESS_BYTES_MAX = 16 << 30

# A seed takes less than a second; one that takes so much time of a processor hangs, and SIGPROF ends it.
SEED_SECONDS_MAX = 60

# A search that gave up has found nothing.
UNDECIDED = "linearizability undecided"


def main(first: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
    for seed in range(first, first + count):
        signal.setitimer(signal.ITIMER_PROF, SEED_SECONDS_MAX)
        summary = run_seed(seed)
        caught = bool(summary.violation) and summary.checker != UNDECIDED
        result = {"seed": seed, "caught": caught, "checker": summary.checker, "violation": summary.violation}
        print(json.dumps(result), flush=True)
        if caught:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
