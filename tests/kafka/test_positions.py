"""Where reading starts: committed offsets first, then the policy, never a guess."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from aiogroup import Consumer, NoOffsetForPartitionError, OffsetOutOfRangeError, TopicPartition
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest
from aiogroup._core.telemetry.events import OffsetReset, PositionFromPolicy
from aiogroup.testing import CUT, Proxy
from tests.support.kafka import Ears, eventually
from tests.support.reading import alone, fill, producing, read


@pytest.fixture
def tp(kafka_cluster, unique_name):
    tp = TopicPartition(unique_name("place"), 0)
    kafka_cluster.create_topic(tp.topic)
    return tp


TEN = [b"%d" % number for number in range(10)]


async def _delete_before(servers, tp, offset):
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.delete_records({tp: RecordsToDelete(before_offset=offset)}, timeout_ms=10_000)
    finally:
        await admin.close()


def _member(servers, tp, group, **settings):
    quick = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, "request_timeout_ms": 6_000}
    return Consumer(tp.topic, bootstrap_servers=servers, group_id=group, **{**quick, **settings})


async def _commit(servers, tp, group, offset):
    consumer = Consumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    consumer.assign([tp])
    async with consumer:
        await consumer.commit({tp: offset})


# By policy.


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 0), ("latest", 10)])
async def test_without_a_commit_the_policy_decides_and_is_durable_at_once(
    kafka_cluster, unique_name, tp, policy, expected
):
    servers, group, ears = kafka_cluster.bootstrap_servers, unique_name("group"), Ears()
    await fill(servers, tp, TEN)
    async with _member(servers, tp, group, auto_offset_reset=policy, observers=[ears]) as consumer:
        assert await consumer.position(tp) == expected
        assert await consumer.committed(tp) == expected
    (told,) = ears.heard(PositionFromPolicy)
    assert (told.partitions, told.offsets, told.policy) == ((tp,), (expected,), policy)
    assert not ears.heard(OffsetReset)


async def test_positions_that_are_looked_up_together_are_reported_together(make_place):
    place, ears = make_place(8), Ears()
    for number in range(8):
        await place.produce(["its leader is known now"], number)
    async with place.consumer(auto_offset_reset="earliest", observers=[ears]) as consumer:
        assert consumer.assignment() == {place.tp(number) for number in range(8)}
        (told,) = ears.heard(PositionFromPolicy)
    assert told == PositionFromPolicy(tuple(place.tp(number) for number in range(8)), (0,) * 8, "earliest")


async def test_none_says_so_until_a_seek(kafka_cluster, unique_name, tp):
    servers = kafka_cluster.bootstrap_servers
    await fill(servers, tp, TEN)
    async with _member(servers, tp, unique_name("group"), auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match=tp.topic) as raised:
                await consumer.getone()
            assert raised.value.tp == tp
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.position(tp)
        consumer.seek(tp, 7)
        assert (await consumer.getone()).offset == 7


async def test_none_with_a_seek_in_the_assigned_callback(kafka_cluster, unique_name, tp):
    servers = kafka_cluster.bootstrap_servers
    await fill(servers, tp, TEN)

    class Listener:
        def on_partitions_revoked(self, revoked):
            pass

        def on_partitions_assigned(self, assigned):
            for each in assigned:
                consumer.seek(each, 4)

    consumer = _member(servers, tp, unique_name("group"), auto_offset_reset="none", listener=Listener())
    async with consumer:
        assert (await consumer.getone()).offset == 4


async def test_none_holds_up_only_the_partition_without_an_offset(kafka_cluster, unique_name):
    servers, topic = kafka_cluster.bootstrap_servers, unique_name("two")
    kafka_cluster.create_topic(topic, 2)
    stuck, fine = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await fill(servers, fine, TEN)
    consumer = alone(servers, auto_offset_reset="none")
    consumer.assign([stuck, fine])
    async with consumer:
        consumer.seek(fine, 0)
        seen, errors_count = [], 0
        async with asyncio.timeout(10):
            while len(seen) < len(TEN):
                try:
                    seen.append((await consumer.getone()).offset)
                except NoOffsetForPartitionError:
                    errors_count += 1
        assert seen == list(range(10))
        assert errors_count


async def test_by_duration_starts_at_the_first_record_of_that_time(kafka_cluster, unique_name, tp):
    servers = kafka_cluster.bootstrap_servers
    now = int(time.time() * 1000)
    async with producing(servers) as producer:
        for minutes in (180, 120, 50, 10):
            await producer.send_and_wait(tp.topic, b"%d" % minutes, partition=0, timestamp_ms=now - minutes * 60_000)
    for duration, expected in (("PT1H", 2), ("PT2H30M", 1), ("P1D", 0), ("PT5M", 4)):
        consumer = alone(servers, auto_offset_reset=f"by_duration:{duration}")
        consumer.assign([tp])
        async with consumer:
            assert await consumer.position(tp) == expected, duration


# Out of range, by retention.


async def _first_after_reset(servers, tp, consumer, ears):
    """The offset of the next record, once the position was reset and one more record was written; and the event."""
    waiting = asyncio.ensure_future(consumer.getone())
    await eventually(lambda: ears.heard(OffsetReset))
    await fill(servers, tp, [b"new"])
    offset = (await asyncio.wait_for(waiting, 10)).offset
    (told,) = ears.heard(OffsetReset)
    assert told.offset == offset
    return offset, told


NEAREST, BY_POLICY = {}, {"out_of_range_reset": "policy"}


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize(
    ("policy", "how", "expected", "said"),
    [
        ("earliest", NEAREST, 6, ("nearest", 3)),
        ("latest", NEAREST, 6, ("nearest", 3)),
        ("by_duration:PT1H", NEAREST, 6, ("nearest", 3)),
        ("earliest", BY_POLICY, 6, ("earliest", 3)),
        ("latest", BY_POLICY, 10, ("latest", 7)),
    ],
)
async def test_a_committed_position_that_retention_passed_goes_to_the_start_of_the_log(
    kafka_cluster, unique_name, tp, policy, how, expected, said, auto_commit
):
    servers, group, ears = kafka_cluster.bootstrap_servers, unique_name("group"), Ears()
    await fill(servers, tp, TEN)
    await _commit(servers, tp, group, 3)
    await _delete_before(servers, tp, 6)
    settings = {"auto_offset_reset": policy, "enable_auto_commit": auto_commit, **how}
    async with _member(servers, tp, group, observers=[ears], **settings) as consumer:
        offset, told = await _first_after_reset(servers, tp, consumer, ears)
    assert offset == expected
    assert (told.policy, told.skipped_count, told.why) == (*said, "offset 3 is out of range")


@pytest.mark.parametrize(
    ("how", "expected", "said"), [(NEAREST, 10, "nearest"), (BY_POLICY, 0, "earliest")], ids=["nearest", "policy"]
)
async def test_a_committed_position_beyond_the_log_goes_to_its_end(kafka_cluster, unique_name, tp, how, expected, said):
    servers, group, ears = kafka_cluster.bootstrap_servers, unique_name("group"), Ears()
    await fill(servers, tp, TEN)
    await _commit(servers, tp, group, 500)
    async with _member(servers, tp, group, auto_offset_reset="earliest", observers=[ears], **how) as consumer:
        offset, told = await _first_after_reset(servers, tp, consumer, ears)
    assert (offset, told.policy, told.skipped_count) == (expected, said, 0)


@pytest.mark.parametrize("move", ["seek", "seek_to_committed"])
async def test_whoever_moves_to_what_retention_removed_goes_on_at_the_start_of_the_log(
    kafka_cluster, unique_name, tp, move
):
    servers, group, ears = kafka_cluster.bootstrap_servers, unique_name("group"), Ears()
    await fill(servers, tp, TEN)
    await _commit(servers, tp, group, 2)
    settings = {"auto_offset_reset": "latest", "enable_auto_commit": False, "observers": [ears]}
    async with _member(servers, tp, group, **settings) as consumer:
        assert (await consumer.getone()).offset == 2
        await _delete_before(servers, tp, 6)
        if move == "seek":
            consumer.seek(tp, 1)
        else:
            await consumer.seek_to_committed()
        offset, told = await _first_after_reset(servers, tp, consumer, ears)
    assert (offset, told.policy) == (6, "nearest")


async def test_what_retention_removed_is_an_error_without_a_policy(kafka_cluster, unique_name, tp):
    servers, group = kafka_cluster.bootstrap_servers, unique_name("group")
    await fill(servers, tp, TEN)
    await _commit(servers, tp, group, 3)
    await _delete_before(servers, tp, 6)
    async with _member(servers, tp, group, auto_offset_reset="none") as consumer:
        with pytest.raises(OffsetOutOfRangeError) as raised:
            await consumer.getone()
        assert (raised.value.tp, raised.value.offset) == (tp, 3)
        consumer.seek(tp, 6)
        assert (await consumer.getone()).offset == 6


async def test_a_seek_after_the_end_is_out_of_range(kafka_cluster, tp):
    servers = kafka_cluster.bootstrap_servers
    await fill(servers, tp, TEN)
    consumer = alone(servers)
    consumer.assign([tp])
    async with consumer:
        await read(consumer, 3 + 7)
        consumer.seek(tp, 500)
        assert (await consumer.getone()).offset == 0


# Committed offsets: an error is never "nothing is committed".


def _for_a_while(spoil, seconds=0.5):
    """A rule that spoils the first answer and what follows it so soon."""
    loop = asyncio.get_running_loop()
    until = None

    def rule(exchange):
        nonlocal until
        until = until or loop.time() + seconds
        return spoil(exchange) if loop.time() < until else None

    return rule


async def _spoiled(proxy, tp, group, spoil):
    """Start a member whose OffsetFetch answers are spoiled for a while; its first record and its resets."""
    proxy.rewrite(OffsetFetchRequest, _for_a_while(spoil))
    ears = Ears()
    consumer = _member(proxy.bootstrap_servers, tp, group, auto_offset_reset="latest", observers=[ears])
    async with consumer:
        record = await asyncio.wait_for(consumer.getone(), 15)
        return record.offset, [*ears.heard(OffsetReset), *ears.heard(PositionFromPolicy)]


@pytest.mark.parametrize("code", [16, 14, 15, 7])
async def test_an_error_of_the_group_is_retried_and_never_a_reset(kafka_cluster, unique_name, tp, code):
    servers, group = kafka_cluster.bootstrap_servers, unique_name("group")
    await fill(servers, tp, TEN)
    await _commit(servers, tp, group, 4)

    def spoil(exchange):
        (answer,) = exchange.response.groups
        spoiled = dataclasses.replace(answer, error_code=code, topics=())
        return dataclasses.replace(exchange.response, groups=(spoiled,))

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        assert await _spoiled(proxy, tp, group, spoil) == (4, [])
        assert 2 <= proxy.count(OffsetFetchRequest) <= 15


@pytest.mark.parametrize("code", [88, 3, 14])
async def test_an_error_of_a_partition_is_retried_and_never_a_reset(kafka_cluster, unique_name, tp, code):
    servers, group = kafka_cluster.bootstrap_servers, unique_name("group")
    await fill(servers, tp, TEN)
    await _commit(servers, tp, group, 4)

    def spoil(exchange):
        (answer,) = exchange.response.groups
        topics = tuple(
            dataclasses.replace(
                topic,
                partitions=tuple(
                    dataclasses.replace(each, error_code=code, committed_offset=-1) for each in topic.partitions
                ),
            )
            for topic in answer.topics
        )
        return dataclasses.replace(exchange.response, groups=(dataclasses.replace(answer, topics=topics),))

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        assert await _spoiled(proxy, tp, group, spoil) == (4, [])
        assert 2 <= proxy.count(OffsetFetchRequest) <= 15


async def test_a_partition_missing_from_the_answer_is_not_without_an_offset(kafka_cluster, unique_name, tp):
    servers, group = kafka_cluster.bootstrap_servers, unique_name("group")
    await fill(servers, tp, TEN)
    await _commit(servers, tp, group, 4)

    def spoil(exchange):
        (answer,) = exchange.response.groups
        return dataclasses.replace(exchange.response, groups=(dataclasses.replace(answer, topics=()),))

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        assert await _spoiled(proxy, tp, group, spoil) == (4, [])


@pytest.mark.parametrize("how", ["cut", "garbage"])
async def test_a_broken_answer_is_asked_for_again(kafka_cluster, unique_name, tp, how):
    servers, group = kafka_cluster.bootstrap_servers, unique_name("group")
    await fill(servers, tp, TEN)
    await _commit(servers, tp, group, 4)

    def spoil(exchange):
        return CUT if how == "cut" else exchange.answered[:4] + b"\xff" * 20

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        assert await _spoiled(proxy, tp, group, spoil) == (4, [])


# Leaders of the look-up by time.


@pytest.mark.parametrize("code", [6, 5, 74, 76, 78, 56, -1])
async def test_a_refused_look_up_backs_off_and_refreshes_the_metadata(kafka_cluster, tp, code):
    servers = kafka_cluster.bootstrap_servers
    await fill(servers, tp, TEN)

    def spoil(exchange):
        topics = tuple(
            dataclasses.replace(
                topic,
                partitions=tuple(dataclasses.replace(each, error_code=code, offset=-1) for each in topic.partitions),
            )
            for topic in exchange.response.topics
        )
        return dataclasses.replace(exchange.response, topics=topics)

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(ListOffsetsRequest, _for_a_while(spoil))
        consumer = alone(proxy.bootstrap_servers)
        consumer.assign([tp])
        async with consumer:
            assert (await read(consumer, 10))[0].offset == 0
        assert 2 <= proxy.count(ListOffsetsRequest) <= 15
        assert 3 <= proxy.count(MetadataRequest) <= 20  # two come anyhow: to start, and to follow `assign`


async def test_one_leader_that_is_silent_does_not_hold_up_the_others_positions(kafka_cluster, unique_name):
    servers, topic = kafka_cluster.bootstrap_servers, unique_name("two")
    kafka_cluster.create_topic(topic, 2)
    refused, fine = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await fill(servers, fine, TEN)
    await fill(servers, refused, TEN)

    def spoil(exchange):
        topics = tuple(
            dataclasses.replace(
                topic,
                partitions=tuple(
                    dataclasses.replace(each, error_code=5, offset=-1) if each.partition_index == 0 else each
                    for each in topic.partitions
                ),
            )
            for topic in exchange.response.topics
        )
        return dataclasses.replace(exchange.response, topics=topics)

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(ListOffsetsRequest, spoil)
        consumer = alone(proxy.bootstrap_servers, request_timeout_ms=60_000)
        consumer.assign([refused, fine])
        async with consumer:
            assert {record.partition for record in await read(consumer, 10)} == {1}
            proxy.clear()
            assert {record.partition for record in await read(consumer, 10)} == {0}
