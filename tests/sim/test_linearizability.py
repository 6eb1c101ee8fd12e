"""The linearizability checker accepts what a lock table can do and rejects what it cannot."""

import pytest

from fastlock.testing.linearizability import check
from fastlock.testing.lock_model import Happening, Operation

KEY = b"k"
A, B, C = 0xA, 0xB, 0xC


def acquire(call, end, lease, code, token=0, request=1, keys=(KEY,), **fields):
    return Operation("acquire", call, end, keys, lease, request, code=code, token=token, **fields)


def granted(call, end, lease, token, request=1, keys=(KEY,)):
    return Operation("granted", call, end, keys, lease, request, code="ok", token=token)


def release(call, end, lease, code, token, request=1, key=KEY, **fields):
    return Operation("release", call, end, (key,), lease, request, code=code, token=token, **fields)


def cancel(call, end, lease, code, request=1, keys=(KEY,), **fields):
    return Operation("cancel", call, end, keys, lease, request, code=code, **fields)


def lose(call, end, lease, code="expired"):
    return Operation("end", call, end, (), lease, code=code)


def put(call, end, lease, code, token, value, request=1, **fields):
    return Operation("put", call, end, (KEY,), lease, request, code=code, token=token, value=value, **fields)


def delete(call, end, lease, code, token, request=1):
    return Operation("delete", call, end, (KEY,), lease, request, code=code, token=token)


def get(call, end, holders=(), waiters=0, value=None, **fields):
    return Operation(
        "get", call, end, (KEY,), holders=holders, waiters=waiters, value=value, code="ok", **fields
    )


