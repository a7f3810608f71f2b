"""Commits: bound to the ownership they speak for, and to the generation that is ours when they are written."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.structs import TopicPartition

from aiogroup._core.changes import Change, Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.membership import facts as f
from aiogroup._core.offsets.commit_plan import CommitEntry, Committed
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import Failures
from aiogroup._runtime.coordinator import Written
from aiogroup._runtime.loop.clock import Signal, now_ms, sleep_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.committer import Committer
from aiogroup._runtime.offsets.own_commits import REFRESH_MS, OwnCommits
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    BrokerError,
    CommitFailedError,
    ConsumerStoppedError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from tests.support.coordinator import Member
from tests.support.records import assigned, tp


class FakeCoordinator:
    """Takes commits as a broker would: keeps them, and answers with `codes` in turn, then with `code`, which may be one
    for each partition.

    If it is connected, the first attempt of each commit is written at once.
    """

    def __init__(self, member, changes, *, is_connected):
        self.is_connected = is_connected
        self.member = member
        self.changes = changes
        self.written = []
        self.code = 0
        self.codes = []
        self.throttle_ms = 0
        self.before_writing = lambda: None

    @property
    def membership(self):
        return self.member.machine

    @property
    def identity(self):
        return self.member.identity

    def write_at_once(self, _channel, timeout, request, *, at_most, on_answer):
        if not self.is_connected:
            return None
        self.before_writing()
        message = request()
        if message is None:
            return None
        loop = asyncio.get_running_loop()
        response, answer = self.answer_to(message), loop.create_future()

        def come():
            if not on_answer(response, answer):
                answer.set_result(response)

        loop.call_later(0.01, come)
        return Written(1, None, answer, timeout)

    async def exchange(self, _channel, _timeout, request, *, at_most=None, written=None):
        if written is not None:
            return await written.answer
        await sleep_ms(5)  # finding the coordinator, connecting
        self.before_writing()
        message = request()
        if message is None:
            return None
        response = self.answer_to(message)
        await sleep_ms(5)
        return response

    def answer_to(self, message):
        self.written.append(message)
        code = self.codes.pop(0) if self.codes else self.code
        topics = tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        each.partition_index, code.get(each.partition_index, 0) if isinstance(code, dict) else code
                    )
                    for each in topic.partitions
                ),
            )
            for topic in message.topics
        )
        return OffsetCommitResponse(throttle_time_ms=self.throttle_ms, topics=topics)

    def handle(self, fact):
        self.member.report(fact)
        self.changes.tell(Change.MEMBER)

    def lose(self, why):
        pass


class Committing:
    def __init__(self, *numbers, is_member=True, is_connected=False):
        changes = Changes(Signal)
        self.assignment, self.partitions = assigned(*numbers, changes=changes)
        self.events = []
        config = ConsumerConfig(group_id="billing")
        delivery = Delivery(self.assignment, auto_ack=True, records_per_turn=256, turn_ms=60_000)
        emit, self.supervisor = self.events.append, Supervisor(lambda *_: None)
        self.member = Member()
        self.coordinator = FakeCoordinator(self.member, changes, is_connected=is_connected)
        self.committer = Committer(
            config=config,
            link=Link(config),
            assignment=self.assignment,
            delivery=delivery,
            changes=changes,
            emit=emit,
            supervisor=self.supervisor,
            coordinator=self.coordinator,
            speaks_of_what_is_in_hand=lambda: True,
            is_member=is_member,
        )
        failures = Failures(emit, now_ms)
        self.own = OwnCommits(
            config=config,
            assignment=self.assignment,
            delivery=delivery,
            emit=failures.emit,
            failures=failures,
            supervisor=self.supervisor,
            committer=self.committer,
        )

    def entries(self, offset=5):
        return {
            each.tp: CommitEntry(offset, "", each.ownership, starts_count=each.starts_count) for each in self.partitions
        }

    def sent(self):
        return [
            {TopicPartition(topic.name, each.partition_index): each.committed_offset}
            for message in self.coordinator.written
            for topic in message.topics
            for each in topic.partitions
        ]


@pytest.fixture(params=[False, True], ids=["not connected", "connected"])
async def committing(request):
    made = Committing(0, 1, is_connected=request.param)
    await made.supervisor.start()
    yield made
    await made.supervisor.close()


async def test_commit_goes_out_under_the_generation_that_is_ours(committing):
    committing.member.to_stable("m1", 7)
    await committing.committer.commit(committing.entries(), 1_000)
    (message,) = committing.coordinator.written
    assert (message.generation_id_or_member_epoch, message.member_id) == (7, "m1")
    assert committing.sent() == [{tp(0): 5}, {tp(1): 5}]
    assert [each.committed for each in committing.partitions] == [Committed(5)] * 2


@pytest.mark.parametrize("way", ["to_adopting", "to_stable"])
@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION])
async def test_member_without_a_generation_never_commits(committing, way, code):
    getattr(committing.member, way)()
    committing.member.report(f.HeartbeatAnswered(committing.member.identity, code))
    with pytest.raises(CommitFailedError) as failed:
        await committing.committer.commit(committing.entries(), 1_000)
    assert failed.value.not_owned == {tp(0), tp(1)}
    assert committing.coordinator.written == []


async def test_partition_that_leaves_while_the_commit_connects_is_reported_and_the_others_go_out(committing):
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
    committing.assignment.add({each.tp: each.reset.policy for each in committing.partitions})
    with pytest.raises(CommitFailedError):
        await committing.committer.commit(entries, 1_000)
    assert committing.coordinator.written == []


async def test_an_answer_for_a_self_assigned_partition_says_nothing_of_a_later_ownership(committing):
    """Nobody's offsets go out all the same, but what was delivered since is not processed by them."""

    def come_back():
        committing.assignment.remove([tp(0), tp(1)])
        committing.assignment.add({each.tp: each.reset.policy for each in committing.partitions})

    committing.committer.commits.is_member = False
    committing.coordinator.before_writing = come_back
    await committing.committer.commit(committing.entries(), 1_000)
    assert committing.sent() == [{tp(0): 5}, {tp(1): 5}]
    assert [each.committed for each in committing.assignment] == [None, None]


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


