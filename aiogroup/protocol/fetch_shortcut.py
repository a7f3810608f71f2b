"""Writes and reads the usual form of Fetch by topic id in a few calls: at the head every record costs one exchange.

The general codec goes from field to field, with two hundred calls for a request and its answer. These functions leave
to it what they do not know (a tagged field, a version before 15, long arrays), so they never have to raise.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Final

from aiogroup.protocol.codec import uuid_of
from aiogroup.protocol.compiler import maker
from aiogroup.protocol.messages.fetch import (
    MAX_INT64,
    NO_REPLICA,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from aiogroup.protocol.schema import specs

__all__ = ["read_answer", "write_request"]

FIRST_VERSION: Final = 15
"""Since this version the request has no replica id. Answers have been the same since version 13."""
ONE_BYTE: Final = 0x80
"""A varint below this takes one byte."""

_TOPIC: Final = Struct(">16sB")
_REQUEST_PARTITION: Final = Struct(">iiqiqix")  # the last byte says that there are no tags

_ANSWER: Final = Struct(">iBihiB")  # correlation id, tags, throttle, error, session, topics
_ANSWER_PARTITION: Final = Struct(">ihqqqBi")  # its number, error, three offsets, aborted transactions, replica

_make_response = maker(FetchResponse)
_make_topic = maker(FetchableTopicResponse)
_make_partition = maker(PartitionData)
_defaults = {spec.name: spec.default for spec in specs(PartitionData)}


def write_request(message: FetchRequest, version: int, correlation_id: int, client_id: str | None) -> bytes | None:
    """The request with its header; `None` if the general encoder must write or refuse it."""
    is_plain = not message.forgotten_topics_data and message.cluster_id is None and message.replica_id == -1
    if version < FIRST_VERSION or client_id is None or not is_plain:
        return None
    if message.replica_state is not NO_REPLICA and message.replica_state != NO_REPLICA:
        return None
    try:
        client, head, end = _around(client_id, message.rack_id)
        count = len(message.topics) + 1
        if not end or count >= ONE_BYTE:
            return None
        parts = [
            head.pack(
                message.API_KEY, version, correlation_id, len(client), client,
                message.max_wait_ms, message.min_bytes, message.max_bytes, message.isolation_level,
                message.session_id, message.session_epoch, count,
            )
        ]  # fmt: skip
        for topic in message.topics:
            count = len(topic.partitions) + 1
            if not topic.topic_id.int or count >= ONE_BYTE:
                return None
            parts.append(_TOPIC.pack(topic.topic_id.bytes, count))
            for each in topic.partitions:
                if each.replica_directory_id.int or each.high_watermark != MAX_INT64:
                    return None
                parts.append(
                    _REQUEST_PARTITION.pack(
                        each.partition, each.current_leader_epoch, each.fetch_offset, each.last_fetched_epoch,
                        each.log_start_offset, each.partition_max_bytes,
                    )
                )  # fmt: skip
            parts.append(b"\0")
    except (AttributeError, TypeError, UnicodeError, struct_error):
        return None
    parts.append(end)
    return b"".join(parts)


@lru_cache(maxsize=64)
def _around(client_id: str, rack_id: str) -> tuple[bytes, Struct, bytes]:
    """The client's id, what stands before the topics, and the bytes after them: forgotten topics, rack, tags. No bytes
    if the rack's name is too long.
    """
    client, rack = client_id.encode(), rack_id.encode()
    # API, version, correlation id, client's id and no tags; wait, least and most bytes, isolation, session, its epoch;
    # the number of topics.
    head = Struct(f">hhih{len(client)}sx iiibii B")
    return client, head, b"\1%c%b\0" % (len(rack) + 1, rack) if len(rack) + 1 < ONE_BYTE else b""


def read_answer(frame: bytes | bytearray | memoryview, version: int) -> tuple[int, FetchResponse] | None:
    """The correlation id and the answer; `None` if the general decoder must read or refuse it."""
    if version < FIRST_VERSION:
        return None
    view = memoryview(frame)
    try:
        correlation_id, has_tags, throttle_time_ms, error_code, session_id, count = _ANSWER.unpack_from(view)
        if has_tags or not 0 < count < ONE_BYTE:
            return None
        topics, pos = [], _ANSWER.size
        for _ in range(count - 1):
            topic_id, count = _TOPIC.unpack_from(view, pos)
            if not 0 < count < ONE_BYTE:
                return None
            pos += _TOPIC.size
            partitions = []
            for _ in range(count - 1):
                found = _read_partition(view, pos)
                if found is None:
                    return None
                partition, pos = found
                partitions.append(partition)
            if view[pos]:
                return None
            pos += 1
            topics.append(_make_topic("", uuid_of(topic_id), tuple(partitions)))
        if view[pos] or pos + 1 != len(view):
            return None
    except (IndexError, struct_error):
        return None
    return correlation_id, _make_response(throttle_time_ms, error_code, session_id, tuple(topics), ())


def _read_partition(view: memoryview, pos: int) -> tuple[PartitionData, int] | None:
    """The partition at `pos`, and the position after it; `None` if the general decoder must read it."""
    index, error_code, high_watermark, stable, start, aborted, replica = _ANSWER_PARTITION.unpack_from(view, pos)
    pos += _ANSWER_PARTITION.size
    length, shift = view[pos], 7
    pos += 1
    if length >= ONE_BYTE:
        length &= ONE_BYTE - 1
        while shift <= 21 and (byte := view[pos]) >= ONE_BYTE:
            length |= (byte & ONE_BYTE - 1) << shift
            shift += 7
            pos += 1
        if shift > 21:
            return None
        length |= view[pos] << shift
        pos += 1
    records = view[pos : pos + length - 1] if length else None
    pos += max(0, length - 1)
    if aborted > 1 or view[pos]:  # a transaction, or tags
        return None
    partition = _make_partition(
        index, error_code, high_watermark, stable, start,
        _defaults["diverging_epoch"], _defaults["current_leader"], _defaults["snapshot_id"],
        () if aborted else None, replica, records,
    )  # fmt: skip
    return partition, pos + 1
