"""Offsets by time: each leader speaks for the partitions that it was asked for."""

from __future__ import annotations

import pytest

from aiogroup.cluster import Cluster, PartitionInfo, TopicInfo
from aiogroup.config import ConsumerConfig
from aiogroup.fetching.delivery import Delivery
from aiogroup.fetching.position import PositionState
from aiogroup.protocol.codec import ZERO_UUID
from aiogroup.protocol.messages.list_offsets import (
    EARLIEST,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aiogroup.runtime.clock import now_ms
from aiogroup.runtime.context import Context
from aiogroup.runtime.positions import Positions
from aiogroup.runtime.refresher import Refresher
from aiogroup.runtime.supervisor import Supervisor
from tests.support.records import assigned, tp

OFFSETS = {0: 10, 1: 20}


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


@pytest.fixture
async def context():
    supervisor = Supervisor(lambda *_: None)
    await supervisor.start()
    assignment, _ = assigned(*OFFSETS)
    delivery = Delivery(assignment, auto_ack=True, records_per_turn=256, turn_ms=60_000)
    link = BothAnswerForAll()
    yield Context(ConsumerConfig.of(group_id="g"), link, supervisor, assignment, delivery, lambda _: None)
    await supervisor.close()


@pytest.fixture
def refresher(context):
    return Refresher(context, frozenset, lambda _: None)


async def test_what_a_leader_was_not_asked_for_is_no_answer(refresher):
    wanted = {tp(number): EARLIEST for number in OFFSETS}
    found = await refresher.list_offsets(wanted, now_ms() + 1_000, read_committed=False)
    assert {each.partition: answer.offset for each, answer in found.items()} == OFFSETS


async def test_positions_are_not_taken_from_who_was_not_asked(context, refresher):
    for partition in context.assignment:
        partition.state = PositionState.RESET
    positions = Positions(context, refresher, None)
    await positions.resolve(list(context.assignment), now_ms() + 1_000)
    assert {each.tp.partition: each.position for each in context.assignment} == OFFSETS
