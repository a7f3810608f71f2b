"""Messages with their headers, as they are sent over a connection after their 4-byte sizes."""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from aiogroup._core.protocol.codec import NOTHING_APART, Reader, Writer
from aiogroup._core.protocol.compiler import Read, Write, decoder, encoder
from aiogroup._core.protocol.fetch_shortcut import read_answer, write_request
from aiogroup._core.protocol.messages import REQUESTS
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.schema import INT32, Structure, structure, wire
from aiogroup._core.protocol.versions import answered_version, lifting, lowering
from aiogroup._core.values import dataclass
from aiogroup.errors import ProtocolError, UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiogroup._core.protocol.schema import Message, R_co, Request, Response

M = TypeVar("M", bound="Message")
_Change: TypeAlias = "Callable[[Any], Any] | None"

# What is decided once for a message in one version. Bounded, as aiogroup declares the messages and versions.
_writing: dict[tuple[type[Message], int, bool], tuple[Write, _Change]] = {}
_reading: dict[tuple[type[Message], int, bool], tuple[Read, _Change]] = {}
_forms: dict[tuple[type[Request[Any]], int], tuple[bool, Read]] = {}
"""Of a request: whether it is flexible, and what reads the header of its answer."""

_HEADER: Final = Struct(">hhih")
"""The key of the API, its version, the correlation id, and the length of the client's id, -1 if there is none."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of every request; `client_id` may be null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@structure
class ResponseHeader(Structure):
    """The header of every answer."""

    correlation_id: int = wire(INT32)


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
    flexible, _ = _forms.get((kind, version)) or _form(kind, version)
    writer = Writer()
    client = b"" if client_id is None else client_id.encode()
    try:
        head = _HEADER.pack(kind.API_KEY, version, correlation_id, -1 if client_id is None else len(client))
    except struct_error as error:
        raise ValueError(str(error)) from None
    writer.data += head + client + b"\0" * flexible  # no tags
    write_message(writer, message, version, flexible)
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
    flexible, read_header = _forms.get((request_type, version)) or _form(request_type, version)
    reader = Reader(frame, apart)
    header: ResponseHeader = read_header(reader)
    if request_type is ApiVersionsRequest:
        version = answered_version(version, reader.view[reader.pos :])
        flexible = request_type.is_flexible(version)
    return header.correlation_id, cast("R_co", read_message(reader, request_type.RESPONSE, version, flexible))


def encode_response(request_type: type[Request[R_co]], message: Response, version: int, correlation_id: int) -> bytes:
    """An answer with its header, without the 4-byte size: the broker's side.

    Raises:
        UnsupportedVersionError: the request has no such `version`, or the version cannot carry a value that is set.
        ValueError: a value does not fit its field.
    """
    _form(request_type, version)
    writer = Writer()
    write_answer(writer, request_type, message, version, correlation_id)
    return bytes(writer.data)


def write_answer(
    writer: Writer, request_type: type[Request[Any]], message: Response, version: int, correlation_id: int
) -> None:
    """An answer with its header, whatever versions aiogroup's consumer speaks: the broker's side."""
    flexible = request_type.is_flexible(version)
    writer.int32(correlation_id)
    if flexible and request_type is not ApiVersionsRequest:  # as in `_form`
        writer.tags()
    write_message(writer, message, version, flexible)


def decode_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """The header alone, even if aiogroup does not know the request or its version.

    Raises:
        ProtocolError: the bytes are no header.
    """
    return read_request_header(Reader(frame))


def decode_request(frame: bytes | bytearray | memoryview) -> tuple[RequestHeader, Request[Any]]:
    """A request with its header: the broker's side.

    Raises:
        ProtocolError: the bytes are not as their header says.
        UnsupportedVersionError: aiogroup does not know this API, or this version of it.
    """
    reader = Reader(frame)
    header = read_request_header(reader)
    kind = REQUESTS.get(header.api_key)
    if kind is None:
        raise UnsupportedVersionError(f"aiogroup does not know the API {header.api_key}")
    flexible, _ = _form(kind, header.api_version)
    if flexible:
        reader.tags()
    return header, read_message(reader, kind, header.api_version, flexible)


def read_request_header(reader: Reader) -> RequestHeader:
    """The header, without the tags that flexible versions have behind it."""
    return RequestHeader(reader.int16(), reader.int16(), reader.int32(), reader.nullable_string())


def _form(kind: type[Request[Any]], version: int) -> tuple[bool, Read]:
    """As `_forms`, where it is not known yet that we speak this version."""
    if not kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        raise UnsupportedVersionError(
            f"aiogroup speaks {kind.MIN_VERSION} to {kind.MAX_VERSION} of {kind.api_name()}, not {version}: "
            "take the version from negotiate()"
        )
    flexible = kind.is_flexible(version)
    # A client that asks for ApiVersions does not know yet which versions the broker speaks. So the header of that
    # answer has no tags (KIP-511).
    form = _forms[kind, version] = flexible, decoder(ResponseHeader, 1, flexible and kind is not ApiVersionsRequest)
    return form


def write_message(writer: Writer, message: Message, version: int, flexible: bool) -> None:
    """The message alone."""
    kind = type(message)
    found = _writing.get((kind, version, flexible))
    if found is None:
        found = _writing[kind, version, flexible] = encoder(kind, version, flexible), lowering(kind, version)
    write, lower = found
    write(writer, message if lower is None else lower(message))


def read_message(reader: Reader, kind: type[M], version: int, flexible: bool, *, to_end: bool = True) -> M:
    """The message at the reader's place, which takes the rest of the frame if it goes `to_end`.

    Raises:
        ProtocolError: the bytes are no such message.
    """
    found = _reading.get((kind, version, flexible))
    if found is None:
        found = _reading[kind, version, flexible] = decoder(kind, version, flexible), lifting(kind, version)
    read, lift = found
    try:
        message: M = read(reader)
        if to_end:
            reader.end()
    except ProtocolError as error:
        raise ProtocolError(f"{kind.__name__} version {version}: {error}") from None
    return message if lift is None else lift(message)
