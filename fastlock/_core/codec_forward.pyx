"""Forwarded requests and their replies as PeerMessage frames, around the client's own frames as they are."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from fastlock._core.codec_arena cimport Output, bytes_of, check, check_frame, start_of
from fastlock._core.framing cimport PEER_FRAME_BYTES_MAX
from fastlock._core.layout cimport PEER_MESSAGE_FORWARD, PEER_MESSAGE_FORWARD_REPLY
from fastlock._core.peer_messages cimport forward_prefix_encode, peer_message_decode, peer_message_t
from fastlock._core.wire cimport bytes_element

FORWARD = PEER_MESSAGE_FORWARD
FORWARD_REPLY = PEER_MESSAGE_FORWARD_REPLY


def encode_forward(uint64_t source, bytes requests not None) -> list:
    """The parts of a frame that hands Request frames on."""
    cdef Output out = Output()
    assert len(requests) % 8 == 0, "frames are whole words"
    return [out.take(forward_prefix_encode(&out.buffer, PEER_MESSAGE_FORWARD, source, len(requests))), requests]


def encode_forward_reply(bytes replies not None) -> list:
    """The parts of a frame that hands Reply frames back."""
    cdef Output out = Output()
    assert len(replies) % 8 == 0, "frames are whole words"
    return [out.take(forward_prefix_encode(&out.buffer, PEER_MESSAGE_FORWARD_REPLY, 0, len(replies))), replies]


def decode_forwarded(const uint8_t[::1] frame not None, size_t frame_bytes_max=PEER_FRAME_BYTES_MAX):
    """(FORWARD or FORWARD_REPLY, the client's frames) of a PeerMessage frame; None if it is another."""
    cdef Output scratch = Output()
    cdef peer_message_t message
    cdef uint32_t i
    check_frame(frame, frame_bytes_max)
    check(peer_message_decode(start_of(frame), frame.shape[0], &scratch.buffer, &message))
    if message.which != PEER_MESSAGE_FORWARD and message.which != PEER_MESSAGE_FORWARD_REPLY:
        return None
    if message.frames_count == 1:
        return message.which, bytes_of(bytes_element(message.frames_data, 0))
    return message.which, b"".join([
        bytes_of(bytes_element(message.frames_data, i)) for i in range(message.frames_count)
    ])
