@0xd5a1f0c3b7e94a61;
# What a group replicates and stores: log entries, the commands in them, and checkpoint rows.
#
# Fields are only ever added, never reused or renumbered. Anything an older release must not
# guess about raises `formatVersion`; a reader that meets a higher one stops its group.

const formatVersion :UInt16 = 1;

struct LogEntry {
  version @0 :UInt16;
  kind @1 :EntryKind;
  group @2 :UInt32;
  term @3 :UInt64;
  index @4 :UInt64;
  commands @5 :List(Command);      # kind = batch
  membership @6 :Membership;       # kind = membership
}

enum EntryKind {
  noop @0;         # a leader's first entry of its term
  batch @1;        # everything a group collected in one turn of the loop
  membership @2;   # one member added, promoted or removed
}

struct Membership {
  version @0 :UInt16;
  members @1 :List(Member);        # the whole configuration from this entry on
}

struct Member {
  node @0 :UInt64;
  incarnation @1 :UInt64;
  role @2 :MemberRole;
  address @3 :Text;                # host:port of the peer listener
}

enum MemberRole {
  voter @0;
  learner @1;
  witness @2;
}

struct Command {
  # Exactly-once: session 0 means that nobody will ever repeat this command.
  session @0 :UInt64;
  sequence @1 :UInt64;
  acknowledgedBelow @2 :UInt64;
  # The 128-bit lease id; zero where the command names none.
  leaseHigh @3 :UInt64;
  leaseLow @4 :UInt64;
  key @5 :Data;

  union {
    unset @6 :Void;                # never valid: a zeroed command is refused

    openSession :group {
      lifetimeMs @7 :UInt64;       # how long the session outlives its last use; 0 = the group's default
    }
    closeSession @8 :Void;
    expireSession :group {
      session @9 :UInt64;
      uses @10 :UInt64;            # acts only while the session was not used since
    }

    createLease :group {
      ttlMs @11 :Int64;            # noExpiryTtlMs = the lease never ends by itself
      owner @12 :Data;
    }
    changeTtl :group {
      ttlMs @13 :Int64;
    }
    noteRemaining :group {
      generation @14 :UInt64;
      remainingMs @15 :UInt64;     # 0 = the full TTL again
    }
    revoke @16 :Void;
    expire :group {
      generation @17 :UInt64;
    }

    acquire :group {
      request @18 :UInt64;         # holder identity is (lease, request)
      ttlMs @19 :Int64;            # of the lease this acquire creates
      mode @20 :LockMode;
      lease @21 :LeaseUse;
      wait @22 :Bool;
      limit @23 :UInt32;           # semaphore capacity
      count @24 :UInt32;           # units taken of it
      lockDelayMs @25 :UInt32;     # nobody gets the key for so long after this holder's lease expired
      owner @26 :Data;             # of the lease this acquire creates
    }
    acquireAll :group {
      request @27 :UInt64;
      ttlMs @28 :Int64;
      mode @29 :LockMode;
      lease @30 :LeaseUse;
      wait @31 :Bool;
      lockDelayMs @32 :UInt32;
      owner @33 :Data;
      keys @34 :List(Data);        # all in one slot, no two the same
    }
    release :group {
      token @35 :UInt64;
    }
    cancelWait :group {
      request @36 :UInt64;
      sequence @37 :UInt64;        # of the acquire that is called off, in this command's session
      keys @38 :List(Data);        # of an acquireAll; empty otherwise
    }
    forceRelease :group {
      token @39 :UInt64;           # 0 = every holder
      actor @40 :Data;
      reason @41 :Data;
    }
    endDelay :group {
      generation @42 :UInt64;
    }

    putValue :group {
      token @43 :UInt64;           # 0 = unfenced: acts only while nobody holds the key
      value @44 :Data;
    }
    deleteValue :group {
      token @45 :UInt64;
    }

    configure :group {
      settings @46 :List(Setting);
    }
    ownSlots :group {
      first @47 :UInt16;
      last @48 :UInt16;
    }
    exportSlots :group {
      first @49 :UInt16;
      last @50 :UInt16;
      toGroup @51 :UInt32;
    }
    importSlots :group {
      first @52 :UInt16;
      last @53 :UInt16;
      complete @54 :Bool;          # the last chunk: the group owns the slots from here on
      tokenFloor @55 :UInt64;      # the sender's revision; ours is raised to it before anything else
      rows @56 :List(Data);        # each: one word with RowKind in its first byte, then a row frame
    }
    dropSlots :group {
      first @57 :UInt16;
      last @58 :UInt16;
    }
  }
}

const noExpiryTtlMs :Int64 = 9223372036854775807;

enum LockMode {
  exclusive @0;
  shared @1;
  semaphore @2;
}

enum LeaseUse {
  existing @0;     # the lease must be alive; an unknown id is leaseLost
  create @1;       # this command creates it; it lives until it expires or is revoked
  createBound @2;  # this command creates it; it ends with the last lock or wait it has
}

struct Setting {
  id @0 :SettingId;
  value @1 :UInt64;
}

