@0xe27d9a40c1b35f88;
# What members say to each other: Raft, snapshots, forwarded requests, joining.

using Log = import "log.capnp";
using Client = import "client.capnp";

struct PeerMessage {
  union {
    unset @0 :Void;
    raft @1 :RaftMessage;
    beats @2 :Beats;
    forward @3 :Forward;
    forwardReply @4 :ForwardReply;
    join @5 :Join;
    joinReply @6 :JoinReply;
    leave @7 :Leave;
    hello @8 :Client.Hello;
    introduction @9 :Introduction;
  }
}

struct Introduction {
  # Follows the hello on every link, both ways, and comes again when something in it changed.
  version @0 :UInt16;
  node @1 :Client.Node;            # where this member's listeners are
  stage @2 :Stage;
  clusterHigh @3 :UInt64;          # 0 while empty
  clusterLow @4 :UInt64;
  founders @5 :List(Log.Member);   # as this node was told; their incarnations are not known yet
  partitions @6 :UInt32;
  process @7 :UInt64;              # drawn at start: tells a node that runs twice from one that dials again
  full @8 :Bool;                   # short of space: it should not lead
}

enum Stage {
  # How far a directory is on its way into a cluster. No group runs anywhere before all are founded.
  empty @0;
  founded @1;      # has the cluster's id; never took part
  started @2;      # takes part, or did
}

struct RaftMessage {
  # One flat struct for all of Raft's messages, so that one reader serves them all. Which fields
  # a kind uses is said beside the kind.
  kind @0 :RaftKind;
  group @1 :UInt32;
  source @2 :UInt64;               # node ids
  target @3 :UInt64;
  term @4 :UInt64;
  index @5 :UInt64;
  logTerm @6 :UInt64;
  commit @7 :UInt64;
  context @8 :UInt64;              # read sequence, snapshot id
  hintIndex @9 :UInt64;
  hintTerm @10 :UInt64;
  reject @11 :Bool;
  force @12 :Bool;                 # a vote asked for by a leadership transfer ignores stickiness
  last @13 :Bool;                  # the last chunk of a snapshot
  entries @14 :List(Data);         # LogEntry frames, byte for byte as they are stored
  chunk @15 :Data;
  membership @16 :Log.Membership;
}

enum RaftKind {
  unset @0;
  append @1;            # index, logTerm = the entry before; commit; entries
  appendReply @2;       # index = last matching, or with reject: index refused, hintIndex, hintTerm
  heartbeat @3;         # commit = min(matched, commit); context = newest read to confirm
  heartbeatReply @4;    # context
  preVote @5;           # index, logTerm = last entry; term = the term it would campaign in
  preVoteReply @6;      # reject
  vote @7;              # index, logTerm; force
  voteReply @8;         # reject
  readIndex @9;         # context = the asker's read sequence
  readIndexReply @10;   # context; index; reject = not the leader, or too early
  timeoutNow @11;       # leadership transfer: campaign at once
  snapshotChunk @12;    # index, logTerm = what it covers; context = its id; hintIndex = offset; chunk; last; membership
  snapshotReply @13;    # context; hintIndex = next offset wanted; reject
}

struct Beats {
  # The heartbeats of all groups between two nodes, in one frame.
  source @0 :UInt64;
  target @1 :UInt64;
  beats @2 :List(Beat);
}

struct Beat {
  group @0 :UInt32;
  reply @1 :Bool;
  term @2 :UInt64;
  commit @3 :UInt64;
  context @4 :UInt64;
}

struct Forward {
  # Requests a node accepted for groups it does not lead, sent once to their leader. Each has an id of the
  # forwarder's own, by which it knows the answer.
  group @0 :UInt32;                # 0 = of several groups
  source @1 :UInt64;
  batch @2 :UInt64;
  requests @3 :List(Data);         # each: one or more Request frames
}

struct ForwardReply {
  group @0 :UInt32;
  batch @1 :UInt64;
  code @2 :Log.Code;
  leader @3 :UInt64;
  replies @4 :List(Data);          # each: one or more Reply frames
}

struct Join {
  version @0 :UInt16;
  member @1 :Log.Member;
  hops @2 :UInt16;                 # redirects followed so far
}

struct JoinReply {
  code @0 :Log.Code;
  leader @1 :Text;                 # where to ask instead
  clusterHigh @2 :UInt64;
  clusterLow @3 :UInt64;
  members @4 :List(Log.Member);
}

struct Leave {
  node @0 :UInt64;
}
