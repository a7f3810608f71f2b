"""Recover without falling behind (KIP-333): the acceptance points on real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import pytest
from aiokafka.admin import RecordsToDelete

from aiogroup import IllegalStateError, RecordDeserializationError
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, eventually, take_batch
from tests.support.recovery import MANUAL, MODE, Reading, committed_with, lanes_of, leave_at, pending_of, written


async def test_1_the_seeds_figures_exactly(make_place):
    place, ears = make_place(), Ears()
    tp = place.tp()
    await leave_at(place, committed=70, end=120)
    async with place.consumer(**MODE, **MANUAL, observers=[ears], max_poll_records=10) as consumer:
        assert consumer.child_consumer_is_alive()
        assert await consumer.position(tp) == 120
        assert await consumer.committed(tp) == 70
        await place.produce(range(120, 170))
        found, rising = {"live": [], "catch-up": []}, [70]
        while len(found["live"]) < 50 or len(found["catch-up"]) < 50:
            batch = await consumer.poll(5_000)
            assert batch.count, found
            for lane, offsets in lanes_of(batch).items():
                found[lane] += offsets
            assert all(record.value == str(record.offset).encode() for record in batch.all())
            if len(found["catch-up"]) < 50:
                await consumer.commit()
                rising.append(await consumer.committed(tp))
        assert found == {"live": list(range(120, 170)), "catch-up": list(range(70, 120))}
        assert rising == sorted(rising)
        assert 70 < rising[-1] < 120
        assert len(set(rising)) > 2
        await consumer.skip()
        assert not consumer.child_consumer_is_alive()
        await eventually(lambda: ears.heard(events.CatchUpDone))
        assert [(each.start_offset, each.end_offset) for each in ears.heard(events.RangeDone)] == [(70, 120)]
        await consumer.commit({tp: 120})
        await consumer.commit({tp: 140})
        assert await consumer.committed(tp) == 140
        assert await consumer.position(tp) == 170
    await place.produce(range(170, 190))
    async with place.consumer(**MODE, **MANUAL) as consumer:
        assert await consumer.position(tp) == 190
        await place.produce(range(190, 195))
        found = {"live": [], "catch-up": []}
        while sum(map(len, found.values())) < 55:
            for lane, offsets in lanes_of(await consumer.poll(5_000)).items():
                found[lane] += offsets
        assert found == {"catch-up": list(range(140, 190)), "live": list(range(190, 195))}


async def test_a_group_that_missed_nothing_reads_one_lane_and_commits_no_token(make_place):
    place, ears = make_place(), Ears()
    await leave_at(place, committed=20, end=20)
    async with place.consumer(**MODE, observers=[ears]) as consumer:
        assert not consumer.child_consumer_is_alive()
        await place.produce(range(20, 25))
        assert lanes_of(await take_batch(consumer, 5)) == {"live": [20, 21, 22, 23, 24]}
        await consumer.commit()
    assert await place.committed() == 25
    assert ears.heard(events.CatchUpStarted) == []


async def test_2_a_second_crash_leaves_both_ranges_pending(make_place):
    place, reading = make_place(), Reading()
    await leave_at(place, committed=70, end=1_000)
    async with place.consumer(**MODE, **MANUAL, max_poll_records=10) as consumer:
        await place.produce(range(1_000, 1_050))
        await eventually(lambda: consumer.highwater(place.tp()) == 1_050)
        await reading.until(consumer, lambda: len(reading.lanes.get("catch-up", ())) >= 15 and "live" in reading.lanes)
        await consumer.commit()
        ranges = consumer.lanes()[place.tp()].ranges
    reached, live = reading.lanes["catch-up"][-1] + 1, reading.lanes["live"][-1] + 1
    assert reached < 1_000
    offset, metadata = await written(place)
    assert offset == reached
    assert f"live={live}" in metadata
    assert f"pending={reached}-1000 " in metadata
    assert ranges[0][1] == 1_000
    await place.produce(range(1_050, 1_090))
    async with place.consumer(**MODE) as consumer:
        assert [each[1] for each in consumer.lanes()[place.tp()].ranges] == [1_000, 1_090]
        assert await consumer.position(place.tp()) == 1_090
        await reading.until(consumer, lambda: reading.has(70, 1_090))
        again = reading.lanes["catch-up"]
        assert len(again) == len(set(again))
        await consumer.skip()
        await eventually(lambda: place.committed_is(1_090))
    assert await written(place) == (1_090, "")


async def test_3_a_failing_handler_of_the_catch_up_lane_stops_neither_lane(make_place):
    place, reading, failed = make_place(), [], []
    tp = place.tp()
    await leave_at(place, committed=70, end=120)
    await place.produce([])
    async with place.consumer(**MODE, max_poll_records=5) as consumer:
        await place.produce(range(120, 160))
        async with asyncio.timeout(20):
            while len(set(reading)) < 90:
                for record in (await consumer.poll(5_000)).all():
                    if record.offset == 80 and len(failed) < 3:
                        failed.append(record.offset)
                        consumer.seek(tp, 80)  # the handler failed: again from there
                        break
                    reading.append(record.offset)
        await consumer.skip()
        await eventually(lambda: place.committed_is(160))
    assert failed == [80, 80, 80]
    assert set(reading) == set(range(70, 160))
    assert [each for each in reading if 80 <= each < 120] == list(range(80, 120))


@pytest.mark.parametrize("way", ["seek", "skip"])
async def test_3_a_poison_record_of_one_lane_is_reported_with_its_lane_and_the_other_goes_on(make_place, way):
    place, given, poisoned = make_place(), {"live": [], "catch-up": []}, []
    await leave_at(place, committed=70, end=120)

    def value(data):
        if data == b"119":
            raise ValueError("unreadable")
        return data

    async with place.consumer(**MODE, value_deserializer=value) as consumer:

        async def read_until(is_enough):
            async with asyncio.timeout(20):
                while not is_enough():
                    try:
                        record = await consumer.getone()
                        given[record.lane].append(record.offset)
                    except RecordDeserializationError as error:
                        poisoned.append((error.lane, error.offset))

        await read_until(lambda: len(poisoned) == 2)
        await place.produce(range(120, 140))
        await read_until(lambda: len(given["live"]) == 20)  # so that the last one of them is in hand
        assert set(poisoned) == {("catch-up", 119)}
        assert given == {"live": list(range(120, 140)), "catch-up": list(range(70, 119))}
        if way == "seek":
            consumer.seek(place.tp(), 120)  # behind the poison record, which is the range's last one
            in_hand = 139
        else:
            await consumer.skip(place.tp())
            in_hand = 140  # nothing is: it counts as processed
        assert not consumer.child_consumer_is_alive()
        assert await consumer.position(place.tp()) == in_hand
        await eventually(lambda: place.committed_is(in_hand))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_7_members_that_come_and_go_while_it_catches_up_skip_nothing(make_place, strategy):
    place, reading = make_place(3), Reading()
    for partition in range(3):
        await place.produce(range(300), partition)
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(each): 20 for each in range(3)})
    settings = {**MODE, "partition_assignment_strategy": strategy, "max_poll_records": 7}

    async def read(consumer, until):
        async with consumer:
            while not until.is_set():
                reading.take(await consumer.poll(100))

    done, first_done = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(read(place.consumer(**settings), first_done))]
    try:
        await eventually(lambda: len(reading.lanes.get("catch-up", ())) > 30)
        tasks += [asyncio.create_task(read(place.consumer(**settings), done)) for _ in range(2)]
        for partition in range(3):
            await place.produce(range(300, 330), partition)
        await asyncio.sleep(0.3)
        first_done.set()
        await eventually(lambda: all(reading.has(20, 330, each) for each in range(3)), 40)
        await eventually(lambda: place.committed_is(330, 330, 330), 20)
    finally:
        done.set()
        first_done.set()
        await asyncio.gather(*tasks)
    for partition in range(3):
        assert await written(place, partition=partition) == (330, "")


async def test_8_what_retention_removed_of_a_range_is_reported_and_the_rest_delivered(make_place):
    place, reading, ears = make_place(), Reading(), Ears()
    await leave_at(place, committed=10, end=120)
    await delete_below(place, 50)
    async with place.consumer(**MODE, observers=[ears], auto_offset_reset="latest") as consumer:
        await reading.until(consumer, lambda: reading.has(50, 120))
    assert min(reading.offsets[0]) == 50
    assert [(each.start_offset, each.end_offset) for each in ears.heard(events.RangeTruncated)] == [(10, 50)]


async def test_8_retention_while_it_catches_up_is_reported_and_the_rest_delivered(make_place):
    place, reading, ears = make_place(), Reading(), Ears()
    async with place.producer(linger_ms=0) as producer:
        for at in range(120):
            await producer.send_and_wait(place.topic, b"%0200d" % at, partition=0)
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): 10})
    small = {"max_partition_fetch_bytes": 1_000, "auto_offset_reset": "latest"}
    async with place.consumer(**MODE, **small, observers=[ears]) as consumer:
        await reading.until(consumer, lambda: len(reading.offsets.get(0, ())) >= 3)
        await delete_below(place, 80)
        await reading.until(consumer, lambda: reading.has(80, 120))
        (gone,) = ears.heard(events.RangeTruncated)
        assert gone.end_offset == 80
        assert reading.has(10, gone.start_offset)
        await consumer.skip()
        await eventually(lambda: not consumer.child_consumer_is_alive())
        assert ears.heard(events.OffsetReset) == []


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_8_a_range_of_transactions_ends(make_place, isolation):
    place, reading = make_place(), Reading()
    await place.produce(range(3))
    async with place.producer(transactional_id=place.group) as producer:
        async with producer.transaction():
            await producer.send(place.topic, b"3", partition=0)
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(place.topic, b"aborted", partition=0)
                raise ZeroDivisionError
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): 1})
    async with place.consumer(**MODE, isolation_level=isolation) as consumer:
        end = await consumer.position(place.tp())
        count = 3 if isolation == "read_committed" else 4
        await reading.until(consumer, lambda: len(reading.offsets.get(0, ())) == count)
        await consumer.skip()
        await eventually(lambda: not consumer.child_consumer_is_alive())
        await eventually(lambda: place.committed_is(end))


async def delete_below(place, offset):
    async with place.admin() as admin:
        await admin.delete_records({place.tp(): RecordsToDelete(before_offset=offset)})


# 9: others write the group's offset.


async def test_9_a_tool_resets_the_offset_and_keeps_the_metadata(make_place):
    place, reading = make_place(), Reading()
    await leave_at(place, committed=70, end=120)
    async with place.consumer(**MODE, **MANUAL, max_poll_records=5) as consumer:
        await reading.until(consumer, lambda: len(reading.lanes.get("catch-up", ())) >= 10)
        await consumer.commit()
    offset, token = await written(place)
    assert offset > 70
    await written(place, 30, token)
    ranges, ears = await pending_of(place, Reading())
    assert ranges == ((30, 120),)
    (foreign,) = ears.heard(events.ForeignToken)
    assert "checksum" in foreign.why


async def test_9_an_edited_token_and_one_without_metadata_are_as_if_there_were_none(make_place):
    place, reading = make_place(), Reading()
    await leave_at(place, committed=70, end=1_000)
    async with place.consumer(**MODE, **MANUAL, max_poll_records=5) as consumer:
        await place.produce(range(1_000, 1_010))
        await eventually(lambda: consumer.highwater(place.tp()) == 1_010)
        await reading.until(consumer, lambda: len(reading.lanes) == 2)
        await consumer.commit()
    offset, token = await written(place)
    for text in (token.replace("pending=", "pending=1"), ""):
        await written(place, offset, text)
        async with place.consumer(**MODE, **MANUAL) as consumer:
            assert consumer.lanes()[place.tp()].ranges == ((offset, 1_010),)
    await written(place, offset, token)
    async with place.consumer(**MODE, **MANUAL) as consumer:
        assert consumer.lanes()[place.tp()].ranges[0] == (offset, 1_000)


async def test_9_a_consumer_without_the_mode_in_between_repeats_and_skips_nothing(make_place):
    place, reading = make_place(), Reading()
    await leave_at(place, committed=70, end=1_000)
    async with place.consumer(**MODE, **MANUAL, max_poll_records=5) as consumer:
        await place.produce(range(1_000, 1_010))
        await eventually(lambda: consumer.highwater(place.tp()) == 1_010)
        await reading.until(consumer, lambda: len(reading.lanes) == 2)
        await consumer.commit()
    offset, _ = await written(place)
    async with place.consumer(max_poll_records=3) as plain:
        batch = await plain.poll(5_000)
        assert next(batch.all()).offset == offset
        await plain.commit()
    assert await written(place) == (offset + batch.count, "")
    ranges, _ = await pending_of(place, reading)
    assert ranges == ((offset + batch.count, 1_010),)
    reading.take(batch)
    assert reading.has(70, 1_010)


async def test_9_a_lower_isolation_level_in_between_skips_nothing(make_place):
    place, reading = make_place(), Reading()
    await place.produce(range(20))
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): 10})
    async with place.producer(transactional_id=place.group) as producer:
        await producer.begin_transaction()
        for at in range(20, 30):
            await producer.send_and_wait(place.topic, str(at).encode(), partition=0)
        async with place.consumer(**MODE, **MANUAL, isolation_level="read_uncommitted") as consumer:
            assert consumer.lanes()[place.tp()].ranges == ((10, 30),)
            reading.take(await consumer.poll(5_000, 5))
            await consumer.commit()
        async with place.consumer(**MODE, isolation_level="read_committed") as consumer:
            assert consumer.lanes()[place.tp()].ranges == ((15, 30),)
            await reading.until(consumer, lambda: reading.has(10, 20))
            assert consumer.child_consumer_is_alive()
            await producer.commit_transaction()
            await reading.until(consumer, lambda: reading.has(10, 30))
            await consumer.skip()
            await eventually(lambda: not consumer.child_consumer_is_alive())


async def test_a_plain_consumer_starts_at_the_log_start_where_a_tokens_offset_is_below(make_place):
    place, reading = make_place(), Reading()
    await leave_at(place, committed=70, end=120)
    async with place.consumer(**MODE, **MANUAL) as consumer:
        reading.take(await consumer.poll(5_000, 5))
        await consumer.commit()
    assert (await written(place))[0] == 75
    await delete_below(place, 90)
    async with place.consumer(auto_offset_reset="latest") as plain:
        assert next((await plain.poll(5_000)).all()).offset == 90


# 11: ordered.

ORDERED = {**MODE, "parallel_order": "ordered"}


async def test_11_ordered_mode_is_strictly_increasing_across_the_switch(make_place):
    place, reading = make_place(2), Reading()
    for partition in range(2):
        await place.produce(range(600), partition)
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(0): 100, place.tp(1): 600})
    async with place.consumer(**ORDERED, max_poll_records=20) as consumer:
        for partition in range(2):
            await place.produce(range(600, 700), partition)
        await reading.until(consumer, lambda: reading.has(100, 700, 0) and reading.has(600, 700, 1))
        assert reading.offsets == {0: list(range(100, 700)), 1: list(range(600, 700))}
        assert len(reading.lanes["live"]) == 200
        await consumer.skip()
        await eventually(lambda: place.committed_is(700, 700))


async def test_11_what_waits_of_the_live_lane_is_bounded(make_place):
    place, reading = make_place(), Reading()
    bound, value = 40_000, b"x" * 1_000
    async with place.producer(linger_ms=2) as producer:
        await asyncio.gather(*[await producer.send(place.topic, value, partition=0) for _ in range(4_000)])
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): 0})
    settings = {"parallel_buffer_bytes": bound, "max_partition_fetch_bytes": 20_000, "max_poll_records": 100}
    async with place.consumer(**ORDERED, **settings) as consumer:
        async with place.producer(linger_ms=2) as producer:
            await asyncio.gather(*[await producer.send(place.topic, value, partition=0) for _ in range(1_000)])
        most_bytes = 0
        while len(reading.offsets.get(0, ())) < 5_000:
            reading.take(await consumer.poll(2_000))
            if consumer.child_consumer_is_alive():
                most_bytes = max(most_bytes, consumer.metrics()["waiting_bytes"])
        assert reading.offsets[0] == list(range(5_000))
    assert 0 < most_bytes <= bound


# 6: many ranges.


async def test_6_ranges_pile_up_and_the_token_stays_under_the_limit(make_place):
    place, reading = make_place(), Reading()
    await leave_at(place, committed=5, end=10)
    end = 10
    for crash in range(64):
        async with place.consumer(**MODE, **MANUAL, fetch_max_wait_ms=1) as consumer:
            assert len(consumer.lanes()[place.tp()].ranges) == crash + 1
            assert await consumer.position(place.tp()) == end
            await place.produce([end])
            await reading.until(consumer, lambda at=end: at in reading.lanes.get("live", ()))
            await consumer.commit({place.tp(): end + 1})
            await place.produce([end + 1])
            end += 2
        assert (await written(place))[0] == 5
    _, metadata = await written(place)
    assert len(metadata) <= 4096
    assert metadata.count(",") == 63
    async with place.consumer(**MODE) as consumer:
        await reading.until(consumer, lambda: reading.has(5, end))
        await consumer.skip()
        await eventually(lambda: place.committed_is(end))


async def test_6_a_broker_that_takes_less_metadata_gets_a_shorter_token_or_none(make_place):
    place, reading = make_place(), Reading()
    await leave_at(place, committed=5, end=100)

    def too_large(exchange):
        (topic,) = exchange.response.topics
        refused = tuple(
            dataclasses.replace(each, error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE) for each in topic.partitions
        )
        return dataclasses.replace(exchange.response, topics=(dataclasses.replace(topic, partitions=refused),))

    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        servers = {"bootstrap_servers": proxy.bootstrap_servers}
        async with place.consumer(**MODE, **MANUAL, **servers) as consumer:
            reading.take(await consumer.poll(5_000, 7))
            proxy.rewrite(OffsetCommitRequest, too_large, times=1)
            await consumer.commit()
    offset, metadata = await written(place)
    assert (offset, metadata) == (12, "")
    async with place.consumer(**MODE) as consumer:
        assert consumer.lanes()[place.tp()].ranges == ((12, 100),)


# The calls, while two lanes read.


async def test_calls_mean_what_the_table_says_while_two_lanes_read(make_place):
    place, reading = make_place(), Reading()
    tp = place.tp()
    await leave_at(place, committed=70, end=1_000)
    async with place.consumer(**MODE, **MANUAL, max_poll_records=10) as consumer:
        await place.produce(range(1_000, 1_100))
        await eventually(lambda: consumer.highwater(tp) == 1_100)
        await reading.until(consumer, lambda: len(reading.lanes) == 2)
        reached, live = max(reading.lanes["catch-up"]) + 1, max(reading.lanes["live"]) + 1
        assert await consumer.position(tp) == live
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 1_100}
        lag = await consumer.lag(detail=True)
        assert (lag.live, lag.catch_up) == (1_100 - live, 1_000 - reached)
        assert await consumer.lag() == lag.total == consumer.current_lag(tp) == consumer.metrics()["records_lag_sum"]
        for offset in (69, 70, reached + 1, 999, live + 1):
            with pytest.raises(ValueError, match="next to process in no lane"):
                await consumer.commit({tp: offset})
        assert await consumer.committed(tp) == 70
        await consumer.commit({tp: (live, "mine")})
        offset, metadata = await committed_with(place)
        assert offset == 70
        assert f"live={live}" in metadata
        assert metadata.endswith(" 4:mine")
        with pytest.raises(IllegalStateError, match="offsets_for_transaction"):
            consumer.group_metadata()
        given = consumer.offsets_for_transaction({tp: reached})
        assert given[tp].offset == reached
        assert f"live={live}" in given[tp].metadata
        assert consumer.group_metadata().group_id == place.group
        reading.take(await consumer.poll(5_000))
        with pytest.raises(IllegalStateError, match="offsets_for_transaction"):
            consumer.group_metadata()
        consumer.pause(tp)
        assert (await consumer.poll(300)).count == 0
        consumer.resume(tp)
        assert (await consumer.poll(5_000)).count > 0


async def test_a_seek_moves_one_lane_and_only_drop_pending_drops_ranges(make_place):
    place, ears = make_place(), Ears()
    tp = place.tp()
    await leave_at(place, committed=70, end=1_000)
    async with place.consumer(**MODE, **MANUAL, max_poll_records=10, observers=[ears]) as consumer:
        reading = Reading()
        reading.take(await consumer.poll(5_000))
        consumer.seek(tp, 200)
        assert consumer.lanes()[tp].ranges == ((200, 1_000),)
        reading = Reading()
        reading.take(await consumer.poll(5_000))
        assert reading.offsets[0] == list(range(200, 210))
        consumer.seek(tp, 50)
        assert consumer.lanes()[tp].ranges == ((50, 1_000),)
        with pytest.raises(ValueError, match="goes nowhere below"):
            consumer.seek(tp, 60, lane="live")
        with pytest.raises(ValueError, match="lies in no pending range"):
            consumer.seek(tp, 1_000, lane="catch-up")
        await consumer.seek_to_committed(tp)
        assert consumer.lanes()[tp].ranges == ((70, 1_000),)
        assert ears.heard(events.RangesDropped) == []
        consumer.seek(tp, 990, drop_pending=True)
        (dropped,) = ears.heard(events.RangesDropped)
        assert dropped.dropped == ((70, 1_000),)
        reading = Reading()
        await reading.until(consumer, lambda: reading.has(990, 1_000))
        assert reading.offsets[0] == list(range(990, 1_000))
        assert not consumer.child_consumer_is_alive()


async def test_a_seek_in_the_assigned_callback_decides_alone(make_place):
    place, ears, reading = make_place(), Ears(), Reading()
    tp = place.tp()
    await leave_at(place, committed=70, end=120)
    listener = Listener()
    consumer = place.unsubscribed(**MODE, observers=[ears])

    async def to_110(partitions):
        consumer.seek(tp, 110)

    listener.inside["assigned"] = to_110
    consumer.subscribe([place.topic], listener=listener)
    async with consumer:
        await reading.until(consumer, lambda: reading.has(110, 120))
        assert reading.lanes == {"live": list(range(110, 120))}
        (dropped,) = ears.heard(events.RangesDropped)
        assert "on_partitions_assigned" in dropped.why


async def test_without_a_commit_the_start_is_committed_before_the_first_record_and_never_the_live_position(make_place):
    place = make_place()
    await place.produce(range(50))
    async with place.consumer(**MODE, auto_commit_interval_ms=60_000) as consumer:
        record = await consumer.getone()
        assert record.offset == 0
        offset, metadata = await committed_with(place)
        assert offset == 0
        assert "live=50" in metadata


async def test_assign_is_refused_in_the_mode(make_place):
    place = make_place()
    consumer = place.unsubscribed(**MODE)
    with pytest.raises(IllegalStateError, match="enable_parallel_rebalance"):
        consumer.assign([place.tp()])


async def test_acknowledged_record_by_record_each_lane_is_committed_as_far_as_it_is_gap_free(make_place):
    place, by_lane = make_place(), {"live": [], "catch-up": []}
    tp = place.tp()
    await leave_at(place, committed=70, end=1_000)
    async with place.consumer(**MODE, auto_ack=False, max_poll_records=10, auto_commit_interval_ms=60_000) as consumer:
        await place.produce(range(1_000, 1_100))
        await eventually(lambda: consumer.highwater(tp) == 1_100)
        while min(map(len, by_lane.values())) < 3:
            for record in (await consumer.poll(5_000)).all():
                by_lane[record.lane].append(record)
        by_lane["catch-up"][0].ack()
        by_lane["catch-up"][2].ack()
        by_lane["live"][0].ack()
        by_lane["live"][1].ack()
        await consumer.commit()
        offset, metadata = await committed_with(place)
        assert offset == 71
        assert "live=1002" in metadata
