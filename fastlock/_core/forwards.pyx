"""Requests for groups that another node leads: handed on once, in batches, and their answers handed back.

A request travels as the frame it came in, with its id rewritten to one of ours; the answer's id is rewritten back. Ids
go on from a number that differs from start to start, so that an answer to what was asked before a restart finds
nobody.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from fastlock._core.buffer cimport buffer_free, buffer_reserve, buffer_t
from fastlock._core.client_messages cimport request_encode, request_t
from fastlock._core.codec_arena cimport check, start_of
from fastlock._core.framing cimport CLIENT_FRAME_BYTES_MAX, frame_bytes
from fastlock._core.layout cimport (
    CODE_BUSY,
    CODE_MALFORMED_FRAME,
    CODE_NOT_LEADER,
    CODE_OK,
    CODE_OUTCOME_UNKNOWN,
    CODE_QUEUED,
    CODE_UNAVAILABLE,
    REPLY_CODE_AT,
    REPLY_DATA_WORDS,
    REPLY_ID_AT,
    REPLY_LEADER_AT,
    REQUEST_COMMAND,
    REQUEST_DATA_WORDS,
    REQUEST_ID_AT,
)
from fastlock._core.replies cimport Replies, Switchboard, origin_t
from fastlock._core.wire cimport (
    SINGLE_HEADER_BYTES,
    WORD_BYTES,
    load16,
    load32,
    load64,
    message_open,
    message_t,
    read_root,
    store64,
    struct_t,
)


cdef enum:
    # Frames that wait for the next turn to send them; beyond it the others are told to come again.
    UNSENT_BYTES_MAX = 4 << 20


cdef const uint8_t* root_of(const uint8_t* frame, size_t size, uint32_t bytes_known) noexcept:
    """The fields of a frame's root struct where all we know of are in place; NULL in every other frame."""
    cdef message_t message
    cdef struct_t root
    if size < SINGLE_HEADER_BYTES or load32(frame) != 0:
        return NULL
    if <uint64_t>load32(frame + 4) * WORD_BYTES + SINGLE_HEADER_BYTES != size:
        return NULL
    message_open(&message, frame + SINGLE_HEADER_BYTES, load32(frame + 4))
    if read_root(&message, &root) != CODE_OK or root.data_bytes < bytes_known:
        return NULL
    return root.data


