"""What leaders answer about epochs: nothing is delivered before the position is confirmed, and errors are mended."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import pytest

from aiogroup import LogTruncationError, TopicAuthorizationError
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.fetch import EpochEndOffset, FetchRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest
from aiogroup._core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aiogroup._core.telemetry.events import FetchFailed, LogTruncated, OffsetReset
from aiogroup.testing import CUT, Proxy
from tests.support.kafka import Ears, eventually, take

AFTER = ["6", "7", "8", "9"]


@pytest.fixture
async def place(make_place):
    """Ten records, and 6 is committed, with its epoch."""
    place = make_place()
    await place.produce(range(10))
    async with place.consumer(enable_auto_commit=False) as consumer:
        await take(consumer, 6)
        await consumer.commit()
    return place


@asynccontextmanager
async def _proxied(place, ears, **settings):
    """A proxy, and a consumer behind it that has not started."""
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        given = {"enable_auto_commit": False, "request_timeout_ms": 2_000, "retry_backoff_ms": 20, **settings}
        yield proxy, place.consumer(bootstrap_servers=proxy.bootstrap_servers, observers=[ears], **given)


def _saying(**changes):
    """Change the answer's only partition."""

    def change(exchange):
        (topic,) = exchange.response.topics
        (partition,) = topic.partitions
        topic = dataclasses.replace(topic, partitions=(dataclasses.replace(partition, **changes),))
        return dataclasses.replace(exchange.response, topics=(topic,))

    return change


@pytest.mark.parametrize(
    "code",
    [
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.NOT_LEADER_OR_FOLLOWER,
        E.OFFSET_NOT_AVAILABLE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_SERVER_ERROR,
        999,
    ],
)
async def test_a_leader_that_refuses_is_asked_again_with_newer_metadata(place, code):
    ears = Ears()
    async with _proxied(place, ears) as (proxy, consumer):
        rule = proxy.rewrite(OffsetForLeaderEpochRequest, _saying(error_code=code, leader_epoch=-1, end_offset=-1))
        async with consumer:
            await eventually(lambda: rule.used_count >= 3)
            assert proxy.count(FetchRequest) == 0
            assert proxy.count(MetadataRequest) >= 3
            rule.remove()
            assert await take(consumer, 4) == AFTER
            assert proxy.count(OffsetForLeaderEpochRequest) < 40
    assert ears.heard(FetchFailed)
    assert not ears.heard(LogTruncated)


@pytest.mark.parametrize("how", ["cut", "lacks", "silent"])
async def test_a_leader_that_does_not_answer_is_asked_again(place, how):
    ears = Ears()
    async with _proxied(place, ears) as (proxy, consumer):
        if how == "silent":
            rule = proxy.drop(OffsetForLeaderEpochRequest, times=1)
        else:
            spoiled = {
                "cut": lambda _: CUT,
                "lacks": lambda exchange: dataclasses.replace(exchange.response, topics=()),
            }
            rule = proxy.rewrite(OffsetForLeaderEpochRequest, spoiled[how], times=3)
        async with consumer:
            assert await take(consumer, 4) == AFTER
    assert rule.used_count > 0
    assert ears.heard(FetchFailed)


async def test_a_leader_may_not_be_asked_and_the_application_learns_it(place):
    async with _proxied(place, Ears()) as (proxy, consumer):
        rule = proxy.rewrite(OffsetForLeaderEpochRequest, _saying(error_code=E.TOPIC_AUTHORIZATION_FAILED))
        async with consumer:
            with pytest.raises(TopicAuthorizationError):
                await asyncio.wait_for(consumer.getone(), 10)
            rule.remove()
            async with asyncio.timeout(10):
                seen = []
                while len(seen) < 4:
                    try:
                        seen.append((await consumer.getone()).value.decode())
                    except TopicAuthorizationError:
                        assert not seen
            assert seen == AFTER


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_where_nobody_knows_since_when_the_policy_decides(place, policy):
    ears = Ears()
    async with _proxied(place, ears, auto_offset_reset=policy) as (proxy, consumer):
        proxy.rewrite(OffsetForLeaderEpochRequest, _saying(leader_epoch=-1, end_offset=-1), times=1)
        async with consumer:
            assert await consumer.position(place.tp()) == {"earliest": 0, "latest": 10}[policy]
    (told,) = ears.heard(LogTruncated)
    assert (told.position, told.leader_epoch, told.diverging_offset, told.records_count) == (6, 0, None, None)
    (reset,) = ears.heard(OffsetReset)
    assert "truncated" in reset.why


