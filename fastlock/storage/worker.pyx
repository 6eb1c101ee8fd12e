"""A native thread that works through a bounded ring of jobs and never takes the GIL."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.unistd cimport close, read, write

from fastlock.storage.environment cimport load_acquire, store_release


cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <time.h>

    typedef struct { void (*run)(void*); void* context; } fastlock_thread_t;

    static void* fastlock_thread_main(void* start_pointer) {
        fastlock_thread_t start = *(fastlock_thread_t*)start_pointer;
        free(start_pointer);
        start.run(start.context);
        return NULL;
    }

    /* Signals are the main thread's business: a thread started here blocks them all. */
    static int fastlock_thread_start(pthread_t* thread, void (*run)(void*), void* context) {
        sigset_t all, before;
        int code;
        fastlock_thread_t* start = malloc(sizeof *start);
        if (start == NULL) return ENOMEM;
        start->run = run;
        start->context = context;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        code = pthread_create(thread, NULL, fastlock_thread_main, start);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (code != 0) free(start);
        return code;
    }

    static uint64_t fastlock_monotonic_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }

    #define fastlock_exchange(at, value) __atomic_exchange_n((at), (value), __ATOMIC_SEQ_CST)
    #define fastlock_load(at) __atomic_load_n((at), __ATOMIC_SEQ_CST)
    #define fastlock_store(at, value) __atomic_store_n((at), (value), __ATOMIC_SEQ_CST)
    """
    int thread_start "fastlock_thread_start"(pthread_t*, worker_run_t, void*) nogil
    uint64_t clock_ns "fastlock_monotonic_ns"() noexcept nogil
    uint64_t atomic_exchange "fastlock_exchange"(uint64_t*, uint64_t) noexcept nogil
    uint64_t atomic_load "fastlock_load"(uint64_t*) noexcept nogil
    void atomic_store "fastlock_store"(uint64_t*, uint64_t) noexcept nogil


cdef extern from "pthread.h" nogil:
    int pthread_join(pthread_t, void**)


cdef extern from "sys/eventfd.h" nogil:
    int eventfd(unsigned int, int)
    int EFD_NONBLOCK
    int EFD_CLOEXEC


cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd*, unsigned long, int)
    short POLLIN


cdef uint64_t monotonic_ns() noexcept nogil:
    return clock_ns()


cdef int worker_init(worker_t* worker, int event_fd) except -1:
    memset(worker, 0, sizeof(worker_t))
    worker.event_fd = event_fd
    worker.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    if worker.wake_fd < 0:
        raise OSError("no file descriptor left for a storage thread: raise the limit of open files")
    worker.slots = <void**>calloc(WORKER_JOBS_MAX, sizeof(void*))
    if worker.slots == NULL:
        close(worker.wake_fd)
        raise MemoryError
    return 0


cdef int worker_start(worker_t* worker, worker_run_t run, void* context) except -1:
    cdef int code = thread_start(&worker.thread, run, context)
    if code != 0:
        raise OSError(code, "cannot start a storage thread: raise the limit of threads or memory")
    worker.running = True
    return 0


cdef void worker_stop(worker_t* worker) noexcept:
    """Lets the worker finish what is queued, and waits for its end."""
    cdef uint64_t one = 1
    if not worker.running:
        return
    atomic_store(&worker.stop, 1)
    with nogil:
        write(worker.wake_fd, &one, sizeof(one))
        pthread_join(worker.thread, NULL)
    worker.running = False


cdef void worker_free(worker_t* worker) noexcept:
    """After worker_stop, when every job was released."""
    if worker.slots != NULL:
        close(worker.wake_fd)
        free(worker.slots)
        worker.slots = NULL


cdef bint worker_push(worker_t* worker, void* job) noexcept nogil:
    """False when the ring is full."""
    cdef uint64_t one = 1
    if worker.tail - worker.released == WORKER_JOBS_MAX:
        return False
    worker.slots[worker.tail % WORKER_JOBS_MAX] = job
    # The worker says that it sleeps before it looks at the tail for the last time; so either it sees this job, or
    # the exchange sees that it sleeps.
    atomic_store(&worker.tail, worker.tail + 1)
    if atomic_exchange(&worker.sleeping, 0) != 0:
        write(worker.wake_fd, &one, sizeof(one))
    return True


cdef uint64_t worker_wait(worker_t* worker, uint64_t taken, int timeout_ms) noexcept nogil:
    """The tail of the ring, once it is beyond `taken`, the time is up (-1 = no limit), or the worker should stop."""
    cdef pollfd waiting
    cdef uint64_t ignored
    cdef uint64_t tail = atomic_load(&worker.tail)
    if tail != taken:
        return tail
    atomic_store(&worker.sleeping, 1)
    tail = atomic_load(&worker.tail)
    if tail == taken and atomic_load(&worker.stop) == 0:
        waiting.fd = worker.wake_fd
        waiting.events = POLLIN
        waiting.revents = 0
        if poll(&waiting, 1, timeout_ms) > 0:
            read(worker.wake_fd, &ignored, sizeof(ignored))
        tail = atomic_load(&worker.tail)
    atomic_store(&worker.sleeping, 0)
    return tail


cdef bint worker_should_stop(worker_t* worker) noexcept nogil:
    return atomic_load(&worker.stop) != 0


cdef void worker_finish(worker_t* worker, uint64_t done) noexcept nogil:
    cdef uint64_t one = 1
    store_release(&worker.done, done)
    write(worker.event_fd, &one, sizeof(one))


cdef void worker_fail(worker_t* worker, int code, const char* step) noexcept nogil:
    cdef uint64_t one = 1
    worker.failure_code = code
    worker.failure_step = step
    store_release(&worker.failed, 1)
    write(worker.event_fd, &one, sizeof(one))


cdef bint worker_failed(worker_t* worker) noexcept nogil:
    return load_acquire(&worker.failed) != 0
