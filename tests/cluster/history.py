"""What clients of a real cluster did and were told, as the linearizability checker wants it."""

import time
from dataclasses import replace
from typing import Any

from fastlock import AsyncClient
from fastlock.client.messages import Answer
from fastlock.client.requests import Command
from fastlock.schema.enums import Code
from fastlock.testing.lock_model import Operation

# Answers after which a command certainly did not act and never will.
REFUSED_UNSEEN = (Code.wrongSlot, Code.limitExceeded)
RECORDED = ("acquire", "acquireAll", "release", "cancelWait", "putValue", "deleteValue", "revoke")


class History:
    """Every command of every client that was attached, and every answer of the lock table to it."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._of_command: dict[Command, int] = {}
        # (key, token) → (lease, request) of the grant.
        self.grants: dict[tuple[bytes, int], tuple[int, int]] = {}
        self.surprises: list[str] = []

    def attach(self, client: AsyncClient) -> None:
        client.core.requests.observe = self.observe

    def observe(self, command: Command, answer: Answer | None) -> None:
        fields = command.content()
        kind = next((name for name in RECORDED if name in fields), None)
        if kind is None:
            return
        if answer is None:
            self._operations.append(self._begin(kind, fields))
            self._of_command[command] = len(self._operations) - 1
        elif command in self._of_command:
            self._answered(kind, self._of_command[command], answer)

    def _begin(self, kind: str, fields: dict[str, Any]) -> Operation:
        content = fields[kind] or {}
        lease = fields.get("leaseHigh", 0) << 64 | fields.get("leaseLow", 0)
        keys = tuple(content.get("keys") or ([fields["key"]] if fields.get("key") else ()))
        token = content.get("token", 0)
        begun = Operation("", time.monotonic_ns(), None, keys, lease, content.get("request", 0), token=token)
        if kind in ("acquire", "acquireAll"):
            return replace(
                begun,
                kind="acquire",
                mode=content["mode"],
                limit=content.get("limit") or 1,
                count=content.get("count") or 1,
                wait=content["wait"],
                bound=content["lease"] == "createBound",
            )
        if kind == "cancelWait":
            return replace(begun, kind="cancel")
        if kind == "revoke":
            return replace(begun, kind="end", code="revoked")
        if token:
            begun = replace(begun, request=self.grants[keys[0], token][1])
        if kind == "putValue":
            return replace(begun, kind="put", value=content["value"])
        return replace(begun, kind="delete" if kind == "deleteValue" else "release")

    def _answered(self, kind: str, place: int, answer: Answer) -> None:
        operation = self._operations[place]
        code = answer.code
        if code in REFUSED_UNSEEN:
            self._operations[place] = replace(operation, kind="")
        elif operation.kind == "acquire":
            self._acquire_answered(place, operation, answer)
        elif kind == "revoke":
            if code is Code.ok:
                self._finish(place, "revoked")
        elif code is Code.leaseLost and not operation.bound and operation.kind != "release":
            self.surprises.append(f"a lease that cannot have expired is lost: {operation}")
        else:
            self._finish(place, code.name, revision=answer.revision)

    def _acquire_answered(self, place: int, operation: Operation, answer: Answer) -> None:
        code = answer.code
        if code is Code.ok:
            token = answer.content["token"]
            for offset, key in enumerate(operation.keys):
                self._note_grant(key, token + offset, operation)
            if operation.end is None:
                if operation.wait:
                    self._finish(place, "entered", token=token)
                else:
                    self._finish(place, "ok", token=token, revision=token)
            if operation.wait:
                seen = Operation(
                    "granted", operation.call, time.monotonic_ns(), operation.keys, operation.lease
                )
                self._operations.append(replace(seen, request=operation.request, code="ok", token=token))
        elif code is Code.queued:
            if operation.end is None:
                self._finish(place, "queued", revision=answer.revision)
        elif code is Code.notAcquired:
            self._finish(place, "notAcquired")
        else:
            self.surprises.append(f"an acquire was told {code.name}: {operation}")

    def _note_grant(self, key: bytes, token: int, operation: Operation) -> None:
        claim = (operation.lease, operation.request)
        known = self.grants.setdefault((key, token), claim)
        if known != claim:
            self.surprises.append(f"token {token} of {key!r} was given to {known} and to {claim}")

    def _finish(self, place: int, code: str, **fields: Any) -> None:
        operation = self._operations[place]
        self._operations[place] = replace(operation, end=time.monotonic_ns(), code=code, **fields)

    # Reads are recorded by whoever makes them.

    def begin_get(self, key: bytes) -> int:
        self._operations.append(Operation("get", time.monotonic_ns(), None, (key,)))
        return len(self._operations) - 1

    def finish_get(self, place: int, tokens: list[int], waiters: int, value: bytes | None) -> None:
        # Who the holders are is looked up at the end: their grants may be told later than this.
        holders = tuple((0, token) for token in tokens)
        self._finish(place, "ok", holders=holders, waiters=waiters, value=value)

    def operations(self) -> list[Operation]:
        """Everything, in the form the checker takes."""
        found = []
        for operation in self._operations:
            if operation.kind == "get" and operation.holders:
                claims = [self.grants.get((operation.keys[0], token)) for _, token in operation.holders]
                if any(claim is None for claim in claims):
                    # Seen held by somebody who was never told: there is nobody to compare it with.
                    continue
                holders = tuple(
                    (claim[0], token)
                    for claim, (_, token) in zip(claims, operation.holders, strict=True)
                    if claim is not None
                )
                operation = replace(operation, holders=holders)
            if operation.kind:
                found.append(operation)
        return found
