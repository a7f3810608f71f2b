"""Commits: bound to the ownership they speak for, and to the generation that is ours when they are written."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.structs import TopicPartition

from aiogroup.config import ConsumerConfig
from aiogroup.errors import CommitFailedError, RebalanceInProgressError
from aiogroup.fetching.delivery import Delivery
from aiogroup.membership import facts as f
from aiogroup.offsets.commit_plan import CommitEntry
from aiogroup.protocol.errors import ErrorCode as E
from aiogroup.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiogroup.runtime.clock import sleep_ms
from aiogroup.runtime.committer import Committer
from aiogroup.runtime.context import Context
from aiogroup.runtime.link import Link
from aiogroup.runtime.supervisor import Supervisor
from tests.support.coordinator import Member
from tests.support.records import assigned, tp


class FakeCoordinator:
    """Takes commits as a broker would: keeps them, and answers with `code`."""

    def __init__(self, member, changed):
        self.member = member
        self.changed = changed
        self.written = []
        self.code = 0
        self.before_writing = lambda: None

    @property
    def membership(self):
        return self.member.machine

    @property
    def identity(self):
        return self.member.identity

    async def exchange(self, _channel, _timeout, request, *, at_most=None):
        await sleep_ms(5)  # finding the coordinator, connecting
        self.before_writing()
        message = request()
        if message is None:
            return None
        self.written.append(message)
        await sleep_ms(5)
        topics = tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(each.partition_index, self.code) for each in topic.partitions
                ),
            )
            for topic in message.topics
        )
        return OffsetCommitResponse(topics=topics)

    async def tell(self, fact):
        self.member.tell(fact)
        self.changed.pulse()

    def lose(self, why):
        pass


class Committing:
    def __init__(self, *numbers):
        self.assignment, self.partitions = assigned(*numbers)
        config = ConsumerConfig(group_id="billing")
        delivery = Delivery(self.assignment, auto_ack=True, records_per_turn=256, turn_ms=60_000)
        self.supervisor = Supervisor(print)
        self.context = Context(config, Link(config), self.supervisor, self.assignment, delivery, lambda event: None)
        self.member = Member()
        self.coordinator = FakeCoordinator(self.member, self.context.group_changed)
        self.committer = Committer(self.context, self.coordinator, is_member=True)

    def entries(self, offset=5):
        return {each.tp: CommitEntry(offset, "", each.ownership) for each in self.partitions}

    def sent(self):
        return [
            {TopicPartition(topic.name, each.partition_index): each.committed_offset}
            for message in self.coordinator.written
            for topic in message.topics
            for each in topic.partitions
        ]


@pytest.fixture
async def committing():
    made = Committing(0, 1)
    await made.supervisor.start()
    yield made
    await made.supervisor.close()


async def test_commit_goes_out_under_the_generation_that_is_ours(committing):
    committing.member.to_stable("m1", 7)
    await committing.committer.commit(committing.entries(), 1_000)
    (message,) = committing.coordinator.written
    assert (message.generation_id_or_member_epoch, message.member_id) == (7, "m1")
    assert committing.sent() == [{tp(0): 5}, {tp(1): 5}]
    assert [each.committed for each in committing.partitions] == [5, 5]


@pytest.mark.parametrize("way", ["to_adopting", "to_stable"])
@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION])
async def test_member_without_a_generation_never_commits(committing, way, code):
    getattr(committing.member, way)()
    committing.member.tell(f.HeartbeatAnswered(committing.member.identity, code))
    with pytest.raises(CommitFailedError) as failed:
        await committing.committer.commit(committing.entries(), 1_000)
    assert failed.value.not_owned == {tp(0), tp(1)}
    assert committing.coordinator.written == []


async def test_partition_that_leaves_while_the_commit_connects_is_told_and_the_others_go_out(committing):
    committing.member.to_stable()
    committing.coordinator.before_writing = lambda: committing.assignment.remove([tp(0)])
    with pytest.raises(CommitFailedError) as failed:
        await committing.committer.commit(committing.entries(), 1_000)
    assert failed.value.not_owned == {tp(0)}
    assert failed.value.committed == {tp(1): 5}
    assert committing.sent() == [{tp(1): 5}]


async def test_offsets_of_an_earlier_ownership_are_never_sent(committing):
    committing.member.to_stable()
    entries = committing.entries()
    committing.assignment.remove([tp(0), tp(1)])
    committing.assignment.add({each.tp: each.reset_policy for each in committing.partitions})
    with pytest.raises(CommitFailedError):
        await committing.committer.commit(entries, 1_000)
    assert committing.coordinator.written == []


async def test_commit_during_a_join_waits_and_ends_with_its_time_out(committing):
    committing.member.to_joining()
    with pytest.raises(RebalanceInProgressError):
        await committing.committer.commit(committing.entries(), 1_000)
    assert committing.coordinator.written == []


async def test_refused_commit_ends_the_generation_and_says_what_is_lost(committing):
    committing.member.to_stable()
    committing.coordinator.code = E.ILLEGAL_GENERATION
    with pytest.raises(CommitFailedError):
        await committing.committer.commit(committing.entries(), 1_000)
    assert not committing.member.identity.is_member
    assert len(committing.coordinator.written) == 1


async def test_cancelled_caller_leaves_the_commit_on_its_way(committing):
    committing.member.to_stable()
    caller = asyncio.create_task(committing.committer.commit(committing.entries(), 1_000))
    await sleep_ms(1)
    caller.cancel()
    assert await committing.committer.settled(1_000)
    assert [each.committed for each in committing.partitions] == [5, 5]
