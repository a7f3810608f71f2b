"""Consumers with an event log, on the embedded broker in virtual time: whose lines they are, and what samples count."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections import Counter
from contextlib import suppress

import pytest

from aiogroup import Consumer, ConsumerStoppedError, TopicPartition
from aiogroup._core.telemetry.meter import bounds_of
from aiogroup.embedded import stable
from aiogroup.eventlog import EventLog

pytestmark = pytest.mark.virtual_time

SETTINGS = {
    "group_id": "billing",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 1_000,
    "max_poll_interval_ms": 60_000,
}


@pytest.fixture
def lines(tmp_path):
    """The lines of all files, in the order of their numbers; `event` leaves out all others."""

    def read(event=None, **fields):
        found = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_bytes().splitlines()]
        return [
            each
            for each in sorted(found, key=lambda each: each["seq"])
            if event in (None, each["event"]) and all(each.get(name) == value for name, value in fields.items())
        ]

    return read


def merged(samples, name):
    found = Counter()
    for each in samples:
        found.update({int(bucket): count for bucket, count in each["histograms"].get(name, {}).items()})
    return found


def consumer_of(broker, log, **settings):
    observers = [log] if log is not None else []
    return Consumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, observers=observers, **{**SETTINGS, **settings}
    )


async def read(consumer, handle):
    with suppress(ConsumerStoppedError):
        async for record in consumer:
            await handle(record)


async def nothing(_):
    pass


async def test_a_life_is_told_from_its_start_to_its_end(virtual_broker, tmp_path, lines):
    broker = virtual_broker
    broker.create_topic("orders", partitions=2)
    who = {"client_id": "app", "group_instance_id": "app-1"}
    async with EventLog(tmp_path, interval_ms=10_000) as log, consumer_of(broker, log, **who) as consumer:
        reading = asyncio.ensure_future(read(consumer, nothing))
        await broker.until(stable("billing", members=1))
        member = consumer.group_metadata().member_id
        await broker.clock.pass_s(35)
        await consumer.stop()
        await reading
    found = lines()
    assert {(each["group"], each["client_id"]) for each in found} == {("billing", "app")}
    samples = lines("sample")
    assert [each["interval_ms"] for each in samples][:4] == [0, 10_000, 10_000, 10_000]
    assert len(samples) == 5
    assert found[-1]["event"] == "consumer_stopped"
    assert found[-2] == samples[-1]
    (completed,) = lines("rebalance_completed")
    assert completed["partitions"] == ["orders-0", "orders-1"]
    assert completed["member_id"] == member
    assert samples[2]["settings"] == {
        "session_timeout_ms": "10000",
        "heartbeat_interval_ms": "1000",
        "max_poll_interval_ms": "60000",
        "max_poll_records": "500",
        "rebalance_timeout_ms": "60000",
        "expansion_timeout_ms": "0",
        "parallel_min_backlog": str(consumer.config.parallel_min_backlog),
        "group_instance_id": "app-1",
        "heartbeat_thread": "False",
        "enable_parallel_rebalance": "False",
    }
    assert (samples[2]["generation"], samples[2]["status"], samples[2]["partitions_count"]) == (1, "ready", 2)
    assert not any(each["event"].startswith("heartbeat") for each in found)
    assert 34 <= sum(each["events"].get("heartbeat_acknowledged", 0) for each in samples) <= 37
    gaps = merged(samples, "heartbeat_gap_ms")
    assert {bounds_of(bucket) for bucket in gaps} <= {bounds_of(40), bounds_of(41)}
    assert sum(gaps.values()) >= 33
    assert sum(merged(samples, "loop_late_ms").values()) > 100
    assert [each["mono_ms"] for each in found] == sorted(each["mono_ms"] for each in found)
    assert all(len(json.dumps(each, separators=(",", ":"))) <= 2_000 for each in samples)


@pytest.mark.parametrize("way", ["async for", "getone", "getmany"])
async def test_the_time_between_requests_and_of_records(virtual_broker, tmp_path, lines, way):
    broker = virtual_broker
    broker.create_topic("orders")
    broker.produce_many("orders", [b"x"] * 60)

    async def handle(_):
        await broker.clock.pass_s(0.5)

    async def ask(consumer):
        if way == "async for":
            await read(consumer, handle)
        elif way == "getone":
            for _ in range(60):
                await handle(await consumer.getone())
            await consumer.getmany()
        else:
            count = 0
            while count < 60:
                count += (records := await consumer.getmany(timeout_ms=5_000, max_records=20)).count
                for record in records.all():
                    await handle(record)
            await consumer.getmany()

    async with EventLog(tmp_path) as log, consumer_of(broker, log) as consumer:
        reading = asyncio.ensure_future(ask(consumer))
        await broker.clock.pass_s(40)
        await consumer.stop()
        await reading
    samples = lines("sample")
    assert sum(each["records_count"] for each in samples) == 60
    per_record, gaps, batches = (merged(samples, name) for name in ("record_ms", "request_gap_ms", "batch_records"))
    assert sum(per_record.values()) == 60
    assert {bucket for bucket, count in per_record.items() if count > 5} == {36}  # 500 ms
    if way == "getmany":
        assert gaps[54] == 3  # 10 s, three times
        assert batches == {18: 3}
    elif way == "getone":
        assert gaps[36] == 60
        assert batches == {0: 60}
    else:  # a turn of the cursor ends by the real clock, for which nothing took any time
        assert sum(bounds_of(bucket)[1] * count for bucket, count in gaps.items()) >= 30_000
    assert sum(each["requests_count"] for each in samples) == sum(gaps.values())


async def test_a_handler_that_hangs_is_seen_while_it_does(virtual_broker, tmp_path, lines):
    broker = virtual_broker
    broker.create_topic("orders")
    broker.produce("orders", b"x")

    async def handle(_):
        await broker.clock.pass_s(100)

    async with EventLog(tmp_path) as log, consumer_of(broker, log) as consumer:
        reading = asyncio.ensure_future(read(consumer, handle))
        await broker.clock.pass_s(55)
        await broker.clock.pass_s(60)
        await consumer.stop()
        await reading
    (expired,) = lines("poll_interval_exceeded")
    assert expired["partitions"] == ["orders-0"]
    assert max(each.get("since_request_ms", 0) for each in lines("sample")) > 80_000
    assert "parked" in {each["status"] for each in lines("sample")}
    assert merged(lines("sample"), "request_gap_ms")[67] == 1  # 100 s


async def test_the_gap_between_heartbeats_that_cost_the_membership_is_measured(virtual_broker, tmp_path, lines):
    """It is the one for which the session was too short, and no heartbeat is acknowledged at its end."""
    broker = virtual_broker
    broker.create_topic("orders")
    async with EventLog(tmp_path) as log, consumer_of(broker, log) as consumer:
        reading = asyncio.ensure_future(read(consumer, nothing))
        await broker.clock.pass_s(30)
        asyncio.get_running_loop().jump(15)  # the loop is blocked, for longer than the session
        await broker.clock.pass_s(30)
        await consumer.stop()
        await reading
    assert len(lines("member_removed")) == 1
    gaps = merged(lines("sample"), "heartbeat_gap_ms")
    assert [bounds_of(bucket) for bucket in gaps if bounds_of(bucket)[1] > 10_000] == [bounds_of(56)]  # 13.8 to 16.4 s
    assert gaps[56] == 1


async def test_one_log_serves_several_consumers(virtual_broker, tmp_path, lines):
    broker = virtual_broker
    broker.create_topic("orders", partitions=2)
    broker.produce_many("orders", [b"x"] * 10)
    async with EventLog(tmp_path) as log:
        for name in ("one", "two"):
            async with consumer_of(broker, log, client_id=name, group_id=name) as consumer:
                reading = asyncio.ensure_future(read(consumer, nothing))
                await broker.clock.pass_s(12)
                await consumer.stop()
                await reading
    assert [each["seq"] for each in lines()] == list(range(len(lines())))
    for name in ("one", "two"):
        assert sum(each["records_count"] for each in lines("sample", client_id=name)) == 10
        assert {each["group"] for each in lines(client_id=name)} == {name}
        assert len(lines("consumer_stopped", client_id=name)) == 1


async def test_a_consumer_that_runs_is_observed_from_then_on(virtual_broker, tmp_path, lines):
    broker = virtual_broker
    broker.create_topic("orders")
    async with EventLog(tmp_path) as log, consumer_of(broker, None) as consumer:
        reading = asyncio.ensure_future(read(consumer, nothing))
        await broker.clock.pass_s(5)
        consumer.observe(log)
        broker.produce_many("orders", [b"x"] * 7)
        await broker.clock.pass_s(15)
        await consumer.stop()
        await reading
    samples = lines("sample")
    assert samples[0]["status"] == "ready"
    assert sum(each["records_count"] for each in samples) == 7


async def test_workers_of_several_partitions_are_one_application(virtual_broker, tmp_path, lines):
    """What the poll interval bounds is the time without any request."""
    broker = virtual_broker
    broker.create_topic("orders", partitions=2)
    for partition in range(2):
        broker.produce_many("orders", [b"x"] * 10, partition=partition)

    async def work(consumer, partition):
        with suppress(ConsumerStoppedError):
            while True:
                await consumer.getone(TopicPartition("orders", partition))
                await broker.clock.pass_s(0.5)

    async with EventLog(tmp_path) as log, consumer_of(broker, log) as consumer:
        await broker.until(stable("billing", members=1))
        workers = [asyncio.ensure_future(work(consumer, 0))]
        await broker.clock.pass_s(0.25)
        workers.append(asyncio.ensure_future(work(consumer, 1)))
        await broker.clock.pass_s(20)
        await consumer.stop()
        await asyncio.gather(*workers)
    samples = lines("sample")
    assert sum(each["records_count"] for each in samples) >= 19
    assert max(merged(samples, "request_gap_ms")) <= 36


async def test_lags_are_told_by_lane(virtual_broker, tmp_path, lines):
    broker = virtual_broker
    broker.create_topic("orders", partitions=2)
    async with EventLog(tmp_path) as log, consumer_of(broker, log) as consumer:
        reading = asyncio.ensure_future(read(consumer, nothing))
        await broker.clock.pass_s(3)
        consumer.pause(*consumer.assignment())
        broker.produce_many("orders", [b"x"] * 100, partition=1)
        await broker.clock.pass_s(30)
        await consumer.stop()
        await reading
    told = [each for each in lines("sample") if each.get("lag_live") == 100]
    assert told
    assert told[0]["histograms"]["lag_live"] == {"0": 1, "27": 1}
    assert "lag_catch_up" not in told[0]


async def test_every_event_is_written_where_it_is_wanted(virtual_broker, tmp_path, lines):
    broker = virtual_broker
    broker.create_topic("orders")
    async with EventLog(tmp_path, every_event=True) as log, consumer_of(broker, log) as consumer:
        await broker.clock.pass_s(12)
        await consumer.stop()
    assert len(lines("heartbeat_acknowledged")) >= 10
    assert all(each["events"] == {} for each in lines("sample"))


async def test_a_consumer_without_a_group_is_sampled_too(virtual_broker, tmp_path, lines):
    broker = virtual_broker
    broker.create_topic("orders")
    broker.produce_many("orders", [b"x"] * 5)
    async with EventLog(tmp_path) as log, consumer_of(broker, log, group_id=None) as consumer:
        reading = asyncio.ensure_future(read(consumer, nothing))
        await broker.clock.pass_s(15)
        await consumer.stop()
        await reading
    samples = lines("sample")
    assert "group" not in samples[0]
    assert sum(each["records_count"] for each in samples) == 5


async def test_a_log_does_not_keep_a_forgotten_consumer(virtual_broker, tmp_path):
    async with EventLog(tmp_path) as log:
        forgotten = weakref.ref(consumer_of(virtual_broker, log))
        gc.collect()
        assert forgotten() is None


async def test_a_log_that_fails_does_not_reach_the_consumer(virtual_broker, tmp_path, monkeypatch):
    broker = virtual_broker
    broker.create_topic("orders")
    monkeypatch.setattr("aiogroup.eventlog.event_log.wall_ms", lambda: 1 / 0)
    async with EventLog(tmp_path) as log, consumer_of(broker, log) as consumer:
        await broker.clock.pass_s(12)
        assert consumer.health().is_alive
        await consumer.stop()
    assert log.dropped_count > 3
