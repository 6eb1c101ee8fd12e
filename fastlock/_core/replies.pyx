"""Where answers go: one buffer of outgoing bytes per connection, and who is to be written to."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from fastlock._core.buffer cimport buffer_free, buffer_reserve, buffer_t
from fastlock._core.client_messages cimport reply_encode_outcome
from fastlock._core.codec_arena cimport start_of
from fastlock._core.slab cimport slab_at, slab_clear, slab_give, slab_init, slab_take
from fastlock._core.types cimport outcome_t


cdef enum:
    REPLIES_BYTES_MAX = 8 << 20
    # An emptied buffer that grew beyond this is given back: idle connections are many.
    BUFFER_KEPT_BYTES = 64 << 10
    TOUCHED_FIRST = 64

BYTES_MAX = REPLIES_BYTES_MAX


@cython.final
cdef class Switchboard:
    """All connections of a node that answers go out on."""

    def __cinit__(self):
        slab_init(&self.sinks, sizeof(sink_t))
        self.connections = {}

    def __dealloc__(self):
        cdef uint64_t sink
        # Whoever is still open at the end owns memory that the slab does not know of.
        for sink in range(1, self.sinks.fresh):
            if (<sink_t*>slab_at(&self.sinks, <uint32_t>sink)).generation:
                buffer_free(&(<sink_t*>slab_at(&self.sinks, <uint32_t>sink)).out)
        slab_clear(&self.sinks)
        free(self.touched)

    def __len__(self) -> int:
        return len(self.connections)

    def open(
        self, owner=None, *, size_t bytes_max=REPLIES_BYTES_MAX, bint is_trusted=False, bint is_forwarder=False
    ) -> Replies:
        """A connection's answers, until it is closed."""
        cdef Replies replies = Replies.__new__(Replies)
        cdef uint32_t sink = slab_take(&self.sinks)
        cdef sink_t* opened
        if sink == 0:
            raise MemoryError
        self.opened += 1
        if self.opened == 0:
            self.opened = 1
        opened = <sink_t*>slab_at(&self.sinks, sink)
        opened.generation = self.opened
        opened.bytes_max = bytes_max
        replies.board = self
        replies.sink = sink
        replies.generation = self.opened
        replies.is_trusted = is_trusted
        replies.is_forwarder = is_forwarder
        replies.owner = owner
        self.connections[sink] = replies
        return replies

    def take_touched(self) -> list:
        """The connections that have bytes to be written, each once, by when they got the first."""
        cdef list found = []
        cdef uint32_t position
        cdef sink_t* sink
        for position in range(self.touched_count):
            sink = <sink_t*>slab_at(&self.sinks, self.touched[position])
            # One that was closed meanwhile may have been opened for another, untouched: nobody is listed twice.
            if sink.generation and sink.is_touched:
                sink.is_touched = 0
                found.append(self.connections[self.touched[position]])
        self.touched_count = 0
        return found

    cdef buffer_t* begin(self, const origin_t* origin) noexcept:
        """The buffer that an answer is appended to; NULL where nobody is there to read it."""
        cdef sink_t* sink
        if origin.sink == 0:
            return NULL
        sink = <sink_t*>slab_at(&self.sinks, origin.sink)
        if sink.generation != origin.generation or sink.is_overflowed:
            return NULL
        return &sink.out

    cdef void end(self, const origin_t* origin) noexcept:
        """After something was appended to what `begin` gave."""
        cdef sink_t* sink = <sink_t*>slab_at(&self.sinks, origin.sink)
        cdef uint32_t capacity
        cdef void* touched
        if sink.out.size > sink.bytes_max:
            sink.is_overflowed = 1
        if sink.is_touched:
            return
        if self.touched_count == self.touched_capacity:
            capacity = self.touched_capacity * 2 if self.touched_capacity else TOUCHED_FIRST
            touched = realloc(self.touched, <size_t>capacity * sizeof(uint32_t))
            if touched == NULL:
                # Its next answer tries again.
                return
            self.touched = <uint32_t*>touched
            self.touched_capacity = capacity
        sink.is_touched = 1
        self.touched[self.touched_count] = origin.sink
        self.touched_count += 1

    cdef void answer(self, const origin_t* origin, uint32_t group, uint64_t leader, uint32_t retry_ms,
                     const outcome_t* outcome) noexcept:
        """Tells whoever asked; without memory it stays untold, as if the connection had lost it."""
        cdef buffer_t* out = self.begin(origin)
        if out != NULL and reply_encode_outcome(out, origin.request_id, group, leader, retry_ms, outcome) == 0:
            self.end(origin)

    cdef void refuse(self, const origin_t* origin, int code, uint32_t group, uint64_t leader) noexcept:
        """Tells whoever asked that nothing came of it, or that nothing is known."""
        cdef outcome_t outcome
        memset(&outcome, 0, sizeof(outcome_t))
        outcome.code = <uint16_t>code
        self.answer(origin, group, leader, 0, &outcome)

    cdef int release(self, uint32_t sink) except -1:
        cdef sink_t* closed = <sink_t*>slab_at(&self.sinks, sink)
        del self.connections[sink]
        buffer_free(&closed.out)
        closed.generation = 0
        slab_give(&self.sinks, sink)
        return 0


@cython.final
cdef class Replies:
    """One connection's answers: Reply frames, one after the other."""

    def __init__(self):
        raise TypeError("a Switchboard opens these")

    cdef sink_t* open_sink(self) except NULL:
        if self.generation == 0:
            raise ValueError("these replies are closed")
        return <sink_t*>slab_at(&self.board.sinks, self.sink)

    @property
    def size(self) -> int:
        """Bytes that wait to be taken."""
        return self.open_sink().out.size if self.generation else 0

    @property
    def closed(self) -> bool:
        return self.generation == 0

    @property
    def overflowed(self) -> bool:
        """Whether answers were dropped because nobody took them: the connection must be closed."""
        return self.generation != 0 and self.open_sink().is_overflowed != 0

    def put(self, const uint8_t[::1] frame not None) -> None:
        """Appends a frame that was encoded elsewhere; nothing happens once closed."""
        cdef origin_t origin
        cdef buffer_t* out
        if self.generation == 0 or frame.shape[0] == 0:
            return
        origin.sink = self.sink
        origin.generation = self.generation
        out = self.board.begin(&origin)
        if out == NULL:
            return
        if buffer_reserve(out, frame.shape[0]) != 0:
            raise MemoryError
        memcpy(out.data + out.size, start_of(frame), frame.shape[0])
        out.size += frame.shape[0]
        self.board.end(&origin)

    def take(self) -> bytes:
        """Everything since the last call."""
        cdef sink_t* sink
        cdef bytes taken
        if self.generation == 0:
            return b""
        sink = self.open_sink()
        taken = PyBytes_FromStringAndSize(<const char*>sink.out.data, <Py_ssize_t>sink.out.size)
        sink.out.size = 0
        if sink.out.capacity > BUFFER_KEPT_BYTES:
            buffer_free(&sink.out)
        return taken

    def close(self) -> None:
        """Drops what was not taken and every answer to come."""
        if self.generation:
            self.generation = 0
            self.owner = None
            self.board.release(self.sink)
