"""What counts as processed, and that nothing else is ever committed (delivery.md, rules 1 to 4)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap

import pytest

from aiogroup._core.telemetry.events import RecordRedelivered
from tests.support.kafka import Ears, eventually, take, take_batch, turns, values


async def _is_committed(place, offset, partition=0):
    return await place.committed(partition) == offset


async def test_rule_1_a_crash_with_a_record_in_hand_repeats_it(make_place):
    place = make_place()
    await place.produce(range(5))
    code = f"""
        import asyncio
        from tests.support.kafka import QUICK
        from aiogroup import Consumer
        async def main():
            async with Consumer({place.topic!r}, bootstrap_servers={place.cluster.bootstrap_servers!r},
                                group_id={place.group!r}, **QUICK) as consumer:
                async for record in consumer:
                    if record.value == b"3":
                        print("in hand", flush=True)
                        await asyncio.sleep(60)
        asyncio.run(main())
    """
    with subprocess.Popen(  # noqa: ASYNC220 (the child is to be killed, not awaited)
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert (await asyncio.to_thread(child.stdout.readline)).strip() == b"in hand"
        await eventually(lambda: _is_committed(place, 3))
        for _ in range(3):  # some auto-commit intervals: the record in hand stays uncommitted
            assert await place.committed() == 3
        child.kill()
    async with place.consumer() as consumer:
        assert await take(consumer, 2) == ["3", "4"]


@pytest.mark.parametrize("ending", ["break", "leave the block", "stop"])
async def test_rule_1_neither_break_nor_leaving_nor_stop_counts_as_processed(make_place, ending):
    place = make_place()
    await place.produce(range(4))
    async with place.consumer() as consumer:
        async for record in consumer:
            if record.value == b"2":
                break
        if ending == "stop":
            report = await consumer.stop()
            assert report.in_hand == {place.tp(): 1}
            assert not report.is_clean
        elif ending == "break":
            await turns()
            assert await consumer.position(place.tp()) == 3
    assert await place.committed() == 2


@pytest.mark.parametrize("call", ["getone", "async for", "getmany", "poll"])
async def test_rule_1_asking_for_more_is_what_counts(make_place, call):
    place = make_place()
    await place.produce(range(4))
    async with place.consumer() as consumer:
        match call:
            case "getone":
                await take(consumer, 2)
                asking = asyncio.create_task(consumer.getone())
                expected = 2  # the third is in hand when the fourth was not asked for
            case "async for":
                async for record in consumer:
                    if record.value == b"2":
                        break
                asking, expected = None, 2
            case _:
                first = await take_batch(consumer, 3)
                assert values(first) == ["0", "1", "2"]
                assert await place.committed() in (None, 0)
                again = consumer.getmany(timeout_ms=5_000) if call == "getmany" else consumer.poll()
                asking, expected = asyncio.create_task(again), 3
        if asking is not None:
            await asking
        await eventually(lambda: _is_committed(place, expected))


async def test_rule_1_a_commit_and_an_ack_count_too(make_place):
    place = make_place()
    await place.produce(range(4))
    async with place.consumer() as consumer:
        await take(consumer, 1)
        await consumer.commit()
        assert await place.committed() == 1
        batch = await take_batch(consumer, 2)
        await consumer.commit({place.tp(): 2})
        assert await place.committed() == 2
        report = await consumer.stop()
    assert values(batch) == ["1", "2"]
    assert report.in_hand == {place.tp(): 1}

    async with place.consumer() as consumer:
        record = await consumer.getone()
        assert record.value == b"2"
        record.ack()
        await eventually(lambda: _is_committed(place, 3))
        assert (await consumer.stop()).is_clean


@pytest.mark.parametrize("ended_by", ["break", "exception"])
async def test_rule_2_a_new_loop_gets_the_record_in_hand_again(make_place, ended_by):
    place, ears = make_place(), Ears()
    await place.produce(range(4))
    seen = []

    async def loop(consumer, upto):
        async for record in consumer:
            seen.append(record.value.decode())
            if record.value == upto:
                if ended_by == "break":
                    break
                raise ZeroDivisionError

    async with place.consumer(observers=[ears]) as consumer:
        for upto in (b"1", b"1", b"3"):
            try:
                await loop(consumer, upto)
            except ZeroDivisionError:
                assert ended_by == "exception"
    assert seen == ["0", "1", "1", "1", "2", "3"]
    assert [event.offset for event in ears.heard(RecordRedelivered)] == [1]  # the second time is not told


async def test_rule_2_a_record_that_fails_again_and_again_waits_and_other_partitions_go_on(make_place):
    place, ears, attempts, others = make_place(2), Ears(), [], []
    await place.produce(["bad"])
    await place.produce(range(3), partition=1)
    async with place.consumer(observers=[ears], max_poll_records=1) as consumer, asyncio.timeout(20):
        while len(attempts) < 5 or len(others) < 3:
            try:
                async for record in consumer:
                    if not record.partition:
                        attempts.append(asyncio.get_running_loop().time())
                        int(record.value)
                    others.append(record.value)
            except ValueError:
                pass
    assert others == [b"0", b"1", b"2"]
    # At once, then after 100, 200 and 400 ms; the clock counts whole milliseconds.
    assert attempts[4] - attempts[0] >= 0.69
    assert [(each.offset, each.redelivered_count) for each in ears.heard(RecordRedelivered)] == [(0, 1)]


async def test_rule_2_skip_goes_on_after_it(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    async with place.consumer(observers=[ears]) as consumer:
        async for _ in consumer:
            break
        await consumer.skip()
        async for record in consumer:
            assert record.value == b"1"
            break
        await consumer.skip()
        await eventually(lambda: _is_committed(place, 2))
    assert not ears.heard(RecordRedelivered)


@pytest.mark.parametrize("then", ["getone", "commit"])
async def test_rule_2_what_was_processed_meanwhile_does_not_come_again(make_place, then):
    place = make_place()
    await place.produce(range(3))
    async with place.consumer() as consumer:
        async for _ in consumer:
            break
        if then == "getone":
            assert (await consumer.getone()).value == b"1"
            expected = b"2"  # getone's record is asked past, it is not a loop's
        else:
            await consumer.commit()
            expected = b"1"
        async for record in consumer:
            assert record.value == expected
            break


async def test_rule_2_an_exception_caught_inside_the_loop_counts_as_processed(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    seen = []
    async with place.consumer(observers=[ears]) as consumer:
        async for record in consumer:
            seen.append(record.offset)
            try:
                assert record.offset < 0
            except AssertionError:
                if record.offset == 2:
                    break
        await eventually(lambda: _is_committed(place, 2))
    assert seen == [0, 1, 2]
    assert not ears.heard(RecordRedelivered)


async def test_rule_3_acks_out_of_order_from_several_tasks_commit_the_gap_free_part(make_place):
    place = make_place()
    await place.produce(range(6))
    async with place.consumer(auto_ack=False) as consumer:
        records = [await consumer.getone() for _ in range(6)]
        assert [record.offset for record in records] == list(range(6))

        async def work(*mine):
            for index in mine:
                await asyncio.sleep(0)
                records[index].ack()

        await asyncio.gather(work(5, 3), work(1, 2))
        assert await place.committed() in (None, 0)
        await consumer.commit()  # all that was acked, gap-free: nothing yet
        assert await place.committed() in (None, 0)
        await asyncio.create_task(work(0))
        await eventually(lambda: _is_committed(place, 4))
        records[0].ack()
        records[4].ack()
        await consumer.commit()
        assert await place.committed() == 6
        assert (await consumer.stop()).is_clean


async def test_rule_3_asking_for_more_does_not_ack_and_a_batch_is_acked_whole(make_place):
    place = make_place()
    await place.produce(range(4))
    async with place.consumer(auto_ack=False) as consumer:
        batch = await take_batch(consumer, 3)
        await take(consumer, 1)
        assert await consumer.getmany(timeout_ms=0) == {}
        assert await place.committed() in (None, 0)
        batch.ack()
        await eventually(lambda: _is_committed(place, 3))
        report = await consumer.stop()
    assert report.in_hand == {place.tp(): 1}
    assert await place.committed() == 3


async def test_rule_3_without_acks_several_tasks_may_ask_at_once(make_place):
    place = make_place()
    async with place.consumer(auto_ack=False) as consumer:
        asking = [asyncio.create_task(consumer.getone()) for _ in range(3)]
        await turns()
        await place.produce(range(3))
        records = await asyncio.wait_for(asyncio.gather(*asking), 10)
        assert sorted(record.value for record in records) == [b"0", b"1", b"2"]


async def test_rule_4_the_interval_commits_what_is_processed(make_place):
    place = make_place()
    await place.produce(range(3))
    async with place.consumer() as consumer:
        await take(consumer, 3)
        await eventually(lambda: _is_committed(place, 2))
    assert await place.committed() == 2


async def test_rule_4_the_hand_over_point_of_a_rebalance_commits(make_place):
    place = make_place(2)
    await place.produce(range(3))
    async with place.consumer(auto_commit_interval_ms=600_000) as consumer:
        await take(consumer, 3)
        assert await place.committed() == 0  # the reset's
        other = place.consumer()
        joining = asyncio.create_task(other.start())
        asking = asyncio.create_task(consumer.getmany(timeout_ms=10_000))
        await joining
        assert await place.committed() == 3
        asking.cancel()
        await other.stop()


async def test_rule_4_stop_commits_and_without_auto_commit_nothing_does(make_place):
    place = make_place()
    await place.produce(range(3))
    async with place.consumer(enable_auto_commit=False) as consumer:
        await take(consumer, 3)
        await asyncio.sleep(0)
    assert await place.committed() is None
    async with place.consumer(auto_commit_interval_ms=600_000) as consumer:
        await take(consumer, 3)
    assert await place.committed() == 2
