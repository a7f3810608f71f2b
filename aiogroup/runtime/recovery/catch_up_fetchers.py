"""The fetchers of the catch-up lane, and delivery from both (KIP-333)."""

from __future__ import annotations

from typing import Any

from aiogroup.config import RECORDS_PER_TURN, TURN_MS, ConsumerConfig
from aiogroup.delivery.delivery import Delivery
from aiogroup.fetching.assignment import Assignment, LaneTable
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.range_cursor import BoundedDecoder, RangeCursor
from aiogroup.fetching.records.decode import PartitionDecoder
from aiogroup.membership.identity import Identity
from aiogroup.membership.member import Outsider
from aiogroup.records import CATCH_UP
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Line
from aiogroup.runtime.fetching.fetcher import Fetchers
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.runtime.metadata.refresher import Refresher
from aiogroup.runtime.recovery.catch_up import CatchUp
from aiogroup.runtime.recovery.job_progress import SecondLog

__all__ = ["CatchUpRules", "make_delivery", "start_catch_up"]


def make_delivery(config: ConsumerConfig, assignment: Assignment, beside: LaneTable[RangeCursor]) -> Delivery:
    """The delivery: from both lanes with `enable_parallel_rebalance`, from the live lane alone without."""
    return Delivery(
        assignment,
        auto_ack=config.auto_ack,
        records_per_turn=RECORDS_PER_TURN,
        turn_ms=TURN_MS,
        max_bytes=config.max_buffered_bytes,
        catch_up=beside.tally if config.enable_parallel_rebalance else None,
        share=config.parallel_share,
    )


async def start_catch_up(context: Context, refresher: Refresher, catch_up: CatchUp) -> None:
    """Start the catch-up lane's tasks.

    Raises:
        GroupAuthorizationError: the second commit log may not be read.
        AiogroupError: its coordinator did not answer.
    """
    spawn = context.supervisor.spawn
    if context.config.parallel_handoff:
        outsider = Outsider(Identity(context.config.second_group_id, context.config.instance_id))
        log = SecondLog(context, Line(context, outsider), catch_up)
        await log.check()
        spawn("second commit log", log.run)
    spawn("catch-up", catch_up.run)
    spawn("log starts", catch_up.run_log_starts)
    rules = CatchUpRules(context, catch_up)
    spawn("catch-up fetchers", Fetchers(context, refresher, catch_up.fetched, rules).run)


class CatchUpRules:
    """The fetchers' rules for catch-up lanes: they read ranges, never by a reset policy, and not beyond the end."""

    lane = CATCH_UP
    channel = "catch-up fetch"

    def __init__(self, context: Context, catch_up: CatchUp) -> None:
        self._context = context
        self._catch_up = catch_up

    def decoder(self, lane: Lane, *settings: Any) -> PartitionDecoder:  # noqa: ANN401 (those of PartitionDecoder)
        assert isinstance(lane, RangeCursor)
        return BoundedDecoder(lane.end, lane.tp, *settings)

    def on_answer(self, lane: Lane) -> None:
        """Do nothing: the fetches of the live lane tell of the partition's bounds."""

    def on_buffered(self, lane: Lane) -> None:
        assert isinstance(lane, RangeCursor)
        if lane.target.offset >= lane.end:
            self._catch_up.fetch_next(lane.live)

    def on_out_of_range(self, lane: Lane, offset: int) -> None:
        # Below the log's start records are gone, and `RangeTruncated` tells so. Beyond the log's end the lane waits.
        lane.back_off(now_ms(), self._context.config)
        self._catch_up.doubt(lane.tp)
