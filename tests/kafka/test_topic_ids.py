"""A log's identity is its topic id: nothing that belongs to a deleted topic becomes an offset of the one recreated.

Most stories run with one lane and with two (`enable_parallel_rebalance`). An offset of the old log that is carried over
to the new one passes over records: then they are missed at the end, or the commit is seen in what the broker accepted.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from aiogroup import CommitFailedError
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup._core.telemetry import events
from aiogroup._runtime.net.link import COMMIT, Link
from aiogroup.config import ConsumerConfig
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, eventually, take_batch
from tests.support.recovery import MANUAL, MODE, leave_at, written

OLD_COUNT, NEW_COUNT = 170, 300
SLOW = {"auto_commit_interval_ms": 600_000}
NEVER_LOOKS = {"metadata_max_age_ms": 600_000}
OLD = [f"old {number}" for number in range(OLD_COUNT)]
NEW = [f"new {number}" for number in range(NEW_COUNT)]


@pytest.fixture(params=[{}, MODE], ids=["one lane", "two lanes"])
def mode(request):
    return request.param


class Accepted:
    """The offsets that the broker accepted, from everybody who commits through the proxy."""

    def __init__(self, proxy):
        self.offsets = []
        proxy.rewrite(OffsetCommitRequest, self._note)

    def _note(self, exchange):
        asked = {each.partition_index: each.committed_offset for t in exchange.request.topics for each in t.partitions}
        self.offsets += [
            asked[each.partition_index]
            for topic in exchange.response.topics
            for each in topic.partitions
            if not each.error_code
        ]


async def recreate(place, partitions=1):
    """Delete the topic, make it again, and fill partition 0 of the new one."""
    await place.delete()
    await place.make(partitions)
    await place.produce(NEW)


async def recreate_unseen(proxy, place):
    """Who asks through the proxy sees the old topic or the new one, and never that there is none.

    Returns the rule that keeps them from seeing anything yet.
    """
    rule = proxy.cut(MetadataRequest, before=True)
    await recreate(place)
    return rule


async def read_all_new(consumer, within_s=20):
    """Ask for records until all of the new topic came: in order, and the first one first."""
    found = []
    async with asyncio.timeout(within_s):
        while not set(NEW) <= set(found):
            batch = await consumer.getmany(timeout_ms=200)
            found += [record.value.decode() for record in batch.all()]
    assert [each for each in dict.fromkeys(found) if each in set(NEW)] == NEW


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("thread", [False, True], ids=["", "heartbeat thread"])
async def test_the_commit_at_the_hand_over_says_nothing_of_the_new_topic(make_place, mode, strategy, thread):
    """Records of the old log are processed when the group rebalances, and the member has not heard of the new one."""
    place = make_place()
    await place.produce(OLD)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "heartbeat_thread": thread, **SLOW, **mode}
        async with place.consumer(partition_assignment_strategy=(strategy,), **settings) as consumer:
            await take_batch(consumer, OLD_COUNT)
            rule = await recreate_unseen(proxy, place)
            await consumer.getmany(timeout_ms=0)
            accepted, before = Accepted(proxy), proxy.count(OffsetCommitRequest)
            await consumer.enforce_rebalance()
            asking = asyncio.create_task(read_all_new(consumer))
            await eventually(lambda: proxy.count(OffsetCommitRequest) > before)
            rule.remove()
            await asking
            assert OLD_COUNT not in accepted.offsets


@pytest.mark.parametrize("thread", [False, True], ids=["", "heartbeat thread"])
async def test_a_member_that_has_nothing_in_hand_reads_the_new_topic_from_its_start(make_place, mode, thread):
    place, ears, listener = make_place(), Ears(), Listener()
    await place.produce(OLD)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "heartbeat_thread": thread, "observers": [ears]}
        consumer = place.unsubscribed(**settings, **NEVER_LOOKS, **mode)
        consumer.subscribe([place.topic], listener=listener)
        async with consumer:
            await take_batch(consumer, OLD_COUNT)
            await consumer.getmany(timeout_ms=0)  # which makes what was in hand processed
            asking = asyncio.create_task(read_all_new(consumer))
            await eventually(lambda: place.committed_is(OLD_COUNT))
            (await recreate_unseen(proxy, place)).remove()
            await asking
            (told,) = ears.heard(events.TopicRecreated)
            assert (told.topic, told.partition, told.position) == (place.topic, 0, OLD_COUNT)
            assert UUID(told.old_topic_id) != UUID(told.new_topic_id)
            assert listener.names() == ["assigned"]  # it was assigned all the time
            await consumer.commit()
            assert await place.committed() == NEW_COUNT


async def test_auto_commit_says_nothing_of_the_new_topic(make_place, mode):
    """What is processed after the topic was recreated was read before."""
    place = make_place()
    await place.produce(OLD)
    async with (
        Proxy(place.cluster.bootstrap_servers) as proxy,
        place.consumer(bootstrap_servers=proxy.bootstrap_servers, **mode) as consumer,
    ):
        await take_batch(consumer, OLD_COUNT)
        rule = await recreate_unseen(proxy, place)
        accepted, before = Accepted(proxy), proxy.count(OffsetCommitRequest)
        await consumer.getmany(timeout_ms=0)
        await eventually(lambda: proxy.count(OffsetCommitRequest) > before)
        rule.remove()
        await read_all_new(consumer)
        assert OLD_COUNT not in accepted.offsets


@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "not noticed"])
@pytest.mark.parametrize("is_by_name", [True, False], ids=["by name", "all"])
async def test_a_commit_of_what_the_old_topic_gave_is_refused(make_place, mode, is_by_name, is_noticed):
    place, ears = make_place(), Ears()
    await place.produce(OLD)
    tp = place.tp()
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "observers": [ears], **MANUAL, **NEVER_LOOKS}
        async with place.consumer(**settings, **mode) as consumer:
            await take_batch(consumer, OLD_COUNT)
            if not is_noticed:
                proxy.drop(FetchRequest, before=True)  # a fetch would notice
                proxy.disconnect()
            (await recreate_unseen(proxy, place)).remove()
            if is_noticed:
                await eventually(lambda: ears.heard(events.TopicRecreated))
            with pytest.raises(CommitFailedError, match="recreated") as raised:
                await consumer.commit({tp: OLD_COUNT} if is_by_name else None)
            assert raised.value.not_owned == {tp}
            assert len(ears.heard(events.TopicRecreated)) == 1
            assert await place.committed() in (None, 0)  # where it goes on
            proxy.clear()
            proxy.disconnect()
            await read_all_new(consumer)
            if is_by_name:
                with pytest.raises(CommitFailedError, match="recreated"):  # the others, if any, and once
                    await consumer.commit()
            await consumer.commit({tp: OLD_COUNT})  # of what the new one gave it is taken
            assert await place.committed() == OLD_COUNT
            await consumer.commit()
            assert await place.committed() == NEW_COUNT


@pytest.mark.parametrize("is_seen", [True, False], ids=["deletion seen", "not seen"])
async def test_an_offset_of_the_old_topic_is_refused_also_for_transactions(make_place, mode, is_seen):
    """Where the deletion is seen the partition is given up, and assigned again: the old offset is known as well."""
    place, ears = make_place(), Ears()
    await place.produce(OLD)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "observers": [ears], **MANUAL}
        async with place.consumer(**settings, **mode) as consumer:
            await take_batch(consumer, OLD_COUNT)
            if is_seen:
                await place.delete()
                async with asyncio.timeout(20):
                    while consumer.assignment():
                        await consumer.getmany(timeout_ms=100)
                await place.make()
                await eventually(consumer.assignment, 20)
            else:
                (await recreate_unseen(proxy, place)).remove()
            await eventually(lambda: ears.heard(events.TopicRecreated))
            await consumer.position(place.tp())
            with pytest.raises(CommitFailedError, match="recreated"):
                consumer.offsets_for_transaction({place.tp(): OLD_COUNT})
            with pytest.raises(CommitFailedError, match="recreated"):
                await consumer.commit({place.tp(): OLD_COUNT})
            if is_seen:
                await place.produce(NEW)
            await read_all_new(consumer)
            assert consumer.offsets_for_transaction({place.tp(): NEW_COUNT})[place.tp()].offset == NEW_COUNT


async def test_recreated_while_the_member_is_down(make_place, mode):
    """The coordinator forgets the offsets of a topic that is deleted."""
    place = make_place()
    await place.produce(OLD)
    async with place.consumer(**mode) as consumer:
        await take_batch(consumer, OLD_COUNT)
        await consumer.commit()
    await recreate(place)
    async with place.consumer(**mode) as consumer:
        await read_all_new(consumer)


@pytest.mark.parametrize("reset", ["latest", "none"])
async def test_a_token_of_the_old_topic_sends_nobody_past_the_start_of_the_new_one(make_place, mode, reset):
    """Offsets that were saved and are restored by name, as backup tools do: the token proves of which log they are."""
    place, ears = make_place(), Ears()
    await leave_at(place, committed=70, end=100)
    async with place.consumer(**MANUAL, **MODE) as consumer:
        batch = await consumer.getmany(timeout_ms=10_000, max_records=10)
        assert batch.count == 10
        await consumer.commit()
    offset, token = await written(place)
    assert offset > 70
    assert token.startswith("aiogroup/1 ")
    await recreate(place)
    await written(place, offset, token)
    async with place.consumer(observers=[ears], auto_offset_reset=reset, **mode) as consumer:
        await read_all_new(consumer)
        (told,) = ears.heard(events.TopicRecreated)
        assert (told.topic, told.partition, told.position) == (place.topic, 0, offset)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("request_type", [JoinGroupRequest, SyncGroupRequest], ids=["JoinGroup", "SyncGroup"])
async def test_recreated_while_the_group_rebalances(make_place, mode, strategy, request_type):
    """Records of the old log are processed and, where the strategy lets a member keep the partition, not committed."""
    place, answered = make_place(), asyncio.Event()
    await place.produce(OLD)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "session_timeout_ms": 20_000, **SLOW, **mode}
        async with place.consumer(partition_assignment_strategy=(strategy,), **settings) as consumer:
            await take_batch(consumer, OLD_COUNT)
            await consumer.getmany(timeout_ms=0)
            accepted = Accepted(proxy)
            rule = proxy.hold(request_type, until=answered)
            await consumer.enforce_rebalance()
            asking = asyncio.create_task(read_all_new(consumer))
            await eventually(lambda: rule.used_count)
            accepted.offsets.clear()  # of the old topic, before it was deleted
            await recreate(place)
            answered.set()
            await asking
            assert OLD_COUNT not in accepted.offsets


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_a_pattern_reads_the_new_topic_from_its_start(make_place, mode, policy):
    place = make_place()
    await place.produce(["first"])
    consumer = place.unsubscribed(metadata_max_age_ms=500, auto_offset_reset=policy, **SLOW, **mode)
    consumer.subscribe(pattern=f"{place.topic}.*")
    async with consumer:
        await eventually(consumer.assignment)
        await consumer.position(place.tp())
        await place.produce(OLD)
        async with asyncio.timeout(10):
            while not (await consumer.getmany(timeout_ms=200)).all():
                pass
        await recreate(place)
        await read_all_new(consumer)


async def test_self_assigned_commits_nothing_of_the_old_topic(make_place):
    place, ears = make_place(), Ears()
    await place.produce(OLD)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "observers": [ears], **SLOW, **NEVER_LOOKS}
        consumer = place.unsubscribed(**settings)
        consumer.assign([place.tp()])
        async with consumer:
            await take_batch(consumer, OLD_COUNT)
            accepted, rule = Accepted(proxy), await recreate_unseen(proxy, place)
            commit = asyncio.create_task(consumer.commit({place.tp(): OLD_COUNT}))
            await eventually(lambda: proxy.count(OffsetCommitRequest))
            rule.remove()
            with pytest.raises(CommitFailedError, match="recreated"):
                await commit
            with pytest.raises(CommitFailedError, match="recreated"):
                await consumer.commit({place.tp(): OLD_COUNT})  # it has heard of it by now
            await read_all_new(consumer)
            assert OLD_COUNT not in accepted.offsets


async def test_a_new_topic_with_fewer_partitions(make_place, mode):
    place, ears = make_place(3), Ears()
    for partition in range(3):
        await place.produce(OLD, partition)
    async with place.consumer(observers=[ears], max_poll_records=3 * OLD_COUNT, **mode) as consumer:
        seen_count = 0
        while seen_count < 3 * OLD_COUNT:  # in one answer or in three
            seen_count += (await consumer.getmany(timeout_ms=10_000)).count
        await consumer.commit()  # else the last of them would be lost with the topic, which commit() tells
        await recreate(place)
        await read_all_new(consumer)
        await eventually(lambda: consumer.assignment() == {place.tp()})
        await consumer.commit()
        assert await place.committed() == NEW_COUNT
        assert await place.committed(1) is None


async def test_a_broker_that_takes_names_only_hears_nothing_of_the_old_topic(make_place, mode, monkeypatch):
    """Before Kafka 4.1: what the metadata says is compared before anything is sent."""
    monkeypatch.setattr(OffsetCommitRequest, "MAX_VERSION", 9)
    monkeypatch.setattr(OffsetFetchRequest, "MAX_VERSION", 9)
    place, ears = make_place(), Ears()
    await place.produce(OLD)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "observers": [ears], **MANUAL, **mode}
        async with place.consumer(**settings) as consumer:
            await take_batch(consumer, OLD_COUNT)
            (await recreate_unseen(proxy, place)).remove()
            await eventually(lambda: ears.heard(events.TopicRecreated))
            with pytest.raises(CommitFailedError, match="recreated"):
                await consumer.commit({place.tp(): OLD_COUNT})
            assert await place.committed() is None
            await read_all_new(consumer)
            with pytest.raises(CommitFailedError, match="recreated"):  # of all that was lost, once
                await consumer.commit()
            await consumer.commit()
            assert await place.committed() == NEW_COUNT


class Asking:
    """Asks a broker for offsets, topics by id (version 10) or by name."""

    def __init__(self, place):
        self.place = place
        self.link = Link(ConsumerConfig(bootstrap_servers=place.cluster.bootstrap_servers))

    async def topic_id(self):
        return (await self.link.fetch_metadata([self.place.topic])).topics[self.place.topic].topic_id

    async def _send(self, request, at_most):
        found = await self.link.ask_any(FindCoordinatorRequest(coordinator_keys=(self.place.group,)))
        return await self.link.send(found.coordinators[0].node_id, request, COMMIT, at_most=at_most)

    async def commit(self, offset, topic_id=None):
        partition = OffsetCommitRequestPartition(0, offset, -1, "")
        topic = OffsetCommitRequestTopic(self.place.topic, topic_id or UUID(int=0), (partition,))
        request = OffsetCommitRequest(self.place.group, topics=(topic,))
        response = await self._send(request, 9 if topic_id is None else None)
        return response.topics[0].partitions[0].error_code

    async def fetch(self, topic_id=None):
        topic = OffsetFetchRequestTopic(self.place.topic, topic_id or UUID(int=0), (0,))
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(self.place.group, topics=(topic,)),), require_stable=True
        )
        response = await self._send(request, 9 if topic_id is None else None)
        found = response.groups[0].topics[0].partitions[0]
        return found.error_code, found.committed_offset


async def test_what_a_broker_answers_to_the_id_of_a_deleted_topic(make_place):
    """The facts that the rest is built on; docs/topic-ids.md tells them."""
    place = make_place()
    await place.produce(range(3))
    asking = Asking(place)
    async with asking.link:
        old = await asking.topic_id()
        await eventually(lambda: _is_ok(asking.commit(1, old)))
        assert await asking.fetch(old) == (ErrorCode.NONE, 1)
        await place.delete()
        assert await asking.commit(2, old) == ErrorCode.UNKNOWN_TOPIC_ID
        assert await asking.commit(2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await asking.fetch(old) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
        await place.make()
        new = await asking.topic_id()
        assert await asking.commit(2, old) == ErrorCode.UNKNOWN_TOPIC_ID  # as of any id that it does not know
        assert await asking.fetch(old) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
        assert await asking.fetch(new) == (ErrorCode.NONE, -1)
        assert await asking.commit(2) == ErrorCode.NONE  # by name it is an offset of the new one
        assert await asking.fetch(new) == (ErrorCode.NONE, 2)
        assert await asking.commit(3, new) == ErrorCode.NONE


async def _is_ok(code):
    return await code == ErrorCode.NONE
