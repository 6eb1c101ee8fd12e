"""Checkpoint rows as dicts in the shape of pycapnp's to_dict(). Written with the current version."""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset

from fastlock._core.codec_arena cimport (
    Arena,
    Output,
    check,
    check_frame,
    expect_empty,
    name_of,
    number_of,
    put_bytes_field,
    start_of,
)
from fastlock._core.codec_commands cimport membership_from_dict, membership_to_dict
from fastlock._core.commands cimport membership_t, setting_t
from fastlock._core.framing cimport PEER_FRAME_BYTES_MAX
from fastlock._core.layout cimport FORMAT_VERSION
from fastlock._core.rows cimport *
from fastlock._core.wire cimport list_t

from fastlock.schema.enums import Code, LockMode, RowMode, SettingId


cdef tuple CODE_NAMES = tuple(code.name for code in Code)
cdef tuple LOCK_MODE_NAMES = tuple(mode.name for mode in LockMode)
cdef tuple ROW_MODE_NAMES = tuple(mode.name for mode in RowMode)
cdef tuple SETTING_NAMES = tuple(setting.name for setting in SettingId)


cdef int expect_version(dict left) except -1:
    if left.pop("version", FORMAT_VERSION) != FORMAT_VERSION:
        raise ValueError(f"rows are written with version {FORMAT_VERSION} only")
    return 0


def decode_lock_row(const uint8_t[::1] frame not None, size_t frame_bytes_max=PEER_FRAME_BYTES_MAX) -> dict:
    """A LockRow frame as a dict."""
    cdef lock_row_t row
    check_frame(frame, frame_bytes_max)
    check(lock_row_decode(start_of(frame), frame.shape[0], &row))
    out = {
        "version": row.version,
        "mode": name_of(ROW_MODE_NAMES, row.mode),
        "slot": row.slot,
        "limit": row.limit,
        "delayMs": row.delay_ms,
        "delayGeneration": row.delay_generation,
        "valueRevision": row.value_revision,
        "valueToken": row.value_token,
    }
    put_bytes_field(out, "key", row.key)
    put_bytes_field(out, "value", row.value)
    if row.holders.data != NULL:
        out["holders"] = claims_to_list(&row.holders)
    if row.waiters.data != NULL:
        out["waiters"] = claims_to_list(&row.waiters)
    return out


cdef list claims_to_list(const list_t* items):
    cdef claim_row_t claim
    cdef uint32_t i
    cdef list out = []
    for i in range(items.count):
        claim_row_at(items, i, &claim)
        out.append({
            "leaseHigh": claim.lease_high,
            "leaseLow": claim.lease_low,
            "request": claim.request,
            "revision": claim.revision,
            "count": claim.count,
            "lockDelayMs": claim.lock_delay_ms,
            "mode": name_of(LOCK_MODE_NAMES, claim.mode),
            "position": claim.position,
            "keyTotal": claim.key_total,
        })
    return out


