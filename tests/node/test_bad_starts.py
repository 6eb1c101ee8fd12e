"""Starts that must not succeed: each ends with a message that says what to do, and touches nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastlock.errors import AddressInUse, ConfigError, DirectoryError, DirectoryInUse, FoundingRefused
from fastlock.storage import StorageDamaged
from tests.node.cluster import Cluster, free_ports, run, until

ROOT = Path(__file__).parents[2]


async def refusal(cluster: Cluster, node: int, **flags: str) -> str:
    made = cluster.make(node, **flags)
    with pytest.raises(
        (AddressInUse, ConfigError, DirectoryError, FoundingRefused, StorageDamaged)
    ) as refused:
        await made.start()
    return str(refused.value)


@pytest.mark.parametrize("listener", ["native", "peer", "http"])
def test_a_port_in_use_is_named(tmp_path: Path, listener: str) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            async with Cluster(tmp_path) as cluster:
                message = await refusal(cluster, 1, **{f"listen__{listener}": where})
        assert message.startswith(f"--{listener} {where}: ")
        assert "choose another address" in message

    run(scenario())


def test_a_directory_that_is_a_file_or_is_in_use_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "file").write_text("")
        async with Cluster(tmp_path) as cluster:
            assert "look at its owner" in await refusal(cluster, 1, node__data_dir=str(tmp_path / "file"))
            await cluster.start(1)
            directory = str(tmp_path / "node-1")
            with pytest.raises(DirectoryInUse, match=f"in use by process {os.getpid()}"):
                await Cluster(tmp_path).make(1, node__data_dir=directory).start()

    run(scenario())


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root reads everything, so it is not root for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_an_unreadable_directory_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "node-1").mkdir(mode=0)
        async with Cluster(tmp_path) as cluster:
            with without_privileges():
                assert "look at its owner" in await refusal(cluster, 1)

    run(scenario())


def test_a_member_that_lost_its_directory_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=3) as cluster:
            await cluster.start()
            await cluster.crash(3)
            shutil.rmtree(tmp_path / "node-3")
            message = await refusal(cluster, 3)
            assert "already takes part in cluster" in message
            assert "directory is empty" in message
            del cluster.nodes[3]
            await cluster.ready(1, 2)
            assert not (tmp_path / "node-3" / "log").exists()

    run(scenario())


def test_a_directory_of_another_cluster_is_not_let_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path / "a", nodes=2) as first, Cluster(tmp_path / "b", nodes=2) as second:
            await first.start()
            await second.start()
            await second.crash(2)
            # Node 2 of the second cluster comes to the first one's node 1.
            await first.crash(2)
            stranger = second.make(
                2, cluster__members=first.members.replace(f":{first.peers[2]}", f":{second.peers[2]}")
            )
            await stranger.start()
            await until(
                lambda: "does not let this node in: this is cluster" in caplog.text, "refused by cluster id"
            )
            assert first.nodes[1].links.linked == []
            assert stranger.links.linked == []

    run(scenario())


def test_a_second_process_with_a_members_number_is_not_let_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=2) as cluster, Cluster(tmp_path / "copy", nodes=2) as copy:
            await cluster.start()
            shutil.copytree(tmp_path / "node-2", tmp_path / "copy" / "node-2")
            copy.members = cluster.members.replace(f":{cluster.peers[2]}", f":{copy.peers[2]}")
            await copy.make(2).start()
            await until(lambda: "two processes have this number" in caplog.text, "the second one is refused")
            assert cluster.nodes[1].links.linked == [2]
            assert copy.nodes[2].links.linked == []

    run(scenario())


def test_founders_that_were_told_different_things_refuse(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=2) as cluster:
            one, two = cluster.make(1), cluster.make(2, cluster__partitions="5")
            both = await asyncio.gather(one.start(), two.start(), return_exceptions=True)
            assert any(isinstance(result, FoundingRefused) for result in both)
            assert any("same --partitions" in str(result) for result in both)

    run(scenario())


def test_an_empty_cluster_whose_members_do_not_come_gives_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path, nodes=2, settings=("cluster.founding_timeout_ms=200",)) as cluster:
            assert "did not find each other in time (not there: 2" in await refusal(cluster, 1)

    run(scenario())


def test_a_wildcard_address_needs_a_name_for_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            assert "--advertise" in await refusal(cluster, 1, listen__native="0.0.0.0:0")

    run(scenario())


def test_other_machines_reaching_the_node_is_warned_about_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            node = cluster.make(1, listen__native="0.0.0.0:0", listen__advertise="127.0.0.1")
            await node.start()
            assert "no transport security" in caplog.text
            assert node.addresses["native"].host == "127.0.0.1"

    run(scenario())


def serve(directory: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "fastlock", "serve", "--data-dir", str(directory), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_the_command_says_why_and_exits_with_a_code(tmp_path: Path) -> None:
    code, said = serve(tmp_path, "--set", "raft.heartbeat=5")
    assert code == 2
    assert said == (
        "fastlock: --set raft.heartbeat=5: there is no setting 'raft.heartbeat'; "
        "did you mean 'raft.heartbeat_ms'?\n"
    )
    peer, http = free_ports(2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        native = f"127.0.0.1:{taken.getsockname()[1]}"
        others = ("--peer", f"127.0.0.1:{peer}", "--http", f"127.0.0.1:{http}")
        code, said = serve(tmp_path, "--native", native, *others)
    assert code == 1
    assert said.startswith("fastlock: --native ")
