"""Kafka's primitive types: bytes to values (`Reader`) and values to bytes (`Writer`).

A peer may send any bytes. So a reader compares every length and count with the remaining bytes before it allocates
memory, and it raises nothing but `ProtocolError`. aiokafka's own types are not used, because its tagged fields and its
varlong write wrong bytes.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from aiogroup.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

ZERO_UUID = UUID(int=0)
"""Kafka's "no topic id"."""

NOTHING_APART: Mapping[int, memoryview] = MappingProxyType({})

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_UINT16 = Struct(">H")
_UINT32 = Struct(">I")
_FLOAT64 = Struct(">d")

_MAX_STRING_BYTES = 0x7FFF
_MAX_INT32 = 0x7FFF_FFFF


@lru_cache(maxsize=8192)
def uuid_of(raw: bytes) -> UUID:
    """The UUID with these 16 bytes."""
    # Fetch responses name the same topics each time, and making a UUID costs more than reading the rest of a topic.
    return UUID(bytes=raw)


@lru_cache(maxsize=256)
def numbers(count: int, letter: str) -> Struct:
    """The layout of an array of numbers."""
    return Struct(f">{count}{letter}")


@lru_cache(maxsize=1024)
def varint(value: int) -> bytes:
    """An unsigned number of at most 32 bits."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise ValueError(f"{value} is no unsigned number of 32 bits")
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


@lru_cache(maxsize=1024)
def string_size(count: int) -> bytes:
    """What stands before the bytes of a compact string."""
    return varint(_checked(count) + 1)


def _checked(count: int) -> int:
    if count > _MAX_STRING_BYTES:
        raise ValueError(f"a string of {count} bytes: Kafka's strings have at most {_MAX_STRING_BYTES}")
    return count


class Reader:
    """Reads the values of one frame in order; `pos` is the next byte.

    `apart` holds, by their place in the frame, records that were taken out of it while it was received.
    """

    __slots__ = ("_apart", "pos", "view")

    def __init__(self, data: bytes | bytearray | memoryview, apart: Mapping[int, memoryview] = NOTHING_APART) -> None:
        self.view = memoryview(data)
        self.pos = 0
        self._apart = dict(apart)

    @property
    def remaining(self) -> int:
        return len(self.view) - self.pos

    def short(self, needed: int, *more: int) -> ProtocolError:
        """The error for missing bytes, of the first of these neighbours that is cut off; the caller raises it."""
        pos, end = self.pos, len(self.view)
        for size in more:
            if pos + needed > end:
                break
            pos, needed = pos + needed, size
        return ProtocolError(f"{needed} bytes needed at byte {pos} of a frame of {end}")

    def end(self) -> None:
        """Check that no bytes are left over.

        Raises:
            ProtocolError: bytes are left over.
        """
        if self.pos != len(self.view) or self._apart:
            raise ProtocolError(f"{self.remaining} bytes left over after byte {self.pos}")

    def fixed(self, layout: Struct) -> tuple[Any, ...]:
        """The values of a run of fixed-width fields."""
        pos = self.pos
        try:
            values = layout.unpack_from(self.view, pos)
        except struct_error:
            raise self.short(layout.size) from None
        self.pos = pos + layout.size
        return values

    def int8(self) -> int:
        return self.fixed(_INT8)[0]  # type: ignore[no-any-return]

    def int16(self) -> int:
        return self.fixed(_INT16)[0]  # type: ignore[no-any-return]

    def int32(self) -> int:
        return self.fixed(_INT32)[0]  # type: ignore[no-any-return]

    def int64(self) -> int:
        return self.fixed(_INT64)[0]  # type: ignore[no-any-return]

    def uint16(self) -> int:
        return self.fixed(_UINT16)[0]  # type: ignore[no-any-return]

    def uint32(self) -> int:
        return self.fixed(_UINT32)[0]  # type: ignore[no-any-return]

    def float64(self) -> float:
        return self.fixed(_FLOAT64)[0]  # type: ignore[no-any-return]

    def boolean(self) -> bool:
        return self.int8() != 0

    def uvarint(self) -> int:
        """At most 32 bits."""
        view, pos = self.view, self.pos
        if pos < len(view) and (byte := view[pos]) < 0x80:
            self.pos = pos + 1
            return byte
        value = shift = 0
        while pos < len(view):
            byte = view[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    raise ProtocolError(f"the varint at byte {self.pos} is larger than 32 bits")
                self.pos = pos
                return value
            shift += 7
            if shift >= 32:
                raise ProtocolError(f"the varint at byte {self.pos} is longer than 32 bits")
        raise self.short(pos - self.pos + 1)

    def longer(self) -> int:
        """As `uvarint`, where the first byte was read already."""
        self.pos -= 1
        return self.uvarint()

    def uuid(self) -> UUID:
        return uuid_of(bytes(self.slice(16)))

    def slice(self, length: int) -> memoryview:
        """`length` bytes of the frame itself, not a copy: they keep the whole frame alive."""
        pos = self.pos
        end = pos + length
        if end > len(self.view):
            raise self.short(length)
        self.pos = end
        return self.view[pos:end]

    def _length(self, length: int, what: str) -> int | None:
        if length < -1:
            raise ProtocolError(f"{what} of length {length} before byte {self.pos}")
        return None if length == -1 else length

    def _present(self, value: T | None, what: str) -> T:
        if value is None:
            raise ProtocolError(f"null before byte {self.pos} where a {what} must be")
        return value

    def text(self, length: int) -> str:
        """A string of this length; one below 0 is refused."""
        if length < 0:
            self._present(self._length(length, "string"), "string")
        pos = self.pos
        end = pos + length
        if end > len(self.view):
            raise self.short(length)
        self.pos = end
        try:
            return str(self.view[pos:end], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"the string before byte {end} is not UTF-8: {error.reason}") from None

    def nullable_text(self, length: int) -> str | None:
        """A string of this length; -1 means null."""
        return None if length == -1 else self.text(length)

    def nullable_string(self) -> str | None:
        return self.nullable_text(self.int16())

    def string(self) -> str:
        return self.text(self.int16())

    def compact_nullable_string(self) -> str | None:
        return self.nullable_text(self.uvarint() - 1)

    def compact_string(self) -> str:
        return self.text(self.uvarint() - 1)

    def nullable_records(self) -> memoryview | None:
        """A slice of the frame, not a copy: it keeps the whole frame alive."""
        length = self._length(self.int32(), "bytes")
        return None if length is None else self.slice(length)

    def compact_nullable_records(self) -> memoryview | None:
        """Records that were received apart, or a slice of the frame, not a copy, which keeps the whole frame alive."""
        length = self.uvarint() - 1
        if self._apart and (records := self._apart.pop(self.pos, None)) is not None:
            if len(records) != length:
                raise ProtocolError(f"{len(records)} bytes of records at byte {self.pos}, and {length} were announced")
            return records
        return None if length < 0 else self.slice(length)

    def records(self) -> memoryview:
        return self._present(self.nullable_records(), "records")

    def compact_records(self) -> memoryview:
        return self._present(self.compact_nullable_records(), "records")

    def nullable_bytes(self) -> bytes | None:
        value = self.nullable_records()
        return None if value is None else bytes(value)

    def bytes_(self) -> bytes:
        return self._present(self.nullable_bytes(), "byte string")

    def compact_nullable_bytes(self) -> bytes | None:
        value = self.compact_nullable_records()
        return None if value is None else bytes(value)

    def compact_bytes(self) -> bytes:
        return self._present(self.compact_nullable_bytes(), "byte string")

    def check_count(self, count: int, element_bytes: int, *, nullable: bool = False) -> None:
        """Refuse an array of `count` elements, if the frame is too short for that many; -1 means null."""
        if count * element_bytes > len(self.view) - self.pos:
            raise ProtocolError(f"array of {count} elements before byte {self.pos}, and {self.remaining} bytes left")
        if self._length(count, "array") is None and not nullable:
            self._present(None, "array")

    def nullable(self, read: Callable[[Reader], T]) -> T | None:
        """A structure, or None."""
        marker = self.int8()
        if marker == -1:
            return None
        if marker != 1:
            raise ProtocolError(f"{marker} before byte {self.pos} where 1 (a structure) or -1 (null) must be")
        return read(self)

    def tags(self, known: dict[int, Callable[[Reader], Any]] | None = None) -> dict[int, Any]:
        """The tagged fields (KIP-482) that are `known`; others are skipped."""
        found: dict[int, Any] = {}
        last = -1
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            if tag <= last:
                raise ProtocolError(f"tag {tag} after tag {last} before byte {self.pos}")
            last = tag
            body = self.slice(self.uvarint())
            read = known.get(tag) if known else None
            if read is not None:
                inner = Reader(body)
                found[tag] = read(inner)
                inner.end()
        return found


class Writer:
    """Appends values to `data`."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def fixed(self, layout: Struct, *values: float) -> None:
        try:
            self.data += layout.pack(*values)
        except struct_error as error:
            raise ValueError(str(error)) from None

    def int8(self, value: int) -> None:
        self.fixed(_INT8, value)

    def int16(self, value: int) -> None:
        self.fixed(_INT16, value)

    def int32(self, value: int) -> None:
        self.fixed(_INT32, value)

    def int64(self, value: int) -> None:
        self.fixed(_INT64, value)

    def uint16(self, value: int) -> None:
        self.fixed(_UINT16, value)

    def uint32(self, value: int) -> None:
        self.fixed(_UINT32, value)

    def float64(self, value: float) -> None:
        self.fixed(_FLOAT64, value)

    def boolean(self, value: bool) -> None:
        self.data.append(value)

    def uvarint(self, value: int) -> None:
        self.data += varint(value)

    def uuid(self, value: UUID) -> None:
        self.data += value.bytes

    def nullable_string(self, value: str | None) -> None:
        self.int16(-1) if value is None else self.string(value)

    def string(self, value: str) -> None:
        raw = value.encode()
        self.data += _INT16.pack(_checked(len(raw)))
        self.data += raw

    def compact_nullable_string(self, value: str | None) -> None:
        self.data.append(0) if value is None else self.compact_string(value)

    def compact_string(self, value: str) -> None:
        raw = value.encode()
        self.data += string_size(len(raw))
        self.data += raw

    def nullable_bytes(self, value: bytes | memoryview | None) -> None:
        self.int32(-1) if value is None else self.bytes_(value)

    def bytes_(self, value: bytes | memoryview) -> None:
        self.int32(len(value))
        self.data += value

    def compact_nullable_bytes(self, value: bytes | memoryview | None) -> None:
        self.data.append(0) if value is None else self.compact_bytes(value)

    def compact_bytes(self, value: bytes | memoryview) -> None:
        if len(value) > _MAX_INT32:
            raise ValueError(f"{len(value)} bytes are more than a field can carry")
        self.uvarint(len(value) + 1)
        self.data += value

    def nullable_records(self, value: bytes | memoryview | None) -> None:
        self.nullable_bytes(value)

    def compact_nullable_records(self, value: bytes | memoryview | None) -> None:
        self.compact_nullable_bytes(value)

    def nullable(self, value: T | None, write: Callable[[Writer, T], None]) -> None:
        """A structure, or None."""
        self.int8(-1 if value is None else 1)
        if value is not None:
            write(self, value)

    def tags(self, fields: dict[int, bytes | bytearray] | None = None) -> None:
        """Write tagged fields (KIP-482), given by tag and already encoded."""
        if not fields:
            self.data.append(0)
            return
        self.uvarint(len(fields))
        for tag in sorted(fields):
            self.uvarint(tag)
            self.uvarint(len(fields[tag]))
            self.data += fields[tag]
