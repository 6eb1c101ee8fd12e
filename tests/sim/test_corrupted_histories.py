"""A history of an honest run is accepted, and rejected as soon as one answer in it is changed."""

from dataclasses import replace

import pytest

from fastlock.testing.linearizability import check
from fastlock.testing.simulator.world import World

SEED = 4
CHANGED_PER_KIND = 3
NEVER = 10**15


@pytest.fixture(scope="module")
def history():
    world = World(SEED)
    assert world.run().violation == ""
    return world.recorder.operations(), world.happenings


CHANGES = {
    "a waiter more": ("get", "ok", lambda o: replace(o, waiters=o.waiters + 1)),
    "another value": ("get", "ok", lambda o: replace(o, value=b"never written")),
    "another holder": ("get", "ok", lambda o: replace(o, holders=((1, 1),))),
    "a refusal that was a grant": (
        "acquire",
        "ok",
        lambda o: replace(o, code="notAcquired", token=0, revision=0),
    ),
    "a grant that was a refusal": (
        "acquire",
        "notAcquired",
        lambda o: replace(o, code="ok", token=NEVER, revision=NEVER),
    ),
    "a refusal that was a wait": ("acquire", "queued", lambda o: replace(o, code="notAcquired", revision=0)),
    "another token": ("granted", "ok", lambda o: replace(o, token=o.token + 1)),
    "a lock that was lost": ("release", "ok", lambda o: replace(o, code="staleToken", revision=0)),
    "a release at another revision": ("release", "ok", lambda o: replace(o, revision=o.revision + 1)),
    "a wait that had been granted": ("cancel", "ok", lambda o: replace(o, revision=o.revision + 5)),
    "a lease that was lost at once": ("lost", "leaseLost", lambda o: replace(o, call=o.call - 1, end=o.call)),
    "a lease that lived longer": ("alive", "ok", lambda o: replace(o, call=NEVER, end=NEVER)),
}


def test_an_honest_history_is_accepted(history):
    verdict = check(*history)
    assert verdict.linearizable, verdict.explanation


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_answer_is_rejected(history, name):
    kind, code, change = CHANGES[name]
    operations, events = history
    # Of a lease that never held anything, or that went along with a key, nothing of this can be known.
    known = {o.lease for o in operations if o.kind == "end"} & {
        o.lease for o in operations if o.kind == "acquire"
    }
    known -= {o.lease for o in operations if o.kind == "copied"}
    places = [
        place
        for place, o in enumerate(operations)
        if (o.kind, o.code) == (kind, code)
        and o.end is not None
        and (kind not in ("alive", "lost") or o.lease in known)
    ]
    chosen = places[:: max(1, len(places) // CHANGED_PER_KIND)][:CHANGED_PER_KIND]
    assert chosen
    for place in chosen:
        changed = [*operations[:place], change(operations[place]), *operations[place + 1 :]]
        verdict = check(changed, events)
        assert verdict.decided
        assert not verdict.linearizable, operations[place]
