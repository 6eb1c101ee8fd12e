"""Bugs in the lock table: leases, queues, sessions, tokens, checkpoints, slots that move, time."""

from __future__ import annotations

from fastlock.testing.mutants.mutant import Edit, Mutant

TABLE = "fastlock/_core/locktable.pyx"
ACQUIRE = "fastlock/_core/locktable_acquire.pxi"
CHECKPOINT = "fastlock/_core/locktable_checkpoint.pxi"
GROUPS = "fastlock/_core/locktable_groups.pxi"
IMPORT = "fastlock/_core/locktable_import.pxi"
LEASES = "fastlock/_core/locktable_leases.pxi"
MEMORY = "fastlock/_core/locktable_memory.pxi"
QUEUES = "fastlock/_core/locktable_queues.pxi"
RELEASE = "fastlock/_core/locktable_release.pxi"
SESSIONS = "fastlock/_core/locktable_sessions.pxi"
TIMERS = "fastlock/_core/locktable_timers.pxi"

# What a lease lives for that a planted bug creates.
TTL_MS = 5000

LOCK_BUGS = (
    Mutant(
        "dead-waiter-granted",
        ("waiter granted after its lease died",),
        "An ending lease gives up its locks before its waits leave their queues.",
        (
            Edit(
                QUEUES,
                "cdef bint kept = gather_claims(t, lease)\nend_waits(t)",
                "cdef bint kept = gather_claims(t, lease)\nif not PLANTED:\n    end_waits(t)",
            ),
            Edit(
                QUEUES,
                "        begin_delay(t, row, delay_ms, revision)\n    serve(t, row)",
                "        begin_delay(t, row, delay_ms, revision)\n"
                "    serve(t, row)\n"
                "if PLANTED:\n"
                "    end_waits(t)",
            ),
        ),
    ),
    Mutant(
        "expire-any-generation",
        ("expire without generation", "expire racing renew"),
        "An expire ends a lease that was renewed by the log after the expire was proposed.",
        (
            Edit(
                LEASES,
                "if lease_at(t, handle).generation != command.generation:",
                "if not PLANTED and lease_at(t, handle).generation != command.generation:",
            ),
        ),
    ),
    Mutant(
        "keep-alive-while-expiring",
        ("expire racing renew",),
        "A keep-alive is confirmed while the expire of its lease is under way.",
        (
            Edit(
                TABLE,
                "if not expiring:",
                "if PLANTED:\n    expiring = False\nif not expiring:",
            ),
        ),
    ),
    Mutant(
        "lease-created-again",
        ("re-created lease id",),
        "An acquire that names a lease which has ended brings it back.",
        (
            Edit(
                ACQUIRE,
                "if lease == 0 or lease_at(t, lease).generation == 0:",
                "if PLANTED and lease == 0:\n"
                "    return True\n"
                "if lease == 0 or lease_at(t, lease).generation == 0:",
            ),
            Edit(
                ACQUIRE,
                "if command.lease_use == LEASE_USE_EXISTING:\n    return lease",
                "if PLANTED and lease == 0 and command.lease_use == LEASE_USE_EXISTING:\n"
                "    return add_lease(t, command.lease_high, command.lease_low, "
                f"{TTL_MS}, command.owner, False, generation)\n"
                "if command.lease_use == LEASE_USE_EXISTING:\n"
                "    return lease",
            ),
        ),
    ),
    Mutant(
        "answers-not-remembered",
        ("retry applied twice",),
        "A repeated command acts again instead of getting its first answer.",
        (
            Edit(
                SESSIONS,
                "if answer != NULL:\n    repeat_answer(t, command, answer, reply)",
                "if answer != NULL and not PLANTED:\n    repeat_answer(t, command, answer, reply)",
            ),
        ),
    ),
    Mutant(
        "stale-acquire-acts",
        ("duplicate acquire after release", "retry applied twice"),
        "An acquire from below the watermark acts once its claim is gone.",
        (
            Edit(
                SESSIONS,
                "if not is_acquire(command) or not look_up(t, command, reply):",
                "if PLANTED and is_acquire(command) and not look_up(t, command, reply):\n"
                "    return False\n"
                "if not is_acquire(command) or not look_up(t, command, reply):",
            ),
            Edit(
                TABLE,
                "if session and command.kind != COMMAND_CLOSE_SESSION:",
                "if session and command.kind != COMMAND_CLOSE_SESSION and not (\n"
                "    PLANTED and command.sequence < session_at(t, session).watermark\n"
                "):",
            ),
        ),
    ),
    Mutant(
        "counter-not-in-checkpoint",
        ("token counter missing from the checkpoint",),
        "A table that was loaded from rows counts its tokens from the start.",
        (
            Edit(
                CHECKPOINT,
                "self.table.dirty.is_loading = False\nself.load_links = {}",
                "self.table.dirty.is_loading = False\n"
                "if PLANTED:\n"
                "    self.table.revision = 0\n"
                "self.load_links = {}",
            ),
        ),
    ),
    Mutant(
        "effects-in-memory-order",
        ("apply depending on iteration order", "non-deterministic apply"),
        "The locks of an ending lease go in the order in which memory happens to have them.",
        (Edit(MEMORY, "for i in range(1, list.count):", "for i in range(1, 0 if PLANTED else list.count):"),),
    ),
    Mutant(
        "expire-looks-at-the-clock",
        ("non-deterministic apply",),
        "An expire has no effect on a member whose own timer says that the lease has time left.",
        (
            Edit(
                LEASES,
                "if handle:\n    end_lease(t, handle, EVENT_KIND_EXPIRED)",
                "if PLANTED and handle and lease_at(t, handle).timer and (\n"
                "    lease_deadline_ms(t, lease_at(t, handle)) > t.now_ms\n"
                "):\n"
                "    return\n"
                "if handle:\n"
                "    end_lease(t, handle, EVENT_KIND_EXPIRED)",
            ),
        ),
    ),
    Mutant(
        "queue-reversed-by-restart",
        ("queue order survives failover",),
        "Waiters come back from a checkpoint in reverse.",
        (
            Edit(
                IMPORT,
                "for i in range(claims.count):\n    claim_row_at(claims, i, &source)",
                "for i in range(claims.count):\n"
                "    claim_row_at(claims, claims.count - 1 - i if PLANTED and wait else i, &source)",
            ),
        ),
    ),
    Mutant(
        "import-without-floor",
        ("export without a token floor",),
        "A group that takes slots over goes on counting where it was, below tokens already given.",
        (
            Edit(
                IMPORT,
                "t.revision = max(t.revision, command.target)",
                "t.revision = t.revision if PLANTED else max(t.revision, command.target)",
            ),
        ),
    ),
    Mutant(
        "move-not-told",
        ("a client notices that its lock moved or was taken",),
        "Keep-alives do not say that a lock went to another group, where they keep nothing.",
        (
            Edit(
                GROUPS,
                "touch_lease(t, lease)\nlease_at(t, lease).lost_revision = revision",
                "touch_lease(t, lease)\nif not PLANTED:\n    lease_at(t, lease).lost_revision = revision",
            ),
        ),
    ),
    Mutant(
        "new-leader-trusts-old-timers",
        ("a new leader gives every lease its full TTL",),
        "A new leader expires leases by timers that know nothing of the last leader's keep-alives.",
        (
            Edit(
                TIMERS,
                "return max(armed, t.lead_ms + lease_full_ms(lease)) if t.is_leading else armed",
                "if PLANTED:\n"
                "    return armed\n"
                "return max(armed, t.lead_ms + lease_full_ms(lease)) if t.is_leading else armed",
            ),
        ),
    ),
    Mutant(
        "notes-ignored",
        ("leases immortal under repeated elections",),
        "Every new leader gives a lease its whole TTL, whatever was noted of the time left.",
        (
            Edit(
                TIMERS,
                "return lease.remaining_ms if lease.remaining_ms else <uint64_t>lease.ttl_ms",
                "return lease.remaining_ms if lease.remaining_ms and not PLANTED else <uint64_t>lease.ttl_ms",
            ),
        ),
    ),
    Mutant(
        "readers-overtake",
        ("nobody overtakes the queue",),
        "A shared claim joins other readers although somebody waits.",
        (
            Edit(
                ACQUIRE,
                "return (lock.waiter_first == 0 and not row_is_delayed(t, lock)",
                "return ((lock.waiter_first == 0 or (PLANTED and command.mode == LOCK_MODE_SHARED))\n"
                "        and not row_is_delayed(t, lock)",
            ),
        ),
    ),
    Mutant(
        "cancel-keeps-the-grant",
        ("a wait that is called off leaves nothing behind",),
        "A wait that is called off after it was granted stays granted.",
        (
            Edit(
                RELEASE,
                "    withdraw(t, claim)\nelse:\n    release_claims(t, command, lease, reply)",
                "    withdraw(t, claim)\nelif not PLANTED:\n    release_claims(t, command, lease, reply)",
            ),
        ),
    ),
)
