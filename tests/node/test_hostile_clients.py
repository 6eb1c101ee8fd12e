"""Garbage, silence, floods and slow readers: that connection suffers, and nobody else."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
from pathlib import Path

import pytest

from fastlock._core.codec_client import decode_reply, encode_request
from fastlock._core.codec_peer import decode_peer_message
from fastlock.cli.probe import Probe, fetch
from fastlock.config import Address
from tests.node.cluster import Cluster, run, until
from tests.node.test_serve import acquire

HELLO = {"version": 1, "role": "client"}


async def say(address: Address, data: bytes, close: bool = False) -> bytes:
    """Everything the node answers until it closes the connection."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(data)
        if close:
            writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def still_serves(cluster: Cluster) -> None:
    async with await cluster.probe() as probe:
        assert await probe.try_lock(b"still") == ""


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "resp": b"*1\r\n$4\r\nPING\r\n" * 3,
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "huge": b"\x00\x00\x00\x00\xff\xff\xff\x7f" + bytes(64),
    "many segments": b"\xff\xff\x00\x00" + bytes(64),
    "noise": random.Random(1).randbytes(4096),
}


def test_garbage_on_the_native_port_gets_a_reason_and_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, settings=("server.hello_timeout_ms=100",)) as cluster:
            await cluster.start()
            for garbage in GARBAGE.values():
                reply = decode_reply(await say(cluster.native(), garbage))
                codes = ("malformedFrame", "frameTooLarge", "helloExpected", "unknownCommand")
                assert reply["code"] in codes
                assert reply["hello"]["message"]
                await still_serves(cluster)

    run(scenario())


def test_garbage_on_the_peer_port_gets_a_reason_and_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, settings=("links.hello_timeout_ms=100",)) as cluster:
            await cluster.start()
            for garbage in GARBAGE.values():
                answer = await say(cluster.nodes[1].addresses["peer"], garbage)
                assert answer == b"" or decode_peer_message(answer)["hello"]["code"] != "ok"
                await still_serves(cluster)

    run(scenario())


def test_garbage_on_the_http_port_gets_an_error_and_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            http = cluster.nodes[1].addresses["http"]
            for name in GARBAGE.keys() - {"http"}:
                assert (await say(http, GARBAGE[name], close=True))[:12] in (b"", b"HTTP/1.1 400")
                assert (await fetch(http, "/healthz"))[0] == 200

    run(scenario())


def test_hellos_that_do_not_fit_are_refused_with_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            for hello, code in (
                ({**HELLO, "version": 99}, "unsupportedVersion"),
                ({**HELLO, "clusterHigh": 1, "clusterLow": 2}, "wrongCluster"),
                ({**HELLO, "role": "member", "node": 2, "incarnation": 1}, "forbidden"),
            ):
                reply = decode_reply(await say(cluster.native(), encode_request({"id": 7, "hello": hello})))
                assert reply["code"] in (code, "wrongCluster" if code == "forbidden" else code)
                assert reply["id"] == 7
            command = encode_request({"id": 3, **acquire(b"k")})
            reply = decode_reply(await say(cluster.native(), command))
            assert (reply["code"], reply["id"]) == ("helloExpected", 3)
            await still_serves(cluster)

    run(scenario())


def test_garbage_after_the_hello_closes_after_what_was_asked_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            probe = await cluster.probe()
            assert (await probe.ask(acquire(b"k")))["code"] == "ok"
            probe._writer.write(b"\xff" * 32)
            assert (await probe.next_reply())["code"] in ("malformedFrame", "frameTooLarge")
            with pytest.raises(asyncio.IncompleteReadError):
                await probe.next_reply()
            await still_serves(cluster)

    run(scenario())


def test_a_frame_in_single_bytes_is_a_frame(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            probe = await cluster.probe()
            for byte in encode_request({"id": 5, **acquire(b"k")}):
                probe._writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await probe.next_reply())["code"] == "ok"

    run(scenario())


def test_who_says_no_hello_is_not_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, settings=("server.hello_timeout_ms=50",)) as cluster:
            await cluster.start()
            reply = decode_reply(await say(cluster.native(), b""))
            assert reply["code"] == "helloExpected"
            assert len(cluster.nodes[1].connections) == 0

    run(scenario())


def test_who_falls_silent_is_not_kept_where_that_is_wanted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, settings=("server.idle_timeout_ms=100",)) as cluster:
            await cluster.start()
            probe = await cluster.probe()
            assert (await probe.next_reply())["code"] == "deadlineExceeded"

    run(scenario())


