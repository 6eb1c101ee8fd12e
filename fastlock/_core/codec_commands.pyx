"""Commands, entries and memberships as dicts in the shape of pycapnp's to_dict()."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
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
    put_text_field,
    start_of,
)
from fastlock._core.commands cimport *
from fastlock._core.framing cimport PEER_FRAME_BYTES_MAX
from fastlock._core.layout cimport *
from fastlock._core.types cimport command_t
from fastlock._core.buffer cimport buffer_reserve
from fastlock._core.wire cimport list_t, message_t, put_list, store16, store64

from fastlock.schema.enums import CommandWhich, EntryKind, LeaseUse, LockMode, MemberRole, SettingId


cdef tuple KIND_NAMES = tuple(kind.name for kind in CommandWhich)
cdef tuple ENTRY_KIND_NAMES = tuple(kind.name for kind in EntryKind)
cdef tuple LEASE_USE_NAMES = tuple(use.name for use in LeaseUse)
cdef tuple LOCK_MODE_NAMES = tuple(mode.name for mode in LockMode)
cdef tuple MEMBER_ROLE_NAMES = tuple(role.name for role in MemberRole)
cdef tuple SETTING_NAMES = tuple(setting.name for setting in SettingId)


cdef dict command_to_dict(const command_t* command):
    cdef dict out = {
        "session": command.session,
        "sequence": command.sequence,
        "acknowledgedBelow": command.acknowledged_below,
        "leaseHigh": command.lease_high,
        "leaseLow": command.lease_low,
    }
    put_bytes_field(out, "key", command.key)
    out[KIND_NAMES[command.kind]] = kind_to_dict(command)
    return out


cdef object kind_to_dict(const command_t* command):
    cdef int kind = command.kind
    if kind == COMMAND_ACQUIRE or kind == COMMAND_ACQUIRE_ALL:
        return acquire_to_dict(command)
    if kind == COMMAND_OPEN_SESSION:
        return {"lifetimeMs": command.amount_ms}
    if kind == COMMAND_EXPIRE_SESSION:
        return {"session": command.target, "uses": command.generation}
    if kind == COMMAND_CREATE_LEASE:
        out = {"ttlMs": command.ttl_ms}
        put_bytes_field(out, "owner", command.owner)
        return out
    if kind == COMMAND_CHANGE_TTL:
        return {"ttlMs": command.ttl_ms}
    if kind == COMMAND_NOTE_REMAINING:
        return {"generation": command.generation, "remainingMs": command.amount_ms}
    if kind == COMMAND_EXPIRE or kind == COMMAND_END_DELAY:
        return {"generation": command.generation}
    if kind == COMMAND_RELEASE or kind == COMMAND_DELETE_VALUE:
        return {"token": command.token}
    if kind == COMMAND_CANCEL_WAIT:
        out = {"request": command.request, "sequence": command.target}
        items_to_dict(out, "keys", command)
        return out
    if kind == COMMAND_FORCE_RELEASE:
        out = {"token": command.token}
        put_bytes_field(out, "actor", command.owner)
        put_bytes_field(out, "reason", command.value)
        return out
    if kind == COMMAND_PUT_VALUE:
        out = {"token": command.token}
        put_bytes_field(out, "value", command.value)
        return out
    return group_command_to_dict(command)


cdef dict acquire_to_dict(const command_t* command):
    cdef dict out = {
        "request": command.request,
        "ttlMs": command.ttl_ms,
        "mode": name_of(LOCK_MODE_NAMES, command.mode),
        "lease": name_of(LEASE_USE_NAMES, command.lease_use),
        "wait": bool(command.wait),
        "lockDelayMs": command.lock_delay_ms,
    }
    if command.kind == COMMAND_ACQUIRE:
        out["limit"] = command.limit
        out["count"] = command.count
    else:
        items_to_dict(out, "keys", command)
    put_bytes_field(out, "owner", command.owner)
    return out


cdef object group_command_to_dict(const command_t* command):
    cdef int kind = command.kind
    cdef dict out
    if kind == COMMAND_CONFIGURE:
        return settings_to_dict(command)
    if kind < COMMAND_OWN_SLOTS or kind > COMMAND_DROP_SLOTS:
        return None
    out = {"first": command.slot_first, "last": command.slot_last}
    if kind == COMMAND_EXPORT_SLOTS:
        out["toGroup"] = command.to_group
    elif kind == COMMAND_IMPORT_SLOTS:
        out["complete"] = bool(command.complete)
        out["tokenFloor"] = command.target
        items_to_dict(out, "rows", command)
    return out


cdef int items_to_dict(dict out, str name, const command_t* command) except -1:
    cdef uint32_t i
    if command.list_data != NULL:
        out[name] = [bytes_of(command_item(command, i)) for i in range(command.list_count)]
    return 0


cdef dict settings_to_dict(const command_t* command):
    cdef setting_t setting
    cdef uint32_t i
    cdef list settings = []
    if command.list_data == NULL:
        return {}
    for i in range(command.list_count):
        setting = command_setting(command, i)
        settings.append({"id": name_of(SETTING_NAMES, setting.id), "value": setting.value})
    return {"settings": settings}


cdef int command_from_dict(Arena arena, object fields, command_t* out) except -1:
    cdef dict left = dict(fields)
    memset(out, 0, sizeof(command_t))
    out.session = left.pop("session", 0)
    out.sequence = left.pop("sequence", 0)
    out.acknowledged_below = left.pop("acknowledgedBelow", 0)
    out.lease_high = left.pop("leaseHigh", 0)
    out.lease_low = left.pop("leaseLow", 0)
    out.key = arena.bytes_slice(left.pop("key", None))
    if not left:
        return 0
    name, body = left.popitem()
    expect_empty(left)
    if name not in CommandWhich.__members__:
        raise ValueError(f"the schema has no command {name!r}")
    out.kind = CommandWhich[name]
    left = dict(body) if body is not None else {}
    kind_from_dict(arena, left, out)
    expect_empty(left)
    return 0


cdef int kind_from_dict(Arena arena, dict left, command_t* out) except -1:
    cdef int kind = out.kind
    if kind == COMMAND_ACQUIRE or kind == COMMAND_ACQUIRE_ALL:
        acquire_from_dict(arena, left, out)
    elif kind == COMMAND_OPEN_SESSION:
        out.amount_ms = left.pop("lifetimeMs", 0)
    elif kind == COMMAND_EXPIRE_SESSION:
        out.target = left.pop("session", 0)
        out.generation = left.pop("uses", 0)
    elif kind == COMMAND_CREATE_LEASE:
        out.ttl_ms = left.pop("ttlMs", 0)
        out.owner = arena.bytes_slice(left.pop("owner", None))
    elif kind == COMMAND_CHANGE_TTL:
        out.ttl_ms = left.pop("ttlMs", 0)
    elif kind == COMMAND_NOTE_REMAINING:
        out.generation = left.pop("generation", 0)
        out.amount_ms = left.pop("remainingMs", 0)
    elif kind == COMMAND_EXPIRE or kind == COMMAND_END_DELAY:
        out.generation = left.pop("generation", 0)
    elif kind == COMMAND_RELEASE or kind == COMMAND_DELETE_VALUE:
        out.token = left.pop("token", 0)
    elif kind == COMMAND_CANCEL_WAIT:
        out.request = left.pop("request", 0)
        out.target = left.pop("sequence", 0)
        out.list_data = arena.bytes_list(left.pop("keys", None), &out.list_count)
    elif kind == COMMAND_FORCE_RELEASE:
        out.token = left.pop("token", 0)
        out.owner = arena.bytes_slice(left.pop("actor", None))
        out.value = arena.bytes_slice(left.pop("reason", None))
    elif kind == COMMAND_PUT_VALUE:
        out.token = left.pop("token", 0)
        out.value = arena.bytes_slice(left.pop("value", None))
    elif kind == COMMAND_CONFIGURE:
        settings_from_dict(arena, left.pop("settings", None), out)
    elif kind >= COMMAND_OWN_SLOTS:
        slots_from_dict(arena, left, out)
    return 0


cdef int acquire_from_dict(Arena arena, dict left, command_t* out) except -1:
    out.request = left.pop("request", 0)
    out.ttl_ms = left.pop("ttlMs", 0)
    out.mode = number_of(LockMode, left.pop("mode", 0))
    out.lease_use = number_of(LeaseUse, left.pop("lease", 0))
    out.wait = bool(left.pop("wait", False))
    out.lock_delay_ms = left.pop("lockDelayMs", 0)
    out.owner = arena.bytes_slice(left.pop("owner", None))
    if out.kind == COMMAND_ACQUIRE:
        out.limit = left.pop("limit", 0)
        out.count = left.pop("count", 0)
    else:
        out.list_data = arena.bytes_list(left.pop("keys", None), &out.list_count)
    return 0


cdef int slots_from_dict(Arena arena, dict left, command_t* out) except -1:
    out.slot_first = left.pop("first", 0)
    out.slot_last = left.pop("last", 0)
    if out.kind == COMMAND_EXPORT_SLOTS:
        out.to_group = left.pop("toGroup", 0)
    elif out.kind == COMMAND_IMPORT_SLOTS:
        out.complete = bool(left.pop("complete", False))
        out.target = left.pop("tokenFloor", 0)
        out.list_data = arena.bytes_list(left.pop("rows", None), &out.list_count)
    return 0


cdef int settings_from_dict(Arena arena, object settings, command_t* out) except -1:
    """The list as it lies in a frame: the tag, then the elements."""
    cdef uint8_t* tag
    cdef uint8_t* at
    cdef uint8_t pointer[8]
    if settings is None:
        return 0
    out.list_count = <uint32_t>len(settings)
    tag = <uint8_t*>arena.array(1 + out.list_count * <size_t>(SETTING_DATA_WORDS + SETTING_POINTERS), 8)
    at = put_list(pointer, tag, out.list_count, SETTING_DATA_WORDS, SETTING_POINTERS)
    for setting in settings:
        store16(at + SETTING_ID_AT, number_of(SettingId, setting.get("id", 0)))
        store64(at + SETTING_VALUE_AT, setting.get("value", 0))
        at += (SETTING_DATA_WORDS + SETTING_POINTERS) * 8
    out.list_data = tag
    return 0


cdef dict membership_to_dict(message_t* message, uint16_t version, const list_t* members):
    cdef member_t member
    cdef uint32_t i
    cdef list items = []
    cdef dict fields
    if members.data == NULL:
        return {"version": version}
    for i in range(members.count):
        check(member_decode(message, members, i, &member))
        fields = {
            "node": member.node,
            "incarnation": member.incarnation,
            "role": name_of(MEMBER_ROLE_NAMES, member.role),
        }
        put_text_field(fields, "address", member.address)
        items.append(fields)
    return {"version": version, "members": items}


cdef int membership_from_dict(Arena arena, object fields, membership_t* out) except -1:
    cdef dict left = dict(fields)
    cdef dict member
    cdef member_t* items
    cdef Py_ssize_t i
    out.version = left.pop("version", 0)
    out.members = NULL
    out.count = 0
    members = left.pop("members", None)
    expect_empty(left)
    if members is None:
        return 0
    items = <member_t*>arena.array(len(members), sizeof(member_t))
    for i in range(len(members)):
        member = dict(members[i])
        items[i].node = member.pop("node", 0)
        items[i].incarnation = member.pop("incarnation", 0)
        items[i].role = number_of(MemberRole, member.pop("role", 0))
        items[i].address = arena.text_slice(member.pop("address", None))
        expect_empty(member)
    out.members = items
    out.count = <uint32_t>len(members)
    return 0


def decode_log_entry(const uint8_t[::1] frame not None, size_t frame_bytes_max=PEER_FRAME_BYTES_MAX) -> dict:
    """A LogEntry frame as a dict."""
    cdef entry_t entry
    cdef command_t command
    cdef uint32_t i
    check_frame(frame, frame_bytes_max)
    check(entry_open(start_of(frame), frame.shape[0], &entry))
    out = {
        "version": entry.version,
        "kind": ENTRY_KIND_NAMES[entry.kind],
        "group": entry.group,
        "term": entry.term,
        "index": entry.index,
    }
    if entry.commands.data != NULL:
        commands = []
        for i in range(entry.commands.count):
            check(entry_command(&entry, i, &command))
            commands.append(command_to_dict(&command))
        out["commands"] = commands
    if entry.membership_present:
        out["membership"] = membership_to_dict(&entry.message, entry.membership_version, &entry.members)
    return out


def encode_entry(uint32_t group, uint64_t term, uint64_t index, commands) -> bytes:
    """The LogEntry frame of a batch; each command a dict, its missing fields zero."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef builder_t builder
    cdef command_t command
    memset(&builder, 0, sizeof(builder_t))
    try:
        for fields in commands:
            command_from_dict(arena, fields, &command)
            if builder_add(&builder, &command) != 0:
                raise MemoryError
        if buffer_reserve(&out.buffer, builder_bytes(&builder)) != 0:
            raise MemoryError
        out.buffer.size = builder_bytes(&builder)
        builder_seal(&builder, group, term, index, out.buffer.data)
    finally:
        builder_free(&builder)
    return out.take(0)


def encode_noop_entry(uint32_t group, uint64_t term, uint64_t index) -> bytes:
    """The LogEntry frame of a leader's first entry."""
    cdef Output out = Output()
    return out.take(entry_encode_noop(&out.buffer, group, term, index))


def encode_membership_entry(uint32_t group, uint64_t term, uint64_t index, membership) -> bytes:
    """The LogEntry frame of a membership change; `membership` is a dict."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef membership_t members
    membership_from_dict(arena, membership, &members)
    return out.take(entry_encode_membership(&out.buffer, group, term, index, &members))


def decode_membership(const uint8_t[::1] frame not None, size_t frame_bytes_max=PEER_FRAME_BYTES_MAX) -> dict:
    """A Membership frame as a dict."""
    cdef message_t message
    cdef list_t members
    cdef uint16_t version
    check_frame(frame, frame_bytes_max)
    check(membership_open(start_of(frame), frame.shape[0], &message, &version, &members))
    return membership_to_dict(&message, version, &members)


def encode_membership(membership) -> bytes:
    """A dict as a Membership frame."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef membership_t members
    membership_from_dict(arena, membership, &members)
    return out.take(membership_encode(&out.buffer, &members))
