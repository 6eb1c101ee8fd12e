"""One test for each trap that has bitten a Raft somewhere: each fails if the trap is walked into."""

from __future__ import annotations

import random

import pytest

from fastlock._core.raft import CANDIDATE, FOLLOWER, LEADER, Raft, Refused
from fastlock._core.raft_message import (
    APPEND,
    APPEND_REPLY,
    ENTRY_MEMBERSHIP,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    READ_INDEX,
    READ_INDEX_REPLY,
    ROLE_LEARNER,
    ROLE_WITNESS,
    SNAPSHOT_CHUNK,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Entry,
    Member,
    Message,
)
from fastlock._core.raft_settings import RaftSettings

from .cluster import FAST, GROUP, Cluster, batch, voters
from .member import Lone, change, entry, log_of, noop, only

# What a leader accepts as one entry.
ENTRY_BYTES_MAX = 256 << 10


def propose(member: Lone) -> int:
    return member.raft.propose(batch(member.raft.term, member.raft.next_index))


# Reads


def test_no_read_before_the_first_commit_of_the_term() -> None:
    """1. The old leader committed entry 2 and told nobody. 2. The new one has it and does not know that it
    is committed. 3. A read at its commit index would miss what a client was already told.
    """
    member = Lone(log=log_of(1, 1), term=1)
    member.become_leader()
    member.raft.read_index(7)
    beats = only(member.tick(FAST.heartbeat_ms), HEARTBEAT)
    member.receive(HEARTBEAT_REPLY, 2, context=beats[0].context)
    member.receive(HEARTBEAT_REPLY, 3, context=beats[0].context)
    assert member.reads == []
    beats = only(member.acknowledge(2, 3), HEARTBEAT)
    member.receive(HEARTBEAT_REPLY, 2, context=beats[0].context)
    assert member.reads == [7]
    assert member.raft.handed_index == 3


def test_a_follower_s_read_is_parked_until_the_first_commit_of_the_term() -> None:
    member = Lone(log=log_of(1), term=1)
    member.become_leader()
    assert member.receive(READ_INDEX, 2, context=40) == []
    beats = only(member.acknowledge(3, 2), HEARTBEAT)
    (reply,) = only(member.receive(HEARTBEAT_REPLY, 3, context=beats[0].context), READ_INDEX_REPLY)
    assert (reply.target, reply.context, reply.index, reply.reject) == (2, 40, 2, False)


def test_a_read_token_is_worthless_to_another_leader() -> None:
    """The answer of the leader of term 1 reaches a follower that asked the leader of term 2."""
    member = Lone(term=1)
    member.append(0, 0, entry(1, 1), term=1, commit=1)
    member.sync()
    member.raft.read_index(7)
    (first,) = only(member.flush(), READ_INDEX)
    member.receive(HEARTBEAT, 3, term=2)
    assert member.lost == [7]
    member.sync()
    member.raft.read_index(8)
    (second,) = only(member.flush(), READ_INDEX)
    assert second.context != first.context
    member.receive(READ_INDEX_REPLY, 2, term=1, context=second.context, index=1)
    member.receive(READ_INDEX_REPLY, 2, term=2, context=second.context, index=1)
    member.receive(READ_INDEX_REPLY, 3, term=2, context=first.context, index=1)
    assert member.reads == []
    member.receive(READ_INDEX_REPLY, 3, term=2, context=second.context, index=1)
    assert member.reads == [8]


def test_a_read_token_is_worthless_after_a_restart_in_the_same_term() -> None:
    """A member restarts and asks the same leader: the late answer to its life before must not fit."""
    contexts = []
    for seed in (1, 2):
        raft = Raft(group=GROUP, node=1, members=voters(1, 2, 3), seed=seed, term=1, settings=FAST)
        raft.step(Message(HEARTBEAT, group=GROUP, source=2, target=1, term=1), 0)
        raft.read_index(7)
        contexts.append(only(raft.ready().messages, READ_INDEX)[0].context)
    assert contexts[0] != contexts[1]


