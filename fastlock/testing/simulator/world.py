"""One run: a cluster, its clients and its bad luck, all from one seed; and the judgement over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from traceback import format_exc
from typing import Any
from zlib import crc32

from fastlock._core.codec_commands import decode_log_entry
from fastlock._core.codec_rows import decode_lease_row
from fastlock._core.locktable import Event
from fastlock._core.raft_message import ROLE_VOTER, Entry, Member
from fastlock.node.group import Group
from fastlock.schema.enums import Code, CommandWhich, EventKind, RowKind
from fastlock.testing.linearizability import check
from fastlock.testing.lock_checkers import (
    Belief,
    Believers,
    Exclusion,
    FencedResource,
    Grant,
    History,
    TokensIncrease,
    WatchStream,
)
from fastlock.testing.lock_model import Happening
from fastlock.testing.raft_checkers import (
    CommittedForEver,
    Disruption,
    DurableFirst,
    LogMatching,
    OneChangeAtATime,
    OneLeaderPerTerm,
    SameMembers,
    SameState,
)
from fastlock.testing.simulator.catalogue import SLOT_TOTAL, Catalogue
from fastlock.testing.simulator.disk import Disk
from fastlock.testing.simulator.faults import Faults
from fastlock.testing.simulator.network import Network
from fastlock.testing.simulator.node import FORWARD_LATE_MAX_NS, Forwarding, SimulatedNode
from fastlock.testing.simulator.operator import Operator
from fastlock.testing.simulator.plan import (
    DRAIN_NS,
    FAULT_PHASE_NS,
    FORSAKEN_TTL_MS,
    OFFICE_NS,
    OFFICES,
    RECOVERY_NS,
    SLOW_THINK_NS,
    plan_of,
)
from fastlock.testing.simulator.prng import Random
from fastlock.testing.simulator.recorder import Recorder
from fastlock.testing.simulator.time import MILLISECOND, SECOND, Clock, Timeline
from fastlock.testing.simulator.trace import Trace
from fastlock.testing.simulator.wire import Response
from fastlock.testing.simulator.workload import Workload
from fastlock.testing.violation import Violation

FIRST_CLIENT = 100

# A run that did less than this by its end goes on for so many seconds more.
OPERATIONS_MIN = 500
FAULTS_MIN = 20
EXTENSIONS_MAX = 60

# A leader that worked for so many election timeouts, undisturbed, has no reason to go.
STEADY_ELECTIONS = 3

# After so many election timeouts everybody who can hear a leader follows it.
FOLLOWED_ELECTIONS = 5
STRAGGLERS_EVERY_NS = SECOND // 2

# A lease that nobody uses any more begins anew with a new leader; it must not do so for ever.
LEASE_LIVES_MAX = 2

# Events one applied entry can cause at most in a run of this size.
EVENTS_PER_ENTRY_MAX = 100_000

# State hashes walk the whole table: replicas are compared at every so many entries, and at checkpoints.
HASHED_EVERY = 4

# In front of the frame of a row that moves: its kind.
RECORD_HEAD_BYTES = 8

_EVENT_NAMES = [kind.name for kind in EventKind]
_ENDS: dict[int, str] = {CommandWhich.expire: "expired", CommandWhich.revoke: "revoked"}
_NOTED = (*_ENDS, CommandWhich.exportSlots, CommandWhich.importSlots)


@dataclass(slots=True)
class Summary:
    """What a run did, and what it broke."""

    seed: int
    simulated_ns: int = 0
    events: int = 0
    operations: int = 0
    grants: int = 0
    elections: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    # How often things happened that a run is there to reach.
    reached: dict[str, int] = field(default_factory=dict)
    configurations: int = 0
    trace_hash: str = ""
    violation: str = ""
    checker: str = ""
    trace: list[str] = field(default_factory=list)


class World:
    """Holds all parts of a run together and feeds the checkers."""

    def __init__(self, seed: int, keep_trace: bool = False) -> None:
        self.plan = plan = plan_of(seed)
        self.random = Random(seed).fork(2)
        self.timeline = Timeline()
        self.trace = Trace(keep_trace)
        self.recorder = Recorder(self.timeline)
        self.network = Network(self.timeline, self.random.fork(3), self._deliver)
        self.forwarding = Forwarding()
        self.group_numbers = list(range(1, plan.groups + 1))
        self.catalogue = Catalogue(self.random.fork(4), self.group_numbers)
        for key in self.catalogue.keys_between(0, SLOT_TOTAL - 1):
            self.recorder.arrived(key, self.catalogue.group_of(key), complete=True)
        self.clocks_honest = plan.clocks_honest
        self.slots_move = "move slots" in plan.faults and plan.groups > 1
        self.think_max_ns = plan.think_max_ns
        self.hold_max_ns = plan.hold_max_ns
        self.ttls_ms = plan.ttls_ms
        self.stopping = False
        self.operations = 0
        self.grants = 0
        self.faults: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        self._set_up_checkers()
        members = tuple(Member(number) for number in range(1, plan.nodes + 1))
        self.nodes: dict[int, SimulatedNode] = {}
        for number in range(1, plan.nodes + plan.spares + 1):
            self.nodes[number] = self._new_node(number, members if number <= plan.nodes else ())
        self.clients: dict[int, Workload] = {}

    def _set_up_checkers(self) -> None:
        self.leaders = OneLeaderPerTerm()
        self.matching = LogMatching()
        self.committed = CommittedForEver()
        self.same_state = SameState()
        self.same_members = SameMembers()
        self.durable_first = DurableFirst()
        self.one_change = OneChangeAtATime()
        self.disruption = Disruption()
        # The last leader of each group and since when, and when its members or leader were last to change.
        self._office: dict[int, tuple[Group, int]] = {}
        self._disturbed_ns = dict.fromkeys(self.group_numbers, 0)
        self.tokens = TokensIncrease()
        self.resource = FencedResource()
        self.believers = Believers()
        self.exclusion = Exclusion()
        grants: dict[tuple[bytes, int], Grant] = {}
        self.histories = {number: History(number, grants) for number in self.group_numbers}
        # Who watches, and what came of it.
        self.streams: list[tuple[Workload, WatchStream]] = []
        self.happenings: list[Happening] = []
        # Commands, by group, session and sequence, that were told to the recorder.
        self._noted: set[tuple[int, int, int]] = set()
        # The revision of each group after everything that was applied anywhere.
        self._revisions = dict.fromkeys(self.group_numbers, 0)

    def _new_node(self, number: int, members: Sequence[Member]) -> SimulatedNode:
        random = self.random.fork(1000 + number)
        clock = Clock(self.timeline, self.drift(random), random.below(1 << 40))
        disk = Disk(
            number,
            self.timeline,
            random.fork(1),
            self.matching,
            lambda: self.nodes[number].disk_done(),
            lambda moment: self.misfortune.moment(number, moment),
            lambda group, entry, previous: self._members_change(number, group, entry, previous),
            self.plan.disk_slowness,
        )
        return SimulatedNode(
            number,
            self.timeline,
            self.network,
            random.fork(2),
            disk,
            clock,
            self.plan.settings,
            self.group_numbers,
            members,
            self,
            self.forwarding,
            lambda message, term: self.durable_first.leaves(message, term, disk),
        )

    def drift(self, random: Random) -> int:
        return random.between(-self.plan.drift_ppm, self.plan.drift_ppm) if self.plan.drift_ppm else 0

    def new_client(self) -> Workload:
        address = FIRST_CLIENT + len(self.clients)
        random = self.random.fork(address)
        clock = Clock(self.timeline, self.drift(random), random.below(1 << 40))
        nodes = list(self.nodes)
        client = Workload(self, address, self.timeline, self.network, random, clock, nodes)
        self.clients[address] = client
        client.start(self.plan.threads)
        return client

    def _deliver(self, source: int, target: int, message: Any) -> None:
        self.trace.mix(self.timeline.now_ns ^ source << 40 ^ target << 52)
        node = self.nodes.get(target)
        if node is not None:
            node.receive(message)
        elif isinstance(message, Response):
            client = self.clients.get(target)
            if client is not None:
                client.receive(message)

    def say(self, line: str) -> None:
        self.trace.add(self.timeline.now_ns, line)

    def fault(self, kind: str, line: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self.say(f"fault: {kind}: {line}")

    def reach(self, what: str) -> None:
        self.reached[what] = self.reached.get(what, 0) + 1

    # What groups and clients report.

    def elected(self, group: Group) -> None:
        number, node = group.number, group.node
        self.say(f"group {number}: node {node} leads in term {group.raft.term}")
        self.leaders.elected(number, group.raft.term, node)
        disk = self.nodes[node].disk
        term = disk.term_at(number, self.committed.committed_index(number))
        self.misfortune.elected(number)
        self._note_disruption(group)
        self._office[number] = (group, self.timeline.now_ns)
        if term >= 0:
            self.committed.leads(number, group.raft.term, node, disk.last_index(number), term)

    def disturb(self, number: int) -> None:
        """Somebody asked a group for another leader or other members."""
        self._disturbed_ns[number] = self.timeline.now_ns

    def _note_disruption(self, group: Group) -> None:
        """Whether the leader before this one worked, and a majority could hear it, for long enough."""
        number = group.number
        leader, elected_ns = self._office.get(number, (None, 0))
        since_ns = self.timeline.now_ns - STEADY_ELECTIONS * self.plan.election_max_ms * MILLISECOND
        if leader is None or max(elected_ns, self._disturbed_ns[number]) > since_ns:
            return
        voters = [member.node for member in leader.raft.members if member.role == ROLE_VOTER]
        steady = [
            node
            for node in voters
            if self.nodes[node].undisturbed(since_ns)
            and self.network.undisturbed(leader.node, node, since_ns)
        ]
        in_office = self.nodes[leader.node].group(number) is leader
        if in_office and leader.node in steady and len(steady) > len(voters) // 2:
            self.disruption.unseats(
                number, f"node {group.node} took over from {leader.node} in term {group.raft.term}"
            )

    def _members_change(self, node: int, number: int, entry: Entry, previous: int) -> None:
        """A member logs a configuration; rules bind the leader whose it is."""
        group = self.nodes[node].group(number)
        if group is None or group.raft.leader != node or group.raft.term != entry.term:
            return
        commit = group.raft.status()["commit"]
        self.one_change.logged(number, entry, previous, commit, self.nodes[node].disk.term_at(number, commit))

    def _look_for_stragglers(self) -> None:
        """Whoever can hear a steady leader follows it."""
        self.timeline.after(STRAGGLERS_EVERY_NS, self._look_for_stragglers)
        since_ns = self.timeline.now_ns - FOLLOWED_ELECTIONS * self.plan.election_max_ms * MILLISECOND
        for number, (leader, elected_ns) in self._office.items():
            node = self.nodes[leader.node]
            if max(elected_ns, self._disturbed_ns[number]) > since_ns or not leader.leading:
                continue
            if node.group(number) is not leader or not node.undisturbed(since_ns):
                continue
            for member in leader.raft.members:
                group = self.nodes[member.node].group(number)
                if (
                    group is not None
                    and group.raft.leader != leader.node
                    and self.nodes[member.node].undisturbed(since_ns)
                    and self.network.undisturbed(leader.node, member.node, since_ns)
                ):
                    message = f"group {number}: node {member.node} in term {group.raft.term} does not follow"
                    raise Violation(
                        "left behind", f"{message} node {leader.node}, which leads in term {leader.raft.term}"
                    )

    def applied(self, group: Group, entry: Entry) -> None:
        number = group.number
        table = group.table
        first = self.committed.applied(number, entry.index, entry.term, crc32(entry.data), group.node)
        if entry.index % HASHED_EVERY == 0:
            self._compare_state(group, "")
        # A member that joins knows the founders only once a later configuration says who they are.
        if members := group.raft.members_at(entry.index):
            self.same_members.observed(number, entry.index, members, group.node)
        if first:
            history = self.histories[number]
            events, _ = table.events(self._revisions[number], b"", True, EVENTS_PER_ENTRY_MAX)
            self._revisions[number] = table.revision
            for revision, kind, key, token in self.plain_events(events):
                self.reach(kind)
                self.say(f"group {number} @{entry.index}: {kind} {key!r} token {token} revision {revision}")
                history.happened(revision, kind, key, token)
            self._note_ends_and_moves(group, entry)
            for event in events:
                self.exclusion.happened(_EVENT_NAMES[event.kind], event.key, event.token, event.mode)
            self.happenings.extend(
                Happening(e.revision, _EVENT_NAMES[e.kind], e.key, e.token, int(e.owner or b"0", 16))
                for e in events
            )

    def _note_ends_and_moves(self, group: Group, entry: Entry) -> None:
        """Tell the recorder which leases an entry ended, and where keys went. Few entries need decoding."""
        noted = [o for o in group.table.outcomes_list() if o.position >= 0 and o.kind in _NOTED]
        if not noted:
            return
        commands = decode_log_entry(entry.data)["commands"]
        for outcome in noted:
            command = commands[outcome.position]
            if outcome.code != Code.ok or self._is_repeat(group.number, command):
                continue
            if outcome.kind in _ENDS:
                lease = command["leaseHigh"] << 64 | command["leaseLow"]
                self.recorder.lease_ended(lease, group.number, outcome.revision, _ENDS[outcome.kind])
            elif (export := command.get("exportSlots")) is not None:
                self._note_move(export, export["toGroup"], complete=False)
            else:
                self._note_import(command["importSlots"], group.number)

    def _note_import(self, command: dict[str, Any], group: int) -> None:
        for record in command["rows"]:
            if record[0] == RowKind.lease:
                row = decode_lease_row(record[RECORD_HEAD_BYTES:])
                self.recorder.lease_arrives(row["leaseHigh"] << 64 | row["leaseLow"], group)
        if command["complete"]:
            self._note_move(command, group, complete=True)

    def _is_repeat(self, group: int, command: dict[str, Any]) -> bool:
        """Whether it was answered before, and acted then."""
        name = (group, command["session"], command["sequence"])
        if not command["session"] or name not in self._noted:
            self._noted.add(name)
            return False
        return True

    def _note_move(self, command: dict[str, Any], group: int, complete: bool) -> None:
        for key in self.catalogue.keys_between(command["first"], command["last"]):
            self.recorder.arrived(key, group, complete)

    def frozen(self, group: Group) -> None:
        self._compare_state(group, " at a checkpoint")

    def _compare_state(self, group: Group, how: str) -> None:
        state_hash = group.table.state_hash()
        self.trace.mix(state_hash)
        if how:
            group.table.check_invariants()
        where = f"node {group.node}{how}"
        self.same_state.observed(group.number, group.table.applied_index, state_hash, where)

    def loaded(self, group: Group) -> None:
        table = group.table
        installed = self.nodes[group.node].up
        self.reach("snapshot installed" if installed else "restart from rows")
        self.say(f"group {group.number}: node {group.node} from its rows at index {table.applied_index}")
        self._compare_state(group, " from its rows")

    def plain_events(self, events: Sequence[Event]) -> list[tuple[int, str, bytes, int]]:
        return [(event.revision, _EVENT_NAMES[event.kind], event.key, event.token) for event in events]

    def acknowledged(self, key: bytes, token: int, claim: str) -> None:
        self.say(f"{claim} holds {key!r} with token {token}")
        self.histories[self.catalogue.group_of(key)].acknowledged(key, token, claim)

    def new_stream(
        self, client: Workload, group: int, key: bytes, is_prefix: bool, start: int
    ) -> WatchStream:
        name = f"client {client.address} watching {key!r} in group {group}"
        stream = WatchStream(self.histories[group], key, start, name, is_prefix)
        self.streams.append((client, stream))
        return stream

    def _live_streams(self) -> list[WatchStream]:
        return [stream for client, stream in self.streams if not client.dead]

    def leader(self, number: int) -> Group | None:
        """The leader with the highest term among the nodes that run."""
        best: Group | None = None
        for node in self.nodes.values():
            group = node.group(number)
            if group is not None and group.leading and (best is None or group.raft.term > best.raft.term):
                best = group
        return best

    # The run.

    def run(self) -> Summary:
        summary = Summary(self.plan.seed)
        self.say(self.plan.describe())
        try:
            self.misfortune = faults = Faults(self)
            for node in self.nodes.values():
                node.start()
            self.admin = admin = self.new_admin()
            for _ in range(self.plan.clients):
                self.new_client()
            for number in self.group_numbers:
                admin.watch(number, b"", is_prefix=True)
            self._look_for_stragglers()
            faults.begin()
            self._pass(summary, FAULT_PHASE_NS, lambda: sum(self.faults.values()) >= FAULTS_MIN)
            faults.end()
            if self.plan.slow:
                self._pass_slowly(summary, faults)
            self._pass(summary, RECOVERY_NS, lambda: self.operations >= OPERATIONS_MIN)
            self.stopping = True
            self._pass(summary, DRAIN_NS, lambda: True)
            self._everything_progressed()
            # A watcher that picked a node which is no member any more has to find another one first.
            self._pass(summary, 0, lambda: all(stream.caught_up for stream in self._live_streams()))
            self._judge(summary)
        except Violation as violation:
            summary.violation, summary.checker = violation.message, violation.checker
        except Exception as broken:
            # The core's own assertions, and whatever else no run may raise.
            summary.violation, summary.checker = f"{type(broken).__name__}: {broken}", "exception"
            self.say(format_exc())
        self._fill(summary)
        return summary

    def _pass(self, summary: Summary, duration_ns: int, enough: Callable[[], bool]) -> None:
        """Let time pass, and a little more where too little happened."""
        summary.events += self.timeline.run_until(self.timeline.now_ns + duration_ns)
        for _ in range(EXTENSIONS_MAX):
            if enough():
                return
            summary.events += self.timeline.run_until(self.timeline.now_ns + SECOND)

    def _pass_slowly(self, summary: Summary, faults: Faults) -> None:
        """Minutes in which leaders come and go, and a lease that was left alone must end all the same."""
        self.think_max_ns = SLOW_THINK_NS
        for office in range(OFFICES):
            faults.change_leader()
            if office == 0:
                for number in self.group_numbers:
                    self.admin.spawn(self.admin.forsake(number, FORSAKEN_TTL_MS))
            self._pass(summary, OFFICE_NS, lambda: True)
        self.think_max_ns = self.plan.think_max_ns

    def new_admin(self) -> Operator:
        """A client that sets the groups up and watches them."""
        admin = Operator(
            self,
            FIRST_CLIENT - 1,
            self.timeline,
            self.network,
            self.random.fork(5),
            Clock(self.timeline),
            list(self.nodes),
        )
        self.clients[admin.address] = admin
        admin.workers = [admin.spawn(admin.own_slots())]
        return admin

    def _fill(self, summary: Summary) -> None:
        summary.simulated_ns = self.timeline.now_ns
        summary.operations = self.operations
        summary.grants = self.grants
        summary.elections = self.leaders.changes
        summary.faults = self.faults
        self.reached["checkpoint"] = sum(node.disk.checkpoints for node in self.nodes.values())
        for what in ("writes lost", "writes torn"):
            self.reached[what] = sum(node.disk.left_behind[what] for node in self.nodes.values())
        self.reached["log cut"] = sum(node.disk.cuts for node in self.nodes.values())
        self.reached["leader unseated"] = sum(len(cases) for cases in self.disruption.unseated.values())
        self.reached["fenced write refused"] = self.resource.refused
        self.reached["states compared"] = self.same_state.compared
        self.reached["watch event"] = sum(stream.received for _, stream in self.streams)
        summary.reached = self.reached
        summary.trace_hash = self.trace.hash()
        summary.trace = self.trace.lines

    # The judgement.

    def _judge(self, summary: Summary) -> None:
        self._replicas_agree()
        self._leases_ended()
        self.disruption.verify()
        for stream in self._live_streams():
            stream.finished()
        if self.clocks_honest:
            self._nobody_believed_wrongly()
        verdict = check(self.recorder.operations(), self.happenings)
        summary.configurations = verdict.configurations
        if not verdict.linearizable:
            name = "linearizability" if verdict.decided else "linearizability undecided"
            raise Violation(name, verdict.explanation)

    def _everything_progressed(self) -> None:
        for client in self.clients.values():
            if client.dead:
                continue
            for process in client.workers:
                if not process.finished:
                    raise Violation("liveness", f"client {client.address} is still not done")

    def _replicas_agree(self) -> None:
        for number in self.group_numbers:
            leader = self.leader(number)
            if leader is None:
                raise Violation("liveness", f"group {number} has no leader at the end")
            self._compare_state(leader, " at the end")
            applied = leader.table.applied_index
            for member in leader.raft.members:
                group = self.nodes[member.node].group(number)
                if group is None or group.table.applied_index != applied:
                    behind = -1 if group is None else group.table.applied_index
                    message = f"group {number}: node {member.node} applied {behind} of {applied}"
                    raise Violation("liveness", message)
                self._compare_state(group, " at the end")
        for number in self.group_numbers:
            self._grants_stand(number)

    def _grants_stand(self, number: int) -> None:
        for key, token, claim in self.histories[number].standing():
            leader = self.leader(self.catalogue.group_of(key))
            assert leader is not None
            state = leader.table.get(key)
            tokens = [holder["revision"] for holder in state["holders"]] if state else []
            if token not in tokens:
                raise Violation(
                    "grants stay", f"{claim} was told token {token} of {key!r}, holders are {tokens}"
                )

    def _leases_ended(self) -> None:
        """Leases that nobody kept alive for so long that, elections or not, they must have ended."""
        living = {number: self._living_leases(number) for number in self.group_numbers}
        for client in self.clients.values():
            for lease in client.leases:
                silence_ns = self.timeline.now_ns - lease.touched_ns
                bound_ns = LEASE_LIVES_MAX * lease.ttl_max_ms * MILLISECOND + FORWARD_LATE_MAX_NS
                if silence_ns > bound_ns and (lease.high, lease.low) in living[lease.group]:
                    message = f"lease {lease.number:x} with a TTL of {lease.ttl_max_ms} ms is still there"
                    raise Violation(
                        "leases end", f"{message} {silence_ns // MILLISECOND} ms after it was used"
                    )

    def _living_leases(self, number: int) -> set[tuple[int, int]]:
        leader = self.leader(number)
        assert leader is not None
        leases = leader.table.dump()["leases"]
        # Generation 0: ended, and left for what it has in slots that were exported.
        return {lease for lease, content in leases.items() if content["generation"]}

    def _nobody_believed_wrongly(self) -> None:
        end_ns = self.timeline.now_ns
        for client in self.clients.values():
            for hold in client.holds:
                until_ns = hold.end_ns or end_ns
                for start_ns, span_end_ns in hold.lease.spans:
                    self.believers.believed(
                        hold.key,
                        Belief(
                            max(start_ns, hold.start_ns),
                            min(span_end_ns, until_ns),
                            hold.claim,
                            hold.mode,
                            hold.units,
                            hold.limit,
                        ),
                    )
        self.believers.verify()
