"""One heap of instants for the whole machine: sessions, rounds, waiting fetches, delayed answers."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["Act", "Timer", "Timers"]

Act = Callable[[int], None]
"""What a timer does. Its argument is the instant at which it was due, in ms."""


class Timer:
    """One planned act. `cancel` may be called more than once, and after it has run."""

    __slots__ = ("act", "at_ms", "number")

    def __init__(self, at_ms: int, number: int, act: Act) -> None:
        self.at_ms = at_ms
        self.number = number
        self.act: Act | None = act

    def __lt__(self, other: Timer) -> bool:
        return (self.at_ms, self.number) < (other.at_ms, other.number)

    def cancel(self) -> None:
        self.act = None


class Timers:
    """Acts by instant; those of one instant run in the order in which they were planned."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._count = 0

    def at(self, at_ms: int, act: Act) -> Timer:
        """Plan `act` for an instant. One that has passed is run by the next `run`."""
        self._count += 1
        timer = Timer(at_ms, self._count, act)
        heappush(self._heap, timer)
        return timer

    @property
    def next_at_ms(self) -> int | None:
        """When the next act is due; `None`: none is planned."""
        heap = self._heap
        while heap and heap[0].act is None:
            heappop(heap)
        return heap[0].at_ms if heap else None

    def run(self, now_ms: int) -> None:
        """Run what is due, each at its own instant: a late call does what was due in its order."""
        while (at_ms := self.next_at_ms) is not None and at_ms <= now_ms:
            timer = heappop(self._heap)
            act, timer.act = timer.act, None
            if act is not None:
                act(at_ms)