def test_a_deposed_leader_serves_no_read() -> None:
    """What a keep-alive rests on: a leader that was replaced cannot confirm anything."""
    cluster = Cluster(3)
    old = cluster.elect(1)
    cluster.isolate(1)
    cluster[2].raft.tick(cluster.now_ms + 400)
    cluster.now_ms += 400
    cluster.settle()
    assert cluster[2].raft.role == LEADER
    assert old.raft.role == LEADER
    old.raft.read_index(7)
    cluster.settle()
    cluster.heal()
    cluster.run(200)
    assert old.reads == []
    assert old.reads_lost == [7]


def test_a_learner_confirms_no_read() -> None:
    member = Lone(members=[*voters(1, 2, 3), Member(4, ROLE_LEARNER), Member(5, ROLE_LEARNER)])
    member.become_leader()
    member.acknowledge(2, 1)
    member.raft.read_index(7)
    context = only(member.flush(), HEARTBEAT)[0].context
    member.receive(HEARTBEAT_REPLY, 4, context=context)
    member.receive(HEARTBEAT_REPLY, 5, context=context)
    assert member.reads == []


# Elections


def test_pre_vote_and_check_quorum_do_not_lock_each_other_out() -> None:
    """1. Member 3 has a higher term and was cut off. 2. Back, it ignores the leader, whose term is lower.
    3. Its own pre-votes are ignored by those who hear the leader. 4. Only its answer to the leader ends
    that.
    """
    cluster = Cluster(3)
    leader = cluster.elect(1)
    leader.propose("a")
    cluster.settle()
    leader.raft.transfer(3)
    leader.take_ready()
    cluster.deliver()
    cluster.work()
    cluster.drop()
    assert (cluster[3].raft.role, cluster[3].raft.term) == (CANDIDATE, 2)
    cluster.isolate(3)
    cluster.run(1000)
    cluster.heal()
    cluster.run(1500)
    assert len(cluster.leaders) == 1
    assert {node.raft.leader for node in cluster.nodes.values()} == set(cluster.leaders)


def test_a_member_with_a_longer_log_and_a_lower_term_does_not_block_the_group() -> None:
    """The vote of a member with the longest log is needed, but its term is behind: it has to learn the
    term.
    """
    cluster = Cluster(2)
    cluster.elect(1).propose("a")
    cluster[1].take_ready()
    cluster[1].sync()
    cluster.drop()
    cluster[2].crash()
    cluster[2].disk.term = 7
    cluster[2].start()
    cluster.run(3000)
    assert len(cluster.leaders) == 1
    assert cluster[1].applied == cluster[2].applied


def test_a_server_does_not_disrupt_the_group_after_a_partition_heals() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    cluster.isolate(4, 5)
    cluster.run(5000)
    cluster.heal()
    cluster.run(1000)
    assert cluster.leaders == [1]
    assert leader.raft.term == 1


def test_a_removed_server_does_not_disrupt_the_group() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    leader.raft.propose_membership(voters(1, 2))
    cluster.settle()
    cluster.heal()
    cluster.run(5000)
    assert cluster.leaders == [1]
    assert leader.raft.term == 1


def test_a_vote_is_durable_before_it_leaves() -> None:
    """1. A member votes for 2 in term 1 and crashes. 2. Had the vote left before it was durable, the
    member would vote for 3 in the same term, and both could win.
    """
    member = Lone()
    assert member.ask_vote(2, 1, 0, 0) == []
    assert only(member.sync(), VOTE_REPLY)[0].reject is False


def test_a_request_for_votes_leaves_only_with_a_durable_term_and_log() -> None:
    """1. A candidate asks with an entry that its disk does not have, and crashes. 2. It comes back without
    the entry, campaigns in the same term, and counts the votes that were given to the longer log.
    """
    member = Lone(term=1)
    member.append(0, 0, entry(1, 1), term=1)
    member.receive(TIMEOUT_NOW, term=1)
    assert member.raft.role == CANDIDATE
    assert only(member.flush(), VOTE) == []
    assert only(member.sync(1), VOTE) == []
    assert len(only(member.sync(), VOTE)) == 2


