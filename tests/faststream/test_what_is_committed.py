"""Which acknowledgement policy of FastStream commits what, beside what it commits under aiokafka."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

pytest.importorskip("faststream.kafka")

from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, StopConsume
from faststream.kafka import KafkaMessage
from faststream.kafka import TopicPartition as StreamPartition
from faststream.kafka.annotations import Consumer

from aiogroup import Record, TopicPartition
from aiogroup.faststream.messages import Acknowledging, RawMessage, UnderWay

READS = {"group_id": "g", "auto_offset_reset": "earliest"}
QUICKLY = {**READS, "auto_commit_interval_ms": 20}
COMMITTED_BY_POLICY = {
    # policy: after the handler has returned, raised, was cancelled
    AckPolicy.ACK_FIRST: (1, 1, None),
    AckPolicy.ACK: (1, 1, None),
    AckPolicy.REJECT_ON_ERROR: (1, 1, None),
    AckPolicy.NACK_ON_ERROR: (1, None, None),
    AckPolicy.MANUAL: (None, None, None),
}


class Handler:
    """Handles nothing; the first record ends in the given way, each further one when it is cancelled."""

    def __init__(self, ends="never"):
        self.ends = [ends]
        self.begun = asyncio.Queue()
        self.cancelled = []

    async def __call__(self, body):
        ends = self.ends.pop() if self.ends else "never"
        await self.begun.put(body)
        if isinstance(ends, BaseException):
            raise ends
        if ends == "never":
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.append(body)


def subscribed(stream, handler, topic="t", **settings):
    async def handle(body: str) -> None:
        await handler(body)

    stream.subscriber(topic, **{**READS, **settings})(handle)
    return stream


def committed(broker):
    """By partition, where anything is: 0 says that nothing is processed."""
    return {tp.partition: offset for tp, offset in broker.committed("g").items() if offset}


@pytest.mark.parametrize("ends", ["returns", "raises", "never"])
@pytest.mark.parametrize("policy", COMMITTED_BY_POLICY, ids=lambda policy: policy.value)
async def test_each_policy(aiogroup_broker, make_stream, policy, ends):
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce_many("t", [b"r0", b"r1"])
    handler = Handler(ValueError("poison") if ends == "raises" else ends)
    same_as_ack = pytest.warns(UserWarning, match="same effect")
    with same_as_ack if policy is AckPolicy.REJECT_ON_ERROR else nullcontext():
        stream = subscribed(make_stream(), handler, ack_policy=policy)
    await stream.start()
    await handler.begun.get()
    if ends != "never":
        again = ends == "raises" and policy is AckPolicy.NACK_ON_ERROR
        assert await handler.begun.get() == ("r0" if again else "r1")
    await stream.stop()
    assert len(handler.cancelled) == 1
    expected = COMMITTED_BY_POLICY[policy][["returns", "raises", "never"].index(ends)]
    assert committed(aiogroup_broker) == ({} if expected is None else {0: expected})


@pytest.mark.parametrize("raised", [AckMessage(), NackMessage(), RejectMessage()], ids=lambda each: type(each).__name__)
async def test_what_a_handler_says_by_raising(aiogroup_broker, make_stream, raised):
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce_many("t", [b"r0", b"r1"])
    handler = Handler(raised)
    await subscribed(make_stream(), handler, ack_policy=AckPolicy.NACK_ON_ERROR).start()
    assert await handler.begun.get() == "r0"
    again = isinstance(raised, NackMessage)
    assert await handler.begun.get() == ("r0" if again else "r1")
    assert committed(aiogroup_broker) == ({} if again else {0: 1})


@pytest.mark.parametrize(("by", "while_handled"), [("aiogroup", 1), ("aiokafka", 2)])
async def test_auto_commit_waits_for_a_slow_handler(aiogroup_broker, make_stream, by, while_handled):
    """A process that is killed in the middle of a handler gets the record again; under aiokafka nobody does."""
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce_many("t", [b"r0", b"r1"])
    handler = Handler("returns")
    await subscribed(make_stream(by), handler, auto_commit_interval_ms=20).start()
    assert [await handler.begun.get(), await handler.begun.get()] == ["r0", "r1"]
    await aiogroup_broker.until(lambda: committed(aiogroup_broker).get(0) == while_handled)
    assert handler.cancelled == [], "it is still at it"


@pytest.mark.parametrize(("by", "is_lost"), [("aiogroup", False), ("aiokafka", True)])
async def test_workers_lose_nothing_when_the_service_ends(aiogroup_broker, make_stream, by, is_lost):
    """Under aiokafka what three workers were at, and what waited for one, is committed and never handled."""
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce_many("t", [b"r%d" % n for n in range(6)])
    handler = Handler()
    stream = subscribed(make_stream(by), handler, max_workers=3)
    await stream.start()
    assert {await handler.begun.get() for _ in range(3)} == {"r0", "r1", "r2"}
    await stream.stop()
    assert set(handler.cancelled) == {"r0", "r1", "r2"}
    rest = Handler("returns")
    await subscribed(make_stream(by), rest).start()
    assert (await rest.begun.get() > "r2") is is_lost


@pytest.mark.parametrize(("by", "kept"), [("aiogroup", {0: 1}), ("aiokafka", {0: 3})])
async def test_workers_commit_up_to_the_first_record_that_is_not_handled(aiogroup_broker, make_stream, by, kept):
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce_many("t", [b"r0", b"r1", b"r2"])
    ended = asyncio.Queue()
    stream = make_stream(by)

    @stream.subscriber("t", **QUICKLY, max_workers=3)
    async def handle(body: str) -> None:
        if body == "r1":
            await asyncio.Event().wait()
        await ended.put(body)

    await stream.start()
    assert {await ended.get(), await ended.get()} == {"r0", "r2"}
    await aiogroup_broker.until(lambda: committed(aiogroup_broker) == kept)
    await stream.stop()
    assert committed(aiogroup_broker) == kept


@pytest.mark.parametrize(("by", "kept"), [("aiogroup", {1: 1}), ("aiokafka", {0: 1, 1: 1})])
async def test_an_ack_commits_its_own_record_and_not_what_failed_elsewhere(aiogroup_broker, make_stream, by, kept):
    aiogroup_broker.create_topic("t", partitions=2)
    aiogroup_broker.produce("t", b"fails", partition=0)
    stream, acked, failed = make_stream(by), asyncio.Event(), asyncio.Event()

    @stream.subscriber("t", **READS, ack_policy=AckPolicy.MANUAL)
    async def handle(body: str, message: KafkaMessage) -> None:
        if body == "fails":
            failed.set()
            raise ValueError(body)
        await message.ack()
        acked.set()

    await stream.start()
    await failed.wait()
    aiogroup_broker.produce("t", b"good", partition=1)
    await acked.wait()
    assert committed(aiogroup_broker) == kept


@pytest.mark.parametrize(("by", "kept"), [("aiogroup", {}), ("aiokafka", {0: 1})])
async def test_a_cancelled_handler_commits_nothing_even_if_it_acks_on_its_way_out(
    aiogroup_broker, make_stream, by, kept
):
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce("t", b"r0")
    stream, begun = make_stream(by), asyncio.Event()

    @stream.subscriber("t", **READS, ack_policy=AckPolicy.MANUAL)
    async def handle(message: KafkaMessage) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await message.ack()

    await stream.start()
    await begun.wait()
    await stream.stop()
    assert committed(aiogroup_broker) == kept


@pytest.mark.parametrize(
    ("policy", "ends", "expected"),
    [
        (AckPolicy.ACK_FIRST, "returns", {0: 2, 1: 2}),
        (AckPolicy.ACK_FIRST, "never", {}),
        (AckPolicy.ACK, "returns", {0: 2, 1: 2}),
        (AckPolicy.ACK, "never", {}),
        (AckPolicy.NACK_ON_ERROR, "raises", {}),
    ],
)
async def test_batches(aiogroup_broker, make_stream, policy, ends, expected):
    aiogroup_broker.create_topic("t", partitions=2)
    for partition in (0, 0, 1, 1):
        aiogroup_broker.produce("t", b"x", partition=partition)
    handler = Handler(ValueError() if ends == "raises" else ends)
    stream = make_stream()
    counts = asyncio.Queue()

    @stream.subscriber("t", **QUICKLY, ack_policy=policy, batch=True)
    async def handle(bodies: list[str]) -> None:
        await counts.put(len(bodies))
        await handler(bodies)

    await stream.start()
    seen = await counts.get()
    if ends == "returns":
        while seen < 4:
            handler.ends.append("returns")
            seen += await counts.get()
        await aiogroup_broker.until(lambda: committed(aiogroup_broker) == expected)
    if ends == "raises":
        assert await counts.get() == seen, "all of it comes again, of each partition"
    await stream.stop()
    assert committed(aiogroup_broker) == expected


async def test_records_that_are_asked_for_one_by_one_are_processed_by_the_next_request(aiogroup_broker, make_stream):
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce_many("t", [b"r0", b"r1", b"r2"])
    stream = make_stream()
    subscriber = stream.subscriber("t", **READS)
    await stream.start()
    assert (await subscriber.get_one(timeout=5)).body == b"r0"
    assert (await subscriber.get_one(timeout=5)).body == b"r1"
    async for message in subscriber:
        assert message.body == b"r2"
        break
    await stream.stop()
    assert committed(aiogroup_broker) == {0: 2}


async def test_a_handler_that_stops_its_consumer_has_handled_the_record_and_leaves(aiogroup_broker, make_stream):
    aiogroup_broker.create_topic("t")
    aiogroup_broker.produce_many("t", [b"r0", b"r1"])
    handler = Handler(StopConsume())
    never = 30_000  # within this test: neither auto-commit nor the end of a session does it
    await subscribed(make_stream(), handler, auto_commit_interval_ms=never, session_timeout_ms=never).start()
    await aiogroup_broker.until(lambda: aiogroup_broker.group("g").members == ())
    assert committed(aiogroup_broker) == {0: 1}
    assert handler.begun.qsize() == 1


async def test_assigned_partitions_and_a_consumer_in_the_handler(aiogroup_broker, make_stream):
    aiogroup_broker.create_topic("t", partitions=2)
    aiogroup_broker.produce("t", b"r1", partition=1)
    stream, told = make_stream(), asyncio.Queue()

    @stream.subscriber(partitions=[StreamPartition("t", 1)], auto_offset_reset="earliest")
    async def handle(body: str, consumer: Consumer) -> None:
        await told.put((body, await consumer.lag(), [tp.partition for tp in consumer.assignment()]))

    await stream.start()
    assert await told.get() == ("r1", 0, [1])


@pytest.mark.parametrize("max_workers", [1, 2])
@pytest.mark.parametrize("policy", [AckPolicy.ACK_FIRST, AckPolicy.ACK])
async def test_a_rebalance_waits_for_the_handlers(aiogroup_broker, make_stream, policy, max_workers):
    """No record is handled by two members, and none by nobody."""
    aiogroup_broker.create_topic("t", partitions=4)
    handled, go_on, begun = [], asyncio.Event(), asyncio.Event()
    settings = {**READS, "ack_policy": policy, "max_workers": max_workers, "heartbeat_interval_ms": 50}
    streams = [make_stream(), make_stream()]
    for stream in streams:

        @stream.subscriber("t", **settings)
        async def handle(body: str) -> None:
            begun.set()
            await go_on.wait()
            handled.append(body)

    for number in range(40):
        aiogroup_broker.produce("t", b"r%d" % number, partition=number % 4)
    await streams[0].start()
    await begun.wait()
    joining = asyncio.create_task(streams[1].start())
    await aiogroup_broker.until(lambda: aiogroup_broker.group("g").state == "PreparingRebalance")
    go_on.set()
    await joining
    await aiogroup_broker.until(lambda: len(handled) >= 40, timeout_s=60)  # 40 turns of a starved loop
    assert sorted(handled) == sorted(f"r{number}" for number in range(40))


async def test_under_aiokafka_a_rebalance_does_not_wait_for_the_handlers(aiogroup_broker, make_stream):
    aiogroup_broker.create_topic("t", partitions=2)
    for partition in range(2):
        aiogroup_broker.produce("t", b"r%d" % partition, partition=partition)
    first, second = Handler(), Handler()
    await subscribed(make_stream("aiokafka"), first, heartbeat_interval_ms=50).start()
    await first.begun.get()
    await subscribed(make_stream("aiokafka"), second, heartbeat_interval_ms=50).start()
    assert len(aiogroup_broker.group("g").members) == 2
    assert first.cancelled == []


def test_a_nack_goes_back_in_all_partitions_of_the_message():
    """FastStream 0.7.4 names the first record's partition alone, 0.7.8 each."""
    back = {}

    class Fake:
        def seek(self, partition, offset):
            back[partition] = offset

    records = [Record(TopicPartition("t", at), offset, 0, 0, None, b"", ()) for at in (0, 1) for offset in (3, 4)]
    consumer = Acknowledging(Fake(), [RawMessage(each, Fake(), UnderWay(), None) for each in records])
    consumer.seek(partition=TopicPartition("t", 0), offset=3)
    assert back == {("t", 0): 3, ("t", 1): 3}
    consumer.seek(TopicPartition("t", 1), 4)
    assert back == {("t", 0): 3, ("t", 1): 4}, "an application's own seek"


@pytest.mark.parametrize(("by", "kept"), [("aiogroup", {0: 1, 1: 1}), ("aiokafka", {})])
async def test_handlers_that_end_while_their_consumers_stop_are_committed(aiogroup_broker, make_stream, by, kept):
    """FastStream stops the consumers of `max_workers` before it waits for their handlers."""
    aiogroup_broker.create_topic("t", partitions=2)
    for partition in (0, 0, 1, 1):
        aiogroup_broker.produce("t", b"r0", partition=partition)
    stream, begun, go_on = make_stream(by, graceful_timeout=5), asyncio.Queue(), asyncio.Event()

    @stream.subscriber("t", **READS, ack_policy=AckPolicy.ACK, max_workers=2)
    async def handle(body: str) -> None:
        await begun.put(body)
        await go_on.wait()

    await stream.start()
    await begun.get()
    await begun.get()
    stopping = asyncio.create_task(stream.stop())
    for _ in range(10):
        await asyncio.sleep(0)
    go_on.set()
    await stopping
    assert committed(aiogroup_broker) == kept
    assert begun.empty()
