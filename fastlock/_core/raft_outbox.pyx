"""What leaves a member: messages that may go at once, messages that wait for storage, and the writes."""

cimport cython
from libc.stdint cimport uint64_t

from fastlock._core cimport layout
from fastlock._core.raft_log cimport RaftLog
from fastlock._core.raft_message cimport Message


@cython.final
@cython.freelist(64)
cdef class Write:
    def __repr__(self):
        return (
            f"Write(seq={self.seq}, term={self.term}, vote={self.vote}, truncate_from={self.truncate_from}, "
            f"{len(self.entries)} entries)"
        )


@cython.final
cdef class Outbox:
    def __init__(self, RaftLog log, uint64_t term, uint64_t vote):
        self.log = log
        self.messages = []
        self.waiting = []
        self.hard_states = []
        self.term = self.issued_term = self.durable_term = term
        self.vote = self.issued_vote = self.durable_vote = vote

    cdef bint has_write(self) noexcept:
        return self.term != self.issued_term or self.vote != self.issued_vote or self.log.has_unissued()

    cdef int send(self, Message message) except -1:
        self.messages.append(message)
        return 0

    cdef int send_after_write(self, Message message) except -1:
        """Sends once everything that holds in memory at this moment is durable."""
        message.after_seq = self.issued_seq + (1 if self.has_write() else 0)
        if message.after_seq <= self.acknowledged_seq:
            self.messages.append(message)
        else:
            self.waiting.append(message)
        return 0

    cdef int acknowledge_entries(self, Message message) except -1:
        """Sends an appendReply once the entries it acknowledges, and its term, are durable."""
        cdef Message newest
        if acknowledges_only_durable(self, message.index):
            return self.send(message)
        self.send_after_write(message)
        # The acknowledgement of a later entry says everything that an earlier one would.
        if len(self.waiting) > 1:
            newest = <Message>self.waiting[len(self.waiting) - 2]
            if (
                newest.kind == layout.RAFT_KIND_APPEND_REPLY
                and not newest.reject
                and newest.target == message.target
                and newest.term == message.term
                and newest.after_seq == message.after_seq
                and newest.index <= message.index
            ):
                del self.waiting[len(self.waiting) - 2]
        return 0

    cdef int acknowledge_term(self, Message message) except -1:
        """Sends at once in a durable term, else once it is."""
        if self.durable_term == self.term:
            return self.send(message)
        return self.send_after_write(message)

    cdef Write take_write(self):
        """The next write, or None. From here on its acknowledgement may come."""
        if not self.has_write():
            return None
        cdef RaftLog log = self.log
        cdef Write write = Write.__new__(Write)
        self.issued_seq += 1
        write.seq = self.issued_seq
        write.hard_state = self.term != self.issued_term or self.vote != self.issued_vote
        write.term = self.issued_term = self.term
        write.vote = self.issued_vote = self.vote
        if log.reset:
            write.reset_index = log.base_index
            write.reset_term = log.base_term
        else:
            write.truncate_from = log.truncate_from
        write.entries = log.take_unissued()
        log.issue(write.seq)
        if write.hard_state:
            self.hard_states.append(write)
        return write

    cdef list take_messages(self):
        cdef list taken = self.messages
        self.messages = []
        return taken

    cdef list persisted(self, uint64_t seq):
        """Storage acknowledged every write up to `seq`: the messages that waited for it."""
        cdef Py_ssize_t count = 0
        cdef Write write
        cdef list released
        if seq > self.issued_seq:
            raise ValueError(f"storage acknowledged write {seq}, but only {self.issued_seq} were issued")
        if seq <= self.acknowledged_seq:
            return []
        self.acknowledged_seq = seq
        self.log.confirm(seq)
        while self.hard_states:
            write = <Write>self.hard_states[0]
            if write.seq > seq:
                break
            self.durable_term = write.term
            self.durable_vote = write.vote
            del self.hard_states[0]
        while count < len(self.waiting) and (<Message>self.waiting[count]).after_seq <= seq:
            count += 1
        released = self.waiting[:count]
        del self.waiting[:count]
        return released

    cdef int check(self) except -1:
        cdef uint64_t seq = self.acknowledged_seq
        assert self.durable_term <= self.issued_term <= self.term
        assert self.acknowledged_seq <= self.issued_seq
        for message in self.waiting:
            assert seq < (<Message>message).after_seq <= self.issued_seq + 1 or seq == (<Message>message).after_seq
            seq = (<Message>message).after_seq
        return 0


cdef inline bint acknowledges_only_durable(Outbox outbox, uint64_t index) noexcept:
    return index <= outbox.log.durable_index and outbox.durable_term == outbox.term
