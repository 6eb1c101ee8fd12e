"""The slot of a key, for Python."""

from libc.stdint cimport uint8_t, uint32_t

from fastlock._core.types cimport slice_t


def slot_of(const uint8_t[::1] key not None) -> int:
    """The slot (0 … 16383) a key belongs to: of its hash tag, if it has one."""
    cdef slice_t view
    view.data = &key[0] if key.shape[0] else NULL
    view.size = <uint32_t>key.shape[0]
    return key_slot(view)
