"""Where the lanes begin: nothing is decided by answers that are not of one leader, or of a topic that is not known."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from aiogroup._core.cluster import Cluster, PartitionInfo, TopicInfo
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.partition import PositionState
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)
from aiogroup._core.telemetry import events
from aiogroup._runtime.offsets.leader_offsets import EARLIEST, Listed
from aiogroup._runtime.recovery.recoveries import Recoveries
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConnectionLostError
from tests.support.records import LATEST, tp

TP = tp(0)


def cluster(leader, epoch, topic_id=7):
    info = PartitionInfo(leader, epoch, (1, 2), (1, 2))
    return Cluster({}, {TP.topic: TopicInfo(TP.topic, UUID(int=topic_id), {0: info})}, {}, "cluster")


class World:
    """One partition that is looked up: its commit at 70 under epoch 3, a log from 0 to 120."""

    def __init__(self, *, epoch_end=70, answers=True):
        self.told, self.begun = [], []
        self.link = SimpleNamespace(cluster=cluster(1, 4), send=self.send)
        config = ConsumerConfig.of(group_id="billing", enable_parallel_rebalance=True, parallel_min_backlog=1)
        refresher = SimpleNamespace(want=lambda: None)
        leader_offsets = SimpleNamespace(ask_leaders=self.ask_leaders)
        catch_up = SimpleNamespace(
            begin=lambda live, place, recovery: self.begun.append(recovery),
            follow=lambda: None,
            fresh_id=lambda: "0" * 16,
        )
        self.recoveries = Recoveries(config, self.link, self.told.append, refresher, leader_offsets, catch_up)
        (self.partition,) = Assignment().make({TP: LATEST})
        self.epoch_end, self.answers, self.after_epochs = epoch_end, answers, None

    async def send(self, node_id, request, channel, limit):
        if not self.answers:
            raise ConnectionLostError("gone")
        if self.after_epochs is not None:
            self.link.cluster, self.after_epochs = self.after_epochs, None
        each = OffsetForLeaderPartitionResult(partition=0, error_code=0, leader_epoch=3, end_offset=self.epoch_end)
        return OffsetForLeaderEpochResponse(topics=(OffsetForLeaderTopicResult(topic=TP.topic, partitions=(each,)),))

    async def ask_leaders(self, wanted, until_ms, take, *, read_committed):
        take({each: Listed(0 if at == EARLIEST else 120, None) for each, at in wanted.items()})
        return ""

    async def begin(self, committed=Committed(70, "", 3)):  # noqa: B008 (frozen)
        asked = {TP: (self.partition, self.partition.target.changes_count)}
        return await self.recoveries.begin(asked, {TP: committed}, {}, 10**9)


async def test_a_leader_that_confirms_what_was_read_is_where_the_lanes_begin():
    world = World()
    assert await world.begin() == ""
    (recovery,) = world.begun
    assert (recovery.pending, recovery.live) == (((70, 120),), 120)
    assert world.partition.state is PositionState.FETCHING


async def test_answers_of_two_leaders_decide_nothing():
    world = World()
    world.after_epochs = cluster(2, 5)  # an unclean one, perhaps: it has confirmed nothing
    assert "leader moved" in await world.begin()
    assert world.begun == []
    assert await world.begin() == ""
    assert len(world.begun) == 1


async def test_a_topic_that_is_recreated_meanwhile_decides_nothing():
    world = World()
    world.after_epochs = cluster(1, 4, topic_id=8)
    assert "leader moved" in await world.begin()
    assert world.begun == []


async def test_a_truncation_that_the_leader_proves_is_reported():
    world = World(epoch_end=60)
    assert await world.begin() == ""
    assert world.begun[0].pending == ((60, 120),)
    assert [type(each) for each in world.told] == [events.LogTruncated]


async def test_a_leader_that_does_not_say_where_the_epoch_ended_is_asked_again():
    world = World(answers=False)
    assert await world.begin()
    assert world.begun == []
    world.answers = True
    assert await world.begin() == ""


async def test_a_topic_that_is_not_known_is_looked_up_later():
    world = World()
    known, world.link.cluster = world.link.cluster, Cluster()
    assert await world.begin() == "a topic is not known"
    world.link.cluster = known
    assert await world.begin() == ""


@pytest.mark.parametrize("text", ["aiogroup/2 0123456789abcdef of tomorrow", "aiogroup/1 0123456789abcdef damaged"])
async def test_a_token_that_cannot_be_read_is_reported_and_not_written_again_as_the_applications(text):
    world = World()
    assert await world.begin(Committed(70, text, 3)) == ""
    (recovery,) = world.begun
    assert (recovery.pending, recovery.live, recovery.user) == (((70, 120),), 120, "")
    (told,) = world.told
    assert type(told) is events.ForeignToken
