"""Decompression with a bound on its output, so that a small batch cannot fill the memory."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import cramjam

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_STREAMS: Final = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
_OUTPUT_FULL: Final = "failed to write whole buffer"

_SMALLEST_GUESS_BYTES: Final = 64 * 1024
_GUESSED_RATIO: Final = 4
_GROWTH: Final = 8

_GZIP_MAGIC: Final = b"\x1f\x8b"
_WITH_GZIP_HEADER: Final = 31

_LZ4_FLAGS_AT: Final = 4  # behind the frame's magic number; the header is flags, block size, content size, dictionary
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_HAS_DICTIONARY: Final = 0x01
_XXH32_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)

# The header that xerial's snappy-java (all Java producers) puts before its blocks; two version numbers follow it.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_SIZE: Final = struct.Struct(">i")

# A snappy copy of 2 or 3 bytes yields at most 64 bytes: a larger declared size is false, and no memory is taken for it.
_SNAPPY_MAX_RATIO: Final = 32


class CodecError(ValueError):
    """The bytes cannot be decompressed, or would need more memory than allowed; the message says which."""


def inflate(codec: int, packed: memoryview, max_bytes: int) -> bytearray | memoryview:
    """Decompress one batch's payload.

    Never holds more than about `max_bytes` of output, whatever the input claims.

    Raises:
        CodecError: unknown codec, damaged bytes, or an output larger than `max_bytes`.
    """
    if codec == SNAPPY:
        if bytes(packed[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            return _inflate_xerial(packed, max_bytes)
        return _inflate_snappy(packed, max_bytes)
    if codec in _STREAMS:
        return _inflate_stream(codec, packed, max_bytes)
    raise CodecError(f"unknown compression {codec}")


def _too_large(max_bytes: int) -> CodecError:
    return CodecError(f"the batch decompresses to more than max_batch_bytes={max_bytes}")


def _inflate_stream(codec: int, packed: memoryview, max_bytes: int) -> memoryview:
    """Guess the size of the output, and retry with a larger guess while it does not fit.

    The formats need not declare the size, and cramjam has no incremental decoder. With these factors a retry is rare,
    and all retries together cost at most a seventh of the last pass.
    """
    guess = max(_SMALLEST_GUESS_BYTES, _GUESSED_RATIO * len(packed))
    while True:
        out = bytearray(min(guess, max_bytes))
        try:
            size: int = _STREAMS[codec].decompress_into(packed, out)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                if codec == GZIP:
                    return memoryview(_inflate_gzip(packed, max_bytes))
                raise CodecError(f"damaged compressed bytes: {error}") from error
        else:
            if 2 * size < len(out):
                del out[size:]  # otherwise a guess that is far too large stays in memory
            return memoryview(out)[:size]
        if guess >= max_bytes:
            raise _too_large(max_bytes)
        guess *= _GROWTH


def _inflate_gzip(packed: memoryview, max_bytes: int) -> bytearray:
    """The members of gzip before bytes that are none: some producers fill up with zeros. cramjam refuses what
    librdkafka and Java (GZIPInputStream) pass over.
    """
    out, left = bytearray(), bytes(packed)
    while not out or left.startswith(_GZIP_MAGIC):
        member = zlib.decompressobj(_WITH_GZIP_HEADER)
        try:
            out += member.decompress(left, max_bytes - len(out) + 1)
        except zlib.error as error:
            raise CodecError(f"damaged compressed bytes: {error}") from error
        if len(out) > max_bytes:
            raise _too_large(max_bytes)
        if not member.eof:
            raise CodecError("damaged compressed bytes: gzip is cut off")
        left = member.unused_data
    return out


def with_header_checksum(packed: memoryview) -> memoryview:
    """A frame of LZ4 with the right checksum of its header. In messages of format 0 it may be a wrong one, and Java
    does not look at it there: producers before Kafka 0.10 took it over the magic number, too (KAFKA-3160).
    """
    if len(packed) <= _LZ4_FLAGS_AT:
        return packed
    flags = packed[_LZ4_FLAGS_AT]
    end = _LZ4_FLAGS_AT + 2 + (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & _LZ4_HAS_DICTIONARY else 0)
    if len(packed) <= end:
        return packed
    frame = bytearray(packed)
    frame[end] = _xxh32_short(bytes(frame[_LZ4_FLAGS_AT:end])) >> 8 & 0xFF
    return memoryview(frame)


def _xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0, of less than 16 bytes."""
    mask, (prime_1, prime_2, prime_3, prime_4, prime_5) = 0xFFFFFFFF, _XXH32_PRIMES
    value, whole = prime_5 + len(data), len(data) & ~3
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * prime_3 & mask
        value = (value << 17 | value >> 15) * prime_4 & mask
    for byte in data[whole:]:
        value = value + byte * prime_5 & mask
        value = (value << 11 | value >> 21) * prime_1 & mask
    value = (value ^ value >> 15) * prime_2 & mask
    value = (value ^ value >> 13) * prime_3 & mask
    return value ^ value >> 16


def _inflate_snappy(packed: memoryview, max_bytes: int) -> bytearray:
    size = _snappy_bytes(packed)
    if size > max_bytes:
        raise _too_large(max_bytes)
    if size > _SNAPPY_MAX_RATIO * len(packed):
        raise CodecError(f"damaged compressed bytes: {len(packed)} bytes of snappy cannot hold {size}")
    out = bytearray(size)
    try:
        written: int = cramjam.snappy.decompress_raw_into(packed, out)
    except cramjam.DecompressionError as error:
        raise CodecError(f"damaged compressed bytes: {error}") from error
    if written != size:
        raise CodecError(f"damaged compressed bytes: snappy block of {written} bytes instead of {size}")
    return out


def _snappy_bytes(packed: memoryview) -> int:
    """What the block says that it holds."""
    try:
        return int(cramjam.snappy.decompress_raw_len(packed))
    except cramjam.DecompressionError as error:
        raise CodecError(f"damaged compressed bytes: {error}") from error


def _inflate_xerial(packed: memoryview, max_bytes: int) -> bytearray:
    out = bytearray()
    pos = _XERIAL_HEADER_BYTES
    while pos < len(packed):
        if pos + _BLOCK_SIZE.size > len(packed):
            raise CodecError("damaged compressed bytes: cut off in a snappy block's size")
        (block_bytes,) = _BLOCK_SIZE.unpack_from(packed, pos)
        pos += _BLOCK_SIZE.size
        if not 0 < block_bytes <= len(packed) - pos:
            raise CodecError(f"damaged compressed bytes: snappy block of {block_bytes} bytes")
        block = packed[pos : pos + block_bytes]
        if _snappy_bytes(block) > max_bytes - len(out):
            raise _too_large(max_bytes)
        out += _inflate_snappy(block, max_bytes)
        pos += block_bytes
    return out