enum SettingId {
  unset @0;
  keyBytesMax @1;
  ownerBytesMax @2;
  valueBytesMax @3;
  ttlMsMax @4;
  lockDelayMsMax @5;
  locksMax @6;
  leasesMax @7;
  sessionsMax @8;
  claimsPerLeaseMax @9;
  waitersPerLockMax @10;
  keysPerAcquireMax @11;
  semaphoreLimitMax @12;
  answersPerSessionMax @13;
  sessionLifetimeMs @14;
  hashSeed @15;
}

enum Code {
  # What became of a command or request. Numbers are stable for ever; clients switch on them.
  ok @0;
  queued @1;
  # The lock table's refusals: nothing changed.
  notAcquired @2;
  lockDelayed @3;
  leaseLost @4;
  leaseExists @5;
  staleToken @6;
  modeMismatch @7;
  waitCancelled @8;
  notFound @9;
  wrongSlot @10;
  crossSlot @11;
  sessionUnknown @12;
  sequenceStale @13;
  limitExceeded @14;               # detail = SettingId
  ttlOutOfRange @15;
  invalidArgument @16;             # detail = Argument
  staleGeneration @17;
  heldByOther @18;
  # The edge's refusals.
  malformedFrame @19;
  frameTooLarge @20;
  unsupportedVersion @21;
  unknownCommand @22;
  wrongCluster @23;
  wrongNode @24;
  staleIncarnation @25;
  unauthenticated @26;
  forbidden @27;
  helloExpected @28;
  # Availability.
  notLeader @29;
  outcomeUnknown @30;
  unavailable @31;
  busy @32;
  storageFull @33;
  shuttingDown @34;
  deadlineExceeded @35;
  eventsLost @36;
  groupUnknown @37;
}

enum Argument {
  # Which argument an invalidArgument is about.
  unset @0;
  key @1;
  keys @2;
  mode @3;
  limit @4;
  count @5;
  leaseUse @6;
  leaseId @7;
  setting @8;
  slots @9;
  rows @10;
  tokenFloor @11;
  acknowledgedBelow @12;
  sequence @13;
  session @14;
}

enum RowKind {
  # The first byte of a stored row's key; rows are loaded in the order of their keys.
  unset @0;
  group @1;
  session @2;      # then the id, 8 bytes big endian
  lease @3;        # then both halves of the id, 8 bytes big endian each
  lock @4;         # then the key
}

# Checkpoint rows. A stored row is one of these structs in a single-segment stream frame; the
# storage layer adds its checksum around it.

struct LockRow {
  version @0 :UInt16;
  mode @1 :RowMode;
  slot @2 :UInt16;
  limit @3 :UInt32;
  delayMs @4 :UInt32;              # 0 = not in lock-delay
  delayGeneration @5 :UInt64;
  valueRevision @6 :UInt64;        # 0 = no value
  valueToken @7 :UInt64;
  key @8 :Data;
  value @9 :Data;
  holders @10 :List(ClaimRow);     # by token
  waiters @11 :List(ClaimRow);     # in queue order
}

enum RowMode {
  free @0;         # no holder, no waiter: only a value or a delay keeps the row
  lock @1;         # exclusive and shared claims
  semaphore @2;
}

struct ClaimRow {
  leaseHigh @0 :UInt64;
  leaseLow @1 :UInt64;
  request @2 :UInt64;
  revision @3 :UInt64;             # holder: its token; waiter: the revision it was enqueued at
  count @4 :UInt32;
  lockDelayMs @5 :UInt32;
  mode @6 :LockMode;
  position @7 :UInt16;             # which key of its acquireAll
  keyTotal @8 :UInt16;             # of its acquireAll while it waits; 0 = a single acquire
}

struct LeaseRow {
  version @0 :UInt16;
  bound @1 :Bool;
  leaseHigh @2 :UInt64;
  leaseLow @3 :UInt64;
  ttlMs @4 :Int64;
  generation @5 :UInt64;           # 0 = ended, but exported slots still name it
  remainingMs @6 :UInt64;
  lostRevision @7 :UInt64;         # of the last forced release that hit it
  owner @8 :Data;
}

struct SessionRow {
  version @0 :UInt16;
  session @1 :UInt64;
  watermark @2 :UInt64;
  uses @3 :UInt64;
  lifetimeMs @4 :UInt64;
  answers @5 :List(AnswerRow);     # by sequence
}

struct AnswerRow {
  sequence @0 :UInt64;
  code @1 :Code;
  kind @2 :UInt16;                 # the command's union discriminant
  count @3 :UInt32;
  detail @4 :UInt32;
  token @5 :UInt64;
  revision @6 :UInt64;
}

struct GroupRow {
  version @0 :UInt16;
  group @1 :UInt32;
  index @2 :UInt64;                # the checkpoint's place in the log
  term @3 :UInt64;
  revision @4 :UInt64;
  historyFloor @5 :UInt64;
  settings @6 :List(Setting);
  slots @7 :Data;                  # one byte a slot: SlotState
  movedTo @8 :List(MovedSlots);
  membership @9 :Membership;
}

enum SlotState {
  foreign @0;      # not ours
  owned @1;
  exported @2;     # frozen here until dropped; another group takes over
  importing @3;    # rows are arriving; not ours yet
}

struct MovedSlots {
  first @0 :UInt16;
  last @1 :UInt16;
  toGroup @2 :UInt32;
}
