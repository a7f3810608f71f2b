"""Requests and answers in versions that a broker speaks and aiogroup's consumer does not: JoinGroup 0, Produce 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aiogroup._core.protocol.codec import Reader, Writer
from aiogroup._core.protocol.framing import read_message, write_message
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiogroup._core.protocol.versions import answered_version, lifting, lowering

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Message, R_co, Request


def encode_any_request(message: Request[Any], version: int, correlation_id: int, client_id: str | None) -> bytes:
    """`encode_request` for every version that exists."""
    flexible = message.is_flexible(version)
    writer = Writer()
    writer.int16(message.API_KEY)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.nullable_string(client_id)
    if flexible:
        writer.tags()
    write_message(writer, message, version, flexible)
    return bytes(writer.data)


def decode_any_response(request_type: type[Request[R_co]], version: int, frame: bytes | memoryview) -> tuple[int, R_co]:
    """`decode_response` for every version that exists."""
    reader = Reader(frame)
    correlation_id = reader.int32()
    if request_type.is_flexible(version) and request_type is not ApiVersionsRequest:
        reader.tags()
    if request_type is ApiVersionsRequest:
        version = answered_version(version, reader.view[reader.pos :])
    response = read_message(reader, request_type.RESPONSE, version, request_type.is_flexible(version))
    return correlation_id, cast("R_co", response)


def ranges_of(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    """Lowest and highest version by API key, as `negotiate` takes them."""
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def lowered(message: Message, version: int) -> Message:
    """The message as the table of `version` has it."""
    lower = lowering(type(message), version)
    return message if lower is None else lower(message)


def lifted(message: Message, version: int) -> Message:
    """The message as callers have it, of one that was read in `version`."""
    lift = lifting(type(message), version)
    return message if lift is None else lift(message)
