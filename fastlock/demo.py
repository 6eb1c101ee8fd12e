"""A lock's life on the compiled lock table, told step by step: what `fastlock demo` and `make run` show.

No cluster is involved: commands go into log entries, entries into one table, and time is a number that
the scenario moves. Every step says what it expects, so the story cannot drift from what the table does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastlock._core.codec import encode_entry
from fastlock._core.locktable import KeptAlive, LockTable, Outcome
from fastlock.schema.enums import Code, EventKind

__all__ = ["Step", "play"]

GROUP = 1
TERM = 1
SLOT_LAST = 16383
KEY = b"orders/42"
TTL_MS = 10_000
ROWS_PER_CALL = 64
EVENTS_PER_CALL = 100


@dataclass(frozen=True)
class Step:
    """One thing that happened: who did what, and what came of it."""

    at_ms: int
    who: str
    what: str
    answer: str
    remark: str = ""
    token: int = 0


@dataclass
class Client:
    """What a client remembers: its session, the sequence of its commands, its lease and its token."""

    name: str
    lease: tuple[int, int]
    session: int = 0
    sequence: int = 0
    token: int = 0


class Scenario:
    """One table, its log position and its clock, and the two clients that want the same key."""

    def __init__(self) -> None:
        self.table = LockTable(GROUP)
        self.now_ms = 0
        self.alice = Client("alice", lease=(0xA11CE, 1))
        self.bob = Client("bob", lease=(0xB0B, 1))
        self._fenced_token_max = 0

    def apply(self, command: dict[str, Any]) -> list[Outcome]:
        """Puts one command into a log entry and applies it, as every member of a group would."""
        entry = encode_entry(GROUP, TERM, self.table.applied_index + 1, [command])
        self.table.apply(entry, self.now_ms)
        return self.table.outcomes_list()

    def ask(self, client: Client, expected: Code, command: dict[str, Any], *, again: bool = False) -> Outcome:
        """A client's command under its session; `again` repeats the last sequence, as a retry does."""
        client.sequence += not again
        high, low = client.lease
        identity = {
            "session": client.session,
            "sequence": client.sequence,
            "leaseHigh": high,
            "leaseLow": low,
        }
        reply = self.apply({**identity, "key": KEY, **command})[-1]
        self.expect(reply, expected)
        return reply

    def keep_alive(self, client: Client) -> None:
        self.expect(self.table.keep_alive(*client.lease, self.now_ms), Code.ok)

    def expect(self, answer: Outcome | KeptAlive, expected: Code) -> None:
        code = Code(answer.code)
        assert code is expected, f"the lock table answered {code.name} where the story says {expected.name}"

    def step(self, who: str, what: str, answer: str, remark: str = "", token: int = 0) -> Step:
        return Step(self.now_ms, who, what, answer, remark, token)

    def resource_accepts(self, token: int) -> bool:
        """A fenced resource: it remembers the highest token it has seen and refuses anything below."""
        self._fenced_token_max = max(self._fenced_token_max, token)
        return token == self._fenced_token_max

    def play(self) -> Iterator[Step]:
        yield from self.open()
        yield from self.contend()
        yield from self.expire()
        yield from self.refuse_the_zombie()
        yield from self.repeat_and_release()
        yield from self.watch()
        yield from self.save_and_load()

    def open(self) -> Iterator[Step]:
        self.table.lead(self.now_ms)
        (reply,) = self.apply({"ownSlots": {"first": 0, "last": SLOT_LAST}})
        self.expect(reply, Code.ok)
        yield self.step("leader", "own slots 0–16383", "ok", "one group, one member: no cluster yet")
        for client in (self.alice, self.bob):
            (reply,) = self.apply({"openSession": {"lifetimeMs": 0}})
            self.expect(reply, Code.ok)
            client.session = reply.revision
            yield self.step(client.name, "open session", f"session {client.session}")

    def contend(self) -> Iterator[Step]:
        alice, bob = self.alice, self.bob
        key, seconds = KEY.decode(), TTL_MS // 1000
        acquire = {"request": 1, "ttlMs": TTL_MS, "mode": "exclusive", "lease": "create", "wait": True}
        reply = self.ask(alice, Code.ok, {"acquire": {**acquire, "owner": b"alice"}})
        alice.token = reply.token
        yield self.step(
            "alice",
            f"acquire {key}, lease of {seconds} s",
            f"granted, token {alice.token}",
            "the token is the group's revision: it only ever rises",
            alice.token,
        )
        reply = self.ask(alice, Code.ok, {"putValue": {"token": alice.token, "value": b"alice was here"}})
        yield self.step("alice", "put value, fenced by her token", f"ok, revision {reply.revision}")
        reply = self.ask(bob, Code.queued, {"acquire": {**acquire, "owner": b"bob"}})
        yield self.step(
            "bob",
            f"acquire {key}, wait",
            f"queued at revision {reply.revision}",
            "the queue is replicated state: its order survives a failover",
        )
        self.now_ms += TTL_MS // 2
        self.keep_alive(alice)
        self.keep_alive(bob)
        yield self.step("both", "keep their leases alive", "ok", "not logged: only the timer moves")

    def expire(self) -> Iterator[Step]:
        yield self.step("alice", "is paused by her machine", "…", "no keep-alive from her any more")
        self.now_ms += TTL_MS * 9 // 10
        self.keep_alive(self.bob)
        self.now_ms += TTL_MS // 5
        (due,) = self.table.due(self.now_ms, 16)
        assert (due.lease_high, due.lease_low) == self.alice.lease
        outcomes = self.apply(
            {
                "leaseHigh": due.lease_high,
                "leaseLow": due.lease_low,
                "expire": {"generation": due.generation},
            }
        )
        wake = outcomes[0]
        self.expect(wake, Code.ok)
        self.bob.token = wake.token
        assert self.bob.token > self.alice.token
        yield self.step("leader", "timer wheel: alice's lease ran out", "expire logged and applied")
        yield self.step(
            "bob",
            "was first in the queue",
            f"granted, token {self.bob.token}",
            "handed over in the same apply: one commit, one message, no polling",
            self.bob.token,
        )

    def refuse_the_zombie(self) -> Iterator[Step]:
        alice, bob = self.alice, self.bob
        assert self.resource_accepts(bob.token)
        yield self.step(
            "bob", f"writes to a fenced store with token {bob.token}", "accepted", token=bob.token
        )
        yield self.step("alice", "wakes up and believes she holds the lock", "…")
        before = self.table.revision
        self.ask(alice, Code.leaseLost, {"release": {"token": alice.token}})
        yield self.step("alice", f"release with token {alice.token}", "leaseLost", "nothing changed")
        self.ask(alice, Code.leaseLost, {"putValue": {"token": alice.token, "value": b"too late"}})
        yield self.step("alice", f"put value with token {alice.token}", "leaseLost", "nothing changed")
        assert self.table.revision == before
        assert not self.resource_accepts(alice.token)
        yield self.step(
            "alice",
            f"writes to the store with token {alice.token}",
            "refused",
            "only fencing is a guarantee: the store saw a higher token",
            alice.token,
        )

    def repeat_and_release(self) -> Iterator[Step]:
        bob = self.bob
        put = {"putValue": {"token": bob.token, "value": b"bob's turn"}}
        first = self.ask(bob, Code.ok, put)
        yield self.step("bob", "put value, the reply is lost", "…")
        second = self.ask(bob, Code.ok, put, again=True)
        assert second.revision == first.revision
        yield self.step(
            "bob",
            "repeats it with the same sequence",
            f"ok, revision {second.revision}",
            "the recorded answer: it acted once",
        )
        reply = self.ask(bob, Code.ok, {"release": {"token": bob.token}})
        yield self.step("bob", f"release with token {bob.token}", f"ok, revision {reply.revision}")

    def watch(self) -> Iterator[Step]:
        events, _ = self.table.events(0, b"orders/", True, EVENTS_PER_CALL)
        for event in events:
            owner = f", owner {event.owner.decode()}" if event.owner else ""
            yield self.step(
                "watcher", f"orders/* at revision {event.revision}", f"{EventKind(event.kind).name}{owner}"
            )

    def save_and_load(self) -> Iterator[Step]:
        frozen = self.table.freeze()
        rows: dict[bytes, bytes] = {}
        while chunk := self.table.frozen_rows(ROWS_PER_CALL):
            rows.update((key, row) for key, row in chunk if row is not None)
        self.table.thaw()
        copy = LockTable(GROUP)
        for key in sorted(rows):
            copy.load_row(key, rows[key])
        copy.finish_load()
        saved, loaded = self.table.state_hash(), copy.state_hash()
        assert saved == loaded
        assert copy.revision == self.table.revision
        yield self.step(
            "storage", f"checkpoint at index {frozen.index}", f"{len(rows)} rows", f"state hash {saved:016x}"
        )
        yield self.step(
            "storage",
            "another table loads them",
            f"revision {copy.revision}",
            f"state hash {loaded:016x}: equal",
        )


def play() -> Iterator[Step]:
    """The steps of the scenario, as they happen."""
    return Scenario().play()
