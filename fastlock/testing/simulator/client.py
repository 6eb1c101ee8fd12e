"""A simulated client: sends, repeats through other nodes, gives up; never acts twice, never guesses.

What it decides to do is in workload.py; this is how it talks to the cluster.
"""

from __future__ import annotations

from typing import Any

from fastlock.node.group import Answer
from fastlock.schema.enums import Code
from fastlock.testing.simulator.network import Network
from fastlock.testing.simulator.prng import Random
from fastlock.testing.simulator.process import Owner, Process, Steps
from fastlock.testing.simulator.session import Attempt, Session
from fastlock.testing.simulator.time import MILLISECOND, Clock, Timeline
from fastlock.testing.simulator.wire import Request, Response, Route

ATTEMPT_TIMEOUT_NS = 600 * MILLISECOND
BACKOFF_MAX_NS = 60 * MILLISECOND

# What keys, owners and values of a command add to its size at most.
COMMAND_BYTES = 256

# Nothing is known about the outcome, or nothing happened: in both cases the command is repeated.
RETRYABLE = frozenset((Code.notLeader, Code.outcomeUnknown, Code.unavailable, Code.busy))


class Client(Owner):
    """One client process with a clock of its own."""

    def __init__(
        self,
        address: int,
        timeline: Timeline,
        network: Network,
        random: Random,
        clock: Clock,
        nodes: list[int],
    ) -> None:
        super().__init__()
        self.address = address
        self.timeline = timeline
        self.network = network
        self.random = random
        self.clock = clock
        self.nodes = nodes
        self.processes: list[Process] = []
        self._sessions: dict[int, Session] = {}
        self._leaders: dict[int, int] = {}
        self._calls: dict[int, Attempt] = {}
        self._requests = 0

    def spawn(self, steps: Steps[None]) -> Process:
        process = Process(self.timeline, self, steps)
        self.processes.append(process)
        return process

    def receive(self, response: Response) -> None:
        if self.dead:
            return
        attempt = self._calls.get(response.route.request)
        if attempt is None:
            return
        answer = response.answer
        if answer.leader:
            self._leaders[response.group] = answer.leader
        elif answer.code in RETRYABLE:
            self._leaders.pop(response.group, None)
        attempt.inbox.append(answer)
        if attempt.waiter is not None:
            attempt.waiter.deliver(True)

    def send(self, attempt: Attempt, kind: str, *arguments: Any, anywhere: bool = False) -> None:
        """Send once, to the leader if it is known and usually believed, else to any node."""
        random = self.random
        node = self._leaders.get(attempt.group, 0)
        if node == 0 or anywhere or random.chance(0.15):
            node = random.pick(self.nodes)
        self._requests += 1
        request = self._requests
        self._calls[request] = attempt
        attempt.requests.append(request)
        attempt.sent += 1
        if attempt.first_sent_ns == 0:
            attempt.first_sent_ns = self.clock.now_ns()
        route = Route(self.address, request, 0)
        self.network.send(self.address, node, Request(route, attempt.group, kind, arguments))

    def answer_to(self, attempt: Attempt, wait_ns: int) -> Steps[Answer | None]:
        """The next answer to any repetition of a command, or None when time is up."""
        deadline_ns = self.timeline.now_ns + wait_ns
        while not attempt.inbox:
            left_ns = deadline_ns - self.timeline.now_ns
            if left_ns <= 0:
                return None
            attempt.waiter = self.current
            yield left_ns
            attempt.waiter = None
        answer: Answer = attempt.inbox.pop(0)
        return answer

    def close(self, attempt: Attempt) -> None:
        for request in attempt.requests:
            self._calls.pop(request, None)
        if attempt.session is not None:
            attempt.session.finish(attempt.sequence)

    def sleep(self, wait_ns: int) -> Steps[None]:
        end_ns = self.timeline.now_ns + wait_ns
        while self.timeline.now_ns < end_ns:
            yield end_ns - self.timeline.now_ns

    def ask(self, group: int, kind: str, arguments: tuple[Any, ...], wait_ns: int) -> Steps[Answer | None]:
        """A read on any node, repeated until it is answered or time is up."""
        attempt = Attempt(group, {}, 0)
        deadline_ns = self.timeline.now_ns + wait_ns
        answer: Answer | None = None
        while self.timeline.now_ns < deadline_ns:
            self.send(attempt, kind, *arguments, anywhere=True)
            answer = yield from self.answer_to(attempt, ATTEMPT_TIMEOUT_NS)
            if answer is not None and answer.code not in RETRYABLE:
                break
            answer = None
            yield from self.sleep(self.random.below(BACKOFF_MAX_NS))
        self.close(attempt)
        return answer

    def prepare(self, group: int, command: dict[str, Any], wait_ns: int) -> Steps[Attempt | None]:
        """Give a command its place in a session, opening one where there is none."""
        session = self._sessions.get(group)
        if session is None:
            session = yield from self._open_session(group, wait_ns)
            if session is None:
                return None
        attempt = Attempt(group, command, COMMAND_BYTES)
        attempt.session = session
        attempt.sequence = session.begin()
        command["session"] = session.number
        command["sequence"] = attempt.sequence
        return attempt

    def forget_session(self, group: int) -> Session | None:
        return self._sessions.pop(group, None)

    def _open_session(self, group: int, wait_ns: int) -> Steps[Session | None]:
        attempt = Attempt(group, {"openSession": {"lifetimeMs": 0}}, 0)
        answer = yield from self.run(attempt, wait_ns)
        self.close(attempt)
        if answer is None or answer.code != Code.ok:
            return None
        return self._sessions.setdefault(group, Session(answer.revision))

    def run(self, attempt: Attempt, wait_ns: int) -> Steps[Answer | None]:
        """Send and repeat until the lock table has answered. None: the outcome is unknown."""
        deadline_ns = self.timeline.now_ns + wait_ns
        while True:
            left_ns = deadline_ns - self.timeline.now_ns
            if left_ns <= 0:
                return None
            self.submit(attempt)
            answer = yield from self.answer_to(attempt, min(left_ns, ATTEMPT_TIMEOUT_NS))
            if answer is None:
                self._leaders.pop(attempt.group, None)
                continue
            if answer.code == Code.sessionUnknown and attempt.session is not None:
                self._sessions.pop(attempt.group, None)
                return None
            if answer.code not in RETRYABLE:
                return answer
            yield from self.sleep(self.random.below(BACKOFF_MAX_NS))

    def submit(self, attempt: Attempt) -> None:
        command = attempt.command
        if attempt.session is not None:
            # It may rise between repetitions, but never above the command's own sequence.
            below = min(attempt.session.acknowledged_below(), attempt.sequence)
            command = {**command, "acknowledgedBelow": below}
        self.send(attempt, "submit", command)
