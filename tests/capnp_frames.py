"""Cap'n Proto frames taken apart and laid out anew: other segments, far pointers, wider and narrower structs.

What other languages' writers may send and our own never does. pycapnp reads all of it, and so must the codec.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from random import Random

WORD = 8
STRUCT, LIST, FAR = 0, 1, 2
POINTERS, COMPOSITE = 6, 7


@dataclass
class Object:
    """What a pointer leads to: words, then pointers; a list of structs has elements instead."""

    kind: int
    data: bytes = b""
    pointers: list[Object | None] = field(default_factory=list)
    element_size: int = 0
    count: int = 0
    elements: list[Object] | None = None


def parse(frame: bytes) -> Object | None:
    """The root of a single-segment frame without far pointers."""
    segments, words = struct.unpack_from("<II", frame)
    assert segments == 0
    assert len(frame) == WORD + words * WORD
    return _parse_pointer(frame[WORD:], 0)


def _parse_pointer(segment: bytes, at: int) -> Object | None:
    (word,) = struct.unpack_from("<Q", segment, at)
    if word == 0:
        return None
    low, high = word & 0xFFFFFFFF, word >> 32
    offset = (low >> 2) - (1 << 30 if low >> 31 else 0)
    target = at + WORD + offset * WORD
    if word & 3 == STRUCT:
        return _parse_struct(segment, target, high & 0xFFFF, high >> 16)
    assert word & 3 == LIST
    size, count = high & 7, high >> 3
    if size == COMPOSITE:
        (tag,) = struct.unpack_from("<Q", segment, target)
        total, data_words, pointers = (tag & 0xFFFFFFFF) >> 2, tag >> 32 & 0xFFFF, tag >> 48
        step = (data_words + pointers) * WORD
        first = target + WORD
        elements = [_parse_struct(segment, first + i * step, data_words, pointers) for i in range(total)]
        return Object(LIST, element_size=size, count=total, elements=elements)
    if size == POINTERS:
        items = [_parse_pointer(segment, target + i * WORD) for i in range(count)]
        return Object(LIST, pointers=items, element_size=size, count=count)
    bits = (0, 1, 8, 16, 32, 64)[size]
    content = segment[target : target + (count * bits + 63) // 64 * WORD]
    return Object(LIST, data=content, element_size=size, count=count)


def _parse_struct(segment: bytes, at: int, data_words: int, pointers: int) -> Object:
    first = at + data_words * WORD
    return Object(
        STRUCT,
        data=segment[at:first],
        pointers=[_parse_pointer(segment, first + i * WORD) for i in range(pointers)],
    )


def resize(node: Object | None, rng: Random) -> None:
    """Makes structs as an older writer (zero fields at the end missing) or a newer one has them."""
    if node is None:
        return
    if node.elements is not None:
        data_words = rng.randrange(3) + max((len(_trimmed(e)) for e in node.elements), default=0)
        pointers = rng.randrange(3) + max((_trimmed_count(e) for e in node.elements), default=0)
        for element in node.elements:
            _resize_struct(element, data_words, pointers, rng)
    elif node.kind == STRUCT:
        _resize_struct(
            node, len(_trimmed(node)) + rng.randrange(3), _trimmed_count(node) + rng.randrange(3), rng
        )
    else:
        for item in node.pointers:
            resize(item, rng)


def _trimmed(node: Object) -> list[bytes]:
    words = [node.data[i : i + WORD] for i in range(0, len(node.data), WORD)]
    while words and not any(words[-1]):
        words.pop()
    return words


def _trimmed_count(node: Object) -> int:
    return max((i + 1 for i, pointer in enumerate(node.pointers) if pointer is not None), default=0)


def _resize_struct(node: Object, data_words: int, pointers: int, rng: Random) -> None:
    node.data = b"".join(_trimmed(node)).ljust(data_words * WORD, b"\0")
    del node.pointers[_trimmed_count(node) :]
    node.pointers += [None] * (pointers - len(node.pointers))
    for pointer in node.pointers:
        resize(pointer, rng)


class _Writer:
    """Lays a tree out over several segments, choosing near, far and double-far pointers at random."""

    def __init__(self, rng: Random, segment_count: int) -> None:
        self.rng = rng
        # One word in each: pycapnp follows no pointer into an empty segment. The first is the root.
        self.segments = [bytearray(WORD) for _ in range(segment_count)]

    def frame(self, root: Object | None) -> bytes:
        self._write_pointer(0, 0, root)
        header = struct.pack("<I", len(self.segments) - 1)
        header += b"".join(struct.pack("<I", len(segment) // WORD) for segment in self.segments)
        return header.ljust(-(-len(header) // WORD) * WORD, b"\0") + b"".join(self.segments)

    def _allocate(self, segment: int, words: int) -> int:
        at = len(self.segments[segment])
        self.segments[segment] += bytes(words * WORD)
        return at

    def _put(self, segment: int, at: int, word: int) -> None:
        struct.pack_into("<Q", self.segments[segment], at, word)

    def _write_pointer(self, segment: int, at: int, node: Object | None) -> None:
        if node is None:
            return
        home = self.rng.randrange(len(self.segments))
        style = "near" if home == segment else self.rng.choice(("far", "double"))
        pad = self._allocate(home, 1) if style == "far" else 0
        content = self._write_content(home, node)
        described = self._description(node)
        if style == "near":
            self._put(segment, at, described | _offset(at, content))
        elif style == "far":
            self._put(home, pad, described | _offset(pad, content))
            self._put(segment, at, FAR | pad // WORD << 3 | home << 32)
        else:
            third = self.rng.randrange(len(self.segments))
            pad = self._allocate(third, 2)
            self._put(third, pad, FAR | content // WORD << 3 | home << 32)
            self._put(third, pad + WORD, described)
            self._put(segment, at, FAR | 4 | pad // WORD << 3 | third << 32)

    def _description(self, node: Object) -> int:
        if node.kind == STRUCT:
            return STRUCT | len(node.data) // WORD << 32 | len(node.pointers) << 48
        count = node.count
        if node.elements is not None:
            count = sum(len(e.data) // WORD + len(e.pointers) for e in node.elements)
        return LIST | node.element_size << 32 | count << 35

    def _write_content(self, segment: int, node: Object) -> int:
        if node.elements is not None:
            return self._write_elements(segment, node.elements)
        at = self._allocate(segment, len(node.data) // WORD + len(node.pointers))
        self.segments[segment][at : at + len(node.data)] = node.data
        for i, pointer in enumerate(node.pointers):
            self._write_pointer(segment, at + len(node.data) + i * WORD, pointer)
        return at

    def _write_elements(self, segment: int, elements: list[Object]) -> int:
        data_bytes = len(elements[0].data) if elements else 0
        pointers = len(elements[0].pointers) if elements else 0
        step = data_bytes + pointers * WORD
        tag = self._allocate(segment, 1 + len(elements) * step // WORD)
        self._put(segment, tag, len(elements) << 2 | data_bytes // WORD << 32 | pointers << 48)
        for i, element in enumerate(elements):
            at = tag + WORD + i * step
            self.segments[segment][at : at + data_bytes] = element.data
            for j, pointer in enumerate(element.pointers):
                self._write_pointer(segment, at + data_bytes + j * WORD, pointer)
        return tag


def _offset(pointer: int, target: int) -> int:
    return ((target - pointer) // WORD - 1 & 0x3FFFFFFF) << 2


def relaid(frame: bytes, rng: Random, segment_count: int, resized: bool) -> bytes:
    """The same message as a single-segment `frame`, laid out anew."""
    root = parse(frame)
    if resized:
        resize(root, rng)
    return _Writer(rng, segment_count).frame(root)
