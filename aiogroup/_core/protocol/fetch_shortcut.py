"""Writes and reads the usual form of Fetch by topic id in one call: at the head every record costs one exchange.

`native` leaves to the general codec what it does not know (a tagged field, a version before 15, long arrays),
so nothing here has to raise.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from aiogroup._core.native import read_fetch, write_fetch
from aiogroup._core.protocol.codec import uuid_of
from aiogroup._core.protocol.compiler import maker
from aiogroup._core.protocol.constants import NO_REPLICA
from aiogroup._core.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aiogroup._core.protocol.schema import Structure, specs

__all__ = ["read_answer", "write_request"]

FIRST_VERSION: Final = 15
"""Since this version the request has no replica id. Answers have been the same since version 13."""
_ONE_BYTE: Final = 0x80
"""A varint below this takes one byte."""


def _default(structure: type[Structure], name: str) -> Any:  # noqa: ANN401 (as each field has its own type)
    return next(spec.default for spec in specs(structure) if spec.name == name)


_REQUEST: Final = (
    maker(FetchRequest), maker(FetchTopic), maker(FetchPartition),
    NO_REPLICA, _default(FetchPartition, "replica_directory_id"),
)  # fmt: skip
_UNUSED: Final = tuple(_default(PartitionData, name) for name in ("diverging_epoch", "current_leader", "snapshot_id"))
_ANSWER: Final = (maker(FetchResponse), maker(FetchableTopicResponse), maker(PartitionData), uuid_of, _UNUSED)


def write_request(message: FetchRequest, version: int, correlation_id: int, client_id: str | None) -> bytes | None:
    """The request with its header; `None` if the general encoder must write or refuse it."""
    if version < FIRST_VERSION or client_id is None:
        return None
    try:
        client, end = _around(client_id, message.rack_id)
    except (AttributeError, UnicodeError):
        return None
    return write_fetch(message, version, correlation_id, client, end, *_REQUEST) if end else None


@lru_cache(maxsize=64)
def _around(client_id: str, rack_id: str) -> tuple[bytes, bytes]:
    """The client's id, and what stands behind the topics: forgotten topics, rack, tags. No bytes of the latter if the
    rack's name is too long.
    """
    client, rack = client_id.encode(), rack_id.encode()
    return client, b"\1%c%b\0" % (len(rack) + 1, rack) if len(rack) + 1 < _ONE_BYTE else b""


def read_answer(frame: bytes | bytearray | memoryview, version: int) -> tuple[int, FetchResponse] | None:
    """The correlation id and the answer; `None` if the general decoder must read or refuse it."""
    return read_fetch(frame, *_ANSWER) if version >= FIRST_VERSION else None