GOOD = {
    "acquire and release one after the other": [
        acquire(0, 1, A, "ok", 5),
        release(2, 3, A, "ok", 5),
        acquire(4, 5, B, "ok", 7),
    ],
    "overlapping tries, one of them wins": [
        acquire(0, 9, A, "ok", 5),
        acquire(1, 8, B, "notAcquired", 5),
    ],
    "a try that overlaps the release may win": [
        acquire(0, 1, A, "ok", 5),
        release(2, 9, A, "ok", 5),
        acquire(3, 4, B, "ok", 7),
    ],
    "a lost answer to an acquire explains a later refusal": [
        acquire(0, None, A, None),
        acquire(5, 6, B, "notAcquired"),
    ],
    "a lost answer to an acquire may also mean that it never acted": [
        acquire(0, None, A, None),
        acquire(5, 6, B, "ok", 3),
    ],
    "an unanswered release may act much later": [
        acquire(0, 1, A, "ok", 5),
        release(2, None, A, None, 5),
        acquire(10, 11, B, "notAcquired", 5),
        acquire(20, 21, C, "ok", 9),
    ],
    "a lease that ended unseen frees the lock": [
        acquire(0, 1, A, "ok", 5),
        lose(0, None, A),
        acquire(10, 11, B, "ok", 7),
        release(12, 13, A, "leaseLost", 5),
    ],
    "waiters are served in order": [
        acquire(0, 1, A, "ok", 1),
        acquire(2, 3, B, "queued", wait=True),
        acquire(4, 5, C, "queued", wait=True),
        release(6, 7, A, "ok", 1),
        granted(2, 8, B, 5),
        release(9, 10, B, "ok", 5),
        granted(4, 11, C, 7),
    ],
    "a waiter whose lease ended is passed over": [
        acquire(0, 1, A, "ok", 1),
        acquire(2, 3, B, "queued", wait=True),
        acquire(4, 5, C, "queued", wait=True),
        lose(2, 5, B),
        release(6, 7, A, "ok", 1),
        granted(4, 8, C, 6),
    ],
    "a cancelled wait that arrives late never acts": [
        cancel(0, 1, A, "ok"),
        acquire(0, 5, A, "waitCancelled", wait=True),
        acquire(6, 7, B, "ok", 3),
    ],
    "readers share, a writer waits for all of them": [
        acquire(0, 1, A, "ok", 1, mode="shared"),
        acquire(2, 3, B, "ok", 2, mode="shared"),
        acquire(4, 5, C, "queued", wait=True),
        release(6, 7, A, "ok", 1),
        release(8, 9, B, "ok", 2),
        granted(4, 10, C, 6),
    ],
    "a semaphore grants up to its limit": [
        acquire(0, 1, A, "ok", 1, mode="semaphore", limit=3, count=2),
        acquire(2, 3, B, "ok", 2, mode="semaphore", limit=3),
        acquire(4, 5, C, "notAcquired", 1, mode="semaphore", limit=3),
        release(6, 7, A, "ok", 1),
        acquire(8, 9, C, "ok", 4, mode="semaphore", limit=3, count=2),
    ],
    "a fenced value is written while the lock is held": [
        acquire(0, 1, A, "ok", 5),
        put(2, 3, A, "ok", 5, b"x"),
        get(4, 5, holders=((A, 5),), value=b"x"),
        release(6, 7, A, "ok", 5),
        put(8, 9, A, "staleToken", 5, b"y"),
        get(10, 11, value=b"x"),
    ],
    "a value is deleted by its holder": [
        acquire(0, 1, A, "ok", 5),
        put(2, 3, A, "ok", 5, b"x"),
        delete(4, 5, A, "ok", 5),
        delete(6, 7, A, "notFound", 5),
        get(8, 9, holders=((A, 5),)),
    ],
    "acquire-all takes both keys or waits for both": [
        acquire(0, 1, A, "ok", 1, keys=(b"x",)),
        acquire(2, 3, B, "queued", keys=(b"x", b"y"), wait=True),
        acquire(4, 5, C, "notAcquired", keys=(b"y",)),
        release(6, 7, A, "ok", 1, key=b"x"),
        granted(2, 8, B, 4, keys=(b"x", b"y")),
    ],
    "lock-delay keeps a key free until it ends": [
        acquire(0, 1, A, "ok", 1, lock_delay=True),
        lose(0, None, A),
        acquire(5, 6, B, "lockDelayed"),
        Operation("end_delay", 0, None, (), A),
        acquire(8, 9, B, "ok", 5, request=2),
    ],
    "a handover takes the revision after the departure": [
        acquire(0, 1, A, "ok", 5, revision=5),
        acquire(2, 3, B, "queued", wait=True, revision=6),
        release(4, 9, A, "ok", 5, revision=8),
        granted(2, 9, B, 9),
        get(5, 6, holders=((A, 5),), waiters=1, revision=7),
    ],
    "a read at the revision of a change has seen it": [
        acquire(0, 9, A, "ok", 5, revision=5),
        get(0, 9, holders=((A, 5),), revision=5),
        get(0, 9, revision=4),
    ],
    "a cancel that came too late releases and hands over": [
        acquire(0, 1, A, "ok", 5, wait=True),
        acquire(2, 3, B, "queued", wait=True, revision=6),
        cancel(4, 5, A, "ok", revision=7),
        granted(2, 6, B, 8),
    ],
    "the same request asked again gets its standing back": [
        acquire(0, 1, A, "ok", 5),
        acquire(2, 3, A, "ok", 5),
        release(4, 5, A, "ok", 5),
        acquire(6, 7, B, "ok", 7),
    ],
    "a lease ends after the wait it was good for": [
        acquire(0, 1, A, "ok", 1),
        acquire(2, 5, B, "queued", wait=True, revision=3),
        lose(0, 9, B),
        get(6, 7, holders=((A, 1),), waiters=1),
        get(10, 11, holders=((A, 1),)),
    ],
    "different keys are independent": [
        acquire(0, 1, A, "ok", 5, keys=(b"x",)),
        acquire(0, 1, B, "ok", 4, keys=(b"y",)),
    ],
}

