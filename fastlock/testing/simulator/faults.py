"""Bad luck, dealt out over a run: each kind is one method, and every effect ends by itself or at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastlock._core.raft import Refused
from fastlock._core.raft_message import ROLE_LEARNER, ROLE_VOTER, Member
from fastlock.testing.simulator.catalogue import slot_of
from fastlock.testing.simulator.disk import CHECKPOINT_MAX_NS
from fastlock.testing.simulator.network import CALM, Weather
from fastlock.testing.simulator.time import MILLISECOND, SECOND

if TYPE_CHECKING:
    from fastlock.testing.simulator.world import World


# How often another kind is picked where one has nothing to act on.
CHOICES_MAX = 5

# How long a node that crashes again and again stays down each time.
CRASH_LOOP_DOWN_MS_MAX = 60

# How soon after a cut of the log or a vote a node crashes that is to crash there.
QUICK_NS = 2 * MILLISECOND

# How likely somebody asks for a change of members without having waited.
IMPATIENCE = 0.4


class Faults:
    """Deals faults of the plan's kinds at random moments until told to stop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random.fork(6)
        self._over = False
        # Every cut replaces the one before; an old heal must not end a newer cut.
        self._cut_number = 0
        self._weather_number = 0
        self._kinds: dict[str, Callable[[], str]] = {
            "crash one": self._crash_one,
            "crash leader": self._crash_leader,
            "crash all": self._crash_all,
            "crash loop": self._crash_loop,
            "crash in storage": self._crash_in_storage,
            "pause node": self._pause_node,
            "pause client": self._pause_client,
            "crash client": self._crash_client,
            "weather": self._weather,
            "split": self._split,
            "one way": self._one_way,
            "bridge": self._bridge,
            "flapping": self._flapping,
            "isolate leader": self._isolate_leader,
            "slow disk": self._slow_disk,
            "failing disk": self._failing_disk,
            "clock leap": self._clock_leap,
            "clock drift": self._clock_drift,
            "transfer": self._transfer,
            "membership": self._membership,
            "forwarders": self._forwarders,
            "move slots": self._move_slots,
        }

    def begin(self) -> None:
        self._world.timeline.after(2 * SECOND, self._next)

    def _next(self) -> None:
        if self._over:
            return
        world = self._world
        for _ in range(CHOICES_MAX):
            kind = self._random.pick(world.plan.faults)
            line = self._kinds[kind]()
            if line:
                world.fault(kind, line)
                break
        world.timeline.after(self._random.below(2 * world.plan.fault_gap_ns), self._next)

    def end(self) -> None:
        """Everything is well again: from here on there are no excuses."""
        self._over = True
        world = self._world
        world.say("faults are over")
        world.network.heal()
        world.network.weather = CALM
        world.forwarding.late = world.forwarding.twice = 0.0
        for node in world.nodes.values():
            node.disk.slowness = node.disk.slowness_usual
            node.disk.failing = False
            node.disk.crashes_in = ""
            if not node.up:
                node.start()
            if node.paused:
                node.resume()
        for client in world.clients.values():
            if client.paused:
                client.resume()

    def _later(self, low_ms: int, high_ms: int, action: Callable[..., None], *arguments: object) -> int:
        delay_ms = self._random.between(low_ms, high_ms)
        self._world.timeline.after(delay_ms * MILLISECOND, action, *arguments)
        return delay_ms

    # Nodes.

    def _restart(self, number: int) -> None:
        node = self._world.nodes[number]
        if not node.up:
            self._world.say(f"node {number} starts")
            node.start()

    def _crash(self, number: int) -> str:
        node = self._world.nodes[number]
        if not node.up:
            return ""
        left = node.crash()
        low_ms, high_ms = self._random.pick(((1, 20), (5, 3000), (5, 3000)))
        delay_ms = self._later(low_ms, high_ms, self._restart, number)
        return f"node {number} for {delay_ms} ms, {left}"

    def _crash_one(self) -> str:
        return self._crash(self._random.pick(list(self._world.nodes)))

    def _crash_leader(self) -> str:
        leader = self._world.leader(self._random.pick(self._world.group_numbers))
        return self._crash(leader.node) if leader is not None else ""

    def _crash_all(self) -> str:
        lines = [self._crash(number) for number in self._world.nodes]
        return "; ".join(line for line in lines if line)

    def _crash_loop(self) -> str:
        """One node, or every node, that crashes again soon after each start, and is started again at once."""
        nodes = self._random.shuffled(list(self._world.nodes))
        nodes = nodes[: self._random.pick((1, 2, len(nodes)))]
        times = self._random.between(2, 8)
        for number in nodes:
            self._crash_again(number, times)
        return f"nodes {nodes} {times} times"

    def _crash_again(self, number: int, times: int) -> None:
        node = self._world.nodes[number]
        if self._over or times == 0:
            return
        if node.up:
            node.crash()
            self._later(1, CRASH_LOOP_DOWN_MS_MAX, self._restart, number)
        longest_ms = CRASH_LOOP_DOWN_MS_MAX + self._world.plan.election_max_ms
        self._later(1, longest_ms, self._crash_again, number, times - 1)

    def _crash_in_storage(self) -> str:
        """A node crashes in its next checkpoint, install, cut of the log or vote, or soon after."""
        moment = self._random.pick(("checkpoint", "install", "cut", "vote", "vote"))
        nodes = list(self._world.nodes)
        # Installs are rare: whoever is next to have one. Votes come several at a time.
        for number in nodes if moment in ("install", "vote") else [self._random.pick(nodes)]:
            self._world.nodes[number].disk.crashes_in = moment
        return ""

    def moment(self, number: int, moment: str) -> None:
        """A disk is where the node was to crash; how far it gets there is open."""
        if self._over:
            return
        disk = self._world.nodes[number].disk
        longest_ns = QUICK_NS if moment in ("cut", "vote") else 2 * CHECKPOINT_MAX_NS * min(disk.slowness, 20)
        delay_ns = self._random.below(longest_ns)
        self._world.timeline.after(delay_ns, self._crash_there, number, moment)

    def _crash_there(self, number: int, moment: str) -> None:
        if not self._over and (line := self._crash(number)):
            self._world.fault(f"crash in {moment}", line)

    def _pause_node(self) -> str:
        number = self._random.pick(list(self._world.nodes))
        node = self._world.nodes[number]
        if not node.up or node.paused:
            return ""
        node.pause()
        return f"node {number} for {self._later(30, 3000, self._resume_node, number)} ms"

    def _resume_node(self, number: int) -> None:
        node = self._world.nodes[number]
        if node.paused:
            node.resume()

    def _slow_disk(self) -> str:
        number = self._random.pick(list(self._world.nodes))
        slowness = self._random.pick((20, 100, 500))
        self._world.nodes[number].disk.slowness = slowness
        delay_ms = self._later(200, 4000, self._normal_disk, number)
        return f"node {number} {slowness} times slower for {delay_ms} ms"

    def _normal_disk(self, number: int) -> None:
        node = self._world.nodes[number]
        node.disturb()
        node.disk.slowness = node.disk.slowness_usual

    def _failing_disk(self) -> str:
        """The next sync of a node fails, which must stop the node; it comes back on a good disk."""
        number = self._random.pick(list(self._world.nodes))
        if not self._world.nodes[number].up:
            return ""
        self._world.nodes[number].disk.failing = True
        return f"node {number}, replaced after {self._later(50, 3000, self._replace_disk, number)} ms"

    def _replace_disk(self, number: int) -> None:
        self._world.nodes[number].disk.failing = False
        self._restart(number)

    def _clock_drift(self) -> str:
        """A clock, of a node or a client, goes at another speed from here on."""
        random, world = self._random, self._world
        drift_ppm = world.drift(random)
        if not drift_ppm:
            return ""
        if random.chance(0.5):
            number = random.pick(list(world.nodes))
            world.nodes[number].clock.set_drift(drift_ppm)
            world.nodes[number].disk_done()
            return f"node {number} by {drift_ppm} ppm"
        address = random.pick(self._living_clients())
        client = world.clients[address]
        client.clock.set_drift(drift_ppm)
        client.clock_changed()
        return f"client {address} by {drift_ppm} ppm"

    def _clock_leap(self) -> str:
        """A node's clock, or that of a client, counts time that passed for nobody else."""
        if self._random.chance(0.3):
            address = self._random.pick(self._living_clients())
            leap_ms = self._random.between(1, 5000)
            client = self._world.clients[address]
            client.clock.leap(leap_ms * MILLISECOND)
            client.clock_changed()
            return f"client {address} by {leap_ms} ms"
        number = self._random.pick(list(self._world.nodes))
        # A leap shorter than the gap a leader looks for shortens leases unseen: only for wild clocks.
        low_ms = 1 if not self._world.clocks_honest else 2 * self._world.plan.settings.heartbeat_ms + 1
        leap_ms = self._random.between(low_ms, 5000)
        self._world.nodes[number].disturb()
        self._world.nodes[number].clock.leap(leap_ms * MILLISECOND)
        self._world.nodes[number].disk_done()
        return f"node {number} by {leap_ms} ms"

    # Clients.

    def _living_clients(self) -> list[int]:
        clients = self._world.clients
        admin = self._world.admin.address
        return [address for address, client in clients.items() if not client.dead and address != admin]

    def _pause_client(self) -> str:
        address = self._random.pick(self._living_clients())
        client = self._world.clients[address]
        if client.paused:
            return ""
        client.paused = True
        longest_ms = 2 * self._world.ttls_ms[-1]
        return f"client {address} for {self._later(50, longest_ms, self._resume_client, address)} ms"

    def _resume_client(self, address: int) -> None:
        client = self._world.clients[address]
        if client.paused:
            client.resume()

    def _crash_client(self) -> str:
        address = self._random.pick(self._living_clients())
        self._world.clients[address].die()
        replacement = self._world.new_client()
        return f"client {address}, replaced by {replacement.address}"

    # Network.

    def _weather(self) -> str:
        random = self._random
        weather = Weather(
            loss=random.pick((0.0, 0.02, 0.1, 0.3)),
            duplication=random.pick((0.0, 0.05, 0.3)),
            stray=random.pick((0.0, 0.1, 0.5)),
            stray_max_ns=random.pick((5, 50, 400)) * MILLISECOND,
        )
        self._world.network.weather = weather
        self._weather_number += 1
        delay_ms = self._later(200, 4000, self._clear_up, self._weather_number)
        return (
            f"loss {weather.loss}, duplication {weather.duplication}, stray {weather.stray} "
            f"up to {weather.stray_max_ns // MILLISECOND} ms, for {delay_ms} ms"
        )

    def _clear_up(self, number: int) -> None:
        if number == self._weather_number:
            self._world.network.weather = CALM

    def _cut_for(self, low_ms: int, high_ms: int) -> int:
        self._cut_number += 1
        if "membership" in self._world.plan.faults and self._random.chance(IMPATIENCE):
            self._later(0, 150, self._panic)
        return self._later(low_ms, high_ms, self._heal, self._cut_number)

    def _panic(self) -> None:
        """Somebody sees a cut and changes members to get around it."""
        if not self._over and (line := self._membership()):
            self._world.fault("membership", line)

    def _heal(self, number: int) -> None:
        if number == self._cut_number:
            self._world.network.heal()

    def _sides(self) -> tuple[list[int], list[int]]:
        """Nodes on two sides, clients on either."""
        random = self._random
        nodes = random.shuffled(list(self._world.nodes))
        place = random.between(1, max(1, len(nodes) - 1))
        left, right = nodes[:place], nodes[place:]
        for address in self._world.clients:
            side = random.below(3)
            if side == 0:
                left.append(address)
            elif side == 1:
                right.append(address)
        return left, right

    def _split(self) -> str:
        left, right = self._sides()
        self._world.network.heal()
        self._world.network.split(left, right)
        return f"{left} | {right} for {self._cut_for(100, 5000)} ms"

    def _one_way(self) -> str:
        left, right = self._sides()
        self._world.network.heal()
        self._world.network.split(left, right, one_way=True)
        return f"{right} cannot reach {left} for {self._cut_for(100, 5000)} ms"

    def _bridge(self) -> str:
        """Two sides that see each other only through one node."""
        nodes = self._random.shuffled(list(self._world.nodes))
        if len(nodes) < 3:
            return ""
        middle, rest = nodes[0], nodes[1:]
        half = len(rest) // 2
        self._world.network.heal()
        self._world.network.split(rest[:half], rest[half:])
        return f"{rest[:half]} - {middle} - {rest[half:]} for {self._cut_for(100, 5000)} ms"

    def _flapping(self) -> str:
        """A cut that comes and goes."""
        left, right = self._sides()
        self._cut_number += 1
        times = self._random.between(3, 12)
        self._flap(self._cut_number, left, right, times)
        return f"{left} | {right} {times} times"

    def _flap(self, number: int, left: list[int], right: list[int], times: int) -> None:
        if number != self._cut_number or self._over:
            return
        if times == 0:
            self._world.network.heal()
            return
        if times % 2:
            self._world.network.split(left, right)
        else:
            self._world.network.heal()
        self._later(20, 500, self._flap, number, left, right, times - 1)

    def _isolate_leader(self) -> str:
        leader = self._world.leader(self._random.pick(self._world.group_numbers))
        if leader is None:
            return ""
        others = [number for number in self._world.nodes if number != leader.node]
        self._world.network.heal()
        # Its clients stay with it: what it tells them must be true all the same.
        self._world.network.split([leader.node], others, one_way=self._random.chance(0.3))
        return f"node {leader.node} for {self._cut_for(100, 5000)} ms"

    def _forwarders(self) -> str:
        forwarding = self._world.forwarding
        forwarding.late = self._random.pick((0.1, 0.5))
        forwarding.twice = self._random.pick((0.1, 0.5))
        delay_ms = self._later(500, 5000, self._good_forwarders)
        return f"late {forwarding.late}, twice {forwarding.twice}, for {delay_ms} ms"

    def _good_forwarders(self) -> None:
        self._world.forwarding.late = self._world.forwarding.twice = 0.0

    # Raft.

    def change_leader(self) -> None:
        """Another leader for every group, one way or the other."""
        for number in self._world.group_numbers:
            leader = self._world.leader(number)
            if leader is not None:
                self._world.fault("crash leader", self._crash(leader.node))

    def _transfer(self) -> str:
        leader = self._world.leader(self._random.pick(self._world.group_numbers))
        if leader is None:
            return ""
        target = self._random.pick(list(self._world.nodes))
        try:
            leader.transfer(target)
        except Refused:
            return ""
        self._world.disturb(leader.number)
        self._world.nodes[leader.node].disk_done()
        if self._random.chance(0.3):
            # Its campaign is not heard: it comes back with a term of its own.
            others = [number for number in self._world.nodes if number != target]
            self._world.network.heal()
            self._world.network.split(others, [target], one_way=True)
            self._cut_for(5, 800)
        return f"group {leader.number} from node {leader.node} to {target}"

    def _membership(self) -> str:
        """Changes of one group's members, by somebody who may not wait for one before the next."""
        group = self._random.pick(self._world.group_numbers)
        lines = [self._change_members(group)]
        while lines[-1] and self._random.chance(IMPATIENCE):
            lines.append(self._change_members(group))
        return "; ".join(line for line in lines if line)

    def elected(self, group: int) -> None:
        """A tool that watches leaders wants members changed the moment it sees a new one."""
        if "membership" in self._world.plan.faults and not self._over and self._random.chance(IMPATIENCE):
            self._later(0, 2, self._change_at_once, group)

    def _change_at_once(self, group: int) -> None:
        if not self._over and (line := self._change_members(group)):
            self._world.fault("membership", line)

    def _change_members(self, group: int) -> str:
        """Add, promote or remove one member of one group."""
        leader = self._world.leader(group)
        if leader is None:
            return ""
        members = list(leader.raft.members)
        voters = [m for m in members if m.role == ROLE_VOTER]
        learners = [m for m in members if m.role == ROLE_LEARNER]
        known = [m.node for m in members]
        absent = [number for number in self._world.nodes if number not in known]
        choices = []
        if absent:
            choices.append("add")
        if learners:
            choices += ["promote", "promote"]
        if len(voters) > 2:
            choices.append("remove")
        if not choices:
            return ""
        choice = self._random.pick(choices)
        if choice == "add":
            number = self._random.pick(absent)
            changed = [*members, Member(number, ROLE_LEARNER)]
        elif choice == "promote":
            number = self._random.pick(learners).node
            changed = [m if m.node != number else Member(number, ROLE_VOTER, m.incarnation) for m in members]
        else:
            number = self._random.pick(members).node
            changed = [m for m in members if m.node != number]
        try:
            leader.change_members(changed)
        except Refused:
            return ""
        self._world.disturb(group)
        self._world.nodes[leader.node].disk_done()
        return f"group {group}: {choice} node {number}"

    def _move_slots(self) -> str:
        """Move a run of slots with a contended key in it to another group, if no move is under way."""
        world = self._world
        admin = world.admin
        if len(world.group_numbers) < 2 or any(not process.finished for process in admin.workers):
            return ""
        target = self._random.pick(world.catalogue.targets)
        if target.lock_delay_ms:
            return ""
        slot = slot_of(target.keys[0])
        source = world.catalogue.group_of(target.keys[0])
        others = [number for number in world.group_numbers if number != source]
        destination = self._random.pick(others)
        first, last = world.catalogue.run_around(slot, self._random.below(2000))
        admin.workers = [admin.spawn(admin.move_slots(first, last, source, destination))]
        return f"{first}..{last} with {target.keys[0]!r} from group {source} to {destination}"
