"""A wrong call is a typed error at the call, and nothing is sent (delivery.md, "Bad input")."""

from __future__ import annotations

import re

import pytest

from aiogroup import ConfigError, Consumer, IllegalStateError, InvalidTopicError, OffsetAndMetadata, TopicPartition
from aiogroup._core.telemetry import events
from tests.support.kafka import Ears, take


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sesion_timeout_ms": 1}, "session_timeout_ms"),
        ({"max_poll_intervall": 1}, "max_poll_interval_ms"),
        ({"session_timeout_ms": 0}, "session_timeout_ms=0"),
        ({"session_timeout_ms": "10"}, "session_timeout_ms='10'"),
        ({"session_timeout_ms": 1_000, "heartbeat_interval_ms": 1_000}, "heartbeat_interval_ms.*session_timeout_ms"),
        ({"max_poll_records": 0}, "max_poll_records=0"),
        ({"auto_offset_reset": "erliest"}, "auto_offset_reset='erliest'"),
        ({"isolation_level": "committed"}, "isolation_level='committed'"),
        ({"enable_auto_commit": "yes"}, "enable_auto_commit='yes'"),
        ({"group_id": ""}, "group_id"),
        ({"group_instance_id": "me", "group_id": None}, "group_instance_id='me' needs a group_id"),
        ({"request_timeout_ms": 100, "fetch_max_wait_ms": 500}, "request_timeout_ms.*fetch_max_wait_ms"),
        ({"bootstrap_servers": "localhost:port"}, "localhost:port"),
    ],
)
def test_a_setting_out_of_range_or_unknown(settings, message):
    with pytest.raises(ConfigError, match=message):
        Consumer("topic", **{"group_id": "group", **settings})


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "a/b", "x" * 250, None, 3])
def test_a_topic_name_that_kafka_would_refuse(topic):
    with pytest.raises(InvalidTopicError, match=re.escape(repr(topic))):
        Consumer(topic)
    consumer = Consumer()
    with pytest.raises(InvalidTopicError):
        consumer.subscribe(["good", topic])
    with pytest.raises(InvalidTopicError):
        consumer.assign([TopicPartition(topic, 0)])
    assert consumer.subscription() == frozenset()
    assert consumer.assignment() == frozenset()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: c.subscribe("topic"), TypeError),
        (lambda c: c.subscribe([]), TypeError),
        (lambda c: c.subscribe(["a"], pattern="b"), TypeError),
        (lambda c: c.subscribe(pattern="("), ConfigError),
        (lambda c: c.subscribe(["a"], listener=object()), TypeError),
        (lambda c: c.assign([("topic", -1)]), TypeError),
        (lambda c: c.assign([TopicPartition("topic", -1)]), ValueError),
    ],
)
def test_a_subscription_that_is_none(call, error):
    with pytest.raises(error):
        call(Consumer())


async def test_offsets_and_partitions_at_the_call(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    tp, other, alien = place.tp(), place.tp(5), TopicPartition("another", 0)
    async with place.consumer(enable_auto_commit=False, observers=[ears]) as consumer:
        await take(consumer, 2)
        for offsets, error in (
            ({tp: -1}, ValueError),
            ({tp: 2**63}, ValueError),
            ({tp: "1"}, TypeError),
            ({tp: 1.0}, TypeError),
            ({tp: True}, TypeError),
            ({tp: None}, TypeError),
            ({tp: OffsetAndMetadata(1, "x" * 4097)}, ValueError),
            ({tp: (1, "ä" * 2049)}, ValueError),
            ({tp: (1, b"bytes")}, TypeError),
            ({(place.topic, 0): 1}, TypeError),
            ({}, ValueError),
            ([tp], ValueError),
            ({tp: 1, other: 1}, IllegalStateError),
            ({alien: 1}, IllegalStateError),
        ):
            with pytest.raises(error):
                await consumer.commit(offsets)
        assert await place.committed() is None
        assert not ears.heard(events.OffsetsCommitted)
        for offset in (-1, 2**63, "1", 1.5, None, True):
            with pytest.raises(ValueError, match="seek"):
                consumer.seek(tp, offset)
        for call in (consumer.getone, consumer.getmany, consumer.position, consumer.seek_to_end):
            with pytest.raises(IllegalStateError, match="not assigned"):
                await call(other)
        for call in (consumer.pause, consumer.resume, consumer.highwater, consumer.last_stable_offset):
            with pytest.raises(IllegalStateError, match="not assigned"):
                call(other)
        for count in (0, -1, "1", 1.5):
            with pytest.raises(ValueError, match="max_records"):
                await consumer.getmany(max_records=count)
        with pytest.raises(ValueError, match="timestamp"):
            await consumer.offsets_for_times({tp: -5})
        assert await take(consumer, 1) == ["2"]  # nothing moved
        await consumer.commit({tp: (1, "ä" * 2048)})
        assert await place.committed() == 1


async def test_before_start_and_twice(make_place):
    place = make_place()
    consumer = place.consumer()
    for call in (consumer.getone, consumer.getmany, consumer.commit, consumer.lag, consumer.__anext__):
        with pytest.raises(IllegalStateError, match="start"):
            await call()
    async with consumer:
        with pytest.raises(IllegalStateError, match="started already"):
            await consumer.start()
