"""The asyncio driver: tasks, cancellation and sockets around the core."""

import asyncio
import os
from collections.abc import Callable

import pytest
import uvloop

import fastlock
from fastlock.client.leases import HoldState
from fastlock.errors import ClientClosed, LockLost, NotAcquired, Unavailable, WaitTimeout
from tests.client.fake_server import FakeServer, fake_server

DEADLINE_S = 20


def scenario(steps):
    """Run a scenario with a server and a client in a loop of its own, and look for what it left behind."""

    @pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
    def test(run_loop):
        async def run():
            async with asyncio.timeout(DEADLINE_S), fake_server() as server:
                async with fastlock.AsyncClient(
                    server.cluster.address(1), name="tester", timeout=5
                ) as client:
                    await steps(server, client)
                await until(lambda: claims(server) == 0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run_loop(run())

    test.__name__ = steps.__name__
    test.__doc__ = steps.__doc__
    return test


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def claims(server: FakeServer) -> int:
    return sum(table.claim_count for table in server.cluster.tables.values())


@scenario
async def test_a_lock_is_held_in_the_body_and_released_after_it(server, client):
    async with client.lock("orders/42") as held:
        assert claims(server) == 1
        info = await client.get("orders/42")
        assert info.holders[0].token == held.token
        assert info.holders[0].owner == "tester"
        assert 28 < held.remaining < 30
        held.check()
    assert claims(server) == 0
    assert held.state is HoldState.RELEASED
    with pytest.raises(LockLost):
        held.check()


@scenario
async def test_try_acquire_says_whether_it_got_the_lock(server, client):
    first, second = client.lock("report"), client.lock("report")
    assert await first.try_acquire()
    assert not await second.try_acquire()
    with pytest.raises(NotAcquired):
        await client.lock("report", wait=0).acquire()
    await first.release()
    assert await second.try_acquire()
    await second.release()


@scenario
async def test_tasks_take_turns(server, client):
    inside = 0
    tokens = []

    async def work():
        nonlocal inside
        for _ in range(10):
            async with client.lock("hot", wait=10) as held:
                inside += 1
                assert inside == 1
                tokens.append(held.token)
                await asyncio.sleep(0)
                inside -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 200


@scenario
async def test_a_wait_that_takes_too_long_is_a_timeout(server, client):
    async with client.lock("x"):
        with pytest.raises(WaitTimeout):
            await client.lock("x", wait=0.05).acquire()


@scenario
async def test_a_cancelled_wait_leaves_no_waiter(server, client):
    async with client.lock("x"):
        waits = [asyncio.create_task(client.lock("x").acquire()) for _ in range(10)]
        await until(lambda: claims(server) == 11)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await until(lambda: claims(server) == 1)


@scenario
async def test_a_cancellation_that_crosses_the_grant_leaves_no_orphan(server, client):
    # The cancellation comes after n turns of the loop: before, with and after the grant.
    for turns in range(30):
        task = asyncio.create_task(client.lock("x", own_lease=True).acquire())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(done[0], BaseException):
            client.core.locking.give_back(done[0].holds[0])
            client.driver.turn_soon()
        await until(lambda: claims(server) == 0)


@scenario
async def test_the_body_is_cancelled_when_the_lock_is_taken_away(server, client):
    async def body():
        async with client.lock("x", ttl=0.3):
            await client.force_release("x", reason="test")
            await asyncio.Event().wait()

    with pytest.raises(LockLost):
        await body()


@scenario
async def test_the_body_is_cancelled_when_the_lease_cannot_be_confirmed_in_time(server, client):
    async def body():
        async with client.lock("x", ttl=0.2):
            server.cluster.meddle = lambda node, request: "drop" if "keepAlive" in request else "serve"
            await asyncio.Event().wait()

    with pytest.raises(LockLost):
        await body()
    server.cluster.meddle = lambda node, request: "serve"


@scenario
async def test_a_cancellation_from_outside_is_not_taken_for_a_loss(server, client):
    entered = asyncio.Event()

    async def body():
        async with client.lock("x"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert claims(server) == 0


@scenario
async def test_readers_semaphores_and_several_keys(server, client):
    async with client.read_lock("cfg"), client.read_lock("cfg"):
        assert not await client.write_lock("cfg").try_acquire()
    async with client.semaphore("gpu", limit=4, count=3):
        assert not await client.semaphore("gpu", limit=4, count=2).try_acquire()
    async with client.lock_all("{acct}:1", "{acct}:2", "elsewhere") as held:
        assert set(held.tokens) == {b"{acct}:1", b"{acct}:2", b"elsewhere"}
        assert claims(server) == 3


@scenario
async def test_a_value_is_written_under_the_lock(server, client):
    async with client.lock("x") as held:
        await client.put("x", b"first", held)
    assert (await client.get("x")).value == b"first"
    await client.put("x", b"second")
    await client.delete("x")
    assert await client.get("x") is None


@scenario
async def test_broken_connections_are_not_seen_by_callers(server, client):
    async def work(number):
        for i in range(20):
            async with client.lock(f"{number % 5}", wait=10):
                if i % 5 == number % 5:
                    for served in server.served:
                        served.connection.cut()
                    server.flush()

    await asyncio.gather(*(work(number) for number in range(10)))


@scenario
async def test_a_client_that_is_closed_or_of_another_process_says_so(server, client):
    other = fastlock.AsyncClient(server.cluster.address(2))
    with pytest.raises(ClientClosed, match="not connected"):
        await other.get("x")
    await other.connect()
    await other.lock("held to the end").acquire()
    await other.close()
    with pytest.raises(ClientClosed, match="create another"):
        await other.get("x")
    client.driver.process = os.getpid() + 1
    with pytest.raises(ClientClosed, match="fork"):
        await client.get("x")
    client.driver.process = os.getpid()


@scenario
async def test_closing_ends_what_others_wait_for(server, client):
    other = fastlock.AsyncClient(server.cluster.address(2))
    await other.connect()
    async with client.lock("x"):
        waiting = asyncio.create_task(other.lock("x").acquire())
        await until(lambda: claims(server) == 2)
        await other.close()
        with pytest.raises(ClientClosed):
            await waiting


def test_no_endpoint_that_answers_is_an_error_that_names_them_all():
    async def run():
        client = fastlock.AsyncClient("127.0.0.1:1,127.0.0.1:2", timeout=0.3)
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            await client.connect()
        await client.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("endpoints", "addresses"),
    [
        ("a:1, b:2", ["a:1", "b:2"]),
        ("a", ["a:7400"]),
        (["a:1", "[::1]:5"], ["a:1", "[::1]:5"]),
    ],
)
def test_endpoints_are_read_as_people_write_them(endpoints, addresses):
    assert fastlock.AsyncClient(endpoints).endpoints == addresses
