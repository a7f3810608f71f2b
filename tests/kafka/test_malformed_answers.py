"""Answers that can be read and make no sense: nothing dies or is skipped, and what comes after them is read as ever."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup import TopicPartition
from aiogroup._core.membership.classic.requests import write_assignment
from aiogroup._core.protocol.constants import EARLIEST
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, take

FAR_MS = 2**31 - 1


def no_coordinator(answer):
    return dataclasses.replace(answer, coordinators=())


def a_nobody(answer):
    return dataclasses.replace(
        answer, coordinators=tuple(dataclasses.replace(each, node_id=-1) for each in answer.coordinators)
    )


def no_groups(answer):
    return dataclasses.replace(answer, groups=())


def for_weeks(answer):
    return dataclasses.replace(answer, throttle_time_ms=FAR_MS)


def everything_twice(answer):
    return dataclasses.replace(answer, responses=answer.responses * 2)


def no_offset(answer):
    topics = tuple(
        dataclasses.replace(topic, partitions=tuple(dataclasses.replace(each, offset=-1) for each in topic.partitions))
        for topic in answer.topics
    )
    return dataclasses.replace(answer, topics=topics)


@pytest.mark.parametrize(
    ("api", "spoil", "times"),
    [
        ("FindCoordinator", no_coordinator, 2),
        ("FindCoordinator", a_nobody, 3),
        ("OffsetFetch", no_groups, 2),
        ("Fetch", for_weeks, 1),
        ("Fetch", everything_twice, 20),
        ("ListOffsets", no_offset, 2),
    ],
)
async def test_records_come_all_the_same(make_place, api, spoil, times):
    place, ears = make_place(), Ears()
    await place.produce(range(5))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        rule = proxy.rewrite(api, lambda exchange: spoil(exchange.response), times=times)
        settings = {"request_timeout_ms": 1_000, "default_api_timeout_ms": 5_000, "auto_commit_interval_ms": 600_000}
        consumer = place.consumer(bootstrap_servers=proxy.bootstrap_servers, observers=[ears], **settings)
        async with consumer:
            assert await take(consumer, 5) == [str(number) for number in range(5)]
            await place.produce(range(5, 8))
            assert await take(consumer, 3) == ["5", "6", "7"]
            await consumer.commit()
        assert rule.used_count > 0
    assert await place.committed() == 8
    assert not ears.heard(events.TaskFailed)


async def test_a_coordinator_that_is_nobody_is_not_asked_for_without_pause(make_place):
    place = make_place()
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.rewrite("FindCoordinator", lambda exchange: a_nobody(exchange.response))
        settings = {"request_timeout_ms": 1_000, "default_api_timeout_ms": 1_000, "retry_backoff_ms": 100}
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, **settings):
            assert 1 < proxy.count("FindCoordinator") < 20


async def test_no_offset_is_no_end(make_place):
    """Of a leader that names no first offset, the last one must not be taken: all between would be skipped."""
    place, asked = make_place(), []
    await place.produce(range(5))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:

        def spoil(exchange):
            asked.extend(each.timestamp for topic in exchange.request.topics for each in topic.partitions)
            return no_offset(exchange.response) if len(asked) == 1 else None

        proxy.rewrite("ListOffsets", spoil)
        consumer = place.unsubscribed(bootstrap_servers=proxy.bootstrap_servers, group_id=None)
        consumer.assign([place.tp()])
        async with consumer:
            assert await take(consumer, 5) == [str(number) for number in range(5)]
    assert asked == [EARLIEST, EARLIEST]


@pytest.mark.parametrize("blob", [b"\x00\x01\x7f\xff", write_assignment([TopicPartition("", 0)])])
async def test_an_assignment_that_makes_no_sense_is_reported_and_asked_for_again(make_place, blob):
    place, ears = make_place(), Ears()
    await place.produce(range(2))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.rewrite("SyncGroup", lambda exchange: dataclasses.replace(exchange.response, assignment=blob), times=2)
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, observers=[ears]) as consumer:
            assert await take(consumer, 2) == ["0", "1"]
    assert any("cannot be read" in failed.why for failed in ears.heard(events.RebalanceFailed))
