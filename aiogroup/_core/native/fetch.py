"""What is done for each Fetch at the head: structures are made, the usual request is written, its answer is read.

The forms are those of versions 15 to 18. What is not usual (a tagged field, an array of more than 126) is left to the
general codec, which has two hundred calls for a request and its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from struct import Struct
from struct import error as struct_error
from types import CodeType, FunctionType
from typing import Any, Final
from uuid import UUID

__all__ = ["Maker", "read_fetch", "write_fetch"]

_API_KEY: Final = 1
_ONE_BYTE: Final = 0x80
"""A varint below this takes one byte."""
_LAST_OFFSET: Final = 0x7FFF_FFFF_FFFF_FFFF

_TOPIC: Final = Struct(">16sB")
_REQUEST_PARTITION: Final = Struct(">iiqiqix")  # the last byte says that there are no tags

_ANSWER: Final = Struct(">iBihiB")  # correlation id, tags, throttle, error, session, topics
_ANSWER_PARTITION: Final = Struct(">ihqqqBi")  # its number, error, three offsets, aborted transactions, replica


def Maker(structure: type[Any], names: tuple[str, ...]) -> Callable[..., Any]:  # noqa: N802 (a type where it is compiled)
    """A function that makes a `structure`, a frozen class with these slots, from their values in order.

    Raises:
        TypeError: the class has no such slot of its own; or, when it is called, too few values or too many.
    """
    if missing := [name for name in names if type(vars(structure).get(name)).__name__ != "member_descriptor"]:
        raise TypeError(f"{structure.__qualname__} has no slot {missing[0]!r}")
    # The twin is a plain class with the same slots, whose objects change their class when they are complete.
    # `make_dataclass` takes half a millisecond for each, and a consumer's start needs thirty.
    twin = type(structure.__name__, structure.__bases__, {"__slots__": names})
    code = _making(len(names))
    named = {f"field_{number}": name for number, name in enumerate(names)}
    code = code.replace(co_names=tuple(named.get(name, name) for name in code.co_names))
    return FunctionType(code, {"new": object.__new__, "twin": twin, "structure": structure})


@cache
def _making(count: int) -> CodeType:
    """A function that sets `count` fields. The names are replaced in compiled code, as compiling costs the most."""
    names = [f"field_{number}" for number in range(count)]
    body = "; ".join(("made = new(twin)", *(f"made.{name} = {name}" for name in names)))
    made: dict[str, Any] = {}
    exec(f"def make({', '.join(names)}): {body}; made.__class__ = structure; return made", made)  # noqa: S102 (no foreign text is in it)
    code: CodeType = made["make"].__code__
    return code


def write_fetch(
    message: Any,  # noqa: ANN401 (FetchRequest, which stands above this floor)
    version: int,
    correlation_id: int,
    client: bytes,
    end: bytes,
    _request: Callable[..., Any],
    _topic: Callable[..., Any],
    _partition: Callable[..., Any],
    no_replica: object,
    no_directory: object,
) -> bytes | None:
    """A Fetch request with its header, from version 15 on; `None` if the general encoder must write or refuse it.

    `end` is what stands behind the topics; `no_replica` and `no_directory` are the defaults of these fields. The three
    makers are those of the structures of which the message is made: compiled, they tell where the fields are.
    """
    if message.forgotten_topics_data != () or message.cluster_id is not None or message.replica_id != -1:
        return None
    try:
        if message.replica_state != no_replica:
            return None
        count = len(message.topics) + 1
        if count >= _ONE_BYTE:
            return None
        parts = [
            _head(len(client)).pack(
                _API_KEY, version, correlation_id, len(client), client,
                message.max_wait_ms, message.min_bytes, message.max_bytes, message.isolation_level,
                message.session_id, message.session_epoch, count,
            )
        ]  # fmt: skip
        for topic in message.topics:
            count = len(topic.partitions) + 1
            if not topic.topic_id.int or count >= _ONE_BYTE:
                return None
            parts.append(_TOPIC.pack(topic.topic_id.bytes, count))
            for each in topic.partitions:
                if each.replica_directory_id != no_directory or each.high_watermark != _LAST_OFFSET:
                    return None
                parts.append(
                    _REQUEST_PARTITION.pack(
                        each.partition, each.current_leader_epoch, each.fetch_offset, each.last_fetched_epoch,
                        each.log_start_offset, each.partition_max_bytes,
                    )
                )  # fmt: skip
            parts.append(b"\0")
    except (AttributeError, TypeError, struct_error):
        return None
    parts.append(end)
    return b"".join(parts)


@lru_cache(maxsize=64)
def _head(client_size: int) -> Struct:
    """What stands before the topics: API, version, correlation id, client's id and no tags; wait, least and most bytes,
    isolation, session, its epoch; the number of topics.
    """
    return Struct(f">hhih{client_size}sx iiibii B")


def read_fetch(
    frame: bytes | bytearray | memoryview,
    make_response: Callable[..., Any],
    make_topic: Callable[..., Any],
    make_partition: Callable[..., Any],
    uuid_of: Callable[[bytes], UUID],
    defaults: tuple[object, ...],
) -> tuple[int, Any] | None:
    """The correlation id and the answer to Fetch; `None` if the general decoder must read or refuse it.

    `defaults` are those of a partition's tagged fields: diverging epoch, current leader, snapshot. The records are
    slices of the frame.
    """
    view = memoryview(frame)
    try:
        correlation_id, has_tags, throttle_time_ms, error_code, session_id, count = _ANSWER.unpack_from(view)
        if has_tags or not 0 < count < _ONE_BYTE:
            return None
        topics, pos = [], _ANSWER.size
        for _ in range(count - 1):
            topic_id, count = _TOPIC.unpack_from(view, pos)
            if not 0 < count < _ONE_BYTE:
                return None
            pos += _TOPIC.size
            partitions = []
            for _ in range(count - 1):
                found = _read_partition(view, pos, make_partition, defaults)
                if found is None:
                    return None
                partition, pos = found
                partitions.append(partition)
            if view[pos]:
                return None
            pos += 1
            topics.append(make_topic("", uuid_of(topic_id), tuple(partitions)))
        if view[pos] or pos + 1 != len(view):
            return None
    except (IndexError, struct_error):
        return None
    return correlation_id, make_response(throttle_time_ms, error_code, session_id, tuple(topics), ())


def _read_partition(
    view: memoryview, pos: int, make_partition: Callable[..., Any], defaults: tuple[object, ...]
) -> tuple[Any, int] | None:
    """The partition at `pos`, and the position after it; `None` if the general decoder must read it."""
    index, error_code, high_watermark, stable, start, aborted, replica = _ANSWER_PARTITION.unpack_from(view, pos)
    pos += _ANSWER_PARTITION.size
    length, shift = view[pos], 7
    pos += 1
    if length >= _ONE_BYTE:
        length &= _ONE_BYTE - 1
        while shift <= 21 and (byte := view[pos]) >= _ONE_BYTE:
            length |= (byte & _ONE_BYTE - 1) << shift
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
    partition = make_partition(
        index, error_code, high_watermark, stable, start, *defaults, () if aborted else None, replica, records
    )
    return partition, pos + 1
