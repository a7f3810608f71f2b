"""Dead letters: what could not be handled goes to a topic of its own, byte for byte, before its offset is committed."""

from __future__ import annotations

import asyncio
import traceback
from collections import defaultdict
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, overload

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.record_observer import Headers
from aiogroup._runtime.engine import Engine
from aiogroup._runtime.loop.clock import timeout_ms
from aiogroup._runtime.loop.supervisor import start_task
from aiogroup._runtime.net.authentication import Tokens
from aiogroup.config import check_topic_name
from aiogroup.consumer import Consumer
from aiogroup.errors import (
    AiogroupError,
    ConfigError,
    DeadLetterError,
    IllegalStateError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from aiogroup.records import Record
from aiogroup.structs import TopicPartition

__all__ = ["DeadLetters"]

CONNECTION: Final = (
    "bootstrap_servers", "client_id", "connections_max_idle_ms", "metadata_max_age_ms", "request_timeout_ms",
    "retry_backoff_ms", "sasl_kerberos_domain_name", "sasl_kerberos_service_name", "sasl_mechanism",
    "sasl_oauth_token_provider", "sasl_plain_password", "sasl_plain_username", "security_protocol", "ssl_context",
)  # fmt: skip
"""The consumer's settings that its producer, and the reader of bytes, have too."""
TEXT_BYTES: Final = 8 * 1024
"""At most this much of an error's message and of its stack: a letter must not be much larger than its record."""
PREFIX: Final = "__dlq.errors."
"""KIP-1191's, for the dead letters of share groups."""


class _Source(NamedTuple):
    """A record as its log holds it."""

    tp: TopicPartition
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class DeadLetters:
    """Sends records that could not be handled to a topic of their own: `async with DeadLetters(consumer) as letters`.

    A letter has the key, the value and the headers of its record, byte for byte, and headers about it, as text, in
    KIP-1191's names: `__dlq.errors.topic`, `.partition`, `.offset`, `.group`, `.delivery.count` and `.message`; and in
    the same form `.exception`, `.stacktrace`, `.timestamp` (of the record, in ms) and `.client`. Where a record has
    such a header already, as a letter of a letter has, the last one counts. The letters of a partition stay in order,
    in the partition of its number (modulo the number of partitions). A letter's timestamp is the present.

    It makes one producer of aiokafka with the consumer's own connection settings, which waits for all replicas.
    A letter can come twice, as any record can: topic, partition and offset tell that it is the same.

    With `aiogroup.otel.Tracing` among the consumer's observers each letter has a span, `send <topic>`, whose context
    replaces the one in the record's headers. Without it the headers carry the trace of the record's producer on.

    Args:
        consumer: whose records are sent. It needs a group.
        topic: a pattern of the name of the topic for letters; "dead-{group}" is one topic for all. The topics must
            exist: create them with a `max.message.bytes` above that of their source.

    Raises:
        ConfigError: the consumer has no group, or the pattern makes no topic name.
        DeadLetterError: from `async with`: a topic for the letters of a subscribed topic does not exist, or no broker
            can be reached. Nothing was read yet.
        IllegalStateError: from `async with`: it is open already.
    """

    def __init__(self, consumer: Consumer[Any, Any], *, topic: str = "dlq.{group}.{topic}") -> None:
        group = consumer.config.group_id
        if group is None:
            raise ConfigError("DeadLetters needs a consumer with group_id: nothing else commits what was sent")
        self._consumer = consumer
        self._pattern = topic
        self._group = group
        try:
            check_topic_name(self._topic_of("x"))
        except (ValueError, LookupError) as error:
            raise ConfigError(
                f"topic={topic!r}: a topic name in which {{group}} and {{topic}} are replaced is needed; with group_id="
                f"{group!r} it is none: {error}"
            ) from error
        self._producer: Any = None  # aiokafka's class has no annotations
        self._seen: set[str] = set()  # topics for letters that are there
        self._turns: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)  # of a source, in order
        # aiokafka's producer takes one batch of a partition at a time, and gives up far too soon where many wait.
        self._batches: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Letters whose bytes are read again share one reader, which the last letter under way stops.
        self._reading = asyncio.Lock()
        self._reader: Consumer[Any, Any] | None = None
        self._unsent = 0  # letters under way

    async def __aenter__(self) -> Self:
        if self._producer is not None:
            raise IllegalStateError("these dead letters are open already: one `async with` for all tasks")
        try:
            missing = await self._missing({self._topic_of(topic) for topic in self._consumer.subscription()})
        except AiogroupError as error:
            raise DeadLetterError(
                f"no broker says whether the topics for dead letters exist: {error}", retriable=error.retriable
            ) from error
        if missing:
            raise DeadLetterError(missing)
        settings = self._connection()
        if settings["sasl_oauth_token_provider"] is not None:
            settings["sasl_oauth_token_provider"] = Tokens(settings["sasl_oauth_token_provider"])
        # Not idempotent: such a producer of aiokafka never gives a record up, and while no broker answers its stop()
        # does not end. A letter that comes twice does no harm.
        producer: Any = AIOKafkaProducer(acks="all", compression_type="lz4", **settings)  # type: ignore[no-untyped-call]
        starting = start_task("dead letters' begin", producer.start)  # cancelled, it would leave a connection open
        starting.add_done_callback(_take)
        try:
            await asyncio.shield(starting)
        except BaseException as error:
            closing = _close(producer, starting)
            if not isinstance(error, (KafkaError, OSError)):
                raise
            await closing
            raise DeadLetterError(f"no broker takes dead letters: {error}", retriable=True) from error
        self._producer = producer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _close(producer)

    @overload
    async def send(self, record: RecordDeserializationError, /, *, attempts: int = 1) -> None: ...

    @overload
    async def send(self, record: Record[Any, Any], error: BaseException, /, *, attempts: int = 1) -> None: ...

    async def send(
        self,
        record: Record[Any, Any] | RecordDeserializationError,
        error: BaseException | None = None,
        /,
        *,
        attempts: int = 1,
    ) -> None:
        """Send a record; returns when all replicas have it. Then say that the record is processed, as ever.

        Of a record that a deserializer has replaced, the bytes are read from its log again. Of one that a deserializer
        refused, its error has them. A record of a damaged batch has none, and is refused.

        Args:
            record: what could not be handled, or the error that was raised in place of it.
            error: why. Its text is in the letter, and never in the log.
            attempts: how often it was tried.

        Raises:
            DeadLetterError: it is not known to be durable: the record must not count as processed. `retriable` says
                whether the same call may succeed later.
            IllegalStateError: outside of `async with`.
        """
        producer = self._producer
        if producer is None:
            raise IllegalStateError("dead letters are sent inside of `async with DeadLetters(consumer) as letters:`")
        why = record if isinstance(record, RecordDeserializationError) else error
        if isinstance(why, RecordDeserializationError):
            why = why.__cause__ or why
        topic, place = self._topic_of(record.topic), (record.topic, record.partition, record.offset)
        engine, limit_ms = self._consumer._started(), self._consumer.config.default_api_timeout_ms
        self._unsent += 1
        try:
            try:
                async with timeout_ms(limit_ms):
                    sent = await self._send(engine, producer, record, why, topic, attempts)
            except TimeoutError as error:
                late = f"{topic} has not acknowledged it within default_api_timeout_ms={limit_ms}"
                raise _failed(record, late, error) from error
        except DeadLetterError as failure:
            engine.emit(events.DeadLetterFailed(*place, topic, str(failure)))
            raise
        else:
            engine.emit(events.DeadLetterSent(*place, topic, *sent, _name_of(why)))
        finally:
            self._unsent -= 1
            if not self._unsent:
                await self._stop_reader()

    async def _send(
        self,
        engine: Engine,
        producer: Any,  # noqa: ANN401 (as above)
        record: Record | RecordDeserializationError,
        why: BaseException | None,
        topic: str,
        attempts: int,
    ) -> tuple[int, int]:
        async with self._turns[record.tp]:  # the first letters wait for metadata, and are not to be overtaken
            source = await self._source_of(record)
            await self._check_topic(record, topic)
            partition = await self._partition_of(producer, source, topic)
        headers, end = engine.handling.begin_send(topic, (*source.headers, *self._about(source, why, attempts)))
        try:
            sent = await self._deliver(producer, TopicPartition(topic, partition), source, headers)
        except BaseException as failure:
            end(type(failure.__cause__ or failure).__qualname__)
            raise
        end(None)
        return sent

    async def _missing(self, topics: set[str]) -> str:
        """What to do about topics for letters that are not there. A producer of aiokafka would have them created, with
        the defaults of the broker.
        """
        if topics <= self._seen:
            return ""
        found = await self._consumer._started().link.fetch_metadata(topics - self._seen)
        self._seen |= found.topics.keys() & topics
        missing = ", ".join(sorted(topics - self._seen))
        return f"create {missing} for dead letters, or let this principal see and write them" if missing else ""

    async def _check_topic(self, record: Record | RecordDeserializationError, topic: str) -> None:
        """The record's topic may have been subscribed or assigned since the first look."""
        try:
            missing = await self._missing({topic})
        except AiogroupError as error:
            raise _failed(record, f"no broker says whether {topic} exists", error) from error
        if missing:
            raise _failed(record, missing)

    async def _source_of(self, record: Record[Any, Any] | RecordDeserializationError) -> _Source:
        config = self._consumer.config
        if isinstance(record, RecordDeserializationError) and record._handed_out is not None:
            record = record._handed_out
        if isinstance(record, RecordDeserializationError):
            if record.key is None and record.value is None:
                raise _failed(record, "its bytes could not be read, so that there is nothing to send; see its error")
        elif config.key_deserializer is not None or config.value_deserializer is not None:
            return await self._read_again(record)
        return _source(record)

    async def _read_again(self, record: Record[Any, Any]) -> _Source:
        """What the deserializers have replaced, from the log."""
        gone = "its bytes are no longer in the log, and a deserializer has replaced what was read"
        try:
            async with self._reading:
                found = await self._read(record.tp, record.offset)
        except OffsetOutOfRangeError as error:
            raise _failed(record, gone, error) from error
        except AiogroupError as error:
            raise _failed(record, "its bytes could not be read from the log again", error) from error
        if _identity(found) != _identity(record):
            raise _failed(record, gone)
        return _source(found)

    async def _read(self, tp: TopicPartition, offset: int) -> Record[Any, Any]:
        try:
            if self._reader is not None:
                # It may have an error to tell of what it has fetched since, of another topic.
                with suppress(AiogroupError):
                    self._reader.assign([tp])
                    return await self._take(self._reader, tp, offset)
                await self._stop_reader()
            reader = self._reader = self._new_reader()
            reader.assign([tp])  # before its start, which asks for the topic
            await reader.start()
            return await self._take(reader, tp, offset)
        except BaseException:
            await self._stop_reader()
            raise

    async def _take(self, reader: Consumer[Any, Any], tp: TopicPartition, offset: int) -> Record[Any, Any]:
        reader.seek(tp, offset)
        return await reader.getone()

    def _new_reader(self) -> Consumer[Any, Any]:
        config = self._consumer.config
        return Consumer(
            **self._connection(),
            auto_offset_reset="none",
            out_of_range_reset="policy",
            max_partition_fetch_bytes=1,  # its batch comes whole, and nothing after it
            max_batch_bytes=config.max_batch_bytes,
            isolation_level=config.isolation_level,
            check_crcs=config.check_crcs,
        )

    async def _stop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop(drain=False)  # nothing is in hand: what it has read are bytes of a letter

    async def _partition_of(self, producer: Any, source: _Source, topic: str) -> int:  # noqa: ANN401 (as above)
        try:
            return source.tp.partition % len(await producer.partitions_for(topic))
        except (KafkaError, OSError) as error:
            raise _failed(source, f"it could not be sent to {topic}", error) from error

    async def _deliver(self, producer: Any, to: TopicPartition, source: _Source, headers: Headers) -> tuple[int, int]:  # noqa: ANN401
        """The partition and the offset of the letter, once all replicas have it."""
        try:
            batch = producer.create_batch()  # `send` takes no record that has neither a key nor a value
            batch.append(key=source.key, value=source.value, timestamp=None, headers=list(headers))
            async with self._batches[to]:
                sending = await producer.send_batch(batch, to.topic, partition=to.partition)
            sending.add_done_callback(_take)  # of a cancelled send, too
            await asyncio.wait((sending,))
            sent = sending.result()
        except (KafkaError, OSError) as error:
            raise _failed(source, f"it could not be sent to {to.topic}", error) from error
        return sent.partition, sent.offset

    def _about(self, source: _Source, why: BaseException | None, attempts: int) -> Headers:
        told: dict[str, object] = {
            "topic": source.tp.topic,
            "partition": source.tp.partition,
            "offset": source.offset,
            "group": self._group,
            "delivery.count": attempts,
            "client": self._consumer.config.client_id,
            "timestamp": source.timestamp,
        }
        about = [(PREFIX + name, str(each).encode()) for name, each in told.items() if each is not None]
        if why is not None:
            stack = "".join(traceback.format_exception(why)).encode(errors="replace")[-TEXT_BYTES:]
            about += [
                (PREFIX + "exception", _name_of(why).encode()),
                (PREFIX + "message", _whole(_text_of(why).encode(errors="replace")[:TEXT_BYTES])),
                (PREFIX + "stacktrace", _whole(stack)),
            ]
        return tuple(about)

    def _connection(self) -> dict[str, Any]:
        return {name: getattr(self._consumer.config, name) for name in CONNECTION}

    def _topic_of(self, topic: str) -> str:
        return self._pattern.format(group=self._group, topic=topic)


