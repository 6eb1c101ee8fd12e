"""The commands a leader collects in one turn: from request frames to one log entry to reply frames."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from fastlock._core.buffer cimport buffer_free, buffer_t
from fastlock._core.client_messages cimport reply_encode_outcome, request_decode
from fastlock._core.codec_arena cimport check, start_of
from fastlock._core.commands cimport (
    BATCH_BYTES_MAX,
    BATCH_COMMANDS_MAX,
    builder_add,
    builder_bytes,
    builder_bytes_with,
    builder_clear,
    builder_free,
    builder_seal,
)
from fastlock._core.framing cimport CLIENT_FRAME_BYTES_MAX, frame_bytes
from fastlock._core.layout cimport CODE_BUSY, CODE_FRAME_TOO_LARGE, CODE_OK, REQUEST_COMMAND
from fastlock._core.locktable cimport LockTable
from fastlock._core.types cimport command_t, outcome_t

COMMANDS_MAX = BATCH_COMMANDS_MAX
BYTES_MAX = BATCH_BYTES_MAX

# Why feed() stopped.
FEED_MORE = 0     # everything whole was taken: the rest, if any, is the beginning of a frame
FEED_FULL = 1     # the next command goes into the next batch
FEED_OTHER = 2    # the next frame is a request, but no command


@cython.final
cdef class Batch:
    """Collects commands, seals them as one log entry, and answers them once it was applied."""

    def __cinit__(self, uint32_t group):
        self.group = group
        self.request_ids = <uint64_t*>malloc(BATCH_COMMANDS_MAX * sizeof(uint64_t))
        self.timeouts_ms = <uint32_t*>malloc(BATCH_COMMANDS_MAX * sizeof(uint32_t))
        if self.request_ids == NULL or self.timeouts_ms == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.request_ids)
        free(self.timeouts_ms)
        builder_free(&self.builder)
        buffer_free(&self.scratch)
        buffer_free(&self.refusals)

    def __len__(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        """Bytes the entry's frame would have."""
        return builder_bytes(&self.builder)

    def feed(self, const uint8_t[::1] data not None, size_t frame_bytes_max=CLIENT_FRAME_BYTES_MAX) -> int:
        """Takes the commands out of concatenated Request frames; returns how many bytes are done with.

        `stopped` says why it ended. A request that cannot be a command gets a refusal by its id; bytes that do not
        even show an id raise, and the connection they came from must be closed.
        """
        cdef const uint8_t* start = start_of(data)
        cdef size_t available = data.shape[0]
        cdef size_t at = 0
        cdef size_t size
        cdef int code
        if self.sealed:
            raise ValueError("a sealed batch takes no more commands: clear() it first")
        self.stopped = FEED_MORE
        while at < available:
            check(frame_bytes(start + at, available - at, frame_bytes_max, &size))
            if size == 0 or size > available - at:
                break
            code = request_decode(start + at, size, &self.scratch, &self.request)
            if code != CODE_OK:
                self.refuse(code)
            elif self.request.which != REQUEST_COMMAND:
                self.stopped = FEED_OTHER
                return at
            elif self.add(self.request.id, self.request.timeout_ms, &self.request.command) != 0:
                self.stopped = FEED_FULL
                return at
            at += size
        return at

    cdef int add(self, uint64_t request_id, uint32_t timeout_ms, const command_t* command) except -1:
        """0 if the command was taken or refused for good, 1 if it has to wait for the next batch."""
        if self.count == BATCH_COMMANDS_MAX:
            return 1
        if builder_bytes_with(&self.builder, command) > BATCH_BYTES_MAX:
            if self.count:
                return 1
            self.refuse(CODE_FRAME_TOO_LARGE)
            return 0
        if builder_add(&self.builder, command) != 0:
            raise MemoryError
        self.request_ids[self.count] = request_id
        self.timeouts_ms[self.count] = timeout_ms
        self.count += 1
        return 0

    cdef int refuse(self, int code) except -1:
        cdef outcome_t outcome
        if not self.request.id_known or code == CODE_BUSY:
            check(code)
        memset(&outcome, 0, sizeof(outcome_t))
        outcome.code = <uint16_t>code
        if reply_encode_outcome(&self.refusals, self.request.id, self.group, 0, 0, &outcome) != 0:
            raise MemoryError
        return 0

    def take_refusals(self) -> bytes:
        """The Reply frames of requests that never became a command, since the last call."""
        cdef bytes frames = PyBytes_FromStringAndSize(<const char*>self.refusals.data, <Py_ssize_t>self.refusals.size)
        self.refusals.size = 0
        return frames

    def seal(self, uint64_t term, uint64_t index) -> bytes:
        """The LogEntry frame of everything collected. The batch then only answers, until clear()."""
        cdef bytes entry
        if self.sealed:
            raise ValueError("the batch is sealed already: clear() it first")
        entry = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>builder_bytes(&self.builder))
        builder_seal(&self.builder, self.group, term, index, <uint8_t*>PyBytes_AS_STRING(entry))
        self.sealed = True
        self.index = index
        return entry

    def replies(
        self, LockTable table not None, uint32_t first=0, uint32_t end=BATCH_COMMANDS_MAX, *, uint64_t leader=0,
        uint32_t retry_ms=0,
    ) -> bytes:
        """The Reply frames for the commands first ≤ position < end, right after `table` applied the sealed entry.

        Each feed() added the commands of one connection, so `count` before and after it is that connection's range.
        """
        cdef buffer_t out
        if not self.sealed or table.group != self.group or table.applied_index != self.index:
            raise ValueError("the last entry this table applied is not the one this batch was sealed as")
        memset(&out, 0, sizeof(buffer_t))
        try:
            if self.encode_replies(&out, table.outcomes, table.outcome_count, first, end, leader, retry_ms) != 0:
                raise MemoryError
            return PyBytes_FromStringAndSize(<const char*>out.data, <Py_ssize_t>out.size)
        finally:
            buffer_free(&out)

    def request_id(self, uint32_t position) -> int:
        """The id of the request whose command is at this position."""
        if position >= self.count:
            raise IndexError(position)
        return self.request_ids[position]

    def timeout_ms(self, uint32_t position) -> int:
        """How long the caller of the command at this position waits; 0 = no limit."""
        if position >= self.count:
            raise IndexError(position)
        return self.timeouts_ms[position]

    cdef int encode_replies(self, buffer_t* out, const outcome_t* outcomes, Py_ssize_t outcome_count, uint32_t first,
                            uint32_t end, uint64_t leader, uint32_t retry_ms) noexcept nogil:
        """Appends the replies to the commands first ≤ position < end; 0, or -1 without memory.

        Wakes are passed over: they answer requests of earlier batches.
        """
        cdef Py_ssize_t i
        cdef uint32_t position
        end = min(end, self.count)
        for i in range(outcome_count):
            if outcomes[i].position < 0:
                continue
            position = <uint32_t>outcomes[i].position
            if position < first or position >= end:
                continue
            if reply_encode_outcome(out, self.request_ids[position], self.group, leader, retry_ms, &outcomes[i]) != 0:
                return -1
        return 0

    def clear(self) -> None:
        """Empties the batch for the next turn."""
        builder_clear(&self.builder)
        self.count = 0
        self.sealed = False
