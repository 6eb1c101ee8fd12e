"""Asking for memory ahead of its use."""


cdef extern from *:
    """
    #ifndef FASTLOCK_PREFETCH
    #define FASTLOCK_PREFETCH
    /* GCC takes a function that does nothing but prefetch for one without effect, and drops the calls of it.
       The empty statement is the effect that keeps them. */
    static inline __attribute__((always_inline)) void fastlock_prefetch(const void* address) {
        __builtin_prefetch(address);
        __asm__ volatile("");
    }

    static inline __attribute__((always_inline)) void fastlock_prefetch_to_write(const void* address) {
        __builtin_prefetch(address, 1);
        __asm__ volatile("");
    }
    #endif
    """
    void prefetch "fastlock_prefetch"(const void* address) noexcept nogil
    void prefetch_to_write "fastlock_prefetch_to_write"(const void* address) noexcept nogil