def encode_lock_row(fields) -> bytes:
    """A dict as a LockRow frame."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef dict left = dict(fields)
    cdef lock_row_t row
    cdef claim_row_t* holders
    cdef claim_row_t* waiters
    cdef uint32_t holder_count, waiter_count
    memset(&row, 0, sizeof(lock_row_t))
    expect_version(left)
    row.mode = number_of(RowMode, left.pop("mode", 0))
    row.slot = left.pop("slot", 0)
    row.limit = left.pop("limit", 0)
    row.delay_ms = left.pop("delayMs", 0)
    row.delay_generation = left.pop("delayGeneration", 0)
    row.value_revision = left.pop("valueRevision", 0)
    row.value_token = left.pop("valueToken", 0)
    row.key = arena.bytes_slice(left.pop("key", None))
    row.value = arena.bytes_slice(left.pop("value", None))
    holders = claims_from_list(arena, left.pop("holders", None), &holder_count)
    waiters = claims_from_list(arena, left.pop("waiters", None), &waiter_count)
    expect_empty(left)
    frame = out.take(lock_row_encode(&out.buffer, &row, holders, holder_count, waiters, waiter_count))
    assert <size_t>len(frame) == lock_row_bytes(&row, holders, holder_count, waiters, waiter_count)
    return frame


cdef claim_row_t* claims_from_list(Arena arena, object content, uint32_t* count) except? NULL:
    cdef claim_row_t* items
    cdef dict left
    cdef Py_ssize_t i
    count[0] = 0
    if content is None:
        return NULL
    items = <claim_row_t*>arena.array(len(content), sizeof(claim_row_t))
    for i in range(len(content)):
        left = dict(content[i])
        items[i].lease_high = left.pop("leaseHigh", 0)
        items[i].lease_low = left.pop("leaseLow", 0)
        items[i].request = left.pop("request", 0)
        items[i].revision = left.pop("revision", 0)
        items[i].count = left.pop("count", 0)
        items[i].lock_delay_ms = left.pop("lockDelayMs", 0)
        items[i].mode = number_of(LockMode, left.pop("mode", 0))
        items[i].position = left.pop("position", 0)
        items[i].key_total = left.pop("keyTotal", 0)
        expect_empty(left)
    count[0] = <uint32_t>len(content)
    return items


def decode_lease_row(const uint8_t[::1] frame not None, size_t frame_bytes_max=PEER_FRAME_BYTES_MAX) -> dict:
    """A LeaseRow frame as a dict."""
    cdef lease_row_t row
    check_frame(frame, frame_bytes_max)
    check(lease_row_decode(start_of(frame), frame.shape[0], &row))
    out = {
        "version": row.version,
        "bound": bool(row.bound),
        "leaseHigh": row.lease_high,
        "leaseLow": row.lease_low,
        "ttlMs": row.ttl_ms,
        "generation": row.generation,
        "remainingMs": row.remaining_ms,
        "lostRevision": row.lost_revision,
    }
    put_bytes_field(out, "owner", row.owner)
    return out


def encode_lease_row(fields) -> bytes:
    """A dict as a LeaseRow frame."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef dict left = dict(fields)
    cdef lease_row_t row
    memset(&row, 0, sizeof(lease_row_t))
    expect_version(left)
    row.bound = bool(left.pop("bound", False))
    row.lease_high = left.pop("leaseHigh", 0)
    row.lease_low = left.pop("leaseLow", 0)
    row.ttl_ms = left.pop("ttlMs", 0)
    row.generation = left.pop("generation", 0)
    row.remaining_ms = left.pop("remainingMs", 0)
    row.lost_revision = left.pop("lostRevision", 0)
    row.owner = arena.bytes_slice(left.pop("owner", None))
    expect_empty(left)
    return out.take(lease_row_encode(&out.buffer, &row))


def decode_session_row(const uint8_t[::1] frame not None, size_t frame_bytes_max=PEER_FRAME_BYTES_MAX) -> dict:
    """A SessionRow frame as a dict."""
    cdef session_row_t row
    check_frame(frame, frame_bytes_max)
    check(session_row_decode(start_of(frame), frame.shape[0], &row))
    out = {
        "version": row.version,
        "session": row.session,
        "watermark": row.watermark,
        "uses": row.uses,
        "lifetimeMs": row.lifetime_ms,
    }
    if row.answers.data != NULL:
        out["answers"] = answers_to_list(&row.answers)
    return out


cdef list answers_to_list(const list_t* items):
    cdef answer_row_t answer
    cdef uint32_t i
    cdef list out = []
    for i in range(items.count):
        answer_row_at(items, i, &answer)
        out.append({
            "sequence": answer.sequence,
            "code": name_of(CODE_NAMES, answer.code),
            "kind": answer.kind,
            "count": answer.count,
            "detail": answer.detail,
            "token": answer.token,
            "revision": answer.revision,
        })
    return out


