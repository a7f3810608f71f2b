"""The fetchers of the catch-up lane, and delivery from both (KIP-333)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from aiogroup.config import RECORDS_PER_TURN, TURN_MS, ConsumerConfig
from aiogroup.delivery.delivery import Delivery
from aiogroup.delivery.weighted import TwoLanes
from aiogroup.fetching.assignment import Assignment, LaneTable
from aiogroup.fetching.decode import PartitionDecoder
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.range_cursor import BoundedDecoder, RangeCursor
from aiogroup.fetching.sessions import Asked
from aiogroup.membership.classic import ClassicMembership
from aiogroup.membership.identity import Identity
from aiogroup.membership.offers import Offers
from aiogroup.membership.settings import GroupSettings
from aiogroup.protocol.messages.fetch import PartitionData
from aiogroup.records import CATCH_UP
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.fetching.fetcher import Fetchers
from aiogroup.runtime.fetching.positions import Positions
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.runtime.metadata.refresher import Refresher
from aiogroup.runtime.recovery.catch_up import CatchUp
from aiogroup.runtime.recovery.job_progress import SecondLog

__all__ = ["CatchUpFetchers", "make_delivery", "start_catch_up"]

CHANNEL: Final = "catch-up fetch"


def make_delivery(config: ConsumerConfig, assignment: Assignment, beside: LaneTable[RangeCursor]) -> Delivery:
    """From both lanes in the mode; otherwise from the only one, at no cost."""
    make = partial(TwoLanes, catch_up=beside.tally, share=config.parallel_share)
    return (make if config.enable_parallel_rebalance else Delivery)(
        assignment,
        auto_ack=config.auto_ack,
        records_per_turn=RECORDS_PER_TURN,
        turn_ms=TURN_MS,
        max_bytes=config.max_buffered_bytes,
    )


async def start_catch_up(context: Context, refresher: Refresher, positions: Positions, catch_up: CatchUp) -> None:
    """Start the catch-up lane's tasks.

    Raises:
        GroupAuthorizationError: the second commit log may not be read.
        AiogroupError: its coordinator did not answer.
    """
    spawn = context.supervisor.spawn
    if context.config.parallel_handoff:
        log = SecondLog(context, Coordinator(context, _never_joined(context.config)), catch_up)
        await log.check()
        spawn("second commit log", log.run)
    spawn("catch-up", catch_up.run)
    spawn("log starts", catch_up.run_log_starts)
    spawn("catch-up fetchers", CatchUpFetchers(context, refresher, positions, catch_up).run)


def _never_joined(config: ConsumerConfig) -> ClassicMembership:
    """Of the group whose offsets are the second commit log."""
    identity = Identity(config.second_group_id, config.instance_id)
    return ClassicMembership(identity, GroupSettings.of(config, is_cooperative=False), Offers((), None, Assignment()))


class CatchUpFetchers(Fetchers):
    """They read ranges: never by policy, and not behind the end."""

    def __init__(self, context: Context, refresher: Refresher, positions: Positions, catch_up: CatchUp) -> None:
        super().__init__(
            context,
            refresher,
            positions,
            assignment=catch_up.assignment,
            channel=CHANNEL,
            lane=CATCH_UP,
        )
        self._catch_up = catch_up

    def _decoder(self, partition: Lane, *settings: Any) -> PartitionDecoder:  # noqa: ANN401 (of PartitionDecoder)
        assert isinstance(partition, RangeCursor)
        return BoundedDecoder(partition.end, partition.tp, *settings)

    def _buffer(self, node_id: int, asked: Asked, data: PartitionData) -> None:
        super()._buffer(node_id, asked, data)
        partition = asked.partition
        assert isinstance(partition, RangeCursor)
        if partition.target.offset >= partition.end and partition.live.lanes is not None:
            partition.live.lanes.fetch_next()

    def _note_opened(self, partition: Lane) -> None:
        """What an answer says of a partition is told by the live lane's."""

    def _out_of_range(self, partition: Lane, offset: int) -> None:
        # Below the log's start records are gone, which is told; behind its end the lane waits.
        partition.back_off(now_ms(), self._context.config)
        self._catch_up.doubt(partition.tp)
