"""Bugs around the core: when a group answers, what it keeps, what it sends, and what storage promises."""

from __future__ import annotations

from fastlock.testing.mutants.mutant import Edit, Mutant

GROUP = "fastlock/node/group.py"
CHECKPOINTS = "fastlock/node/checkpoints.py"
SNAPSHOTS = "fastlock/node/snapshots.py"
ENGINE = "fastlock/node/engine.py"
TABLE = "fastlock/_core/locktable.pyx"

# A simulated cluster has tens of leases, not millions: each stands for so much time of a new leader's.
TIME_PER_LEASE_MS = 100

NODE_BUGS = (
    Mutant(
        "keep-alive-without-quorum",
        ("keep-alive answered without a quorum",),
        "A leader confirms keep-alives without asking anybody.",
        (
            Edit(
                GROUP,
                'self._collect("keep_alive", handle, (lease_high, lease_low, self._leading_term))',
                "if PLANTED:\n"
                "    self._extend(handle, lease_high, lease_low, self._turn_ms)\n"
                "    return\n"
                'self._collect("keep_alive", handle, (lease_high, lease_low, self._leading_term))',
            ),
        ),
    ),
    Mutant(
        "keep-alive-by-deposed-leader",
        ("keep-alive acknowledged by a deposed leader",),
        "A node that led once goes on confirming keep-alives.",
        (
            Edit(
                GROUP,
                '"""Extend a lease by its TTL, if this node can show that it still leads."""\n'
                "if not self.leading:",
                '"""Extend a lease by its TTL, if this node can show that it still leads."""\n'
                "if PLANTED and self._leading_term and not self.leading:\n"
                "    self.answers.append(Answer(handle, Code.ok))\n"
                "    return\n"
                "if not self.leading:",
            ),
        ),
    ),
    Mutant(
        "release-answered-early",
        ("releasing before commit",),
        "A release is answered before it is proposed.",
        (
            Edit(
                GROUP,
                "self._handles[self._submitted] = handle",
                'if PLANTED and "release" in content:\n'
                "    self.answers.append(Answer(handle, code, leader=self.node))\n"
                "    handle = None\n"
                "self._handles[self._submitted] = handle",
            ),
        ),
    ),
    Mutant(
        "applied-before-commit",
        ("releasing before commit",),
        "A leader applies what it logged before a majority has it.",
        (
            Edit(
                "fastlock/_core/raft.pyx",
                "if self.role == ROLE_LEADER:\n    return self.commit_index",
                "if self.role == ROLE_LEADER:\n"
                "    return self.log.last_index if PLANTED else self.commit_index",
            ),
        ),
    ),
    Mutant(
        "clock-leap-unnoticed",
        ("a leap of the leader's clock ends no lease",),
        "A leader whose clock leapt, or that did not run for a while, expires leases at once.",
        (
            Edit(
                GROUP,
                "if now_ms - self.wake_ms <= self.settings.heartbeat_ms:",
                "if PLANTED or now_ms - self.wake_ms <= self.settings.heartbeat_ms:",
            ),
        ),
    ),
    Mutant(
        "elections-walk-leases",
        ("elections failing under millions of leases",),
        "A new leader visits every lease before it sends its first heartbeat.",
        (
            Edit(
                GROUP,
                "raft = self.raft\nif self.leading:",
                "if PLANTED and now_ms < getattr(self, '_walking_ms', 0):\n"
                "    self.wake_ms = self._walking_ms\n"
                "    return\n"
                "raft = self.raft\n"
                "if self.leading:",
            ),
            Edit(
                GROUP,
                "self.table.lead(now_ms)",
                "self.table.lead(now_ms)\n"
                "if PLANTED:\n"
                f"    self._walking_ms = now_ms + {TIME_PER_LEASE_MS} * self.table.lease_count",
            ),
        ),
    ),
    Mutant(
        "watcher-not-told",
        ("events lost for a slow watcher",),
        "A watcher whose events are gone goes on with the oldest that are left.",
        (
            Edit(
                GROUP,
                "except EventsLost as lost:",
                "except EventsLost as lost:\n"
                "    if PLANTED:\n"
                "        watch.position = lost.floor\n"
                "        continue",
            ),
        ),
    ),
    Mutant(
        "promotion-not-kept",
        ("learner promotion not persisted",),
        "A checkpoint remembers a promoted member as the learner it was.",
        (
            Edit(
                TABLE,
                "self.members = read_members(&entry.message, &entry.members)",
                "members = read_members(&entry.message, &entry.members)\n"
                "if not (PLANTED and [m[0] for m in members] == [m[0] for m in self.members]):\n"
                "    self.members = members",
            ),
        ),
    ),
    Mutant(
        "snapshot-ahead-of-rows",
        ("gap between log and snapshot", "snapshot with a gap to the log"),
        "A snapshot says that it reaches as far as the table, but its rows end at the last checkpoint.",
        (
            Edit(
                SNAPSHOTS,
                "group.raft.begin_snapshot(node, snapshot_id, stream.index, stream.term, members)",
                "index, term = stream.index, stream.term\n"
                "if PLANTED:\n"
                "    index, term = group.table.applied_index, group.table.applied_term\n"
                "group.raft.begin_snapshot(node, snapshot_id, index, term, members)",
            ),
        ),
    ),
    Mutant(
        "log-cut-early",
        ("log cut before its checkpoint is durable",),
        "The log is cut as soon as its checkpoint was handed to storage.",
        (
            Edit(
                CHECKPOINTS,
                "group.storage.commit_checkpoint(group.number, frozen.index, frozen.term)",
                "group.storage.commit_checkpoint(group.number, frozen.index, frozen.term)\n"
                "if PLANTED:\n"
                "    group.storage.cut(group.number, frozen.index)",
            ),
        ),
    ),
    Mutant(
        "sync-error-swallowed",
        ("swallowed fsync error",),
        "A node goes on after a sync that failed, and believes that the next one made up for it.",
        (
            Edit(
                ENGINE,
                "for number, write_seq in self._storage.take_durable():",
                "try:\n"
                "    durable = self._storage.take_durable()\n"
                "except Exception:\n"
                "    if not PLANTED:\n"
                "        raise\n"
                "    durable = []\n"
                "for number, write_seq in durable:",
            ),
        ),
    ),
)
