"""Looks at every page of an LMDB file before LMDB does.

LMDB 0.9 has no checksums of its own and trusts its pages: a flipped bit in a page number makes it read outside
the map or hand out a page that is in use. Records have our checksums; this finds damage in the trees around them:
every page must be reachable once, be what its parent says, hold its keys in order, and be counted right, and no page
that is in use may be on the free list. What is left to chance is damage in unused bytes, which changes nothing.

The two meta pages have no checksum either. They belong to the last two commits, so their numbers are consecutive;
a damaged number would otherwise take the file back by one commit without a trace.
"""

import mmap
import os

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from fastlock.storage import StorageDamaged


cdef enum:
    # The format of LMDB 0.9, in the machine's byte order.
    META_MAGIC = 0xBEEFC0DE
    META_VERSION = 1
    META_PAGES = 2
    META_MAGIC_AT = 16
    META_VERSION_AT = 20
    META_MAP_BYTES_AT = 32
    META_FREE_TREE_AT = 40
    META_MAIN_TREE_AT = 88
    META_LAST_PAGE_AT = 136
    META_NUMBER_AT = 144
    META_BYTES = 152
    TREE_PAD_AT = 0           # of the free tree: the page size
    TREE_FLAGS_AT = 4
    TREE_DEPTH_AT = 6
    TREE_BRANCH_PAGES_AT = 8
    TREE_LEAF_PAGES_AT = 16
    TREE_OVERFLOW_PAGES_AT = 24
    TREE_ENTRIES_AT = 32
    TREE_ROOT_AT = 40
    FREE_TREE_FLAGS = 0x08    # integer keys, and no flag of the environment
    PAGE_HEAD_BYTES = 16
    PAGE_FLAGS_AT = 10
    PAGE_LOWER_AT = 12
    PAGE_UPPER_AT = 14
    PAGE_RUN_AT = 12          # of an overflow page: how many pages it has
    PAGE_BRANCH = 0x01
    PAGE_LEAF = 0x02
    PAGE_OVERFLOW = 0x04
    PAGE_META = 0x08
    NODE_HEAD_BYTES = 8
    NODE_IN_OVERFLOW = 0x01
    DEPTH_MAX = 32
    PAGE_BYTES_MIN = 512
    PAGE_BYTES_MAX = 65536


cdef uint64_t NO_PAGE = 0xFFFFFFFFFFFFFFFF
cdef uint64_t MAP_BYTES_MAX = <uint64_t>1 << 46


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t fastlock_native16(const uint8_t* at) { uint16_t v; memcpy(&v, at, 2); return v; }
    static inline uint32_t fastlock_native32(const uint8_t* at) { uint32_t v; memcpy(&v, at, 4); return v; }
    static inline uint64_t fastlock_native64(const uint8_t* at) { uint64_t v; memcpy(&v, at, 8); return v; }
    """
    uint16_t native16 "fastlock_native16"(const uint8_t* at) noexcept nogil
    uint32_t native32 "fastlock_native32"(const uint8_t* at) noexcept nogil
    uint64_t native64 "fastlock_native64"(const uint8_t* at) noexcept nogil


cdef struct slice_of_key_t:
    const uint8_t* data
    uint32_t size


cdef struct walk_t:
    const uint8_t* base
    uint64_t page_bytes
    uint64_t page_count           # that were ever given out; the last ones, if free, may be beyond the end of the file
    uint64_t file_pages
    uint8_t* seen                 # a byte per page that was given out
    # The tree that is being walked.
    bint is_free_tree
    uint32_t depth
    uint64_t branch_pages
    uint64_t leaf_pages
    uint64_t overflow_pages
    uint64_t entries
    slice_of_key_t before         # the last key in a leaf
    slice_of_key_t separator      # keys of the next leaf are not below it


cdef bint claim(walk_t* walk, uint64_t page, uint64_t count) noexcept nogil:
    """Marks pages as used; False if they were never given out or are used already."""
    cdef uint64_t at
    if page < META_PAGES or page >= walk.page_count or count > walk.page_count - page:
        return False
    for at in range(page, page + count):
        if walk.seen[at]:
            return False
        walk.seen[at] = 1
    return True


cdef bint claim_written(walk_t* walk, uint64_t page, uint64_t count) noexcept nogil:
    """Marks pages as used whose content is in the file."""
    return page < walk.file_pages and count <= walk.file_pages - page and claim(walk, page, count)


cdef int compare(const walk_t* walk, slice_of_key_t left, slice_of_key_t right) noexcept nogil:
    cdef uint64_t a, b
    cdef int order
    if walk.is_free_tree:
        a = native64(left.data)
        b = native64(right.data)
        return (a > b) - (a < b)
    order = memcmp(left.data, right.data, min(left.size, right.size))
    if order != 0:
        return order
    return (left.size > right.size) - (left.size < right.size)


cdef const char* check_free_list(walk_t* walk, const uint8_t* data, uint64_t size) noexcept nogil:
    cdef uint64_t count, position
    if size < 8 or size % 8 != 0:
        return "a list of free pages has an impossible size"
    count = native64(data)
    if count > size // 8 - 1:
        return "a list of free pages is cut off"
    for position in range(1, count + 1):
        if not claim(walk, native64(data + 8 * position), 1):
            return "a page is free and in use"
    return NULL


cdef const char* check_data(walk_t* walk, const uint8_t* node, const uint8_t* page_end) noexcept nogil:
    """The data of a leaf's node, in the page or in overflow pages."""
    cdef const uint8_t* data = node + NODE_HEAD_BYTES + native16(node + 6)
    cdef uint64_t size = native16(node) | <uint64_t>native16(node + 2) << 16
    cdef uint16_t flags = native16(node + 4)
    cdef uint64_t page, count
    if flags == NODE_IN_OVERFLOW:
        if <uint64_t>(page_end - data) < 8:
            return "a node is cut off"
        page = native64(data)
        if page < META_PAGES or page >= walk.file_pages:
            return "an overflow page is outside the file"
        data = walk.base + page * walk.page_bytes
        count = native32(data + PAGE_RUN_AT)
        if native64(data) != page or native16(data + PAGE_FLAGS_AT) != PAGE_OVERFLOW:
            return "an overflow page is not one"
        if count == 0 or count > walk.page_count or count * walk.page_bytes < PAGE_HEAD_BYTES + size:
            return "an overflow page is too small for its data"
        if not claim_written(walk, page, count):
            return "an overflow page is cut off or used twice"
        walk.overflow_pages += count
        data += PAGE_HEAD_BYTES
    elif flags != 0:
        return "a node has unknown flags"
    elif <uint64_t>(page_end - data) < size:
        return "a node is cut off"
    return check_free_list(walk, data, size) if walk.is_free_tree else NULL


