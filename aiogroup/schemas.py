"""Avro, Protobuf and JSON Schema with a schema registry, by the asynchronous deserializers of confluent-kafka.

The extra `aiogroup[schemas]` brings these. Nothing else of aiogroup imports this.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator
from traceback import walk_tb
from typing import Final, Generic, Literal, TypeVar

try:
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from confluent_kafka.serialization import MessageField, SerializationContext
except ImportError as error:
    message = "aiogroup.schemas needs confluent-kafka 2.16: pip install 'aiogroup[schemas]'"
    raise type(error)(message, name=error.name) from error

from aiogroup._runtime.loop.clock import timeout_ms as within
from aiogroup.errors import AiogroupError, ConfigError, RecordDeserializationError
from aiogroup.records import Record

__all__ = ["Decoder", "RegistryUnavailableError"]

T = TypeVar("T")

NOT_KNOWN: Final = range(40400, 40500)
"""The registry's own codes. A plain 404 is of a wrong path, and the JSON of a gateway has no code, or a text."""

CLIENT: Final = AsyncSchemaRegistryClient.__module__
HTTP: Final = ("httpx", "httpx2")
"""confluent-kafka takes the one that is installed."""


class RegistryUnavailableError(AiogroupError):
    """The schema registry did not say what a record's schema is: the record itself may be good.

    Try the record again; do not give it up. `__cause__` is confluent-kafka's error.
    """

    retriable = True


class Decoder(Generic[T]):
    """Decodes the value or the key of records by a deserializer of confluent-kafka: `order = await decoder(record)`.

    The deserializer sees the topic, the field and the headers of the record. It is an asynchronous one, since the first
    record of a schema makes it ask the registry, as every record may do with data contracts: a deserializer that is not
    awaited would hold the event loop, and with it the heartbeats, until the registry answers. For the same reason a
    consumer takes none of them as its `value_deserializer`: it has the record's bytes, and so has a dead letter.

    Args:
        deserializer: an `AsyncAvroDeserializer`, `AsyncProtobufDeserializer` or `AsyncJSONDeserializer` of
            confluent-kafka, or one of your own that is called and awaited in the same way.
        field: which part of the record is decoded.
        timeout_ms: how long one record may take, with all look-ups. confluent-kafka's client has no limit of its own.

    Raises:
        ConfigError: the deserializer is not asynchronous, or the field is unknown.
    """

    def __init__(
        self,
        deserializer: Callable[[bytes, SerializationContext], Awaitable[T]],
        field: Literal["key", "value"] = "value",
        *,
        timeout_ms: int = 10_000,
    ) -> None:
        if not callable(deserializer) or any("._sync." in each.__module__ for each in type(deserializer).__mro__):
            raise ConfigError(
                f"{type(deserializer).__name__} cannot be awaited: it would block the event loop while it asks the "
                "registry. Give `await AsyncAvroDeserializer(client)`, or another class with Async in its name"
            )
        if field not in ("key", "value"):
            raise ConfigError(f"field={field!r}: 'key' or 'value'")
        self._deserializer = deserializer
        self._is_key = field == "key"
        self._timeout_ms = timeout_ms

    async def __call__(self, record: Record) -> T | None:
        """The decoded value (or key) of the record; `None` where the record has none.

        Raises:
            RecordDeserializationError: the record is at fault, or its schema is not in the registry. A new attempt
                fails, too: give the record up. `__cause__` says why.
            RegistryUnavailableError: the registry is at fault, or cannot be reached: try again.
            ConfigError: the program is at fault: the deserializer returned what cannot be awaited, or the consumer's
                own deserializer has replaced the bytes.
        """
        data = record.key if self._is_key else record.value
        if data is None:
            return None
        field = MessageField.KEY if self._is_key else MessageField.VALUE
        if not isinstance(data, bytes):
            raise ConfigError(
                f"the {field} is a {type(data).__name__}: Decoder takes bytes, from a consumer without "
                f"{field}_deserializer"
            )
        handled = sys.exception()  # by the caller: it is no cause of what is raised here
        try:
            async with within(self._timeout_ms):
                decoding = self._deserializer(data, SerializationContext(record.topic, field, list(record.headers)))
                if inspect.isawaitable(decoding):
                    return await decoding
        except Exception as error:
            if (outage := next(filter(_is_outage, _chain(error, handled)), None)) is not None:
                why = str(outage) or f"no answer in time; timeout_ms is {self._timeout_ms}"
                raise RegistryUnavailableError(
                    f"no schema for {record.topic}-{record.partition} at offset {record.offset}: "
                    f"{type(outage).__name__}: {why}"
                ) from error
            refused = RecordDeserializationError(
                record.tp,
                record.offset,
                f"the {field} deserializer raised {type(error).__name__}",
                key=record.key,
                value=record.value,
                headers=record.headers,
                timestamp=record.timestamp,
                lane=record.lane,
            )
            refused._handed_out = record
            raise refused from error
        raise ConfigError(
            f"the deserializer returned a {type(decoding).__name__}, which cannot be awaited: write async def"
        )


def _chain(error: BaseException | None, handled: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it, without what was `handled` before: the errors of rules and references come
    wrapped.
    """
    seen: list[BaseException | None] = [handled]
    each = error
    while each is not None and not any(each is known for known in seen):
        yield each
        seen.append(each)
        each = each.__cause__ or each.__context__


def _is_outage(error: BaseException) -> bool:
    if isinstance(error, SchemaRegistryError):
        return error.error_code not in NOT_KNOWN
    # A proxy may answer 200 with a page of its own, on which the client stumbles.
    is_of_client = any(frame.f_globals["__name__"] == CLIENT for frame, _ in walk_tb(error.__traceback__))
    is_of_http = any(kind.__module__.partition(".")[0] in HTTP for kind in type(error).__mro__)
    return is_of_client or is_of_http or isinstance(error, (OSError, TimeoutError))