@cython.final
cdef class Forwards:
    """One node's requests under way to the others."""

    def __cinit__(self, uint64_t node, Switchboard board not None, uint64_t seed):
        self.node = node
        self.board = board
        # Zero marks a free place in the ring, and no id comes near it in any realistic time.
        self.next_id = self.oldest_id = (seed >> 2) | 1

    def __dealloc__(self):
        cdef uint32_t position
        free(self.ring)
        for position in range(self.target_count):
            buffer_free(&self.targets[position].frames)

    def __len__(self) -> int:
        return self.count

    # Out.

    cdef target_t* target_of(self, uint64_t node) noexcept:
        cdef uint32_t position
        for position in range(self.target_count):
            if self.targets[position].node == node:
                return &self.targets[position]
        if self.target_count == TARGETS_MAX:
            return NULL
        position = self.target_count
        self.target_count += 1
        self.targets[position].node = node
        self.targets[position].batch = 1
        return &self.targets[position]

    cdef forward_t* enter(self, const origin_t* origin, uint32_t group, target_t* target, uint64_t now_ms) noexcept:
        """A place in the ring under the next id whose place is free; NULL when too many are under way."""
        cdef forward_t* forward
        if self.count >= FORWARDS_MAX:
            return NULL
        if self.ring == NULL:
            # Megabytes, which a node that forwards nothing never needs.
            self.ring = <forward_t*>calloc(FORWARDS_CAPACITY, sizeof(forward_t))
            if self.ring == NULL:
                return NULL
        while True:
            forward = &self.ring[self.next_id % FORWARDS_CAPACITY]
            if forward.id == 0:
                break
            self.next_id += 1
        forward.id = self.next_id
        forward.target = target.node
        forward.batch = target.batch
        forward.since_ms = now_ms
        forward.origin = origin[0]
        forward.group = group
        forward.is_waiting = 0
        self.next_id += 1
        self.count += 1
        return forward

    cdef void leave(self, forward_t* forward) noexcept:
        forward.id = 0
        self.count -= 1

    cdef int add(self, const origin_t* origin, uint32_t group, uint64_t node, const uint8_t* frame, size_t size,
                 const request_t* request, uint64_t now_ms) noexcept:
        """Puts a request into the batch for `node`: CODE_OK, or CODE_BUSY."""
        cdef target_t* target = self.target_of(node)
        cdef const uint8_t* fields
        cdef forward_t* forward
        cdef buffer_t* frames
        cdef request_t renamed
        if target == NULL or target.frames.size > UNSENT_BYTES_MAX:
            return CODE_BUSY
        frames = &target.frames
        if buffer_reserve(frames, size) != 0:
            return CODE_BUSY
        forward = self.enter(origin, group, target, now_ms)
        if forward == NULL:
            return CODE_BUSY
        fields = root_of(frame, size, REQUEST_DATA_WORDS * WORD_BYTES)
        if fields != NULL:
            memcpy(frames.data + frames.size, frame, size)
            store64(frames.data + frames.size + (fields - frame) + REQUEST_ID_AT, forward.id)
            frames.size += size
            return CODE_OK
        # Written by another encoder, in several segments or without the fields that came later.
        renamed = request[0]
        renamed.id = forward.id
        if request.which != REQUEST_COMMAND or request_encode(frames, &renamed, NULL, 0) != 0:
            self.leave(forward)
            return CODE_BUSY
        return CODE_OK

    def put(
        self, Replies replies not None, uint64_t request_id, uint32_t group, uint64_t node,
        const uint8_t[::1] frame not None, uint64_t now_ms,
    ) -> int:
        """Hands a Request frame that this node itself wrote on to `node`.

        Its answer comes into `replies` under `request_id`. Returns the code of a refusal, or ok.
        """
        cdef origin_t origin
        if root_of(start_of(frame), frame.shape[0], REQUEST_DATA_WORDS * WORD_BYTES) == NULL:
            raise ValueError("not a request in one segment")
        origin.sink = replies.sink
        origin.generation = replies.generation
        origin.request_id = request_id
        return self.add(&origin, group, node, start_of(frame), frame.shape[0], NULL, now_ms)

    def take(self) -> list:
        """(node, Request frames) of everything collected since the last call: one batch for each node."""
        cdef list taken = []
        cdef target_t* target
        cdef uint32_t position
        for position in range(self.target_count):
            target = &self.targets[position]
            if target.frames.size:
                frames = PyBytes_FromStringAndSize(<const char*>target.frames.data, <Py_ssize_t>target.frames.size)
                taken.append((target.node, frames))
                target.frames.size = 0
                target.batch += 1
        return taken

    # Back.

    def answer(self, uint64_t node, const uint8_t[::1] data not None) -> None:
        """Takes in Reply frames from `node`, and hands each on under its own id to whoever asked.

        Raises for bytes that are not whole frames: the link they came from must be closed.
        """
        cdef const uint8_t* start = start_of(data)
        cdef size_t available = data.shape[0]
        cdef size_t at = 0, size
        while at < available:
            check(frame_bytes(start + at, available - at, CLIENT_FRAME_BYTES_MAX, &size))
            if size == 0 or size > available - at:
                check(CODE_MALFORMED_FRAME)
            self.answer_one(node, start + at, size)
            at += size

    cdef int answer_one(self, uint64_t node, const uint8_t* frame, size_t size) except -1:
        cdef const uint8_t* fields = root_of(frame, size, REPLY_DATA_WORDS * WORD_BYTES)
        cdef forward_t* forward
        cdef buffer_t* out
        cdef uint8_t* copy
        cdef uint32_t code
        if fields == NULL:
            check(CODE_MALFORMED_FRAME)
        if self.count == 0:
            return 0
        forward = &self.ring[load64(fields + REPLY_ID_AT) % FORWARDS_CAPACITY]
        if forward.id == 0 or forward.id != load64(fields + REPLY_ID_AT) or forward.target != node:
            return 0
        code = load16(fields + REPLY_CODE_AT)
        out = self.board.begin(&forward.origin)
        if out != NULL and buffer_reserve(out, size) == 0:
            copy = out.data + out.size + (fields - frame)
            memcpy(out.data + out.size, frame, size)
            store64(copy + REPLY_ID_AT, forward.origin.request_id)
            if code == CODE_NOT_LEADER and load64(fields + REPLY_LEADER_AT) == self.node:
                # It believes in us, and we believed in it: nobody is known to lead.
                store64(copy + REPLY_LEADER_AT, 0)
            out.size += size
            self.board.end(&forward.origin)
        if code == CODE_QUEUED:
            forward.is_waiting = 1
        else:
            self.leave(forward)
        return 0

    def lost(self, uint64_t node) -> None:
        """The link to `node` broke: what was sent has an unknown outcome, what was not is unavailable."""
        cdef target_t* target = self.target_of(node)
        cdef forward_t* forward
        cdef uint32_t position
        if target == NULL:
            return
        for position in range(FORWARDS_CAPACITY if self.count else 0):
            forward = &self.ring[position]
            if forward.id == 0 or forward.target != node:
                continue
            self.board.refuse(
                &forward.origin, CODE_UNAVAILABLE if forward.batch == target.batch else CODE_OUTCOME_UNKNOWN,
                forward.group, 0,
            )
            self.leave(forward)
        target.frames.size = 0

    def expire(self, uint64_t before_ms) -> None:
        """Everything handed on before this time and never answered has an unknown outcome."""
        cdef forward_t* forward
        while self.oldest_id != self.next_id:
            forward = &self.ring[self.oldest_id % FORWARDS_CAPACITY]
            if forward.id == self.oldest_id and not forward.is_waiting:
                if forward.since_ms >= before_ms:
                    return
                self.board.refuse(&forward.origin, CODE_OUTCOME_UNKNOWN, forward.group, 0)
                self.leave(forward)
            self.oldest_id += 1

    @property
    def oldest_ms(self) -> int:
        """When the oldest request that was not answered yet was handed on; 0 = there is none."""
        cdef forward_t* forward
        while self.oldest_id != self.next_id:
            forward = &self.ring[self.oldest_id % FORWARDS_CAPACITY]
            if forward.id == self.oldest_id and not forward.is_waiting:
                return forward.since_ms
            self.oldest_id += 1
        return 0
