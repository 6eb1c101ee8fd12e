"""One node on real sockets and disk: what clients are told, and what lasts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fastlock.cli.probe import Probe, fetch
from tests.node.cluster import Cluster, run

LEASE = {"leaseHigh": 1, "leaseLow": 2}


def acquire(key: bytes, request: int = 1, of: dict[str, int] = LEASE, **fields: Any) -> dict[str, Any]:
    told = {
        "request": request,
        "ttlMs": 60_000,
        "mode": "exclusive",
        "lease": "create",
        "owner": b"me",
        **fields,
    }
    return {"command": {"key": key, **of, "acquire": told}}


def test_a_lock_is_granted_released_and_granted_again_with_a_higher_token(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            async with await cluster.probe() as probe:
                first = await probe.ask(acquire(b"k"))
                assert first["code"] == "ok"
                assert first["leader"] == 1
                token = first["grant"]["token"]
                refused = await probe.ask(acquire(b"k", 2, lease="existing"))
                assert refused["code"] == "notAcquired"
                released = await probe.ask({"command": {"key": b"k", **LEASE, "release": {"token": token}}})
                assert released["code"] == "ok"
                again = await probe.ask(acquire(b"k", 3, lease="existing"))
                assert again["grant"]["token"] > token

    run(scenario())


def test_what_was_granted_is_there_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            async with await cluster.probe() as probe:
                token = (await probe.ask(acquire(b"k")))["grant"]["token"]
            await cluster.crash(1)
            await cluster.start()
            async with await cluster.probe() as probe:
                reply = await probe.ask({"getLock": {"key": b"k"}})
                assert reply["code"] == "ok"
                assert reply["lock"]["holders"][0]["revision"] == token
                assert reply["lock"]["holders"][0]["owner"] == b"me"

    run(scenario())


def test_reads_lists_and_the_cluster_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, partitions=3) as cluster:
            await cluster.start()
            async with await cluster.probe() as probe:
                keys = [b"list/%d" % number for number in range(40)]
                for number, key in enumerate(keys):
                    assert (await probe.ask(acquire(key, of={"leaseHigh": 9, "leaseLow": number})))[
                        "code"
                    ] == "ok"
                assert (await probe.ask({"getLock": {"key": b"list/none"}}))["code"] == "notFound"
                assert (await probe.ask({"getLock": {"key": b"list/1", "stale": True}}))["code"] == "ok"
                assert (await probe.ask({"getLock": {"key": b""}}))["code"] == "invalidArgument"
                assert sorted(await listed(probe, b"list/")) == sorted(keys)
                assert sorted(await listed(probe, b"list/3")) == sorted(k for k in keys if k[:6] == b"list/3")
                bad = await probe.ask({"list": {"prefix": b"", "cursor": b"zz"}})
                assert bad["code"] == "invalidArgument"
                told = (await probe.ask({"describe": None}))["cluster"]
                assert [group["id"] for group in told["groups"]] == [0, 1, 2, 3]
                assert all(group["leader"] == 1 for group in told["groups"])
                assert told["members"][0]["native"] == str(cluster.native())
                assert told["slotGroups"][0]["first"] == 0

    run(scenario())


async def listed(probe: Probe, prefix: bytes) -> list[bytes]:
    keys: list[bytes] = []
    cursor = b""
    while True:
        page = (await probe.ask({"list": {"prefix": prefix, "cursor": cursor, "limit": 7}}))["page"]
        keys += [lock["key"] for lock in page["locks"]]
        cursor = page["cursor"]
        if not cursor:
            return keys


def test_health_readiness_status_and_counters(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            http = cluster.nodes[1].addresses["http"]
            assert await fetch(http, "/healthz") == (200, b"ok\n")
            assert await fetch(http, "/readyz") == (200, b"ready\n")
            code, body = await fetch(http, "/metrics")
            assert code == 200
            assert b"fastlock_loop_turn_ns_max" in body
            assert (await fetch(http, "/status"))[0] == 200
            assert (await fetch(http, "/nothing"))[0] == 404

    run(scenario())


def test_a_waiter_is_told_twice_on_its_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            async with await cluster.probe() as holder, await cluster.probe() as waiter:
                token = (await holder.ask(acquire(b"k")))["grant"]["token"]
                queued = await waiter.ask(acquire(b"k", of={"leaseHigh": 5, "leaseLow": 5}, wait=True))
                assert queued["code"] == "queued"
                granting = asyncio.ensure_future(waiter.next_reply())
                await holder.ask({"command": {"key": b"k", **LEASE, "release": {"token": token}}})
                granted = await granting
                assert granted["code"] == "ok"
                assert granted["grant"]["token"] > token

    run(scenario())


def test_keep_alives_of_many_leases_are_answered_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, partitions=2) as cluster:
            await cluster.start()
            async with await cluster.probe() as probe:
                reply = await probe.ask(acquire(b"k"))
                known = {"group": reply["group"], **LEASE}
                unknown = {"group": reply["group"], "leaseHigh": 7, "leaseLow": 7}
                nowhere = {"group": 99, **LEASE}
                kept = (await probe.ask({"keepAlive": [known, unknown, nowhere]}))["keptAlive"]
                assert [one["code"] for one in kept] == ["ok", "leaseLost", "groupUnknown"]

    run(scenario())


def test_watches_stream_resume_and_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, partitions=2) as cluster:
            await cluster.start()
            async with await cluster.probe() as watcher, await cluster.probe() as probe:
                started = await watcher.ask({"watch": {"key": b"w/", "prefix": True}})
                assert started["events"]["events"] == []
                beginning = started["events"]["position"]
                seen = []
                for number in range(4):
                    await probe.ask(acquire(b"w/%d" % number, of={"leaseHigh": 3, "leaseLow": number}))
                while len(seen) < 4:
                    told = (await watcher.next_reply())["events"]
                    seen += [event["key"] for event in told["events"]]
                assert sorted(seen) == [b"w/0", b"w/1", b"w/2", b"w/3"]
                assert (await watcher.ask({"unwatch": {"watch": 2}}))["code"] == "ok"
                assert (await watcher.ask({"unwatch": {"watch": 2}}))["code"] == "notFound"
                await watcher.ask({"watch": {"key": b"w/", "prefix": True, "position": beginning}})
                again = [
                    event["key"]
                    for _ in range(2)
                    for event in (await watcher.next_reply())["events"]["events"]
                ]
                assert sorted(again) == sorted(seen)
                bad = await watcher.ask({"watch": {"key": b"w/", "position": b"abc"}})
                assert bad["code"] == "invalidArgument"

    run(scenario())
