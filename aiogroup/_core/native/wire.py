"""Reads the records of a v2 batch in Python only: for `pure.Reader`, when aiokafka's decoder refuses a record."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["RawRecord", "RawRecords"]

_LOG_APPEND_TIME: Final = 0x08
_HEADER: Final = struct.Struct(">q13xh4xqq18x")  # base offset, attributes, base and max timestamp


class RawRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RawRecords:
    """Accepts the records that Java's consumer accepts; each length is checked against the record that contains it."""

    def __init__(self, frame: memoryview, begin: int) -> None:
        """The first `begin` records were read before and are skipped."""
        self._base_offset, attributes, self._base_timestamp, max_timestamp = _HEADER.unpack_from(frame)
        self._append_time: int | None = max_timestamp if attributes & _LOG_APPEND_TIME else None
        self._data = bytes(frame[_HEADER.size :])
        self._pos = 0
        for _ in range(begin):
            self.skip()

    def next(self, from_offset: int) -> RawRecord:
        """The next record. One below `from_offset` is returned without its content, which is not checked.

        Raises:
            ValueError: it is damaged.
        """
        pos, end = self._open()
        since, pos = _number(self._data, pos + 1, end)  # after the attributes, which have no meaning yet
        delta, pos = _number(self._data, pos, end)
        timestamp = _as_int64(self._base_timestamp + since) if self._append_time is None else self._append_time
        record = RawRecord(self._base_offset + delta, timestamp)
        if record.offset >= from_offset:
            record = self._fill(record, pos, end)
        self._pos = end
        return record

    def skip(self) -> int:
        """Skip a record, whatever it holds. Returns the position of its attributes."""
        at, self._pos = self._open()
        return at

    def finish(self) -> None:
        """Check, after all records were read, that the batch ends. Raises ValueError if bytes are left over."""
        if self._pos != len(self._data):
            raise ValueError("bytes are left behind the last record")

    def _open(self) -> tuple[int, int]:
        """The positions of the next record's attributes and of its end."""
        size, pos = _number(self._data, self._pos, len(self._data))
        if not 1 <= size <= len(self._data) - pos:
            raise ValueError("a record's size points behind the batch's end")
        return pos, pos + size

    def _fill(self, record: RawRecord, pos: int, end: int) -> RawRecord:
        data = self._data
        key, pos = _sized(data, pos, end)
        value, pos = _sized(data, pos, end)
        count, pos = _number(data, pos, end)
        if not 0 <= count <= end - pos:
            raise ValueError("a record cannot have so many headers")
        headers = []
        for _ in range(count):
            name, pos = _sized(data, pos, end)
            if name is None:
                raise ValueError("a header has no name")
            content, pos = _sized(data, pos, end)
            headers.append((name.decode(errors="replace"), content))
        if pos != end:
            raise ValueError("bytes are left behind a record")
        return record._replace(key=key, value=value, headers=tuple(headers))


def _number(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """The zigzag number of at most 64 bits at `pos`, and the position after it."""
    raw = 0
    for shift in range(0, 64, 7):
        if pos >= end:
            break
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1 & 2**63 - 1) ^ -(raw & 1), pos
    raise ValueError("a record is cut off")


def _sized(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    """Bytes that follow their length, `None` if the length is negative, and the position after them."""
    size, pos = _number(data, pos, end)
    if size > end - pos:
        raise ValueError("a length points behind the record's end")
    return (data[pos : pos + size], pos + size) if size >= 0 else (None, pos)


def _as_int64(number: int) -> int:
    """As in C, where sums wrap around."""
    return (number + 2**63) % 2**64 - 2**63
