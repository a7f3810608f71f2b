"""Offsets by time: each leader speaks for the partitions that it was asked for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from aiogroup._core.changes import Changes
from aiogroup._core.cluster import Cluster, PartitionInfo, TopicInfo
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import PositionState
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.constants import EARLIEST
from aiogroup._core.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aiogroup._core.telemetry.counts import Failures, Totals
from aiogroup._runtime.fetching.positions import Positions
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.offsets.committer import Committer
from aiogroup._runtime.offsets.leader_offsets import LeaderOffsets
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup.config import ConsumerConfig
from aiogroup.errors import TopicAuthorizationError
from aiogroup.structs import TopicPartition
from tests.support.kafka import eventually
from tests.support.records import assigned, tp

OFFSETS = {0: 10, 1: 20}
CONFIG = ConsumerConfig.of(group_id="g")
FAILURES = Failures(lambda _event: None, now_ms)


class BothAnswerForAll:
    """A link to two nodes, of which each leads one partition and names both, and one that is not there."""

    cluster = Cluster(
        topics={
            "orders": TopicInfo(
                "orders", ZERO_UUID, {number: PartitionInfo(number + 1, 0, (), ()) for number in OFFSETS}
            ),
        }
    )

    async def send(self, node_id, _request, _channel, _limit_ms):
        partitions = tuple(
            ListOffsetsPartitionResponse(number, 0, offset=offset if number + 1 == node_id else 99)
            for number, offset in {**OFFSETS, 2: 99}.items()
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse("orders", partitions),))


class ReadsNothing:
    def wanted(self):
        return frozenset()

    def on_refreshed(self, cluster):
        pass


@pytest.fixture
async def supervisor():
    made = Supervisor(lambda *_: None)
    await made.start()
    yield made
    await made.close()


def unheard(_event):
    pass


def leader_offsets_of(link, supervisor):
    inbox = Inbox(lambda: None, unheard)
    refresher = Refresher(CONFIG, link, unheard, FAILURES, inbox, ReadsNothing())
    return LeaderOffsets(CONFIG, link, supervisor, refresher)


@pytest.fixture
def leader_offsets(supervisor):
    return leader_offsets_of(BothAnswerForAll(), supervisor)


async def test_what_a_leader_was_not_asked_for_is_no_answer(leader_offsets):
    wanted = {tp(number): EARLIEST for number in OFFSETS}
    found = await leader_offsets.list_offsets(wanted, now_ms() + 1_000, read_committed=False)
    assert {each.partition: answer.offset for each, answer in found.items()} == OFFSETS


async def test_positions_are_not_taken_from_who_was_not_asked(supervisor, leader_offsets):
    world = World()
    for partition in world.assignment:
        partition.move(PositionState.RESET)
    await world.positions(supervisor, leader_offsets, None).resolve(list(world.assignment), now_ms() + 1_000)
    assert {each.tp.partition: each.position for each in world.assignment} == OFFSETS


class World:
    """What is assigned, and what looks up where to begin in it."""

    def __init__(self):
        self.link, self.changes = BothAnswerForAll(), Changes(Signal)
        self.assignment, _ = assigned(*OFFSETS, changes=self.changes)
        self.delivery = Delivery(self.assignment, auto_ack=True, records_per_turn=256, turn_ms=60_000)

    def positions(self, supervisor, leader_offsets, commits):
        inbox = Inbox(lambda: None, unheard)
        return Positions(
            CONFIG,
            self.link,
            self.assignment,
            self.delivery,
            self.changes,
            unheard,
            FAILURES,
            Totals(unheard),
            inbox,
            supervisor,
            leader_offsets,
            commits,
        )


class OneTopicIsForbidden(BothAnswerForAll):
    """Every node leads a partition of two topics, of which one may not be read, and names that one first."""

    cluster = Cluster(
        topics={
            name: TopicInfo(name, ZERO_UUID, {number: PartitionInfo(number + 1, 0, (), ()) for number in OFFSETS})
            for name in ("orders", "secret")
        }
    )

    async def send(self, node_id, _request, _channel, _limit_ms):
        number = node_id - 1
        return ListOffsetsResponse(
            topics=(
                ListOffsetsTopicResponse("secret", (ListOffsetsPartitionResponse(number, 29),)),
                ListOffsetsTopicResponse("orders", (ListOffsetsPartitionResponse(number, 0, offset=OFFSETS[number]),)),
            )
        )


async def test_a_topic_that_may_not_be_read_costs_its_leaders_other_answers_nothing(supervisor):
    leader_offsets = leader_offsets_of(OneTopicIsForbidden(), supervisor)
    secret = TopicPartition("secret", 0)
    taken = {}
    wanted = {secret: EARLIEST} | {tp(number): EARLIEST for number in OFFSETS}
    with pytest.raises(TopicAuthorizationError) as raised:
        await leader_offsets.ask_leaders(wanted, now_ms() + 1_000, taken.update, read_committed=False)
    assert raised.value.topics == {"secret"}
    assert {each.partition: answer.offset for each, answer in taken.items()} == OFFSETS
    del wanted[secret]  # who does not ask for it does not hear of it
    assert await leader_offsets.list_offsets(wanted, now_ms() + 1_000, read_committed=False)


async def test_what_is_reset_while_its_position_is_committed_is_held_until_that_is_durable(supervisor, leader_offsets):
    committed, world = [], World()
    (first, second) = world.assignment
    for partition, offset in ((first, 10), (second, 20)):
        partition.start_at(offset, was_reset=True)
        partition.bar(Bar.HELD)

    async def send(attempt):
        entries = attempt.commit.pending
        committed.append({each.partition: entry.offset for each, entry in entries.items()})
        if len(committed) == 1:
            first.start_at(5, was_reset=True)  # out of range again, and looked up again
            first.bar(Bar.HELD)
        await asyncio.sleep(0)
        for each, entry in entries.items():
            world.assignment[each].committed = Committed(entry.offset)

    committer = Committer(
        CONFIG,
        world.link,
        world.assignment,
        world.delivery,
        world.changes,
        unheard,
        supervisor,
        SimpleNamespace(membership=None),
        lambda: True,
        is_member=False,
    )
    committer.carry_out = send
    commits = OwnCommits(CONFIG, world.assignment, world.delivery, unheard, FAILURES, supervisor, committer)
    positions = asyncio.create_task(world.positions(supervisor, leader_offsets, commits).commit_held())
    await eventually(lambda: Bar.HELD not in first.bars)
    positions.cancel()
    assert committed[0] == {0: 10, 1: 20}
    assert [each[0] for each in committed[1:]] == [5]
    assert Bar.HELD not in second.bars
