"""The rules by which fetchers read catch-up lanes (KIP-333)."""

from __future__ import annotations

from aiogroup._core.fetching.lane import Lane
from aiogroup._core.fetching.range_cursor import RangeCursor
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.recovery.catch_up import CatchUp
from aiogroup.config import ConsumerConfig
from aiogroup.records import CATCH_UP

__all__ = ["CatchUpRules"]


class CatchUpRules:
    """The fetchers' rules for catch-up lanes: they read ranges, never by a reset policy, and not beyond the end."""

    lane = CATCH_UP
    channel = "catch-up fetch"

    def __init__(self, config: ConsumerConfig, catch_up: CatchUp) -> None:
        self._config = config
        self._catch_up = catch_up

    def on_answer(self, lane: Lane) -> None:
        assert isinstance(lane, RangeCursor)
        if lane.target.offset >= lane.end:
            self._catch_up.fetch_next(lane.live)

    def on_out_of_range(self, lane: Lane, offset: int) -> None:
        # Below the log's start records are gone, and `RangeTruncated` reports it. Beyond the log's end the lane waits.
        lane.back_off(now_ms(), self._config)
        self._catch_up.doubt(lane.tp)
