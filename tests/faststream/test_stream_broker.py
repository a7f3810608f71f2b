"""FastStream's broker with aiogroup's consumers: what stays FastStream's, and what FastStream reads of a consumer."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import warnings

import pytest

pytest.importorskip("faststream.kafka")

import faststream.kafka
from faststream import BaseMiddleware, Depends, FastStream
from faststream.kafka import KafkaMessage, KafkaRouter, TestKafkaBroker
from faststream.kafka.helpers.rebalance_listener import _LoggingListener
from faststream.specification import AsyncAPI

import aiogroup.faststream
from aiogroup import ConfigError, Consumer
from aiogroup._core.telemetry.events import RebalanceCompleted
from aiogroup.faststream import FastStreamMissingError, KafkaBroker, StreamConsumer
from tests.support.kafka import Ears

READS = {"group_id": "g", "auto_offset_reset": "earliest"}


class Counting(BaseMiddleware):
    """Counts what it sees begin and end."""

    seen: list[str] = []  # noqa: RUF012 (of the test)

    async def on_receive(self):
        self.seen.append("begins")
        return await super().on_receive()

    async def after_processed(self, exc_type=None, exc_val=None, exc_tb=None):
        self.seen.append("ended")
        return await super().after_processed(exc_type, exc_val, exc_tb)


def depended(body: str) -> int:
    return len(body)


async def test_routers_middlewares_and_dependencies_are_faststreams(aiogroup_broker, make_stream):
    aiogroup_broker.create_topic("a-in")
    aiogroup_broker.create_topic("a-out")
    Counting.seen = []
    stream, router, out = make_stream(middlewares=[Counting]), KafkaRouter(prefix="a-"), asyncio.Queue()

    @router.subscriber("in", **READS)
    @router.publisher("out")
    async def handle(body: str, size: int = Depends(depended)) -> str:
        return f"{body} has {size}"

    @router.subscriber("out", group_id="out", auto_offset_reset="earliest")
    async def take(body: str, message: KafkaMessage) -> None:
        await out.put(
            (body, message.raw_message.topic, isinstance(message.raw_message, faststream.kafka.ConsumerRecord))
        )

    stream.include_router(router)
    assert list(stream.config.broker_middlewares) == [Counting]
    await stream.start()
    await stream.publish("four", "a-in")
    assert await out.get() == ("four has 4", "a-out", True)
    assert Counting.seen[0] == "begins"
    assert "ended" in Counting.seen
    assert {type(each.consumer) for each in stream.subscribers} == {StreamConsumer}


async def test_the_test_broker_is_faststreams():
    stream, handled = KafkaBroker(), []

    @stream.subscriber("in", batch=False)
    async def handle(body: str) -> None:
        handled.append(body)

    async with TestKafkaBroker(stream) as testing:
        await testing.publish("x", "in")
        handle.mock.assert_called_once_with("x")
    assert handled == ["x"]


def test_the_schema_is_faststreams():
    schemas = []
    for make in (KafkaBroker, faststream.kafka.KafkaBroker):
        stream = make("kafka:9092")

        @stream.subscriber("in", group_id="g")
        async def handle(body: str) -> None: ...

        FastStream(stream)
        schemas.append(AsyncAPI(stream).to_specification().to_json())
    assert schemas[0] == schemas[1]
    assert "kafka:9092" in schemas[0]


async def test_what_faststream_logs_of_a_consumer(aiogroup_broker, make_stream, caplog, monkeypatch):
    monkeypatch.setattr(_LoggingListener, "_log_unassigned_consumer_delay_seconds", 0)
    aiogroup_broker.create_topic("t")
    logger = logging.getLogger("of-this-test")
    with caplog.at_level(logging.INFO, "of-this-test"):
        streams = [make_stream(logger=logger), make_stream(logger=logger)]
        for stream in streams:
            stream.subscriber("t", **READS, heartbeat_interval_ms=50)(print)
        await asyncio.gather(*(stream.start() for stream in streams))
        await aiogroup_broker.until(lambda: "has had no partition assignments" in caplog.text)
    members = {each.member_id for each in aiogroup_broker.group("g").members}
    assert len(members) == 2
    assert any(f"Consumer {member} assigned to partitions: (TopicPartition" in caplog.text for member in members)
    assert "Consumer in group g has no partition assignments" in caplog.text
    assert "topics frozenset({'t'}) may have fewer partitions" in caplog.text


async def test_what_faststream_logs_of_a_consumer_without_a_group(aiogroup_broker, make_stream, caplog):
    aiogroup_broker.create_topic("t")
    logger = logging.getLogger("of-this-test")
    with caplog.at_level(logging.INFO, "of-this-test"):
        stream = make_stream(logger=logger)
        stream.subscriber("t")(print)
        await stream.start()
        assert stream.subscribers[0].consumer.assignment()
    loud = {each.msg for each in caplog.records if each.levelno > logging.INFO}
    assert loud <= {"slow_decoder %s"}  # as every consumer says with AIOGROUP_PURE_PYTHON


async def test_topics_may_be_made_by_asking_unless_told_otherwise(make_aiogroup_broker):
    broker = make_aiogroup_broker(auto_create_topics=True)
    stream = KafkaBroker(broker.bootstrap_servers, consumer_only=True)
    stream.subscriber("by-asking", **READS)(print)
    await stream.start()
    assert stream.subscribers[0].consumer.assignment()
    await stream.stop()
    given = KafkaBroker(consumer_settings={"allow_auto_create_topics": False})
    assert given.config.broker_config.builder().config.allow_auto_create_topics is False
    assert KafkaBroker().config.broker_config.builder().config.allow_auto_create_topics is True


async def test_what_is_published_after_the_start_is_read_from_the_end(aiogroup_broker, make_stream):
    aiogroup_broker.create_topic("t", partitions=3)
    stream, read = make_stream(), asyncio.Event()

    @stream.subscriber("t", auto_offset_reset="latest")
    async def handle(body: str) -> None:
        read.set()

    await stream.start()
    assert any("ListOffsetsResponse" in str(each) for each in aiogroup_broker.requests()), "it is known where to begin"
    aiogroup_broker.produce("t", b"r0", partition=2)
    await read.wait()


async def test_an_extra_setting_and_observers_reach_each_consumer(aiogroup_broker, make_stream):
    aiogroup_broker.create_topic("t")
    heard = Ears()
    settings = {"default_api_timeout_ms": 5_000}
    stream = make_stream(consumer_settings=settings, observers=[heard])
    stream.subscriber("t", **READS)(print)
    await stream.start()
    consumer = stream.subscribers[0].consumer
    assert isinstance(consumer, Consumer)
    assert consumer.config.default_api_timeout_ms == 5_000
    assert heard.heard(RebalanceCompleted)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"session_timeout_ms": 5_000}, "session_timeout_ms: FastStream's broker or subscriber has this setting"),
        ({"auto_ack": False}, "ack_policy"),
        ({"nonsense": 1}, "unknown setting 'nonsense'"),
    ],
)
async def test_a_setting_in_the_wrong_place_is_refused(aiogroup_broker, make_stream, settings, said):
    stream = make_stream(consumer_settings=settings)
    stream.subscriber("t", **READS)(print)
    with pytest.raises(ConfigError, match=said):
        await stream.start()


async def test_the_graceful_timeout_bounds_the_stop(aiogroup_broker, make_stream):
    """The node does not answer any more; under aiokafka the consumer alone takes longer than its request time-out."""
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce("t", b"r0")
    stream, begun = make_stream(consumer_only=True, graceful_timeout=0.5), asyncio.Event()

    @stream.subscriber("t", **READS)
    async def handle(body: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    await stream.start()
    await begun.wait()
    loop = asyncio.get_running_loop()
    aiogroup_broker.nodes[0].pause()
    began_at = loop.time()
    await stream.stop()
    assert loop.time() - began_at < 3
    aiogroup_broker.nodes[0].resume()


async def test_faststreams_fastapi_router_takes_the_broker():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fastapi = importlib.import_module("faststream.kafka.fastapi")

        class Router(fastapi.KafkaRouter):
            broker_class = KafkaBroker

        assert type(Router("kafka:9092").broker) is KafkaBroker


@pytest.mark.parametrize("name", ["KafkaBroker", "StreamConsumer"])
def test_a_missing_extra_says_what_to_install(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "faststream.kafka", None)
    with pytest.raises(FastStreamMissingError, match=r"pip install 'aiogroup\[faststream\]'") as raised:
        getattr(aiogroup.faststream, name)
    assert isinstance(raised.value, ImportError)
    with pytest.raises(AttributeError, match="Broker"):
        aiogroup.faststream.Broker  # noqa: B018 (it raises)
