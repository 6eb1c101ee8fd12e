"""The log as Raft sees it: the tail in memory, and how much of it is durable."""

cimport cython
from libc.stdint cimport uint64_t

from fastlock._core.raft_message cimport Entry


cdef enum:
    # Entries before `head` are removed from the list in one go, once they are this many and the majority.
    HEAD_SLACK = 256


@cython.final
cdef class Unconfirmed:
    """A write that storage has not acknowledged, and the last index its acknowledgement will prove."""

    cdef uint64_t seq
    cdef uint64_t last_index


@cython.final
cdef class RaftLog:
    def __init__(self, uint64_t base_index, uint64_t base_term, uint64_t cut_index, entries):
        """The log as storage has it: a checkpoint of (base_index, base_term) and `entries`.

        Entries that do not go on exactly where the checkpoint ends are useless, and so are all entries if the
        checkpoint contradicts them: a snapshot was installed and the crash came before the log was reset. The
        first write then resets the log, so that storage never holds a log with a hole.
        """
        cdef Entry entry
        cdef bint broken = False
        cdef list kept = []
        self.tail = []
        self.unconfirmed = []
        self.base_index = self.last_index = base_index
        self.base_term = self.last_term = base_term
        self.cut(cut_index, 0)
        for entry in entries:
            if entry.index < base_index:
                continue
            if entry.index == base_index:
                broken = broken or entry.term != base_term
            elif entry.index == base_index + 1 + <uint64_t>len(kept):
                kept.append(entry)
            else:
                broken = True
        if base_index > 0 and (broken or not kept):
            kept = []
            self.reset = True
            self.cut(base_index, base_term)
        elif broken:
            raise ValueError("the stored log does not start at index 1 and has no checkpoint before it")
        for entry in kept:
            self.append(entry)
        self.issued_index = self.durable_index = self.last_index

    cdef Entry at(self, uint64_t index):
        assert self.base_index < index <= self.last_index
        return <Entry>self.tail[self.head + <Py_ssize_t>(index - self.base_index - 1)]

    cdef uint64_t term_at(self, uint64_t index) noexcept:
        """The term of an entry; 0 where memory does not have it (and for index 0)."""
        if index == self.base_index:
            return self.base_term
        if index < self.base_index or index > self.last_index:
            return 0
        return (<Entry>self.tail[self.head + <Py_ssize_t>(index - self.base_index - 1)]).term

    cdef int append(self, Entry entry) except -1:
        assert entry.index == self.last_index + 1 and entry.term >= self.last_term
        self.tail.append(entry)
        self.last_index = entry.index
        self.last_term = entry.term
        self.tail_bytes += len(entry.data)
        return 0

    cdef int truncate(self, uint64_t from_index) except -1:
        """Drops every entry from `from_index` on.

        An acknowledgement that is still to come must not prove what is dropped here:
        1. write 7 with entry 5 of term 2 is issued;
        2. a new leader replaces entry 5 by one of term 3, which goes into write 8;
        3. storage acknowledges write 7: that is about the old entry 5, so index 4 is all it proves.
        """
        cdef Unconfirmed write
        cdef uint64_t index
        assert self.base_index < from_index <= self.last_index
        for index in range(from_index, self.last_index + 1):
            self.tail_bytes -= len(self.at(index).data)
        del self.tail[self.head + <Py_ssize_t>(from_index - self.base_index - 1):]
        self.last_index = from_index - 1
        self.last_term = self.term_at(self.last_index)
        if from_index <= self.issued_index:
            self.issued_index = from_index - 1
            if self.truncate_from == 0 or from_index < self.truncate_from:
                self.truncate_from = from_index
        if forgets_truncated_writes():
            self.durable_index = min(self.durable_index, from_index - 1)
            for write in self.unconfirmed:
                write.last_index = min(write.last_index, from_index - 1)
        return 0

    cdef int compact(self, uint64_t index) except -1:
        """Forgets the entries up to `index`; storage may still have them."""
        cdef uint64_t gone
        if index <= self.base_index:
            return 0
        assert index <= self.durable_index and index <= self.last_index
        cdef uint64_t term = self.term_at(index)
        for gone in range(self.base_index + 1, index + 1):
            self.tail_bytes -= len(self.at(gone).data)
            self.tail[self.head + <Py_ssize_t>(gone - self.base_index - 1)] = None
        self.head += <Py_ssize_t>(index - self.base_index)
        self.base_index = index
        self.base_term = term
        if self.head > HEAD_SLACK and self.head * 2 > len(self.tail):
            del self.tail[:self.head]
            self.head = 0
        return 0

    cdef int restart_after(self, uint64_t index, uint64_t term) except -1:
        """Drops everything: a snapshot of (index, term) took the place of the log."""
        cdef Unconfirmed write
        self.tail = []
        self.head = 0
        self.tail_bytes = 0
        self.base_index = self.last_index = self.issued_index = index
        self.base_term = self.last_term = term
        self.cut(index, term)
        self.truncate_from = 0
        self.reset = True
        self.durable_index = 0
        for write in self.unconfirmed:
            write.last_index = 0
        return 0

    cdef int covered_by_snapshot(self, uint64_t index) except -1:
        """A durable snapshot agrees with the log at `index`: what it covers cannot be lost any more.

        If storage was not even told of everything up to there, its log restarts after the snapshot: it would
        have a hole otherwise.
        """
        assert index <= self.last_index
        self.durable_index = max(self.durable_index, index)
        if self.issued_index < index:
            self.issued_index = index
            self.truncate_from = 0
            self.reset = True
        self.compact(index)
        if self.reset:
            self.cut(index, self.base_term)
        return 0

    cdef int cut(self, uint64_t index, uint64_t term) except -1:
        """Storage has nothing at or below `index` any more."""
        assert index <= self.base_index
        if index >= self.cut_index:
            self.cut_index = index
            self.cut_term = self.base_term if index == self.base_index else term
        return 0

    cdef bint in_storage_after(self, uint64_t index) noexcept:
        """Whether storage can tell the term at `index` and everything after it."""
        return index > self.cut_index or (index == self.cut_index and (index == 0 or self.cut_term != 0))

    cdef list slice_from(self, uint64_t first, uint64_t last, uint64_t bytes_max):
        """The entries first..last, fewer if they have more than bytes_max, but at least one."""
        cdef uint64_t index = first
        cdef uint64_t size = 0
        cdef Py_ssize_t start = self.head + <Py_ssize_t>(first - self.base_index - 1)
        assert self.base_index < first and last <= self.last_index
        while index <= last:
            size += len(self.at(index).data)
            if size > bytes_max and index > first:
                break
            index += 1
        return self.tail[start:start + <Py_ssize_t>(index - first)]

    cdef uint64_t conflict_by_term(self, uint64_t index, uint64_t term) noexcept:
        """The last index, from `index` down, whose term is not above `term`: all between cannot match.

        Stops where memory ends: what a checkpoint covers is committed and matches everywhere.
        """
        if index > self.last_index:
            index = self.last_index
        while index > self.base_index and self.term_at(index) > term:
            index -= 1
        return index

    cdef bint has_unissued(self) noexcept:
        return self.issued_index < self.last_index or self.truncate_from != 0 or self.reset

    cdef list take_unissued(self):
        cdef Py_ssize_t start = self.head + <Py_ssize_t>(self.issued_index - self.base_index)
        assert self.issued_index >= self.base_index
        return self.tail[start:]

    cdef int issue(self, uint64_t seq) except -1:
        """Everything said so far is in the write `seq`."""
        cdef Unconfirmed write = Unconfirmed.__new__(Unconfirmed)
        write.seq = seq
        write.last_index = self.last_index
        self.unconfirmed.append(write)
        self.issued_index = self.last_index
        self.truncate_from = 0
        self.reset = False
        return 0

    cdef int confirm(self, uint64_t seq) except -1:
        """Storage acknowledged every write up to `seq`."""
        cdef Unconfirmed write
        while self.unconfirmed:
            write = <Unconfirmed>self.unconfirmed[0]
            if write.seq > seq:
                break
            self.durable_index = max(self.durable_index, write.last_index)
            del self.unconfirmed[0]
        return 0

    cdef int check(self) except -1:
        cdef uint64_t index
        cdef Entry entry
        cdef uint64_t term = self.base_term
        cdef uint64_t size = 0
        assert len(self.tail) - self.head == self.last_index - self.base_index
        for index in range(self.base_index + 1, self.last_index + 1):
            entry = self.at(index)
            assert entry.index == index and entry.term >= term
            term = entry.term
            size += len(entry.data)
        assert term == self.last_term and size == self.tail_bytes
        assert self.durable_index <= self.last_index and self.issued_index <= self.last_index
        assert self.durable_index <= self.issued_index or self.durable_index == self.base_index
        assert self.cut_index <= self.base_index and self.cut_term <= self.base_term
        assert self.truncate_from == 0 or self.truncate_from == self.issued_index + 1
        for write in self.unconfirmed:
            assert (<Unconfirmed>write).last_index <= self.last_index
        return 0


cdef inline bint forgets_truncated_writes() noexcept:
    return True
