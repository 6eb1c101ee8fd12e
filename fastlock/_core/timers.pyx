"""The timer wheel as a Python class."""

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

TICK_MS = WHEEL_TICK_MS
TOUCHES_MAX = WHEEL_TOUCHES_MAX
NEVER_MS = 2**64 - 1


@cython.final
cdef class TimerWheel:
    """Timers by deadline; time is an argument."""

    cdef wheel_t wheel

    def __cinit__(self, uint64_t now_ms=0):
        if not wheel_init(&self.wheel, now_ms):
            wheel_free(&self.wheel)
            raise MemoryError

    def __dealloc__(self):
        wheel_free(&self.wheel)

    def __len__(self):
        return wheel_count(&self.wheel)

    @property
    def used_bytes(self):
        return wheel_bytes(&self.wheel)

    def add(self, uint16_t kind, uint32_t owner, uint64_t deadline_ms):
        """The handle of a new timer."""
        cdef uint32_t node = wheel_add(&self.wheel, kind, owner, deadline_ms)
        if node == 0:
            raise MemoryError
        return node

    def move(self, uint32_t node, uint64_t deadline_ms):
        """Sets the deadline, and arms the timer again if it was due."""
        wheel_move(&self.wheel, node, deadline_ms)

    def remove(self, uint32_t node):
        """Takes a timer out, armed or due."""
        wheel_remove(&self.wheel, node)

    def advance(self, uint64_t now_ms, uint32_t due_max):
        """(node, kind, owner, deadline_ms) of timers that are due; call again while the hint says `now_ms`."""
        cdef due_node_t* due = <due_node_t*>malloc(max(due_max, <uint32_t>1) * sizeof(due_node_t))
        cdef uint32_t count
        if due == NULL:
            raise MemoryError
        try:
            count = wheel_advance(&self.wheel, now_ms, due, due_max)
            return [(due[position].node, due[position].kind, due[position].owner, due[position].deadline_ms)
                    for position in range(count)]
        finally:
            free(due)

    def rearm_due(self):
        """Lets advance look again at every timer it reported and nobody moved or removed."""
        wheel_rearm_due(&self.wheel)

    def next_deadline_hint(self, uint64_t now_ms):
        """Until when advance has nothing to do; NEVER_MS when the wheel is empty."""
        return wheel_next_deadline_hint(&self.wheel, now_ms)
