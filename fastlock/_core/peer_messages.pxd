"""What members say to each other: Raft's messages and the coalesced heartbeats, in a PeerMessage frame.

An append carries its entries last, as the bytes in which they are stored, so that a frame is the prefix that
`raft_prefix_encode` writes and then every entry's own bytes: they are never copied per peer.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.client_messages cimport hello_t
from fastlock._core.commands cimport membership_t
from fastlock._core.types cimport raft_message_t, slice_t
from fastlock._core.wire cimport bytes_element, list_t, message_t


cdef struct beat_t:
    uint32_t group
    uint8_t reply
    uint64_t term
    uint64_t commit
    uint64_t context


# A PeerMessage. Members that the codec does not read itself (join, introduction, ...) are left to the schema's reader.
cdef struct peer_message_t:
    message_t message              # for member_decode
    uint16_t which                 # PEER_MESSAGE_...
    raft_message_t raft
    uint8_t membership_present     # raft: of a snapshot
    uint16_t membership_version
    list_t members                 # raft: read elements with member_decode (commands.pxd)
    uint64_t source                # beats
    uint64_t target
    list_t beats                   # beats: read elements with beat_at
    const uint8_t* frames_data     # forward, forwardReply: List(Data) of requests or replies; read with bytes_element
    uint32_t frames_count
    hello_t hello


# A whole frame, like request_decode. CODE_OK, CODE_MALFORMED_FRAME or CODE_UNKNOWN_COMMAND.
cdef int peer_message_decode(const uint8_t* frame, size_t size, buffer_t* scratch, peer_message_t* out) noexcept nogil

# Entry i < entries_count, already checked to lie in the frame; its own content is not.
cdef inline slice_t raft_entry(const raft_message_t* message, uint32_t i) noexcept nogil:
    return bytes_element(message.entries_data, i)

cdef void beat_at(const list_t* beats, uint32_t i, beat_t* out) noexcept nogil

# Encoders append to `out`: 0, or -1 without memory. They ignore raft_message_t's entries and take them beside it.
#
# The part of a frame before its entries' bytes. Each entry must then follow in order, padded to a multiple of 8 (what
# a LogEntry frame already is). `membership` may be NULL; `entry_sizes` NULL leaves the list out.
cdef int raft_prefix_encode(buffer_t* out, const raft_message_t* message, const membership_t* membership,
                            const uint32_t* entry_sizes, uint32_t entry_count) noexcept nogil
cdef int beats_encode(buffer_t* out, uint64_t source, uint64_t target, const beat_t* beats,
                      uint32_t count) noexcept nogil
# The part of a forward (`which`: PEER_MESSAGE_FORWARD) or forwardReply before `frames_size` bytes of whole frames.
cdef int forward_prefix_encode(buffer_t* out, uint16_t which, uint64_t source, uint32_t frames_size) noexcept nogil
cdef int peer_hello_encode(buffer_t* out, const hello_t* hello) noexcept nogil
