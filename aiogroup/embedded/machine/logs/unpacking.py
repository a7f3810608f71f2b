"""Finds out, before a compressed batch is unpacked, how large it becomes: a few kilobytes may become gigabytes.

Kafka's broker reads the records of a batch one after the other out of its decompressor, and needs no bound. Here they
are all held at once, and nothing else is served meanwhile.
"""

from __future__ import annotations

import struct
import zlib
from mmap import mmap
from typing import Final

import cramjam

__all__ = ["MOST_RECORDS", "MOST_UNPACKED_BYTES", "unpacks_within"]

MOST_UNPACKED_BYTES: Final = 64 * 1024 * 1024
MOST_RECORDS: Final = 1_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MOST_RATIO: Final = {GZIP: 1_032, LZ4: 255, ZSTD: 32_768}
"""How many bytes one byte can become: for deflate and LZ4 by their formats, for Zstandard in a block that repeats one
byte.
"""
XERIAL: Final = b"\x82SNAPPY\0"
XERIAL_HEADER_BYTES: Final = 16
PIECE_BYTES: Final = 1024 * 1024
WITH_GZIP_HEADER: Final = 31


def unpacks_within(codec: int, payload: memoryview, most_bytes: int = MOST_UNPACKED_BYTES) -> bool:
    """Whether `payload` unpacks to at most `most_bytes`. Damaged data counts as within: unpacking it fails before the
    limit.
    """
    if codec == SNAPPY:
        return _snappy_bytes(payload) <= most_bytes
    if codec not in MOST_RATIO or len(payload) * MOST_RATIO[codec] <= most_bytes:
        return True
    if codec == GZIP:
        return _is_gzip_within(payload, most_bytes)
    unpack = cramjam.lz4.decompress_into if codec == LZ4 else cramjam.zstd.decompress_into
    with mmap(-1, most_bytes) as room:  # memory that is allocated only where it is written
        try:
            unpack(payload, room)
        except cramjam.DecompressionError as error:
            return "whole buffer" not in str(error)
    return True


def _snappy_bytes(payload: memoryview) -> int:
    """The sum of the sizes in the blocks' headers. The unpacking code reads no more than these sizes."""
    try:
        if bytes(payload[: len(XERIAL)]) != XERIAL:
            whole: int = cramjam.snappy.decompress_raw_len(payload)
            return whole
        total, place = 0, XERIAL_HEADER_BYTES
        while place < len(payload):
            (size,) = struct.unpack_from(">i", payload, place)
            if size < 0:
                return total
            total += cramjam.snappy.decompress_raw_len(payload[place + 4 : place + 4 + size])
            place += 4 + size
    except (struct.error, cramjam.DecompressionError):
        return 0
    return total


def _is_gzip_within(payload: memoryview, most_bytes: int) -> bool:
    total, left = 0, bytes(payload)
    try:
        while left:  # several members may follow each other
            member = zlib.decompressobj(WITH_GZIP_HEADER)
            while left and not member.eof:
                total += len(member.decompress(left, PIECE_BYTES))
                if total > most_bytes:
                    return False
                left = member.unconsumed_tail
            left = member.unused_data.lstrip(b"\0")
    except zlib.error:
        return True
    return True
