"""Topics that come, go, or are not known to one broker; what is asked for by the name of a partition."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import ConsumerStoppedError, IllegalStateError, NoOffsetForPartitionError
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.telemetry import events
from aiogroup._runtime.loop.clock import wall_ms
from tests.groups.scripted import POLL_MS, SESSION_MS, TOPIC, sleep_ms
from tests.support.group_members import named, until

A, B = named(TOPIC, 0, 1)
PAYMENTS = "payments"
(P,) = named(PAYMENTS, 0)
IDLE = {"reads": False, "topics": ()}
LATEST = {**IDLE, "auto_offset_reset": "latest"}
WITH_OR_WITHOUT = pytest.mark.parametrize("group_id", ["billing", None])


async def first(member, *tps):
    record = await member.do(member.consumer.getone(*tps))
    return record.topic, record.partition, record.offset


async def assigned(member, *tps):
    await until(lambda: member.consumer.assignment() == set(tps), 60, member.tail)


# Where it begins.


@WITH_OR_WITHOUT
async def test_a_topic_that_is_subscribed_to_later_begins_where_the_policy_says(group, group_id):
    group.brokers.append(TOPIC, 0, 5)
    member = await group.member("m", **LATEST, group_id=group_id).start()
    member.call("subscribe", [TOPIC])
    await assigned(member, A, B)
    assert await member.do(member.consumer.position(A)) == 5
    assert not member.count(events.NewPartitionFromEarliest)


@WITH_OR_WITHOUT
@pytest.mark.parametrize("is_by_pattern", [True, False])
async def test_a_topic_that_is_made_later_begins_with_its_first_record(group, group_id, is_by_pattern):
    member = group.member("m", **LATEST, group_id=group_id)
    if is_by_pattern:
        member.call("subscribe", None, "(orders|pay.*)")
    else:
        member.call("subscribe", [TOPIC, PAYMENTS])
    await member.start()
    await assigned(member, A, B)
    await sleep_ms(5_000)
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 3)
    assert await first(member) == (PAYMENTS, 0, 0)
    assert len(member.all(events.NewPartitionFromEarliest)) == 1


@WITH_OR_WITHOUT
@pytest.mark.parametrize("is_second_time", [True, False])
async def test_what_a_pattern_finds_at_first_begins_where_the_policy_says(group, group_id, is_second_time):
    """Also where the metadata were about other topics before."""
    group.brokers.append(TOPIC, 0, 5)
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 3)
    member = await group.member("m", **LATEST, group_id=group_id).start()
    if is_second_time:
        group.brokers.hidden.add(PAYMENTS)
        member.call("subscribe", (), "pay.*")
        await sleep_ms(3_000)
        group.brokers.hidden.clear()
        member.call("unsubscribe")
    member.call("subscribe", [TOPIC])
    await assigned(member, A, B)
    member.call("unsubscribe")
    member.call("subscribe", (), "pay.*")
    await assigned(member, P)
    assert await member.do(member.consumer.position(P)) == 3


@WITH_OR_WITHOUT
@pytest.mark.parametrize("policy", ["latest", "by_duration:PT1S"])
@pytest.mark.parametrize("is_assigned", [True, False])
async def test_nothing_is_said_to_begin_with_its_first_record_where_the_policy_says_otherwise(
    group, group_id, policy, is_assigned
):
    settings = {**IDLE, "auto_offset_reset": "earliest", "new_partition_reset": policy, "group_id": group_id}
    member = group.member("m", **settings)
    if is_assigned:
        member.call("assign", [A, P])
    else:
        member.call("subscribe", [TOPIC, PAYMENTS])
    await member.start()
    await sleep_ms(5_000)
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 3)
    await sleep_ms(10_000)
    assert P in member.consumer.assignment()
    assert await member.do(member.consumer.position(P)) == 3
    assert not member.count(events.NewPartitionFromEarliest)


# Assigned by name.


@WITH_OR_WITHOUT
@pytest.mark.parametrize("is_before_start", [True, False])
async def test_a_topic_that_is_made_after_it_was_assigned_begins_with_its_first_record(
    group, group_id, is_before_start
):
    member = group.member("m", **LATEST, group_id=group_id)
    if is_before_start:
        member.call("assign", [P])
    await member.start()
    if not is_before_start:
        member.call("assign", [P])
    await sleep_ms(5_000)
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 3)
    assert await first(member) == (PAYMENTS, 0, 0)
    assert member.all(events.NewPartitionFromEarliest) == [events.NewPartitionFromEarliest(PAYMENTS, 0)]


@WITH_OR_WITHOUT
async def test_a_partition_that_is_added_after_it_was_assigned_begins_with_its_first_record(group, group_id):
    (added,) = named(TOPIC, 2)
    group.brokers.append(TOPIC, 0, 5)
    member = await group.member("m", **LATEST, group_id=group_id).start()
    member.call("assign", [A, added])
    assert await member.do(member.consumer.position(A)) == 5
    await sleep_ms(5_000)
    group.brokers.add_partitions(TOPIC, 1)
    group.brokers.append(TOPIC, 2, 3)
    assert await first(member) == (TOPIC, 2, 0)
    assert member.all(events.NewPartitionFromEarliest) == [events.NewPartitionFromEarliest(TOPIC, 2)]


@WITH_OR_WITHOUT
async def test_what_was_there_when_it_was_assigned_begins_where_the_policy_says(group, group_id):
    """Also a partition that is newer than what is known of the topic, as an answer about another topic leaves it."""
    (added,) = named(TOPIC, 2)
    member = await group.member("m", **LATEST, group_id=group_id).start()
    member.call("assign", [A])
    await member.do(member.consumer.position(A))
    group.brokers.add_partitions(TOPIC, 1)
    group.brokers.append(TOPIC, 2, 3)
    group.brokers.add_partitions(PAYMENTS, 1)
    about_another = asyncio.ensure_future(member.do(member.consumer.end_offsets([P])))
    await sleep_ms(1)
    member.call("assign", [A, added])
    assert await member.do(member.consumer.position(added)) == 3
    assert await about_another == {P: 0}
    assert not member.count(events.NewPartitionFromEarliest)


@WITH_OR_WITHOUT
async def test_what_is_looked_up_late_begins_where_the_policy_says(group, group_id):
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 4)
    group.network.withheld = (ListOffsetsRequest,)
    member = await group.member("m", **LATEST, group_id=group_id).start()
    member.call("assign", [P])
    await sleep_ms(5_000)
    group.brokers.hidden.add(PAYMENTS)  # by a broker that is behind
    member.call("assign", [P])  # looks again
    await until(lambda: member.consumer.partitions_for_topic(PAYMENTS) is None, 60)
    group.brokers.hidden.clear()
    group.network.withheld = ()
    assert await member.do(member.consumer.position(P)) == 4
    assert not member.count(events.NewPartitionFromEarliest)


@WITH_OR_WITHOUT
@pytest.mark.parametrize("is_recreated", [True, False])
async def test_a_topic_whose_id_is_known_is_new_only_with_another_id(group, group_id, is_recreated):
    """A broker that is behind says, too, that it is not there."""
    one, other = named(PAYMENTS, 0, 1)
    group.brokers.add_partitions(PAYMENTS, 2)
    for partition in (0, 1):
        group.brokers.append(PAYMENTS, partition, 5)
    member = await group.member("m", **LATEST, group_id=group_id).start()
    member.call("assign", [one])
    assert await member.do(member.consumer.position(one)) == 5
    group.brokers.hidden.add(PAYMENTS)
    member.call("assign", [one])  # looks again
    await until(lambda: member.consumer.partitions_for_topic(PAYMENTS) is None, 60)
    member.call("assign", [one, other])
    asked_count = len(group.sent(MetadataRequest))
    await until(lambda: len(group.sent(MetadataRequest)) >= asked_count + 3, 60)
    if is_recreated:
        group.brokers.remake(PAYMENTS)
    group.brokers.hidden.clear()
    start = 0 if is_recreated else 5
    assert await member.do(member.consumer.position(other)) == start
    assert await member.do(member.consumer.position(one)) == start
    assert not member.count(events.NewPartitionFromEarliest)


@WITH_OR_WITHOUT
async def test_without_a_policy_a_topic_that_is_made_later_waits_for_a_seek(group, group_id):
    member = group.member("m", **{**IDLE, "auto_offset_reset": "none"}, group_id=group_id)
    member.call("assign", [P])
    await member.start()
    await sleep_ms(5_000)
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 3)
    with pytest.raises(NoOffsetForPartitionError):
        await first(member)
    member.call("seek", P, 1)
    assert await first(member) == (PAYMENTS, 0, 1)


@pytest.mark.parametrize("policy", ["latest", "none"])
async def test_what_is_committed_counts_though_the_topic_was_not_there_at_first(group, policy):
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 5)
    settings = {**IDLE, "auto_offset_reset": policy}
    member = await group.member("m", **settings).start()
    member.call("assign", [P])
    await member.commit({P: 2})
    await member.stop()
    group.brokers.hidden.add(PAYMENTS)
    other = group.member("other", **settings)
    other.call("assign", [P])
    await other.start()
    await sleep_ms(5_000)
    group.brokers.hidden.clear()
    assert await first(other) == (PAYMENTS, 0, 2)
    assert not other.count(events.NewPartitionFromEarliest, events.PositionFromPolicy)


@WITH_OR_WITHOUT
async def test_a_new_partition_begins_where_its_own_setting_says(group, group_id):
    settings = {**IDLE, "auto_offset_reset": "earliest", "new_partition_reset": "latest"}
    member = group.member("m", **settings, group_id=group_id)
    member.call("assign", [P])
    await member.start()
    await sleep_ms(5_000)
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 3)
    assert await member.do(member.consumer.position(P)) == 3


# Where it ends.


@WITH_OR_WITHOUT
async def test_a_deleted_topic_is_not_matched_any_more(group, group_id):
    group.brokers.add_partitions(PAYMENTS, 1)
    member = group.member("m", **IDLE, group_id=group_id)
    member.call("subscribe", (), "(orders|pay.*)")
    await member.start()
    await assigned(member, A, B, P)
    group.brokers.hidden.add(PAYMENTS)
    asking = asyncio.ensure_future(first(member))
    await until(lambda: member.consumer.subscription() == {TOPIC}, 60, member.tail)
    await assigned(member, A, B)
    assert member.consumer.partitions_for_topic(PAYMENTS) is None
    group.produce(0)
    assert await asking == (TOPIC, 0, 0)


@pytest.mark.parametrize("is_by_pattern", [True, False])
async def test_a_broker_that_is_behind_costs_no_position(group, is_by_pattern):
    """Without a group nothing is committed: who gives the partition up starts over."""
    group.brokers.add_partitions(PAYMENTS, 1)
    group.brokers.append(PAYMENTS, 0, 3)
    member = group.member("m", **IDLE, group_id=None)
    if is_by_pattern:
        member.call("subscribe", (), "(orders|pay.*)")
    else:
        member.call("subscribe", [TOPIC, PAYMENTS])
    await member.start()
    assert [await first(member) for _ in range(3)] == [(PAYMENTS, 0, offset) for offset in range(3)]
    group.brokers.hidden.add(PAYMENTS)
    asked_count = len(group.sent(MetadataRequest))
    await until(lambda: len(group.sent(MetadataRequest)) > asked_count, 60)
    await sleep_ms(1_000)
    group.brokers.hidden.clear()
    group.brokers.append(PAYMENTS, 0, 1)
    assert await first(member) == (PAYMENTS, 0, 3)
    assert not member.count(events.NewPartitionFromEarliest)


async def test_a_pattern_is_looked_for_although_metadata_were_on_their_way(group):
    member = await group.member("m", **IDLE, metadata_max_age_ms=3_600_000).start()
    asked_count = len(group.sent(MetadataRequest))
    member.call("subscribe", ["nowhere"])
    while len(group.sent(MetadataRequest)) == asked_count:
        await sleep_ms(0.1)
    member.call("unsubscribe")
    member.call("subscribe", (), "order.*")
    await assigned(member, A, B)
    assert len(group.sent(MetadataRequest)) == asked_count + 2


# By name.


async def test_who_waits_for_a_partition_that_another_member_gets_learns_it(group):
    member = await group.member("m", reads=False).start()
    await assigned(member, A, B)
    waiting = {tp: asyncio.ensure_future(first(member, tp)) for tp in (A, B)}
    other = group.newcomer("other", reads=False)
    await until(lambda: len(other.consumer.assignment()) == 1, 60, other.tail)
    (kept,), (lost,) = member.consumer.assignment(), other.consumer.assignment()
    with pytest.raises(IllegalStateError, match=f"not assigned to this consumer: orders-{lost.partition}"):
        await waiting[lost]
    group.produce(kept.partition)
    assert await waiting[kept] == (TOPIC, kept.partition, 0)


async def test_a_partition_may_be_asked_for_while_the_group_rebalances(group):
    member = await group.member("m", **IDLE).start()
    member.call("subscribe", [TOPIC])
    group.produce(1)
    assert await first(member, B) == (TOPIC, 1, 0)
    with pytest.raises(IllegalStateError, match="nowhere"):
        await first(member, *named("nowhere", 0))


async def test_a_partition_may_be_asked_for_while_a_cooperative_member_joins_again(group):
    cooperative = {"partition_assignment_strategy": ["cooperative-sticky"]}
    member = await group.member("m", reads=False, **cooperative).start()
    await assigned(member, A, B)
    waiting = asyncio.ensure_future(first(member, B))
    await sleep_ms(500)
    member.process.is_halted = True  # for longer than the session
    await sleep_ms(SESSION_MS + 1_000)
    member.thaw()
    await until(lambda: len(member.all(events.RebalanceCompleted)) == 2, 60, member.tail)
    group.produce(1)
    assert await waiting == (TOPIC, 1, 0)


# By hand.


async def test_the_revoked_callback_is_about_what_the_group_gave(group):
    group.brokers.append(TOPIC, 0, 3)
    group.brokers.append(TOPIC, 1, 3)
    member = await group.member("m", reads=False).start()
    await member.do(member.consumer.getmany(A, timeout_ms=10_000))
    await member.do(member.consumer.getmany(B, timeout_ms=10_000))
    found = {}

    async def look(callback):
        for tp in (A, B):
            found[callback, tp] = await member.consumer.position(tp)

    member.in_callback = look
    member.call("unsubscribe")
    member.call("assign", [A])
    await assigned(member, A)
    assert found == {("revoked", A): 3, ("revoked", B): 3}
    assert not member.count(events.ListenerFailed)


async def test_what_is_committed_again_keeps_its_metadata(group):
    member = await group.member("m", **IDLE).start()
    member.call("assign", [A])
    group.produce(0)
    await first(member)
    await member.commit({A: (1, "mine")})
    await member.commit()
    entries = [each.request.topics[0].partitions[0] for each in group.sent(OffsetCommitRequest)]
    assert [(each.committed_offset, each.committed_metadata) for each in entries] == [(1, "mine")] * 2


@pytest.mark.parametrize("is_paused", [True, False])
async def test_what_is_assigned_and_moved_in_one_go_is_there_when_the_group_is_left(group, is_paused):
    group.brokers.append(TOPIC, 0, 3)
    group.produce(1)
    member = await group.member("m", reads=False).start()
    await member.do(member.consumer.getmany(A, timeout_ms=10_000))
    await member.commit()
    member.call("unsubscribe")
    member.call("assign", [A, B])
    member.call("seek", A, 1)
    if is_paused:
        member.call("pause", A)
        assert member.consumer.paused() == {A}
    assert await (first(member) if is_paused else first(member, A)) == ((TOPIC, 1, 0) if is_paused else (TOPIC, 0, 1))
    assert member.consumer.paused() == ({A} if is_paused else set())


async def test_a_seek_by_name_waits_for_the_group_to_be_left(group):
    group.brokers.append(TOPIC, 0, 3)
    member = await group.member("m", reads=False).start()
    await member.do(member.consumer.getmany(A, timeout_ms=10_000))
    await member.commit()
    member.call("unsubscribe")
    member.call("assign", [A])
    await member.do(member.consumer.seek_to_beginning(A))
    assert await first(member) == (TOPIC, 0, 0)
    with pytest.raises(IllegalStateError):
        member.call("seek", B, 0)


async def test_what_is_committed_explicitly_is_committed_again(group):
    """Offsets of a group without members expire."""
    member = await group.member("m", **IDLE).start()
    member.call("assign", [A])
    group.produce(0)
    await first(member)
    for count in (1, 2, 3):
        await member.commit()
        assert len(group.sent(OffsetCommitRequest)) == count


async def test_what_a_member_has_committed_it_does_not_commit_again(group):
    member = await group.member("m", reads=False).start()
    group.produce(0)
    await first(member)
    for _ in range(3):
        await member.commit()
    assert len(group.sent(OffsetCommitRequest)) == 1


# The end of waiting.


async def assert_that_a_stop_ends(group, member, work, within_ms):
    waiting = asyncio.ensure_future(member.do(work))
    await sleep_ms(500)
    began_at_ms = group.now_ms
    await member.stop()
    with pytest.raises(ConsumerStoppedError):
        await waiting
    assert group.now_ms - began_at_ms < within_ms


async def test_what_waits_for_a_partition_that_is_not_there_ends_with_the_consumer(group):
    member = await group.member("m", **IDLE, group_id=None).start()
    await assert_that_a_stop_ends(group, member, member.consumer.end_offsets(named("nowhere", 0)), 2_000)


async def test_who_waits_for_a_position_learns_of_the_end(group):
    group.network.withheld = (ListOffsetsRequest,)
    member = await group.member("m", **IDLE, group_id=None).start()
    member.call("assign", [A])
    await assert_that_a_stop_ends(group, member, member.consumer.position(A), 6_000)


# What is told.


async def test_a_listener_that_heard_of_an_end_does_not_hear_of_it_again_when_that_takes_too_long(group):
    (member,) = await group.joined("m")

    async def slowly(callback):
        member.in_callback = None
        await sleep_ms(POLL_MS + 500)

    member.in_callback = slowly
    await member.do(member.consumer.enforce_rebalance())
    await until(lambda: member.count("assigned") == 2, 120, member.tail)
    assert (member.count("revoked"), member.count("lost")) == (1, 0)


async def test_a_partition_without_news_is_asked_for_all_the_same(group):
    """Applications measure by it which partitions wait for records."""
    member = await group.member("m", reads=False, fetch_max_wait_ms=500).start()
    group.produce(0)
    await first(member)
    await sleep_ms(10_000)
    ages_ms = [wall_ms() - member.call("last_poll_timestamp", tp) for tp in (A, B)]
    assert max(ages_ms) < 1_000
