"""Who belongs to a group: the configuration in force, those before it, and which change may follow."""

cimport cython
from libc.stdint cimport uint64_t

from fastlock._core cimport layout
from fastlock._core.raft_entry cimport members_of_frame
from fastlock._core.raft_message cimport MEMBERS_MAX, Entry, Member


@cython.final
cdef class Configuration:
    def __init__(self, uint64_t index, members):
        cdef Member member
        self.index = index
        self.members = in_order(members)
        if len(self.members) > MEMBERS_MAX:
            raise ValueError(f"a group has at most {MEMBERS_MAX} members, not {len(self.members)}")
        for member in self.members:
            if counts_for_quorum(member):
                self.voters[self.voter_count] = member.node
                self.voter_count += 1

    cdef Member find(self, uint64_t node):
        for member in self.members:
            if (<Member>member).node == node:
                return <Member>member
        return None

    cdef bint is_voter(self, uint64_t node) noexcept:
        cdef int position
        for position in range(self.voter_count):
            if self.voters[position] == node:
                return True
        return False

    cdef bint may_lead(self, uint64_t node):
        """A witness votes and never leads."""
        cdef Member member = self.find(node)
        return member is not None and member.role == layout.MEMBER_ROLE_VOTER


@cython.final
cdef class Configurations:
    """A configuration is in force from the moment its entry is in the log, and no longer than that."""

    def __init__(self, uint64_t index, members):
        self.restart(index, tuple(members))

    cdef int restart(self, uint64_t index, tuple members) except -1:
        self.current = Configuration(index, members)
        self.history = [self.current]
        return 0

    cdef int append(self, Entry entry) except -1:
        self.current = Configuration(entry.index, members_of_frame(entry.data))
        self.history.append(self.current)
        return 0

    cdef int truncate(self, uint64_t from_index) except -1:
        while len(self.history) > 1 and self.current.index >= from_index:
            self.history.pop()
            self.current = <Configuration>self.history[len(self.history) - 1]
        return 0

    cdef int compact(self, uint64_t index) except -1:
        while len(self.history) > 1 and (<Configuration>self.history[1]).index <= index:
            del self.history[0]
        return 0

    cdef Configuration at(self, uint64_t index):
        cdef Configuration found = <Configuration>self.history[0]
        for configuration in self.history:
            if (<Configuration>configuration).index <= index:
                found = <Configuration>configuration
        return found


cdef tuple in_order(members):
    """The members by node id; ValueError if two have the same."""
    cdef list ordered = sorted(members, key=node_of)
    cdef Py_ssize_t position
    for position in range(1, len(ordered)):
        if (<Member?>ordered[position]).node == (<Member?>ordered[position - 1]).node:
            raise ValueError(f"node {ordered[position].node} is listed twice")
    return tuple(ordered)


def node_of(Member member not None):
    return member.node


cdef inline bint counts_for_quorum(Member member) noexcept:
    return member.role != layout.MEMBER_ROLE_LEARNER


cdef uint64_t quorum_value(uint64_t* values, int count) noexcept:
    """The largest value that a majority has reached. Sorts in place; 0 without any value."""
    cdef int position, slot
    cdef uint64_t value
    if count == 0:
        return 0
    for position in range(1, count):
        value = values[position]
        slot = position
        while slot > 0 and values[slot - 1] < value:
            values[slot] = values[slot - 1]
            slot -= 1
        values[slot] = value
    return values[count // 2]


cdef str why_invalid_change(tuple before, tuple after):
    """Why one configuration must not follow another, or None.

    One member at a time: the majorities of the two then always share a member. A member that lost its memory
    comes back under a new incarnation, and only as a learner: whatever it promised before is forgotten.
    """
    cdef dict old = {(<Member>member).node: member for member in before}
    cdef dict new = {(<Member>member).node: member for member in after}
    cdef Member was, becomes
    cdef int changes = 0
    for node in sorted(set(old) | set(new)):
        was = old.get(node)
        becomes = new.get(node)
        if was == becomes:
            continue
        changes += 1
        if was is not None and becomes is not None and was.incarnation != becomes.incarnation:
            if becomes.incarnation < was.incarnation:
                return f"node {node} would return to incarnation {becomes.incarnation}"
            if becomes.role != layout.MEMBER_ROLE_LEARNER:
                return f"node {node} has a new incarnation and must enter as a learner"
    if changes == 0:
        return "nothing changes"
    if changes > 1:
        return f"{changes} members change at once"
    if len(after) > MEMBERS_MAX:
        return f"more than {MEMBERS_MAX} members"
    if not any((<Member>member).role == layout.MEMBER_ROLE_VOTER for member in after):
        return "no member would be left that can lead"
    return None


cdef uint64_t promoted_learner(tuple before, tuple after) except? 0:
    """The learner that a change lets vote; 0 if there is none."""
    cdef Member member
    cdef set learners = {
        (<Member>known).node for known in before if (<Member>known).role == layout.MEMBER_ROLE_LEARNER
    }
    for member in after:
        if member.role != layout.MEMBER_ROLE_LEARNER and member.node in learners:
            return member.node
    return 0