def encode_session_row(fields) -> bytes:
    """A dict as a SessionRow frame."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef dict left = dict(fields)
    cdef session_row_t row
    cdef answer_row_t* answers
    cdef uint32_t count
    memset(&row, 0, sizeof(session_row_t))
    expect_version(left)
    row.session = left.pop("session", 0)
    row.watermark = left.pop("watermark", 0)
    row.uses = left.pop("uses", 0)
    row.lifetime_ms = left.pop("lifetimeMs", 0)
    answers = answers_from_list(arena, left.pop("answers", None), &count)
    expect_empty(left)
    return out.take(session_row_encode(&out.buffer, &row, answers, count))


cdef answer_row_t* answers_from_list(Arena arena, object content, uint32_t* count) except? NULL:
    cdef answer_row_t* items
    cdef dict left
    cdef Py_ssize_t i
    count[0] = 0
    if content is None:
        return NULL
    items = <answer_row_t*>arena.array(len(content), sizeof(answer_row_t))
    for i in range(len(content)):
        left = dict(content[i])
        items[i].sequence = left.pop("sequence", 0)
        items[i].code = number_of(Code, left.pop("code", 0))
        items[i].kind = left.pop("kind", 0)
        items[i].count = left.pop("count", 0)
        items[i].detail = left.pop("detail", 0)
        items[i].token = left.pop("token", 0)
        items[i].revision = left.pop("revision", 0)
        expect_empty(left)
    count[0] = <uint32_t>len(content)
    return items


def decode_group_row(const uint8_t[::1] frame not None, size_t frame_bytes_max=PEER_FRAME_BYTES_MAX) -> dict:
    """A GroupRow frame as a dict."""
    cdef group_row_t row
    check_frame(frame, frame_bytes_max)
    check(group_row_decode(start_of(frame), frame.shape[0], &row))
    out = {
        "version": row.version,
        "group": row.group,
        "index": row.index,
        "term": row.term,
        "revision": row.revision,
        "historyFloor": row.history_floor,
    }
    if row.settings.data != NULL:
        out["settings"] = settings_to_list(&row.settings)
    put_bytes_field(out, "slots", row.slots)
    if row.moved_to.data != NULL:
        out["movedTo"] = moved_to_list(&row.moved_to)
    if row.membership_present:
        out["membership"] = membership_to_dict(&row.message, row.membership_version, &row.members)
    return out


cdef list settings_to_list(const list_t* items):
    cdef setting_t setting
    cdef uint32_t i
    cdef list out = []
    for i in range(items.count):
        setting_row_at(items, i, &setting)
        out.append({"id": name_of(SETTING_NAMES, setting.id), "value": setting.value})
    return out


cdef list moved_to_list(const list_t* items):
    cdef moved_slots_t moved
    cdef uint32_t i
    cdef list out = []
    for i in range(items.count):
        moved_slots_at(items, i, &moved)
        out.append({"first": moved.first, "last": moved.last, "toGroup": moved.to_group})
    return out


def encode_group_row(fields) -> bytes:
    """A dict as a GroupRow frame."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef dict left = dict(fields)
    cdef group_row_t row
    cdef setting_t* settings
    cdef moved_slots_t* moved
    cdef membership_t membership
    cdef membership_t* carried = NULL
    cdef uint32_t setting_count, moved_count
    memset(&row, 0, sizeof(group_row_t))
    expect_version(left)
    row.group = left.pop("group", 0)
    row.index = left.pop("index", 0)
    row.term = left.pop("term", 0)
    row.revision = left.pop("revision", 0)
    row.history_floor = left.pop("historyFloor", 0)
    row.slots = arena.bytes_slice(left.pop("slots", None))
    settings = settings_from_list(arena, left.pop("settings", None), &setting_count)
    moved = moved_from_list(arena, left.pop("movedTo", None), &moved_count)
    members = left.pop("membership", None)
    if members is not None:
        membership_from_dict(arena, members, &membership)
        carried = &membership
    expect_empty(left)
    return out.take(group_row_encode(&out.buffer, &row, settings, setting_count, moved, moved_count, carried))


cdef setting_t* settings_from_list(Arena arena, object content, uint32_t* count) except? NULL:
    cdef setting_t* items
    cdef Py_ssize_t i
    count[0] = 0
    if content is None:
        return NULL
    items = <setting_t*>arena.array(len(content), sizeof(setting_t))
    for i in range(len(content)):
        items[i].id = number_of(SettingId, content[i].get("id", 0))
        items[i].value = content[i].get("value", 0)
    count[0] = <uint32_t>len(content)
    return items


cdef moved_slots_t* moved_from_list(Arena arena, object content, uint32_t* count) except? NULL:
    cdef moved_slots_t* items
    cdef Py_ssize_t i
    count[0] = 0
    if content is None:
        return NULL
    items = <moved_slots_t*>arena.array(len(content), sizeof(moved_slots_t))
    for i in range(len(content)):
        items[i].first = content[i].get("first", 0)
        items[i].last = content[i].get("last", 0)
        items[i].to_group = content[i].get("toGroup", 0)
    count[0] = <uint32_t>len(content)
    return items
