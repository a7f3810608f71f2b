"""What stands in a registry of prometheus-client: the figures of all its collectors, each family once."""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from aiogroup._core.telemetry.counts import BOUNDS_MS, Durations
from aiogroup.figures.families import FAMILIES, OF_ALL
from aiogroup.figures.series import Value, bounded
from aiogroup.figures.sources import Sources, bring_up_to_date

__all__ = ["Registered"]


class _Here(threading.local):
    taken_in: AbstractEventLoop | None = None


class Registered:
    """The sources of all collectors of one registry: Prometheus refuses a text that has a family twice."""

    def __init__(self) -> None:
        self._max_series: dict[Sources, int] = {}
        self._here = _Here()

    @staticmethod
    def add(registry: CollectorRegistry, sources: Sources, max_series: int) -> Registered:
        """Show these sources in the registry from now on, with at most so many series."""
        with _lock:
            registered = _by_registry.get(registry)
            if registered is None:
                registered = _by_registry[registry] = Registered()
                registry.register(registered)
            registered._max_series = {**registered._max_series, sources: max_series}
        return registered

    @staticmethod
    def remove(registry: CollectorRegistry, sources: Sources) -> None:
        """Show them no more."""
        with _lock:
            registered = _by_registry[registry]
            registered._max_series = {key: most for key, most in registered._max_series.items() if key is not sources}
            if not registered._max_series:
                registry.unregister(_by_registry.pop(registry))

    async def take(self) -> None:
        """Take a snapshot of each consumer of this event loop; the loop runs between two steps."""
        for sources in self._max_series:
            await sources.take()

    @contextmanager
    def having_taken(self, loop: AbstractEventLoop) -> Iterator[None]:
        """In this thread the figures are collected from what `take` has taken in that loop, and anew from others."""
        self._here.taken_in = loop
        try:
            yield
        finally:
            self._here.taken_in = None

    # For the registry.

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would take a snapshot otherwise, only to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The figures; the registry calls this, in whatever thread."""
        shown, taken_in = self._max_series, self._here.taken_in
        among = tuple(chain.from_iterable(shown))
        bring_up_to_date(source for source in among if source.loop is not taken_in)
        rows: dict[str, list[tuple[tuple[str, ...], Value]]] = {}
        for sources, max_series in shown.items():
            for reading, series in bounded(sources.readings(among), max_series):
                whose = (reading.figures.group_id or "", reading.client_id)
                for name, labels, value in series:
                    rows.setdefault(name, []).append(((*whose, *labels), value))
        for name in FAMILIES:
            if name in rows:
                yield _family(name, rows[name])


_by_registry: Final[WeakKeyDictionary[CollectorRegistry, Registered]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def _family(name: str, rows: Iterable[tuple[tuple[str, ...], Value]]) -> Metric:
    family = FAMILIES[name]
    labels = (*OF_ALL, *family.labels)
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(name, family.help, labels=labels)
        for values, value in rows:
            assert isinstance(value, Durations)
            histogram.add_metric(values, [*_buckets(value)], value.sum_ms / 1_000)
        return histogram
    made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    plain = made(name, family.help, labels=labels)
    for values, value in rows:
        assert not isinstance(value, Durations)
        plain.add_metric(values, value)
    return plain


def _buckets(durations: Durations) -> Iterator[tuple[str, float]]:
    count = 0
    for bound, more in zip((*BOUNDS_MS, None), durations.counts, strict=True):
        count += more
        yield "+Inf" if bound is None else str(bound / 1_000), count
