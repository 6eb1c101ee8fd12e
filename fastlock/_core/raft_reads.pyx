"""Linearizable reads: one FIFO, confirmed by a prefix, on the leader; asked of the leader on a follower.

A read is safe at the commit index the leader had when the read arrived, once a majority confirmed after
that moment that the leader still leads. Everything asked in one turn shares one batch and one round of
heartbeats; a confirmed batch confirms every batch before it.
"""

cimport cython
from libc.stdint cimport UINT64_MAX, uint64_t

from collections import namedtuple


Read = namedtuple("Read", "context index")


@cython.final
cdef class ReadBatch:
    pass


@cython.final
cdef class Reads:
    def __init__(self, Py_ssize_t pending_max, uint64_t nonce):
        """`nonce` differs from start to start.

        Ids begin at it: a reply that was meant for this member's life before a restart then answers nothing.
        """
        self.pending_max = pending_max
        self.last_id = nonce << 32
        self.fresh = []
        self.requests = []
        self.asked = []
        self.granted = []
        self.lost = []

    cdef bint add(self, uint64_t context) except -1:
        if self.count >= self.pending_max:
            return False
        self.fresh.append(context)
        self.count += 1
        return True

    cdef bint add_request(self, uint64_t source, uint64_t context) except -1:
        cdef ReadBatch batch
        if self.count >= self.pending_max:
            return False
        batch = ReadBatch.__new__(ReadBatch)
        batch.source = source
        batch.context = context
        batch.contexts = []
        self.requests.append(batch)
        self.count += 1
        return True

    cdef bint has_fresh(self) noexcept:
        return len(self.fresh) > 0 or len(self.requests) > 0

    # Leader

    cdef uint64_t number(self, uint64_t index) except? 0:
        """Everything fresh is to be confirmed at `index`; returns the id that heartbeats must carry."""
        cdef ReadBatch batch
        self.last_id += 1
        if self.fresh:
            batch = ReadBatch.__new__(ReadBatch)
            batch.contexts = self.fresh
            self.fresh = []
            self.requests.append(batch)
        for batch in self.requests:
            batch.id = self.last_id
            batch.index = index
            self.asked.append(batch)
        self.requests = []
        return self.last_id

    cdef list take_confirmed(self, uint64_t id):
        """A majority confirmed `id`: own reads become granted, the batches of followers are returned."""
        cdef list remote = []
        cdef ReadBatch batch
        while self.asked:
            batch = <ReadBatch>self.asked[0]
            if batch.id > id:
                break
            del self.asked[0]
            self.count -= max(len(batch.contexts), 1)
            if batch.source:
                remote.append(batch)
            else:
                self.granted.append(batch)
        return remote

    # Follower

    cdef uint64_t ask(self, uint64_t deadline_ms) except? 0:
        """Everything fresh is asked of the leader under the id that is returned."""
        cdef ReadBatch batch = ReadBatch.__new__(ReadBatch)
        self.last_id += 1
        batch.id = self.last_id
        batch.contexts = self.fresh
        batch.deadline_ms = deadline_ms
        self.fresh = []
        self.asked.append(batch)
        return self.last_id

    cdef int answered(self, uint64_t id, uint64_t index, bint reject) except -1:
        cdef Py_ssize_t position
        cdef ReadBatch batch
        for position in range(len(self.asked)):
            batch = <ReadBatch>self.asked[position]
            if batch.id == id:
                del self.asked[position]
                self.count -= len(batch.contexts)
                if reject:
                    self.lost.extend(batch.contexts)
                else:
                    batch.index = index
                    self.granted.append(batch)
                break
        return 0

    cdef int lose_overdue(self, uint64_t now_ms) except -1:
        cdef ReadBatch batch
        while self.asked and (<ReadBatch>self.asked[0]).deadline_ms <= now_ms:
            batch = <ReadBatch>self.asked[0]
            del self.asked[0]
            self.count -= len(batch.contexts)
            self.lost.extend(batch.contexts)
        return 0

    cdef uint64_t next_deadline_ms(self) noexcept:
        return (<ReadBatch>self.asked[0]).deadline_ms if self.asked else UINT64_MAX

    # Both

    cdef int lose_all(self) except -1:
        """Leader or term changed. What is granted stays good; what is only asked for is lost."""
        cdef ReadBatch batch
        for batch in self.asked:
            self.lost.extend(batch.contexts)
        self.lost.extend(self.fresh)
        self.asked = []
        self.requests = []
        self.fresh = []
        self.count = 0
        return 0

    cdef bint has_output(self, uint64_t handed_index):
        if self.lost:
            return True
        for batch in self.granted:
            if (<ReadBatch>batch).index <= handed_index:
                return True
        return False

    cdef list take_granted(self, uint64_t handed_index):
        cdef list taken = []
        cdef list kept = []
        cdef ReadBatch batch
        if not self.granted:
            return taken
        for batch in self.granted:
            if batch.index <= handed_index:
                taken.extend([Read(context, batch.index) for context in batch.contexts])
            else:
                kept.append(batch)
        self.granted = kept
        return taken

    cdef list take_lost(self):
        cdef list taken = self.lost
        self.lost = []
        return taken
