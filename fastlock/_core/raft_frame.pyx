"""Raft messages as PeerMessage frames, and back."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from fastlock._core cimport layout
from fastlock._core.buffer cimport buffer_free, buffer_t
from fastlock._core.codec_arena cimport check
from fastlock._core.commands cimport member_t, membership_t
from fastlock._core.peer_messages cimport (
    beat_at,
    beat_t,
    beats_encode,
    peer_message_decode,
    peer_message_t,
    raft_entry,
    raft_prefix_encode,
)
from fastlock._core.raft_entry cimport entry_of_frame, point_to, read_member_list, taken
from fastlock._core.raft_message cimport MEMBERS_MAX, Entry, Message, new_message
from fastlock._core.types cimport raft_message_t, slice_t


cdef enum:
    # One message carries what fits append_bytes_max; tiny entries could be many.
    MESSAGE_ENTRIES_MAX = 65536


def encode_message(Message message not None):
    cdef list parts = [encode_prefix(message)]
    for entry in message.entries:
        # An entry's frame is whole words, so the next one follows without padding.
        assert len((<Entry>entry).data) % 8 == 0
        parts.append((<Entry>entry).data)
    return parts


cdef bytes encode_prefix(Message message):
    cdef raft_message_t fields
    cdef member_t structs[MEMBERS_MAX]
    cdef membership_t membership
    cdef buffer_t buffer
    cdef uint32_t* sizes = NULL
    cdef uint32_t count = <uint32_t>len(message.entries)
    cdef uint32_t position
    cdef list kept = []
    memset(&buffer, 0, sizeof(buffer))
    fill(&fields, message)
    if count > MESSAGE_ENTRIES_MAX:
        raise ValueError(f"{count} entries in one message, at most {MESSAGE_ENTRIES_MAX}")
    if message.members is not None:
        kept = point_to(message.members, structs, &membership)
    try:
        if count:
            sizes = <uint32_t*>malloc(count * sizeof(uint32_t))
            if sizes == NULL:
                raise MemoryError()
            for position in range(count):
                sizes[position] = <uint32_t>len((<Entry?>message.entries[position]).data)
        return taken(&buffer, raft_prefix_encode(
            &buffer, &fields, &membership if message.members is not None else NULL, sizes, count
        ))
    finally:
        free(sizes)
        kept.clear()


cdef void fill(raft_message_t* fields, Message message) noexcept:
    memset(fields, 0, sizeof(raft_message_t))
    fields.kind = message.kind
    fields.reject = message.reject
    fields.force = message.force
    fields.last = message.last
    fields.group = message.group
    fields.source = message.source
    fields.target = message.target
    fields.term = message.term
    fields.index = message.index
    fields.log_term = message.log_term
    fields.commit = message.commit
    fields.context = message.context
    fields.hint_index = message.hint_index
    fields.hint_term = message.hint_term
    if message.kind == layout.RAFT_KIND_SNAPSHOT_CHUNK:
        fields.chunk.data = <const uint8_t*>PyBytes_AS_STRING(message.chunk)
        fields.chunk.size = <uint32_t>PyBytes_GET_SIZE(message.chunk)


def encode_beats(messages):
    cdef list listed = list(messages)
    cdef size_t count = len(listed)
    cdef beat_t* beats = <beat_t*>malloc(max(count, 1) * sizeof(beat_t))
    cdef buffer_t buffer
    cdef Message message
    cdef size_t position
    memset(&buffer, 0, sizeof(buffer))
    if beats == NULL:
        raise MemoryError()
    try:
        for position in range(count):
            message = <Message?>listed[position]
            if message.source != (<Message>listed[0]).source or message.target != (<Message>listed[0]).target:
                raise ValueError("beats in one frame go from one node to one other")
            if message.kind != layout.RAFT_KIND_HEARTBEAT and message.kind != layout.RAFT_KIND_HEARTBEAT_REPLY:
                raise ValueError(f"kind {message.kind} is not a heartbeat or its answer")
            beats[position].group = message.group
            beats[position].reply = message.kind == layout.RAFT_KIND_HEARTBEAT_REPLY
            beats[position].term = message.term
            beats[position].commit = message.commit
            beats[position].context = message.context
        if count == 0:
            raise ValueError("no beats")
        message = <Message>listed[0]
        return taken(&buffer, beats_encode(&buffer, message.source, message.target, beats, <uint32_t>count))
    finally:
        free(beats)


def decode_messages(bytes frame not None):
    cdef peer_message_t decoded
    cdef buffer_t scratch
    memset(&scratch, 0, sizeof(scratch))
    try:
        check(peer_message_decode(
            <const uint8_t*>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame), &scratch, &decoded
        ))
        if decoded.which == layout.PEER_MESSAGE_RAFT:
            return [raft_message(&decoded)]
        if decoded.which == layout.PEER_MESSAGE_BEATS:
            return beats_of(&decoded)
        return None
    except ValueError:
        check(layout.CODE_MALFORMED_FRAME)
    finally:
        buffer_free(&scratch)


cdef Message raft_message(peer_message_t* decoded):
    cdef raft_message_t* fields = &decoded.raft
    cdef Message message = new_message(fields.kind, fields.group, fields.source, fields.target, fields.term)
    cdef slice_t data
    cdef uint32_t position
    cdef list entries
    message.reject = fields.reject
    message.force = fields.force
    message.last = fields.last
    message.index = fields.index
    message.log_term = fields.log_term
    message.commit = fields.commit
    message.context = fields.context
    message.hint_index = fields.hint_index
    message.hint_term = fields.hint_term
    if fields.chunk.data != NULL:
        message.chunk = PyBytes_FromStringAndSize(<const char*>fields.chunk.data, fields.chunk.size)
    if decoded.membership_present:
        message.members = read_member_list(&decoded.message, &decoded.members)
    if fields.entries_count:
        entries = []
        for position in range(fields.entries_count):
            data = raft_entry(fields, position)
            entries.append(entry_of_frame(PyBytes_FromStringAndSize(<const char*>data.data, data.size)))
        message.entries = entries
    return message


cdef list beats_of(peer_message_t* decoded):
    cdef list messages = []
    cdef beat_t beat
    cdef Message message
    cdef uint32_t position
    for position in range(decoded.beats.count):
        beat_at(&decoded.beats, position, &beat)
        message = new_message(
            layout.RAFT_KIND_HEARTBEAT_REPLY if beat.reply else layout.RAFT_KIND_HEARTBEAT,
            beat.group, decoded.source, decoded.target, beat.term,
        )
        message.commit = beat.commit
        message.context = beat.context
        messages.append(message)
    return messages
