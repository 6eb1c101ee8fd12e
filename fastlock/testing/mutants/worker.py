"""Runs seeds one after the other, with whatever bug the environment switches on, and says how each ended.

One line of JSON a seed; the process ends with the first seed that broke a promise.
"""

from __future__ import annotations

import gc
import json
import resource
import sys

from fastlock.testing.simulate import run_seed

# A bug may well eat all memory there is; then it has been found. Tables reserve much more than they use.
ADDRESS_BYTES_MAX = 16 << 30

# A search that gave up has found nothing.
UNDECIDED = "linearizability undecided"


def main(first: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
    for seed in range(first, first + count):
        summary = run_seed(seed)
        caught = bool(summary.violation) and summary.checker != UNDECIDED
        result = {"seed": seed, "caught": caught, "checker": summary.checker, "violation": summary.violation}
        print(json.dumps(result), flush=True)
        if caught:
            return
        gc.collect()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
