"""The operator of a simulated cluster: gives groups their slots, and moves them while everybody uses them."""

from __future__ import annotations

from typing import Any

from fastlock.node.group import Answer
from fastlock.schema.enums import Code
from fastlock.testing.simulator.process import Steps
from fastlock.testing.simulator.session import Attempt
from fastlock.testing.simulator.workload import COMMAND_TIMEOUT_NS, Workload, lease_fields, owner_of
from fastlock.testing.violation import Violation

# Locks in one page of a slot move: few, so that moves take several.
EXPORT_ROWS_MAX = 2


class Operator(Workload):
    """A client that takes no locks."""

    def own_slots(self) -> Steps[None]:
        """Give every group the slots it starts with."""
        for group in self.world.group_numbers:
            for first, last in self.world.catalogue.ranges(group):
                command = {"ownSlots": {"first": first, "last": last}}
                answer = None
                while answer is None:
                    attempt = Attempt(group, command, 0)
                    answer = yield from self.run(attempt, COMMAND_TIMEOUT_NS)
                    self.close(attempt)

    def move_slots(self, first: int, last: int, source: int, destination: int) -> Steps[None]:
        """Export, import page by page, drop; each step is repeated until it is known to have happened."""
        world = self.world
        exported = {"exportSlots": {"first": first, "last": last, "toGroup": destination}}
        yield from self._insist(source, exported)
        cursor = b""
        while True:
            arguments = (first, last, cursor, EXPORT_ROWS_MAX)
            page = yield from self._insist_on_reading(source, arguments)
            records, cursor = page.content
            chunk = {"first": first, "last": last, "complete": not cursor}
            chunk |= {"tokenFloor": page.revision, "rows": records}
            yield from self._insist(destination, {"importSlots": chunk})
            if not cursor:
                break
        world.catalogue.move(first, last, destination)
        yield from self._insist(source, {"dropSlots": {"first": first, "last": last}})
        world.reach("slots moved")

    def _insist(self, group: int, command: dict[str, Any]) -> Steps[None]:
        """Run a command of the operator's until it is answered; anything but ok breaks a promise."""
        attempt = None
        while attempt is None:
            attempt = yield from self.prepare(group, command, COMMAND_TIMEOUT_NS)
        answer = None
        while answer is None:
            answer = yield from self.run(attempt, COMMAND_TIMEOUT_NS)
        self.close(attempt)
        if answer.code != Code.ok:
            name = next(name for name in command if name.endswith("Slots"))
            raise Violation(
                "slot move", f"group {group}: {name} got {Code(answer.code).name} {answer.detail}"
            )

    def _insist_on_reading(self, group: int, arguments: tuple[Any, ...]) -> Steps[Answer]:
        answer = None
        while answer is None:
            answer = yield from self.ask(group, "export", arguments, COMMAND_TIMEOUT_NS)
        return answer

    def forsake(self, group: int, ttl_ms: int) -> Steps[None]:
        """Create a lease and never think of it again."""
        lease = self._new_lease(group, bound=False)
        lease.ttl_ms = lease.ttl_max_ms = ttl_ms
        command = {**lease_fields(lease), "createLease": {"ttlMs": ttl_ms, "owner": owner_of(lease)}}
        attempt = yield from self.prepare(group, command, COMMAND_TIMEOUT_NS)
        if attempt is not None:
            yield from self.run(attempt, COMMAND_TIMEOUT_NS)
            self.close(attempt)
        lease.touched_ns = self.timeline.now_ns
