"""Requests, replies and hellos as dicts in the shape of pycapnp's to_dict()."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from fastlock._core.client_messages cimport *
from fastlock._core.codec_arena cimport (
    Arena,
    Output,
    check,
    check_frame,
    expect_empty,
    name_of,
    number_of,
    put_bytes_field,
    put_text_field,
    start_of,
)
from fastlock._core.codec_commands cimport command_from_dict, command_to_dict
from fastlock._core.framing cimport CLIENT_FRAME_BYTES_MAX
from fastlock._core.layout cimport *
from fastlock._core.types cimport outcome_t
from fastlock._core.wire cimport list_t, message_t

from fastlock import schema
from fastlock.schema.enums import Code, EventKind, LockMode, ReplyWhich, RequestWhich, Role, RowMode


cdef tuple CODE_NAMES = tuple(code.name for code in Code)
cdef tuple EVENT_KIND_NAMES = tuple(kind.name for kind in EventKind)
cdef tuple LOCK_MODE_NAMES = tuple(mode.name for mode in LockMode)
cdef tuple ROLE_NAMES = tuple(role.name for role in Role)
cdef tuple ROW_MODE_NAMES = tuple(mode.name for mode in RowMode)


cdef dict hello_to_dict(const hello_t* hello):
    cdef dict out = {
        "version": hello.version,
        "role": name_of(ROLE_NAMES, hello.role),
        "clusterHigh": hello.cluster_high,
        "clusterLow": hello.cluster_low,
        "node": hello.node,
        "incarnation": hello.incarnation,
        "code": name_of(CODE_NAMES, hello.code),
    }
    put_text_field(out, "software", hello.software)
    put_bytes_field(out, "credentials", hello.credentials)
    put_text_field(out, "message", hello.message)
    return out


cdef int hello_from_dict(Arena arena, object fields, hello_t* out) except -1:
    cdef dict left = dict(fields)
    memset(out, 0, sizeof(hello_t))
    out.version = left.pop("version", 0)
    out.role = number_of(Role, left.pop("role", 0))
    out.cluster_high = left.pop("clusterHigh", 0)
    out.cluster_low = left.pop("clusterLow", 0)
    out.node = left.pop("node", 0)
    out.incarnation = left.pop("incarnation", 0)
    out.code = number_of(Code, left.pop("code", 0))
    out.software = arena.text_slice(left.pop("software", None))
    out.credentials = arena.bytes_slice(left.pop("credentials", None))
    out.message = arena.text_slice(left.pop("message", None))
    return expect_empty(left)


def check_hello(
    hello,
    *,
    uint64_t cluster_high=0,
    uint64_t cluster_low=0,
    uint64_t node=0,
    uint64_t peer_node=0,
    uint64_t peer_incarnation=0,
) -> int:
    """The Code of a Hello against what this side knows: ok, or why the connection must not go on.

    Zero stands for "not known yet". `node` is our own id, `peer_node` the one expected at the other end, and
    `peer_incarnation` the lowest that is accepted of it.
    """
    cdef Arena arena = Arena()
    cdef identity_t identity
    cdef hello_t said
    hello_from_dict(arena, hello, &said)
    identity.cluster_high = cluster_high
    identity.cluster_low = cluster_low
    identity.node = node
    identity.peer_node = peer_node
    identity.peer_incarnation = peer_incarnation
    return hello_check(&said, &identity)


def decode_request(const uint8_t[::1] frame not None, size_t frame_bytes_max=CLIENT_FRAME_BYTES_MAX) -> dict:
    """A Request frame as a dict."""
    cdef Output scratch = Output()
    cdef request_t request
    check_frame(frame, frame_bytes_max)
    check(request_decode(start_of(frame), frame.shape[0], &scratch.buffer, &request))
    return {
        "id": request.id,
        "group": request.group,
        "timeoutMs": request.timeout_ms,
        RequestWhich(request.which).name: request_content_to_dict(&request),
    }


cdef object request_content_to_dict(const request_t* request):
    cdef int which = request.which
    cdef dict out
    if which == REQUEST_COMMAND:
        return command_to_dict(&request.command)
    if which == REQUEST_GET_LOCK:
        out = {"stale": bool(request.stale)}
        put_bytes_field(out, "key", request.key)
        return out
    if which == REQUEST_LIST:
        out = {"limit": request.limit, "stale": bool(request.stale)}
        put_bytes_field(out, "prefix", request.key)
        put_bytes_field(out, "cursor", request.cursor)
        return out
    if which == REQUEST_WATCH:
        out = {"prefix": bool(request.prefix)}
        put_bytes_field(out, "key", request.key)
        put_bytes_field(out, "position", request.cursor)
        return out
    if which == REQUEST_UNWATCH:
        return {"watch": request.watch}
    if which == REQUEST_KEEP_ALIVE:
        return keep_alives_to_list(&request.keep_alives)
    if which == REQUEST_HELLO:
        return hello_to_dict(&request.hello)
    return None


cdef list keep_alives_to_list(const list_t* items):
    cdef keep_alive_t item
    cdef uint32_t i
    cdef list out = []
    for i in range(items.count):
        keep_alive_at(items, i, &item)
        out.append({"group": item.group, "leaseHigh": item.lease_high, "leaseLow": item.lease_low})
    return out


def encode_request(fields) -> bytes:
    """A dict as a Request frame."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef dict left = dict(fields)
    cdef request_t request
    cdef keep_alive_t* keep_alives = NULL
    cdef uint32_t count = 0
    memset(&request, 0, sizeof(request_t))
    request.id = left.pop("id", 0)
    request.group = left.pop("group", 0)
    request.timeout_ms = left.pop("timeoutMs", 0)
    if left:
        name, content = left.popitem()
        expect_empty(left)
        request.which = number_of(RequestWhich, name)
        if request.which == REQUEST_KEEP_ALIVE:
            keep_alives = keep_alives_from_list(arena, content)
            count = <uint32_t>len(content)
        else:
            request_content_from_dict(arena, content, &request)
    return out.take(request_encode(&out.buffer, &request, keep_alives, count))


