"""How the fetchers of live lanes and of catch-up lanes (KIP-333) differ, and the rules of the live ones."""

from __future__ import annotations

from typing import Protocol

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.asking.answers import is_out_of_range
from aiogroup._core.fetching.lane import Lane
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.recovery.token import is_ours
from aiogroup._runtime.fetching.positions import Positions
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.net.link import FETCH
from aiogroup.config import FROM_EARLIEST, TO_NEAREST, ConsumerConfig, parse_reset_policy
from aiogroup.errors import OffsetOutOfRangeError
from aiogroup.records import LIVE

__all__ = ["LaneRules", "LiveRules"]


class LaneRules(Protocol):
    """The points in which the fetchers of the live lanes and those of the catch-up lanes differ (KIP-333).

    `lane` is the lane's name in each record, `channel` is the name of the connections.
    """

    lane: str
    channel: str

    def on_answer(self, lane: Lane) -> None:
        """An answer without an error arrived; its records, if it had any, are buffered."""

    def on_out_of_range(self, lane: Lane, offset: int) -> None:
        """The leader's log does not hold `offset`."""


class LiveRules:
    """The rules of the live lanes: from an offset out of range they go to the nearest end of the log, or by the reset
    policy.
    """

    lane = LIVE
    channel = FETCH

    def __init__(self, config: ConsumerConfig, delivery: Delivery, positions: Positions) -> None:
        self._config = config
        self._delivery = delivery
        self._positions = positions
        self._policy = parse_reset_policy(config.auto_offset_reset)

    def on_answer(self, lane: Lane) -> None:
        self._delivery.opened[lane.tp] = lane

    def on_out_of_range(self, lane: Lane, offset: int) -> None:
        assert isinstance(lane, Partition)
        if not is_out_of_range(lane, offset):
            lane.back_off(now_ms(), self._config)
            return
        # The low-water mark of a token (KIP-333): the records that the log still holds after it are ours alone to read.
        committed = lane.committed
        is_low_water = committed is not None and committed.offset == offset and is_ours(committed.metadata)
        is_nearest = self._policy.decides and self._config.out_of_range_reset == "nearest"
        policy = FROM_EARLIEST if is_low_water else TO_NEAREST if is_nearest else self._policy
        if not policy.decides:
            lane.stick(OffsetOutOfRangeError(lane.tp, offset))
            return
        self._delivery.forget([lane])
        self._positions.reset(lane, policy, why=f"offset {offset} is out of range", lost=offset)