async def test_a_commit_is_written_when_it_is_called_and_done_when_it_is_answered():
    committing = Committing(0, 1, is_connected=True)
    await committing.supervisor.start()
    committing.member.to_stable()
    caller = committing.committer.commit(committing.entries(), 1_000)
    caller.send(None)  # up to its first wait
    assert committing.sent() == [{tp(0): 5}, {tp(1): 5}]
    caller.close()
    await sleep_ms(10)
    assert [each.committed for each in committing.partitions] == [Committed(5)] * 2
    await committing.supervisor.close()


@pytest.mark.parametrize("throttle_ms", [0, 1])
async def test_a_commit_says_how_long_its_answer_took(committing, throttle_ms):
    committing.member.to_stable()
    committing.coordinator.throttle_ms = throttle_ms
    await committing.committer.commit(committing.entries(), 1_000)
    (committed,) = [each for each in committing.events if isinstance(each, events.OffsetsCommitted)]
    assert committed.latency_ms >= 10


async def test_a_commit_is_not_written_at_once_while_a_rebalance_is_due():
    """The application has just subscribed to something else: the rebalance task gives the partitions up first."""
    committing = Committing(0, 1, is_connected=True)
    await committing.supervisor.start()
    committing.member.to_stable()
    committing.member.report(f.SubscriptionChanged(frozenset({"other"}), "subscribe"))
    caller = asyncio.create_task(committing.committer.commit(committing.entries(), 1_000))
    await asyncio.sleep(0)
    committing.assignment.remove([tp(0), tp(1)])
    with pytest.raises(CommitFailedError):
        await caller
    assert committing.coordinator.written == []
    await committing.supervisor.close()


async def test_a_commit_without_time_is_not_written(committing):
    committing.member.to_stable()
    with pytest.raises(KafkaTimeoutError):
        await committing.committer.commit(committing.entries(), 0)
    assert committing.coordinator.written == []


async def test_cancelled_caller_leaves_the_commit_on_its_way(committing):
    committing.member.to_stable()
    caller = asyncio.create_task(committing.committer.commit(committing.entries(), 1_000))
    await sleep_ms(1)
    caller.cancel()
    assert await committing.committer.settled(1_000)
    assert [each.committed for each in committing.partitions] == [Committed(5)] * 2


def offsets_sent(committing, number=0):
    return [offset for each in committing.sent() for of, offset in each.items() if of == tp(number)]


async def begun(committing, entries, timeout=10_000):
    """A commit that has been sent once and is not done."""
    task = asyncio.create_task(committing.committer.commit(entries, timeout))
    await sleep_ms(7)
    return task


