"""LMDB's C functions, resolved when this module is imported.

They come out of py-lmdb's own extension module, whose wheels carry LMDB and export it as mdb_* or mdb09_*, else
out of the system's liblmdb. So building fastlock needs neither LMDB's header nor its library. Only LMDB 0.9 is taken:
the files of 1.0 have another format.
"""

import ctypes.util
import importlib

from libc.string cimport memcpy, memset


cdef extern from "dlfcn.h" nogil:
    void* dlopen(const char* path, int mode)
    void* dlsym(void* handle, const char* name)
    int RTLD_NOW
    int RTLD_LOCAL


# In the order of lmdb_api_t.
NAMES = (
    b"version", b"strerror", b"env_create", b"env_open", b"env_close", b"env_set_mapsize", b"env_info", b"txn_begin",
    b"txn_commit", b"txn_abort", b"dbi_open", b"stat", b"get", b"put", b"del", b"cursor_open", b"cursor_close",
    b"cursor_get", b"cursor_del",
)
PREFIXES = (b"mdb09_", b"mdb_")
EXTENSIONS = ("lmdb.cpython", "lmdb_cffi")


cdef bint resolve(str path, bytes prefix) except -1:
    """Fills `lmdb` if the library has every function under this prefix, and is LMDB 0.9."""
    cdef void* library = dlopen(path.encode(), RTLD_NOW | RTLD_LOCAL)
    cdef void* function
    cdef int major = -1, minor = -1, patch = -1
    cdef size_t position = 0
    assert sizeof(lmdb_api_t) == len(NAMES) * sizeof(void*)
    if library == NULL:
        return False
    for name in NAMES:
        function = dlsym(library, prefix + name)
        if function == NULL:
            return False
        memcpy(<char*>&lmdb + position * sizeof(void*), &function, sizeof(void*))
        position += 1
    lmdb.version(&major, &minor, &patch)
    return major == 0 and minor == 9


def libraries():
    """Paths that may have LMDB in them, the best first."""
    for name in EXTENSIONS:
        try:
            path = importlib.import_module(name).__file__
        except ImportError:
            continue
        if path is not None:
            yield path
    path = ctypes.util.find_library("lmdb")
    if path is not None:
        yield path


def find():
    for path in libraries():
        for prefix in PREFIXES:
            if resolve(path, prefix):
                return path
    memset(&lmdb, 0, sizeof(lmdb))
    raise ImportError(
        "fastlock stores its data with LMDB 0.9, and found it neither in the Python package 'lmdb' nor as a system "
        "library: run 'pip install --force-reinstall lmdb', or install liblmdb0"
    )


LIBRARY = find()
VERSION = (<bytes>lmdb.version(NULL, NULL, NULL)).decode()


def describe(int code):
    """What LMDB says about a return code."""
    return (<bytes>lmdb.strerror(code)).decode(errors="replace")
