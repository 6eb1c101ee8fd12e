"""One group's commands on this node: collected into batches, proposed, answered when applied.

Client requests and what the group's leader itself proposes stand in one queue, in one order. There is no Python
object per command: a batch holds the encoded commands and their origins.
"""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from fastlock._core.batch cimport Batch, fits_a_batch
from fastlock._core.codec_arena cimport Arena
from fastlock._core.codec_commands cimport command_from_dict
from fastlock._core.layout cimport (
    CODE_BUSY,
    CODE_FRAME_TOO_LARGE,
    CODE_NOT_LEADER,
    CODE_OK,
    CODE_OUTCOME_UNKNOWN,
    CODE_QUEUED,
)
from fastlock._core.locktable cimport LockTable
from fastlock._core.replies cimport Replies, Switchboard, origin_t
from fastlock._core.routing cimport command_slot
from fastlock._core.types cimport command_t, outcome_t
from fastlock._core.waiters cimport Waiters


cdef enum:
    # Beyond these a group answers BUSY: what waits longer would only be answered too late.
    COMMANDS_PENDING_MAX = 65536
    BYTES_PENDING_MAX = 16 << 20
    SPARE_BATCHES_MAX = 4
    RETRY_MS = 50

PENDING_COMMANDS_MAX = COMMANDS_PENDING_MAX
PENDING_BYTES_MAX = BYTES_PENDING_MAX


@cython.final
cdef class Proposals:
    """Takes commands while this node leads the group; knows whom to send others to."""

    def __cinit__(self, uint32_t group, uint64_t node, Switchboard board not None):
        self.group = group
        self.node = node
        self.board = board
        self.waiters = Waiters()
        self.pending = []
        self.inflight = {}
        self.spare = []
        self.retry_ms = RETRY_MS

    # Who leads.

    def lead(self) -> None:
        """This node leads from here on."""
        self.leading = True
        self.leader = self.node

    def follow(self, uint64_t leader) -> None:
        """Another node leads, or nobody known (0).

        What was under way here is unknown from now on; waits and what was never proposed go to the next
        leader.
        """
        self.leader = leader
        if not self.leading:
            return
        self.leading = False
        for batch in self.inflight.values():
            self.fail(batch, CODE_OUTCOME_UNKNOWN)
        self.inflight.clear()
        for batch in self.pending:
            self.fail(batch, CODE_NOT_LEADER)
        self.pending.clear()
        self.pending_commands = 0
        self.pending_bytes = 0
        self.waiters.fail_all(self.board, self.group, CODE_NOT_LEADER, self.leader)

    # Collecting.

    @property
    def pending_count(self) -> int:
        """Commands that were not proposed yet."""
        return self.pending_commands

    @property
    def inflight_count(self) -> int:
        """Batches that were proposed and not applied yet."""
        return len(self.inflight)

    @property
    def waiter_count(self) -> int:
        """Origins that are told when a wait ends."""
        return self.waiters.count

    def submit(self, command, Replies replies=None, uint64_t request_id=0) -> int:
        """Adds a command of the leader's own, given as a dict; its answer goes to `replies` if there are any.

        The code of a refusal (then nothing is written), or ok. It is never BUSY: what ends leases makes room.
        """
        cdef Arena arena = Arena()
        cdef command_t fields
        cdef origin_t origin
        cdef uint16_t slot = 0
        memset(&origin, 0, sizeof(origin_t))
        if replies is not None and replies.generation:
            origin.sink = replies.sink
            origin.generation = replies.generation
            origin.request_id = request_id
        if not self.leading:
            return CODE_NOT_LEADER
        command_from_dict(arena, command, &fields)
        command_slot(&fields, &slot)
        return self.add(&origin, slot, &fields)

    cdef bint is_busy(self) noexcept:
        return self.pending_commands >= COMMANDS_PENDING_MAX or self.pending_bytes >= BYTES_PENDING_MAX

    cdef int add(self, const origin_t* origin, uint16_t slot, const command_t* command) except -1:
        """Puts a command at the end of the queue: CODE_OK, or why not."""
        cdef Batch batch
        if self.pending:
            batch = <Batch>self.pending[len(self.pending) - 1]
        else:
            batch = self.open_batch()
        if not batch.has_room(command):
            if not fits_a_batch(command):
                return CODE_FRAME_TOO_LARGE
            self.pending_bytes += batch.bytes()
            batch = self.open_batch()
        if batch.add(origin, slot, command) != 0:
            return CODE_BUSY
        self.pending_commands += 1
        return CODE_OK

    cdef Batch open_batch(self):
        cdef Batch batch = <Batch>self.spare.pop() if self.spare else Batch()
        self.pending.append(batch)
        return batch

    # Proposing and answering.

    @property
    def next_bytes(self) -> int:
        """Bytes of the entry that would be sealed next; 0 = there is nothing to propose."""
        cdef Batch batch
        if not self.pending:
            return 0
        batch = <Batch>self.pending[0]
        return batch.bytes() if batch.count else 0

    def seal(self, uint64_t term, uint64_t index) -> bytes:
        """The next entry's frame; its commands are answered once it was applied."""
        cdef Batch batch
        if not self.pending or (<Batch>self.pending[0]).count == 0:
            raise ValueError("there is nothing to propose")
        batch = <Batch>self.pending.pop(0)
        if self.pending:
            self.pending_bytes -= batch.bytes()
        self.pending_commands -= batch.count
        self.inflight[index] = batch
        return batch.seal(self.group, term, index)

    def applied(self, LockTable table not None) -> None:
        """The table applied an entry: answers its commands if they are ours, and ends the waits that it ended.

        Another leader's entry at the index of ours means that ours will never be applied, but it may have been
        copied from this node's log by somebody who can still win: its outcome is unknown.
        """
        cdef Batch batch = None
        cdef Py_ssize_t i
        cdef const outcome_t* outcome
        if self.inflight:
            batch = self.inflight.pop(table.table.applied_index, None)
            if batch is not None and batch.term != table.table.applied_term:
                self.fail(batch, CODE_OUTCOME_UNKNOWN)
                batch = None
        if batch is None and self.waiters.count == 0:
            return
        for i in range(table.outcome_count):
            outcome = &table.outcomes[i]
            if outcome.position < 0:
                if self.waiters.count:
                    self.waiters.wake(self.board, self.group, self.node, outcome)
            elif batch is not None:
                self.board.answer(&batch.origins[outcome.position], self.group, self.node, self.retry_ms, outcome)
                if outcome.code == CODE_QUEUED and batch.origins[outcome.position].sink:
                    if self.waiters.add(batch.slots[outcome.position], outcome.revision,
                                        &batch.origins[outcome.position]) != 0:
                        raise MemoryError
        if batch is not None:
            self.recycle(batch)

    cdef int recycle(self, Batch batch) except -1:
        batch.clear()
        if len(self.spare) < SPARE_BATCHES_MAX:
            self.spare.append(batch)
        return 0

    cdef int fail(self, Batch batch, int code) except -1:
        cdef uint32_t position
        for position in range(batch.count):
            self.board.refuse(&batch.origins[position], code, self.group, self.leader)
        return self.recycle(batch)
