"""`fastlock status`: what a cluster looks like, asked of any one of its nodes."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from fastlock.cli.probe import Probe, ProbeFailed, fetch_status
from fastlock.config import Address
from fastlock.errors import FastlockError

TIMEOUT_SECONDS = 3.0
EXIT_OK = 0
EXIT_UNREACHABLE = 1
_MIB = 1 << 20


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "status",
        help="show a cluster's members, groups and how they are doing",
        description="Asks one node about its cluster, and then every member about itself.",
    )
    parser.add_argument(
        "--endpoint",
        default="127.0.0.1:7400",
        metavar="HOST:PORT",
        help="native address of any node (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        status = asyncio.run(cluster_status(Address.parse(options.endpoint), TIMEOUT_SECONDS))
    except ValueError as error:
        print(f"fastlock: --endpoint: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE
    except (OSError, TimeoutError, asyncio.IncompleteReadError, FastlockError, ProbeFailed) as error:
        why = str(error) or type(error).__name__
        print(
            f"fastlock: {options.endpoint} does not answer ({why}): is a node running there?", file=sys.stderr
        )
        return EXIT_UNREACHABLE
    if options.json:
        print(json.dumps(status))
    else:
        Console().print(tables(status))
    return EXIT_OK


async def cluster_status(endpoint: Address, timeout_s: float) -> dict[str, Any]:
    async with asyncio.timeout(timeout_s):
        async with await Probe.open(endpoint) as probe:
            reply = await probe.ask({"describe": None})
    cluster = reply["cluster"]
    members = cluster["members"]
    told = await asyncio.gather(*(_ask(member, timeout_s / 2) for member in members))
    return combine(cluster, dict(zip((member["id"] for member in members), told, strict=True)))


async def _ask(member: Mapping[str, Any], timeout_s: float) -> dict[str, Any] | None:
    if not member["http"]:
        return None
    return await fetch_status(Address.parse(member["http"]), timeout_s)


def combine(cluster: Mapping[str, Any], told: Mapping[int, Mapping[str, Any] | None]) -> dict[str, Any]:
    """One view from what the asked node says about the cluster and every member about itself."""
    return {
        "cluster": f"{cluster['clusterHigh'] << 64 | cluster['clusterLow']:032x}",
        "members": [_member(member, told.get(member["id"])) for member in cluster["members"]],
        "groups": [_group(group, told) for group in cluster["groups"]],
        "slots": [dict(slots) for slots in cluster["slotGroups"]],
    }


def _member(member: Mapping[str, Any], told: Mapping[str, Any] | None) -> dict[str, Any]:
    shown = {name: member[name] for name in ("id", "native", "peer", "http", "resp", "incarnation")}
    if told is None:
        return {**shown, "reachable": False, "ready": False}
    parts = (
        "ready",
        "not_ready",
        "linked",
        "loop",
        "connections",
        "reads",
        "commands",
        "storage",
        "software",
    )
    return {**shown, "reachable": True, **{name: told[name] for name in parts}}


def _group(group: Mapping[str, Any], told: Mapping[int, Mapping[str, Any] | None]) -> dict[str, Any]:
    views = {
        node: view
        for node, status in told.items()
        if status is not None
        for view in status["groups"]
        if view["id"] == group["id"]
    }
    leader = next((node for node, view in views.items() if view["leading"]), group["leader"])
    shown = {**group, "leader": leader}
    best = views.get(leader)
    if best is not None:
        shown.update({name: best[name] for name in ("term", "commit", "applied")})
        shown.update({name: best[name] for name in ("locks", "leases", "waiters", "sessions", "revision")})
        shown["lag"] = {node: peer["lag"] for node, peer in best["peers"].items()}
    return shown


def tables(status: Mapping[str, Any]) -> RenderableType:
    members = Table(title=f"cluster {status['cluster']}", title_justify="left")
    for name in ("node", "native", "peer", "http", "state", "connections", "longest turn", "disk"):
        members.add_column(name)
    for member in status["members"]:
        members.add_row(*_member_row(member))
    groups = Table(title="groups", title_justify="left")
    for name in ("group", "leader", "term", "commit", "applied", "locks", "leases", "waiters", "lag"):
        groups.add_column(name, justify="right")
    for group in status["groups"]:
        lag = ", ".join(f"{node}: {entries}" for node, entries in group.get("lag", {}).items())
        counts = (group.get(name, "?") for name in ("locks", "leases", "waiters"))
        leader = group["leader"] or "[bold red]none[/]"
        name = "0 (meta)" if group["id"] == 0 else group["id"]
        cells = (name, leader, group["term"], group["commit"], group["applied"], *counts, lag)
        groups.add_row(*map(str, cells))
    return Group(members, groups)


def _member_row(member: Mapping[str, Any]) -> tuple[str, ...]:
    where = (str(member["id"]), member["native"], member["peer"], member["http"])
    if not member["reachable"]:
        return (*where, "[bold red]does not answer[/]", "", "", "")
    state = "[green]ready[/]" if member["ready"] else f"[yellow]{member['not_ready']}[/]"
    used = (member["storage"].get("log_used_bytes", 0) + member["storage"].get("table_used_bytes", 0)) / _MIB
    turn_ms = member["loop"]["turn_ns_max"] / 1e6
    return (*where, state, str(member["connections"]["open"]), f"{turn_ms:.1f} ms", f"{used:.1f} MiB")
