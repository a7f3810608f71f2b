"""Dead letters: byte for byte what the source holds, acknowledged before anything is committed, and never silent."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from random import Random

import anyio
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import RecordsToDelete
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiogroup import ConfigError, Consumer, IllegalStateError, RecordDeserializationError, dead_letters
from aiogroup._core.telemetry.events import DeadLetterFailed, DeadLetterSent
from aiogroup.dead_letters import DeadLetters
from aiogroup.errors import ConsumerStoppedError, DeadLetterError
from aiogroup.otel import Tracing
from aiogroup.schemas import Decoder
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, eventually, take, take_batch, turns

PRODUCE = 0
METADATA = 3
"""The numbers of the APIs."""
TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def make_letters_place(make_place, kafka_cluster):
    """A topic with a topic for its dead letters."""

    def make(partitions=1, letters=1, **settings):
        place = make_place(partitions)
        kafka_cluster.create_topic(letter_topic(place), letters, **settings)
        return place

    return make


def letter_topic(place):
    return f"dlq.{place.group}.{place.topic}"


async def letters_of(place, count):
    """The first letters of the topic, as a consumer of their own reads them."""
    async with place.consumer(letter_topic(place), group_id=None) as reader:
        async with asyncio.timeout(20):
            return [await reader.getone() for _ in range(count)]


def header(letter, name):
    """The last one counts."""
    return dict(letter.headers)[f"__dlq.errors.{name}"].decode()


async def send(place, value, key=None, headers=None, partition=0):
    async with place.producer() as producer:
        return await producer.send_and_wait(place.topic, value, key, partition=partition, headers=headers)


def failure():
    """An error that was raised."""
    try:
        {}["no such customer"]
    except KeyError as error:
        return error


async def test_a_letter_is_the_record_with_headers_about_it(make_letters_place):
    place, ears = make_letters_place(3, 2), Ears()
    sent = await send(place, b"\xff\x00order", b"key", [("tenant", b"7"), ("__dlq.errors.topic", b"older")], 1)
    async with place.consumer(observers=[ears], client_id="billing-3") as consumer, DeadLetters(consumer) as letters:
        record = await consumer.getone()
        await letters.send(record, failure(), attempts=3)
        (letter,) = await letters_of(place, 1)
        assert await place.committed(1) == 0  # nothing before the loop goes on
    assert (letter.key, letter.value, letter.partition) == (b"key", b"\xff\x00order", 1)
    assert letter.headers[:2] == (("tenant", b"7"), ("__dlq.errors.topic", b"older"))
    assert letter.timestamp >= sent.timestamp
    about = {name: header(letter, name) for name in ("topic", "partition", "offset", "group", "client", "timestamp")}
    assert about == {
        "topic": place.topic,
        "partition": "1",
        "offset": "0",
        "group": place.group,
        "client": "billing-3",
        "timestamp": str(record.timestamp),
    }
    assert header(letter, "delivery.count") == "3"
    assert (header(letter, "exception"), header(letter, "message")) == ("KeyError", "'no such customer'")
    assert '{}["no such customer"]' in header(letter, "stacktrace")
    (told,) = ears.heard(DeadLetterSent)
    assert told == DeadLetterSent(place.topic, 1, 0, letter_topic(place), 1, 0, "KeyError")


async def test_the_letters_of_a_partition_stay_in_order(make_letters_place):
    place = make_letters_place(3, 2)
    for partition in range(3):
        await place.produce(range(partition * 10, partition * 10 + 3), partition)
    async with place.consumer() as consumer, DeadLetters(consumer) as letters:
        for _ in range(9):
            await letters.send(await consumer.getone(), failure())
    found = await letters_of(place, 9)
    assert {(header(each, "partition"), each.partition) for each in found} == {("0", 0), ("1", 1), ("2", 0)}
    for partition in ("0", "1", "2"):
        assert [header(each, "offset") for each in found if header(each, "partition") == partition] == ["0", "1", "2"]


@pytest.mark.parametrize(("key", "value"), [(b"key", None), (None, b""), (b"", b"value"), (None, None)])
async def test_what_is_missing_stays_missing(make_letters_place, key, value):
    place = make_letters_place()
    async with place.consumer() as consumer, DeadLetters(consumer) as letters:
        async with place.producer() as producer:
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=None, headers=[("nothing", None)])
            await (await producer.send_batch(batch, place.topic, partition=0))
        await letters.send(await consumer.getone(), failure())
    (letter,) = await letters_of(place, 1)
    assert (letter.key, letter.value, letter.headers[0]) == (key, value, ("nothing", None))


async def test_the_bytes_of_a_deserialized_record_are_read_from_the_log_again(make_letters_place):
    place = make_letters_place()
    written = b'{"b": 1,  "a": 1e2}'
    await send(place, b"[0]")
    await send(place, written, b"KEY", [("tenant", b"7")])
    await send(place, b"[2]")
    settings = {"value_deserializer": json.loads, "key_deserializer": bytes.lower}
    async with place.consumer(**settings) as consumer, DeadLetters(consumer) as letters:
        await consumer.getone()
        record = await consumer.getone()
        assert (record.key, record.value) == (b"key", {"b": 1, "a": 100.0})
        await letters.send(record, failure())
        assert (await consumer.getone()).value == [2]
    (letter,) = await letters_of(place, 1)
    assert (letter.key, letter.value, letter.headers[0]) == (b"KEY", written, ("tenant", b"7"))


async def test_a_deserialized_record_that_the_log_no_longer_holds_is_an_error(make_letters_place):
    place, ears = make_letters_place(), Ears()
    await place.produce(["[0]", "[1]"])
    settings = {"value_deserializer": json.loads, "observers": [ears]}
    async with place.consumer(**settings) as consumer, DeadLetters(consumer) as letters:
        record = await consumer.getone()
        async with place.admin() as admin:
            await admin.delete_records({place.tp(): RecordsToDelete(before_offset=1)})
        with pytest.raises(DeadLetterError, match="no longer in the log") as raised:
            await letters.send(record, failure())
    assert not raised.value.retriable
    assert (raised.value.tp, raised.value.offset) == (place.tp(), 0)
    assert len(ears.heard(DeadLetterFailed)) == 1


async def test_a_poison_record_is_sent_with_its_bytes_and_its_headers(make_letters_place):
    place = make_letters_place()
    await send(place, b"no json", b"key", [("tenant", b"7")])
    async with place.consumer(value_deserializer=json.loads) as consumer, DeadLetters(consumer) as letters:
        with pytest.raises(RecordDeserializationError) as raised:
            await consumer.getone()
        await letters.send(raised.value)
    (letter,) = await letters_of(place, 1)
    assert (letter.key, letter.value, letter.headers[0]) == (b"key", b"no json", ("tenant", b"7"))
    assert header(letter, "exception") == "json.decoder.JSONDecodeError"
    assert header(letter, "message") == "Expecting value: line 1 column 1 (char 0)"
    assert header(letter, "timestamp") == str(raised.value.timestamp)


async def test_a_record_that_was_refused_after_a_deserializer_had_replaced_its_key_is_sent_as_it_was(
    make_letters_place,
):
    async def deserializer(data, context):
        return json.loads(data)

    place = make_letters_place()
    await send(place, b"no json", b"KEY", [("tenant", b"7")])
    async with place.consumer(key_deserializer=bytes.lower) as consumer, DeadLetters(consumer) as letters:
        record = await consumer.getone()
        assert record.key == b"key"
        with pytest.raises(RecordDeserializationError) as raised:
            await Decoder(deserializer)(record)
        await letters.send(raised.value)
    (letter,) = await letters_of(place, 1)
    assert (letter.key, letter.value, letter.headers[0]) == (b"KEY", b"no json", ("tenant", b"7"))
    assert header(letter, "exception") == "json.decoder.JSONDecodeError"


async def test_a_long_text_is_still_text(make_letters_place):
    place = make_letters_place()
    await place.produce(range(1))
    async with place.consumer() as consumer, DeadLetters(consumer) as letters:
        await letters.send(await consumer.getone(), ValueError("_" + "\u20ac" * 9_000))
    (letter,) = await letters_of(place, 1)
    assert header(letter, "message") == "_" + "\u20ac" * 2_730
    assert header(letter, "stacktrace").endswith("\u20ac\n")


@pytest.mark.parametrize("settings", [{}, {"value_deserializer": json.loads}])
async def test_many_letters_at_once_all_arrive_in_order(make_letters_place, settings):
    place, count = make_letters_place(), 200
    await place.produce(range(count))
    async with place.consumer(**settings) as consumer, DeadLetters(consumer) as letters:
        records = await take_batch(consumer, count)
        await asyncio.gather(*(letters.send(each, failure()) for each in records.all()))
    found = await letters_of(place, count)
    assert [header(each, "offset") for each in found] == [str(each) for each in range(count)]


async def test_letters_that_are_read_again_at_once_share_one_reader(make_letters_place, monkeypatch):
    place, readers = make_letters_place(partitions=2, letters=2), []

    class Counted(Consumer):
        def __init__(self, **settings):
            super().__init__(**settings)
            readers.append(self)

    for partition in (0, 1):
        await place.produce(range(20), partition)
    async with place.consumer(value_deserializer=json.loads) as consumer, DeadLetters(consumer) as letters:
        records = list((await take_batch(consumer, 40)).all())
        Random(1).shuffle(records)
        monkeypatch.setattr(dead_letters, "Consumer", Counted)
        await asyncio.gather(*(letters.send(each, failure()) for each in records))
        assert len(readers) == 1
        with pytest.raises(ConsumerStoppedError):  # nothing stays open while no letter waits
            await readers[0].getone()
    assert {(header(each, "partition"), header(each, "offset")) for each in await letters_of(place, 40)} == {
        (str(each.partition), str(each.offset)) for each in records
    }


async def test_a_damaged_batch_has_no_bytes_to_send(make_letters_place):
    place = make_letters_place()
    async with place.consumer() as consumer, DeadLetters(consumer) as letters:
        with pytest.raises(DeadLetterError, match="bytes could not be read"):
            await letters.send(RecordDeserializationError(place.tp(), 4, "checksum is wrong"))


async def test_the_topic_must_be_there_before_a_record_is_taken(make_place):
    place = make_place()
    async with place.consumer() as consumer:
        with pytest.raises(DeadLetterError, match=f"create {letter_topic(place)} for"):
            await DeadLetters(consumer).__aenter__()


@pytest.mark.parametrize("how", ["assign", "subscribe"])
async def test_a_topic_that_comes_later_must_have_its_letters_topic_too(make_place, how):
    place, ears = make_place(), Ears()
    await place.produce(range(1))
    async with place.unsubscribed(observers=[ears]) as consumer, DeadLetters(consumer) as letters:
        if how == "assign":
            consumer.assign([place.tp()])
        else:
            consumer.subscribe([place.topic])
        record = await consumer.getone()
        with pytest.raises(DeadLetterError, match=f"create {letter_topic(place)} for") as raised:
            await letters.send(record, failure())
        assert (raised.value.tp, raised.value.offset) == (place.tp(), 0)
        assert len(ears.heard(DeadLetterFailed)) == 1
        async with place.admin() as admin:
            assert letter_topic(place) not in await admin.list_topics(), "a producer of aiokafka would have it made"
            place.cluster.create_topic(letter_topic(place), 1)
        await letters.send(record, failure())
    assert len(await letters_of(place, 1)) == 1


async def test_no_broker_is_an_error_of_dead_letters(make_letters_place):
    place = make_letters_place()
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "request_timeout_ms": 1_000}
        async with place.consumer(**settings) as consumer:
            with proxy.drop(), pytest.raises(DeadLetterError, match="no broker") as raised:
                await DeadLetters(consumer).__aenter__()
            assert raised.value.retriable


async def test_a_letter_that_the_broker_refuses_is_an_error_and_nothing_is_committed(make_letters_place):
    place, ears = make_letters_place(config={"max.message.bytes": "2000"}), Ears()
    await send(place, Random(0).randbytes(5_000))  # compression makes it no smaller
    async with place.consumer(observers=[ears]) as consumer, DeadLetters(consumer) as letters:
        record = await consumer.getone()
        with pytest.raises(DeadLetterError, match="MessageSizeTooLargeError") as raised:
            await letters.send(record, failure())
    assert not raised.value.retriable
    assert [each.letter_topic for each in ears.heard(DeadLetterFailed)] == [letter_topic(place)]
    assert await place.committed() == 0


async def test_all_replicas_have_a_letter(make_letters_place, monkeypatch):
    place, given = make_letters_place(), []

    class Producer(AIOKafkaProducer):
        def __init__(self, **settings):
            given.append(settings)
            super().__init__(**settings)

    monkeypatch.setattr(dead_letters, "AIOKafkaProducer", Producer)
    async with place.consumer() as consumer, DeadLetters(consumer):
        assert given[0]["acks"] == "all"


async def test_a_letter_waits_until_it_is_acknowledged(make_letters_place):
    place = make_letters_place()
    await place.produce(range(1))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "request_timeout_ms": 3_000}
        async with place.consumer(**settings) as consumer, DeadLetters(consumer) as letters:
            record = await consumer.getone()
            with proxy.hold(PRODUCE) as held:
                sending = asyncio.create_task(letters.send(record, failure()))
                await eventually(lambda: held.used_count)
                await turns()
                assert not sending.done()
                assert await place.committed() == 0
            await asyncio.wait_for(sending, 10)
    assert len(await letters_of(place, 1)) == 1


async def test_a_letter_that_is_not_acknowledged_in_time_is_an_error_that_may_pass(make_letters_place):
    place = make_letters_place()
    await place.produce(range(1))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "default_api_timeout_ms": 1_000}
        async with place.consumer(**settings, request_timeout_ms=1_000) as consumer, DeadLetters(consumer) as letters:
            record = await consumer.getone()
            with proxy.drop(PRODUCE):
                with pytest.raises(DeadLetterError) as raised:
                    await letters.send(record, failure())
                assert raised.value.retriable
                assert await place.committed() == 0
            await letters.send(record, failure())
    assert len(await letters_of(place, 1)) == 1


async def test_a_letter_that_nobody_waits_for_any_more_ends_without_a_word_in_the_log(make_letters_place, caplog):
    place, told = make_letters_place(), []
    caplog.set_level(logging.CRITICAL, "aiokafka")  # what is logged is kept, and with it the letter
    await place.produce(range(1))
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "request_timeout_ms": 1_000}
        async with place.consumer(**settings) as consumer:
            with proxy.drop(PRODUCE) as dropped:
                async with DeadLetters(consumer) as letters:
                    sending = asyncio.create_task(letters.send(await consumer.getone(), failure()))
                    await eventually(lambda: dropped.used_count)
                    sending.cancel()
                    await asyncio.wait([sending])
    del sending
    gc.collect()
    assert not told


@pytest.mark.parametrize("topic", ["dead letters", "dlq.{nobody}.{topic}", "{topic}/dead", "dlq.{", "{0}"])
async def test_a_pattern_that_makes_no_topic_name_is_refused(make_place, topic):
    with pytest.raises(ConfigError, match="topic="):
        DeadLetters(make_place().consumer(), topic=topic)


async def test_one_topic_for_all_is_a_pattern_too(make_place, kafka_cluster):
    place = make_place()
    kafka_cluster.create_topic(f"{place.group}-dead")
    await place.produce(range(1))
    async with place.consumer() as consumer, DeadLetters(consumer, topic="{group}-dead") as letters:
        await letters.send(await consumer.getone(), failure())
    async with place.consumer(f"{place.group}-dead", group_id=None) as reader:
        assert await take(reader, 1) == ["0"]


async def test_they_are_open_once(make_letters_place):
    place = make_letters_place()
    await place.produce(range(1))
    async with place.consumer() as consumer, DeadLetters(consumer) as letters:
        with pytest.raises(IllegalStateError, match="open already"):
            await letters.__aenter__()
        await letters.send(await consumer.getone(), failure())


@pytest.mark.parametrize("is_under_way", [True, False])
async def test_a_cancelled_scope_leaves_nothing_of_the_producer_behind(make_letters_place, is_under_way):
    place, is_open = make_letters_place(), asyncio.Event()
    await place.produce(range(1))

    async def body():
        async with DeadLetters(consumer) as letters:
            record = await consumer.getone()
            is_open.set()
            await (letters.send(record, failure()) if is_under_way else asyncio.Event().wait())

    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "request_timeout_ms": 2_000}
        async with place.consumer(**settings) as consumer:
            with proxy.drop(PRODUCE) as dropped:
                async with anyio.create_task_group() as group:
                    group.start_soon(body)
                    await is_open.wait()
                    await eventually(lambda: dropped.used_count or not is_under_way)
                    group.cancel_scope.cancel()
                await eventually(lambda: not tasks_of_a_producer())


async def test_a_beginning_that_is_cancelled_ends_at_once_and_leaves_no_connection_behind(make_place):
    place = make_place()
    async with (
        Proxy(place.cluster.bootstrap_servers) as proxy,
        place.unsubscribed(bootstrap_servers=proxy.bootstrap_servers) as consumer,
    ):
        with proxy.hold(METADATA) as held:
            beginning = asyncio.create_task(DeadLetters(consumer).__aenter__())
            await eventually(lambda: held.used_count)
            beginning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(beginning, 2)
        await eventually(lambda: not tasks_of_a_producer())


def tasks_of_a_producer():
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}
    return names & {"Sender._sender_routine", "AIOKafkaClient._md_synchronizer", "AIOKafkaConnection._read"}


async def test_letters_need_a_group_and_an_open_producer(make_place):
    place = make_place()
    with pytest.raises(ConfigError, match="group_id"):
        DeadLetters(place.consumer(group_id=None))
    with pytest.raises(IllegalStateError, match="async with"):
        await DeadLetters(place.consumer()).send(RecordDeserializationError(place.tp(), 0, "", value=b""))


async def test_the_trace_goes_on_in_the_letter(make_letters_place):
    place, exporter, provider = make_letters_place(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    await send(place, b"1", headers=[("traceparent", TRACEPARENT), ("tenant", b"7")])
    async with place.consumer(observers=[Tracing(provider)]) as consumer, DeadLetters(consumer) as letters:
        async for record in consumer:
            process = trace.get_current_span().get_span_context()
            await letters.send(record, failure())
            break
    (letter,) = await letters_of(place, 1)
    (sent,) = (span for span in exporter.get_finished_spans() if span.name == f"send {letter_topic(place)}")
    assert sent.kind is trace.SpanKind.PRODUCER
    assert sent.parent.span_id == process.span_id
    assert [format(link.context.span_id, "016x") for link in sent.links] == ["b7ad6b7169203331"]
    assert sent.attributes["messaging.operation.type"] == "send"
    assert sent.attributes["messaging.destination.name"] == letter_topic(place)
    assert "error.type" not in sent.attributes
    carried = [value for name, value in letter.headers if name == "traceparent"]
    ours = f"00-0af7651916cd43dd8448eb211c80319c-{sent.context.span_id:016x}-01"
    assert carried == [ours.encode()]
    assert letter.headers[0] == ("tenant", b"7")


async def test_without_tracing_the_producers_trace_is_carried_as_it_is(make_letters_place):
    place = make_letters_place()
    await send(place, b"1", headers=[("traceparent", TRACEPARENT)])
    async with place.consumer() as consumer, DeadLetters(consumer) as letters:
        await letters.send(await consumer.getone(), failure())
    (letter,) = await letters_of(place, 1)
    assert letter.headers[0] == ("traceparent", TRACEPARENT)
