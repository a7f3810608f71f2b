"""Ranges left to a batch job (KIP-333): its progress counts, and what no job does is read here after all."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from aiokafka import AIOKafkaConsumer

from aiogroup import GroupAuthorizationError, HealthStatus
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest
from aiogroup._core.recovery.ranges import Range
from aiogroup._core.recovery.token import DoneRanges, LogId, make_id, read_token, second_group_mark, write_done
from aiogroup._core.telemetry import events
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, eventually
from tests.support.recovery import MANUAL, MODE, Reading, leave_at, written

LEFT = {**MODE, "parallel_handoff": True}


async def where_of(place):
    """The partition as a token names it."""
    async with Link(ConsumerConfig(bootstrap_servers=place.cluster.bootstrap_servers)) as link:
        cluster = await link.fetch_metadata({place.topic})
    return LogId(cluster.cluster_id, place.topic, cluster.topics[place.topic].topic_id, 0)


async def say_done(place, where, token_id, *ranges):
    """As a job's commit into the second log."""
    done, tp = write_done(DoneRanges(token_id, ranges), where), place.tp()
    servers, group = place.cluster.bootstrap_servers, f"{place.group}.catchup"
    async with AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False) as job:
        job.assign([tp])
        await job.commit({tp: (0, done)})


async def token_of(place, where):
    async with place.admin() as admin:
        found = (await admin.list_consumer_group_offsets(place.group))[place.tp()]
    return read_token(found.offset, found.metadata, where).token


async def token_is(place, where, *, live):
    token = await token_of(place, where)
    return token is not None and token.live == live


async def test_the_head_is_read_and_ranges_are_left_to_the_job_whose_progress_counts(make_place):
    place, reading, ears = make_place(), Reading(), Ears()
    await leave_at(place, committed=70, end=120)
    where = await where_of(place)
    async with place.consumer(**LEFT, observers=[ears]) as consumer:
        await place.produce(range(120, 140))
        await reading.until(consumer, lambda: reading.has(120, 140))
        token = await eventually(lambda: token_of(place, where))
        assert token.pending == (Range(70, 120),)
        assert consumer.child_consumer_is_alive()
        await say_done(place, where, make_id(b"another1"), Range(70, 120))
        await say_done(place, where, token.id, Range(70, 90), Range(100, 110))
        await eventually(lambda: ears.heard(events.JobProgressed))
        assert consumer.lanes()[place.tp()].ranges == ((90, 100), (110, 120))
        await eventually(lambda: place.committed_is(90))
        await say_done(place, where, token.id, Range(70, 120))
        await eventually(lambda: not consumer.child_consumer_is_alive())
        await consumer.skip()
        await eventually(lambda: place.committed_is(140))
    assert reading.lanes == {"live": list(range(120, 140))}
    assert await written(place) == (140, "")


@pytest.mark.parametrize("parts", [[Range(70, 120)], [Range(70, 90), Range(70, 120)]], ids=["at once", "in parts"])
async def test_what_a_job_has_done_is_committed_where_nothing_else_is(make_place, parts):
    """The application commits by hand, and its topic is quiet: the group's lag must not stay at the whole backlog."""
    place, ears = make_place(), Ears()
    await leave_at(place, committed=70, end=120)
    where = await where_of(place)
    async with place.consumer(**LEFT, **MANUAL, observers=[ears]) as consumer:
        token = await token_of(place, where)
        for done in parts:
            await say_done(place, where, token.id, done)
            await eventually(lambda end=done.end: place.committed_is(end))
        assert not consumer.child_consumer_is_alive()
    assert await written(place) == (120, "")


async def test_it_is_committed_without_what_was_read_and_not_committed(make_place):
    place = make_place()
    await leave_at(place, committed=70, end=120)
    where = await where_of(place)
    async with place.consumer(**LEFT, **MANUAL) as consumer:
        await place.produce(range(120, 130))
        seen = []
        while len(seen) < 10:
            seen += (await consumer.getmany(timeout_ms=500)).all()
        await say_done(place, where, (await token_of(place, where)).id, Range(70, 120))
        await eventually(lambda: place.committed_is(120))
        await consumer.commit()
    assert await written(place) == (130, "")


async def test_a_jobs_result_under_another_id_counts_for_nothing(make_place):
    place, ears = make_place(), Ears()
    await leave_at(place, committed=70, end=120)
    where = await where_of(place)
    await say_done(place, where, make_id(b"another1"), Range(70, 120))
    async with place.consumer(**LEFT, observers=[ears]) as consumer:
        await eventually(lambda: token_of(place, where))
        await consumer.poll(5_000)
        assert consumer.lanes()[place.tp()].ranges == ((70, 120),)
    assert ears.heard(events.JobProgressed) == []


