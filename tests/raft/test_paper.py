"""One test for each claim of the Raft paper (extended version, §) and of the dissertation (diss. §)."""

from __future__ import annotations

from itertools import combinations

import pytest

from fastlock._core.raft import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE, Refused
from fastlock._core.raft_message import (
    APPEND,
    APPEND_REPLY,
    ENTRY_NOOP,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    READ_INDEX,
    READ_INDEX_REPLY,
    ROLE_LEARNER,
    SNAPSHOT_CHUNK,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Member,
    Message,
)
from fastlock._core.raft_settings import RaftSettings

from .cluster import FAST, GROUP, Cluster, Node, batch, voters
from .member import Lone, change, entry, log_of, only


def propose(member: Lone, key: str = "x") -> int:
    return member.raft.propose(batch(member.raft.term, member.raft.next_index, key))


# §5.1 Terms


@pytest.mark.parametrize("start", [FOLLOWER, CANDIDATE, LEADER])
def test_a_larger_term_makes_anyone_a_follower_of_that_term(start: int) -> None:
    """Raft §5.1."""
    member = Lone(log=log_of(1))
    if start == CANDIDATE:
        member.become_candidate()
    elif start == LEADER:
        member.become_leader()
    assert member.raft.role == start
    member.receive(APPEND, term=9)
    assert (member.raft.role, member.raft.term, member.raft.leader) == (FOLLOWER, 9, 2)


def test_a_request_with_a_stale_term_is_refused() -> None:
    """Raft §5.1."""
    member = Lone(log=log_of(1, 1), term=5)
    (reply,) = member.receive(APPEND, term=4, index=2, log_term=1, entries=[entry(4, 3)])
    assert (reply.reject, reply.term, member.terms()) == (True, 5, [1, 1])
    (reply,) = member.ask_vote(2, 4, 9, 4)
    assert (reply.reject, reply.term, member.raft.vote) == (True, 5, 0)


# §5.2 Leader election


def test_servers_start_as_followers() -> None:
    """Raft §5.2."""
    assert Lone().raft.role == FOLLOWER


def test_a_leader_sends_heartbeats_to_everyone_at_their_interval() -> None:
    """Raft §5.2."""
    member = Lone()
    member.become_leader()
    assert only(member.tick(FAST.heartbeat_ms - 1), HEARTBEAT) == []
    beats = only(member.tick(1), HEARTBEAT)
    assert [beat.target for beat in beats] == [2, 3]


def test_a_follower_that_hears_nothing_begins_an_election() -> None:
    """Raft §5.2."""
    member = Lone()
    member.tick(FAST.election_ms_min - 1)
    assert member.raft.role == FOLLOWER
    member.tick(FAST.election_ms_max)
    assert member.raft.role == PRE_CANDIDATE


def test_a_follower_that_hears_its_leader_stays_one() -> None:
    """Raft §5.2."""
    member = Lone(term=1)
    for _ in range(50):
        member.tick(100)
        member.receive(HEARTBEAT, term=1)
    assert member.raft.role == FOLLOWER