def test_an_own_vote_counts_only_when_durable() -> None:
    member = Lone()
    member.become_candidate()
    assert only(member.sync(), VOTE)
    member.receive(VOTE_REPLY, 2)
    assert member.raft.role == LEADER
    lone = Lone(members=voters(1))
    lone.tick(400)
    assert lone.raft.role == CANDIDATE
    lone.sync()
    assert lone.raft.role == LEADER


def test_answers_to_a_question_that_was_not_asked_yet_elect_nobody() -> None:
    member = Lone()
    member.become_candidate()
    member.receive(VOTE_REPLY, 2)
    member.receive(VOTE_REPLY, 3)
    assert member.raft.role == CANDIDATE


def test_a_timeout_now_of_the_past_is_ignored() -> None:
    member = Lone(term=5)
    member.receive(HEARTBEAT, term=5)
    member.receive(TIMEOUT_NOW, term=4)
    member.receive(TIMEOUT_NOW, 3, term=5)
    assert member.raft.role == FOLLOWER


# Membership


def test_no_membership_change_before_a_commit_in_the_current_term() -> None:
    """1. Leader 1 of four logs the removal of 4 and loses touch. 2. Leader 2 logs another change, commits
    it with its own majority, and loses touch. 3. If 1 could go on, two majorities that share nobody
    would decide.
    """
    member = Lone(members=voters(1, 2, 3, 4), log=log_of(1))
    member.become_leader()
    with pytest.raises(Refused) as refused:
        member.raft.propose_membership(voters(1, 2, 3))
    assert refused.value.reason == "too-early"


def test_two_membership_changes_are_never_in_flight() -> None:
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    member.raft.propose_membership([*voters(1, 2, 3), Member(4, ROLE_LEARNER)])
    with pytest.raises(Refused) as refused:
        member.raft.propose_membership([*voters(1, 2, 3), Member(5, ROLE_LEARNER)])
    assert refused.value.reason == "change-in-flight"


def test_a_change_inherited_from_an_earlier_leader_counts_as_in_flight() -> None:
    member = Lone(log=[entry(1, 1), change(1, 2, voters(1, 2, 3, 4))])
    member.become_leader()
    for node in (2, 3):
        member.acknowledge(node, 2)
    with pytest.raises(Refused, match="too-early"):
        member.raft.propose_membership(voters(1, 2, 3))


def test_a_learner_s_promotion_survives_a_restart_of_everyone() -> None:
    cluster = Cluster([*voters(1, 2, 3), Member(4, ROLE_LEARNER)])
    leader = cluster.elect(1)
    leader.raft.propose_membership(voters(1, 2, 3, 4))
    cluster.run(100)
    for checkpointed in (False, True):
        for node in cluster.nodes.values():
            if checkpointed:
                node.checkpoint()
                node.cut()
            node.crash()
            node.start()
            assert [m.role for m in node.raft.members] == [0, 0, 0, 0]
        cluster.run(1000)


def test_a_learner_never_counts_and_never_campaigns() -> None:
    member = Lone(members=[Member(1), Member(2), Member(3, ROLE_LEARNER), Member(4, ROLE_LEARNER)])
    member.become_leader()
    member.acknowledge(3, 1)
    member.acknowledge(4, 1)
    assert member.raft.commit_index == 0
    member.acknowledge(2, 1)
    assert member.raft.commit_index == 1
    learner = Lone(members=[Member(1, ROLE_LEARNER), Member(2), Member(3)])
    assert learner.tick(5000) == []


def test_a_learner_that_does_not_know_of_its_promotion_still_votes() -> None:
    """The candidate has the promotion in its log and needs this vote; the learner has not seen it yet."""
    learner = Lone(members=[Member(1, ROLE_LEARNER), Member(2)], log=log_of(1))
    learner.ask_vote(2, 2, 5, 1)
    assert only(learner.sync(), VOTE_REPLY)[0].reject is False


