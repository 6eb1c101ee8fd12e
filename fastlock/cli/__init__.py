"""The `fastlock` command: parses arguments, shows results to people as tables and to machines as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from fastlock import __version__, demo
from fastlock.cli import serve, status, up

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    options = _parser().parse_args(arguments)
    code: int = options.run(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastlock", description="Distributed locks with leases, fencing tokens and fair queues."
    )
    parser.add_argument("--version", action="version", version=f"fastlock {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    serve.add_parser(commands)
    up.add_parser(commands)
    status.add_parser(commands)
    demonstration = commands.add_parser(
        "demo",
        help="show a lock's life on the compiled lock table",
        description="Runs a short scenario on the compiled lock table, without a cluster, step by step.",
    )
    demonstration.add_argument("--json", action="store_true", help="one JSON object per step and line")
    demonstration.set_defaults(run=lambda options: _demo(as_json=options.json))
    return parser


def _demo(as_json: bool) -> int:
    if as_json:
        for step in demo.play():
            print(json.dumps(asdict(step), ensure_ascii=False))
    elif sys.stdout.isatty():
        _show_table(list(demo.play()))
    else:
        for step in demo.play():
            remark = f" ({step.remark})" if step.remark else ""
            print(f"{step.at_ms / 1000:6.1f} s  {step.who:<8} {step.what}: {step.answer}{remark}")
    return 0


def _show_table(steps: Sequence[demo.Step]) -> None:
    table = Table(title="A lock's life, on the compiled lock table", title_justify="left", expand=False)
    table.add_column("time", justify="right", style="dim", no_wrap=True)
    table.add_column("who", style="cyan", no_wrap=True)
    table.add_column("what")
    table.add_column("answer")
    table.add_column("why it matters", style="dim")
    for step in steps:
        table.add_row(f"{step.at_ms / 1000:.1f} s", step.who, step.what, _coloured(step.answer), step.remark)
    Console().print(table)


def _coloured(answer: str) -> str:
    if answer.startswith(("granted", "accepted")):
        return f"[bold green]{answer}[/]"
    if answer.startswith(("leaseLost", "refused")):
        return f"[bold red]{answer}[/]"
    return answer
