"""Commits, the signals when one comes too late, and the guards of a reset position (delivery.md, rules 5 and 6)."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle

import pytest

from aiogroup import (
    BrokerError,
    CommitFailedError,
    FencedInstanceIdError,
    IllegalStateError,
    OffsetAndMetadata,
    PollIntervalExceeded,
)
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.telemetry import events
from aiogroup._runtime.offsets import own_commits
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, eventually, take, take_batch, turns, values

MANUAL = {"enable_auto_commit": False}
STALLS = {"session_timeout_ms": 1_000, "max_poll_interval_ms": 1_000, "enable_auto_commit": False}


async def joining_waits(consumer, ears, other):
    """Start another member; return when the first was told of the rebalance."""
    before = len(ears.heard(events.RebalanceStarted))
    joining = asyncio.create_task(other.start())
    await eventually(lambda: len(ears.heard(events.RebalanceStarted)) > before)
    await turns()
    return joining


async def test_rule_5_commit_takes_all_that_was_delivered_also_the_batch_in_hand(make_place):
    place = make_place(2)
    await place.produce(range(5), 0)
    await place.produce(range(3), 1)
    async with place.consumer(**MANUAL) as consumer:
        batch = await take_batch(consumer, 8)
        await consumer.commit()
        assert (await place.committed(0), await place.committed(1)) == (5, 3)
        assert batch.count == 8
        await place.produce(range(1), 0)
        await take(consumer, 1)
        await consumer.commit()
        assert (await place.committed(0), await place.committed(1)) == (6, 3)


async def test_rule_5_named_offsets_are_the_next_to_process(make_place):
    place = make_place()
    await place.produce(range(5))
    async with place.consumer(**MANUAL) as consumer:
        await take(consumer, 4)
        await consumer.commit({place.tp(): 1})
        assert await consumer.committed(place.tp()) == 1
        await consumer.commit({place.tp(): (2, "by a tuple")})
        assert await consumer.committed(place.tp()) == 2
        await consumer.commit({place.tp(): OffsetAndMetadata(3, "kept")})
        async with place.admin() as admin:
            assert (await admin.list_consumer_group_offsets(place.group))[place.tp()] == (3, "kept")
    async with place.consumer(**MANUAL) as consumer:
        assert await take(consumer, 1) == ["3"]


async def test_rule_5_what_is_not_owned_any_more_is_refused_after_the_owned_part_was_committed(make_place):
    place = make_place(2)
    await place.produce(range(5), 0)
    await place.produce(range(5), 1)
    async with place.consumer(**MANUAL) as consumer:
        await take(consumer, 10)
        await consumer.commit()
        asking = asyncio.create_task(consumer.getone())
        async with place.consumer(**MANUAL) as other:
            (kept,), (gone,) = (
                (await eventually(lambda: len(consumer.assignment()) == 1 and consumer.assignment())),
                (other.assignment()),
            )
            with pytest.raises(CommitFailedError) as caught:
                await consumer.commit({kept: 2, gone: 2})
            assert caught.value.not_owned == {gone}
            assert caught.value.committed == {kept: 2}
            again = pickle.loads(pickle.dumps(caught.value))
            assert (again.not_owned, again.committed) == ({gone}, {kept: 2})
            assert await place.committed(kept.partition) == 2
            assert await place.committed(gone.partition) == 5
        asking.cancel()


async def test_rule_5_a_partition_that_left_and_came_back_is_another_ownership(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(6))
    async with place.consumer(auto_ack=False, **MANUAL, observers=[ears]) as consumer:
        records = [await consumer.getone() for _ in range(4)]
        consumer.unsubscribe()  # the application asks for it itself: nothing waits for what is in hand
        await eventually(lambda: ears.heard(events.PartitionsRevoked))
        with pytest.raises(CommitFailedError) as caught:
            await consumer.commit({place.tp(): 4})
        assert caught.value.not_owned == {place.tp()}
        assert caught.value.committed == {}
        consumer.subscribe([place.topic])
        await eventually(lambda: consumer.assignment())
        for record in records:  # acks of what an earlier ownership delivered change nothing
            record.ack()
        await consumer.commit()
        assert await place.committed() in (None, 0)
        again = [await consumer.getone() for _ in range(2)]
        assert [record.offset for record in again] == [0, 1]
        records[0].ack()
        await consumer.commit()
        assert await place.committed() in (None, 0)
        again[0].ack()
        await consumer.commit()
        assert await place.committed() == 1


async def test_rule_5_after_unsubscribe_a_commit_takes_what_is_still_owned_and_fails_once_nothing_is(make_place):
    """Success that commits nothing would be silent: aiokafka refuses both."""
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    async with place.consumer(**MANUAL, observers=[ears]) as consumer:
        await take(consumer, 2)
        consumer.unsubscribe()
        await consumer.commit()
        assert await place.committed() == 2
        await eventually(lambda: ears.heard(events.PartitionsRevoked))
        with pytest.raises(IllegalStateError, match="Not subscribed"):
            await consumer.commit()
        consumer.assign([place.tp()])
        await take(consumer, 1)
        consumer.unsubscribe()  # what the application assigned itself is given up at once
        with pytest.raises(IllegalStateError, match="Not subscribed"):
            await consumer.commit()
        assert await place.committed() == 2


async def test_rule_5_a_cancelled_commit_settles(make_place):
    place = make_place()
    await place.produce(range(3))
    async with place.consumer(**MANUAL) as consumer:
        await take(consumer, 3)
        committing = asyncio.create_task(consumer.commit())
        await asyncio.sleep(0)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        await eventually(lambda: _is_committed(place, 3))


async def _is_committed(place, offset, partition=0):
    return await place.committed(partition) == offset


async def test_rule_6_nothing_between_two_requests_waits_for_the_hand_over_point(make_place):
    place, ears = make_place(2), Ears()
    await place.produce(range(3))
    async with place.consumer(**MANUAL, observers=[ears]) as consumer:
        await take(consumer, 2)
        other = place.consumer(**MANUAL)
        joining = await joining_waits(consumer, ears, other)
        async with asyncio.timeout(8):  # far below the rebalance time-out of 30 s, and below what a call may take
            assert await consumer.position(place.tp()) == 2
            assert await consumer.committed(place.tp()) is None
            assert await consumer.lag() == 1
            await consumer.enforce_rebalance()
            await consumer.commit()  # under the generation that ends
        assert await place.committed() == 2
        await joining  # the commit was the hand-over: nothing is in hand
        await other.stop()


async def test_rule_6_a_commit_during_a_join_does_not_wait_for_the_others(make_place):
    place, ears, listener = make_place(2), Ears(), Listener()
    await place.produce(range(3), 0)
    await place.produce(range(3), 1)
    async with place.consumer(**MANUAL, observers=[ears]) as consumer, place.consumer(**MANUAL) as slow:
        # Until then the round goes on, and asking for another one asks for nothing.
        await eventually(lambda: [len(each.partitions) for each in ears.heard(events.RebalanceCompleted)[-1:]] == [1])
        held = (await slow.getone()).tp  # the join waits for this member
        (mine,) = consumer.assignment()
        await consumer.enforce_rebalance()
        asking = asyncio.create_task(consumer.getone())  # not before: a record in hand would hold the rebalance up
        await eventually(lambda: not consumer.assignment())
        async with asyncio.timeout(8):
            with pytest.raises(CommitFailedError) as caught:  # eager: nothing is owned while joining
                await consumer.commit({mine: 1})
            assert caught.value.not_owned == {mine}
            with pytest.raises(IllegalStateError):
                await consumer.position(mine)
            with pytest.raises(IllegalStateError):
                await consumer.lag()
        await slow.commit()
        assert await place.committed(held.partition) == 1
        await asking
        assert listener.calls == []


async def test_rule_6_enforce_rebalance_returns_when_scheduled(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    async with place.consumer(observers=[ears]) as consumer:
        await take(consumer, 1)
        generation = consumer.group_metadata().generation
        async with asyncio.timeout(8):
            await consumer.enforce_rebalance()
        await eventually(lambda: len(ears.heard(events.RebalanceStarted)) == 2)
        assert consumer.group_metadata().generation == generation  # a record is in hand
        assert await take(consumer, 1) == ["1"]
        assert consumer.group_metadata().generation > generation


async def test_a_late_commit_is_refused_locally_with_one_signal_and_iteration_goes_on(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(4))
    async with place.consumer(**STALLS, observers=[ears]) as consumer:
        await take_batch(consumer, 4)
        heir = place.consumer(**MANUAL)
        joining = asyncio.create_task(heir.start())
        (told,) = await eventually(lambda: ears.heard(events.PollIntervalExceeded), 5)
        assert (told.partitions, told.max_poll_interval_ms, told.LEVEL) == ((place.tp(),), 1_000, "warning")
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms") as caught:
            await consumer.commit()
        assert caught.value.not_owned == {place.tp()}
        with pytest.raises(CommitFailedError):
            await consumer.commit({place.tp(): 4})
        await consumer.commit()  # told once: there is nothing more to say
        assert await place.committed() is None
        await joining
        assert await take(heir, 2) == ["0", "1"]  # the other member repeats them
        await heir.commit({place.tp(): 1})
        await heir.stop()
        assert await take(consumer, 3) == ["1", "2", "3"]
        await consumer.commit()
        assert len(ears.heard(events.PollIntervalExceeded)) == 1
        assert await place.committed() == 4
        assert not ears.heard(events.CommitFailed)


async def test_raise_on_poll_interval_raises_it_first_and_once(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(4))
    async with place.consumer(**STALLS, raise_on_poll_interval=True, observers=[ears]) as consumer:
        await take(consumer, 1)
        await eventually(lambda: ears.heard(events.PollIntervalExceeded), 5)
        with pytest.raises(PollIntervalExceeded, match="max_poll_interval_ms=1000") as caught:
            await consumer.getone()
        assert caught.value.partitions == {place.tp()}
        assert await take(consumer, 1) == ["0"]


async def test_a_fatal_error_is_raised_again_by_every_later_call(make_place):
    place, listener, ears = make_place(), Listener(), Ears()
    consumer = place.unsubscribed(group_instance_id="one", observers=[ears])
    consumer.subscribe([place.topic], listener=listener)
    async with consumer, place.consumer(group_instance_id="one"):
        await eventually(lambda: ears.heard(events.MemberFailed))
        calls = (
            consumer.getone,
            consumer.getmany,
            consumer.poll,
            consumer.__anext__,
            consumer.commit,
            lambda: consumer.commit({place.tp(): 1}),
            lambda: consumer.committed(place.tp()),
            lambda: consumer.position(place.tp()),
            consumer.lag,
            consumer.enforce_rebalance,
            consumer.seek_to_beginning,
            lambda: consumer.end_offsets([place.tp()]),
        )
        for call in calls * 2:
            with pytest.raises(FencedInstanceIdError, match="one"):
                await call()
        for call in (
            lambda: consumer.seek(place.tp(), 0),
            consumer.lags,
            lambda: consumer.pause(place.tp()),
            lambda: consumer.subscribe([place.topic]),
        ):
            with pytest.raises(FencedInstanceIdError):
                call()
        await eventually(lambda: listener.names() == ["assigned", "lost"])
        assert consumer.health().status == "fenced"


async def test_a_position_from_a_reset_is_committed_before_the_first_delivery(make_place):
    place = make_place()
    await place.produce(range(3))
    settings = {"auto_offset_reset": "latest", "auto_commit_interval_ms": 600_000}
    async with place.consumer(**settings):
        assert await place.committed() == 3  # nothing was delivered
    await place.produce(["while nobody was there"])
    async with place.consumer(**settings) as consumer:
        assert await take(consumer, 1) == ["while nobody was there"]


async def test_so_is_one_of_a_self_assigned_partition(make_place):
    place = make_place()
    await place.produce(range(3))
    consumer = place.unsubscribed(auto_commit_interval_ms=600_000)
    consumer.assign([place.tp()])
    async with consumer:
        await take(consumer, 1)
        assert await place.committed() == 0


async def test_without_auto_commit_a_reset_commits_nothing(make_place):
    place = make_place()
    await place.produce(range(3))
    async with place.consumer(**MANUAL, auto_offset_reset="latest") as consumer:
        assert await consumer.position(place.tp()) == 3
    assert await place.committed() is None


async def test_a_partition_added_to_a_subscribed_topic_starts_at_its_earliest_record(make_place):
    place, ears = make_place(), Ears()
    await place.produce(["old"])
    settings = {"auto_offset_reset": "latest", "metadata_max_age_ms": 1_500, "observers": [ears]}
    async with place.consumer(**settings) as consumer:
        await take_none(consumer)
        await place.add_partitions(2)
        await place.produce(["first", "second"], 1)
        assert await take(consumer, 2) == ["first", "second"]
        (told,) = ears.heard(events.NewPartitionFromEarliest)
        assert (told.topic, told.partition) == (place.topic, 1)


async def take_none(consumer):
    assert values(await consumer.getmany(timeout_ms=100)) == []


async def test_so_is_one_whose_leader_was_not_known_when_the_partition_came(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))

    def refuse(exchange):
        (topic,) = exchange.response.topics
        partitions = [dataclasses.replace(each, error_code=6) for each in topic.partitions]
        return dataclasses.replace(exchange.response, topics=(dataclasses.replace(topic, partitions=partitions),))

    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.rewrite(ListOffsetsRequest, refuse)
        settings = {"auto_offset_reset": "latest", "auto_commit_interval_ms": 600_000, "request_timeout_ms": 2_000}
        consumer = place.consumer(bootstrap_servers=proxy.bootstrap_servers, **settings, observers=[ears])
        async with consumer:
            assert consumer.assignment() == {place.tp()}
            asking = asyncio.create_task(consumer.getone())
            proxy.clear()
            await eventually(lambda: ears.heard(events.PositionFromPolicy))
            await place.produce(["delivered"])
            assert (await asyncio.wait_for(asking, 10)).value == b"delivered"
            assert await place.committed() == 3  # or a crash now would start behind the record in hand


async def test_an_answer_without_the_partition_is_asked_for_again_with_a_backoff(make_place):
    place = make_place()
    await place.produce(range(1))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "default_api_timeout_ms": 1_500}
        async with place.consumer(**MANUAL, **settings) as consumer:
            await take(consumer, 1)
            proxy.rewrite(OffsetCommitRequest, lambda exchange: dataclasses.replace(exchange.response, topics=()))
            with pytest.raises(BrokerError, match="the answer lacks"):
                await consumer.commit()
            assert 2 <= proxy.count(OffsetCommitRequest) <= 10
            proxy.clear()
            await consumer.commit()
    assert await place.committed() == 1


async def test_an_auto_commit_waits_for_its_answer_longer_than_its_interval(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.delay(OffsetCommitRequest, ms=600)
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "auto_commit_interval_ms": 100, "observers": [ears]}
        async with place.consumer(**settings) as consumer:
            await take(consumer, 3)
            adopted_count = len(ears.heard(events.OffsetsCommitted))
            reading = asyncio.create_task(anext(consumer))  # the three are processed
            await eventually(lambda: len(ears.heard(events.OffsetsCommitted)) > adopted_count)
            assert ears.heard(events.CommitFailed) == []
            reading.cancel()
    assert await place.committed() == 3


async def test_a_commit_on_its_way_does_not_cover_what_a_seek_took_back_meanwhile(make_place):
    place, ears, answered = make_place(), Ears(), asyncio.Event()
    await place.produce(range(6))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"auto_commit_interval_ms": 1_000, "observers": [ears]}
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, **settings) as consumer:
            with proxy.hold(OffsetCommitRequest, until=answered) as held:
                await take(consumer, 5)
                await eventually(lambda: held.used_count)
                consumer.seek(place.tp(), 1)
                assert await take(consumer, 1) == ["1"]
                done_count = len(ears.heard(events.OffsetsCommitted))
                answered.set()
                await eventually(lambda: len(ears.heard(events.OffsetsCommitted)) >= done_count + 2)
            assert await place.committed() == 1  # the record in hand comes again after a crash


async def test_the_retry_of_an_older_commit_does_not_overwrite_a_newer_one(make_place):
    def refuse(exchange):
        (topic,) = exchange.response.topics
        refused = tuple(
            dataclasses.replace(each, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) for each in topic.partitions
        )
        return dataclasses.replace(exchange.response, topics=(dataclasses.replace(topic, partitions=refused),))

    place = make_place()
    await place.produce(range(8))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {**MANUAL, "bootstrap_servers": proxy.bootstrap_servers, "retry_backoff_ms": 500}
        async with place.consumer(**settings) as consumer:
            await take(consumer, 8)
            refused = proxy.rewrite(OffsetCommitRequest, refuse, times=1)
            older = asyncio.create_task(consumer.commit({place.tp(): 2}))
            await eventually(lambda: refused.used_count)
            await consumer.commit({place.tp(): 5})
            assert await place.committed() == 5
            await older
            assert proxy.count(OffsetCommitRequest) == 2
    assert await place.committed() == 5


async def test_offsets_of_a_self_assigned_partition_are_committed_again_as_they_are(make_place, monkeypatch):
    monkeypatch.setattr(own_commits, "REFRESH_MS", 300)
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): (2, "mine")})
    consumer = place.unsubscribed(auto_commit_interval_ms=100, observers=[ears])
    consumer.assign([place.tp()])
    async with consumer:
        await eventually(lambda: len(ears.heard(events.OffsetsCommitted)) >= 3)
        async with place.admin() as admin:
            assert (await admin.list_consumer_group_offsets(place.group))[place.tp()] == (2, "mine")