def test_a_witness_counts_and_never_leads() -> None:
    witness = Lone(members=[Member(1, ROLE_WITNESS), Member(2), Member(3)], term=1)
    assert witness.tick(5000) == []
    witness.receive(HEARTBEAT, term=1)
    witness.receive(TIMEOUT_NOW, term=1)
    assert witness.raft.role == FOLLOWER
    member = Lone(members=[Member(1), Member(2), Member(3, ROLE_WITNESS)])
    member.become_leader()
    member.acknowledge(3, 1)
    assert member.raft.commit_index == 1
    with pytest.raises(Refused, match="invalid-target"):
        member.raft.transfer(3)


def test_the_last_member_that_can_lead_is_not_removed() -> None:
    member = Lone(members=[Member(1), Member(2, ROLE_LEARNER)])
    member.become_leader()
    with pytest.raises(Refused, match="no member would be left"):
        member.raft.propose_membership([Member(2, ROLE_LEARNER)])


def test_a_new_incarnation_enters_as_a_learner_and_from_nothing() -> None:
    """What the member acknowledged before it lost its memory must not count for its new self."""
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    with pytest.raises(Refused, match="must enter as a learner"):
        member.raft.propose_membership([Member(1), Member(2), Member(3, incarnation=2)])
    member.raft.propose_membership([Member(1), Member(2), Member(3, ROLE_LEARNER, incarnation=2)])
    member.sync()
    assert member.raft.status()["peers"][3]["match"] == 0
    member.acknowledge(2, 2)
    with pytest.raises(Refused, match="would return to incarnation 1"):
        member.raft.propose_membership([Member(1), Member(2), Member(3, ROLE_LEARNER)])


def test_a_member_that_may_have_lost_its_memory_stays_mute() -> None:
    """It may have voted in this term, and acknowledged what it no longer has: every answer could be a lie."""
    member = Lone(may_vote=False)
    assert member.append(0, 0, entry(1, 1), term=1) == []
    assert member.ask_vote(2, 5, 9, 4) == []
    assert member.ask_pre_vote(2, 5, 9, 4) == []
    assert member.receive(HEARTBEAT, term=5) == []
    assert member.receive(TIMEOUT_NOW, term=5) == []
    assert member.tick(10_000) == []
    assert (member.raft.term, member.raft.role, member.unsynced) == (0, FOLLOWER, [])
    with pytest.raises(Refused, match="muted"):
        member.raft.read_index(1)


# Durability


def test_nothing_is_acknowledged_before_it_is_durable() -> None:
    member = Lone(term=1)
    assert only(member.append(0, 0, entry(1, 1), entry(1, 2), term=1), APPEND_REPLY) == []
    (reply,) = only(member.sync(), APPEND_REPLY)
    assert reply.index == 2


def test_a_repeated_append_is_not_acknowledged_before_it_is_durable_either() -> None:
    """The entry is in memory already, so nothing is written: that must not look like durable."""
    member = Lone(term=1)
    member.append(0, 0, entry(1, 1), term=1)
    assert only(member.append(0, 0, entry(1, 1)), APPEND_REPLY) == []
    assert only(member.append(1, 1), APPEND_REPLY) == []
    assert {reply.index for reply in only(member.sync(), APPEND_REPLY)} == {1}
    (at_once,) = only(member.append(1, 1), APPEND_REPLY)
    assert at_once.index == 1


def test_a_known_entry_in_a_new_term_is_acknowledged_once_the_term_is_durable() -> None:
    member = Lone(log=log_of(1))
    assert only(member.append(1, 1, term=2), APPEND_REPLY) == []
    assert only(member.sync(), APPEND_REPLY)[0].term == 2


def test_a_heartbeat_is_confirmed_at_once_only_in_a_durable_term() -> None:
    member = Lone(term=1)
    assert len(only(member.receive(HEARTBEAT, term=1), HEARTBEAT_REPLY)) == 1
    assert only(member.receive(HEARTBEAT, term=2), HEARTBEAT_REPLY) == []
    assert only(member.sync(), HEARTBEAT_REPLY)[0].term == 2
    member.append(0, 0, entry(2, 1))
    assert len(only(member.receive(HEARTBEAT), HEARTBEAT_REPLY)) == 1


