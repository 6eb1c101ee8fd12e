"""The virtual network: loses, duplicates, delays and reorders, and can be cut in any direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastlock.testing.simulator.prng import Random
from fastlock.testing.simulator.time import MICROSECOND, MILLISECOND, Timeline


@dataclass(slots=True)
class Weather:
    """How the network treats messages at the moment."""

    loss: float = 0.0
    duplication: float = 0.0
    # The usual one-way delay, and how often and how far a message strays from it.
    delay_min_ns: int = 100 * MICROSECOND
    delay_max_ns: int = 500 * MICROSECOND
    stray: float = 0.0
    stray_max_ns: int = 50 * MILLISECOND


CALM = Weather()


class Network:
    """Carries messages between addresses; who listens decides what a message is."""

    def __init__(self, timeline: Timeline, random: Random, deliver: Callable[[int, int, Any], None]) -> None:
        self._timeline = timeline
        self._random = random
        self._deliver = deliver
        self._cut: set[tuple[int, int]] = set()
        # When each link was last mended, and the weather last became calm.
        self._mended_ns: dict[tuple[int, int], int] = {}
        self._calm_ns = 0
        self._weather = CALM
        self.sent = 0
        self.dropped = 0

    def send(self, source: int, target: int, message: Any) -> None:
        self.sent += 1
        if (source, target) in self._cut:
            self.dropped += 1
            return
        random = self._random
        weather = self._weather
        if weather.loss and random.chance(weather.loss):
            self.dropped += 1
            return
        self._timeline.after(self._delay_ns(weather), self._arrive, source, target, message)
        if weather.duplication and random.chance(weather.duplication):
            self._timeline.after(self._delay_ns(weather), self._arrive, source, target, message)

    def _delay_ns(self, weather: Weather) -> int:
        delay_ns = self._random.between(weather.delay_min_ns, weather.delay_max_ns)
        if weather.stray and self._random.chance(weather.stray):
            delay_ns += self._random.below(weather.stray_max_ns)
        return delay_ns

    def _arrive(self, source: int, target: int, message: Any) -> None:
        # A cut that came while the message was under way takes it too.
        if (source, target) in self._cut:
            self.dropped += 1
            return
        self._deliver(source, target, message)

    @property
    def weather(self) -> Weather:
        return self._weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self._weather = weather
        self._calm_ns = self._timeline.now_ns

    def heal(self) -> None:
        self._mended_ns.update(dict.fromkeys(self._cut, self._timeline.now_ns))
        self._cut.clear()

    def undisturbed(self, one: int, other: int, since_ns: int) -> bool:
        """Whether all messages between two addresses passed, and in time, since then."""
        if self._weather is not CALM or self._calm_ns > since_ns:
            return False
        links = ((one, other), (other, one))
        return all(link not in self._cut and self._mended_ns.get(link, 0) <= since_ns for link in links)

    def cut(self, source: int, target: int) -> None:
        self._cut.add((source, target))

    def split(self, one_side: Sequence[int], other_side: Sequence[int], one_way: bool = False) -> None:
        """Nothing passes between the sides; with `one_way` only the other side cannot be heard."""
        for left in one_side:
            for right in other_side:
                if not one_way:
                    self._cut.add((left, right))
                self._cut.add((right, left))

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut
