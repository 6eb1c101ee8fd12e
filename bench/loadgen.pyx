"""The load generator: many connections, each with a pipeline of lanes that acquire and release, in one C loop.

A lane is one client of the closed kind: it sends its next request when the last one was answered. All lanes of a
connection share its session and lease, as the tasks of one client process do. `bench/load.py` opens the connections.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close

from fastlock._core.buffer cimport buffer_free, buffer_reserve, buffer_t
from fastlock._core.client_messages cimport (
    reply_decode,
    reply_encode_outcome,
    reply_t,
    request_decode,
    request_encode,
    request_t,
)
from fastlock._core.framing cimport CLIENT_FRAME_BYTES_MAX, frame_bytes
from fastlock._core.layout cimport (
    CODE_OK,
    CODE_QUEUED,
    COMMAND_ACQUIRE,
    COMMAND_RELEASE,
    REPLY_GRANT,
    REQUEST_COMMAND,
)
from fastlock._core.slots cimport key_slot
from fastlock._core.types cimport command_t, outcome_t, slice_t

from fastlock.schema.enums import Code

cdef extern from "<sys/epoll.h>" nogil:
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLLERR
        EPOLLHUP
        EPOLL_CTL_ADD
        EPOLL_CTL_MOD
        EPOLL_CTL_DEL

    ctypedef union epoll_data_t:
        void* ptr
        int fd

    struct epoll_event:
        uint32_t events
        epoll_data_t data

    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int maxevents, int timeout)

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_NOSIGNAL
        MSG_DONTWAIT
        SOCK_NONBLOCK
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int accept4(int fd, void* address, void* size, int flags)


cdef enum:
    KEY_BYTES = 24
    RECEIVE_BYTES = 1 << 16
    EVENTS_MAX = 256
    CODES_MAX = 64
    # Latencies in ns fall into 64 buckets for every power of two: an error below 1.6 %.
    SUB_BUCKETS = 64
    SUB_BUCKET_BITS = 6
    BUCKETS = 60 * SUB_BUCKETS


cdef const char* DIGITS = "0123456789abcdef"


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec moment
    clock_gettime(CLOCK_MONOTONIC, &moment)
    return <int64_t>moment.tv_sec * 1_000_000_000 + moment.tv_nsec


cdef inline uint32_t bucket_of(uint64_t amount) noexcept nogil:
    cdef uint32_t exponent = 0
    if amount < SUB_BUCKETS:
        return <uint32_t>amount
    while amount >> (exponent + SUB_BUCKET_BITS + 1):
        exponent += 1
    return (exponent + 1) * SUB_BUCKETS + <uint32_t>((amount >> exponent) & (SUB_BUCKETS - 1))


cdef inline uint64_t bucket_top(uint32_t bucket) noexcept nogil:
    """The highest amount that falls into a bucket."""
    cdef uint32_t exponent
    if bucket < SUB_BUCKETS:
        return bucket
    exponent = bucket // SUB_BUCKETS - 1
    return ((<uint64_t>(SUB_BUCKETS + bucket % SUB_BUCKETS) + 1) << exponent) - 1


@cython.final
cdef class Histogram:
    """Latencies, counted in C."""

    cdef uint64_t counts[BUCKETS]
    cdef readonly uint64_t total
    cdef readonly uint64_t highest_ns

    cdef inline void add(self, uint64_t amount_ns) noexcept nogil:
        self.counts[bucket_of(amount_ns)] += 1
        self.total += 1
        if amount_ns > self.highest_ns:
            self.highest_ns = amount_ns

    def percentile_ns(self, double share):
        """The latency that this share (0 … 1) of all requests did not exceed."""
        cdef uint64_t wanted = <uint64_t>(share * self.total)
        cdef uint64_t seen = 0
        cdef uint32_t bucket
        for bucket in range(BUCKETS):
            seen += self.counts[bucket]
            if seen > wanted or seen == self.total and seen:
                return min(bucket_top(bucket), self.highest_ns)
        return 0

    def count_one(self, uint64_t amount_ns):
        """For tests of the histogram itself."""
        self.add(amount_ns)


cdef struct lane_t:
    uint8_t is_held                # its next request is a release
    uint8_t is_busy                # a request is under way
    uint8_t key[KEY_BYTES]
    uint64_t token
    uint64_t request
    uint64_t sequence
    int64_t sent_ns


cdef struct connection_t:
    int fd
    uint8_t wants_write
    uint8_t is_broken
    uint32_t group
    uint16_t slot_first
    uint16_t slot_last
    uint64_t session               # 0 = commands nobody will repeat
    uint64_t lease_high
    uint64_t lease_low
    uint64_t sequence
    uint64_t random
    lane_t* lanes
    buffer_t output
    size_t output_sent
    buffer_t input


cdef inline uint64_t draw(uint64_t* state) noexcept nogil:
    """A cheap repeatable generator: an additive step, and its output spread over 64 bits."""
    cdef uint64_t number
    state[0] += <uint64_t>0xA0761D6478BD642FU
    number = state[0]
    number = (number ^ (number >> 32)) * <uint64_t>0xE7037ED1A0B428DBU
    return number ^ (number >> 29)


@cython.final
cdef class Load:
    """A closed-loop load on connections that are open, greeted and non-blocking."""

    cdef connection_t* connections
    cdef uint32_t connection_count
    cdef uint32_t depth
    cdef uint32_t key_count
    cdef uint8_t wait
    cdef uint64_t requests
    cdef int poller
    cdef buffer_t scratch
    cdef uint64_t codes[CODES_MAX]
    cdef bint is_recording
    cdef readonly Histogram acquires
    cdef readonly Histogram releases
    cdef readonly double seconds

    def __cinit__(self, connections, uint32_t depth, *, uint32_t key_count=0, bint wait=False, uint64_t seed=1):
        """`connections`: (fd, group, first slot, last slot, session, lease high, lease low) of each.

        `key_count` 0: keys that never collide; else all lanes contend for that many, with `wait` in their queues.
        """
        cdef connection_t* connection
        cdef epoll_event event
        cdef uint32_t i
        self.connection_count = len(connections)
        self.depth = depth
        self.key_count = key_count
        self.wait = wait
        self.acquires = Histogram()
        self.releases = Histogram()
        self.poller = epoll_create1(0)
        self.connections = <connection_t*>calloc(self.connection_count, sizeof(connection_t))
        if self.poller < 0 or self.connections == NULL:
            raise MemoryError
        for i in range(self.connection_count):
            connection = &self.connections[i]
            (connection.fd, connection.group, connection.slot_first, connection.slot_last, connection.session,
             connection.lease_high, connection.lease_low) = connections[i]
            connection.random = (seed << 32) + i
            connection.lanes = <lane_t*>calloc(depth, sizeof(lane_t))
            if connection.lanes == NULL:
                raise MemoryError
            memset(&event, 0, sizeof(event))
            event.events = EPOLLIN
            event.data.ptr = connection
            if epoll_ctl(self.poller, EPOLL_CTL_ADD, connection.fd, &event) != 0:
                raise OSError(errno, "a connection cannot be watched")

    def __dealloc__(self):
        cdef uint32_t i
        if self.connections != NULL:
            for i in range(self.connection_count):
                free(self.connections[i].lanes)
                buffer_free(&self.connections[i].output)
                buffer_free(&self.connections[i].input)
            free(self.connections)
        buffer_free(&self.scratch)
        if self.poller > 0:
            close(self.poller)

    def run(self, double seconds, double warm_up_seconds=0.0):
        """Load the cluster for so long. Raises ConnectionError when a node hangs up or sends something else."""
        cdef int64_t start_ns = now_ns()
        cdef int64_t record_ns = start_ns + <int64_t>(warm_up_seconds * 1e9)
        cdef int64_t end_ns = record_ns + <int64_t>(seconds * 1e9)
        cdef int failed
        with nogil:
            failed = self.loop(record_ns, end_ns)
        if failed:
            raise ConnectionError(f"a connection broke under load; answers so far: {self.answers}")
        self.seconds = seconds

    @property
    def answers(self):
        """How often each code was answered, by name."""
        names = {code.value: code.name for code in Code}
        return {names.get(code, str(code)): self.codes[code] for code in range(CODES_MAX) if self.codes[code]}

    @property
    def operations(self):
        """Acquires and releases that succeeded while it was recording."""
        return self.acquires.total + self.releases.total

    cdef int loop(self, int64_t record_ns, int64_t end_ns) noexcept nogil:
        cdef epoll_event events[EVENTS_MAX]
        cdef connection_t* connection
        cdef int64_t time_ns = now_ns()
        cdef int ready, i
        cdef uint32_t c
        for c in range(self.connection_count):
            self.fill(&self.connections[c])
            if self.flush(&self.connections[c]) != 0:
                return -1
        while time_ns < end_ns:
            ready = epoll_wait(self.poller, events, EVENTS_MAX, 10)
            if ready < 0 and errno != EINTR:
                return -1
            time_ns = now_ns()
            self.is_recording = record_ns <= time_ns < end_ns
            for i in range(ready):
                connection = <connection_t*>events[i].data.ptr
                if events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP) and self.receive(connection) != 0:
                    return -1
                self.fill(connection)
                if self.flush(connection) != 0:
                    return -1
        return 0

    cdef void fill(self, connection_t* connection) noexcept nogil:
        """Give every idle lane its next request; all of them leave in one write."""
        cdef uint64_t acknowledged_below = connection.sequence + 1
        cdef lane_t* lane
        cdef uint32_t i
        for i in range(self.depth):
            lane = &connection.lanes[i]
            if lane.is_busy and lane.sequence < acknowledged_below:
                acknowledged_below = lane.sequence
        for i in range(self.depth):
            lane = &connection.lanes[i]
            if not lane.is_busy:
                self.ask(connection, lane, i, acknowledged_below)

    cdef void ask(self, connection_t* connection, lane_t* lane, uint32_t number,
                  uint64_t acknowledged_below) noexcept nogil:
        cdef request_t request
        cdef command_t* command = &request.command
        memset(&request, 0, sizeof(request))
        if not lane.is_held:
            self.choose_key(connection, lane)
            self.requests += 1
            lane.request = self.requests
        connection.sequence += 1
        lane.sequence = connection.sequence
        request.id = number + 1
        request.group = connection.group
        request.which = REQUEST_COMMAND
        if connection.session:
            command.session = connection.session
            command.sequence = lane.sequence
            command.acknowledged_below = acknowledged_below
        command.lease_high = connection.lease_high
        command.lease_low = connection.lease_low
        command.key.data = lane.key
        command.key.size = KEY_BYTES
        if lane.is_held:
            command.kind = COMMAND_RELEASE
            command.token = lane.token
        else:
            command.kind = COMMAND_ACQUIRE
            command.request = lane.request
            command.wait = self.wait
        lane.is_busy = True
        lane.sent_ns = now_ns()
        if request_encode(&connection.output, &request, NULL, 0) != 0:
            connection.is_broken = True

    cdef void choose_key(self, connection_t* connection, lane_t* lane) noexcept nogil:
        """A key of the connection's own group: at random, or one of the few that everyone wants."""
        cdef uint64_t low, high
        cdef slice_t key
        cdef uint16_t slot
        cdef uint64_t attempt = 0
        cdef uint32_t i
        key.data = lane.key
        key.size = KEY_BYTES
        high = draw(&connection.random)
        if self.key_count:
            high = high % self.key_count
        while True:
            low = attempt if self.key_count else draw(&connection.random)
            for i in range(16):
                lane.key[i] = DIGITS[(high >> (4 * i)) & 15]
            for i in range(8):
                lane.key[16 + i] = DIGITS[(low >> (4 * i)) & 15]
            slot = key_slot(key)
            if connection.slot_first <= slot <= connection.slot_last:
                return
            attempt += 1

    cdef int flush(self, connection_t* connection) noexcept nogil:
        cdef epoll_event event
        cdef ssize_t sent
        cdef bint was_waiting = connection.wants_write
        if connection.is_broken:
            return -1
        while connection.output_sent < connection.output.size:
            sent = send(connection.fd, connection.output.data + connection.output_sent,
                        connection.output.size - connection.output_sent, MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent < 0:
                if errno == EINTR:
                    continue
                if errno != EAGAIN:
                    return -1
                break
            connection.output_sent += sent
        connection.wants_write = connection.output_sent < connection.output.size
        if not connection.wants_write:
            connection.output.size = 0
            connection.output_sent = 0
        if connection.wants_write != was_waiting:
            memset(&event, 0, sizeof(event))
            event.events = EPOLLIN | EPOLLOUT if connection.wants_write else EPOLLIN
            event.data.ptr = connection
            return epoll_ctl(self.poller, EPOLL_CTL_MOD, connection.fd, &event)
        return 0

    cdef int receive(self, connection_t* connection) noexcept nogil:
        cdef buffer_t* input = &connection.input
        cdef size_t at = 0, total = 0
        cdef ssize_t received
        if buffer_reserve(input, RECEIVE_BYTES) != 0:
            return -1
        received = recv(connection.fd, input.data + input.size, RECEIVE_BYTES, MSG_DONTWAIT)
        if received < 0 and (errno == EAGAIN or errno == EINTR):
            return 0
        if received <= 0:
            return -1
        input.size += received
        while at < input.size:
            if frame_bytes(input.data + at, input.size - at, CLIENT_FRAME_BYTES_MAX, &total) != CODE_OK:
                return -1
            if total == 0 or at + total > input.size:
                break
            if self.take(connection, input.data + at, total) != 0:
                return -1
            at += total
        memmove(input.data, input.data + at, input.size - at)
        input.size -= at
        return 0

    cdef int take(self, connection_t* connection, const uint8_t* frame, size_t size) noexcept nogil:
        """One answer: what it means for its lane."""
        cdef reply_t reply
        cdef lane_t* lane
        if reply_decode(frame, size, &self.scratch, &reply) != CODE_OK:
            return -1
        if reply.id == 0 or reply.id > self.depth or not connection.lanes[reply.id - 1].is_busy:
            return -1
        lane = &connection.lanes[reply.id - 1]
        if self.is_recording:
            self.codes[reply.code if reply.code < CODES_MAX else CODES_MAX - 1] += 1
        if reply.code == CODE_QUEUED:
            return 0
        lane.is_busy = False
        if reply.code != CODE_OK:
            # Refused, or nobody knows: this lane goes on with another key.
            lane.is_held = False
            return 0
        if self.is_recording:
            if lane.is_held:
                self.releases.add(now_ns() - lane.sent_ns)
            else:
                self.acquires.add(now_ns() - lane.sent_ns)
        if not lane.is_held and reply.which == REPLY_GRANT:
            lane.token = reply.token
            lane.is_held = True
        else:
            lane.is_held = False
        return 0


def serve_echo(int listener, double seconds):
    """Answer every request at once with a grant: what the generator can do when nothing is behind the socket."""
    cdef int64_t end_ns = now_ns() + <int64_t>(seconds * 1e9)
    cdef int failed
    with nogil:
        failed = echo_loop(listener, end_ns)
    if failed:
        raise OSError(errno, "the echo server failed")


cdef int echo_loop(int listener, int64_t end_ns) noexcept nogil:
    cdef epoll_event events[EVENTS_MAX]
    cdef epoll_event event
    cdef connection_t* connection
    cdef buffer_t scratch
    cdef int poller = epoll_create1(0)
    cdef int ready, i, fd
    memset(&event, 0, sizeof(event))
    memset(&scratch, 0, sizeof(scratch))
    event.events = EPOLLIN
    event.data.ptr = NULL
    if poller < 0 or epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) != 0:
        return -1
    while now_ns() < end_ns:
        ready = epoll_wait(poller, events, EVENTS_MAX, 10)
        for i in range(ready):
            connection = <connection_t*>events[i].data.ptr
            if connection == NULL:
                fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)
                if fd < 0:
                    continue
                # Freed with the process: an echo server lives for one benchmark.
                connection = <connection_t*>calloc(1, sizeof(connection_t))
                connection.fd = fd
                event.data.ptr = connection
                epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)
            elif echo(connection, &scratch) != 0:
                epoll_ctl(poller, EPOLL_CTL_DEL, connection.fd, NULL)
                close(connection.fd)
    close(poller)
    return 0


cdef int echo(connection_t* connection, buffer_t* scratch) noexcept nogil:
    cdef buffer_t* input = &connection.input
    cdef buffer_t* output = &connection.output
    cdef request_t request
    cdef outcome_t outcome
    cdef size_t at = 0, total = 0
    cdef ssize_t moved
    memset(&outcome, 0, sizeof(outcome))
    outcome.token = 1
    if buffer_reserve(input, RECEIVE_BYTES) != 0:
        return -1
    moved = recv(connection.fd, input.data + input.size, RECEIVE_BYTES, MSG_DONTWAIT)
    if moved <= 0:
        return 0 if moved < 0 and errno == EAGAIN else -1
    input.size += moved
    while at < input.size:
        if frame_bytes(input.data + at, input.size - at, CLIENT_FRAME_BYTES_MAX, &total) != CODE_OK:
            return -1
        if total == 0 or at + total > input.size:
            break
        if request_decode(input.data + at, total, scratch, &request) != CODE_OK:
            return -1
        outcome.kind = request.command.kind
        if reply_encode_outcome(output, request.id, 1, 1, 0, &outcome) != 0:
            return -1
        at += total
    memmove(input.data, input.data + at, input.size - at)
    input.size -= at
    moved = send(connection.fd, output.data, output.size, MSG_NOSIGNAL)
    if moved < <ssize_t>output.size:
        return -1
    output.size = 0
    return 0
