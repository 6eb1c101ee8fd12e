"""A native thread that works through a bounded ring of jobs and never takes the GIL.

One producer (the loop) pushes; the worker finishes jobs in order; the producer releases what is finished. An
eventfd tells the loop. The first error ends it all: the worker stops and finishes nothing more.
"""

from libc.stdint cimport uint64_t


cdef extern from "pthread.h" nogil:
    ctypedef unsigned long pthread_t


cdef enum:
    WORKER_JOBS_MAX = 1 << 14


cdef struct worker_t:
    void** slots              # WORKER_JOBS_MAX pointers
    # released <= done <= tail; each only grows. The producer owns tail and released, the worker owns done.
    uint64_t tail
    uint64_t done
    uint64_t released
    uint64_t stop
    uint64_t sleeping
    uint64_t failed           # 0, or the code below is set
    int failure_code
    const char* failure_step
    int wake_fd
    int event_fd              # told when jobs are done or the worker failed; not owned
    pthread_t thread
    bint running


ctypedef void (*worker_run_t)(void*) noexcept nogil


cdef int worker_init(worker_t* worker, int event_fd) except -1
cdef int worker_start(worker_t* worker, worker_run_t run, void* context) except -1
cdef void worker_stop(worker_t* worker) noexcept
cdef void worker_free(worker_t* worker) noexcept
cdef bint worker_push(worker_t* worker, void* job) noexcept nogil
cdef uint64_t worker_wait(worker_t* worker, uint64_t taken, int timeout_ms) noexcept nogil
cdef bint worker_should_stop(worker_t* worker) noexcept nogil
cdef void worker_finish(worker_t* worker, uint64_t done) noexcept nogil
cdef void worker_fail(worker_t* worker, int code, const char* step) noexcept nogil
cdef bint worker_failed(worker_t* worker) noexcept nogil
cdef uint64_t monotonic_ns() noexcept nogil
