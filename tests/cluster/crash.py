"""Kills nodes of a real cluster again and again under load, and judges what the clients saw.

python -m tests.cluster.crash --kills 1000
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fastlock import AsyncClient, AsyncLock, ClientSettings
from fastlock.errors import NotAcquired, Unavailable
from fastlock.testing.linearizability import check
from fastlock.testing.local_cluster import LocalCluster
from tests.cluster.history import History

CLIENTS = 3
TASKS_PER_CLIENT = 4
ANCHORS = 20
KEYS_PER_ROUND = 6
KILLS_PER_ROUND = 5
# Nobody but a killed node dies here: a lease that ends was lost, and the checker must not have it as an
# excuse.
TTL_MS = 3_600_000
THINK_S = 0.02
HOLD_S = 0.01
DOWN_S_MAX = 0.3
# After a kill the next one comes when so many operations were done, or after so long.
OPERATIONS_BETWEEN = 30
BETWEEN_S_MAX = 5.0
RECOVERY_S = 30.0
POLL_S = 0.005
FROZEN_S = 2.0

CLIENT_SETTINGS = {
    "ttl_ms": TTL_MS,
    "timeout_ms": 60_000,
    "attempt_timeout_ms": 250,
    "attempt_timeout_ms_max": 1_000,
    "backoff_ms": 5,
    "backoff_ms_max": 80,
    "redial_ms": 20,
    "redial_ms_max": 200,
    "reattach_ms": 1_000,
}


@dataclass
class Report:
    """What a run did and found."""

    kills: int = 0
    whole_cluster_kills: int = 0
    operations: int = 0
    grants: int = 0
    unavailable: int = 0
    configurations: int = 0
    longest_recovery_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        figures = [
            f"kills {self.kills} ({self.whole_cluster_kills} times all at once)",
            f"operations {self.operations}",
            f"grants {self.grants}",
            f"unavailable {self.unavailable}",
            f"longest recovery {self.longest_recovery_s:.2f} s",
            f"configurations searched {self.configurations}",
            f"violations {len(self.violations)}",
        ]
        return "\n".join([", ".join(figures), *self.violations])


class Crash:
    """One run: clients that work, a hand that kills, and a judge for each round."""

    def __init__(self, cluster: LocalCluster, seed: int, say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.say = say
        self.report = Report()
        self.clients: list[AsyncClient] = []
        self.history = History()
        self.stopping = False
        self.round = 0
        self._values = 0

    async def run(self, kills: int) -> Report:
        for number in range(CLIENTS):
            settings = ClientSettings(owner=b"client %d" % number, **CLIENT_SETTINGS)
            client = AsyncClient(self.cluster.endpoints, settings=settings)
            await client.connect()
            self.clients.append(client)
        try:
            anchors = await self._hold_anchors()
            while self.report.kills < kills and not self.report.violations:
                await self._round(min(KILLS_PER_ROUND, kills - self.report.kills))
            await self._check_anchors(anchors)
        finally:
            for client in self.clients:
                await client.close()
        return self.report

    # Locks that are held through everything.

    async def _hold_anchors(self) -> dict[str, int]:
        tokens = {}
        for number in range(ANCHORS):
            key = f"anchor/{number}"
            held = await self.clients[number % CLIENTS].lock(key, own_lease=number % 2 == 0).acquire()
            tokens[key] = held.token
        return tokens

    async def _check_anchors(self, tokens: dict[str, int]) -> None:
        for key, token in tokens.items():
            info = await self.clients[0].get(key)
            if info is None or [holder.token for holder in info.holders] != [token]:
                self.report.violations.append(f"{key} was granted with token {token}, and now is {info}")

    # A round: load, kills, quiet, judgement.

    async def _round(self, kills: int) -> None:
        self.round += 1
        self.history = History()
        for client in self.clients:
            self.history.attach(client)
        self.stopping = False
        tasks = [
            asyncio.create_task(self._work(client))
            for client in self.clients
            for _ in range(TASKS_PER_CLIENT)
        ]
        for _ in range(kills):
            await self._kill()
        self.stopping = True
        await asyncio.wait_for(asyncio.gather(*tasks), RECOVERY_S)
        await self._settle()
        self._judge()

    async def _kill(self) -> None:
        cluster = self.cluster
        victims = [self.random.choice(list(cluster.nodes))]
        dice = self.random.random()
        if dice < 0.2:
            victims = list(cluster.nodes)
            self.report.whole_cluster_kills += 1
        elif dice < 0.3:
            victims = self.random.sample(list(cluster.nodes), min(2, len(cluster.nodes)))
        await self._operations_done(OPERATIONS_BETWEEN)
        for victim in victims:
            cluster.kill(victim)
        killed_s = time.monotonic()
        self.report.kills += len(victims)
        await asyncio.sleep(self.random.random() * DOWN_S_MAX)
        for victim in victims:
            cluster.launch(victim)
        await self._operations_done(1)
        self.report.longest_recovery_s = max(self.report.longest_recovery_s, time.monotonic() - killed_s)
        # The next victim may be the only one that knows the last commit: it must have passed it on by then,
        # and Raft says that it has. Whether these nodes have caught up is not waited for.
        await asyncio.to_thread(cluster.wait_ready)
        self.say(f"  killed {victims}: {self.report}")

    async def _operations_done(self, count: int) -> None:
        goal = self.report.operations + count
        seen_s = time.monotonic()
        end_s = seen_s + (BETWEEN_S_MAX if count > 1 else RECOVERY_S)
        while self.report.operations < goal and seen_s < end_s:
            await asyncio.sleep(POLL_S)
            gap_s = time.monotonic() - seen_s
            seen_s += gap_s
            if gap_s > FROZEN_S:
                # The machine stood still, and the nodes with it.
                end_s += gap_s
        if count == 1 and self.report.operations < goal:
            self.report.violations.append(f"no operation succeeded within {RECOVERY_S} s after a kill")

    async def _settle(self) -> None:
        """Everything that was called off in the background is answered: nothing is left under way."""
        end_s = time.monotonic() + RECOVERY_S
        while any(client.core.locking.unfinished for client in self.clients):
            if time.monotonic() > end_s:
                self.report.violations.append("a release or cancel-wait was never answered")
                return
            await asyncio.sleep(0.01)

    def _judge(self) -> None:
        report, history = self.report, self.history
        report.grants += len(history.grants)
        report.violations += history.surprises
        verdict = check(history.operations())
        report.configurations += verdict.configurations
        if not verdict.linearizable:
            report.violations.append(verdict.explanation)

    # What clients do.

    async def _work(self, client: AsyncClient) -> None:
        dice = random.Random(self.random.getrandbits(32))
        keys = [f"round {self.round}/{number}" for number in range(KEYS_PER_ROUND)]
        while not self.stopping:
            await asyncio.sleep(dice.random() * THINK_S)
            try:
                if dice.random() < 0.15:
                    await self._look(client, dice.choice(keys))
                else:
                    await self._lock(client, dice.choice(keys), dice)
            except NotAcquired:
                self.report.operations += 1
            except Unavailable:
                self.report.unavailable += 1

    async def _look(self, client: AsyncClient, key: str) -> None:
        place = self.history.begin_get(key.encode())
        info = await client.get(key)
        tokens = [holder.token for holder in info.holders] if info is not None else []
        waiters = info.waiters if info is not None else 0
        self.history.finish_get(place, tokens, waiters, info.value if info is not None else None)
        self.report.operations += 1

    async def _lock(self, client: AsyncClient, key: str, dice: random.Random) -> None:
        wait = dice.choice([0, dice.random() * 2, 30])
        make = client.read_lock if dice.random() < 0.3 else client.lock
        lock = make(key, wait=wait, own_lease=dice.random() < 0.5)
        if dice.random() < 0.1:
            await self._give_up(lock, dice)
            return
        held = await lock.acquire()
        self.report.operations += 1
        try:
            await asyncio.sleep(dice.random() * HOLD_S)
            if dice.random() < 0.3:
                self._values += 1
                await client.put(key, b"%d" % self._values, held)
                self.report.operations += 1
        finally:
            await lock.release()
            self.report.operations += 1

    async def _give_up(self, lock: AsyncLock, dice: random.Random) -> None:
        """Cancelled while it is under way: whatever it gets is given back without anyone who waits for it."""
        task = asyncio.create_task(lock.acquire())
        await asyncio.sleep(dice.random() * 2 * HOLD_S)
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            return
        await task
        await lock.release()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=None, help="keep the nodes' data and logs here")
    options = parser.parse_args()
    cluster = LocalCluster(options.nodes, directory=options.directory)
    with cluster:
        report = asyncio.run(Crash(cluster, options.seed, print).run(options.kills))
    print(report)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
