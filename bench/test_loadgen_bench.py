"""The load generator is not the bottleneck: what it costs itself, against a server that answers at once.

Measured in processor time of the generator, which other work on the machine does not change much.
"""

import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import loadgen
import pytest

SECONDS = 1.0
SERVER_SECONDS = 60.0
SHAPES = {"64 clients": (64, 1, 15_000), "64 clients, 16 requests each under way": (64, 16, 2_000)}


@contextmanager
def echo_server() -> Iterator[tuple[str, int]]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    listener.setblocking(False)
    process = multiprocessing.get_context("fork").Process(
        target=loadgen.serve_echo, args=(listener.fileno(), SERVER_SECONDS)
    )
    process.start()
    try:
        yield listener.getsockname()
    finally:
        process.kill()
        process.join()
        listener.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_generator_costs_little_per_request(shape, benchmark, figures):
    clients, depth, bar_ns = SHAPES[shape]
    with echo_server() as address:
        sockets = [socket.create_connection(address) for _ in range(clients)]
        for each in sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)
        load = loadgen.Load([(each.fileno(), 1, 0, 16383, 1, 1, 1) for each in sockets], depth)
        start_s = time.process_time()
        benchmark.pedantic(load.run, args=(SECONDS,), rounds=1)
        cost_ns = (time.process_time() - start_s) * 1e9 / load.operations
        for each in sockets:
            each.close()
    figures.record(f"load generator, processor time per request, {shape}", cost_ns, "ns", bar_ns)
    figures.record(f"load generator against an echo, {shape}", load.operations / SECONDS, "/s", at_least=True)


def test_histogram_is_within_two_percent(benchmark):
    histogram = loadgen.Histogram()

    def fill():
        for amount in range(1, 100_001):
            histogram.count_one(amount * 1000)

    benchmark.pedantic(fill, rounds=1)
    for share in (0.5, 0.9, 0.99, 0.999):
        assert histogram.percentile_ns(share) == pytest.approx(share * 1e8, rel=0.02)
    assert histogram.percentile_ns(1.0) == histogram.highest_ns == 10**8
