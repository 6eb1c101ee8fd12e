"""Requests, replies and hellos as dicts in the shape of pycapnp's to_dict()."""

from fastlock._core.client_messages cimport hello_t
from fastlock._core.codec_arena cimport Arena


cdef dict hello_to_dict(const hello_t* hello)
cdef int hello_from_dict(Arena arena, object fields, hello_t* out) except -1
