"""Incremental fetch sessions (KIP-227): what goes over the wire, and that no record is lost or repeated by them."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from aiogroup._core.protocol import decode_response, encode_request
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.telemetry.events import FetchFailed, FetchSessionLost
from aiogroup.testing import CUT, Proxy
from aiogroup.testing.frames import framed, read_frame
from tests.support.kafka import Ears, Place, eventually, take_batch
from tests.support.reading import read
from tests.support.recovery import MODE, lanes_of, leave_at

MANY = 40


class Fetch:
    """One request and the broker's own answer."""

    def __init__(self, exchange):
        self.request, self.response = exchange.request, exchange.response
        self.asked_bytes, self.answered_bytes = len(exchange.asked), len(exchange.answered)
        self.named = [each.partition for topic in self.request.topics for each in topic.partitions]
        self.forgotten = [each for topic in self.request.forgotten_topics_data for each in topic.partitions]
        self.told = [each.partition_index for topic in self.response.responses for each in topic.partitions]
        self.is_full = self.request.session_epoch == 0
        self.head = (self.request.session_id, self.request.session_epoch)


class Watch:
    """Every fetch through a proxy. `spoil(exchange)`, set, makes the next answer another one."""

    def __init__(self, proxy):
        self.fetches = []
        self.spoil = None
        proxy.rewrite(FetchRequest, self._note)

    def _note(self, exchange):
        self.fetches.append(Fetch(exchange))
        spoil, self.spoil = self.spoil, None
        return None if spoil is None else spoil(exchange)

    async def more(self, count=2):
        """So many fetches that were answered from now on: the first of them may have been asked before."""
        before = len(self.fetches)
        await eventually(lambda: len(self.fetches) >= before + count)
        return self.fetches[before:]

    async def settle(self):
        """Wait until two fetches in a row had nothing to tell."""
        await eventually(lambda: not any(each.named or each.told for each in self.fetches[-2:]) and self.fetches)


@pytest.fixture
async def watched(make_place, request):
    """A place of many partitions, a consumer of all of them behind a proxy, started, in a session; its watch, ears."""
    count = getattr(request, "param", MANY)
    place, ears = make_place(count), Ears()
    tps = [place.tp(number) for number in range(count)]
    async with place.unsubscribed(group_id=None) as first:
        await first.end_offsets(tps)  # every partition is led
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        watch = Watch(proxy)
        consumer = place.unsubscribed(group_id=None, bootstrap_servers=proxy.bootstrap_servers, observers=[ears])
        consumer.assign(tps)
        async with consumer:
            await eventually(lambda: watch.fetches)
            await watch.settle()
            yield place, consumer, watch, ears


async def values(consumer, count):
    return sorted(int(record.value) for record in await read(consumer, count))


async def silence(consumer):
    """Nothing more comes: a record too many would."""
    assert not (await consumer.getmany(timeout_ms=300)).count


async def test_after_the_first_request_only_what_changes_goes_over_the_wire(watched):
    place, consumer, watch, ears = watched
    first = watch.fetches[0]
    assert (first.is_full, sorted(first.named), sorted(first.told)) == (True, list(range(MANY)), list(range(MANY)))
    idle = await watch.more(3)
    assert not any(each.is_full or each.named or each.forgotten or each.told for each in idle)
    assert max(each.asked_bytes for each in idle) < 100 < 500 < first.asked_bytes
    assert max(each.answered_bytes for each in idle) < 50 < 500 < first.answered_bytes
    heads = [each.head for each in watch.fetches[1:]]
    assert heads == [(first.response.session_id, epoch) for epoch in range(1, len(heads) + 1)]

    since = len(watch.fetches)
    await place.produce(range(100), partition=7)
    assert await values(consumer, 100) == list(range(100))
    await watch.settle()
    assert {number for each in watch.fetches[since:] for number in (*each.named, *each.told)} == {7}
    assert not any(each.is_full for each in watch.fetches[1:])
    await silence(consumer)
    assert not ears.heard(FetchSessionLost)


async def test_partitions_that_are_paused_leave_the_session_and_come_back(watched):
    place, consumer, watch, _ = watched
    consumer.pause(place.tp(3), place.tp(5))
    await eventually(lambda: sorted(watch.fetches[-1].forgotten) == [3, 5])
    since = len(watch.fetches)
    await place.produce(range(10), partition=3)
    await place.produce(range(10, 20), partition=4)
    assert await values(consumer, 10) == list(range(10, 20))
    await watch.settle()
    assert not any(3 in each.told for each in watch.fetches[since:]), "what is paused must not be sent"
    consumer.resume(place.tp(3), place.tp(5))
    assert await values(consumer, 10) == list(range(10))
    await silence(consumer)
    assert not any(each.is_full for each in watch.fetches[1:])


async def test_seeks_are_reported_to_the_session(watched):
    place, consumer, watch, _ = watched
    await place.produce(range(20), partition=2)
    assert await values(consumer, 20) == list(range(20))
    for offset in (5, 0, 19, 20):
        consumer.seek(place.tp(2), offset)
        assert await values(consumer, 20 - offset) == list(range(offset, 20)) if offset < 20 else True
    await silence(consumer)
    assert not any(each.is_full for each in watch.fetches[1:])


