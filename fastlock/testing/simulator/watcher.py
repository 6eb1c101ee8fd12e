"""A simulated client that watches a key or all keys below a prefix, wherever it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlock.schema.enums import Code
from fastlock.testing.lock_checkers import WatchStream
from fastlock.testing.simulator.client import BACKOFF_MAX_NS
from fastlock.testing.simulator.process import Steps
from fastlock.testing.simulator.session import Attempt
from fastlock.testing.simulator.time import SECOND

if TYPE_CHECKING:
    from fastlock.testing.simulator.workload import Workload

SILENCE_NS = 2 * SECOND


def follow(client: Workload, group: int, key: bytes, is_prefix: bool) -> Steps[None]:
    """Watch on whichever node answers, resuming where it broke off."""
    stream: WatchStream | None = None
    while True:
        attempt = Attempt(group, {}, 0)
        position = stream.position if stream is not None else None
        client.send(attempt, "watch", key, is_prefix, position, anywhere=True)
        while True:
            answer = yield from client.answer_to(attempt, SILENCE_NS)
            if answer is None or answer.code == Code.unavailable:
                break
            if answer.code == Code.eventsLost:
                if stream is not None:
                    client.world.reach("events lost told")
                    stream.lost(answer.revision)
                break
            if stream is None:
                start = answer.revision if answer.content is None else answer.token
                stream = client.world.new_stream(client, group, key, is_prefix, start)
            if answer.content is None:
                continue
            if answer.token > stream.position:
                break
            if answer.token == stream.position:
                stream.arrived(client.world.plain_events(answer.content), answer.revision)
        client.close(attempt)
        yield from client.sleep(client.random.below(BACKOFF_MAX_NS))