@pytest.mark.parametrize(("answer", "diverging"), [((-1, -1), None), ((0, 4), 4)])
async def test_without_a_policy_the_application_learns_it_once_and_seeks(place, answer, diverging):
    ears = Ears()
    async with _proxied(place, ears, auto_offset_reset="none") as (proxy, consumer):
        epoch, end = answer
        proxy.rewrite(OffsetForLeaderEpochRequest, _saying(leader_epoch=epoch, end_offset=end), times=1)
        async with consumer:
            with pytest.raises(LogTruncationError) as caught:
                await consumer.getone()
            assert (caught.value.offset, caught.value.diverging_offset) == (6, diverging)
            with pytest.raises(LogTruncationError):
                await consumer.position(place.tp())
            consumer.seek(place.tp(), 8)
            assert await take(consumer, 2) == AFTER[2:]
            assert await place.committed() == 6
    assert len(ears.heard(LogTruncated)) == 1


async def test_a_policy_goes_on_where_the_log_diverges_and_that_is_committed_first(place):
    async with _proxied(place, Ears(), auto_offset_reset="latest", enable_auto_commit=True) as (proxy, consumer):
        proxy.rewrite(OffsetForLeaderEpochRequest, _saying(end_offset=4), times=1)
        async with consumer:
            assert await take(consumer, 1) == ["4"]
            assert await place.committed() == 4


async def test_a_broker_that_cannot_be_asked_is_read_from_as_before(place):
    def older(exchange):
        kept = tuple(each for each in exchange.response.api_keys if each.api_key != OffsetForLeaderEpochRequest.API_KEY)
        return dataclasses.replace(exchange.response, api_keys=kept)

    ears = Ears()
    async with _proxied(place, ears) as (proxy, consumer):
        proxy.rewrite(ApiVersionsRequest, older)
        async with consumer:
            assert await take(consumer, 4) == AFTER
        assert proxy.count(OffsetForLeaderEpochRequest) == 0
    assert not ears.heard(FetchFailed)


def _of_epoch_7(exchange):
    """As if the offset had been committed under a later leader."""
    (group,) = exchange.response.groups
    (topic,) = group.topics
    (partition,) = topic.partitions
    topic = dataclasses.replace(topic, partitions=(dataclasses.replace(partition, committed_leader_epoch=7),))
    return dataclasses.replace(exchange.response, groups=(dataclasses.replace(group, topics=(topic,)),))


async def test_a_commit_of_a_newer_leader_than_the_metadata_knows_waits_for_newer_metadata(place):
    """An old leader that does not know that it was replaced would call the position unknown."""

    def elected(exchange):
        topics = tuple(
            dataclasses.replace(
                topic, partitions=tuple(dataclasses.replace(each, leader_epoch=8) for each in topic.partitions)
            )
            for topic in exchange.response.topics
        )
        return dataclasses.replace(exchange.response, topics=topics)

    asked, ears = [], Ears()

    def answer(exchange):
        asked.append(exchange.request.topics[0].partitions[0])
        return _saying(error_code=0, leader_epoch=7, end_offset=6)(exchange)

    async with _proxied(place, ears, request_timeout_ms=10_000) as (proxy, consumer):
        proxy.rewrite(OffsetFetchRequest, _of_epoch_7)
        proxy.rewrite(OffsetForLeaderEpochRequest, answer)
        async with consumer:
            known = proxy.count(MetadataRequest)
            await eventually(lambda: proxy.count(MetadataRequest) >= known + 3)
            assert (asked, proxy.count(FetchRequest)) == ([], 0)
            proxy.rewrite(MetadataRequest, elected)
            assert await asyncio.wait_for(consumer.position(place.tp()), 5) == 6
    assert [(each.current_leader_epoch, each.leader_epoch) for each in asked] == [(8, 7)]
    assert not ears.heard(LogTruncated)


async def test_a_newer_leader_that_never_comes_is_not_waited_for_without_end(place):
    """A topic that was recreated has epochs that begin again."""

    ears = Ears()
    async with _proxied(place, ears, request_timeout_ms=1_000) as (proxy, consumer):
        proxy.rewrite(OffsetFetchRequest, _of_epoch_7)
        async with consumer:
            assert await take(consumer, 10) == [str(number) for number in range(10)]  # by policy: earliest
    assert [each.diverging_offset for each in ears.heard(LogTruncated)] == [None]


async def test_divergence_that_a_fetch_tells_is_looked_into(place):
    """Brokers tell it only to who says `last_fetched_epoch`; it must not be taken for an empty answer."""

    def diverging(exchange):
        topics = tuple(
            dataclasses.replace(
                topic,
                partitions=tuple(
                    dataclasses.replace(each, records=b"", diverging_epoch=EpochEndOffset(0, 4))
                    for each in topic.partitions
                ),
            )
            for topic in exchange.response.responses
        )
        return dataclasses.replace(exchange.response, responses=topics)

    async with _proxied(place, Ears()) as (proxy, consumer):
        proxy.rewrite(FetchRequest, diverging, times=2)
        async with consumer:
            assert await take(consumer, 4) == AFTER
        assert proxy.count(OffsetForLeaderEpochRequest) == 3
