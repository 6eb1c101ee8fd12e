"""Checkpoint rows as bytes on their way to another member: length, length, key, row, checksum."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from zlib import crc32

_HEAD = Struct("<III")

# A row is refused beyond this size before anything is allocated for it.
ROW_BYTES_MAX = 16 << 20


def pack_row(key: bytes, row: bytes) -> bytes:
    return _HEAD.pack(len(key), len(row), crc32(row, crc32(key))) + key + row


def unpack_rows(chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The rows of one chunk; ValueError if it is not whole rows with right checksums."""
    offset = 0
    while offset < len(chunk):
        if len(chunk) - offset < _HEAD.size:
            raise ValueError("a row's head is cut off")
        key_size, row_size, checksum = _HEAD.unpack_from(chunk, offset)
        offset += _HEAD.size
        end = offset + key_size + row_size
        if row_size > ROW_BYTES_MAX or end > len(chunk):
            raise ValueError("a row is cut off")
        key = chunk[offset : offset + key_size]
        row = chunk[offset + key_size : end]
        if crc32(row, crc32(key)) != checksum:
            raise ValueError(f"checksum of row {key!r} is wrong")
        yield key, row
        offset = end
