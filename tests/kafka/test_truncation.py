"""Leader epochs travel with offsets, and a log that lost records is noticed (KIP-320)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager

import pytest

from aiogroup import CommitFailedError, Consumer, LogTruncationError, TopicPartition
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aiogroup._core.telemetry.events import LogTruncated
from aiogroup.devkafka import wire
from aiogroup.testing import Proxy
from tests.support.kafka import QUICK, Ears, eventually, take
from tests.support.reading import alone, fill, read
from tests.support.unclean import Shaky

TEN = range(10)


@asynccontextmanager
async def _reading(place, **settings):
    """A consumer of the place, and the (offset, leader epoch) of its commits."""
    commits = []

    def keep(exchange):
        each = exchange.request.topics[0].partitions[0]
        commits.append((each.committed_offset, each.committed_leader_epoch))

    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.rewrite(OffsetCommitRequest, keep)
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, **settings) as consumer:
            yield consumer, commits


async def test_auto_commit_says_the_epoch_of_the_last_record_that_was_processed(make_place):
    place = make_place()
    await place.produce(TEN)
    async with _reading(place) as (consumer, commits):
        await take(consumer, 4)
        await eventually(lambda: (3, 0) in commits)  # the fourth is in hand
        assert commits[0] == (0, -1)  # by policy: there is no record before it


async def test_commit_says_the_epoch_of_what_was_read_and_none_of_what_was_not(make_place):
    place = make_place()
    await place.produce(TEN)
    async with _reading(place, enable_auto_commit=False) as (consumer, commits):
        await take(consumer, 4)
        await consumer.commit()
        await consumer.commit({place.tp(): 2})
        await consumer.commit({place.tp(): 9})
        assert commits == [(4, 0), (2, 0), (9, -1)]


async def test_the_committed_epoch_is_taken_up_and_committed_again(make_place):
    place = make_place()
    await place.produce(TEN)
    async with _reading(place, enable_auto_commit=False) as (consumer, _):
        await take(consumer, 4)
        await consumer.commit()
    async with _reading(place, enable_auto_commit=False) as (consumer, commits):
        await consumer.commit({place.tp(): 4})
        consumer.seek(place.tp(), 2)  # backwards: nothing that is buffered tells the epoch before it
        await consumer.commit({place.tp(): 2})
        await consumer.seek_to_committed()
        await consumer.commit({place.tp(): 2})
        consumer.seek(place.tp(), 0)
        await take(consumer, 1)
        await consumer.commit()
        await consumer.seek_to_committed()
        await consumer.commit({place.tp(): 1})
        assert commits == [(4, 0), (2, -1), (2, -1), (1, 0), (1, 0)]


# An unclean leader election: 5 records that both replicas have, 5 that are lost, 9 others instead.

OLD, LOST, NEW = ([b"%s %d" % (name, number) for number in range(count)] for name, count in
                  ((b"old", 5), (b"lost", 5), (b"new", 9)))  # fmt: skip
AT_ONCE = {"request_timeout_ms": 10_000, "metadata_max_age_ms": 1_000}


@pytest.fixture
async def shaky(cluster_3, unique_name):
    made = Shaky(cluster_3, unique_name("shaky"))
    await made.make()
    await fill(cluster_3.bootstrap_servers, made.tp, OLD, acks="all")
    await made.leave_follower_behind()
    await fill(cluster_3.bootstrap_servers, made.tp, LOST, acks="all")
    return made


async def _truncate(shaky):
    await shaky.lose_leader()
    assert await fill(shaky.cluster.bootstrap_servers, shaky.tp, NEW, acks="all") == 14


def _values(records, first):
    """Their values, which stand at offsets without a gap from `first` on."""
    assert [each.offset for each in records] == list(range(first, first + len(records)))
    return [each.value for each in records]


def _in_group(shaky, group, ears, **settings):
    given = {**QUICK, **AT_ONCE, "session_timeout_ms": 6_000, "auto_commit_interval_ms": 500, **settings}
    servers = shaky.cluster.bootstrap_servers
    return Consumer(shaky.topic, bootstrap_servers=servers, group_id=group, observers=[ears], **given)


def _told(ears):
    return [
        (each.position, each.leader_epoch, each.diverging_offset, each.records_count)
        for each in ears.heard(LogTruncated)
    ]


async def test_a_truncated_log_is_noticed_by_who_reads_and_by_who_comes_back(shaky, unique_name):
    ears = defaultdict(Ears)
    groups = {name: unique_name(name) for name in ("reads", "back", "told")}
    for name in ("back", "told"):
        async with _in_group(shaky, groups[name], ears[name], enable_auto_commit=False) as consumer:
            assert _values(await read(consumer, 10), 0) == OLD + LOST
            await consumer.commit()
    alone_one = alone(shaky.cluster.bootstrap_servers, auto_offset_reset="none", observers=[ears["alone"]], **AT_ONCE)
    alone_one.assign([shaky.tp])
    async with alone_one, _in_group(shaky, groups["reads"], ears["reads"]) as reads:
        alone_one.seek(shaky.tp, 0)
        assert _values(await read(alone_one, 10), 0) == OLD + LOST
        assert _values(await read(reads, 10), 0) == OLD + LOST
        await _truncate(shaky)
        # With a policy it goes on by itself, where the log diverges.
        assert _values(await read(reads, 9), 5) == NEW
        # Without one the application is told where, and decides.
        with pytest.raises(LogTruncationError) as caught:
            await read(alone_one, 1)
        error = caught.value
        assert (error.tp, error.offset, error.diverging_offset) == (shaky.tp, 10, 5)
        alone_one.seek(error.tp, error.diverging_offset)
        assert _values(await read(alone_one, 9), 5) == NEW
        await reads.commit()
    async with _in_group(shaky, groups["back"], ears["back"], auto_offset_reset="latest") as back:
        assert await back.position(shaky.tp) == 5
        assert _values(await read(back, 9), 5) == NEW
    async with _in_group(shaky, groups["told"], ears["told"], auto_offset_reset="none") as told:
        with pytest.raises(LogTruncationError, match="read up to offset 10, but from offset 5 on"):
            await told.getone()
    assert {name: _told(each) for name, each in ears.items()} == {key: [(10, 0, 5, 5)] for key in ears}
    async with _in_group(shaky, groups["reads"], ears["again"]) as again:  # the same offsets, of other records
        assert await again.position(shaky.tp) == 14
    assert not _told(ears["again"])


@pytest.mark.parametrize("lanes", [False, True], ids=["one lane", "two lanes"])
@pytest.mark.parametrize("how", ["latest", "seek_to_end"])
async def test_a_position_at_the_end_of_the_log_is_checked_before_any_record_was_read(shaky, unique_name, lanes, how):
    """The group has begun at 10, and the new log has grown past 10 when it looks again."""
    group, ears = unique_name("end"), Ears()
    policy = "latest" if how == "latest" else "none"
    async with _in_group(shaky, group, Ears(), auto_offset_reset=policy, enable_parallel_rebalance=lanes) as consumer:
        await eventually(consumer.assignment)
        if how == "seek_to_end":
            await consumer.seek_to_end()
        assert await consumer.position(shaky.tp) == 10
        await consumer.commit()
    await _truncate(shaky)
    async with _in_group(shaky, group, ears, auto_offset_reset="latest", enable_parallel_rebalance=lanes) as consumer:
        assert _values(await read(consumer, 9), 5) == NEW
    assert [(position, at) for position, _, at, _ in _told(ears)] == [(10, 5)]


async def test_no_offset_of_a_record_that_was_cut_off_is_committed(shaky, unique_name):
    group, ears = unique_name("cut"), Ears()
    async with _in_group(shaky, group, ears, enable_auto_commit=False) as consumer:
        assert _values(await read(consumer, 10), 0) == OLD + LOST
        await consumer.commit()
        await _truncate(shaky)
        await eventually(lambda: _told(ears))
        assert await consumer.position(shaky.tp) == 5
        with pytest.raises(CommitFailedError, match="or its log truncated") as caught:
            await consumer.commit({shaky.tp: 10})
        assert caught.value.not_owned == {shaky.tp}
        await consumer.commit({shaky.tp: 4})
        assert _values(await read(consumer, 9), 5) == NEW
        consumer.seek(shaky.tp, 7)
        await consumer.commit({shaky.tp: 10})  # of a new record, which was read
        assert (await consumer.committed(shaky.tp)) == 10


async def test_what_was_buffered_and_is_lost_is_not_delivered_when_that_is_known(shaky):
    ears = Ears()
    consumer = alone(shaky.cluster.bootstrap_servers, observers=[ears], **AT_ONCE)
    consumer.assign([shaky.tp])
    async with consumer:
        assert [(await consumer.getone()).value for _ in range(3)] == OLD[:3]
        consumer.pause(shaky.tp)  # all ten are buffered, and kept
        await _truncate(shaky)
        await consumer.topics()  # whoever asks, the metadata counts
        consumer.resume(shaky.tp)
        assert _values(await read(consumer, 11), 3) == OLD[3:] + NEW
    assert not _told(ears)  # nothing that was delivered is gone


async def test_a_new_leader_with_the_same_log_is_asked_once_and_nothing_comes_again(cluster_3, unique_name):
    tp = TopicPartition(unique_name("moved"), 0)
    await asyncio.to_thread(cluster_3.create_topic, tp.topic, 1, replication_factor=3)
    ears, asked = Ears(), []

    def note(exchange):
        partition = exchange.request.topics[0].partitions[0]
        asked.append((partition.current_leader_epoch, exchange.response.topics[0].partitions[0].error_code))

    async with Proxy(cluster_3.bootstrap_servers) as proxy:
        proxy.rewrite(OffsetForLeaderEpochRequest, note)
        await fill(cluster_3.bootstrap_servers, tp, OLD, acks="all")
        consumer = alone(proxy.bootstrap_servers, observers=[ears], **AT_ONCE)
        consumer.assign([tp])
        async with consumer:
            assert _values(await read(consumer, 5), 0) == OLD
            assert asked == []
            leader = wire.metadata(cluster_3.nodes[0].port, (tp.topic,)).leaders[tp.topic][0]
            await asyncio.to_thread(next(each for each in cluster_3.nodes if each.node_id == leader).stop)
            await fill(cluster_3.bootstrap_servers, tp, NEW, acks="all", request_timeout_ms=20_000)
            assert _values(await read(consumer, 9), 5) == NEW
    # A leader that has not heard of its election yet is asked again.
    assert [epoch for epoch, error_code in asked if not error_code] == [1], asked
    assert not _told(ears)