async def test_partitions_that_are_given_up_and_taken_on_change_the_session(watched):
    place, consumer, watch, _ = watched
    for number in range(4):
        await place.produce([number], partition=number)
    assert await values(consumer, 4) == [0, 1, 2, 3]
    consumer.assign(map(place.tp, range(2, MANY)))
    await eventually(lambda: sorted(watch.fetches[-1].forgotten) == [0, 1])
    since = len(watch.fetches)
    for number in range(4):
        await place.produce([10 + number], partition=number)
    assert await values(consumer, 2) == [12, 13]
    consumer.assign(map(place.tp, range(1, MANY)))
    assert await values(consumer, 2) == [1, 11]
    await silence(consumer)
    assert not any(0 in each.told for each in watch.fetches[since:])
    assert not any(each.is_full for each in watch.fetches[1:])


async def test_lag_is_known_again_of_a_partition_that_left_and_came_back(watched):
    """A broker tells the end of an idle log once in a session: to whom comes later it must be told again."""
    place, consumer, _, _ = watched
    await place.produce(range(10), partition=0)
    assert len(await values(consumer, 10)) == 10
    await eventually(lambda: consumer.current_lag(place.tp(0)) == 0)
    consumer.assign(map(place.tp, range(1, MANY)))
    consumer.assign(map(place.tp, range(MANY)))
    consumer.seek(place.tp(0), 10)
    await eventually(lambda: consumer.metrics()["records_lag_max"] == 0)


@pytest.mark.parametrize(
    ("code", "head"),
    [
        (E.FETCH_SESSION_ID_NOT_FOUND, "without the old id"),
        (E.INVALID_FETCH_SESSION_EPOCH, "with the old id"),
        (E.FETCH_SESSION_TOPIC_ID_ERROR, "with the old id"),
    ],
)
async def test_session_that_the_broker_refuses_is_replaced_at_once(watched, code, head):
    place, consumer, watch, ears = watched
    await place.produce(range(10), partition=1)
    assert len(await values(consumer, 10)) == 10
    old_id = watch.fetches[0].response.session_id
    watch.spoil = lambda exchange: dataclasses.replace(exchange.response, error_code=code, session_id=0, responses=())
    await place.produce(range(10, 20), partition=1)
    assert await values(consumer, 10) == list(range(10, 20))
    (lost,) = ears.heard(FetchSessionLost)
    assert (lost.why, lost.partitions_count) == (code.name, MANY)
    full = next(each for each in watch.fetches[1:] if each.is_full)
    assert (full.request.session_id, len(full.named)) == (0 if head == "without the old id" else old_id, MANY)
    await watch.settle()
    assert not watch.fetches[-1].is_full
    await silence(consumer)
    assert not ears.heard(FetchFailed)


async def ask_session(place, session_id, epoch):
    """What the broker answers to another client with this session and epoch."""
    port = place.cluster.nodes[0].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=(), forgotten_topics_data=()
    )
    writer.write(framed(encode_request(request, 12, 1, "another")))
    _, response = decode_response(FetchRequest, 12, await read_frame(reader))
    writer.close()
    return response.error_code


async def close_session(place, session_id):
    """What another reader's session does to this one, when the broker has no room for both."""
    assert await ask_session(place, session_id, -1) == E.NONE


async def assert_closed_by(stop, place, session_ids):
    """Whether the broker has these sessions until `stop`, and soon after it none of them."""

    async def answers():
        return {await ask_session(place, session_id, 1_000_000) for session_id in session_ids}

    assert await answers() == {E.INVALID_FETCH_SESSION_EPOCH}, "the broker has them, at another epoch"
    await stop()
    await eventually(lambda: is_so(answers(), {E.FETCH_SESSION_ID_NOT_FOUND}))


async def is_so(answers, expected):
    return await answers == expected


async def test_a_consumer_that_stops_closes_its_session(watched):
    """Its fetch waits at the broker. Otherwise short-lived consumers fill the broker's cache (KAFKA-7109)."""
    place, consumer, watch, _ = watched
    await assert_closed_by(consumer.stop, place, {watch.fetches[-1].response.session_id})


async def test_a_consumer_with_two_lanes_closes_the_sessions_of_both(make_place):
    place = make_place()
    await leave_at(place, committed=70, end=120)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        watch = Watch(proxy)
        async with place.consumer(**MODE, bootstrap_servers=proxy.bootstrap_servers) as consumer:
            assert lanes_of(await take_batch(consumer, 50)) == {"catch-up": list(range(70, 120))}
            await eventually(lambda: len({each.response.session_id for each in watch.fetches}) == 2)
            await assert_closed_by(consumer.stop, place, {each.response.session_id for each in watch.fetches})