def test_a_leader_counts_itself_only_when_its_own_disk_has_the_entry() -> None:
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    propose(member)
    member.flush()
    member.acknowledge(2, 2)
    assert member.raft.commit_index == 1
    member.sync()
    assert member.raft.commit_index == 2


def test_a_lone_voter_commits_only_what_its_disk_has() -> None:
    member = Lone(members=voters(1))
    member.become_leader()
    member.sync()
    propose(member)
    member.flush()
    assert member.raft.commit_index == 1
    member.sync()
    assert member.raft.commit_index == 2


def test_an_acknowledgement_of_storage_does_not_prove_a_rewritten_index() -> None:
    """1. Write A has entry 2 of term 1. 2. Write B replaces it by entry 2 of term 2. 3. Storage
    acknowledges A. 4. Were entry 2 taken as durable, the acknowledgement to the leader of term 2 would
    be a lie until B is.
    """
    member = Lone(log=log_of(1), term=1)
    member.append(1, 1, entry(1, 2), term=1)
    member.append(1, 1, noop(2, 2), term=2)
    assert len(member.unsynced) == 2
    released = only(member.sync(1), APPEND_REPLY)
    assert [(reply.term, reply.index) for reply in released] == [(1, 2)]
    assert member.raft.durable_index == 1
    (at_last,) = only(member.sync(), APPEND_REPLY)
    assert (at_last.term, at_last.index, member.raft.durable_index) == (2, 2, 2)


def test_an_index_that_was_rewritten_to_the_same_entry_waits_for_the_last_write() -> None:
    """1. Write A has x at index 2. 2. B replaces it by y. 3. C replaces it by x again: A must prove
    nothing.
    """
    member = Lone(log=log_of(1), term=1)
    first = entry(2, 2, "x")
    member.append(1, 1, first, term=2)
    member.append(1, 1, entry(3, 2, "y"), term=3)
    member.append(1, 1, entry(4, 2, "x"), term=4)
    assert len(member.unsynced) == 3
    member.sync(1)
    assert member.raft.durable_index == 1
    member.sync(1)
    assert member.raft.durable_index == 1
    member.sync(1)
    assert member.raft.durable_index == 2


def test_a_truncation_that_arrives_between_a_step_and_its_write_counts_at_once() -> None:
    """The acknowledgement of the old write comes before the truncating write was even issued."""
    member = Lone(log=log_of(1), term=1)
    member.append(1, 1, entry(1, 2), entry(1, 3), term=1)
    member.raft.step(
        Message(APPEND, group=GROUP, source=3, target=1, term=2, index=1, log_term=1, entries=[noop(2, 2)]), 0
    )
    member.raft.persisted(member.unsynced.pop(0))
    assert member.raft.durable_index == 1


def test_storage_cannot_acknowledge_what_was_not_issued() -> None:
    member = Lone()
    with pytest.raises(ValueError, match="only 0 were issued"):
        member.raft.persisted(1)


