"""The rebalances of one loop, newest last: why each began, how long it took, what came and went, what it waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event
from aiogroup._runtime.loop.clock import wall_ms
from aiogroup.asgi.page.journal import plain, shown
from aiogroup.structs import TopicPartition

__all__ = ["Timeline"]

KEPT_COUNT: Final = 50


class Timeline:
    """Made of a consumer's events, so nothing is asked of the consumer."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, object]] = deque(maxlen=KEPT_COUNT)
        self._open: dict[str, object] | None = None
        self._held: frozenset[TopicPartition] = frozenset()
        self._before: frozenset[TopicPartition] = frozenset()

    def entries(self) -> list[dict[str, object]]:
        """One for each rebalance; `duration_ms` and `outcome` are `None` while it is under way."""
        return list(self._entries)

    def begin_anew(self) -> None:
        """Another consumer follows: it holds nothing, and a rebalance of the one before has no end."""
        if self._open is not None:
            self._end("ended", None)
        self._held = self._before = frozenset()

    def on_event(self, event: Event) -> None:
        """Take in what the event says of a rebalance."""
        match event:
            case events.RebalanceStarted():
                self._begin(event.why, event.generation)
            case events.RebalanceWaitingForApplication():
                if self._open is not None:
                    self._open["waited_ms"] = event.waited_ms
            case events.RebalanceCompleted():
                self._complete(event)
            case events.RebalanceFailed():
                if self._open is not None:
                    self._open["error"] = plain(event.why)
                    self._end("failed", event.duration_ms)
            case events.PartitionsLost():
                self._held -= frozenset(event.partitions)
                self._before -= frozenset(event.partitions)  # of a rebalance under way, which may bring them back
                self._entry("lost", event.why)["lost"] = _names(event.partitions)

    def _begin(self, why: str, generation: int) -> None:
        if self._open is not None:
            self._end("ended", None)
        self._open = self._entry(None, why)
        self._open["generation"] = generation
        self._before = self._held

    def _complete(self, event: events.RebalanceCompleted) -> None:
        now = frozenset(event.partitions)
        entry = self._open if self._open is not None else self._entry(None, event.why)
        self._open = entry
        entry["generation"] = event.generation
        entry["is_leader"] = event.is_leader
        entry["came"], entry["went"] = _names(now - self._before), _names(self._before - now)
        entry["partitions_count"] = len(now)
        self._held = self._before = now
        self._end("completed", event.duration_ms)

    def _end(self, outcome: str, duration_ms: int | None) -> None:
        if self._open is not None:
            self._open["outcome"], self._open["duration_ms"] = outcome, duration_ms
        self._open = None

    def _entry(self, outcome: str | None, why: str) -> dict[str, object]:
        entry: dict[str, object] = {"at_ms": wall_ms(), "why": plain(why), "outcome": outcome, "duration_ms": None}
        self._entries.append(entry)
        return entry


def _names(tps: Iterable[TopicPartition]) -> object:
    return plain([shown(each) for each in sorted(tps)])
