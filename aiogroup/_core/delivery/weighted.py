"""Which queue is asked first, and for how many records: one, or two by their weights (KIP-333).

With two queues the records given from each are weighed, so that neither starves the other. The queue that has given
less in proportion to its share is asked first. A queue that has no records does not save up its share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from aiogroup._core.delivery.queue import Queue
from aiogroup._core.fetching.lane import Lane

__all__ = ["OneQueue", "Queues", "TwoQueues"]

BEHIND: Final = 2_000
"""How many weighed records a queue may be behind the other; a larger deficit is not made up for."""


class Queues(Protocol):
    """The order in which the queues are asked."""

    def of(self, lane: Lane) -> Queue:
        """The queue that the lane is in."""

    def in_order(self) -> tuple[Queue, ...]:
        """The queues, the one whose turn it is first; a queue without records may be missing."""

    def divide(self, count: int) -> Iterable[tuple[Queue, int]]:
        """How many records to take from each queue at most, to get `count` in total; a queue may come twice."""

    def put_last(self, queue: Queue) -> None:
        """The queue cannot go on for now: next time the others are asked first."""


class OneQueue:
    """The only queue, without KIP-333."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def of(self, lane: Lane) -> Queue:
        return self._queue

    def in_order(self) -> tuple[Queue, ...]:
        return (self._queue,)

    def divide(self, count: int) -> Iterable[tuple[Queue, int]]:
        return ((self._queue, count),)

    def put_last(self, queue: Queue) -> None:
        """There is no other queue to prefer."""


class _Share:
    """A queue, its share of the records, and the number of records that it has given divided by that share."""

    __slots__ = ("_since", "queue", "weight")

    def __init__(self, queue: Queue, weight: float) -> None:
        self.queue = queue
        self.weight = weight
        self._since = 0.0

    @property
    def given(self) -> float:
        return self.queue.tally.handed_out_count / self.weight + self._since

    def count_from(self, given: float) -> None:
        """From now on count the queue as having given this much."""
        self._since = given - self.queue.tally.handed_out_count / self.weight

    def part_of(self, count: int) -> int:
        """This queue's part of `count` records; at least one is left for each queue."""
        return count if count == 1 else min(max(1, round(count * self.weight)), count - 1)


class TwoQueues:
    """The live lanes and the catch-up lanes, which get `share` of the records while both have some."""

    def __init__(self, live: Queue, catch_up: Queue, share: float) -> None:
        self._live = _Share(live, 1 - share)
        self._catch_up = _Share(catch_up, share)

    def of(self, lane: Lane) -> Queue:
        return (self._live if lane.tally is self._live.queue.tally else self._catch_up).queue

    def in_order(self) -> tuple[Queue, ...]:
        only = self._only()
        if only is not None:
            return (only.queue,)
        first, second = self._by_share()
        return first.queue, second.queue

    def divide(self, count: int) -> Iterable[tuple[Queue, int]]:
        """First one queue's part, then all that is left for the other, then what the other did not use for the first
        again.
        """
        only = self._only()
        if only is not None:
            return ((only.queue, count),)
        first, second = self._by_share()
        return (first.queue, first.part_of(count)), (second.queue, count), (first.queue, count)

    def put_last(self, queue: Queue) -> None:
        share = self._live if queue is self._live.queue else self._catch_up
        share.count_from(max(self._live.given, self._catch_up.given) + 1)

    def _only(self) -> _Share | None:
        """The only queue with records, if just one has some. That is the usual case, and nothing has to be weighed."""
        share, rival = self._live, self._catch_up
        if rival.queue.turns:
            share, rival = rival, share
            if rival.queue.turns:
                return None
        rival.count_from(max(rival.given, share.given))
        return share

    def _by_share(self) -> tuple[_Share, _Share]:
        """The queue that has given less comes first. A queue without records forfeits what it could have given."""
        live, other = self._live, self._catch_up
        for share, rival in ((live, other), (other, live)):
            least = rival.given if not share.queue.turns else rival.given - BEHIND
            share.count_from(max(share.given, least))
        return (live, other) if live.given <= other.given else (other, live)