def test_a_candidate_increments_its_term_votes_for_itself_and_asks_everyone() -> None:
    """Raft §5.2."""
    member = Lone(log=log_of(1, 2), term=2)
    member.become_candidate()
    requests = only(member.sync(), VOTE)
    assert (member.raft.term, member.raft.vote, member.raft.role) == (3, 1, CANDIDATE)
    assert [(message.target, message.term, message.index, message.log_term) for message in requests] == [
        (2, 3, 2, 2),
        (3, 3, 2, 2),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
def test_a_candidate_wins_with_the_votes_of_a_majority_and_not_before(size: int) -> None:
    """Raft §5.2."""
    member = Lone(members=voters(*range(1, size + 1)))
    member.become_candidate()
    member.sync()
    needed = size // 2 + 1
    for voter in range(2, needed + 1):
        assert member.raft.role == CANDIDATE
        member.receive(VOTE_REPLY, voter)
    assert member.raft.role == LEADER


def test_a_candidate_that_is_refused_by_a_majority_gives_up() -> None:
    """Raft §5.2."""
    member = Lone()
    member.become_candidate()
    member.sync()
    member.receive(VOTE_REPLY, 2, reject=True)
    member.receive(VOTE_REPLY, 3, reject=True)
    assert member.raft.role == FOLLOWER


def test_a_repeated_vote_counts_once() -> None:
    """Raft §5.2."""
    member = Lone(members=voters(1, 2, 3, 4, 5))
    member.become_candidate()
    member.sync()
    member.receive(VOTE_REPLY, 2)
    member.receive(VOTE_REPLY, 2)
    assert member.raft.role == CANDIDATE


def test_one_vote_a_term_first_come_first_served() -> None:
    """Raft §5.2."""
    member = Lone()
    member.ask_vote(2, 1, 0, 0)
    (granted,) = only(member.sync(), VOTE_REPLY)
    assert (granted.target, granted.reject) == (2, False)
    (refused,) = only(member.ask_vote(3, 1, 0, 0), VOTE_REPLY)
    assert (refused.target, refused.reject) == (3, True)
    (again,) = only(member.ask_vote(2, 1, 0, 0), VOTE_REPLY)
    assert (again.target, again.reject) == (2, False)


@pytest.mark.parametrize("term", [3, 4])
def test_a_candidate_follows_a_leader_of_its_own_or_a_later_term(term: int) -> None:
    """Raft §5.2."""
    member = Lone(log=log_of(1), term=2)
    member.become_candidate()
    assert member.raft.term == 3
    member.receive(APPEND, term=term, index=1, log_term=1)
    assert (member.raft.role, member.raft.leader, member.raft.term) == (FOLLOWER, 2, term)


def test_a_candidate_ignores_a_leader_of_an_earlier_term() -> None:
    """Raft §5.2."""
    member = Lone(log=log_of(1), term=2)
    member.become_candidate()
    member.receive(APPEND, term=2, index=1, log_term=1)
    assert member.raft.role == CANDIDATE


def test_election_timeouts_are_random_within_their_range() -> None:
    """Raft §5.2."""
    cluster = Cluster(7)
    due = [node.raft.next_tick_ms for node in cluster.nodes.values()]
    for _ in range(200):
        for node in cluster.nodes.values():
            node.raft.step(_heartbeat(node.id), 0)
        due += [node.raft.next_tick_ms for node in cluster.nodes.values()]
    assert min(due) >= FAST.election_ms_min
    assert max(due) < FAST.election_ms_max
    assert len(set(due)) > (FAST.election_ms_max - FAST.election_ms_min) // 2


def _heartbeat(target: int) -> Message:
    return Message(HEARTBEAT, group=GROUP, source=99, target=target, term=1)


@pytest.mark.parametrize("seed", range(10))
def test_a_split_vote_is_followed_by_an_election_that_succeeds(seed: int) -> None:
    """Raft §5.2."""
    cluster = Cluster(4, seed=seed)
    cluster[1].raft.campaign()
    cluster[2].raft.campaign()
    cluster.run(2000)
    assert len(cluster.leaders) == 1


# §5.3 Log replication


def test_a_leader_appends_a_command_and_sends_it_in_parallel() -> None:
    """Raft §5.3."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    index = propose(member, "a")
    sent = only(member.flush(), APPEND)
    carrying = [(message.target, [e.index for e in message.entries]) for message in sent if message.entries]
    assert carrying == [(2, [index]), (3, [index])]


@pytest.mark.parametrize("size", [3, 4, 5, 6, 7])
def test_an_entry_is_committed_once_a_majority_has_it(size: int) -> None:
    """Raft §5.3."""
    member = Lone(members=voters(*range(1, size + 1)))
    member.become_leader()
    for follower in range(2, size // 2 + 2):
        assert member.raft.commit_index == 0
        member.acknowledge(follower, 1)
    assert member.raft.commit_index == 1


def test_a_commit_takes_everything_before_it_along() -> None:
    """Raft §5.3."""
    member = Lone(log=log_of(1, 2, 2), term=2)
    member.become_leader()
    member.acknowledge(2, 4)
    assert member.raft.commit_index == 4
    assert [e.index for e in member.applied] == [1, 2, 3, 4]


def test_a_follower_applies_in_log_order_what_the_leader_committed() -> None:
    """Raft §5.3."""
    member = Lone(term=1)
    member.append(0, 0, entry(1, 1), entry(1, 2), entry(1, 3), term=1, commit=2)
    member.sync()
    assert [e.index for e in member.applied] == [1, 2]
    member.receive(HEARTBEAT, term=1, commit=3)
    assert [e.index for e in member.applied] == [1, 2, 3]


def test_a_follower_commits_no_further_than_what_the_message_proves_to_match() -> None:
    """Raft Figure 2."""
    member = Lone(log=log_of(1, 1, 1, 1), term=1)
    member.append(2, 1, term=2, commit=4)
    assert member.raft.commit_index == 2


@pytest.mark.parametrize(("index", "term"), [(2, 2), (3, 1), (1, 3)])
def test_an_append_whose_predecessor_does_not_match_is_refused(index: int, term: int) -> None:
    """Raft §5.3."""
    member = Lone(log=log_of(1, 1), term=3)
    (reply,) = only(member.append(index, term, entry(3, index + 1)), APPEND_REPLY)
    assert reply.reject
    assert member.terms() == [1, 1]


FIGURE_7 = {
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}
FIGURE_7_LEADER = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)


@pytest.mark.parametrize("case", FIGURE_7)
def test_a_leader_forces_a_follower_s_log_to_be_its_own(case: str) -> None:
    """Raft Figure 7 and §5.3."""
    cluster = Cluster(3)
    give_log(cluster[1], FIGURE_7_LEADER, term=7)
    give_log(cluster[2], FIGURE_7[case], term=7)
    give_log(cluster[3], (), term=7)
    rejections = count_rejections(cluster, by=2)
    # In case (d) member 2 would not vote for 1; the empty log of 3 gives the majority.
    cluster.elect(1)
    cluster.run(200)
    expected = [*FIGURE_7_LEADER, 8]
    assert [e.term for e in cluster[2].raft.log_entries()] == expected
    assert [e.term for e in cluster[1].raft.log_entries()] == expected
    divergent_terms = len(set(FIGURE_7[case]) - set(FIGURE_7_LEADER))
    assert len(rejections) <= divergent_terms + 1


def count_rejections(cluster: Cluster, by: int) -> list[Message]:
    """The appends that a member refuses from here on."""
    found: list[Message] = []

    def watch(message: Message) -> None:
        if message.kind == APPEND_REPLY and message.source == by and message.reject:
            found.append(message)

    cluster.watch = watch
    return found


def give_log(node: Node, terms: tuple[int, ...], term: int) -> None:
    node.crash()
    node.disk.term = term
    node.disk.entries = log_of(*terms)
    node.start()


def test_at_most_one_rejection_for_each_divergent_term() -> None:
    """Raft §5.3."""
    cluster = Cluster(3)
    give_log(cluster[1], (1, 1, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5), term=5)
    give_log(cluster[2], (1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4), term=5)
    give_log(cluster[3], (1, 1, 5), term=5)
    rejections = count_rejections(cluster, by=2)
    cluster.elect(1)
    assert [e.term for e in cluster[2].raft.log_entries()] == [1, 1, *[5] * 13, 6]
    assert len(rejections) <= 3


def test_a_leader_never_changes_its_own_entries() -> None:
    """Raft §5.3."""
    member = Lone(log=log_of(1, 1), term=1)
    member.become_leader()
    before = [e.data for e in member.raft.log_entries()]
    member.receive(APPEND, 3, index=1, log_term=1, entries=[entry(2, 2), entry(2, 3)])
    assert [e.data for e in member.raft.log_entries()] == before


def test_same_index_and_term_means_same_entry_and_same_past() -> None:
    """Raft §5.3."""
    cluster = Cluster(5)
    for term in range(1, 12):
        leader = cluster.elect(term % 5 + 1)
        cluster.isolate(*[node for node in range(1, 6) if node not in (leader.id, (leader.id + 1) % 5 + 1)])
        for number in range(3):
            leader.propose(f"{term}.{number}")
        cluster.settle()
        cluster.heal()
        cluster.run(1000)
    logs = [{e.index: e for e in node.raft.log_entries()} for node in cluster.nodes.values()]
    for one, other in combinations(logs, 2):
        same = [index for index in one.keys() & other.keys() if one[index].term == other[index].term]
        assert same
        assert all(one[i].data == other[i].data for i in range(1, max(same) + 1))


def test_a_leader_repeats_until_a_follower_has_everything() -> None:
    """Raft §5.3."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    for number in range(5):
        leader.propose(str(number))
    cluster.run(2000)
    assert cluster[3].raft.last_index == 1
    cluster.heal()
    cluster.run(500)
    assert cluster[3].applied == leader.applied


# §5.4 Safety


@pytest.mark.parametrize(
    ("index", "term", "granted"),
    [(3, 2, True), (2, 2, False), (4, 2, True), (1, 3, True), (9, 1, False), (3, 3, True), (0, 0, False)],
)
def test_a_vote_goes_only_to_a_log_that_is_at_least_as_up_to_date(
    index: int, term: int, granted: bool
) -> None:
    """Raft §5.4.1."""
    member = Lone(log=log_of(1, 2, 2), term=4)
    member.ask_vote(2, 5, index, term)
    member.sync()
    assert (member.raft.vote == 2) is granted
    (reply,) = only(member.ask_pre_vote(3, 6, index, term), PRE_VOTE_REPLY)
    assert reply.reject is not granted


def test_only_entries_of_the_own_term_are_committed_by_counting() -> None:
    """Raft §5.4.2."""
    member = Lone(log=log_of(1, 2), term=2)
    member.become_leader()
    member.acknowledge(2, 2)
    member.acknowledge(3, 2)
    assert member.raft.commit_index == 0
    member.acknowledge(2, 3)
    assert member.raft.commit_index == 3


def test_a_new_leader_has_every_committed_entry() -> None:
    """Raft §5.4.3."""
    cluster = Cluster(5)
    committed: dict[int, int] = {}
    for term in range(1, 10):
        cluster.heal()
        cluster.run(600)
        leader = cluster.leader()
        leader.propose(f"entry {term}")
        cluster.settle()
        committed |= {index: entry_term for index, entry_term, _ in leader.applied}
        log = {e.index: e.term for e in leader.raft.log_entries()}
        assert committed.items() <= log.items()
        cluster.isolate(leader.id, leader.id % 5 + 1)
        cluster.run(600)


def test_no_two_members_apply_different_entries_at_one_index() -> None:
    """Raft §5.4.3."""
    cluster = Cluster(3)
    for _ in range(8):
        cluster.run(600)
        leader = cluster.leader()
        leader.propose("lost or not")
        leader.take_ready()
        cluster.isolate(leader.id)
        cluster.run(600)
        cluster.leader().propose("kept")
        cluster.settle()
        cluster.heal()
    cluster.run(600)
    assert cluster[1].applied == cluster[2].applied == cluster[3].applied
    assert len(cluster[1].applied) > 16


# §5.5 Crashes


def test_repeated_messages_change_nothing() -> None:
    """Raft §5.5."""
    member = Lone(term=1)
    for _ in range(3):
        member.append(0, 0, entry(1, 1), entry(1, 2), term=1, commit=1)
        (reply,) = only(member.sync(), APPEND_REPLY)[-1:] or only(member.append(2, 1, term=1), APPEND_REPLY)
        assert (reply.index, reply.reject) == (2, False)
    assert (member.terms(), [e.index for e in member.applied]) == ([1, 1], [1])


def test_a_member_that_restarts_keeps_term_vote_and_log() -> None:
    """Raft Figure 2 and diss. §3.8."""
    cluster = Cluster(3)
    cluster.elect(1).propose("a")
    cluster.settle()
    cluster[2].crash()
    cluster[2].start()
    raft = cluster[2].raft
    assert (raft.term, raft.vote, raft.last_index, raft.commit_index) == (1, 1, 2, 0)
    raft.step(_vote(3, 2, 1), cluster.now_ms)
    assert raft.vote == 1


def _vote(source: int, target: int, term: int) -> Message:
    return Message(VOTE, group=GROUP, source=source, target=target, term=term, index=99, log_term=99)


# §6 and diss. chapter 4: membership


def test_a_configuration_is_used_as_soon_as_it_is_in_the_log() -> None:
    """Diss. §4.1."""
    member = Lone(term=1)
    member.append(0, 0, change(1, 1, voters(1, 2, 3, 4)), term=1)
    assert [m.node for m in member.raft.members] == [1, 2, 3, 4]
    assert member.raft.commit_index == 0


def test_a_configuration_that_is_replaced_gives_way_to_the_one_before() -> None:
    """Diss. §4.1."""
    member = Lone(log=[entry(1, 1), change(1, 2, voters(1, 2)), entry(1, 3)])
    assert len(member.raft.members) == 2
    member.append(1, 1, entry(2, 2), term=2)
    assert (len(member.raft.members), member.raft.members_index) == (3, 0)


def test_majorities_before_and_after_any_allowed_change_overlap() -> None:
    """Diss. §4.1."""
    for size in range(1, 8):
        before = set(range(1, size + 1))
        for after in [before | {size + 1}, *[before - {node} for node in before if size > 1]]:
            for old in combinations(before, len(before) // 2 + 1):
                assert all(set(old) & set(new) for new in combinations(after, len(after) // 2 + 1))


def test_a_change_of_two_members_is_refused() -> None:
    """Diss. §4.1."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    with pytest.raises(Refused, match="2 members change at once"):
        member.raft.propose_membership(voters(1))
    with pytest.raises(Refused, match="2 members change at once"):
        member.raft.propose_membership(voters(1, 2, 4))


def test_no_change_before_the_one_before_is_committed() -> None:
    """Diss. §4.1."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    member.raft.propose_membership(voters(1, 2, 3, 4))
    member.sync()
    with pytest.raises(Refused, match="change-in-flight"):
        member.raft.propose_membership(voters(1, 2, 3))
    member.acknowledge(2, 2)
    member.acknowledge(3, 2)
    assert member.raft.propose_membership(voters(1, 2, 3)) == 3


def test_no_change_before_a_commit_in_the_own_term() -> None:
    """Raft's mailing list, July 2015: the flaw in single-server changes, and its remedy."""
    member = Lone(log=log_of(1), term=1)
    member.become_leader()
    with pytest.raises(Refused, match="too-early"):
        member.raft.propose_membership(voters(1, 2))
    member.acknowledge(2, 2)
    assert member.raft.propose_membership(voters(1, 2)) == 3


def test_a_new_server_catches_up_before_it_counts() -> None:
    """Diss. §4.2.1."""
    cluster = Cluster(1)
    leader = cluster.elect(1)
    for number in range(30):
        leader.propose(str(number))
        cluster.settle()
    cluster.join(2)
    cluster.isolate(2)
    leader.raft.propose_membership([Member(1), Member(2, ROLE_LEARNER)])
    leader.propose("while the learner hears nothing")
    cluster.run(100)
    assert leader.raft.commit_index == leader.raft.last_index
    with pytest.raises(Refused, match="not-caught-up"):
        leader.raft.propose_membership(voters(1, 2))
    cluster.heal()
    cluster.run(200)
    assert cluster[2].applied == leader.applied
    leader.raft.propose_membership(voters(1, 2))
    cluster.run(100)
    assert [m.role for m in cluster[2].raft.members] == [0, 0]


def test_a_leader_that_removes_itself_leads_until_that_is_committed_and_does_not_count_itself() -> None:
    """Diss. §4.2.2."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    member.raft.propose_membership(voters(2, 3))
    member.sync()
    member.acknowledge(2, 2)
    assert (member.raft.role, member.raft.commit_index) == (LEADER, 1)
    member.acknowledge(3, 2)
    assert (member.raft.role, member.raft.commit_index) == (FOLLOWER, 2)


def test_a_server_outside_its_own_uncommitted_configuration_still_campaigns() -> None:
    """Diss. §4.2.2."""
    member = Lone(members=voters(1, 2), log=[entry(1, 1), change(1, 2, voters(2))])
    assert only(member.tick(400), PRE_VOTE)


def test_a_removed_server_does_not_campaign() -> None:
    """Diss. §4.2.2."""
    member = Lone(members=voters(1, 2), term=1)
    member.append(0, 0, entry(1, 1), change(1, 2, voters(2)), term=1, commit=2)
    member.sync()
    assert member.tick(4000) == []


def test_a_server_that_hears_a_leader_disregards_requests_for_votes() -> None:
    """Diss. §4.2.3."""
    member = Lone(term=1)
    member.receive(HEARTBEAT, term=1)
    member.tick(FAST.election_ms_min - 1)
    assert member.ask_vote(3, 9, 99, 9) == []
    assert member.ask_pre_vote(3, 9, 99, 9) == []
    assert (member.raft.term, member.raft.vote) == (1, 0)
    member.now_ms += 1
    member.ask_vote(3, 9, 99, 9)
    assert (member.raft.term, member.raft.vote) == (9, 3)


def test_availability_is_kept_while_members_change() -> None:
    """Diss. §4.2."""
    cluster = Cluster(3)
    cluster.elect(1)
    for arrives, leaves in ((4, 1), (5, 2), (6, 3)):
        cluster.join(arrives)
        for members in (
            lambda now, a=arrives: [*now, Member(a, ROLE_LEARNER)],
            lambda now, a=arrives: [*[m for m in now if m.node != a], Member(a)],
            lambda now, b=leaves: [m for m in now if m.node != b],
        ):
            leader = cluster.leader()
            leader.raft.propose_membership(members(leader.raft.members))
            cluster.run(600)
            cluster.leader().propose("still here")
            cluster.settle()
    leader = cluster.leader()
    assert [m.node for m in leader.raft.members] == [4, 5, 6]
    assert [key for _, _, key in leader.applied].count("still here") == 9


# §7 and diss. chapter 5: log compaction


def chunk(member: Lone, index: int, term: int, **fields: object) -> None:
    defaults: dict[str, object] = {"context": 5, "members": voters(1, 2, 3), "chunk": b"state", "last": True}
    member.receive(SNAPSHOT_CHUNK, index=index, log_term=term, **{**defaults, **fields})


def test_a_snapshot_of_an_unknown_index_replaces_the_whole_log() -> None:
    """Raft §7."""
    member = Lone(log=log_of(1, 1, 1), term=4)
    chunk(member, 9, 3, members=voters(1, 2))
    assert len(member.chunks) == 1
    member.raft.snapshot_installed(5)
    assert only(member.flush(), APPEND_REPLY) == []
    (reply,) = only(member.sync(), APPEND_REPLY)
    assert (reply.index, member.terms(), member.raft.commit_index) == (9, [], 9)
    assert [m.node for m in member.raft.members] == [1, 2]


def test_a_snapshot_of_a_prefix_keeps_what_follows_it() -> None:
    """Raft §7."""
    member = Lone(log=log_of(1, 1, 2, 2), term=4)
    chunk(member, 3, 2)
    member.raft.snapshot_installed(5)
    (reply,) = only(member.sync(), APPEND_REPLY)
    assert (reply.index, member.terms(), member.raft.last_index) == (3, [2], 4)


def test_a_snapshot_that_contradicts_the_log_replaces_it() -> None:
    """Raft §7."""
    member = Lone(log=log_of(1, 1, 1, 1, 1), term=4)
    chunk(member, 3, 2)
    member.raft.snapshot_installed(5)
    member.sync()
    assert (member.terms(), member.raft.last_index, member.raft.last_term) == ([], 3, 2)


def test_chunks_are_taken_in_order_and_only_once() -> None:
    """Raft Figure 13."""
    member = Lone(term=4)
    chunk(member, 9, 3, last=False)
    chunk(member, 9, 3, last=False)
    assert len(member.chunks) == 1
    member.raft.chunk_stored(5, 5)
    member.flush()
    chunk(member, 9, 3, hint_index=10, last=True)
    chunk(member, 9, 3, hint_index=0, last=True)
    assert len(member.chunks) == 1
    chunk(member, 9, 3, hint_index=5, last=True)
    assert len(member.chunks) == 2


def test_a_leader_sends_a_snapshot_only_when_it_discarded_what_the_follower_needs() -> None:
    """Raft §7."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    for number in range(6):
        leader.propose(str(number))
    cluster.settle()
    kinds: list[int] = []
    cluster.watch = lambda m: kinds.append(m.kind)
    leader.checkpoint()
    cluster.heal()
    cluster.run(200)
    assert SNAPSHOT_CHUNK not in kinds
    cluster.isolate(3)
    leader.propose("more")
    cluster.settle()
    leader.checkpoint()
    leader.cut()
    cluster.heal()
    cluster.run(500)
    assert SNAPSHOT_CHUNK in kinds
    assert cluster[3].applied == leader.applied


# §8 and diss. chapter 6: clients and reads


def test_a_new_leader_logs_a_no_op_of_its_term() -> None:
    """Raft §8."""
    member = Lone(log=log_of(1, 1), term=1)
    sent = only(member.become_leader(), APPEND)
    assert [(e.kind, e.term, e.index) for e in sent[0].entries] == [(ENTRY_NOOP, 2, 3)]


def test_a_read_waits_for_a_round_of_heartbeats_that_a_majority_answers() -> None:
    """Diss. §6.4."""
    member = Lone(members=voters(1, 2, 3, 4, 5))
    member.become_leader()
    for node in (2, 3):
        member.acknowledge(node, 1)
    member.raft.read_index(7)
    beats = only(member.flush(), HEARTBEAT)
    assert len(beats) == 4
    member.receive(HEARTBEAT_REPLY, 2, context=beats[0].context)
    assert member.reads == []
    member.receive(HEARTBEAT_REPLY, 2, context=beats[0].context)
    assert member.reads == []
    member.receive(HEARTBEAT_REPLY, 3, context=beats[0].context)
    assert member.reads == [7]


def test_an_answer_to_an_earlier_heartbeat_confirms_no_later_read() -> None:
    """Diss. §6.4."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    earlier = only(member.tick(FAST.heartbeat_ms), HEARTBEAT)[0].context
    member.raft.read_index(7)
    member.flush()
    member.receive(HEARTBEAT_REPLY, 2, context=earlier)
    assert member.reads == []


def test_many_reads_share_one_round_of_heartbeats() -> None:
    """Diss. §6.4."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    for context in range(100):
        member.raft.read_index(context)
    beats = only(member.flush(), HEARTBEAT)
    assert len(beats) == 2
    member.receive(HEARTBEAT_REPLY, 2, context=beats[0].context)
    assert member.reads == list(range(100))


def test_a_lone_voter_reads_without_asking_anyone() -> None:
    """Diss. §6.4."""
    member = Lone(members=voters(1))
    member.become_leader()
    member.sync()
    member.raft.read_index(3)
    assert member.flush() == []
    assert member.reads == [3]


def test_a_follower_reads_at_an_index_that_the_leader_confirmed_once_it_applied_it() -> None:
    """Diss. §6.4."""
    member = Lone(term=1)
    member.append(0, 0, entry(1, 1), term=1, commit=1)
    member.sync()
    member.raft.read_index(4)
    (asked,) = only(member.flush(), READ_INDEX)
    member.receive(READ_INDEX_REPLY, context=asked.context, index=2)
    assert member.reads == []
    member.append(1, 1, entry(1, 2), commit=2)
    assert member.reads == []
    member.sync()
    assert member.reads == [4]


# Diss. chapters 3, 9 and 10


def test_a_transfer_waits_until_the_target_has_the_log_and_takes_no_proposals() -> None:
    """Diss. §3.10."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    propose(member)
    member.sync()
    member.raft.transfer(3)
    assert only(member.flush(), TIMEOUT_NOW) == []
    with pytest.raises(Refused, match="transferring"):
        propose(member)
    assert only(member.acknowledge(3, 1), TIMEOUT_NOW) == []
    (now,) = only(member.acknowledge(3, 2), TIMEOUT_NOW)
    assert now.target == 3


def test_a_transfer_that_does_not_succeed_in_an_election_timeout_is_given_up() -> None:
    """Diss. §3.10."""
    member = Lone()
    member.become_leader()
    member.raft.transfer(3)
    for _ in range(7):
        member.tick(50)
        member.receive(HEARTBEAT_REPLY, 2)
    assert propose(member) == 2


def test_timeout_now_starts_a_campaign_without_waiting_and_overrides_stickiness() -> None:
    """Diss. §3.10 and §4.2.3."""
    member = Lone(term=1)
    member.receive(HEARTBEAT, term=1)
    member.receive(TIMEOUT_NOW, term=1)
    requests = only(member.sync(), VOTE)
    assert [request.force for request in requests] == [True, True]
    voter = Lone(term=1)
    voter.receive(HEARTBEAT, term=1)
    voter.ask_vote(3, 2, 0, 0, force=True)
    assert voter.raft.vote == 3


def test_a_pre_vote_changes_nothing_at_the_voter() -> None:
    """Diss. §9.6."""
    member = Lone(log=log_of(1), term=1)
    (reply,) = only(member.ask_pre_vote(2, 9, 5, 5), PRE_VOTE_REPLY)
    assert (reply.reject, reply.term) == (False, 9)
    assert (member.raft.term, member.raft.vote, member.unsynced) == (1, 0, [])


def test_a_campaign_follows_only_a_majority_of_pre_votes() -> None:
    """Diss. §9.6."""
    member = Lone(members=voters(1, 2, 3, 4, 5), term=1)
    member.tick(400)
    member.receive(PRE_VOTE_REPLY, 2, 2)
    assert (member.raft.role, member.raft.term) == (PRE_CANDIDATE, 1)
    member.receive(PRE_VOTE_REPLY, 3, 2)
    assert (member.raft.role, member.raft.term) == (CANDIDATE, 2)


def test_a_leader_without_a_majority_steps_down() -> None:
    """Diss. §6.2."""
    member = Lone()
    member.become_leader()
    for _ in range(20):
        member.tick(50)
        member.receive(HEARTBEAT_REPLY, 3)
    assert member.raft.role == LEADER
    member.tick(FAST.election_ms_max + 1)
    assert (member.raft.role, member.raft.leader) == (FOLLOWER, 0)


def test_a_leader_writes_to_its_disk_in_parallel_with_replicating() -> None:
    """Diss. §10.2.1."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    propose(member)
    assert only(member.flush(), APPEND)
    assert member.raft.durable_index == 1
    member.acknowledge(2, 2)
    assert member.raft.commit_index == 1
    member.acknowledge(3, 2)
    assert (member.raft.commit_index, member.raft.durable_index) == (2, 1)


def test_appends_are_pipelined_up_to_a_window() -> None:
    """Diss. §10.2.1."""
    member = Lone(settings=RaftSettings(inflight_messages_max=3))
    member.become_leader()
    member.acknowledge(2, 1)
    sent = 0
    for _ in range(6):
        propose(member)
        sent += len([m for m in only(member.flush(), APPEND) if m.target == 2 and m.entries])
    assert sent == 3
    member.sync()
    more = [m for m in only(member.acknowledge(2, 3), APPEND) if m.target == 2 and m.entries]
    assert [e.index for m in more for e in m.entries] == [5, 6, 7]
