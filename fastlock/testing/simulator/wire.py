"""What simulated clients and nodes say to each other: requests, and answers that find their way back."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastlock.node.group import Answer


class Route(NamedTuple):
    """Where an answer goes; `via` is the node that forwarded the request, 0 if none did."""

    client: int
    request: int
    via: int


class Request(NamedTuple):
    """`kind` names the group's method that serves it."""

    route: Route
    group: int
    kind: str
    arguments: tuple[Any, ...]


class Response(NamedTuple):
    route: Route
    group: int
    answer: Answer
