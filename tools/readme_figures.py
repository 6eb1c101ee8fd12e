"""Puts the figures of the last `make bench` into README.md, between its two markers.

python tools/readme_figures.py
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "build" / "bench-figures.json"
README = ROOT / "README.md"
BEGIN = "<!-- bench:begin, written by tools/readme_figures.py -->\n"
END = "<!-- bench:end -->\n"


def number(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def table(run: dict[str, Any]) -> str:
    """The figures that have a bar, and the yardstick they can be compared by."""
    lines = [
        f"One run of `make bench` with CPython {run['python']} on {run['machine']}, {os.cpu_count()} cores.",
        "A yardstick is what a C loop in the same run takes to copy and hash one 24-byte key: compare by",
        "it, as machines differ.",
        "",
        "| what | measured | in yardsticks | wanted |",
        "|---|---|---|---|",
    ]
    for figure in run["figures"]:
        if figure["bar"] is None and "yardstick" not in figure["name"]:
            continue
        yardsticks = "" if figure["yardsticks"] is None else f"{figure['yardsticks']:.1f}"
        bar = ""
        if figure["bar"] is not None:
            at_least = figure.get("at_least", False)
            missed = figure["amount"] < figure["bar"] if at_least else figure["amount"] > figure["bar"]
            bar = f"{'≥' if at_least else '≤'} {number(figure['bar'])} {figure['unit']}"
            bar += ", **missed**" if missed else ""
        lines.append(
            f"| {figure['name']} | {number(figure['amount'])} {figure['unit']} | {yardsticks} | {bar} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    if not FIGURES.exists():
        print("no figures yet: run make bench first", file=sys.stderr)
        return 1
    readme = README.read_text()
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}{table(json.loads(FIGURES.read_text()))}{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