cdef const char* check_leaf_key(walk_t* walk, const uint8_t* node) noexcept nogil:
    cdef slice_of_key_t key
    key.data = node + NODE_HEAD_BYTES
    key.size = native16(node + 6)
    if key.size == 0 or (walk.is_free_tree and key.size != 8):
        return "a key has an impossible size"
    if walk.before.data != NULL and compare(walk, walk.before, key) >= 0:
        return "keys are out of order"
    if walk.separator.data != NULL and compare(walk, walk.separator, key) > 0:
        return "a key is below its page's"
    walk.before = key
    walk.separator.data = NULL
    return NULL


cdef const char* check_branch_node(walk_t* walk, const uint8_t* node, uint32_t position, uint32_t level) noexcept nogil:
    cdef uint64_t child = native16(node) | <uint64_t>native16(node + 2) << 16 | <uint64_t>native16(node + 4) << 32
    cdef slice_of_key_t key
    if position > 0:
        key.data = node + NODE_HEAD_BYTES
        key.size = native16(node + 6)
        if key.size == 0 or (walk.is_free_tree and key.size != 8):
            return "a key has an impossible size"
        if compare(walk, walk.before, key) >= 0:
            return "keys are out of order"
        walk.separator = key
    return check_page(walk, child, level + 1)


cdef const char* check_page(walk_t* walk, uint64_t number, uint32_t level) noexcept nogil:
    """A page and everything below it; what is wrong with it, or NULL."""
    cdef bint is_leaf = level == walk.depth
    cdef const uint8_t* page
    cdef const uint8_t* end
    cdef const uint8_t* node
    cdef const char* wrong
    cdef uint32_t lower, upper, offset, position, count
    if not claim_written(walk, number, 1):
        return "a page is outside the file or used twice"
    page = walk.base + number * walk.page_bytes
    end = page + walk.page_bytes
    if native64(page) != number or native16(page + PAGE_FLAGS_AT) != (PAGE_LEAF if is_leaf else PAGE_BRANCH):
        return "a page is not what its parent says"
    lower = native16(page + PAGE_LOWER_AT)
    upper = native16(page + PAGE_UPPER_AT)
    if lower < PAGE_HEAD_BYTES or lower % 2 != 0 or lower > upper or upper > walk.page_bytes:
        return "a page has impossible bounds"
    count = (lower - PAGE_HEAD_BYTES) // 2
    if count < (1 if is_leaf else 2):
        return "a page is empty"
    for position in range(count):
        offset = native16(page + PAGE_HEAD_BYTES + 2 * position)
        if offset < upper or offset + NODE_HEAD_BYTES > walk.page_bytes:
            return "a node is outside its page"
        node = page + offset
        if offset + NODE_HEAD_BYTES + native16(node + 6) > walk.page_bytes:
            return "a key is outside its page"
        if is_leaf:
            wrong = check_leaf_key(walk, node)
            if wrong == NULL:
                wrong = check_data(walk, node, end)
        else:
            wrong = check_branch_node(walk, node, position, level)
        if wrong != NULL:
            return wrong
    if is_leaf:
        walk.leaf_pages += 1
        walk.entries += count
    else:
        walk.branch_pages += 1
    return NULL


