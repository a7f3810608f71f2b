"""Takes the snapshots on the event loop of the consumers, in short steps, for every exporter."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from aiogroup._core.telemetry.figures import Figures, FiguresInSteps, HasFigures
from aiogroup._runtime.loop.clock import Alarm, now_ms, running_loop, steady_ms
from aiogroup.consumer import Consumer
from aiogroup.errors import ConfigError
from aiogroup.figures.series import Reading

__all__ = ["Source", "Sources", "bring_up_to_date"]

FRESH_MS: Final = 1_000
"""How old a snapshot may be that is given to a scrape which cannot wait for the loop."""
STALE_MS: Final = 60_000
"""A loop that is blocked takes no snapshots: one of this age is not shown any more."""
ASKED_MS: Final = 600_000
"""Snapshots are taken each second for this time after a scrape that could not wait."""
_Key: TypeAlias = tuple[str | None, str]
_showing: Final = threading.Lock()
"""Two threads may scrape at the same time."""


class Source:
    """One consumer of a collector, or the current one where a service replaces it. Made in its event loop."""

    def __init__(
        self,
        name: str,
        consumer: Callable[[], HasFigures | None],
        restarts_count: Callable[[], int] | None,
        on_taken: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.loop = running_loop()
        self._consumer = consumer
        self._restarts_count = restarts_count
        self._on_taken = on_taken
        self._taken: tuple[int, Figures | None] | None = None
        self._asked_until_ms = 0
        self._alarm = Alarm(self._on_alarm)
        self._own: _Key | None = None
        self.shown: _Key | None = None
        """The group, and the client id under which it is shown: not always its own. It stays between two consumers."""

    @property
    def restarts_count(self) -> int | None:
        return None if self._restarts_count is None else self._restarts_count()

    @property
    def is_here(self) -> bool:
        """Whether this code runs on the consumer's event loop."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    @property
    def last(self) -> Figures | None:
        """The last snapshot; `None` if there is no consumer now, or the loop has been blocked for long."""
        if self._taken is None or steady_ms() - self._taken[0] > STALE_MS:
            return None
        return self._taken[1]

    async def take(self) -> None:
        """Take a snapshot; the loop runs between two steps."""
        steps = self._steps()
        if steps is not None:
            while not self._go_on(steps):  # noqa: ASYNC110 (nothing is waited for: others have their turn)
                await asyncio.sleep(0)

    def take_here(self) -> None:
        """For a scrape on the loop that cannot await: a snapshot at once, unless the last one is of the last second."""
        if self._taken is None or steady_ms() - self._taken[0] > FRESH_MS:
            steps = self._steps()
            while steps is not None and not self._go_on(steps):
                pass
        self.keep_fresh(now_ms() + ASKED_MS)

    def take_from_thread(self) -> threading.Event:
        """Ask the loop for a snapshot; the event says that it was taken."""
        taken = threading.Event()

        def begin() -> None:
            go_on(self._steps())

        def go_on(steps: FiguresInSteps | None) -> None:
            is_last = True
            try:
                is_last = steps is None or self._go_on(steps)
            finally:
                if is_last:
                    taken.set()
                else:
                    self.loop.call_soon(go_on, steps)

        try:
            self.loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the loop is closed, and its consumers are gone
            self._taken = None
            taken.set()
        return taken

    def keep_fresh(self, until_ms: int) -> None:
        """Take a snapshot each second until then."""
        self._asked_until_ms = until_ms
        self._alarm.ring_by(now_ms() + FRESH_MS)

    def end(self) -> None:
        self._asked_until_ms = 0
        self._alarm.cancel()

    def reading(self, among: Iterable[Source]) -> Reading | None:
        """The last snapshot, under a client id that no other one among these has in its group.

        That is its own one, or one which ends with its name. It keeps it until it is removed, or until a consumer with
        another group or client id takes the place: a counter that changed its name would fall for Prometheus.
        """
        figures = self.last
        if figures is None:
            return None
        own = figures.group_id, figures.client_id
        with _showing:
            if self.shown is None or self._own != own:
                taken = {each.shown for each in among if each is not self}
                shown, count = own, 1
                while shown in taken:
                    shown = own[0], f"{own[1]}-{self.name}{'' if count == 1 else f'-{count}'}"
                    count += 1
                self._own, self.shown = own, shown
            return Reading(figures, self.shown[1], self.restarts_count)

    # One snapshot.

    def _steps(self) -> FiguresInSteps | None:
        consumer = self._consumer()
        steps = None if consumer is None else consumer.figures()
        if steps is None:
            self._note(None)
        return steps

    def _go_on(self, steps: FiguresInSteps) -> bool:
        """One step. Returns whether it was the last one."""
        try:
            next(steps)
        except StopIteration as taken:
            self._note(taken.value)
            return True
        return False

    def _note(self, figures: Figures | None) -> None:
        self._taken = steady_ms(), figures
        if self._on_taken is not None:
            self._on_taken()

    def _on_alarm(self) -> None:
        """Take a snapshot, a step in each turn of the loop, and another one in a second."""
        if now_ms() < self._asked_until_ms:
            self._alarm.ring_by(now_ms() + FRESH_MS)
            self._step(self._steps())

    def _step(self, steps: FiguresInSteps | None) -> None:
        if steps is not None and not self._go_on(steps):
            self.loop.call_soon(self._step, steps)


class Sources:
    """The consumers that an exporter shows, by the names that it has for them."""

    def __init__(self, on_taken: Callable[[], None] | None = None) -> None:
        self._on_taken = on_taken
        self._by_name: dict[str, Source] = {}

    def __iter__(self) -> Iterator[Source]:
        return iter(tuple(self._by_name.values()))

    def add(
        self, name: str, consumer: Consumer | Callable[[], HasFigures | None], restarts_count: Callable[[], int] | None
    ) -> Source:
        """Another one. Call it in the consumer's event loop.

        Raises:
            ConfigError: the name is in use.
            RuntimeError: no event loop runs here.
        """
        if name in self._by_name:
            raise ConfigError(f"there is a consumer {name!r} already: remove it first, or take another name")
        get = consumer if not isinstance(consumer, Consumer) else lambda: consumer
        source = self._by_name[name] = Source(name, get, restarts_count, self._on_taken)
        return source

    def remove(self, name: str) -> bool:
        """Take one away. Returns whether there was one."""
        source = self._by_name.pop(name, None)
        if source is not None:
            source.end()
        return source is not None

    def clear(self) -> None:
        for name in tuple(self._by_name):
            self.remove(name)

    async def take(self) -> None:
        """Take a snapshot of each consumer of this event loop; the loop runs between two steps."""
        for source in self:
            if source.is_here:
                await source.take()

    def readings(self, among: Iterable[Source]) -> Iterator[Reading]:
        """The last snapshot of each; `among` are all that are shown in the same place, these too."""
        others = tuple(among)
        for source in self:
            reading = source.reading(others)
            if reading is not None:
                yield reading


def bring_up_to_date(sources: Iterable[Source]) -> None:
    """Snapshots that are at most a second old, for a scrape that cannot await.

    In a thread it waits for the loops of all together for a second; a loop that is blocked leaves its last one.
    """
    until_ms = steady_ms() + FRESH_MS
    asked = []
    for source in sources:
        if source.is_here:
            source.take_here()
        else:
            asked.append(source.take_from_thread())
    for taken in asked:
        taken.wait(max(0, until_ms - steady_ms()) / 1_000)
