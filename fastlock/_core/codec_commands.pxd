"""Commands, entries and memberships as dicts in the shape of pycapnp's to_dict()."""

from libc.stdint cimport uint16_t

from fastlock._core.codec_arena cimport Arena
from fastlock._core.commands cimport membership_t
from fastlock._core.types cimport command_t
from fastlock._core.wire cimport list_t, message_t


cdef dict command_to_dict(const command_t* command)
cdef int command_from_dict(Arena arena, object fields, command_t* out) except -1
cdef dict membership_to_dict(message_t* message, uint16_t version, const list_t* members)
cdef int membership_from_dict(Arena arena, object fields, membership_t* out) except -1
