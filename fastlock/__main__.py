"""`python -m fastlock` is the `fastlock` command."""

import sys

from fastlock.cli import main

if __name__ == "__main__":
    sys.exit(main())