BAD = {
    "two exclusive holders": [
        acquire(0, 1, A, "ok", 5),
        acquire(2, 3, B, "ok", 7),
    ],
    "a token that goes back": [
        acquire(0, 1, A, "ok", 5),
        release(2, 3, A, "ok", 5),
        acquire(4, 5, B, "ok", 4),
    ],
    "a token that repeats": [
        acquire(0, 1, A, "ok", 5),
        release(2, 3, A, "ok", 5),
        acquire(4, 5, B, "ok", 5),
    ],
    "a refusal on a free lock": [
        acquire(0, 1, A, "ok", 5),
        release(2, 3, A, "ok", 5),
        acquire(4, 5, B, "notAcquired"),
    ],
    "an acknowledged grant that was lost": [
        acquire(0, 1, A, "ok", 5),
        release(2, 3, A, "staleToken", 5),
    ],
    "an acknowledged release that did not happen": [
        acquire(0, 1, A, "ok", 5),
        release(2, 3, A, "ok", 5),
        get(4, 5, holders=((A, 5),)),
    ],
    "waiters served out of order": [
        acquire(0, 1, A, "ok", 1),
        acquire(2, 3, B, "queued", wait=True),
        acquire(4, 5, C, "queued", wait=True),
        release(6, 7, A, "ok", 1),
        granted(4, 8, C, 5),
        release(9, 10, C, "ok", 5),
        granted(2, 11, B, 7),
    ],
    "a waiter granted after its lease ended": [
        acquire(0, 1, A, "ok", 1),
        acquire(2, 3, B, "queued", wait=True),
        lose(2, 5, B),
        release(6, 7, A, "ok", 1),
        granted(6, 9, B, 5),
    ],
    "a lease that came back": [
        acquire(0, 1, A, "ok", 1),
        lose(0, 3, A),
        acquire(4, 5, A, "ok", 7, request=2),
    ],
    "a called-off acquire that acted all the same": [
        cancel(0, 1, A, "ok"),
        acquire(2, 5, A, "ok", 3),
    ],
    "exclusive together with shared": [
        acquire(0, 1, A, "ok", 1, mode="shared"),
        acquire(2, 3, B, "ok", 2),
    ],
    "a reader that overtook a waiting writer": [
        acquire(0, 1, A, "ok", 1, mode="shared"),
        acquire(2, 3, B, "queued", wait=True),
        acquire(4, 5, C, "ok", 4, mode="shared"),
    ],
    "a semaphore above its limit": [
        acquire(0, 1, A, "ok", 1, mode="semaphore", limit=2, count=2),
        acquire(2, 3, B, "ok", 2, mode="semaphore", limit=2),
    ],
    "a stale read": [
        acquire(0, 1, A, "ok", 1),
        put(2, 3, A, "ok", 1, b"old"),
        put(4, 5, A, "ok", 1, b"new"),
        get(6, 7, holders=((A, 1),), value=b"old"),
    ],
    "a stale fenced write that was accepted": [
        acquire(0, 1, A, "ok", 1),
        lose(0, None, A),
        acquire(2, 3, B, "ok", 3),
        put(4, 5, A, "ok", 1, b"zombie"),
    ],
    "a deleted value that is read": [
        put(0, 1, 0, "ok", 0, b"x"),
        delete(2, 3, 0, "ok", 0),
        get(4, 5, value=b"x"),
    ],
    "a value that was not found although it was there": [
        put(0, 1, 0, "ok", 0, b"x"),
        delete(2, 3, 0, "notFound", 0),
    ],
    "an acquire that acted twice": [
        acquire(0, 1, A, "ok", 1),
        release(2, 3, A, "ok", 1),
        get(4, 5, holders=((A, 7),)),
    ],
    "an acquire-all that got only half": [
        acquire(0, 1, A, "ok", 1, keys=(b"x",)),
        acquire(2, 3, B, "ok", 2, keys=(b"x", b"y")),
    ],
    "a waiter told two tokens": [
        acquire(0, 1, A, "entered", 5, wait=True),
        granted(0, 1, A, 6),
    ],
    "a handover that did not come with the departure": [
        acquire(0, 1, A, "ok", 5, revision=5),
        acquire(2, 3, B, "queued", wait=True, revision=6),
        release(4, 5, A, "ok", 5, revision=8),
        granted(2, 9, B, 11),
    ],
    "a handover before the departure": [
        acquire(0, 1, A, "ok", 5, revision=5),
        acquire(2, 3, B, "queued", wait=True, revision=6),
        release(4, 9, A, "ok", 5, revision=8),
        granted(2, 9, B, 7),
    ],
    "a read that missed a change its revision covers": [
        acquire(0, 9, A, "ok", 5, revision=5),
        get(0, 9, revision=5),
    ],
    "a read that saw a change after its revision": [
        acquire(0, 9, A, "ok", 5, revision=5),
        get(0, 9, holders=((A, 5),), revision=4),
    ],
    "revisions against the order of time": [
        acquire(0, 1, A, "ok", 5, revision=5),
        put(2, 3, A, "ok", 5, b"late", revision=9),
        put(4, 5, A, "ok", 5, b"early", revision=8),
    ],
    "a cancel that released what another one holds": [
        acquire(0, 1, A, "ok", 5),
        acquire(2, 3, B, "queued", wait=True, revision=6),
        cancel(4, 5, B, "ok", revision=7),
    ],
    "a wait on a lease that had ended": [
        acquire(0, 1, A, "ok", 1),
        lose(0, 2, B),
        acquire(3, 4, B, "queued", wait=True, revision=3),
    ],
    "a grant in the middle of a lock-delay": [
        acquire(0, 1, A, "ok", 1, lock_delay=True),
        lose(0, 2, A),
        Operation("end_delay", 50, None, (), A),
        acquire(8, 9, B, "ok", 5),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_good_history_is_accepted(name):
    verdict = check(GOOD[name])
    assert verdict.linearizable, verdict.explanation


@pytest.mark.parametrize("name", BAD)
def test_bad_history_is_rejected(name):
    verdict = check(BAD[name])
    assert verdict.decided
    assert not verdict.linearizable


def test_rejection_names_the_answer_that_has_no_explanation():
    verdict = check(BAD["two exclusive holders"])
    assert "unexplained" in verdict.explanation
    assert "token=7" in verdict.explanation


def test_a_search_beyond_its_budget_is_undecided_not_accepted():
    history = BAD["waiters served out of order"] + [
        acquire(1, None, 100 + i, None, wait=True) for i in range(12)
    ]
    verdict = check(history, configurations_max=50)
    assert not verdict.linearizable
    assert not verdict.decided


def test_many_unanswered_commands_do_not_slow_an_honest_history():
    history = []
    for i in range(300):
        start = 10 * i
        lease = 1000 + i
        history.append(acquire(start, start + 1, lease, "ok", 2 * i + 1))
        history.append(release(start + 2, start + 3, lease, "ok", 2 * i + 1))
        if i % 10 == 0:
            history.append(acquire(start, None, 5000 + i, None))
    verdict = check(history)
    assert verdict.linearizable
    assert verdict.configurations < 5_000


def test_an_early_end_of_a_lease_is_given_up_before_unanswered_waits_are_tried():
    """All orders of the waits would be tried in vain behind a wrong guess about the lease."""
    history = [acquire(0, 1, A, "ok", 1), lose(2, 90, B), acquire(10, 11, B, "queued", wait=True, revision=5)]
    history += [acquire(1, None, 100 + i, None, wait=True) for i in range(12)]
    history += [get(20, 21, holders=((A, 1),), waiters=1)]
    verdict = check(history, configurations_max=1000)
    assert verdict.linearizable, verdict.explanation


def event(revision, kind, token=0, lease=0, key=KEY):
    return Happening(revision, kind, key, token or revision, lease)


HANDED_OVER = [
    acquire(0, 1, A, "ok", 1),
    acquire(2, 3, B, "queued", wait=True, revision=2),
    acquire(4, 5, C, "queued", wait=True, revision=3),
    lose(0, None, A),
    lose(0, None, B),
    lose(0, None, C),
    get(20, 21, holders=((C, 6),), revision=6),
]
HANDED_OVER_EVENTS = [
    event(1, "acquired", lease=A),
    event(4, "expired", 1, A),
    event(6, "transferred", lease=C),
]


def test_what_happened_unseen_is_explained_by_the_events():
    events = [*HANDED_OVER_EVENTS[:1], event(5, "expired", 1, A), *HANDED_OVER_EVENTS[2:]]
    verdict = check(HANDED_OVER, events)
    assert verdict.linearizable, verdict.explanation


BAD_EVENTS = {
    "a handover that did not come with the departure": HANDED_OVER_EVENTS,
    "a grant to somebody who did not wait": [
        event(1, "acquired", lease=A),
        event(5, "expired", 1, A),
        event(6, "transferred", lease=0xD),
    ],
    "a departure of nobody's": [
        event(1, "acquired", lease=A),
        event(4, "released", 3, 0xD),
        event(5, "expired", 1, A),
        event(6, "transferred", lease=C),
    ],
    "an end of another cause": [
        event(1, "acquired", lease=A),
        event(5, "revoked", 1, A),
        event(6, "transferred", lease=C),
    ],
    "an event that no command explains": [
        event(1, "acquired", lease=A),
        event(5, "expired", 1, A),
        event(6, "transferred", lease=C),
        event(7, "released", 6, C),
    ],
    "an event that is missing": [event(1, "acquired", lease=A), event(6, "transferred", lease=C)],
    "a grant before a read that did not see it": [
        event(1, "acquired", lease=A),
        event(5, "expired", 1, A),
        event(6, "transferred", lease=B),
    ],
}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_events_that_contradict_the_answers_are_rejected(name):
    verdict = check(HANDED_OVER, BAD_EVENTS[name])
    assert verdict.decided
    assert not verdict.linearizable


def test_events_decide_what_a_search_without_them_cannot():
    """Which of many waiters died in a queue is hidden from clients, and not guessed where it is known."""
    waiters = range(100, 112)
    history = [acquire(0, 1, A, "ok", 1)]
    for number, lease in enumerate(waiters):
        history.append(acquire(10, 90, lease, "queued", wait=True, revision=2 + number))
        history.append(lose(0, None, lease))
    history += [lose(0, None, A), get(100, 101, holders=((110, 21),), waiters=1, revision=21)]
    events = [event(1, "acquired", lease=A), event(20, "expired", 1, A), event(21, "transferred", lease=110)]
    verdict = check(history, events, configurations_max=1000)
    assert verdict.linearizable, verdict.explanation


def lost(call, end, lease):
    return Operation("lost", call, end, (), lease, code="leaseLost")


def alive(call, end, lease):
    return Operation("alive", call, end, (), lease, code="ok")


def ended(time, lease, revision):
    return Operation("end", time, time, (), lease, code="expired", revision=revision)


# When the log ended a lease is known exactly.
KNOWN_ENDS = [
    acquire(0, 1, A, "ok", 1),
    acquire(2, 3, B, "queued", wait=True, revision=2),
    alive(4, 5, A),
    ended(10, A, 4),
    lost(4, 12, A),
    granted(2, 11, B, 4),
]
KNOWN_ENDS_EVENTS = [
    event(1, "acquired", lease=A),
    event(3, "expired", 1, A),
    event(4, "transferred", lease=B),
]


def test_known_ends_of_leases_are_accepted():
    verdict = check(KNOWN_ENDS, KNOWN_ENDS_EVENTS)
    assert verdict.linearizable, verdict.explanation


@pytest.mark.parametrize(
    "wrong",
    [
        alive(14, 15, A),
        lost(4, 5, A),
        acquire(14, 15, A, "queued", request=2, wait=True, revision=5),
        get(14, 15, holders=((A, 1),), waiters=1, revision=4),
        get(6, 7, holders=((B, 4),), revision=4),
    ],
    ids=[
        "alive after its end",
        "lost before it",
        "used after it",
        "holding after it",
        "handed over before it",
    ],
)
def test_what_contradicts_the_end_of_a_lease_is_rejected(wrong):
    verdict = check([*KNOWN_ENDS, wrong], KNOWN_ENDS_EVENTS)
    assert verdict.decided
    assert not verdict.linearizable


# A key moves: its lease ends where its rows arrive, and the queue is served when they all have.
MOVED = [
    acquire(0, 1, A, "ok", 1),
    acquire(2, 3, B, "queued", wait=True, revision=2),
    Operation("copied", 0, None, (KEY,), A),
    Operation("end_importing", 5, None, (KEY,), A, code="expired", revision=7),
    Operation("imported", 6, None, (KEY,)),
    granted(2, 12, B, 9),
]


def test_a_lease_that_ended_while_its_key_moved_leaves_the_queue_to_the_arrival():
    events = [event(1, "acquired", lease=A), event(7, "expired", 1, A), event(9, "transferred", lease=B)]
    verdict = check(MOVED, events)
    assert verdict.linearizable, verdict.explanation
    at_rest = [operation for operation in MOVED if operation.kind != "imported"]
    assert not check(at_rest, events).linearizable
