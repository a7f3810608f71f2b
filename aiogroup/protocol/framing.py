"""Messages with their headers, as they are sent over a connection after their 4-byte sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aiogroup.errors import ProtocolError, UnsupportedVersionError
from aiogroup.protocol.codec import NOTHING_APART, Reader, Writer
from aiogroup.protocol.compiler import decoder, encoder
from aiogroup.protocol.fetch_shortcut import read_answer, write_request
from aiogroup.protocol.messages import REQUESTS
from aiogroup.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup.protocol.messages.fetch import FetchRequest
from aiogroup.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiogroup.protocol.schema import Message, R_co, Request, Response


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of every request; `client_id` may be null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(message: Request[Any], version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request with its header, without the 4-byte size.

    Raises:
        UnsupportedVersionError: the request has no such `version`, or the version cannot carry a value that is set.
        ValueError: a value does not fit its field.
    """
    kind = type(message)
    if kind is FetchRequest and version <= FetchRequest.MAX_VERSION:
        written = write_request(message, version, correlation_id, client_id)  # type: ignore[arg-type]
        if written is not None:
            return written
    flexible = _flexible(kind, version)
    writer = Writer()
    writer.int16(kind.API_KEY)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.nullable_string(client_id)
    if flexible:
        writer.tags()
    _write(writer, message, version, flexible)
    return bytes(writer.data)


def decode_response(
    request_type: type[Request[R_co]],
    version: int,
    frame: bytes | bytearray | memoryview,
    apart: Mapping[int, memoryview] = NOTHING_APART,
) -> tuple[int, R_co]:
    """The correlation id and the answer to a request that was sent in `version`.

    Records in it are slices of `frame` and keep it alive, except those received `apart`, given by their place in it.

    Raises:
        ProtocolError: the bytes are no such answer; close the connection, as the next frame cannot be found.
    """
    if request_type is FetchRequest and not apart and version <= FetchRequest.MAX_VERSION:
        read = read_answer(frame, version)
        if read is not None:
            return read  # type: ignore[return-value]  # R_co is FetchResponse here
    flexible = _flexible(request_type, version)
    reader = Reader(frame, apart)
    correlation_id = reader.int32()
    if flexible and request_type is not ApiVersionsRequest:
        reader.tags()
    kind = request_type.RESPONSE
    answered = kind.answered_version(version, reader.view[reader.pos :])
    return correlation_id, cast("R_co", _read(reader, kind, answered, request_type.is_flexible(answered)))


def encode_response(request_type: type[Request[R_co]], message: Response, version: int, correlation_id: int) -> bytes:
    """An answer with its header, without the 4-byte size: the broker's side.

    Raises:
        UnsupportedVersionError: the request has no such `version`, or the version cannot carry a value that is set.
        ValueError: a value does not fit its field.
    """
    flexible = _flexible(request_type, version)
    writer = Writer()
    writer.int32(correlation_id)
    # A client that asks for ApiVersions does not know yet which versions the broker speaks. So the header of that
    # answer has no tags (KIP-511).
    if flexible and request_type is not ApiVersionsRequest:
        writer.tags()
    _write(writer, message, version, flexible)
    return bytes(writer.data)


def decode_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """The header alone, even if aiogroup does not know the request or its version.

    Raises:
        ProtocolError: the bytes are no header.
    """
    return _read_header(Reader(frame))


def decode_request(frame: bytes | bytearray | memoryview) -> tuple[RequestHeader, Request[Any]]:
    """A request with its header: the broker's side.

    Raises:
        ProtocolError: the bytes are not as their header says.
        UnsupportedVersionError: aiogroup does not know this API, or this version of it.
    """
    reader = Reader(frame)
    header = _read_header(reader)
    kind = REQUESTS.get(header.api_key)
    if kind is None:
        raise UnsupportedVersionError(f"aiogroup does not know the API {header.api_key}")
    flexible = _flexible(kind, header.api_version)
    if flexible:
        reader.tags()
    return header, cast("Request[Any]", _read(reader, kind, header.api_version, flexible))


def _read_header(reader: Reader) -> RequestHeader:
    return RequestHeader(reader.int16(), reader.int16(), reader.int32(), reader.nullable_string())


def _flexible(kind: type[Request[Any]], version: int) -> bool:
    if not kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        raise UnsupportedVersionError(
            f"aiogroup speaks {kind.MIN_VERSION} to {kind.MAX_VERSION} of {kind.api_name()}, not {version}: "
            "take the version from negotiate()"
        )
    return kind.is_flexible(version)


def _write(writer: Writer, message: Message, version: int, flexible: bool) -> None:
    form = message.lower(version)
    encoder(type(form), version, flexible)(writer, form)


def _read(reader: Reader, kind: type[Message], version: int, flexible: bool) -> Message:
    try:
        form = decoder(kind.form(version), version, flexible)(reader)
        reader.end()
    except ProtocolError as error:
        raise ProtocolError(f"{kind.__name__} version {version}: {error}") from None
    return kind.lift(version, form)
