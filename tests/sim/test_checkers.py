"""Every checker of the simulator is silent about honest runs and speaks up about broken ones."""

import pytest

from fastlock._core.raft_message import (
    APPEND_REPLY,
    ENTRY_MEMBERSHIP,
    HEARTBEAT_REPLY,
    ROLE_LEARNER,
    ROLE_VOTER,
    VOTE,
    VOTE_REPLY,
    Entry,
    Member,
    Message,
)
from fastlock.schema.enums import LockMode
from fastlock.testing.lock_checkers import (
    Belief,
    Believers,
    Exclusion,
    FencedResource,
    History,
    TokensIncrease,
    WatchStream,
)
from fastlock.testing.raft_checkers import (
    UNSEATED_MAX,
    CommittedForEver,
    Disruption,
    DurableFirst,
    LogMatching,
    OneChangeAtATime,
    OneLeaderPerTerm,
    SameMembers,
    SameState,
)
from fastlock.testing.violation import Violation


def test_two_leaders_in_one_term_are_reported():
    checker = OneLeaderPerTerm()
    checker.elected(1, 5, 1)
    checker.elected(1, 6, 2)
    checker.elected(2, 5, 3)
    with pytest.raises(Violation, match="one leader per term"):
        checker.elected(1, 5, 2)


def test_one_place_in_the_log_with_two_contents_is_reported():
    checker = LogMatching()
    checker.appended(1, 3, 2, 1, 0xABC, node=1)
    checker.appended(1, 3, 2, 1, 0xABC, node=2)
    checker.appended(1, 3, 4, 1, 0xDEF, node=2)
    with pytest.raises(Violation, match="log matching"):
        checker.appended(1, 3, 2, 1, 0xABD, node=3)


def test_same_entry_after_different_predecessors_is_reported():
    checker = LogMatching()
    checker.appended(1, 3, 3, 1, 0xABC, node=1)
    with pytest.raises(Violation, match="log matching"):
        checker.appended(1, 3, 3, 2, 0xABC, node=2)


def test_a_committed_entry_that_was_replaced_is_reported():
    checker = CommittedForEver()
    assert checker.applied(1, 1, 1, 0xA, node=1)
    assert not checker.applied(1, 1, 1, 0xA, node=2)
    with pytest.raises(Violation, match="committed for ever"):
        checker.applied(1, 1, 2, 0xB, node=3)


def test_an_applied_gap_is_reported():
    checker = CommittedForEver()
    checker.applied(1, 1, 1, 0xA, node=1)
    with pytest.raises(Violation, match="before anybody"):
        checker.applied(1, 3, 1, 0xC, node=1)


def test_a_leader_without_a_committed_entry_is_reported():
    checker = CommittedForEver()
    checker.applied(1, 1, 1, 0xA, node=1)
    checker.applied(1, 2, 1, 0xB, node=1)
    checker.leads(1, 2, node=2, last_index=2, term_at_committed=1)
    with pytest.raises(Violation, match="leader completeness"):
        checker.leads(1, 3, node=3, last_index=1, term_at_committed=0)
    with pytest.raises(Violation, match="leader completeness"):
        checker.leads(1, 4, node=3, last_index=7, term_at_committed=3)


def test_replicas_that_differ_are_reported():
    checker = SameState()
    checker.observed(1, 10, 0xAA, "node 1")
    checker.observed(1, 10, 0xAA, "node 2 after reload")
    with pytest.raises(Violation, match="same state"):
        checker.observed(1, 10, 0xAB, "node 3")


def test_a_token_given_twice_is_reported():
    checker = TokensIncrease()
    checker.granted(b"k", 5, "a", 0, fresh=True)
    checker.granted(b"k", 5, "a", 0, fresh=True)
    with pytest.raises(Violation, match="tokens increase"):
        checker.granted(b"k", 5, "b", 0, fresh=True)


def test_a_token_lower_than_one_known_at_the_call_is_reported():
    checker = TokensIncrease()
    checker.granted(b"k", 5, "a", 0, fresh=True)
    with pytest.raises(Violation, match="was known"):
        checker.granted(b"k", 4, "b", checker.highest(b"k"), fresh=True)


def test_members_that_disagree_about_the_members_are_reported():
    checker = SameMembers()
    checker.observed(1, 7, (Member(1), Member(2, ROLE_VOTER)), node=1)
    checker.observed(1, 7, (Member(1), Member(2, ROLE_VOTER)), node=2)
    with pytest.raises(Violation, match="same members"):
        checker.observed(1, 7, (Member(1), Member(2, ROLE_LEARNER)), node=3)


def test_working_leaders_that_lose_their_place_again_and_again_are_reported():
    checker = Disruption()
    for number in range(UNSEATED_MAX):
        checker.unseats(1, f"case {number}")
    checker.unseats(2, "another group")
    checker.verify()
    checker.unseats(1, "one too many")
    with pytest.raises(Violation, match="disruption"):
        checker.verify()


def test_holders_in_the_log_that_exclude_each_other_are_reported():
    checker = Exclusion()
    checker.happened("acquired", b"k", 1, LockMode.exclusive)
    checker.happened("acquired", b"other", 2, LockMode.exclusive)
    checker.happened("released", b"k", 1, LockMode.exclusive)
    checker.happened("transferred", b"k", 4, LockMode.shared)
    checker.happened("acquired", b"k", 5, LockMode.shared)
    with pytest.raises(Violation, match="exclusion"):
        checker.happened("transferred", b"k", 6, LockMode.exclusive)


def test_the_fenced_resource_refuses_the_zombie():
    resource = FencedResource()
    assert resource.write(b"k", 5, "a")
    assert resource.write(b"k", 7, "b")
    assert not resource.write(b"k", 5, "a")
    assert (resource.accepted, resource.refused) == (2, 1)


