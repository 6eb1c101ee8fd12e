@0xb9c6f3e0a2d84f17;
# What clients and nodes say to each other. One connection carries everything: requests are
# answered out of order by id, and a waiting acquire is answered twice (queued, then its end).

using Log = import "log.capnp";

const protocolVersion :UInt16 = 1;

struct Hello {
  # The first frame on every connection, client or peer, both ways.
  version @0 :UInt16;
  role @1 :Role;
  clusterHigh @2 :UInt64;          # 0 from a client that does not know it yet
  clusterLow @3 :UInt64;
  node @4 :UInt64;                 # 0 from a client
  incarnation @5 :UInt64;
  software @6 :Text;
  credentials @7 :Data;
  code @8 :Log.Code;               # in the answer: ok, or why the connection is about to close
  message @9 :Text;
}

enum Role {
  client @0;
  gateway @1;
  member @2;
}

struct Request {
  id @0 :UInt64;
  group @1 :UInt32;                # a hint; the slot decides
  timeoutMs @2 :UInt32;            # how long the caller waits for an answer; 0 = no limit
  union {
    unset @3 :Void;
    command @4 :Log.Command;
    getLock :group {
      key @5 :Data;
      stale @6 :Bool;              # any node's state will do
    }
    list :group {
      prefix @7 :Data;
      cursor @8 :Data;             # opaque; empty = from the start
      limit @9 :UInt32;
      stale @10 :Bool;
    }
    watch :group {
      key @11 :Data;
      prefix @12 :Bool;
      position @13 :Data;          # opaque, per group; empty = from now on
    }
    unwatch :group {
      watch @14 :UInt64;           # the id of the watch request
    }
    keepAlive @15 :List(KeepAlive);
    hello @16 :Hello;
    describe @17 :Void;            # members, groups, slot map
  }
}

struct KeepAlive {
  group @0 :UInt32;
  leaseHigh @1 :UInt64;
  leaseLow @2 :UInt64;
}

struct Reply {
  id @0 :UInt64;
  code @1 :Log.Code;
  group @2 :UInt32;
  detail @3 :UInt32;               # SettingId or Argument, where the code has one
  leader @4 :UInt64;               # node id to talk to directly; 0 = unknown
  revision @5 :UInt64;             # of the change; of the enqueueing while queued; in a conflict the first holder's token
  message @6 :Text;                # for people; empty on the fast path
  union {
    done @7 :Void;
    grant :group {
      token @8 :UInt64;            # of the first key
      count @9 :UInt32;            # keys granted; key i has token + i
    }
    conflict :group {
      retryMs @10 :UInt32;         # recommended delay before the next try
      waiters @11 :UInt32;
    }
    session @12 :UInt64;
    lock @13 :LockState;
    page :group {
      locks @14 :List(LockState);
      cursor @15 :Data;            # empty = complete
    }
    events :group {
      events @16 :List(Event);
      position @17 :Data;          # resume here
    }
    keptAlive @18 :List(KeptAlive);
    hello @19 :Hello;
    cluster @20 :Cluster;
  }
}

struct KeptAlive {
  group @0 :UInt32;
  code @1 :Log.Code;
  lostRevision @2 :UInt64;
  leaseHigh @3 :UInt64;
  leaseLow @4 :UInt64;
}

struct LockState {
  # Lease ids are secrets: they are never here.
  mode @0 :Log.RowMode;
  limit @1 :UInt32;
  waiterCount @2 :UInt32;
  delayMs @3 :UInt32;
  valueRevision @4 :UInt64;        # 0 = no value
  revision @5 :UInt64;             # the group's, when this was read
  key @6 :Data;
  value @7 :Data;
  holders @8 :List(ClaimState);
  waiters @9 :List(ClaimState);    # the first few
}

struct ClaimState {
  mode @0 :Log.LockMode;
  count @1 :UInt32;
  revision @2 :UInt64;             # holder: token; waiter: enqueued at
  ttlMs @3 :Int64;
  remainingMs @4 :Int64;           # -1 = not known on this node
  owner @5 :Data;
}

struct Event {
  revision @0 :UInt64;             # of a grant: its token
  kind @1 :EventKind;
  mode @2 :Log.LockMode;
  token @3 :UInt64;                # of the holder the event is about
  key @4 :Data;
  owner @5 :Data;
  value @6 :Data;                  # put: the value; forced: the reason
}

enum EventKind {
  unset @0;
  acquired @1;     # granted at once
  transferred @2;  # granted from the queue
  released @3;
  expired @4;
  revoked @5;
  forced @6;
  put @7;
  deleted @8;
  delayEnded @9;
}

struct Cluster {
  clusterHigh @0 :UInt64;
  clusterLow @1 :UInt64;
  epoch @2 :UInt64;
  members @3 :List(Node);
  groups @4 :List(Group);
  slotGroups @5 :List(SlotRange);
}

struct Node {
  id @0 :UInt64;
  incarnation @1 :UInt64;
  native @2 :Text;
  peer @3 :Text;
  http @4 :Text;
  resp @5 :Text;
}

struct Group {
  id @0 :UInt32;
  leader @1 :UInt64;
  term @2 :UInt64;
  commit @3 :UInt64;
  applied @4 :UInt64;
}

struct SlotRange {
  first @0 :UInt16;
  last @1 :UInt16;
  group @2 :UInt32;
}
