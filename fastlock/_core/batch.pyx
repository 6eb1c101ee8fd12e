"""The commands that become one log entry, and whom each of them is to be answered to."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from fastlock._core.commands cimport (
    BATCH_BYTES_MAX,
    BATCH_COMMANDS_MAX,
    builder_add,
    builder_bytes,
    builder_bytes_with,
    builder_clear,
    builder_free,
    builder_seal,
)
from fastlock._core.types cimport command_t

COMMANDS_MAX = BATCH_COMMANDS_MAX
BYTES_MAX = BATCH_BYTES_MAX


@cython.final
cdef class Batch:
    """Collects commands and seals them as one log entry; its origins outlive the sealing."""

    def __cinit__(self):
        self.origins = <origin_t*>malloc(BATCH_COMMANDS_MAX * sizeof(origin_t))
        self.slots = <uint16_t*>malloc(BATCH_COMMANDS_MAX * sizeof(uint16_t))
        if self.origins == NULL or self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.origins)
        free(self.slots)
        builder_free(&self.builder)

    cdef size_t bytes(self) noexcept:
        """Of the entry's frame, if it were sealed as it is."""
        return builder_bytes(&self.builder)

    cdef bint has_room(self, const command_t* command) noexcept:
        return (self.count < BATCH_COMMANDS_MAX
                and builder_bytes_with(&self.builder, command) <= BATCH_BYTES_MAX)

    cdef int add(self, const origin_t* origin, uint16_t slot, const command_t* command) noexcept:
        """Takes a command there is room for; -1 without memory."""
        if builder_add(&self.builder, command) != 0:
            return -1
        self.origins[self.count] = origin[0]
        self.slots[self.count] = slot
        self.count += 1
        return 0

    cdef bytes seal(self, uint32_t group, uint64_t term, uint64_t index):
        """The LogEntry frame of everything collected."""
        cdef bytes entry = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>builder_bytes(&self.builder))
        builder_seal(&self.builder, group, term, index, <uint8_t*>PyBytes_AS_STRING(entry))
        self.term = term
        self.index = index
        return entry

    cdef void clear(self) noexcept:
        """Empties the batch for its next use."""
        builder_clear(&self.builder)
        self.count = 0


cdef bint fits_a_batch(const command_t* command) noexcept:
    """Whether an entry could hold this command if it held nothing else."""
    cdef builder_t empty
    memset(&empty, 0, sizeof(builder_t))
    return builder_bytes_with(&empty, command) <= BATCH_BYTES_MAX