def test_one_token_used_by_two_writers_is_reported():
    resource = FencedResource()
    resource.write(b"k", 5, "a")
    with pytest.raises(Violation, match="fencing"):
        resource.write(b"k", 5, "b")


def belief(start, end, claim, mode="exclusive", units=1, limit=1):
    return Belief(start, end, claim, mode, units, limit)


def test_two_believers_at_once_are_reported():
    checker = Believers()
    checker.believed(b"k", belief(0, 10, "a"))
    checker.believed(b"k", belief(10, 20, "b"))
    assert checker.verify() == 2
    checker.believed(b"k", belief(19, 30, "c"))
    with pytest.raises(Violation, match="believers"):
        checker.verify()


def test_shared_believers_and_semaphore_units_are_counted():
    checker = Believers()
    checker.believed(b"r", belief(0, 10, "a", "shared"))
    checker.believed(b"r", belief(5, 10, "b", "shared"))
    checker.believed(b"s", belief(0, 10, "a", "semaphore", 2, 3))
    checker.believed(b"s", belief(0, 10, "b", "semaphore", 1, 3))
    checker.verify()
    checker.believed(b"s", belief(9, 10, "c", "semaphore", 1, 3))
    with pytest.raises(Violation, match="believers"):
        checker.verify()


def test_a_writer_among_readers_is_reported():
    checker = Believers()
    checker.believed(b"r", belief(0, 10, "a", "shared"))
    checker.believed(b"r", belief(5, 10, "b"))
    with pytest.raises(Violation, match="believers"):
        checker.verify()


def history():
    record = History(1)
    record.happened(1, "acquired", b"a", 1)
    record.happened(2, "acquired", b"b", 2)
    record.happened(4, "released", b"a", 1)
    record.happened(5, "put", b"b", 2)
    return record


def test_an_acknowledged_grant_nobody_committed_is_reported():
    record = history()
    record.acknowledged(b"b", 2, "client")
    assert record.standing() == [(b"b", 2, "client")]
    with pytest.raises(Violation, match="grants stay"):
        record.acknowledged(b"c", 9, "client")


def test_a_holder_that_departs_twice_is_reported():
    record = history()
    with pytest.raises(Violation, match="not held"):
        record.happened(6, "expired", b"a", 1)


def test_a_revision_that_goes_back_is_reported():
    with pytest.raises(Violation, match="after 5"):
        history().happened(5, "acquired", b"a", 5)


def test_a_gap_in_a_watch_is_reported():
    record = history()
    whole = WatchStream(record, b"", 0, "watch")
    whole.arrived(record.events[:2], 3)
    whole.arrived(record.events[2:], 5)
    whole.finished()
    gap = WatchStream(record, b"", 0, "watch")
    with pytest.raises(Violation, match="missing"):
        gap.arrived(record.events[1:], 5)


def test_a_watch_of_one_key_is_not_told_of_longer_ones():
    record = history()
    record.happened(6, "acquired", b"a/1", 6)
    stream = WatchStream(record, b"a", 0, "watch", is_prefix=False)
    stream.arrived([record.events[0], record.events[2]], 6)
    stream.finished()
    with pytest.raises(Violation, match="extra"):
        WatchStream(record, b"a", 5, "watch", is_prefix=False).arrived(record.events[4:], 6)


def test_a_watch_may_miss_only_what_it_was_told_it_lost():
    record = history()
    stream = WatchStream(record, b"b", 0, "watch")
    stream.lost(2)
    stream.arrived([(5, "put", b"b", 2)], 5)
    stream.finished()
    silent = WatchStream(record, b"b", 0, "watch")
    silent.arrived([(2, "acquired", b"b", 2)], 4)
    with pytest.raises(Violation, match="never saw"):
        silent.finished()


class Promised:
    """A disk with term 3, a vote for node 2, and a log up to index 5."""

    def hard_state(self, group):
        return 3, 2

    def holds(self, group, index):
        return index <= 5


def test_promises_that_the_disk_does_not_have_are_reported():
    checker = DurableFirst()
    checker.leaves(Message(VOTE_REPLY, source=1, target=2, term=3), 3, Promised())
    checker.leaves(Message(VOTE_REPLY, source=1, target=3, term=3, reject=True), 3, Promised())
    checker.leaves(Message(APPEND_REPLY, source=1, target=2, term=3, index=5), 3, Promised())
    # The answer to a leader of an earlier term: what the member promises it is void.
    checker.leaves(Message(APPEND_REPLY, source=1, target=2, term=2, index=6), 3, Promised())
    for message in (
        Message(VOTE_REPLY, source=1, target=3, term=3),
        Message(VOTE, source=1, target=3, term=3),
        Message(APPEND_REPLY, source=1, target=2, term=3, index=6),
    ):
        with pytest.raises(Violation, match="durable first"):
            checker.leaves(message, 3, Promised())
    with pytest.raises(Violation, match="durable first"):
        checker.leaves(Message(HEARTBEAT_REPLY, source=1, target=2, term=4), 4, Promised())


def test_changes_of_members_that_overlap_or_come_too_early_are_reported():
    checker = OneChangeAtATime()
    entry = Entry(4, 9, ENTRY_MEMBERSHIP, b"")
    checker.logged(1, entry, previous=7, commit=8, commit_term=4)
    with pytest.raises(Violation, match="under way"):
        checker.logged(1, entry, previous=8, commit=7, commit_term=4)
    with pytest.raises(Violation, match="last commit"):
        checker.logged(1, entry, previous=0, commit=8, commit_term=3)
