"""Recover without falling behind (KIP-333): the acceptance points on real Kafka."""

from __future__ import annotations

from aiogroup.telemetry import events
from tests.support.kafka import Ears, eventually, take_batch
from tests.support.recovery import MANUAL, MODE, lanes_of, leave_at


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
