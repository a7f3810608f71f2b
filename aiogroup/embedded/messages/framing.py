"""Frames at the broker: requests are decoded within the ranges that are offered, answers become lists of buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiogroup._core.protocol.codec import Reader, Writer
from aiogroup._core.protocol.framing import RequestHeader, read_message, read_request_header, write_answer
from aiogroup.embedded.messages.ranges import RANGES, REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiogroup._core.protocol.schema import Request, Response, Value

__all__ = ["ApiNotOfferedError", "Batches", "NotOfferedError", "VersionNotOfferedError", "decode", "encode_answer"]

LEAST_APART: Final = 4096
"""Records of at least this size become a buffer of their own. A smaller piece is cheaper to copy."""


class NotOfferedError(Exception):
    """The request is not offered. Kafka breaks the connection then."""

    def __init__(self, header: RequestHeader, message: str) -> None:
        super().__init__(message)
        self.header = header


class ApiNotOfferedError(NotOfferedError):
    """No version of this API is offered."""


class VersionNotOfferedError(NotOfferedError):
    """Other versions of this request are offered. ApiVersions is then answered in version 0 with UNSUPPORTED_VERSION
    and the ranges (KIP-511).
    """

    def __init__(self, header: RequestHeader, request_type: type[Request[Any]], message: str) -> None:
        super().__init__(header, message)
        self.request_type = request_type


def decode(
    frame: bytes | bytearray | memoryview, ranges: Mapping[type[Request[Any]], tuple[int, int]] = RANGES
) -> tuple[RequestHeader, Request[Any]]:
    """A request with its header, from a frame without its size. Records are slices of the frame.

    Bytes after the request are ignored, as in Kafka.

    Raises:
        ProtocolError: the bytes are no request.
        ApiNotOfferedError: no version of the API is offered.
        VersionNotOfferedError: this version is not.
    """
    reader = Reader(frame)
    header = read_request_header(reader)
    version = header.api_version
    request_type = REQUESTS.get(header.api_key)
    offered = None if request_type is None else ranges.get(request_type)
    if request_type is None or offered is None:
        raise ApiNotOfferedError(header, f"the API {header.api_key} is not offered")
    lowest, highest = offered
    if not lowest <= version <= highest:
        name = request_type.api_name()
        raise VersionNotOfferedError(
            header, request_type, f"{name} is offered in versions {lowest} to {highest}, not {version}"
        )
    flexible = request_type.is_flexible(version)
    if flexible:
        reader.tags()
    return header, read_message(reader, request_type, version, flexible, to_end=False)


class Batches(tuple[bytes | memoryview, ...]):
    """Stored batches, one after the other, as the value of a partition's `records`."""

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self))

    def __bytes__(self) -> bytes:
        return b"".join(self)

    @classmethod
    def of(cls, batches: Iterable[bytes | memoryview]) -> Value:
        """The return type is that of any value, because the client's messages declare records as a single piece."""
        return cls(batches)


class _PartedWriter(Writer):
    """Keeps large records apart from `data`, each with its place in it."""

    __slots__ = ("apart", "apart_bytes")

    def __init__(self) -> None:
        super().__init__()
        self.apart: list[tuple[int, bytes | memoryview]] = []
        self.apart_bytes = 0

    def nullable_records(self, value: bytes | memoryview | Batches | None) -> None:
        if value is None:
            self.int32(-1)
        else:
            self.int32(_size(value))
            self._append(value)

    def compact_nullable_records(self, value: bytes | memoryview | Batches | None) -> None:
        if value is None:
            self.uvarint(0)
        else:
            self.uvarint(_size(value) + 1)
            self._append(value)

    def _append(self, value: bytes | memoryview | Batches) -> None:
        for piece in value if isinstance(value, Batches) else (value,):
            if len(piece) < LEAST_APART:
                self.data += piece
            else:
                self.apart.append((len(self.data), piece))
                self.apart_bytes += len(piece)

    def buffers(self) -> list[bytes | memoryview]:
        """All that was written, in order."""
        whole = bytes(self.data)
        if not self.apart:
            return [whole]
        view, begin = memoryview(whole), 0
        found: list[bytes | memoryview] = []
        for place, piece in self.apart:
            if place > begin:
                found.append(view[begin:place])
            found.append(piece)
            begin = place
        if begin < len(view):
            found.append(view[begin:])
        return found


def _size(value: bytes | memoryview | Batches) -> int:
    return value.size_bytes if isinstance(value, Batches) else len(value)


def encode_answer(
    request_type: type[Request[Any]], response: Response, version: int, correlation_id: int
) -> list[bytes | memoryview]:
    """An answer with its size and its header, as buffers to send in order. Large records are not copied.

    Raises:
        UnsupportedVersionError: the version cannot carry a value that is set.
        ValueError: a value does not fit its field.
    """
    writer = _PartedWriter()
    writer.int32(0)
    write_answer(writer, request_type, response, version, correlation_id)
    writer.data[:4] = (len(writer.data) - 4 + writer.apart_bytes).to_bytes(4)
    return writer.buffers()
