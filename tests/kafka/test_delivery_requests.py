"""Requests for records: cancelled, overlapping, fair, in order, and the position (delivery.md, rules 7 to 12)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from aiogroup import (
    ConcurrentConsumptionError,
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from aiogroup._core.telemetry.events import PollIntervalExceeded
from tests.support.kafka import Ears, Listener, eventually, take, take_batch, turns, values


async def test_rule_7_a_thousand_cancelled_requests_lose_nothing_and_the_watchdog_still_fires(make_place):
    place, ears = make_place(), Ears()
    async with place.consumer(session_timeout_ms=4_000, max_poll_interval_ms=4_000, observers=[ears]) as consumer:
        seen = []

        async def consume():
            for _ in range(1_000):
                with contextlib.suppress(TimeoutError):
                    seen.append((await asyncio.wait_for(consumer.getone(), 0.003)).value.decode())

        consuming = asyncio.create_task(consume())
        async with place.producer() as producer:
            for index in range(200):
                await producer.send(place.topic, str(index).encode(), partition=0)
                await asyncio.sleep(0.002)
        await consuming
        while len(seen) < 200:
            seen += await take(consumer, 1)
        assert seen == [str(index) for index in range(200)]
        assert not ears.heard(PollIntervalExceeded)
        await eventually(lambda: ears.heard(PollIntervalExceeded), 12)


@pytest.mark.parametrize("call", ["getmany", "poll", "__anext__"])
async def test_rule_7_any_cancelled_request_loses_nothing(make_place, call):
    place = make_place()
    await place.produce(range(300))
    seen = []
    calls = {
        "getmany": lambda c: c.getmany(timeout_ms=1_000, max_records=3),
        "poll": lambda c: c.poll(max_records=3),
        "__anext__": lambda c: c.__anext__(),
    }
    async with place.consumer() as consumer:
        await eventually(lambda: consumer.highwater(place.tp()) == 300)  # the records are here
        for index in range(10_000):
            asking = asyncio.ensure_future(calls[call](consumer))
            await turns(index % 5)
            asking.cancel()
            try:
                got = await asking
            except asyncio.CancelledError:
                continue
            seen += [got.value] if call == "__anext__" else [record.value for record in got.all()]
            if len(seen) == 300:
                break
    assert seen == [str(index).encode() for index in range(300)]


@pytest.mark.parametrize("call", ["async for", "getone", "getmany"])
async def test_rule_8_the_loop_runs_at_least_every_256_records(make_place, call):
    place = make_place()
    await place.produce(range(5_000))
    turns_count = 0

    async def tick():
        nonlocal turns_count
        while True:
            turns_count += 1
            await asyncio.sleep(0)

    async with place.consumer() as consumer:
        await take(consumer, 1)
        await eventually(lambda: consumer.metrics()["buffered_bytes"])
        ticking = asyncio.create_task(tick())
        count, before, longest, since = 0, 0, 0, 0

        def note(records_count):
            nonlocal count, before, longest, since
            count += records_count
            since = records_count if turns_count > before else since + records_count
            before = turns_count
            longest = max(longest, since)

        if call == "async for":
            async for _ in consumer:
                note(1)
                if count >= 4_000:
                    break
        while count < 4_000:
            note(1 if call == "getone" and await consumer.getone() else 0)
            if call == "getmany":
                note((await consumer.getmany(timeout_ms=1_000, max_records=10)).count)
        ticking.cancel()
        assert longest <= 256 + 10


async def test_rule_8_the_loop_runs_while_a_big_batch_is_decoded(make_place):
    place = make_place(2)
    for partition in (0, 1):
        await place.produce(range(3_000), partition)
    async with place.consumer() as consumer:
        await eventually(lambda: _is_all_buffered(consumer, place))
        turns_count = 0

        async def tick():
            nonlocal turns_count
            while True:
                turns_count += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        batch = await consumer.getmany(timeout_ms=10_000, max_records=6_000)
        assert turns_count >= batch.count // 256
        ticking.cancel()
        assert batch.count > 1_000
        for tp, records in batch.items():
            assert [record.offset for record in records] == list(range(len(records)))
            assert await consumer.position(tp) == len(records)


async def _is_all_buffered(consumer, place):
    ends = [consumer.highwater(place.tp(partition)) for partition in (0, 1)]
    return ends == [3_000, 3_000]


def _no_threes(value: bytes) -> str:
    if value == b"3":
        raise ZeroDivisionError("three")
    return value.decode()


@pytest.mark.parametrize("call", ["getone", "getmany", "async for"])
async def test_rule_9_a_poison_record_stops_its_partition_and_seek_goes_on(make_place, call):
    place = make_place(2)
    await place.produce(range(6), partition=0)
    await place.produce(["a", "b"], partition=1)
    async with place.consumer(value_deserializer=_no_threes) as consumer:
        seen, errors = {0: [], 1: []}, []
        while len(errors) < 3:
            try:
                if call == "async for":
                    async for record in consumer:
                        seen[record.partition].append(record.value)
                elif call == "getone":
                    record = await consumer.getone()
                    seen[record.partition].append(record.value)
                else:
                    for record in (await consumer.getmany(timeout_ms=1_000)).all():
                        seen[record.partition].append(record.value)
            except RecordDeserializationError as error:
                errors.append(error)
        assert seen == {0: ["0", "1", "2"], 1: ["a", "b"]}
        for error in errors:
            assert (error.topic, error.partition, error.offset) == (place.topic, 0, 3)
            assert (error.key, error.value) == (None, b"3")
        assert await consumer.position(place.tp(0)) == 3
        await place.produce(["c"], partition=1)
        consumer.pause(place.tp(0))
        assert (await consumer.getone()).value == "c"
        consumer.resume(place.tp(0))
        consumer.seek(place.tp(0), errors[0].offset + 1)
        assert [(await consumer.getone()).value for _ in range(2)] == ["4", "5"]


async def test_rule_10_an_overlapping_request_is_refused_before_anything_moves(make_place):
    place = make_place()
    await place.produce(range(1))
    async with place.consumer() as consumer:
        await take(consumer, 1)
        asking = asyncio.create_task(consumer.getone())
        await turns()
        for other in (consumer.getone(), consumer.getmany(), consumer.poll(), anext(consumer)):
            with pytest.raises(ConcurrentConsumptionError):
                await other
        await consumer.commit()  # other calls are free
        assert await consumer.lag() == 0
        assert await consumer.position(place.tp()) == 1
        await place.produce(["next"])
        assert (await asyncio.wait_for(asking, 10)).value == b"next"
        assert await consumer.position(place.tp()) == 2
        assert await place.committed() == 1


async def test_rule_10_named_partitions_count_each_for_itself(make_place):
    place = make_place(2)
    await place.produce(["a0", "a1"], 0)
    await place.produce(["b0"], 1)
    async with place.consumer() as consumer:
        assert (await consumer.getone(place.tp(0))).value == b"a0"
        assert (await consumer.getone(place.tp(1))).value == b"b0"  # a0 is still in hand
        await consumer.stop()
    assert (await place.committed(0), await place.committed(1)) == (0, 0)

    async with place.consumer() as consumer:
        assert (await consumer.getone(place.tp(0))).value == b"a0"
        assert (await consumer.getone(place.tp(1))).value == b"b0"
        waiting = asyncio.create_task(consumer.getone(place.tp(1)))
        await turns()
        assert (await consumer.getmany(place.tp(0), timeout_ms=1_000)).count == 1  # a1: another partition, no overlap
        with pytest.raises(ConcurrentConsumptionError):
            await consumer.getone(place.tp(1))
        with pytest.raises(ConcurrentConsumptionError):
            await consumer.getone()
        await place.produce(["b1"], 1)
        assert (await asyncio.wait_for(waiting, 10)).value == b"b1"
        await consumer.stop()
    assert (await place.committed(0), await place.committed(1)) == (1, 1)


async def test_rule_11_pausing_keeps_what_is_buffered(make_place):
    place = make_place(2)
    await place.produce(range(50), 0)
    await place.produce(["b0", "b1"], 1)
    # A fetch that is sent after `resume` is not answered before the end of the test.
    async with place.consumer(fetch_max_wait_ms=5_000) as consumer:
        got = [await take(consumer, 1) for _ in range(2)]
        assert sorted(got) == [["0"], ["b0"]]
        consumer.pause(place.tp(0))
        assert consumer.paused() == {place.tp(0)}
        assert values(await consumer.getmany(timeout_ms=300)) == ["b1"]
        assert await consumer.getmany(timeout_ms=300) == {}
        fetched_at_ms = consumer.last_poll_timestamp(place.tp(0))
        consumer.resume(place.tp(0))
        assert values(await consumer.getmany(timeout_ms=0)) == [str(index) for index in range(1, 50)]
        again_ms = consumer.last_poll_timestamp(place.tp(0)) - fetched_at_ms
        assert abs(again_ms) < 100  # nothing was asked for again


async def test_rule_11_seek_drops_the_buffer_and_takes_back_what_is_in_hand(make_place):
    place = make_place()
    await place.produce(range(10))
    async with place.consumer() as consumer:
        batch = await take_batch(consumer, 4)
        failed = list(batch.all())[2]
        consumer.seek(place.tp(), failed.offset)  # the retry idiom: 0 and 1 are done, 2 is not
        await eventually(lambda: _committed(place, 2))
        assert await take(consumer, 2) == ["2", "3"]
        consumer.seek(place.tp(), 9)
        assert await take(consumer, 1) == ["9"]
        assert (await consumer.seek_to_beginning()) is True
        assert await take(consumer, 1) == ["0"]
        await consumer.seek_to_end(place.tp())
        assert await consumer.position(place.tp()) == 10
    # Auto-commit would send the position again before the look-up.
    async with place.consumer(enable_auto_commit=False) as consumer:
        await consumer.commit({place.tp(): 7})
        assert await consumer.seek_to_committed() == {place.tp(): 7}
        assert await take(consumer, 1) == ["7"]


@pytest.mark.parametrize("with_lanes", [False, True], ids=["one lane", "two lanes"])
@pytest.mark.parametrize("way", ["getmany", "loop"])
async def test_seek_to_committed_takes_back_what_is_in_hand_where_nothing_is_committed(make_place, way, with_lanes):
    """As after the abort of a group's first transaction: the next commit must not cover the records of that one."""
    place = make_place()
    await place.produce(range(10))
    lanes = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1} if with_lanes else {}
    async with place.consumer(enable_auto_commit=False, **lanes) as consumer:
        if way == "getmany":
            await take_batch(consumer, 4)
        else:
            async for _ in consumer:
                break
        assert await consumer.seek_to_committed() == {place.tp(): None}
        assert await take(consumer, 10) == [str(value) for value in range(10)]
        await consumer.commit()
        assert await place.committed() == 10


