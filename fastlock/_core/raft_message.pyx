"""What Raft passes around: log entries, members and messages."""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from fastlock._core cimport layout


ENTRY_NOOP = layout.ENTRY_KIND_NOOP
ENTRY_BATCH = layout.ENTRY_KIND_BATCH
ENTRY_MEMBERSHIP = layout.ENTRY_KIND_MEMBERSHIP

ROLE_VOTER = layout.MEMBER_ROLE_VOTER
ROLE_LEARNER = layout.MEMBER_ROLE_LEARNER
ROLE_WITNESS = layout.MEMBER_ROLE_WITNESS

APPEND = layout.RAFT_KIND_APPEND
APPEND_REPLY = layout.RAFT_KIND_APPEND_REPLY
HEARTBEAT = layout.RAFT_KIND_HEARTBEAT
HEARTBEAT_REPLY = layout.RAFT_KIND_HEARTBEAT_REPLY
PRE_VOTE = layout.RAFT_KIND_PRE_VOTE
PRE_VOTE_REPLY = layout.RAFT_KIND_PRE_VOTE_REPLY
VOTE = layout.RAFT_KIND_VOTE
VOTE_REPLY = layout.RAFT_KIND_VOTE_REPLY
READ_INDEX = layout.RAFT_KIND_READ_INDEX
READ_INDEX_REPLY = layout.RAFT_KIND_READ_INDEX_REPLY
TIMEOUT_NOW = layout.RAFT_KIND_TIMEOUT_NOW
SNAPSHOT_CHUNK = layout.RAFT_KIND_SNAPSHOT_CHUNK
SNAPSHOT_REPLY = layout.RAFT_KIND_SNAPSHOT_REPLY

KIND_NAMES = (
    "unset", "append", "appendReply", "heartbeat", "heartbeatReply", "preVote", "preVoteReply", "vote",
    "voteReply", "readIndex", "readIndexReply", "timeoutNow", "snapshotChunk", "snapshotReply",
)

cdef tuple NO_ENTRIES = ()


@cython.final
@cython.freelist(256)
cdef class Entry:
    def __init__(self, uint64_t term, uint64_t index, uint16_t kind, bytes data not None):
        self.term = term
        self.index = index
        self.kind = kind
        self.data = data

    def __repr__(self):
        return f"Entry(term={self.term}, index={self.index}, kind={self.kind}, {len(self.data)} bytes)"


@cython.final
cdef class Member:
    def __init__(
        self,
        uint64_t node,
        uint16_t role=layout.MEMBER_ROLE_VOTER,
        uint64_t incarnation=1,
        str address not None="",
    ):
        if node == 0 or role >= layout.MEMBER_ROLE_TOTAL:
            raise ValueError(f"a member needs a node id above 0 and a known role, not {node} and {role}")
        self.node = node
        self.role = role
        self.incarnation = incarnation
        self.address = address

    def __eq__(self, other):
        if not isinstance(other, Member):
            return NotImplemented
        cdef Member that = <Member>other
        return (
            self.node == that.node
            and self.role == that.role
            and self.incarnation == that.incarnation
            and self.address == that.address
        )

    def __hash__(self):
        return hash((self.node, self.role, self.incarnation, self.address))

    def __repr__(self):
        return f"Member({self.node}, role={self.role}, incarnation={self.incarnation}, {self.address!r})"


@cython.final
@cython.freelist(256)
cdef class Message:
    def __init__(
        self,
        uint16_t kind,
        *,
        uint32_t group=0,
        uint64_t source=0,
        uint64_t target=0,
        uint64_t term=0,
        uint64_t index=0,
        uint64_t log_term=0,
        uint64_t commit=0,
        uint64_t context=0,
        uint64_t hint_index=0,
        uint64_t hint_term=0,
        bint reject=False,
        bint force=False,
        bint last=False,
        entries=NO_ENTRIES,
        bytes chunk not None=b"",
        tuple members=None,
    ):
        self.kind = kind
        self.group = group
        self.source = source
        self.target = target
        self.term = term
        self.index = index
        self.log_term = log_term
        self.commit = commit
        self.context = context
        self.hint_index = hint_index
        self.hint_term = hint_term
        self.reject = reject
        self.force = force
        self.last = last
        self.entries = entries
        self.chunk = chunk
        self.members = members

    def __repr__(self):
        name = KIND_NAMES[self.kind] if self.kind < len(KIND_NAMES) else self.kind
        return f"Message({name} {self.source}->{self.target} term={self.term} index={self.index})"


cdef Entry new_entry(uint64_t term, uint64_t index, uint16_t kind, bytes data):
    cdef Entry entry = Entry.__new__(Entry)
    entry.term = term
    entry.index = index
    entry.kind = kind
    entry.data = data
    return entry


cdef Message new_message(uint16_t kind, uint32_t group, uint64_t source, uint64_t target, uint64_t term):
    # Every other field starts as zero: the object comes out of __new__ cleared.
    cdef Message message = Message.__new__(Message)
    message.kind = kind
    message.group = group
    message.source = source
    message.target = target
    message.term = term
    message.entries = NO_ENTRIES
    message.chunk = b""
    return message
