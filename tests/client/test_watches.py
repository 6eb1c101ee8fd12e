"""Watches, lists and elections: nothing is missed unseen, whatever happens to nodes and readers."""

import asyncio

import pytest

from fastlock.client.watching import UNREAD_ANSWERS_MAX, Watching
from fastlock.errors import EventsLost, LockLost, Unavailable
from tests.client.fake_cluster import World
from tests.client.test_async_client import claims, scenario, until


def put(world: World, key: bytes, value: bytes) -> None:
    world.finish(world.start(world.core.put(key, value, None, world.core.requests.deadline_ns())))


def watching(world: World, key: bytes, is_prefix: bool = False, position: bytes = b"") -> Watching:
    watch = world.core.watch(key, is_prefix, position)
    world.finish(world.start(watch.begin()))
    return watch


def values(world: World, watch: Watching, count: int) -> list[bytes]:
    seen = []
    while len(seen) < count:
        world.finish(world.start(watch.wait()))
        while watch.is_ready:
            seen.append(watch.take().value)
    return seen


def serving(world: World) -> int:
    return world.cluster.watches[-1].connection.node


def test_a_watch_goes_on_at_another_node_without_a_gap() -> None:
    world = World()
    watch = watching(world, b"x")
    put(world, b"x", b"1")
    assert values(world, watch, 1) == [b"1"]
    down = serving(world)
    world.cluster.down.add(down)
    for group, leader in world.cluster.leaders.items():
        if leader == down:
            world.cluster.leaders[group] = down % 3 + 1
    put(world, b"x", b"2")
    put(world, b"x", b"3")
    assert values(world, watch, 2) == [b"2", b"3"]
    assert serving(world) != down


def test_a_node_that_fell_silent_is_left() -> None:
    world = World(reattach_ms=500, attempt_timeout_ms=100)
    watch = watching(world, b"x")
    silent = serving(world)
    world.cluster.meddle = lambda node, request: "drop" if node == silent else "serve"
    world.cluster.watches.clear()
    waiting = world.start(watch.wait())
    world.advance(1_000)
    assert serving(world) != silent
    world.cluster.meddle = lambda node, request: "serve"
    put(world, b"x", b"1")
    world.finish(waiting)
    assert watch.take().value == b"1"


def test_a_quiet_watch_stays_where_it_is() -> None:
    world = World(reattach_ms=500)
    watch = watching(world, b"x")
    world.start(watch.wait())
    world.advance(5_000)
    assert sum("watch" in request for _, request in world.cluster.requests) == 1


def test_lost_events_are_told_once_and_the_watch_goes_on_after_them() -> None:
    world = World()
    watch = watching(world, b"p/", is_prefix=True)
    world.cluster.watches.clear()
    put(world, b"p/x", b"lost")
    world.cluster.forget_events()
    for connection in world.connections.values():
        connection.cut()
    assert isinstance(world.fail(world.start(watch.wait())), EventsLost)
    put(world, b"p/x", b"seen")
    assert values(world, watch, 1) == [b"seen"]


def test_a_slow_reader_catches_up_from_the_history() -> None:
    world = World()
    watch = watching(world, b"x")
    expected = [b"%d" % number for number in range(3 * UNREAD_ANSWERS_MAX)]
    for value in expected:
        put(world, b"x", value)
    assert world.cluster.watches == []
    assert values(world, watch, len(expected)) == expected


def test_a_position_resumes_after_what_was_taken() -> None:
    world = World()
    first = watching(world, b"", is_prefix=True)
    put(world, b"a", b"1")
    put(world, b"b", b"2")
    assert values(world, first, 2) == [b"1", b"2"]
    first.close()
    put(world, b"a", b"3")
    second = watching(world, b"", is_prefix=True, position=first.position)
    assert values(world, second, 1) == [b"3"]
    assert len(world.cluster.watches) == 1


