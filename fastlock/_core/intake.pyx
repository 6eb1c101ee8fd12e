"""From the bytes of a connection to the queue of a group: commands never become Python objects.

A command goes to the group that the slot of its key is said to belong to, else to the one its request names. If
this node leads that group it joins the group's next batch; if another does it is handed on to it, once; if nobody is
known to, it is refused. Everything that is no command is handed out as a dict.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_free
from fastlock._core.client_messages cimport request_decode
from fastlock._core.codec_arena cimport check, start_of
from fastlock._core.forwards cimport Forwards
from fastlock._core.framing cimport CLIENT_FRAME_BYTES_MAX, frame_bytes
from fastlock._core.layout cimport (
    CODE_BUSY,
    CODE_FORBIDDEN,
    CODE_GROUP_UNKNOWN,
    CODE_NOT_LEADER,
    CODE_OK,
    CODE_STORAGE_FULL,
    REQUEST_COMMAND,
)
from fastlock._core.proposals cimport Proposals
from fastlock._core.replies cimport Replies, Switchboard, origin_t
from fastlock._core.routing cimport command_adds_state, command_is_internal, command_slot
from fastlock._core.slots cimport SLOTS_TOTAL

from fastlock._core.codec_client import decode_request

GROUPS_MAX = GROUPS_LIMIT


@cython.final
cdef class Intake:
    """One node's requests, from every connection to every group."""

    def __cinit__(self, Switchboard board not None, Forwards forwards not None):
        cdef uint32_t slot
        self.board = board
        self.forwards = forwards
        self.groups = {}
        self.others = []
        self.fed = []
        for slot in range(SLOTS_TOTAL):
            self.slot_groups[slot] = NO_GROUP

    def __dealloc__(self):
        buffer_free(&self.scratch)

    # Where commands go.

    def add_group(self, Proposals proposals not None) -> None:
        """From here on the group is known."""
        if proposals.group >= GROUPS_LIMIT:
            raise ValueError(f"group {proposals.group}: numbers go up to {GROUPS_LIMIT - 1}")
        self.groups[proposals.group] = proposals
        self.queues[proposals.group] = <PyObject*>proposals

    def remove_group(self, uint32_t group) -> None:
        """From here on the group is unknown."""
        if self.groups.pop(group, None) is not None:
            self.queues[group] = NULL

    def route(self, uint32_t first, uint32_t last, group=None) -> None:
        """The slots first … last are said to belong to a group, or to nobody known.

        A hint: the group decides at apply.
        """
        cdef uint32_t target = NO_GROUP if group is None else group
        cdef uint32_t slot
        if first > last or last >= SLOTS_TOTAL:
            raise ValueError(f"slots {first} to {last} are not a range below {SLOTS_TOTAL}")
        for slot in range(first, last + 1):
            self.slot_groups[slot] = target

    def group_of(self, uint32_t slot):
        """The group a slot is said to belong to, or None."""
        if slot >= SLOTS_TOTAL:
            raise ValueError(f"slot {slot} is not below {SLOTS_TOTAL}")
        return None if self.slot_groups[slot] == NO_GROUP else self.slot_groups[slot]

    # What arrives.

    def take(
        self, Replies replies not None, const uint8_t[::1] data not None, uint64_t now_ms,
        size_t frame_bytes_max=CLIENT_FRAME_BYTES_MAX,
    ) -> int:
        """Takes in the whole frames of concatenated Request frames; returns how many bytes are done with.

        A request that cannot be served is refused by its id. Bytes that do not even show an id raise, and the
        connection they came from must be closed; what came before them was taken.
        """
        cdef const uint8_t* start = start_of(data)
        cdef size_t available = data.shape[0]
        cdef size_t at = 0, size
        cdef origin_t origin
        cdef int code
        if replies.generation == 0:
            raise ValueError("these replies are closed")
        origin.sink = replies.sink
        origin.generation = replies.generation
        while at < available:
            check(frame_bytes(start + at, available - at, frame_bytes_max, &size))
            if size == 0 or size > available - at:
                break
            code = request_decode(start + at, size, &self.scratch, &self.request)
            origin.request_id = self.request.id
            if code == CODE_OK and self.request.which == REQUEST_COMMAND:
                self.take_command(replies, &origin, start + at, size, now_ms)
            elif code == CODE_OK:
                self.others.append((replies, decode_request(data[at:at + size], frame_bytes_max)))
            elif self.request.id_known and code != CODE_BUSY:
                self.board.refuse(&origin, code, self.request.group, 0)
            else:
                check(code)
            at += size
        return at

    cdef int take_command(self, Replies replies, origin_t* origin, const uint8_t* frame, size_t size,
                          uint64_t now_ms) except -1:
        cdef uint32_t group = self.request.group
        cdef uint16_t slot = 0
        cdef Proposals proposals
        cdef int code
        if command_slot(&self.request.command, &slot) and self.slot_groups[slot] != NO_GROUP:
            group = self.slot_groups[slot]
        if group >= GROUPS_LIMIT or self.queues[group] == NULL:
            self.board.refuse(origin, CODE_GROUP_UNKNOWN, group, 0)
            return 0
        if not replies.is_trusted and command_is_internal(&self.request.command):
            self.board.refuse(origin, CODE_FORBIDDEN, group, 0)
            return 0
        proposals = <Proposals>self.queues[group]
        if proposals.leading:
            if proposals.is_busy():
                code = CODE_BUSY
            elif self.is_full and command_adds_state(&self.request.command):
                code = CODE_STORAGE_FULL
            else:
                code = proposals.add(origin, slot, &self.request.command)
            if not proposals.is_fed:
                proposals.is_fed = True
                self.fed.append(group)
        elif replies.is_forwarder or proposals.leader == 0 or proposals.leader == proposals.node:
            code = CODE_NOT_LEADER
        else:
            code = self.forwards.add(origin, group, proposals.leader, frame, size, &self.request, now_ms)
            self.forwarded += 1
        self.commands += 1
        if code != CODE_OK:
            self.board.refuse(origin, code, group, proposals.leader)
        return 0

    def take_fed(self) -> list:
        """The numbers of the groups that got commands since the last call."""
        cdef list taken = self.fed
        if taken:
            self.fed = []
            for group in taken:
                if group in self.groups:
                    (<Proposals>self.groups[group]).is_fed = False
        return taken

    def take_others(self) -> list:
        """The requests that are no commands, as (replies, dict), since the last call."""
        cdef list taken = self.others
        self.others = []
        return taken
