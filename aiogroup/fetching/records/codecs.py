"""Decompression with a bound on its output, so that a small batch cannot fill the memory."""

from __future__ import annotations

import struct
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
    return CodecError(f"the batch decompresses to more than {max_bytes} bytes")


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
                raise CodecError(f"damaged compressed bytes: {error}") from error
        else:
            if 2 * size < len(out):
                del out[size:]  # otherwise a guess that is far too large stays in memory
            return memoryview(out)[:size]
        if guess >= max_bytes:
            raise _too_large(max_bytes)
        guess *= _GROWTH


def _inflate_snappy(packed: memoryview, max_bytes: int) -> bytearray:
    try:
        size: int = cramjam.snappy.decompress_raw_len(packed)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size > _SNAPPY_MAX_RATIO * len(packed):
            raise CodecError(f"damaged compressed bytes: {len(packed)} bytes of snappy cannot hold {size}")
        out = bytearray(size)
        written: int = cramjam.snappy.decompress_raw_into(packed, out)
    except cramjam.DecompressionError as error:
        raise CodecError(f"damaged compressed bytes: {error}") from error
    if written != size:
        raise CodecError(f"damaged compressed bytes: snappy block of {written} bytes instead of {size}")
    return out


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
        out += _inflate_snappy(packed[pos : pos + block_bytes], max_bytes - len(out))
        pos += block_bytes
    return out