def test_connections_beyond_the_limit_are_told_to_go_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, settings=("server.connections_max=3",)) as cluster:
            await cluster.start()
            probes = [await cluster.probe() for _ in range(3)]
            reply = decode_reply(await say(cluster.native(), b""))
            assert reply["code"] == "busy"
            assert await probes[0].try_lock(b"k") == ""
            probes.pop()._writer.close()
            await until(lambda: len(cluster.nodes[1].connections) == 2, "the closed one is gone")
            assert await (await cluster.probe()).try_lock(b"k") == ""

    run(scenario())


def test_a_client_that_does_not_read_is_slowed_and_then_dropped(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = ("server.reply_bytes_pause=65536", "server.reply_bytes_max=1000000")
        async with Cluster(tmp_path, settings=settings) as cluster:
            await cluster.start()
            async with await cluster.probe() as probe:
                put = {"token": 0, "value": bytes(4000)}
                assert (await probe.ask({"command": {"key": b"big", "putValue": put}}))["code"] == "ok"
            slow = await cluster.probe()
            slow._writer.transport.pause_reading()  # type: ignore[attr-defined]
            get = encode_request({"id": 9, "getLock": {"key": b"big"}})
            # As one read, all of it is taken in before the first answer shows that nobody reads.
            slow._writer.write(get * 20_000)
            await until(lambda: cluster.nodes[1].connections.overflows == 1, "dropped")
            await still_serves(cluster)

    run(scenario())


async def put_many(probe: Probe, count: int) -> None:
    """So many events on one key, asked for at once."""
    put = {"command": {"key": b"w", "putValue": {"token": 0, "value": bytes(4000)}}}
    probe._writer.write(encode_request({"id": 99, **put}) * count)
    for _ in range(count):
        assert (await probe.next_reply())["code"] == "ok"


def test_a_flood_of_reads_is_served_in_order_and_lets_others_through(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            flood, other = await cluster.probe(), await cluster.probe()
            total = 20_000
            get = [encode_request({"id": number, "getLock": {"key": b"k"}}) for number in range(total)]
            flood._writer.write(b"".join(get))
            reading = asyncio.ensure_future(_ids(flood, total))
            await until(lambda: cluster.nodes[1]._held, "the flood is held back")
            assert await other.try_lock(b"other") == ""
            assert not reading.done()
            assert await reading == list(range(total))

    run(scenario())


async def _ids(probe: Probe, count: int) -> list[int]:
    return [(await probe.next_reply())["id"] for _ in range(count)]


def test_a_slow_watcher_is_told_what_it_lost_and_slows_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = ("server.reply_bytes_pause=4096", "group.history_events_max=64")
        async with Cluster(tmp_path, partitions=1, settings=settings) as cluster:
            await cluster.start()
            watcher, probe = await cluster.probe(), await cluster.probe()
            await watcher.ask({"watch": {"key": b"w", "prefix": True}})
            (connection,) = [
                c for c in cluster.nodes[1].connections._open if c.name.endswith(str(_port(watcher)))
            ]
            watcher._writer.transport.pause_reading()  # type: ignore[attr-defined]
            while not connection.is_congested:
                await put_many(probe, 50)
            await put_many(probe, 200)
            watcher._writer.transport.resume_reading()  # type: ignore[attr-defined]
            seen: list[int] = []
            while (reply := await watcher.next_reply())["code"] == "ok":
                seen += [event["revision"] for event in reply["events"]["events"]]
            assert reply["code"] == "eventsLost"
            assert seen == list(range(seen[0], seen[0] + len(seen)))
            # It reads the state anew and goes on from where it was told.
            position = reply["events"]["position"]
            await watcher.ask({"watch": {"key": b"w", "prefix": True, "position": position}})
            told = await watcher.next_reply()
            assert told["events"]["events"][0]["revision"] > seen[-1]

    run(scenario())


def _port(probe: Probe) -> int:
    port: int = probe._writer.get_extra_info("sockname")[1]
    return port


def test_thousands_of_idle_connections_cost_little_and_harm_nobody(tmp_path: Path) -> None:
    # Both ends are in this process; where fewer descriptors are allowed, the node says so at its start.
    wanted = min(5_000, (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 1_000) // 2)

    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await cluster.start()
            hello = encode_request({"id": 1, "hello": HELLO})
            connections = cluster.nodes[1].connections
            sockets: list[socket.socket] = []
            before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                while len(sockets) < wanted:
                    for _ in range(min(500, wanted - len(sockets))):
                        sock = socket.create_connection(tuple(cluster.native()))
                        sock.sendall(hello)
                        sockets.append(sock)
                    await until(lambda: len(connections) == len(sockets), "accepted", 30)
                used_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
                assert used_kib / wanted < 16
                await still_serves(cluster)
            finally:
                for sock in sockets:
                    sock.close()
            await until(lambda: len(connections) <= 1, "all gone", 30)
            await still_serves(cluster)

    run(scenario())