def _take(sending: asyncio.Future[Any]) -> None:
    """Whoever was cancelled asks for no result, and an error that nobody asks for is written to the log."""
    if not sending.cancelled():
        sending.exception()


def _close(producer: Any, starting: asyncio.Task[None] | None = None) -> asyncio.Future[None]:  # noqa: ANN401 (as above)
    """Let it send what it has, and close. Where the caller is cancelled, by anyio at each wait, it still closes, in the
    background: it gives letters up after `request_timeout_ms`.
    """

    async def close() -> None:
        if starting is not None:
            await asyncio.wait((starting,))
        await producer.stop()

    return asyncio.shield(start_task("dead letters' end", close))


def _identity(record: Record[Any, Any]) -> tuple[TopicPartition, int, int, Headers]:
    return record.tp, record.offset, record.timestamp, record.headers


def _source(record: Record[Any, Any] | RecordDeserializationError) -> _Source:
    return _Source(record.tp, record.offset, record.timestamp, record.key, record.value, record.headers)


def _failed(
    record: Record[Any, Any] | RecordDeserializationError | _Source, what: str, cause: Exception | None = None
) -> DeadLetterError:
    tp = record.tp
    said = "" if cause is None else f": {type(cause).__name__}: {cause}"
    retriable = isinstance(cause, (TimeoutError, OSError)) or bool(getattr(cause, "retriable", False))
    return DeadLetterError(
        f"no dead letter of {tp.topic}-{tp.partition} at offset {record.offset}: {what}{said}",
        tp=tp,
        offset=record.offset,
        retriable=retriable,
    )


def _name_of(error: BaseException | None) -> str:
    """The class with its module, as a traceback has it."""
    if error is None:
        return ""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _whole(text: bytes) -> bytes:
    """Without the rest of a character that was cut through."""
    return text.decode(errors="ignore").encode()


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as raised:  # noqa: BLE001 (the application's class)
        return f"its text raised {type(raised).__name__}"