async def _committed(place, offset):
    return await place.committed() == offset


async def test_rule_11_a_seek_inside_a_loop_is_followed_at_once(make_place):
    place = make_place()
    await place.produce(range(600))
    seen = []
    async with place.consumer() as consumer:
        async for record in consumer:
            seen.append(record.offset)
            if seen == [0, 1, 2]:
                consumer.seek(place.tp(), 500)
            if record.offset == 502:
                break
    assert seen == [0, 1, 2, 500, 501, 502]


async def test_rule_11_nothing_of_a_revoked_partition_after_its_callback_began(make_place):
    place, listener = make_place(2), Listener()
    for partition in (0, 1):
        await place.produce(range(2_000), partition)
    seen, revoked_at, assigned_at = [], [], []

    async def slowly(_):
        revoked_at.append(len(seen))
        await asyncio.sleep(0.1)
        assert len(seen) == revoked_at[-1]

    async def settle(_):
        assigned_at.append(len(seen))
        await asyncio.sleep(0.1)
        assert len(seen) == assigned_at[-1]

    listener.inside = {"revoked": slowly, "assigned": settle}
    consumer = place.unsubscribed()
    consumer.subscribe([place.topic], listener=listener)
    async with consumer:

        async def consume():
            async for record in consumer:
                seen.append((record.tp, record.offset))
                await asyncio.sleep(0.005)  # for 20 s there is something left to share

        consuming = asyncio.create_task(consume())
        await eventually(lambda: len(seen) > 20)
        async with place.consumer() as other:
            (left,) = other.assignment()
            assert len(revoked_at) == 1
            assert all(tp != left for tp, _ in seen[revoked_at[0] :])
            first = await other.getone()
            mine = [offset for tp, offset in seen if tp == left]
            assert first.offset == len(mine)  # in order, none lost, none twice
            await other.skip()
        await eventually(lambda: len(assigned_at) == 3)
        await consumer.stop()
        await consuming


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_rule_12_position_and_commit_move_past_control_batches(make_place, isolation):
    place = make_place()
    async with place.producer(transactional_id=place.topic) as producer:
        for index in range(3):
            async with producer.transaction():
                await producer.send(place.topic, str(index).encode(), partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait(place.topic, b"aborted", partition=0)
        await producer.abort_transaction()
    records_count = 3 if isolation == "read_committed" else 4
    async with place.consumer(isolation_level=isolation) as consumer:
        assert len(await take(consumer, records_count)) == records_count
        # Four records, four markers; the last one is written after the producer's call returned.
        await eventually(lambda: _position(consumer, place.tp(), 8))
        assert consumer.current_lag(place.tp()) == 0
        assert await consumer.lag() == 0
        await consumer.commit()
        assert await place.committed() == 8


async def test_rule_12_a_marker_that_comes_later_is_passed_while_records_are_waited_for(make_place):
    place = make_place()
    async with place.consumer() as consumer, place.producer(transactional_id=place.topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(place.topic, b"0", partition=0)
        await take(consumer, 1)  # read uncommitted: before its marker
        waiting = asyncio.create_task(consumer.getone())
        await producer.commit_transaction()
        await eventually(lambda: _position(consumer, place.tp(), 2))
        await eventually(lambda: _committed(place, 2))
        waiting.cancel()


async def _position(consumer, tp, offset):
    return await consumer.position(tp) == offset


async def test_no_offset_and_out_of_range_are_reported_until_a_seek(make_place):
    place = make_place()
    await place.produce(range(3))
    async with place.consumer(auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="seek"):
                await consumer.getone()
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.position(place.tp())
        consumer.seek(place.tp(), 100)
        with pytest.raises(OffsetOutOfRangeError, match="100"):
            await asyncio.wait_for(consumer.getone(), 10)
        consumer.seek(place.tp(), 1)
        assert await take(consumer, 1) == ["1"]


async def test_position_and_lag_never_wait_for_an_assignment(make_place):
    place = make_place()
    consumer = place.unsubscribed()
    async with consumer:
        for call in (consumer.position(place.tp()), consumer.lag()):
            with pytest.raises(IllegalStateError):
                await asyncio.wait_for(call, 1)