def test_a_watch_without_any_node_says_so_in_time_and_can_go_on() -> None:
    world = World(timeout_ms=1_000)
    watch = watching(world, b"x")
    world.cluster.down |= {1, 2, 3}
    assert isinstance(world.fail(world.start(watch.wait()), within_ms=1_500), Unavailable)
    world.cluster.down.clear()
    put(world, b"x", b"1")
    assert values(world, watch, 1) == [b"1"]


@scenario
async def test_events_of_a_prefix_come_in_order(server, client):
    async with client.watch("orders/", prefix=True) as watch:
        async with client.lock("orders/1") as held:
            await client.put("orders/1", b"v", held)
        async with client.lock("else"):
            pass
        kinds = [(await anext(watch)).kind for _ in range(3)]
        assert kinds == ["acquired", "put", "released"]


@scenario
async def test_a_reader_that_is_cancelled_loses_nothing(server, client):
    async with client.watch("x") as watch:
        for number in range(20):
            reading = asyncio.create_task(anext(watch))
            await asyncio.sleep(0)
            putting = asyncio.create_task(client.put("x", b"%d" % number))
            for _ in range(number):
                await asyncio.sleep(0)
            reading.cancel()
            await putting
            (read,) = await asyncio.gather(reading, return_exceptions=True)
            event = await anext(watch) if isinstance(read, BaseException) else read
            assert event.value == b"%d" % number
    await until(lambda: not server.cluster.watches)
    await client.delete("x")


@scenario
async def test_all_locks_below_a_prefix_are_listed(server, client):
    keys = [f"job/{number}" for number in range(10)]
    for key in [*keys, "other"]:
        await client.put(key, b"v")
    assert sorted([info.key.decode() async for info in client.locks("job/")]) == keys
    assert len([info async for info in client.locks()]) == 11


@scenario
async def test_candidates_lead_one_after_the_other_and_observers_see_who(server, client):
    seen = []

    async def observe():
        async for leader in client.election("scheduler").observe():
            value = leader and leader.value
            seen.append(value)

    observing = asyncio.create_task(observe())
    await until(lambda: seen == [None])
    async with client.election("scheduler", value=b"a") as leadership:
        leadership.check()
        await until(lambda: seen == [None, b"a"])
    second = client.election("scheduler", value=b"b")
    await second.campaign()
    await second.proclaim(b"c")
    await until(lambda: seen[-1] == b"c")
    await second.resign()
    await until(lambda: seen == [None, b"a", None, b"b", b"c", None])
    with pytest.raises(LockLost):
        await second.proclaim(b"d")
    assert await client.get("scheduler") is None
    observing.cancel()
    await asyncio.gather(observing, return_exceptions=True)


@scenario
async def test_a_task_may_enter_its_reentrant_lock_again_and_others_may_not(server, client):
    async def other():
        return await client.lock("x", reentrant=True).try_acquire()

    lock = client.lock("x", reentrant=True)
    async with lock as outer:
        async with lock as again, client.lock("x", reentrant=True) as inner:
            assert outer.token == again.token == inner.token
            assert claims(server) == 1
            assert not await asyncio.create_task(other())
        assert claims(server) == 1
    assert claims(server) == 0
    with pytest.raises(LockLost):
        await lock.release()


@scenario
async def test_a_lost_reentrant_lock_is_not_entered_again(server, client):
    lost = []

    async def body():
        async with client.lock("x", ttl=0.3, reentrant=True, on_lost=lost.append) as held:
            await client.force_release("x")
            await until(lambda: lost == [held])

    with pytest.raises(LockLost):
        await body()
    assert len(lost) == 1
    async with client.lock("x", reentrant=True):
        pass


@scenario
async def test_a_lock_with_a_lease_of_its_own_ends_alone(server, client):
    lost = []
    async with client.lock("mine", own_lease=True), client.lock("ours", on_lost=lost.append):
        assert sum(table.lease_count for table in server.cluster.tables.values()) == 2
    assert lost == []
