"""One heap of instants for the whole machine: sessions, rounds, waiting fetches, delayed answers."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace

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

    def cancel(self) -> None:
        self.act = None


class Timers:
    """Planned acts. Acts for the same instant run in the order in which they were planned."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self.now_ms = 0
        """The instant of the act that runs, or the latest that `run` was called with. It never runs back."""

    def at(self, at_ms: int, act: Act) -> Timer:
        """Plan `act` for an instant. One that has passed is run by the next `run`."""
        self._count += 1
        timer = Timer(at_ms, self._count, act)
        heappush(self._heap, (at_ms, self._count, timer))
        return timer

    def postpone(self, timer: Timer, at_ms: int) -> None:
        """Plan a timer that has not run for a later instant, as if it were planned now.

        Its place in the heap stays until the former instant: a session that each heartbeat prolongs has one entry, not
        one for each heartbeat.
        """
        if at_ms < timer.at_ms or timer.act is None:
            raise ValueError(f"a timer for {timer.at_ms} cannot be postponed to {at_ms}, or has run")
        self._count += 1
        timer.at_ms, timer.number = at_ms, self._count

    @property
    def next_at_ms(self) -> int | None:
        """When the next act is due; `None`: none is planned."""
        heap = self._heap
        while heap:
            at_ms, number, timer = heap[0]
            if timer.act is None:
                heappop(heap)
            elif number != timer.number:
                heapreplace(heap, (timer.at_ms, timer.number, timer))
            else:
                return at_ms
        return None

    def run(self, now_ms: int) -> None:
        """Run what is due, in order, each at its own instant, even if the call comes late."""
        while (at_ms := self.next_at_ms) is not None and at_ms <= now_ms:
            timer = heappop(self._heap)[2]
            act, timer.act = timer.act, None
            self.now_ms = max(self.now_ms, at_ms)
            if act is not None:
                act(self.now_ms)
        self.now_ms = max(self.now_ms, now_ms)