cdef keep_alive_t* keep_alives_from_list(Arena arena, object content) except NULL:
    cdef keep_alive_t* items = <keep_alive_t*>arena.array(len(content), sizeof(keep_alive_t))
    cdef dict left
    cdef Py_ssize_t i
    for i in range(len(content)):
        left = dict(content[i])
        items[i].group = left.pop("group", 0)
        items[i].lease_high = left.pop("leaseHigh", 0)
        items[i].lease_low = left.pop("leaseLow", 0)
        expect_empty(left)
    return items


cdef int request_content_from_dict(Arena arena, object content, request_t* out) except -1:
    cdef int which = out.which
    cdef dict left
    if which == REQUEST_COMMAND:
        return command_from_dict(arena, content, &out.command)
    if which == REQUEST_HELLO:
        return hello_from_dict(arena, content, &out.hello)
    left = dict(content) if content is not None else {}
    if which == REQUEST_GET_LOCK:
        out.stale = bool(left.pop("stale", False))
        out.key = arena.bytes_slice(left.pop("key", None))
    elif which == REQUEST_LIST:
        out.limit = left.pop("limit", 0)
        out.stale = bool(left.pop("stale", False))
        out.key = arena.bytes_slice(left.pop("prefix", None))
        out.cursor = arena.bytes_slice(left.pop("cursor", None))
    elif which == REQUEST_WATCH:
        out.prefix = bool(left.pop("prefix", False))
        out.key = arena.bytes_slice(left.pop("key", None))
        out.cursor = arena.bytes_slice(left.pop("position", None))
    elif which == REQUEST_UNWATCH:
        out.watch = left.pop("watch", 0)
    return expect_empty(left)


def decode_reply(const uint8_t[::1] frame not None, size_t frame_bytes_max=CLIENT_FRAME_BYTES_MAX) -> dict:
    """A Reply frame as a dict."""
    cdef Output scratch = Output()
    cdef reply_t reply
    check_frame(frame, frame_bytes_max)
    check(reply_decode(start_of(frame), frame.shape[0], &scratch.buffer, &reply))
    if reply.which == REPLY_CLUSTER:
        return schema.decode("client", "Reply", bytes(frame))
    out = {
        "id": reply.id,
        "code": name_of(CODE_NAMES, reply.code),
        "group": reply.group,
        "detail": reply.detail,
        "leader": reply.leader,
        "revision": reply.revision,
        ReplyWhich(reply.which).name: reply_content_to_dict(&reply),
    }
    put_text_field(out, "message", reply.text)
    return out


cdef object reply_content_to_dict(reply_t* reply):
    cdef int which = reply.which
    cdef lock_state_t lock
    if which == REPLY_GRANT:
        return {"token": reply.token, "count": reply.count}
    if which == REPLY_CONFLICT:
        return {"retryMs": reply.retry_ms, "waiters": reply.waiters}
    if which == REPLY_SESSION:
        return reply.session
    if which == REPLY_LOCK:
        check(lock_state_decode(&reply.message, &reply.lock, &lock))
        return lock_state_to_dict(&reply.message, &lock)
    if which == REPLY_PAGE:
        return page_to_dict(reply)
    if which == REPLY_EVENTS:
        return events_to_dict(reply)
    if which == REPLY_KEPT_ALIVE:
        return kept_alives_to_list(&reply.items)
    if which == REPLY_HELLO:
        return hello_to_dict(&reply.hello)
    return None


