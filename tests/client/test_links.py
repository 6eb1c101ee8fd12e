"""Any endpoint is enough to find the cluster; broken, foreign and silent ones are told apart."""

from itertools import pairwise

from fastlock._core.codec import encode_reply
from fastlock.errors import Unavailable
from tests.client.fake_cluster import World

KEY = b"orders/42"


def connect(world):
    return world.start(world.core.connect(world.core.requests.deadline_ns()))


def test_one_endpoint_is_enough_to_find_every_node():
    world = World(endpoints=("node3:7400",))
    world.finish(connect(world))
    world.advance(10)
    assert set(world.core.cluster.up) == {1, 2, 3}


def test_endpoints_that_are_down_do_not_matter_while_one_is_up():
    world = World(endpoints=("node9:7400", "node1:7400", "node2:7400"))
    world.cluster.down = {1}
    world.finish(world.acquire(KEY))


def test_two_names_of_one_node_share_one_connection():
    world = World(endpoints=("node1:7400", "node1:0"))
    world.finish(connect(world))
    world.advance(5_000)
    assert sum(connection.node == 1 for connection in world.connections.values()) == 1


def test_when_nothing_can_be_reached_the_error_names_every_endpoint():
    world = World(endpoints=("node1:7400", "node2:7400"))
    world.cluster.down = {1, 2, 3}
    error = world.fail(connect(world))
    assert isinstance(error, Unavailable)
    assert "node1:7400: connection refused" in str(error)
    assert "node2:7400" in str(error)


def test_a_server_that_never_answers_is_an_error_within_the_deadline():
    world = World(timeout_ms=4_000)
    world.cluster.meddle = lambda node, request: "drop"
    start_ns = world.now_ns
    assert isinstance(world.fail(connect(world)), Unavailable)
    assert world.now_ns - start_ns == 4_000 * 1_000_000


def test_garbage_drops_the_connection_and_nothing_else():
    world = World()
    world.finish(world.acquire(KEY))
    for connection in world.connections.values():
        if connection.node == 1:
            connection.outgoing.append(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20)
    world.pump()
    assert 1 not in world.core.cluster.up
    world.finish(world.acquire(b"{%s}2" % KEY))
    world.advance(3_000)
    assert 1 in world.core.cluster.up


def test_a_huge_frame_drops_the_connection_before_anything_is_buffered():
    world = World()
    world.finish(connect(world))
    link = world.core.cluster.up[1]
    world.core.received(link, b"\x00\x00\x00\x00\xff\xff\xff\x7f" + b"\x00" * 64)
    assert 1 not in world.core.cluster.up


def test_frames_may_be_split_at_any_byte():
    world = World()
    world.finish(connect(world))
    flow = world.acquire(KEY)
    core = world.core
    while not flow.finished:
        core.run(world.now_ns)
        for link, data in core.take_output():
            world.connections[link].receive(data)
        for link, connection in world.connections.items():
            data, connection.outgoing = b"".join(connection.outgoing), []
            for position in range(len(data)):
                core.received(link, data[position : position + 1])
    assert flow.result.tokens


def test_a_node_of_another_cluster_is_refused():
    world = World(endpoints=("node1:7400", "node2:7400"))
    answered = world.cluster._answer

    def foreign(connection, request):
        answered(connection, request)
        if connection.node == 2 and "hello" in request:
            hello = {"version": 1, "clusterLow": 1, "node": 2, "code": "ok"}
            connection.outgoing[-1] = encode_reply({"id": 0, "code": "ok", "hello": hello})

    world.cluster._answer = foreign
    world.finish(connect(world))
    world.advance(100)
    assert set(world.core.cluster.up) == {1, 3}
    assert "another cluster" in world.core.cluster.links["node2:7400"].reason


def test_a_node_that_comes_back_is_dialled_with_growing_pauses():
    world = World()
    world.finish(connect(world))
    world.cluster.down = {2}
    world.advance(100)
    assert 2 not in world.core.cluster.up
    dials = []
    take_dials = world.core.take_dials
    world.core.take_dials = lambda: [dials.append(world.now_ns) or link for link in take_dials()]
    world.advance(30_000)
    pauses = [after - before for before, after in pairwise(dials)]
    assert len(dials) < 40
    assert max(pauses) <= 2_100 * 1_000_000
    world.cluster.down = set()
    world.advance(2_100)
    assert 2 in world.core.cluster.up


def test_nothing_is_sent_to_a_connection_whose_buffer_is_full():
    world = World(nodes=1)
    world.finish(world.acquire(KEY))
    link = world.core.cluster.up[1]
    world.core.congested(link)
    before = len(world.cluster.requests)
    flow = world.acquire(b"{%s}2" % KEY)
    world.pump()
    assert len(world.cluster.requests) == before
    world.core.drained(link)
    world.finish(flow)
