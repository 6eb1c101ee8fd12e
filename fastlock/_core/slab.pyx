"""A slab that Python can look into, for tests."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t


@cython.final
cdef class Slab:
    """Items of a fixed size behind handles."""

    cdef slab_t slab

    def __cinit__(self, uint32_t item_bytes):
        if item_bytes < 4:
            raise ValueError("an item has at least 4 bytes")
        slab_init(&self.slab, item_bytes)

    def __dealloc__(self):
        slab_clear(&self.slab)

    def take(self):
        """The handle of a zeroed item."""
        cdef uint32_t handle = slab_take(&self.slab)
        if handle == 0:
            raise MemoryError
        return handle

    def give(self, uint32_t handle):
        """Gives an item back."""
        slab_give(&self.slab, handle)

    def read(self, uint32_t handle):
        """The bytes of an item."""
        return (<uint8_t*>slab_at(&self.slab, handle))[:self.slab.item_bytes]

    def fill(self, uint32_t handle, uint8_t content):
        """Sets every byte of an item."""
        memset(slab_at(&self.slab, handle), content, self.slab.item_bytes)

    def address(self, uint32_t handle):
        """Where an item is; it stays there while it is taken."""
        return <size_t>slab_at(&self.slab, handle)

    def clear(self):
        """Gives everything back."""
        slab_clear(&self.slab)

    @property
    def live(self):
        return self.slab.live

    @property
    def used_bytes(self):
        return slab_bytes(&self.slab)