async def test_the_retry_of_an_older_commit_does_not_overwrite_a_newer_one(committing):
    committing.member.to_stable()
    committing.coordinator.codes = [E.COORDINATOR_LOAD_IN_PROGRESS]
    older = await begun(committing, committing.entries(2))
    await committing.committer.commit(committing.entries(5), 10_000)
    await older
    assert offsets_sent(committing) == [2, 5]
    assert [each.committed for each in committing.partitions] == [Committed(5)] * 2


async def test_the_later_commit_wins_also_where_it_goes_back(committing):
    committing.member.to_stable()
    committing.coordinator.codes = [E.COORDINATOR_LOAD_IN_PROGRESS]
    older = await begun(committing, committing.entries(5))
    await committing.committer.commit(committing.entries(2), 10_000)
    await older
    assert offsets_sent(committing) == [5, 2]


async def test_the_retry_sends_what_no_later_commit_names(committing):
    committing.member.to_stable()
    committing.coordinator.codes = [E.COORDINATOR_LOAD_IN_PROGRESS]
    older = await begun(committing, committing.entries(2))
    await committing.committer.commit({tp(0): committing.entries(5)[tp(0)]}, 10_000)
    await older
    assert (offsets_sent(committing, 0), offsets_sent(committing, 1)) == ([2, 5], [2, 2])


async def test_an_older_commit_is_not_done_before_the_later_one_is(committing):
    committing.member.to_stable()
    committing.coordinator.code = E.COORDINATOR_LOAD_IN_PROGRESS
    older = await begun(committing, committing.entries(2))
    later = await begun(committing, committing.entries(5))
    await sleep_ms(1_000)
    assert not older.done()
    committing.coordinator.code = 0
    await older
    assert [each.committed for each in committing.partitions] == [Committed(5)] * 2
    await later


async def test_an_older_commit_is_done_as_soon_as_a_later_one_has_committed_its_partition(committing):
    committing.member.to_stable()
    first = {tp(0): committing.entries(2)[tp(0)]}
    committing.coordinator.codes = [E.COORDINATOR_LOAD_IN_PROGRESS] * 3
    older = await begun(committing, first)
    await begun(committing, first)
    await sleep_ms(120)  # the older one waits for its turn now, and the other one for its backoff
    committing.coordinator.code = {1: E.COORDINATOR_LOAD_IN_PROGRESS}
    later = await begun(committing, committing.entries(5))
    await sleep_ms(20)
    assert older.done()
    assert not later.done()
    committing.coordinator.code = 0
    await later


async def test_an_older_commit_goes_on_when_the_later_one_failed(committing):
    committing.member.to_stable()
    committing.coordinator.codes = [E.COORDINATOR_LOAD_IN_PROGRESS, E.INVALID_COMMIT_OFFSET_SIZE]
    older = await begun(committing, committing.entries(2))
    with pytest.raises(BrokerError):
        await committing.committer.commit(committing.entries(5), 10_000)
    await older
    assert offsets_sent(committing) == [2, 5, 2]


async def test_an_older_commit_that_waits_for_a_later_one_ends_with_its_time_out(committing):
    committing.member.to_stable()
    committing.coordinator.code = E.COORDINATOR_LOAD_IN_PROGRESS
    older = await begun(committing, committing.entries(2), 500)
    later = await begun(committing, committing.entries(5), 1_000)
    for task in (older, later):
        with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await task


async def test_auto_commit_does_not_follow_a_commit_on_its_way_with_less(committing):
    """`commit()` covers the record in hand; for the ledger it is processed only when the answer is there."""
    committing.member.to_stable()
    for partition in committing.partitions:
        partition.committed = Committed(0)
        partition.ledger.deliver(range(8), 8)
        partition.ledger.process_below(7)
    by_hand = await begun(committing, committing.entries(8))
    assert await committing.own.commit_processed(committing.partitions, 1_000)
    await by_hand
    assert offsets_sent(committing) == [8]
    assert await committing.own.commit_processed(committing.partitions, 1_000)
    assert offsets_sent(committing) == [8]


async def test_auto_commit_follows_a_commit_on_its_way_when_a_seek_came_between(committing):
    committing.member.to_stable()
    by_hand = await begun(committing, committing.entries(8))
    for partition in committing.partitions:
        partition.start_at(3)
    assert await committing.own.commit_processed(committing.partitions, 1_000)
    await by_hand
    assert offsets_sent(committing) == [8, 3]


