"""OffsetFetch (9).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID16,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)

if TYPE_CHECKING:
    from uuid import UUID


@structure
class OffsetFetchResponsePartition(Structure):
    """The responses per partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=5, default=-1, ignorable=True)
    metadata: str | None = wire(STRING, nullable=0)
    error_code: int = wire(INT16)


@structure
class OffsetFetchResponseTopic(Structure):
    """The responses per topic."""

    name: str = wire(STRING, until=9, ignorable=True)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(array(OffsetFetchResponsePartition))


@structure
class OffsetFetchResponseGroup(Structure):
    """The responses per group id."""

    group_id: str = wire(STRING)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(array(OffsetFetchResponseTopic))
    error_code: int = wire(INT16)


@structure
class OffsetFetchResponse(Response):
    """The answer to `OffsetFetchRequest`."""

    throttle_time_ms: int = wire(INT32, since=3, ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(array(OffsetFetchResponseTopic), until=7)
    error_code: int = wire(INT16, since=2, until=7, ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(array(OffsetFetchResponseGroup), since=8)


@structure
class OffsetFetchRequestTopic(Structure):
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = wire(STRING, until=9, ignorable=True)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@structure
class OffsetFetchRequestGroup(Structure):
    """Each group we would like to fetch offsets for."""

    group_id: str = wire(STRING)
    member_id: str | None = wire(STRING, since=9, nullable=9, default=None, ignorable=True)
    member_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(array(OffsetFetchRequestTopic), nullable=0)


@structure
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Asks for the committed offsets of `groups`, up to version 7 of one; `topics=None` asks for everything that a
    group committed (since version 2), `require_stable` waits for transactions to end (KIP-447). Check a group's
    `error_code` first; version 1 has it on the partitions. An offset of -1: none is committed.
    """

    API_KEY = 9
    MIN_VERSION = 1
    MAX_VERSION = 10
    FLEXIBLE_SINCE = 6
    RESPONSE = OffsetFetchResponse

    group_id: str = wire(STRING, until=7)
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(array(OffsetFetchRequestTopic), until=7, nullable=2)
    groups: tuple[OffsetFetchRequestGroup, ...] = wire(array(OffsetFetchRequestGroup), since=8)
    require_stable: bool = wire(BOOLEAN, since=7)
