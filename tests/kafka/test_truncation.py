"""Leader epochs travel with offsets, and a log that lost records is noticed (KIP-320)."""

from __future__ import annotations

from contextlib import asynccontextmanager

from aiogroup.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup.testing import Proxy
from tests.support.kafka import eventually, take

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
        consumer.seek(place.tp(), 7)
        await consumer.commit({place.tp(): 7})
        await consumer.seek_to_committed()
        await consumer.commit({place.tp(): 7})
        consumer.seek(place.tp(), 0)
        await take(consumer, 1)
        await consumer.commit()
        await consumer.seek_to_committed()
        await consumer.commit({place.tp(): 1})
        assert commits == [(4, 0), (7, -1), (7, -1), (1, 0), (1, 0)]