cdef dict lock_state_to_dict(message_t* message, const lock_state_t* lock):
    cdef dict out = {
        "mode": name_of(ROW_MODE_NAMES, lock.mode),
        "limit": lock.limit,
        "waiterCount": lock.waiter_count,
        "delayMs": lock.delay_ms,
        "valueRevision": lock.value_revision,
        "revision": lock.revision,
    }
    put_bytes_field(out, "key", lock.key)
    put_bytes_field(out, "value", lock.value)
    if lock.holders.data != NULL:
        out["holders"] = claims_to_list(message, &lock.holders)
    if lock.waiters.data != NULL:
        out["waiters"] = claims_to_list(message, &lock.waiters)
    return out


cdef list claims_to_list(message_t* message, const list_t* items):
    cdef claim_state_t claim
    cdef uint32_t i
    cdef list out = []
    for i in range(items.count):
        check(claim_state_at(message, items, i, &claim))
        fields = {
            "mode": name_of(LOCK_MODE_NAMES, claim.mode),
            "count": claim.count,
            "revision": claim.revision,
            "ttlMs": claim.ttl_ms,
            "remainingMs": claim.remaining_ms,
        }
        put_bytes_field(fields, "owner", claim.owner)
        out.append(fields)
    return out


cdef dict page_to_dict(reply_t* reply):
    cdef lock_state_t lock
    cdef uint32_t i
    cdef list locks = []
    cdef dict out = {}
    for i in range(reply.items.count):
        check(lock_state_at(&reply.message, &reply.items, i, &lock))
        locks.append(lock_state_to_dict(&reply.message, &lock))
    if reply.items.data != NULL:
        out["locks"] = locks
    put_bytes_field(out, "cursor", reply.cursor)
    return out


cdef dict events_to_dict(reply_t* reply):
    cdef event_t event
    cdef uint32_t i
    cdef list events = []
    cdef dict out = {}
    for i in range(reply.items.count):
        check(event_at(&reply.message, &reply.items, i, &event))
        fields = {
            "revision": event.revision,
            "kind": name_of(EVENT_KIND_NAMES, event.kind),
            "mode": name_of(LOCK_MODE_NAMES, event.mode),
            "token": event.token,
        }
        put_bytes_field(fields, "key", event.key)
        put_bytes_field(fields, "owner", event.owner)
        put_bytes_field(fields, "value", event.value)
        events.append(fields)
    if reply.items.data != NULL:
        out["events"] = events
    put_bytes_field(out, "position", reply.cursor)
    return out


cdef list kept_alives_to_list(const list_t* items):
    cdef kept_alive_t item
    cdef uint32_t i
    cdef list out = []
    for i in range(items.count):
        kept_alive_at(items, i, &item)
        out.append({
            "group": item.group,
            "code": name_of(CODE_NAMES, item.code),
            "lostRevision": item.lost_revision,
            "leaseHigh": item.lease_high,
            "leaseLow": item.lease_low,
        })
    return out


def encode_reply(fields) -> bytes:
    """A dict as a Reply frame."""
    cdef Arena arena = Arena()
    cdef Output out = Output()
    cdef dict left = dict(fields)
    cdef reply_t reply
    cdef void* items = NULL
    cdef uint32_t count = 0
    if "cluster" in left:
        return schema.encode("client", "Reply", left)
    memset(&reply, 0, sizeof(reply_t))
    reply.id = left.pop("id", 0)
    reply.code = number_of(Code, left.pop("code", 0))
    reply.group = left.pop("group", 0)
    reply.detail = left.pop("detail", 0)
    reply.leader = left.pop("leader", 0)
    reply.revision = left.pop("revision", 0)
    reply.text = arena.text_slice(left.pop("message", None))
    if left:
        name, content = left.popitem()
        expect_empty(left)
        reply.which = number_of(ReplyWhich, name)
        items = reply_content_from_dict(arena, content, &reply, &count)
    return out.take(reply_encode(&out.buffer, &reply, items, count))


cdef void* reply_content_from_dict(Arena arena, object content, reply_t* out, uint32_t* count) except? NULL:
    """Fills in what `which` needs, and returns the items of its list if it has one."""
    cdef int which = out.which
    cdef void* items = NULL
    cdef dict left
    if which == REPLY_SESSION:
        out.session = content
        return NULL
    if which == REPLY_HELLO:
        hello_from_dict(arena, content, &out.hello)
        return NULL
    if which == REPLY_LOCK:
        return locks_from_list(arena, [content])
    if which == REPLY_KEPT_ALIVE:
        count[0] = <uint32_t>len(content)
        return kept_alives_from_list(arena, content)
    left = dict(content) if content is not None else {}
    if which == REPLY_GRANT:
        out.token = left.pop("token", 0)
        out.count = left.pop("count", 0)
    elif which == REPLY_CONFLICT:
        out.retry_ms = left.pop("retryMs", 0)
        out.waiters = left.pop("waiters", 0)
    elif which == REPLY_PAGE:
        out.cursor = arena.bytes_slice(left.pop("cursor", None))
        locks = left.pop("locks", None)
        if locks is not None:
            count[0] = <uint32_t>len(locks)
            items = locks_from_list(arena, locks)
    elif which == REPLY_EVENTS:
        out.cursor = arena.bytes_slice(left.pop("position", None))
        events = left.pop("events", None)
        if events is not None:
            count[0] = <uint32_t>len(events)
            items = events_from_list(arena, events)
    expect_empty(left)
    return items