async def test_a_commit_of_a_former_ownership_is_not_done_by_one_of_the_next(committing):
    committing.member.to_stable()
    committing.coordinator.codes = [E.COORDINATOR_LOAD_IN_PROGRESS]
    older = await begun(committing, committing.entries(8))
    committing.assignment.remove([tp(0), tp(1)])
    committing.partitions = committing.assignment.add({each.tp: each.reset.policy for each in committing.partitions})
    await committing.committer.commit(committing.entries(5), 10_000)
    with pytest.raises(CommitFailedError):
        await older
    assert offsets_sent(committing) == [8, 5]


@pytest.mark.parametrize(("is_member", "sent"), [(True, []), (False, [(5, "mine", 7)] * 2)])
async def test_offsets_that_do_not_change_are_committed_again_where_no_group_keeps_them(is_member, sent):
    """A broker lets the offsets of a group without members expire by the time of their commit."""
    committing = Committing(0, is_member=is_member)
    await committing.supervisor.start()
    (partition,) = committing.partitions
    partition.start_at(5, leader_epoch=7)
    partition.committed = Committed(5, "mine")
    committing.supervisor.spawn("committer", committing.own.run)
    await sleep_ms(2 * REFRESH_MS + 10_000)
    answered = [each for message in committing.coordinator.written for each in message.topics[0].partitions]
    assert [(each.committed_offset, each.committed_metadata, each.committed_leader_epoch) for each in answered] == sent
    await committing.supervisor.close()


async def test_what_was_never_committed_is_not_committed_again():
    committing = Committing(0, is_member=False)
    await committing.supervisor.start()
    committing.supervisor.spawn("committer", committing.own.run)
    await sleep_ms(2 * REFRESH_MS)
    assert committing.coordinator.written == []
    await committing.supervisor.close()


async def test_the_text_of_an_explicit_commit_is_known_afterwards(committing):
    committing.member.to_stable()
    entry = CommitEntry(5, "mine", committing.partitions[0].ownership)
    await committing.committer.commit({tp(0): entry}, 1_000)
    assert committing.partitions[0].committed == Committed(5, "mine")


async def test_a_commit_that_was_nobodys_is_not_sent_again_after_a_members(committing):
    committing.committer.commits.is_member = False
    committing.coordinator.codes = [E.COORDINATOR_LOAD_IN_PROGRESS]
    nobodys = await begun(committing, committing.entries(8))
    committing.assignment.remove([tp(0), tp(1)])
    committing.committer.commits.is_member = True
    committing.member.to_stable()
    committing.partitions = committing.assignment.add({each.tp: each.reset.policy for each in committing.partitions})
    await committing.committer.commit(committing.entries(5), 10_000)
    await nobodys
    assert offsets_sent(committing) == [8, 5]


@pytest.mark.parametrize("is_in_background", [True, False])
async def test_a_commit_that_is_refused_because_all_tasks_have_ended_is_under_way_no_longer(
    committing, is_in_background
):
    committing.member.to_stable()
    for each in committing.partitions:
        each.start_at(5)
    await committing.supervisor.close()
    if is_in_background:
        committing.own.commit_leaving(committing.partitions)
    else:
        with pytest.raises(ConsumerStoppedError):
            await committing.committer.commit(committing.entries(), 1_000)
    assert await committing.committer.settled(1_000)


async def test_a_mistake_of_ours_in_a_commit_that_nobody_waits_for_ends_all_tasks(committing):
    def break_down():
        raise ZeroDivisionError

    committing.member.to_stable()
    for each in committing.partitions:
        each.start_at(5)
    committing.coordinator.before_writing = break_down
    committing.own.commit_leaving(committing.partitions)
    await sleep_ms(10)
    assert isinstance(committing.supervisor.failure, ZeroDivisionError)


async def test_a_commit_that_is_answered_after_all_tasks_have_ended_is_under_way_no_longer():
    committing = Committing(0, 1, is_connected=True)
    await committing.supervisor.start()
    committing.member.to_stable()
    committing.coordinator.code = E.COORDINATOR_NOT_AVAILABLE
    caller = asyncio.create_task(committing.committer.commit(committing.entries(), 1_000))
    await sleep_ms(1)
    await committing.supervisor.close()
    with pytest.raises(ConsumerStoppedError):
        await caller
    assert not await committing.committer.settled(1_000)  # the coordinator may still accept it
    await sleep_ms(30)
    assert await committing.committer.settled(1_000)