def test_nothing_is_applied_before_it_is_committed() -> None:
    """Releasing a lock before the commit would be this."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(1)
    leader.propose("release")
    cluster.settle()
    assert [key for _, _, key in leader.applied] == [""]


def test_a_heartbeat_does_not_commit_what_the_member_does_not_have() -> None:
    member = Lone(log=log_of(1), term=1)
    member.receive(HEARTBEAT, term=1, commit=50)
    assert member.raft.commit_index == 1


# Logs and snapshots


def test_an_older_append_does_not_shorten_the_log() -> None:
    """Taking over everything a message says, instead of dropping only what contradicts, loses what was
    acknowledged in between: 1. entries 1 to 3 are acknowledged; 2. the first append, with entry 1
    alone, arrives again.
    """
    member = Lone(term=1)
    member.append(0, 0, entry(1, 1), entry(1, 2), entry(1, 3), term=1)
    member.sync()
    member.append(0, 0, entry(1, 1))
    member.append(0, 0)
    assert (member.terms(), member.raft.durable_index) == ([1, 1, 1], 3)


def test_only_what_follows_a_conflict_is_dropped() -> None:
    member = Lone(log=log_of(1, 1, 1, 1))
    member.append(1, 1, entry(1, 2), noop(2, 3), term=2)
    assert member.terms() == [1, 1, 2]


def test_a_log_that_does_not_reach_its_checkpoint_is_dropped() -> None:
    """1. A snapshot of index 9 is installed. 2. The crash comes before the log is reset. 3. Entries 1 to 4
    and, later, 10 would be a log with a hole: the first write resets it.
    """
    member = Lone(snapshot_index=9, snapshot_term=2, log=log_of(1, 1, 1, 1), term=3)
    assert (member.raft.last_index, member.terms()) == (9, [])
    ready = member.raft.ready()
    assert ready.write is not None
    assert (ready.write.reset_index, ready.write.reset_term) == (9, 2)


def test_a_log_that_contradicts_its_checkpoint_is_dropped() -> None:
    member = Lone(snapshot_index=3, snapshot_term=2, log=log_of(1, 1, 1, 1, 1), term=3)
    assert (member.raft.last_index, member.raft.last_term, member.terms()) == (3, 2, [])


def test_a_log_with_a_hole_behind_its_checkpoint_is_dropped() -> None:
    stored = [*log_of(1, 1), entry(2, 5), entry(2, 6)]
    member = Lone(snapshot_index=3, snapshot_term=1, log=stored, term=2)
    assert (member.raft.last_index, member.terms()) == (3, [])


def test_a_log_that_goes_on_from_its_checkpoint_is_kept() -> None:
    member = Lone(snapshot_index=2, snapshot_term=1, cut_index=0, log=log_of(1, 1, 1, 2), term=2)
    assert (member.raft.last_index, member.terms()) == (4, [1, 2])
    assert not member.raft.has_ready


def test_a_log_without_a_start_is_refused() -> None:
    with pytest.raises(ValueError, match="does not start at index 1"):
        Lone(log=[entry(1, 2)])


def test_nothing_is_appended_while_a_snapshot_takes_the_place_of_the_state() -> None:
    """1. The last chunk of a snapshot of index 5 goes to storage. 2. Appends up to 8 arrive, are
    committed, applied and checkpointed. 3. Storage finishes and puts the state of index 5 in their
    place: a gap.
    """
    member = Lone(log=log_of(1), term=1)
    fields = {
        "index": 5,
        "log_term": 1,
        "context": 3,
        "members": voters(1, 2, 3),
        "last": True,
        "chunk": b"x",
    }
    member.receive(SNAPSHOT_CHUNK, **fields)
    member.append(1, 1, *[entry(1, index) for index in range(2, 9)], commit=8)
    member.receive(HEARTBEAT, commit=8)
    assert (member.raft.last_index, member.raft.commit_index) == (1, 0)
    assert member.tick(1000) == []
    member.raft.snapshot_installed(3)
    member.sync()
    assert (member.raft.last_index, member.raft.commit_index, member.raft.handed_index) == (5, 5, 5)


def test_an_unwritten_log_behind_a_snapshot_restarts_after_it() -> None:
    """Storage has entry 1 and a snapshot of index 3; memory has up to 4. Writing entry 4 alone would leave
    a hole.
    """
    member = Lone(log=log_of(1), term=1)
    member.raft.step(
        Message(
            APPEND,
            group=GROUP,
            source=2,
            target=1,
            term=1,
            index=1,
            log_term=1,
            entries=[entry(1, 2), entry(1, 3), entry(1, 4)],
        ),
        0,
    )
    member.raft.step(
        Message(
            SNAPSHOT_CHUNK,
            group=GROUP,
            source=2,
            target=1,
            term=1,
            index=3,
            log_term=1,
            context=3,
            last=True,
            chunk=b"x",
            members=voters(1, 2, 3),
        ),
        0,
    )
    member.raft.snapshot_installed(3)
    ready = member.raft.ready()
    assert ready.write is not None
    assert (ready.write.reset_index, [e.index for e in ready.write.entries]) == (3, [4])


def test_a_snapshot_that_is_older_than_what_is_committed_is_not_installed() -> None:
    member = Lone(log=log_of(1, 1, 1), term=1)
    member.append(3, 1, commit=3)
    (reply,) = only(
        member.receive(SNAPSHOT_CHUNK, index=2, log_term=1, context=3, members=voters(1, 2, 3), last=True),
        APPEND_REPLY,
    )
    assert (reply.index, member.chunks) == (3, [])


def test_the_log_is_kept_from_a_snapshot_that_is_on_its_way() -> None:
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.isolate(3)
    for number in range(40):
        leader.propose(str(number))
        cluster.settle()
    leader.checkpoint()
    leader.cut()
    cluster.heal()
    cluster.now_ms += 50
    leader.raft.tick(cluster.now_ms)
    for _ in range(8):
        cluster.work()
        cluster.deliver()
    assert leader.raft.status()["peers"][3]["state"] == "snapshot"
    sent_at = leader.disk.checkpoint[0]
    for number in range(40):
        leader.propose(str(number))
        cluster.work()
    cluster.drop(lambda m: m.target == 3)
    cluster.settle()
    leader.checkpoint()
    leader.cut()
    assert leader.raft.log_keep_from == sent_at
    assert leader.disk.cut[0] <= sent_at
    snapshots: list[int] = []
    cluster.watch = lambda m: snapshots.append(m.index) if m.kind == SNAPSHOT_CHUNK else None
    cluster.run(3000)
    assert set(snapshots) == {sent_at}
    assert cluster[3].applied == leader.applied


def test_a_snapshot_that_does_not_reach_the_log_is_not_sent() -> None:
    """The log was cut at 6, so a snapshot of index 3 would leave a gap; the leader asks again later."""
    log = log_of(1, 1, 1, 1, 1, 1, 1, 1)
    member = Lone(log=log, snapshot_index=6, snapshot_term=1)
    member.become_leader()
    member.receive(APPEND_REPLY, 2, index=8, reject=True, hint_index=1, hint_term=1)
    assert member.raft.status()["peers"][2]["state"] == "snapshot"
    member.raft.begin_snapshot(2, 5, 3, 1, voters(1, 2, 3))
    assert member.raft.ready().chunks_wanted == []
    member.receive(HEARTBEAT_REPLY, 2)
    assert member.raft.status()["peers"][2]["state"] == "snapshot"
    member.raft.begin_snapshot(2, 6, 6, 1, voters(1, 2, 3))
    assert [wanted.snapshot_id for wanted in member.raft.ready().chunks_wanted] == [6]


def test_what_storage_is_asked_for_has_room_for_more_than_the_entry_before() -> None:
    """That one comes along for its term. If it filled the answer alone, the peer would never get anything."""
    settings = RaftSettings(election_ms_min=150, election_ms_max=300, heartbeat_ms=50, append_bytes_max=1)
    member = Lone(log=log_of(*[1] * 8), snapshot_index=6, snapshot_term=1, cut_index=0, settings=settings)
    member.become_leader()
    rejection = {"index": 8, "reject": True, "hint_index": 3, "hint_term": 1}
    member.raft.step(Message(APPEND_REPLY, group=GROUP, source=2, target=1, term=2, **rejection), 0)
    (wanted,) = member.raft.ready().entries_wanted
    assert (wanted.first, wanted.last) == (3, 6)
    assert wanted.bytes_max >= 2 * ENTRY_BYTES_MAX


def test_a_checkpoint_never_gets_ahead_of_the_durable_log() -> None:
    member = Lone()
    member.become_leader()
    member.acknowledge(2, 1)
    member.acknowledge(3, 1)
    propose(member)
    member.flush()
    member.acknowledge(2, 2)
    member.acknowledge(3, 2)
    assert (member.raft.handed_index, member.raft.durable_index) == (2, 1)
    with pytest.raises(ValueError, match="not applied and durable"):
        member.raft.compact(2)
    member.raft.compact(1)


# Bad input


def test_messages_for_someone_else_are_ignored() -> None:
    member = Lone()
    for fields in ({"group": 1, "target": 1}, {"group": GROUP, "target": 2}):
        member.raft.step(Message(APPEND, source=2, term=9, **fields), 0)
    member.raft.step(Message(APPEND, source=1, target=1, group=GROUP, term=9), 0)
    assert member.raft.term == 0


def test_an_unreadable_configuration_stops_before_it() -> None:
    member = Lone(term=1)
    broken = Entry(1, 2, ENTRY_MEMBERSHIP, b"nonsense")
    member.append(0, 0, entry(1, 1), broken, entry(1, 3), term=1)
    assert member.terms() == [1]
    assert only(member.sync(), APPEND_REPLY)[0].index == 1


def test_entries_with_a_gap_or_an_impossible_term_are_not_taken() -> None:
    member = Lone(term=2)
    member.append(0, 0, entry(1, 1), entry(1, 3), term=2)
    member.append(1, 1, entry(3, 2), term=2)
    member.append(1, 1, Entry(0, 2, 1, b""), term=2)
    assert member.terms() == [1]


def test_a_proposal_must_be_sealed_for_its_place() -> None:
    member = Lone()
    with pytest.raises(Refused, match="not-leader"):
        member.raft.propose(batch(0, 1))
    member.become_leader()
    for term, index in ((0, 2), (2, 2), (1, 1), (1, 3)):
        with pytest.raises(Refused, match="wrong-position"):
            member.raft.propose(batch(term, index))
    with pytest.raises(Refused, match="wrong-position"):
        member.raft.propose(noop(1, 2).data)
    with pytest.raises(ValueError, match="LogEntry"):
        member.raft.propose(b"nonsense")
    with pytest.raises(Refused, match="too-large"):
        member.raft.propose(bytes(1 << 20))
    assert member.raft.last_index == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_message_breaks_a_member(seed: int) -> None:
    """Messages with arbitrary fields, in any role: nothing is raised and the invariants hold.

    Commits are left out: who is told to replace an entry that it was told is committed stops, on purpose.
    """
    chance = random.Random(seed)
    member = Lone(log=log_of(1, 1, 2), term=2)
    if seed % 2:
        member.become_leader()
    for _ in range(400):
        term = max(0, member.raft.term + chance.choice([-1, 0, 0, 0, 0, 1]))
        start = chance.randint(0, 6)
        entries = [
            entry(max(1, term - chance.randint(0, 1)), start + 1 + n) for n in range(chance.randint(0, 3))
        ]
        member.receive(
            chance.randint(0, 15),
            chance.randint(1, 4),
            term,
            index=start,
            log_term=chance.randint(0, 3),
            context=chance.randint(0, 5),
            hint_index=chance.randint(0, 9),
            hint_term=chance.randint(0, 3),
            reject=chance.random() < 0.3,
            force=chance.random() < 0.3,
            entries=entries,
        )
        if chance.random() < 0.3:
            member.sync(min(1, len(member.unsynced)))
        if chance.random() < 0.1:
            member.tick(chance.randint(1, 200))
        if member.raft.role == FOLLOWER and chance.random() < 0.02:
            member.become_leader()


def test_the_number_of_waiting_reads_is_bounded() -> None:
    member = Lone(settings=RaftSettings(reads_pending_max=3), log=log_of(1))
    member.become_leader()
    for context in range(3):
        member.raft.read_index(context)
    with pytest.raises(Refused, match="too-many-reads"):
        member.raft.read_index(3)
    (reply,) = only(member.receive(READ_INDEX, 2, context=1), READ_INDEX_REPLY)
    assert reply.reject


def test_a_leader_that_cannot_commit_does_not_grow_its_log_without_end() -> None:
    member = Lone()
    member.become_leader()
    for _ in range(1023):
        propose(member)
    with pytest.raises(Refused, match="window-full"):
        propose(member)
    assert member.raft.last_index == 1024


def test_pre_votes_of_a_candidate_whose_term_is_behind_teach_it_the_term() -> None:
    member = Lone(term=9)
    (reply,) = member.receive(PRE_VOTE, 2, 4, index=99, log_term=3)
    assert (reply.reject, reply.term) == (True, 9)
