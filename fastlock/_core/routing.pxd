"""Which commands name keys, and so a slot; and which ones only a group's leader itself proposes."""

from libc.stdint cimport uint16_t

from fastlock._core.commands cimport command_item
from fastlock._core.layout cimport (
    COMMAND_ACQUIRE,
    COMMAND_ACQUIRE_ALL,
    COMMAND_CANCEL_WAIT,
    COMMAND_CONFIGURE,
    COMMAND_CREATE_LEASE,
    COMMAND_DELETE_VALUE,
    COMMAND_END_DELAY,
    COMMAND_EXPIRE,
    COMMAND_EXPIRE_SESSION,
    COMMAND_FORCE_RELEASE,
    COMMAND_NOTE_REMAINING,
    COMMAND_OPEN_SESSION,
    COMMAND_PUT_VALUE,
    COMMAND_RELEASE,
)
from fastlock._core.slots cimport key_slot
from fastlock._core.types cimport command_t


cdef inline bint command_slot(const command_t* command, uint16_t* slot) noexcept nogil:
    """The slot of the (first) key; False where a command names none and goes to the group its request says."""
    cdef int kind = command.kind
    if kind == COMMAND_ACQUIRE_ALL or (kind == COMMAND_CANCEL_WAIT and command.list_count):
        if command.list_count == 0:
            return False
        slot[0] = key_slot(command_item(command, 0))
        return True
    if (kind == COMMAND_ACQUIRE or kind == COMMAND_RELEASE or kind == COMMAND_PUT_VALUE
            or kind == COMMAND_DELETE_VALUE or kind == COMMAND_CANCEL_WAIT or kind == COMMAND_FORCE_RELEASE
            or kind == COMMAND_END_DELAY):
        slot[0] = key_slot(command.key)
        return True
    return False


cdef inline bint command_adds_state(const command_t* command) noexcept nogil:
    """What a node that is short of space refuses; everything else frees some, or changes what is there."""
    cdef int kind = command.kind
    return (kind == COMMAND_ACQUIRE or kind == COMMAND_ACQUIRE_ALL or kind == COMMAND_CREATE_LEASE
            or kind == COMMAND_OPEN_SESSION or kind == COMMAND_PUT_VALUE)


cdef inline bint command_is_internal(const command_t* command) noexcept nogil:
    """What follows from the leader's own clock, or changes what the group is: not for a client to say."""
    cdef int kind = command.kind
    return (kind == COMMAND_EXPIRE or kind == COMMAND_EXPIRE_SESSION or kind == COMMAND_NOTE_REMAINING
            or kind == COMMAND_END_DELAY or kind >= COMMAND_CONFIGURE)
