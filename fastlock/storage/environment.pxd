"""One LMDB environment: opened with durable commits, growing while nobody is in a transaction."""

from libc.stdint cimport uint64_t

from fastlock.storage.lmdb_api cimport MDB_val


cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, void*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_broadcast(pthread_cond_t*)
    int pthread_cond_destroy(pthread_cond_t*)


cdef extern from *:
    """
    #define fastlock_load_acquire(at) __atomic_load_n((at), __ATOMIC_ACQUIRE)
    #define fastlock_store_release(at, value) __atomic_store_n((at), (value), __ATOMIC_RELEASE)
    """
    uint64_t load_acquire "fastlock_load_acquire"(uint64_t* at) noexcept nogil
    void store_release "fastlock_store_release"(uint64_t* at, uint64_t value) noexcept nogil


cdef struct environment_t:
    void* handle
    unsigned int dbi
    unsigned int page_bytes
    uint64_t map_bytes
    uint64_t map_bytes_max
    uint64_t used_bytes           # by the newest commit; atomic
    # The map is moved only while no reader is inside; the one writer moves it between its own transactions.
    pthread_mutex_t mutex
    pthread_cond_t nobody_reads
    int readers


cdef int environment_begin_read(environment_t* environment, void** transaction) noexcept nogil
cdef void environment_end_read(environment_t* environment, void* transaction) noexcept nogil
cdef int environment_begin_write(environment_t* environment, void** transaction) noexcept nogil
cdef int environment_commit(environment_t* environment, void* transaction) noexcept nogil
cdef int environment_grow(environment_t* environment) noexcept nogil


cdef class Environment:
    cdef environment_t c
    cdef readonly str path
    cdef bint is_open

    cdef int check(self, int code, str what) except -1
