"""All planted bugs, and what they have to cover: every known trap, and every claim worth a bug of its own."""

from __future__ import annotations

from fastlock.testing.mutants.lock_bugs import LOCK_BUGS
from fastlock.testing.mutants.mutant import Mutant
from fastlock.testing.mutants.node_bugs import NODE_BUGS
from fastlock.testing.mutants.raft_bugs import RAFT_BUGS

MUTANTS: tuple[Mutant, ...] = (*RAFT_BUGS, *LOCK_BUGS, *NODE_BUGS)

# Each of these has bitten a famous system.
TRAPS = (
    "waiter granted after its lease died",
    "ReadIndex served before the leader's first commit in its term",
    "ReadIndex token reused across leaders",
    "keep-alive acknowledged by a deposed leader",
    "expire racing renew",
    "pre-vote + check-quorum livelock",
    "disruptive server after a partition heals",
    "membership change before a current-term commit",
    "learner promotion not persisted",
    "gap between log and snapshot",
    "acknowledgement before durable",
    "storage ack for a truncated index (ABA)",
    "swallowed fsync error",
    "non-deterministic apply",
    "events lost for a slow watcher",
    "retry applied twice",
    "elections failing under millions of leases",
    "leases immortal under repeated elections",
    "initial sync accepts everything",
    "releasing before commit",
)

# What the rest of the catalogue breaks.
CLAIMS = (
    "vote not persisted",
    "commit of an old-term entry by counting",
    "expire without generation",
    "keep-alive answered without a quorum",
    "re-created lease id",
    "duplicate acquire after release",
    "token counter missing from the checkpoint",
    "apply depending on iteration order",
    "learner counted in the quorum",
    "two membership changes in flight",
    "snapshot with a gap to the log",
    "export without a token floor",
    "log cut before its checkpoint is durable",
    "queue order survives failover",
    "leader has everything committed",
    "logs with one entry in common are the same before it",
    "a follower commits only what it knows to match",
    "a configuration is in force as long as its entry is in the log",
    "a read is served once its index is applied",
    "a new leader gives every lease its full TTL",
    "a leap of the leader's clock ends no lease",
    "a client notices that its lock moved or was taken",
    "nobody overtakes the queue",
    "a wait that is called off leaves nothing behind",
)
