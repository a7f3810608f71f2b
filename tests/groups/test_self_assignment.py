"""Partitions that a member assigns to itself, and topics that are not there: what is committed and reported."""

from __future__ import annotations

import pytest

from aiogroup import StopReport
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.telemetry import events
from tests.groups.scripted import TOPIC, sleep_ms
from tests.support.group_members import named, until

A, B = named(TOPIC, 0, 1)
TROUBLE = (events.CommitFailed, events.FetchFailed, events.PartitionsLost, events.TopicMissing)
AUTO = {"reads": False, "topics": (), "enable_auto_commit": True, "auto_commit_interval_ms": 3_600_000}


async def self_assigned(group, **settings):
    """A consumer that has processed 25 records of A; the next auto-commit is an hour away."""
    group.brokers.append(TOPIC, 0, 25)
    member = await group.member("hand", **{**AUTO, **settings}).start()
    member.call("assign", [A])
    await read(member, 25)
    return member


async def read(member, count):
    while count > 0:
        count -= (await member.do(member.consumer.getmany(timeout_ms=10_000, max_records=count))).count
    await member.do(member.consumer.skip())


async def committed(group):
    """What a consumer that comes later finds."""
    other = await group.member("other", **AUTO).start()
    return await other.do(other.consumer.committed(A))


@pytest.mark.parametrize("call", ["assign", "unsubscribe", "subscribe"])
@pytest.mark.parametrize("stops_at_once", [True, False])
async def test_what_is_processed_is_committed_when_it_is_not_assigned_any_more(group, call, stops_at_once):
    member = await self_assigned(group)
    if call == "assign":
        member.call("assign", [B])
    else:
        member.call("unsubscribe")
    if call == "subscribe":
        member.call("subscribe", [TOPIC])
    if not stops_at_once:
        await sleep_ms(5_000)
        assert await member.do(member.consumer.committed(A)) == 25
    assert await member.stop() == StopReport()
    assert await committed(group) == 25
    assert not member.count(*TROUBLE)


async def test_what_is_in_hand_is_not(group):
    member = await self_assigned(group)
    group.brokers.append(TOPIC, 0, 2)
    assert [(await member.do(member.consumer.getone())).offset for _ in range(2)] == [25, 26]
    member.call("assign", [B])
    await member.stop()
    assert await committed(group) == 26


async def test_nothing_is_without_auto_commit(group):
    member = await self_assigned(group, enable_auto_commit=False)
    member.call("unsubscribe")
    await member.stop()
    assert await committed(group) is None


async def test_a_partition_that_comes_back_at_once_goes_on_after_it(group):
    member = await self_assigned(group)
    member.call("assign", [B])
    member.call("assign", [A])
    group.produce(0)
    assert (await member.do(member.consumer.getone())).offset == 25


async def test_the_commit_is_nobodys_though_a_subscription_follows_and_joins_after_it(group):
    member = await self_assigned(group)
    member.call("unsubscribe")
    member.call("subscribe", [TOPIC])
    group.produce(0)
    assert (await member.do(member.consumer.getone())).offset == 25
    (sent, *_), (joined, *_) = group.sent(OffsetCommitRequest)[1:], group.sent(JoinGroupRequest)
    assert (sent.request.member_id, sent.request.generation_id_or_member_epoch) == ("", -1)
    assert joined.at_ms > sent.arrived_ms
    assert not member.count("lost", *TROUBLE)


async def test_one_that_fails_is_reported(group):
    member = await self_assigned(group)
    await group.joined("m")  # by members: what is nobody's is refused
    member.call("assign", [B])

    def failed_of_a():
        return [each for each in member.all(events.CommitFailed) if each.partitions == (A,)]

    await until(failed_of_a, 60, member.tail)
    (failed,) = failed_of_a()
    assert "use subscribe" in failed.why


@pytest.mark.parametrize("call", [("unsubscribe",), ("assign", [B])])
async def test_one_that_is_never_answered_is_in_the_report_of_a_stop(group, call):
    member = await self_assigned(group)
    group.network.mute.update(each.line for each in group.sent(OffsetCommitRequest))
    member.call(*call)
    report = await member.stop(timeout_ms=3_000)
    assert "commits on their way: not done in time" in report.problems


async def test_an_explicit_start_fails_at_nothing(group):
    member = group.member("hand", **AUTO)
    member.call("assign", [A])
    await member.start()
    later = await group.member("later", **AUTO, group_id=None).start()
    later.call("assign", [A, B])
    for each in (member, later):
        assert await each.do(each.consumer.position(A)) == 0
        assert not each.count(*TROUBLE)


@pytest.mark.parametrize("group_id", ["billing", None])
@pytest.mark.parametrize("how", ["subscribe", "assign"])
async def test_a_topic_that_is_not_there_is_reported_once_until_it_is(group, how, group_id):
    member = group.member("m", **AUTO, group_id=group_id)
    if how == "subscribe":
        member.call("subscribe", [TOPIC, "ordres"])
    else:
        member.call("assign", [A, *named("ordres", 0)])
    await member.start()
    await sleep_ms(1_500)
    assert not member.count(*TROUBLE)  # it may have been made a moment ago
    assert member.consumer.health().why == "reads; no broker knows ordres"
    assert member.consumer.health().is_ready  # a restart or a wait of the deployment would not make it
    await sleep_ms(60_000)
    assert member.all(events.TopicMissing) == [events.TopicMissing("ordres", "UNKNOWN_TOPIC_OR_PARTITION")]
    assert not member.count(*set(TROUBLE) - {events.TopicMissing})
    group.brokers.add_partitions("ordres", 1)
    group.brokers.append("ordres", 0, 1)
    assert (await member.do(member.consumer.getone())).topic == "ordres"
    assert member.consumer.health().why == "reads"


async def test_a_pattern_that_matches_nothing_is_in_the_health(group):
    member = group.member("m", **AUTO)
    member.consumer.subscribe(pattern="ordr.*")
    await member.start()
    assert member.consumer.health().why.endswith("; no topic matches 'ordr.*'")
