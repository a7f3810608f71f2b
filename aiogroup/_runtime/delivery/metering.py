"""Measures how long the application takes between its requests. Without an observer that asks, it is not there."""

from __future__ import annotations

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.telemetry.meter import Meter
from aiogroup._runtime.delivery.requests import GroupForRequests
from aiogroup._runtime.loop.clock import now_ms

__all__ = ["MeteredGroup"]


class MeteredGroup:
    """Stands between `Requests` and the group, and passes every call on."""

    def __init__(self, group: GroupForRequests, meter: Meter, delivery: Delivery, under_way_count: int) -> None:
        self.may_deliver = group.may_deliver
        self.is_settled = group.is_settled
        self._group = group
        self._meter = meter
        self._delivery = delivery
        self._under_way_count = under_way_count
        self._is_alone = under_way_count <= 1
        self._answered_at_ms: int | None = None
        self._handed_out_count = self._count()

    def on_request(self, now: int) -> None:
        if not self._under_way_count:
            count = self._count()
            if self._answered_at_ms is not None:
                gap_ms = now - self._answered_at_ms
                self._meter.note_request(gap_ms, count - self._handed_out_count, is_alone=self._is_alone)
            self._handed_out_count, self._is_alone = count, True
        else:
            self._is_alone = False
        self._under_way_count += 1
        self._group.on_request(now)

    def on_answer(self) -> None:
        self._under_way_count -= 1
        self._group.on_answer()
        if not self._under_way_count:
            self._answered_at_ms = now_ms()

    def _count(self) -> int:
        self._delivery.settle()
        return sum(tally.handed_out_count for tally in self._delivery.tallies.values())
