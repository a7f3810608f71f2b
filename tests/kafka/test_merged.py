"""`consumer.merged()` on real Kafka: the order, what holds it up, and that nothing is lost by it (KIP-695)."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from aiokafka import AIOKafkaProducer

from aiogroup import (
    CommitFailedError,
    ConcurrentConsumptionError,
    ConfigError,
    ConsumerStoppedError,
    IllegalStateError,
    KafkaTimeoutError,
    MergeStalledError,
    MergeState,
    TimestampError,
    TopicPartition,
)
from aiogroup._core.telemetry import events
from aiogroup._runtime.loop.clock import now_ms
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, eventually, turns

MANY = 100_000


async def write(place, times_by_partition, topic=None, batch_bytes=256 * 1024):
    """Records with these times, whose value is the time."""
    async with place.producer(linger_ms=20, max_batch_size=batch_bytes) as producer:
        for partition, times in times_by_partition.items():
            for at in times:
                await producer.send(topic or place.topic, b"%d" % at, partition=partition, timestamp_ms=at)
        await producer.flush()


async def read(merged, count, within_s=30):
    """The next records; the last one stays in hand."""
    records = []
    async with asyncio.timeout(within_s):
        async for record in merged:
            records.append(record)
            if len(records) == count:
                return records
    return records


def times(records):
    return [record.timestamp for record in records]


def inversions(seen):
    return sum(later < earlier for earlier, later in itertools.pairwise(seen))


async def test_two_topics_are_merged_by_time(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 600, 3), 1: range(1, 600, 3)})
    other = make_place()
    await write(other, {0: range(2, 600, 3)})
    async with place.consumer(place.topic, other.topic) as consumer:
        merged = consumer.merged()
        assert (merged.stream_time, merged.late, merged.enforced) == (None, 0, 0)
        records = await read(merged, 600)
        assert times(records) == list(range(600))
        assert (merged.stream_time, merged.late) == (599, 0)
        assert {record.lateness_ms for record in records} == {0}
        assert await consumer.lag() == 0


# The acceptance: 100,000 records a topic, one slow broker.


@pytest.mark.parametrize("max_task_idle_ms", [0, -1])
async def test_with_one_slow_broker_0_inverts_nothing_and_minus_1_does(
    cluster_3, unique_name, make_place, max_task_idle_ms
):
    cluster = cluster_3
    for _ in range(10):
        topics = [unique_name("orders"), unique_name("payments")]
        for topic in topics:
            cluster.create_topic(topic, 1)
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for topic in topics:
                await producer.partitions_for(topic)
            leaders = [producer.client.cluster.leader_for_partition(TopicPartition(topic, 0)) for topic in topics]
        if len(set(leaders)) == 2 and -1 not in leaders and None not in leaders:
            break
    else:
        pytest.fail("no two topics with different leaders in ten attempts")
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=20, max_batch_size=256 * 1024
    ) as producer:
        for index in range(MANY):
            for number, topic in enumerate(topics):
                await producer.send(topic, b"x", partition=0, timestamp_ms=1_000 + 2 * index + number)
        await producer.flush()
    place = make_place()
    async with Proxy(cluster.bootstrap_servers) as proxy:
        proxy.delay("Fetch", ms=60, node_id=leaders[1])
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "group_id": None, "enable_auto_commit": False}
        async with place.consumer(*topics, **settings, max_partition_fetch_bytes=128 * 1024) as consumer:
            merged = consumer.merged(max_task_idle_ms)
            seen = times(await read(merged, 2 * MANY, 60))
            if max_task_idle_ms == 0:
                assert seen == list(range(1_000, 1_000 + 2 * MANY))
                assert (inversions(seen), merged.late) == (0, 0)
            else:
                assert inversions(seen) > 0
                assert merged.late > 0
                assert merged.enforced > 0


async def test_an_idle_partition_holds_the_others_up_for_max_task_idle_ms_and_no_longer(make_place):
    place = make_place(2)
    ears = Ears()
    await write(place, {0: range(100, 105)})
    async with place.consumer(observers=[ears]) as consumer:
        await eventually(lambda: consumer.lags() == {place.tp(0): 5, place.tp(1): 0})
        merged = consumer.merged(500)
        began_at_ms = now_ms()
        first = asyncio.create_task(anext(merged))
        await eventually(lambda: merged.waiting_for)
        assert {tp: each.state for tp, each in merged.waiting_for.items()} == {place.tp(1): MergeState.IDLING}
        assert began_at_ms <= merged.waiting_for[place.tp(1)].since_at_ms <= now_ms()
        assert (await first).timestamp == 100
        assert 500 <= now_ms() - began_at_ms < 1_000
        assert times(await read(merged, 4)) == [100, 101, 102, 103]  # the loop takes over what `anext` left in hand
        assert merged.enforced == 5
        assert merged.waiting_for == {}
        assert [each.partitions for each in ears.heard(events.MergeEnforced)] == [(place.tp(1),)]
        # A record of it, and it is waited for again.
        await write(place, {1: [104]})
        await eventually(lambda: consumer.current_lag(place.tp(1)) == 1)
        assert times(await read(merged, 3)) == [103, 104, 104]


async def test_with_0_a_partition_without_records_holds_nothing_up(make_place):
    place = make_place(3)
    await write(place, {0: range(50)})
    async with place.consumer() as consumer:
        began_at_ms = now_ms()
        merged = consumer.merged()
        assert times(await read(merged, 50)) == list(range(50))
        assert now_ms() - began_at_ms < 2_000
        assert merged.enforced == 50


async def test_nothing_comes_before_it_is_known_of_every_partition(make_place):
    place = make_place(2)
    await write(place, {0: [5], 1: [1]})
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        apis = ("Fetch", "ListOffsets")
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, group_id=None) as consumer:
            consumer.pause(place.tp(1))
            await eventually(lambda: consumer.current_lag(place.tp(0)) == 1)
            hold = proxy.hold(*apis)
            consumer.resume(place.tp(1))
            merged = consumer.merged()
            first = asyncio.create_task(anext(merged))
            await eventually(lambda: merged.waiting_for)
            await turns(100)
            assert not first.done()
            assert place.tp(1) in merged.waiting_for
            hold.remove()
            assert (await first).timestamp == 1


# Committed is what was processed.


async def test_a_commit_covers_what_was_delivered_and_not_what_is_buffered(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 100, 2), 1: range(1, 100, 2)})
    async with place.consumer(enable_auto_commit=False) as consumer:
        await read(consumer.merged(), 31)
        await consumer.commit()
        assert await place.committed(0) == 16
        assert await place.committed(1) == 15
        assert await consumer.position(place.tp(0)) == 16


async def test_auto_commit_covers_what_is_processed_and_a_stop_loses_nothing(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 100, 2), 1: range(1, 100, 2)})
    async with place.consumer() as consumer:
        assert times(await read(consumer.merged(), 31)) == list(range(31))
        await eventually(lambda: _both(place, 15, 15))  # 30 is in hand
    async with place.consumer() as consumer:
        assert times(await read(consumer.merged(), 70)) == list(range(30, 100))


async def _both(place, *offsets):
    return [await place.committed(0), await place.committed(1)] == list(offsets)


async def test_a_commit_from_another_task_while_records_are_read(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 4_000, 2), 1: range(1, 4_000, 2)})
    async with place.consumer(enable_auto_commit=False) as consumer:
        seen = []

        async def commit():
            while len(seen) < 4_000:
                await consumer.commit()
                committed = [await place.committed(partition) or 0 for partition in range(2)]
                assert sum(committed) <= len(seen) + 1
                assert abs(committed[0] - committed[1]) <= 1

        committing = asyncio.create_task(commit())
        async for record in consumer.merged():
            seen.append(record.timestamp)
            if len(seen) == 4_000:
                break
            if len(seen) % 100 == 0:
                await asyncio.sleep(0.002)
        await committing
        assert seen == list(range(4_000))


async def test_workers_acknowledge_what_a_merge_gave_them(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 40, 2), 1: range(1, 40, 2)})
    async with place.consumer(auto_ack=False) as consumer:
        records = await read(consumer.merged(), 20)
        for record in reversed(records[:10]):
            record.ack()
        records[15].ack()
        await eventually(lambda: _both(place, 5, 5))
    async with place.consumer() as consumer:
        assert times(await read(consumer.merged(), 30)) == list(range(10, 40))


# Interruptions.


async def test_break_cancel_and_another_kind_of_request_lose_nothing(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 200, 2), 1: range(1, 200, 2)})
    ears = Ears()
    async with place.consumer(observers=[ears]) as consumer:
        merged = consumer.merged()
        assert times(await read(merged, 10)) == list(range(10))
        assert times(await read(merged, 5)) == list(range(9, 14))  # what was in hand comes again
        assert len(ears.heard(events.RecordRedelivered)) == 1
        await consumer.skip()
        assert times(await read(merged, 2)) == [14, 15]
        for _ in range(50):
            asking = asyncio.create_task(anext(merged))
            await turns(random.randrange(3))
            asking.cancel()
            await asyncio.wait([asking])
            if not asking.cancelled():
                assert asking.result().timestamp == merged.stream_time
        expected = merged.stream_time + 1
        assert (await consumer.getone()).timestamp in (
            expected,
            expected + 1,
        )  # the first of one partition or the other
        rest = [record.timestamp for record in (await consumer.getmany(timeout_ms=1_000, max_records=500)).all()]
        assert len({*rest}) == 200 - expected - 1


async def test_a_cancelled_wait_has_taken_nothing(make_place):
    place = make_place(2)
    async with place.consumer() as consumer:
        merged = consumer.merged(10)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(merged), 0.1)
        await write(place, {0: [1, 3], 1: [2]})
        await eventually(lambda: consumer.lags() == {place.tp(0): 2, place.tp(1): 1})
        assert times(await read(merged, 3)) == [1, 2, 3]


async def test_an_overlapping_request_is_refused(make_place):
    place = make_place()
    async with place.consumer() as consumer:
        merged = consumer.merged()
        asking = asyncio.create_task(anext(merged))
        await turns()
        for overlapping in (consumer.getone, consumer.getmany, merged.__anext__, consumer.merged().__anext__):
            with pytest.raises(ConcurrentConsumptionError):
                await overlapping()
        await write(place, {0: [7]})
        assert (await asking).timestamp == 7


async def test_a_seek_goes_back_and_what_comes_again_is_late(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 20, 2), 1: range(1, 20, 2)})
    async with place.consumer() as consumer:
        merged = consumer.merged()
        assert times(await read(merged, 11)) == list(range(11))
        consumer.seek(place.tp(0), 2)
        records = await read(merged, 13)
        assert times(records) == [4, 6, 8, 10, *range(11, 20)]
        assert [record.lateness_ms for record in records[:4]] == [6, 4, 2, 0]
        assert (merged.late, merged.stream_time) == (3, 19)


async def test_a_paused_partition_is_left_out_and_keeps_its_place(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 20, 2), 1: range(1, 20, 2)})
    async with place.consumer() as consumer:
        merged = consumer.merged()
        assert times(await read(merged, 4)) == [0, 1, 2, 3]
        await consumer.skip()
        consumer.pause(place.tp(1))
        assert times(await read(merged, 3)) == [4, 6, 8]
        await consumer.skip()
        consumer.resume(place.tp(1))
        assert times(await read(merged, 3)) == [5, 7, 9]


async def test_stop_ends_the_loop_and_later_requests_say_so(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 20, 2), 1: range(1, 20, 2)})
    consumer = place.consumer()
    await consumer.start()
    merged = consumer.merged()
    seen = []

    async def loop():
        async for record in merged:
            seen.append(record.timestamp)
            await asyncio.sleep(0)

    looping = asyncio.create_task(loop())
    await eventually(lambda: len(seen) == 20)
    report = await consumer.stop()
    await looping
    assert report.is_clean, report
    assert [await place.committed(0), await place.committed(1)] == [10, 10]
    with pytest.raises(ConsumerStoppedError):
        aiter(merged)
    assert merged.stream_time == 19


async def test_stop_in_the_body_leaves_the_record_in_hand_for_the_next_consumer(make_place):
    place = make_place(2)
    await write(place, {0: range(0, 20, 2), 1: range(1, 20, 2)})
    consumer = place.consumer()
    await consumer.start()
    seen = []
    async for record in consumer.merged():
        seen.append(record.timestamp)
        if len(seen) == 7:
            await consumer.stop()
    assert seen == list(range(7))
    async with place.consumer() as consumer:
        assert times(await read(consumer.merged(), 14)) == list(range(6, 20))


async def test_a_closed_merge_gives_nothing_more_and_buffers_as_before(make_place):
    place = make_place()
    await write(place, {0: range(10)})
    async with place.consumer() as consumer:
        merged = consumer.merged()
        await read(merged, 3)
        await merged.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(merged)
        assert (await consumer.getone()).timestamp == 3


# Rebalances.


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_members_come_and_go_and_no_record_is_lost(make_place, strategy):
    place = make_place(4)
    count = 400
    await write(place, {partition: range(partition, 4 * count, 4) for partition in range(4)})
    seen = {partition: [] for partition in range(4)}
    disorder = []

    async def loop(consumer, pause_s):
        of_owner = {}
        async for record in consumer.merged(50):
            owned = consumer.assignment()
            if of_owner.get("owned") == owned and record.timestamp < of_owner["at"] and not record.lateness_ms:
                disorder.append(record)
            of_owner = {"owned": owned, "at": record.timestamp}
            seen[record.partition].append(record.offset)
            await asyncio.sleep(pause_s)

    settings = {"partition_assignment_strategy": strategy}
    first = place.consumer(**settings)
    await first.start()
    looping = asyncio.create_task(loop(first, 0.002))
    await eventually(lambda: sum(map(len, seen.values())) > 100)
    second = place.consumer(**settings)
    await second.start()
    await eventually(lambda: len(second.assignment()) == 2)
    looping_too = asyncio.create_task(loop(second, 0.001))
    await eventually(lambda: sum(map(len, seen.values())) > 500)
    await second.stop()
    await looping_too
    await eventually(lambda: all(len(set(offsets)) == count for offsets in seen.values()), 30)
    await first.stop()
    await looping
    assert disorder == []
    for offsets in seen.values():
        assert sorted(set(offsets)) == list(range(count))
        repeated = len(offsets) - count
        assert repeated <= 2  # a record that was in hand when its partition moved, at most
    assert [await place.committed(partition) for partition in range(4)] == [count] * 4


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_what_is_buffered_of_a_revoked_partition_is_not_given(make_place, strategy):
    place = make_place(2)
    await write(place, {0: range(0, 4_000, 2), 1: range(1, 4_000, 2)})
    listener = Listener()
    seen = []
    settings = {"partition_assignment_strategy": strategy}
    async with place.consumer(listener=listener, **settings) as consumer:
        given_up = []

        async def note(revoked):
            given_up.append((len(seen), frozenset(revoked)))

        listener.inside["revoked"] = note

        async def loop():
            async for record in consumer.merged():
                seen.append(record)
                await asyncio.sleep(0.001)

        looping = asyncio.create_task(loop())
        await eventually(lambda: len(seen) > 50)
        async with place.consumer(**settings) as other:
            await eventually(lambda: len(other.assignment()) == 1)
            (moved,) = other.assignment()
            theirs = await read(other.merged(), 1)
            mine = [record.offset for record in seen if record.tp == moved]
            assert mine == list(range(len(mine)))
            assert theirs[0].tp == moved
            assert theirs[0].offset == len(mine)
            ((count, _),) = given_up
            since = [record.tp for record in seen[count:]]
            assert moved not in since
            before = times(seen[:count])
            assert before == list(range(len(before)))
            await consumer.stop()
            await looping


async def test_records_after_a_loss_are_refused_to_be_committed(make_place):
    place = make_place()
    await write(place, {0: range(10)})
    async with place.consumer(max_poll_interval_ms=1_000, session_timeout_ms=1_000, enable_auto_commit=False) as one:
        merged = one.merged()
        records = await read(merged, 4)
        await eventually(lambda: not one.assignment())
        with pytest.raises((CommitFailedError, IllegalStateError)):
            await one.commit({records[-1].tp: records[-1].offset + 1})
        assert times(await read(merged, 2)) == [0, 1]  # nothing was committed


# What can be wrong.


async def test_read_committed_passes_aborted_records_and_markers(make_place):
    place = make_place(2)
    await write(place, {1: [1, 4, 9]})
    async with place.producer(transactional_id=place.topic) as producer:
        for at, is_kept in ((2, True), (3, False), (5, True)):
            await producer.begin_transaction()
            await producer.send(place.topic, b"%d" % at, partition=0, timestamp_ms=at)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    async with place.consumer(isolation_level="read_committed") as consumer:
        merged = consumer.merged()
        assert times(await read(merged, 5)) == [1, 2, 4, 5, 9]
        await consumer.skip()
        assert await consumer.lag() == 0
        await eventually(lambda: _both(place, 6, 3))


async def test_a_record_without_a_time_is_named_or_skipped(make_place):
    place = make_place(2)
    await write(place, {0: [1, 3], 1: [2, 4]})

    def at(record):
        if record.timestamp == 3:
            raise KeyError("event_time")
        return record.timestamp

    ears = Ears()
    async with place.consumer(observers=[ears]) as consumer:
        merged = consumer.merged(timestamp=at)
        assert times([await anext(merged)]) == [1]
        for _ in range(2):
            with pytest.raises(TimestampError, match="event_time") as caught:
                await anext(merged)
        assert (caught.value.tp, caught.value.offset, caught.value.record.value) == (place.tp(0), 1, b"3")
        assert len(ears.heard(events.PoisonRecord)) == 1
        skipped = []
        merged = consumer.merged(timestamp=at, on_bad_timestamp=lambda record, error: skipped.append(record.offset))
        assert times(await read(merged, 2)) == [2, 4]
        assert skipped == [1]
        await consumer.skip()
        await eventually(lambda: _both(place, 2, 2))


async def is_known(consumer, tp):
    """Where it stands; a busy machine may take longer for it than one call may."""
    try:
        await consumer.position(tp)
    except KafkaTimeoutError:
        return False
    return True


@pytest.mark.parametrize("stalled", ["wait", "raise"])
async def test_a_partition_that_no_broker_speaks_of_is_reported(cluster_3, unique_name, make_place, stalled):
    cluster, ears = cluster_3, Ears()
    topic = unique_name("topic")
    cluster.create_topic(topic, 3)
    place = make_place()
    place.cluster, place.topic = cluster, topic
    await write(place, {0: [1, 4], 1: [2, 5], 2: [3, 6]})
    async with Proxy(cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "group_id": None, "default_api_timeout_ms": 1_500}
        async with place.consumer(**settings, observers=[ears]) as consumer:
            for tp in consumer.assignment():
                await eventually(lambda tp=tp: is_known(consumer, tp))
            rules = [proxy.cut(api, node_id=2) for api in ("Fetch", "ListOffsets")]
            for tp in consumer.assignment():  # forwards and back: nothing that is buffered stays
                consumer.seek(tp, 1)
                consumer.seek(tp, 0)
            merged = consumer.merged(stalled=stalled)
            first = asyncio.create_task(anext(merged))
            await eventually(lambda: ears.heard(events.MergeStalled))
            (told,) = ears.heard(events.MergeStalled)
            assert told.state in ("unknown", "behind")
            assert told.blocked_ms >= 1_500
            assert told.why not in ("", "no answer yet")
            if stalled == "raise":
                with pytest.raises(MergeStalledError) as caught:
                    await first
                assert caught.value.retriable
                assert caught.value.partitions == {TopicPartition(told.topic, told.partition)}
                first = asyncio.create_task(anext(merged))
            for rule in rules:
                rule.remove()
            assert (await first).timestamp == 1
            assert times(await read(merged, 6)) == [1, 2, 3, 4, 5, 6]


async def test_bad_arguments_are_refused_when_it_is_made(make_place):
    consumer = make_place().unsubscribed()
    for wrong in (
        {"max_task_idle_ms": -2},
        {"max_task_idle_ms": 1.5},
        {"max_task_idle_ms": True},
        {"buffered_records_per_partition": 0},
        {"stalled": "perhaps"},
        {"timestamp": 5},
        {"timestamp": asyncio.sleep},
        {"on_bad_timestamp": "skip"},
    ):
        (name,) = wrong
        with pytest.raises(ConfigError, match=name):
            consumer.merged(**wrong)
    with pytest.raises(ConfigError, match="enable_parallel_rebalance"):
        make_place().unsubscribed(enable_parallel_rebalance=True, auto_offset_reset="latest").merged()
    with pytest.raises(IllegalStateError, match="start"):
        await anext(consumer.merged())
    with pytest.raises(IllegalStateError, match="start"):
        async for _ in consumer.merged():
            pass


# Buffers.


async def test_a_partition_that_is_ahead_is_not_fetched_any_further_and_keeps_what_it_has(make_place):
    place = make_place(2)
    await write(place, {0: range(50_000), 1: [49_999]}, batch_bytes=4 * 1024)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "max_partition_fetch_bytes": 8 * 1024}
        async with place.consumer(**settings) as consumer:
            merged = consumer.merged(600_000, buffered_records_per_partition=500)
            seen = times(await read(merged, 49_999))
            assert seen == list(range(49_999))
            await consumer.skip()
            consumer.seek(place.tp(0), 0)
            consumer.seek(place.tp(1), 1)  # at its end: it is waited for
            waiting = asyncio.create_task(anext(merged))
            await eventually(lambda: consumer.metrics()["buffered_bytes"] > 0)
            await eventually(lambda: merged.waiting_for.keys() == {place.tp(1)})
            await turns(200)
            held = consumer.metrics()["buffered_bytes"]
            fetched = proxy.count("Fetch")
            await eventually(lambda: proxy.count("Fetch") > fetched + 3)
            assert consumer.metrics()["buffered_bytes"] == held < 48 * 1024  # 500 records, and one fetch
            await write(place, {1: [60_000]})
            assert (await waiting).timestamp == 0


async def test_however_narrow_the_bound_is_every_partition_gets_its_record(make_place):
    partitions, count = 20, 40
    place = make_place(partitions)
    async with place.producer(max_batch_size=1) as producer:
        for index in range(count):
            await asyncio.gather(
                *[
                    producer.send_and_wait(
                        place.topic, b"x" * 20_000, partition=partition, timestamp_ms=index * partitions + partition
                    )
                    for partition in range(partitions)
                ]
            )
    settings = {
        "max_buffered_bytes": 256 * 1024,
        "max_partition_fetch_bytes": 128 * 1024,
        "fetch_max_bytes": 256 * 1024,
    }
    async with place.consumer(**settings) as consumer:
        merged = consumer.merged()
        assert times(await read(merged, partitions * count, 60)) == list(range(partitions * count))
        assert merged.late == 0