async def test_session_that_the_broker_evicted_starts_over(watched):
    place, consumer, watch, ears = watched
    for round_ in range(3):
        await close_session(place, watch.fetches[-1].response.session_id)
        await eventually(lambda: len(ears.heard(FetchSessionLost)) == round_ + 1)  # noqa: B023 (awaited here)
        await place.produce(range(round_ * 10, round_ * 10 + 10), partition=round_)
        assert await values(consumer, 10) == list(range(round_ * 10, round_ * 10 + 10))
        await watch.settle()
    await silence(consumer)
    assert sum(each.is_full for each in watch.fetches) == 4
    assert not ears.heard(FetchFailed)


async def test_lost_connection_closes_the_old_session_and_opens_a_new_one(watched):
    place, consumer, watch, ears = watched
    old_id = watch.fetches[0].response.session_id
    watch.spoil = lambda _: CUT
    await place.produce(range(10), partition=1)
    assert await values(consumer, 10) == list(range(10))
    full = next(each for each in watch.fetches[1:] if each.is_full)
    assert (full.head, len(full.named)) == ((old_id, 0), MANY)
    await silence(consumer)
    assert not ears.heard(FetchSessionLost), "the broken connection was told"
    assert ears.heard(FetchFailed)


@pytest.mark.parametrize("watched", [1], indirect=True)
async def test_topic_that_is_recreated_is_not_read_in_the_old_ones_session(watched):
    place, consumer, watch, _ = watched
    await place.produce(range(5))
    assert await values(consumer, 5) == list(range(5))
    await place.delete()
    await place.make()
    await place.produce(range(100, 103))
    came = [(record.offset, record.value) for record in await read(consumer, 3)]
    assert came == [(0, b"100"), (1, b"101"), (2, b"102")]
    await silence(consumer)
    ids = {topic.topic_id for each in watch.fetches for topic in each.request.topics}
    assert len(ids) == 2
    await watch.settle()
    assert not watch.fetches[-1].is_full


async def test_records_of_every_partition_come_once_while_buffers_fill_and_drain(make_place):
    """Full partitions leave the session and come back with every few fetches; slow answers overlap with seeks."""
    place = make_place(8)
    for number in range(8):
        await place.produce([f"{each:0100}" for each in range(number * 1_000, number * 1_000 + 300)], partition=number)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        watch = Watch(proxy)
        consumer = place.unsubscribed(
            group_id=None, bootstrap_servers=proxy.bootstrap_servers,
            max_partition_fetch_bytes=4_000, fetch_max_bytes=12_000, max_buffered_bytes=200_000,
        )  # fmt: skip
        consumer.assign(map(place.tp, range(8)))
        async with consumer:
            came = [int(record.value) for record in await read(consumer, 2_400)]
            for number in range(8):
                own = [each for each in came if each // 1_000 == number]
                assert own == list(range(number * 1_000, number * 1_000 + 300))
            await silence(consumer)
        assert any(each.forgotten for each in watch.fetches)
        assert sum(each.is_full for each in watch.fetches) == 1


async def test_broker_that_restarts_has_forgotten_the_session(cluster_1, unique_name):
    place, ears = Place(cluster_1, unique_name("topic"), unique_name("group"), MANY), Ears()
    cluster_1.create_topic(place.topic, MANY)
    await place.produce(range(10), partition=1)
    async with Proxy(cluster_1.bootstrap_servers) as proxy:
        watch = Watch(proxy)
        consumer = place.unsubscribed(group_id=None, bootstrap_servers=proxy.bootstrap_servers, observers=[ears])
        consumer.assign(map(place.tp, range(MANY)))
        async with consumer:
            assert await values(consumer, 10) == list(range(10))
            node = cluster_1.nodes[0]
            await asyncio.to_thread(node.stop)
            await asyncio.to_thread(node.start)
            await place.produce(range(10, 20), partition=1)
            assert await values(consumer, 10) == list(range(10, 20))
            await watch.settle()
            await silence(consumer)
        assert sum(each.is_full for each in watch.fetches) >= 2
        assert not watch.fetches[-1].is_full


async def test_readers_of_a_broker_that_gives_no_sessions_read_on(make_cluster, unique_name):
    """The broker's cache has room for none: every request names every partition, and nobody is told."""
    with make_cluster(properties={"max.incremental.fetch.session.cache.slots": "0"}) as cluster:
        place, ears = Place(cluster, unique_name("topic"), unique_name("group"), 4), Ears()
        cluster.create_topic(place.topic, 4)
        async with Proxy(cluster.bootstrap_servers) as proxy:
            watch = Watch(proxy)
            consumers = [
                place.unsubscribed(group_id=None, bootstrap_servers=proxy.bootstrap_servers, observers=[ears])
                for _ in range(2)
            ]
            for consumer in consumers:
                consumer.assign(map(place.tp, range(4)))
                await consumer.start()
            for number in range(4):
                await place.produce(range(number * 10, number * 10 + 10), partition=number)
            for consumer in consumers:
                assert await values(consumer, 40) == list(range(40))
                await silence(consumer)
                await consumer.stop()
            assert {each.head for each in watch.fetches} == {(0, 0)}
            assert {each.response.session_id for each in watch.fetches} == {0}
            assert not ears.heard(FetchSessionLost)