cdef void* locks_from_list(Arena arena, object content) except NULL:
    cdef lock_state_t* items = <lock_state_t*>arena.array(len(content), sizeof(lock_state_t))
    cdef lock_state_t* lock
    cdef dict left
    cdef Py_ssize_t i
    for i in range(len(content)):
        lock = &items[i]
        left = dict(content[i])
        lock.mode = number_of(RowMode, left.pop("mode", 0))
        lock.limit = left.pop("limit", 0)
        lock.waiter_count = left.pop("waiterCount", 0)
        lock.delay_ms = left.pop("delayMs", 0)
        lock.value_revision = left.pop("valueRevision", 0)
        lock.revision = left.pop("revision", 0)
        lock.key = arena.bytes_slice(left.pop("key", None))
        lock.value = arena.bytes_slice(left.pop("value", None))
        lock.holder_items = claims_from_list(arena, left.pop("holders", None), &lock.holder_item_count)
        lock.waiter_items = claims_from_list(arena, left.pop("waiters", None), &lock.waiter_item_count)
        expect_empty(left)
    return items


cdef claim_state_t* claims_from_list(Arena arena, object content, uint32_t* count) except? NULL:
    cdef claim_state_t* items
    cdef dict left
    cdef Py_ssize_t i
    if content is None:
        return NULL
    items = <claim_state_t*>arena.array(len(content), sizeof(claim_state_t))
    for i in range(len(content)):
        left = dict(content[i])
        items[i].mode = number_of(LockMode, left.pop("mode", 0))
        items[i].count = left.pop("count", 0)
        items[i].revision = left.pop("revision", 0)
        items[i].ttl_ms = left.pop("ttlMs", 0)
        items[i].remaining_ms = left.pop("remainingMs", 0)
        items[i].owner = arena.bytes_slice(left.pop("owner", None))
        expect_empty(left)
    count[0] = <uint32_t>len(content)
    return items


cdef void* events_from_list(Arena arena, object content) except NULL:
    cdef event_t* items = <event_t*>arena.array(len(content), sizeof(event_t))
    cdef dict left
    cdef Py_ssize_t i
    for i in range(len(content)):
        left = dict(content[i])
        items[i].revision = left.pop("revision", 0)
        items[i].kind = number_of(EventKind, left.pop("kind", 0))
        items[i].mode = number_of(LockMode, left.pop("mode", 0))
        items[i].token = left.pop("token", 0)
        items[i].key = arena.bytes_slice(left.pop("key", None))
        items[i].owner = arena.bytes_slice(left.pop("owner", None))
        items[i].value = arena.bytes_slice(left.pop("value", None))
        expect_empty(left)
    return items


cdef void* kept_alives_from_list(Arena arena, object content) except NULL:
    cdef kept_alive_t* items = <kept_alive_t*>arena.array(len(content), sizeof(kept_alive_t))
    cdef dict left
    cdef Py_ssize_t i
    for i in range(len(content)):
        left = dict(content[i])
        items[i].group = left.pop("group", 0)
        items[i].code = number_of(Code, left.pop("code", 0))
        items[i].lost_revision = left.pop("lostRevision", 0)
        items[i].lease_high = left.pop("leaseHigh", 0)
        items[i].lease_low = left.pop("leaseLow", 0)
        expect_empty(left)
    return items


def encode_outcome(
    uint64_t id,
    uint32_t group,
    uint64_t leader,
    uint32_t retry_ms,
    *,
    code=0,
    uint16_t kind=0,
    uint32_t count=0,
    uint32_t detail=0,
    uint64_t token=0,
    uint64_t revision=0,
) -> bytes:
    """The Reply frame with which a leader answers a command, by the path that answers whole batches."""
    cdef Output out = Output()
    cdef outcome_t outcome
    memset(&outcome, 0, sizeof(outcome_t))
    outcome.code = number_of(Code, code)
    outcome.kind = kind
    outcome.count = count
    outcome.detail = detail
    outcome.token = token
    outcome.revision = revision
    return out.take(reply_encode_outcome(&out.buffer, id, group, leader, retry_ms, &outcome))
