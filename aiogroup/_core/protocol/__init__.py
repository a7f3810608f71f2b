"""Kafka's requests and responses: bytes to values and back. Code outside of this package sees no versions."""

from __future__ import annotations

from aiogroup._core.protocol.errors import ErrorCode, ErrorRow, lookup
from aiogroup._core.protocol.framing import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from aiogroup._core.protocol.schema import Request, Response, negotiate

__all__ = [
    "ErrorCode",
    "ErrorRow",
    "Request",
    "RequestHeader",
    "Response",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "lookup",
    "negotiate",
]
