"""Who reads between two recoveries (KIP-333): a Java member, a producer that commits in its transactions."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

from tests.support.group_members import until
from tests.support.kafka import eventually
from tests.support.reading import producing
from tests.support.recovery import MANUAL, MODE, Reading, leave_at, pending_of, written
from tests.support.verifiable import Bench


async def test_9_a_java_member_in_between_repeats_and_skips_nothing(make_place, tmp_path):
    place, reading = make_place(), Reading()
    await leave_at(place, committed=70, end=1_000)
    async with place.consumer(**MODE, **MANUAL, max_poll_records=5) as consumer:
        await place.produce(range(1_000, 1_010))
        await reading.until(consumer, lambda: len(reading.lanes) == 2)
        await consumer.commit()
    offset, _ = await written(place)
    with Bench(place, tmp_path) as bench:
        java = bench.consumer(java=True)
        await until(lambda: java.total >= 1_010 - offset, 40, bench.tails)
        await bench.end(java)
        assert bench.times_read == Counter((0, each) for each in range(offset, 1_010))
    assert await written(place) == (1_010, "")
    await place.produce(range(1_010, 1_050))
    ranges, _ = await pending_of(place, reading)
    assert ranges == ((1_010, 1_050),)
    assert reading.has(70, offset)
    assert reading.has(1_010, 1_050)


async def test_9_a_transaction_commits_both_lanes_and_an_aborted_one_skips_nothing(make_place, unique_name):
    place, reading, seen_count = make_place(), Reading(), {"live": 0, "catch-up": 0}
    tp = place.tp()
    await leave_at(place, committed=70, end=5_000)

    def offsets_of(consumer, batch):
        offsets = {}
        for lane in ("catch-up", "live"):
            ends = {record.tp: record.offset + 1 for record in batch.all() if record.lane == lane}
            seen_count[lane] += sum(record.lane == lane for record in batch.all())
            offsets |= consumer.offsets_for_transaction(ends)
        return offsets

    async with (
        place.consumer(**MODE, **MANUAL, max_poll_records=10) as consumer,
        producing(place.cluster.bootstrap_servers, transactional_id=unique_name("id")) as producer,
    ):
        await place.produce(range(5_000, 5_200))
        await eventually(lambda: consumer.highwater(tp) == 5_200)
        # After an abort the live lane waits for its next fetch: the next abort waits until that has come, and the
        # backlog is long enough for the polls in between.
        aborted_at: list[int] = []  # how many live records had been seen
        for number in takewhile(lambda number: number < 12 or min(seen_count.values()) <= 20, range(400)):
            batch = await consumer.poll(5_000)
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction(offsets_of(consumer, batch), consumer.group_metadata().group_id)
            if number % 3 == 1 and len(aborted_at) < 3 and seen_count["live"] > max(aborted_at, default=0):
                aborted_at.append(seen_count["live"])
                await producer.abort_transaction()
                await consumer.seek_to_committed(tp)
            else:
                await producer.commit_transaction()
                reading.take(batch)
    assert aborted_at
    assert min(seen_count.values()) > 20
    done = {lane: max(offsets) + 1 for lane, offsets in reading.lanes.items()}
    offset, token = await written(place)
    assert offset == done["catch-up"]
    assert f"live={done['live']}" in token
    ranges, _ = await pending_of(place, reading)
    assert ranges == ((done["catch-up"], 5_000), (done["live"], 5_200))
    assert reading.has(70, 5_200)