cdef const char* check_tree(walk_t* walk, const uint8_t* tree, bint is_free_tree) noexcept nogil:
    cdef const char* wrong = NULL
    walk.is_free_tree = is_free_tree
    walk.depth = native16(tree + TREE_DEPTH_AT)
    walk.branch_pages = walk.leaf_pages = walk.overflow_pages = walk.entries = 0
    walk.before.data = walk.separator.data = NULL
    if native16(tree + TREE_FLAGS_AT) != (FREE_TREE_FLAGS if is_free_tree else 0):
        return "a tree has unknown flags"
    if (native64(tree + TREE_ROOT_AT) == NO_PAGE) != (walk.depth == 0) or walk.depth > DEPTH_MAX:
        return "a tree has an impossible depth"
    if walk.depth > 0:
        wrong = check_page(walk, native64(tree + TREE_ROOT_AT), 1)
    if wrong != NULL:
        return wrong
    if (
        walk.branch_pages != native64(tree + TREE_BRANCH_PAGES_AT)
        or walk.leaf_pages != native64(tree + TREE_LEAF_PAGES_AT)
        or walk.overflow_pages != native64(tree + TREE_OVERFLOW_PAGES_AT)
        or walk.entries != native64(tree + TREE_ENTRIES_AT)
    ):
        return "a tree has not as many pages or entries as it says"
    return NULL


cdef const char* check_meta(const uint8_t* page, uint64_t number, uint64_t page_bytes) noexcept nogil:
    if native64(page) != number or native16(page + PAGE_FLAGS_AT) != PAGE_META:
        return "a meta page is not one"
    if native32(page + META_MAGIC_AT) != <uint32_t>META_MAGIC or native32(page + META_VERSION_AT) != META_VERSION:
        return "a meta page is not LMDB's"
    if native32(page + META_FREE_TREE_AT + TREE_PAD_AT) != page_bytes:
        return "the page size changed"
    if native64(page + META_MAP_BYTES_AT) > MAP_BYTES_MAX or native64(page + META_MAP_BYTES_AT) % PAGE_BYTES_MIN != 0:
        return "the map has an impossible size"
    return NULL


cdef const uint8_t* newest_meta(const walk_t* walk) noexcept nogil:
    cdef const uint8_t* odd = walk.base + walk.page_bytes
    return odd if native64(odd + META_NUMBER_AT) > native64(walk.base + META_NUMBER_AT) else walk.base


cdef const char* check_file(walk_t* walk) noexcept nogil:
    cdef const uint8_t* even = walk.base
    cdef const uint8_t* odd = walk.base + walk.page_bytes
    cdef const uint8_t* newest = newest_meta(walk)
    cdef uint64_t even_number = native64(even + META_NUMBER_AT)
    cdef uint64_t odd_number = native64(odd + META_NUMBER_AT)
    cdef const char* wrong = check_meta(even, 0, walk.page_bytes)
    if wrong == NULL:
        wrong = check_meta(odd, 1, walk.page_bytes)
    if wrong != NULL:
        return wrong
    if (even_number or odd_number) and (
        even_number % 2 != 0 or odd_number % 2 != 1
        or (odd_number - even_number != 1 and even_number - odd_number != 1)
    ):
        return "the meta pages are not of two commits in a row"
    wrong = check_tree(walk, newest + META_MAIN_TREE_AT, False)
    return wrong if wrong != NULL else check_tree(walk, newest + META_FREE_TREE_AT, True)


def check_pages(str path):
    """Raises StorageDamaged if the file is not what LMDB left there; an empty or missing file is fine."""
    try:
        file = open(path, "rb")
    except FileNotFoundError:
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return
        if size < 2 * PAGE_BYTES_MIN:
            raise StorageDamaged(f"{path}: the file is cut off")
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as view:
            check_view(path, view, size)


cdef int check_view(str path, const uint8_t[::1] view, uint64_t size) except -1:
    cdef walk_t walk
    cdef const char* wrong
    cdef const uint8_t* newest
    walk.base = &view[0]
    walk.page_bytes = native32(walk.base + META_FREE_TREE_AT + TREE_PAD_AT)
    if not PAGE_BYTES_MIN <= walk.page_bytes <= PAGE_BYTES_MAX or walk.page_bytes & (walk.page_bytes - 1):
        raise StorageDamaged(f"{path}: the first meta page has an impossible page size")
    if size < META_PAGES * walk.page_bytes:
        raise StorageDamaged(f"{path}: the file is cut off")
    newest = newest_meta(&walk)
    walk.file_pages = size // walk.page_bytes
    walk.page_count = native64(newest + META_LAST_PAGE_AT) + 1
    if not META_PAGES <= walk.page_count <= native64(newest + META_MAP_BYTES_AT) // walk.page_bytes:
        raise StorageDamaged(f"{path}: the newest meta page has an impossible number of pages")
    walk.seen = <uint8_t*>calloc(walk.page_count, 1)
    if walk.seen == NULL:
        raise MemoryError
    try:
        with nogil:
            wrong = check_file(&walk)
    finally:
        free(walk.seen)
    if wrong != NULL:
        raise StorageDamaged(f"{path}: {(<bytes>wrong).decode()}")
    return 0
