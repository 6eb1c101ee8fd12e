"""The schemas' enums and union members under their own names, and the schemas' constants.

Generated from fastlock/schema/*.capnp by tools/generate_layout.py; do not edit.
"""

from enum import IntEnum
from typing import Final

FORMAT_VERSION: Final = 1
NO_EXPIRY_TTL_MS: Final = 9223372036854775807
PROTOCOL_VERSION: Final = 1


class EntryKind(IntEnum):
    noop = 0
    batch = 1
    membership = 2


class MemberRole(IntEnum):
    voter = 0
    learner = 1
    witness = 2


class CommandWhich(IntEnum):
    unset = 0
    openSession = 1
    closeSession = 2
    expireSession = 3
    createLease = 4
    changeTtl = 5
    noteRemaining = 6
    revoke = 7
    expire = 8
    acquire = 9
    acquireAll = 10
    release = 11
    cancelWait = 12
    forceRelease = 13
    endDelay = 14
    putValue = 15
    deleteValue = 16
    configure = 17
    ownSlots = 18
    exportSlots = 19
    importSlots = 20
    dropSlots = 21


class LockMode(IntEnum):
    exclusive = 0
    shared = 1
    semaphore = 2


class LeaseUse(IntEnum):
    existing = 0
    create = 1
    createBound = 2


class SettingId(IntEnum):
    unset = 0
    keyBytesMax = 1
    ownerBytesMax = 2
    valueBytesMax = 3
    ttlMsMax = 4
    lockDelayMsMax = 5
    locksMax = 6
    leasesMax = 7
    sessionsMax = 8
    claimsPerLeaseMax = 9
    waitersPerLockMax = 10
    keysPerAcquireMax = 11
    semaphoreLimitMax = 12
    answersPerSessionMax = 13
    sessionLifetimeMs = 14
    hashSeed = 15


class Code(IntEnum):
    ok = 0
    queued = 1
    notAcquired = 2
    lockDelayed = 3
    leaseLost = 4
    leaseExists = 5
    staleToken = 6
    modeMismatch = 7
    waitCancelled = 8
    notFound = 9
    wrongSlot = 10
    crossSlot = 11
    sessionUnknown = 12
    sequenceStale = 13
    limitExceeded = 14
    ttlOutOfRange = 15
    invalidArgument = 16
    staleGeneration = 17
    heldByOther = 18
    malformedFrame = 19
    frameTooLarge = 20
    unsupportedVersion = 21
    unknownCommand = 22
    wrongCluster = 23
    wrongNode = 24
    staleIncarnation = 25
    unauthenticated = 26
    forbidden = 27
    helloExpected = 28
    notLeader = 29
    outcomeUnknown = 30
    unavailable = 31
    busy = 32
    storageFull = 33
    shuttingDown = 34
    deadlineExceeded = 35
    eventsLost = 36
    groupUnknown = 37


class Argument(IntEnum):
    unset = 0
    key = 1
    keys = 2
    mode = 3
    limit = 4
    count = 5
    leaseUse = 6
    leaseId = 7
    setting = 8
    slots = 9
    rows = 10
    tokenFloor = 11
    acknowledgedBelow = 12
    sequence = 13
    session = 14


class RowKind(IntEnum):
    unset = 0
    group = 1
    session = 2
    lease = 3
    lock = 4


class RowMode(IntEnum):
    free = 0
    lock = 1
    semaphore = 2


class SlotState(IntEnum):
    foreign = 0
    owned = 1
    exported = 2
    importing = 3


class Role(IntEnum):
    client = 0
    gateway = 1
    member = 2


class RequestWhich(IntEnum):
    unset = 0
    command = 1
    getLock = 2
    list = 3
    watch = 4
    unwatch = 5
    keepAlive = 6
    hello = 7
    describe = 8


class ReplyWhich(IntEnum):
    done = 0
    grant = 1
    conflict = 2
    session = 3
    lock = 4
    page = 5
    events = 6
    keptAlive = 7
    hello = 8
    cluster = 9


class EventKind(IntEnum):
    unset = 0
    acquired = 1
    transferred = 2
    released = 3
    expired = 4
    revoked = 5
    forced = 6
    put = 7
    deleted = 8
    delayEnded = 9


class PeerMessageWhich(IntEnum):
    unset = 0
    raft = 1
    beats = 2
    forward = 3
    forwardReply = 4
    join = 5
    joinReply = 6
    leave = 7
    hello = 8
    introduction = 9


class Stage(IntEnum):
    empty = 0
    founded = 1
    started = 2


class RaftKind(IntEnum):
    unset = 0
    append = 1
    appendReply = 2
    heartbeat = 3
    heartbeatReply = 4
    preVote = 5
    preVoteReply = 6
    vote = 7
    voteReply = 8
    readIndex = 9
    readIndexReply = 10
    timeoutNow = 11
    snapshotChunk = 12
    snapshotReply = 13
