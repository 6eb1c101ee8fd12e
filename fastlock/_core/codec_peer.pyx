"""Messages between members as dicts in the shape of pycapnp's to_dict()."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from fastlock._core.codec_arena cimport (
    Arena,
    Output,
    bytes_of,
    check,
    check_frame,
    expect_empty,
    name_of,
    number_of,
    put_bytes_field,
    start_of,
)
from fastlock._core.client_messages cimport hello_t
from fastlock._core.codec_client cimport hello_from_dict, hello_to_dict
from fastlock._core.codec_commands cimport membership_from_dict, membership_to_dict
from fastlock._core.commands cimport membership_t
from fastlock._core.framing cimport PEER_FRAME_BYTES_MAX
from fastlock._core.layout cimport *
from fastlock._core.peer_messages cimport *
from fastlock._core.types cimport raft_message_t
from fastlock._core.wire cimport list_t

from fastlock import schema
from fastlock.schema.enums import RaftKind


cdef tuple RAFT_KIND_NAMES = tuple(kind.name for kind in RaftKind)


def decode_peer_message(const uint8_t[::1] frame not None, size_t frame_bytes_max=PEER_FRAME_BYTES_MAX) -> dict:
    """A PeerMessage frame as a dict."""
    cdef Output scratch = Output()
    cdef peer_message_t message
    check_frame(frame, frame_bytes_max)
    check(peer_message_decode(start_of(frame), frame.shape[0], &scratch.buffer, &message))
    if message.which == PEER_MESSAGE_RAFT:
        return {"raft": raft_to_dict(&message)}
    if message.which == PEER_MESSAGE_BEATS:
        return {"beats": beats_to_dict(&message)}
    if message.which == PEER_MESSAGE_HELLO:
        return {"hello": hello_to_dict(&message.hello)}
    return schema.decode("peer", "PeerMessage", bytes(frame))


cdef dict raft_to_dict(peer_message_t* message):
    cdef const raft_message_t* raft = &message.raft
    cdef uint32_t i
    cdef dict out = {
        "kind": name_of(RAFT_KIND_NAMES, raft.kind),
        "group": raft.group,
        "source": raft.source,
        "target": raft.target,
        "term": raft.term,
        "index": raft.index,
        "logTerm": raft.log_term,
        "commit": raft.commit,
        "context": raft.context,
        "hintIndex": raft.hint_index,
        "hintTerm": raft.hint_term,
        "reject": bool(raft.reject),
        "force": bool(raft.force),
        "last": bool(raft.last),
    }
    if raft.entries_data != NULL:
        out["entries"] = [bytes_of(raft_entry(raft, i)) for i in range(raft.entries_count)]
    put_bytes_field(out, "chunk", raft.chunk)
    if message.membership_present:
        out["membership"] = membership_to_dict(&message.message, message.membership_version, &message.members)
    return out


cdef dict beats_to_dict(const peer_message_t* message):
    cdef const list_t* items = &message.beats
    cdef beat_t beat
    cdef uint32_t i
    cdef list beats = []
    cdef dict out = {"source": message.source, "target": message.target}
    for i in range(items.count):
        beat_at(items, i, &beat)
        beats.append({
            "group": beat.group,
            "reply": bool(beat.reply),
            "term": beat.term,
            "commit": beat.commit,
            "context": beat.context,
        })
    if items.data != NULL:
        out["beats"] = beats
    return out


def encode_peer_message(fields) -> bytes:
    """A dict as a PeerMessage frame."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef hello_t hello
    (name, content), = fields.items()
    if name == "raft":
        entries = content.get("entries")
        prefix = encode_raft_prefix(content, None if entries is None else [len(entry) for entry in entries])
        return prefix + b"".join(entry + bytes(7 - (len(entry) + 7) % 8) for entry in entries or ())
    if name == "beats":
        return encode_beats(arena, content)
    if name == "hello":
        hello_from_dict(arena, content, &hello)
        return out.take(peer_hello_encode(&out.buffer, &hello))
    return schema.encode("peer", "PeerMessage", fields)


def encode_raft_prefix(fields, entry_sizes) -> bytes:
    """What comes before the entries in the frame of a Raft message.

    `fields` is a RaftMessage dict whose entries are ignored. The prefix, and then the bytes of every entry, padded to
    8 where they are not a multiple of it, make the whole frame.
    """
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef dict left = dict(fields)
    cdef raft_message_t message
    cdef membership_t membership
    cdef membership_t* carried = NULL
    cdef uint32_t* sizes = NULL
    cdef uint32_t count = 0
    raft_from_dict(arena, left, &message)
    members = left.pop("membership", None)
    if members is not None:
        membership_from_dict(arena, members, &membership)
        carried = &membership
    left.pop("entries", None)
    expect_empty(left)
    if entry_sizes is not None:
        sizes = <uint32_t*>arena.array(len(entry_sizes), sizeof(uint32_t))
        for size in entry_sizes:
            sizes[count] = size
            count += 1
    return out.take(raft_prefix_encode(&out.buffer, &message, carried, sizes, count))


cdef int raft_from_dict(Arena arena, dict left, raft_message_t* out) except -1:
    memset(out, 0, sizeof(raft_message_t))
    out.kind = number_of(RaftKind, left.pop("kind", 0))
    out.group = left.pop("group", 0)
    out.source = left.pop("source", 0)
    out.target = left.pop("target", 0)
    out.term = left.pop("term", 0)
    out.index = left.pop("index", 0)
    out.log_term = left.pop("logTerm", 0)
    out.commit = left.pop("commit", 0)
    out.context = left.pop("context", 0)
    out.hint_index = left.pop("hintIndex", 0)
    out.hint_term = left.pop("hintTerm", 0)
    out.reject = bool(left.pop("reject", False))
    out.force = bool(left.pop("force", False))
    out.last = bool(left.pop("last", False))
    out.chunk = arena.bytes_slice(left.pop("chunk", None))
    return 0


cdef bytes encode_beats(Arena arena, object fields):
    cdef Output out = Output()
    cdef dict left = dict(fields)
    cdef dict beat
    cdef uint64_t source = left.pop("source", 0)
    cdef uint64_t target = left.pop("target", 0)
    cdef beat_t* items = NULL
    cdef uint32_t i
    beats = left.pop("beats", None)
    expect_empty(left)
    if beats is not None:
        items = <beat_t*>arena.array(len(beats), sizeof(beat_t))
        for i in range(<uint32_t>len(beats)):
            beat = dict(beats[i])
            items[i].group = beat.pop("group", 0)
            items[i].reply = bool(beat.pop("reply", False))
            items[i].term = beat.pop("term", 0)
            items[i].commit = beat.pop("commit", 0)
            items[i].context = beat.pop("context", 0)
            expect_empty(beat)
    return out.take(beats_encode(&out.buffer, source, target, items, <uint32_t>len(beats) if beats is not None else 0))
