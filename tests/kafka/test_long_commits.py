"""A coordinator writes a commit as one batch: what is longer than its limit is sent in parts."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup import BrokerError, OffsetAndMetadata
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup.testing import Proxy
from tests.support.kafka import eventually
from tests.support.recovery import MANUAL, MODE, leave_at

LONG = "m" * 3_600
MOST_BYTES = 256 * 1024


def _metadata_bytes(request):
    return sum(len(each.committed_metadata or "") for topic in request.topics for each in topic.partitions)


def _answered(exchange, code):
    topics = tuple(
        dataclasses.replace(
            topic, partitions=tuple(dataclasses.replace(each, error_code=code) for each in topic.partitions)
        )
        for topic in exchange.response.topics
    )
    return dataclasses.replace(exchange.response, topics=topics)


class Coordinator:
    """Refuses what has more bytes of metadata than `most_bytes`, as one whose `max.message.bytes` is small."""

    def __init__(self, proxy, most_bytes=1 << 30, code=ErrorCode.UNKNOWN_SERVER_ERROR):
        self.sizes = []
        self._most_bytes = most_bytes
        self._code = code
        proxy.rewrite(OffsetCommitRequest, self._answer)

    def _answer(self, exchange):
        self.sizes.append(_metadata_bytes(exchange.request))
        return _answered(exchange, self._code) if self.sizes[-1] > self._most_bytes else None


async def test_metadata_of_more_than_a_message_are_committed_in_parts(make_place):
    place, count = make_place(300), 300
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        coordinator = Coordinator(proxy)
        consumer = place.unsubscribed(bootstrap_servers=proxy.bootstrap_servers, **MANUAL)
        wanted = {place.tp(number): OffsetAndMetadata(number + 1, LONG) for number in range(count)}
        consumer.assign(wanted)
        async with consumer:
            await consumer.commit(wanted)
            for number in (0, count // 2, count - 1):
                assert await consumer.committed(place.tp(number)) == number + 1
    assert sum(coordinator.sizes) == count * len(LONG)
    assert max(coordinator.sizes) <= MOST_BYTES
    assert await place.committed_is(*range(1, count + 1))


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE])
async def test_parts_are_as_short_as_the_coordinator_needs(make_place, code):
    place, count = make_place(30), 30
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        coordinator = Coordinator(proxy, 20_000, code)
        consumer = place.unsubscribed(bootstrap_servers=proxy.bootstrap_servers, **MANUAL)
        wanted = {place.tp(number): OffsetAndMetadata(number + 1, LONG) for number in range(count)}
        consumer.assign(wanted)
        async with consumer:
            await consumer.commit(wanted)
            refused_count = sum(size > 20_000 for size in coordinator.sizes)
            await consumer.commit(wanted)
    assert await place.committed_is(*range(1, count + 1))
    assert sum(size > 20_000 for size in coordinator.sizes) == refused_count > 0  # learnt once


async def test_what_no_coordinator_takes_is_an_error(make_place):
    place = make_place()
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        Coordinator(proxy, 10)
        consumer = place.unsubscribed(
            bootstrap_servers=proxy.bootstrap_servers, **{**MANUAL, "default_api_timeout_ms": 1_500}
        )
        consumer.assign([place.tp()])
        async with consumer:
            with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
                await consumer.commit({place.tp(): OffsetAndMetadata(1, LONG)})


async def test_where_no_part_is_short_enough_the_offset_goes_without_its_token(make_place):
    place = make_place()
    await leave_at(place, committed=5, end=100)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        coordinator = Coordinator(proxy, 0)
        settings = {**MODE, **MANUAL, "bootstrap_servers": proxy.bootstrap_servers}
        async with place.consumer(**settings) as consumer:
            assert (await consumer.poll(5_000, 7)).count == 7
            await consumer.commit()
    await eventually(lambda: place.committed_is(12))
    assert coordinator.sizes[-1] == 0 < coordinator.sizes[0]