async def test_whether_the_second_log_may_be_read_is_known_at_the_start(make_place):
    place = make_place()
    await leave_at(place, committed=70, end=120)

    def refuse(exchange):
        (group,) = exchange.response.groups
        if group.group_id != f"{place.group}.catchup":
            return None
        refused = dataclasses.replace(group, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return dataclasses.replace(exchange.response, groups=(refused,))

    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.rewrite(OffsetFetchRequest, refuse)
        consumer = place.consumer(**LEFT, bootstrap_servers=proxy.bootstrap_servers)
        with pytest.raises(GroupAuthorizationError, match="catchup': grant DESCRIBE on the group"):
            await consumer.start()
        await consumer.stop()
    assert await written(place) == (70, "")


async def test_a_range_that_no_job_moves_is_read_here_after_all(make_place):
    place, reading, ears = make_place(), Reading(), Ears()
    await leave_at(place, committed=70, end=120)
    async with place.consumer(**LEFT, parallel_handoff_timeout_ms=2_500, observers=[ears]) as consumer:
        await place.produce(range(120, 130))
        await reading.until(consumer, lambda: reading.has(120, 130))
        assert not reading.has(70, 71)
        await reading.until(consumer, lambda: reading.has(70, 71))
        assert consumer.health().status is HealthStatus.DEGRADED
        assert f"no job moved what is pending of {place.topic}-0" in consumer.health().why
        await reading.until(consumer, lambda: reading.has(70, 130))
        await consumer.skip()
        assert consumer.health().status is HealthStatus.READY
        await eventually(lambda: place.committed_is(130))
    (overdue,) = ears.heard(events.HandOffOverdue)
    assert (overdue.start_offset, overdue.end_offset) == (70, 120)
    assert reading.lanes["catch-up"] == list(range(70, 120))


# What a job can see is what is written: the token is, at the assignment.


async def test_the_token_is_there_as_soon_as_the_partition_is_whatever_commits(make_place):
    place = make_place()
    await leave_at(place, committed=70, end=120)
    where = await where_of(place)
    async with place.consumer(**LEFT, **MANUAL, isolation_level="read_committed") as consumer:
        assert consumer.lanes()[place.tp()].ranges == ((70, 120),)
        token = await token_of(place, where)
        assert (token.pending, token.live) == ((Range(70, 120),), 120)
        assert token.handoff.second_group == second_group_mark(f"{place.group}.catchup")
        assert token.handoff.read_committed
        assert await place.committed() == 70
    assert (await token_of(place, where)).id == token.id


async def test_where_nothing_was_committed_jobs_learn_of_the_backlog_too(make_place):
    place = make_place()
    await place.produce(range(120))
    where = await where_of(place)
    async with place.consumer(**LEFT, **MANUAL) as consumer:
        assert consumer.lanes()[place.tp()].ranges == ((0, 120),)
        assert (await token_of(place, where)).pending == (Range(0, 120),)
        assert await place.committed() == 0


async def test_a_service_that_reads_its_ranges_itself_again_says_so_at_the_assignment(make_place):
    place = make_place()
    await leave_at(place, committed=70, end=120)
    where = await where_of(place)
    async with place.consumer(**LEFT, **MANUAL):
        assert (await token_of(place, where)).handoff is not None
    async with place.consumer(**MODE, **MANUAL):
        token = await token_of(place, where)
        assert (token.pending, token.handoff) == ((Range(70, 120),), None)


async def test_a_seek_at_the_assignment_is_not_committed_for_the_application(make_place):
    place, listener = make_place(), Listener()
    await leave_at(place, committed=70, end=120)

    async def on_assigned(_):
        consumer.seek(place.tp(), 90)

    listener.inside["assigned"] = on_assigned
    consumer = place.unsubscribed(**LEFT, **MANUAL)
    consumer.subscribe([place.topic], listener=listener)
    async with consumer:
        await eventually(lambda: "assigned" in listener.names() and consumer.assignment())
        assert (await consumer.getone()).offset == 90
    assert await written(place) == (70, "")


async def test_a_service_that_commits_in_transactions_only_learns_what_a_job_has_done(make_place, unique_name):
    place, reading, ears = make_place(), Reading(), Ears()
    await leave_at(place, committed=70, end=120)
    where = await where_of(place)
    async with (
        place.consumer(**LEFT, **MANUAL, observers=[ears]) as consumer,
        place.producer(transactional_id=unique_name("id")) as producer,
    ):
        await place.produce(range(120, 140))
        await reading.until(consumer, lambda: reading.has(120, 140))
        consumer.seek(place.tp(), 130)  # a new id, that only a transaction makes durable
        again = Reading()
        await again.until(consumer, lambda: again.has(130, 140))
        async with producer.transaction():
            offsets = consumer.offsets_for_transaction({place.tp(): 140})
            await producer.send_offsets_to_transaction(offsets, consumer.group_metadata().group_id)
        await eventually(lambda: token_is(place, where, live=140))  # the transaction's marker is there
        token = await token_of(place, where)
        assert token.pending == (Range(70, 120),)
        await say_done(place, where, token.id, Range(70, 120))
        await eventually(lambda: ears.heard(events.JobProgressed))
        assert not consumer.child_consumer_is_alive()
        async with producer.transaction():
            offsets = consumer.offsets_for_transaction({place.tp(): 140})
            await producer.send_offsets_to_transaction(offsets, consumer.group_metadata().group_id)
        await eventually(lambda: place.committed_is(140))
    assert await written(place) == (140, "")


async def test_a_late_result_of_a_job_takes_nothing_out_of_the_hand(make_place):
    place, ears = make_place(), Ears()
    await leave_at(place, committed=70, end=220)
    where = await where_of(place)
    settings = {**LEFT, "parallel_handoff_timeout_ms": 1_000, "auto_ack": False, **MANUAL}
    async with place.consumer(**settings, observers=[ears]) as consumer:
        held = []
        async with asyncio.timeout(20):
            while len(held) < 80:
                held += (await consumer.getmany(timeout_ms=500, max_records=80 - len(held))).all()
        assert [record.offset for record in held] == list(range(70, 150))
        await say_done(place, where, (await token_of(place, where)).id, Range(70, 90), Range(140, 210))
        await eventually(lambda: ears.heard(events.JobProgressed))
        await consumer.commit({place.tp(): 150})
        for record in held:
            record.ack()
        rest = []
        async with asyncio.timeout(20):
            while len(rest) < 10:
                rest += (await consumer.getmany(timeout_ms=500)).all()
        assert [record.offset for record in rest] == list(range(210, 220))
        for record in rest:
            record.ack()
        await consumer.commit()
    assert await written(place) == (220, "")


@pytest.mark.parametrize("acks", [False, True])
@pytest.mark.parametrize(
    "done",
    [
        [Range(500, 600)],
        [Range(50, 60), Range(500, 600)],
        [Range(100, 200)],
        [Range(160, 170)],
        [Range(140, 990)],
        [Range(900, 1_000)],
    ],
    ids=str,
)
async def test_what_a_late_result_leaves_of_a_range_is_read_on_while_records_of_it_are_in_hand(make_place, done, acks):
    place, ears = make_place(), Ears()
    await leave_at(place, committed=50, end=1_000)
    where = await where_of(place)
    settings = {**LEFT, **MANUAL, "parallel_handoff_timeout_ms": 1_000, "auto_ack": not acks, "observers": [ears]}
    async with place.consumer(**settings) as consumer, asyncio.timeout(40):

        async def take(most):
            batch = await consumer.getmany(timeout_ms=500, max_records=most)
            return batch, {record.offset for record in batch.all()}

        seen, batches = set(), []
        while len(seen) < 100:
            batch, offsets = await take(100 - len(seen))
            batches.append(batch)
            seen |= offsets
        assert seen == set(range(50, 150))
        await say_done(place, where, (await token_of(place, where)).id, *done)
        await eventually(lambda: ears.heard(events.JobProgressed))
        await consumer.commit({place.tp(): 150})
        left = set(range(150, 1_000)) - {offset for each in done for offset in range(each.start, each.end)}
        seen.clear()
        while not seen >= left:
            for batch in batches if acks else ():
                batch.ack()
            batch, offsets = await take(500)
            batches = [batch]
            seen |= offsets
        assert seen == left
        if acks:
            batches[0].ack()
        await consumer.commit()
    assert await written(place) == (1_000, "")


async def test_a_service_that_restarts_again_and_again_takes_back_what_no_job_moves(make_place):
    place, reading, ears = make_place(), Reading(), Ears()
    await leave_at(place, committed=70, end=120)
    settings = {**LEFT, **MANUAL, "parallel_handoff_timeout_ms": 4_000, "observers": [ears]}
    lives_count = 0
    while not ears.heard(events.HandOffOverdue):
        lives_count += 1
        assert lives_count < 10
        async with place.consumer(**settings) as consumer:
            loop = asyncio.get_running_loop()
            until = loop.time() + 2.5  # no life is long enough for the time-out
            while loop.time() < until:
                reading.take(await consumer.poll(100))
    assert lives_count > 1
    assert reading.has(70, 71)
