"""The public class `Collector`: the figures of consumers for Prometheus."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from aiogroup.consumer import Consumer
from aiogroup.errors import ConfigError
from aiogroup.figures.families import FAMILIES, OF_ALL
from aiogroup.figures.series import Value, bounded
from aiogroup.figures.sources import Sources
from aiogroup.prometheus.process_sums import ProcessSums
from aiogroup.runtime.loop.clock import FOREVER_MS
from aiogroup.runtime.loop.supervisor import Supervisor
from aiogroup.telemetry.counts import BOUNDS_MS, Durations
from aiogroup.telemetry.figures import HasFigures

__all__ = ["Collector", "exposition"]

MULTIPROCESS: Final = "PROMETHEUS_MULTIPROC_DIR"
_logger: Final = logging.getLogger("aiogroup")
_told: Final[set[str]] = set()


class Collector:
    """Shows the figures of consumers in a registry of prometheus-client; docs/metrics.md has all of them.

        collector = Collector()
        collector.add("audit", consumer)  # in the consumer's event loop

    Nothing is done per record, and nothing without a scrape. A scrape takes a snapshot on the consumers' event loop, in
    steps of at most 2 ms; the text is made in the thread that scrapes. `await collector.text()` does both for a route
    of yours. A route that calls `generate_latest` on the event loop itself gets a snapshot of the last second.

    With `PROMETHEUS_MULTIPROC_DIR` set, the sums of each consumer are written each second as ordinary metrics, without
    the labels topic and partition, and without histograms.

    Args:
        registry: where the figures are shown; prometheus-client's own one by default.
        max_series: the most series of all consumers together. Above it, the series of partitions give way to their
            sums by topic, and then to one sum; `aiogroup_series_dropped` says how many that leaves out.
        multiprocess: whether to write sums, as above; by default if `PROMETHEUS_MULTIPROC_DIR` is set.

    Raises:
        ConfigError: `max_series` is no positive number.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, max_series: int = 5_000, multiprocess: bool | None = None
    ) -> None:
        if not isinstance(max_series, int) or max_series < 1:
            raise ConfigError(f"max_series={max_series!r}: a number from 1 on is needed")
        self._registry = REGISTRY if registry is None else registry
        self._max_series = max_series
        self._sources = Sources(self._write_sums)
        self._threads = Supervisor(lambda _name, _error: None)
        self._here = threading.local()
        self._process_sums: ProcessSums | None = None
        if MULTIPROCESS in os.environ if multiprocess is None else multiprocess:
            self._process_sums = ProcessSums(CollectorRegistry())  # what is scraped are files, of all processes
            _tell_once()
        else:
            self._registry.register(self)

    def add(
        self,
        name: str,
        consumer: Consumer | Callable[[], HasFigures | None],
        *,
        restarts_count: Callable[[], int] | None = None,
    ) -> None:
        """Show a consumer from now on. Call it in the consumer's event loop.

        `name` is your own name for it. It is seen only where another consumer has the same group and the same client
        id: then it is appended to the client id. Where the consumer is made anew after a failure, give a function that
        returns the one of now, or `None` between two; or the loop of an `aiogroup.asgi.Service`, which has figures
        then, too.

        Raises:
            ConfigError: the name is in use.
            RuntimeError: no event loop runs here.
        """
        source = self._sources.add(name, consumer, restarts_count)
        if self._process_sums is not None:
            source.keep_fresh(FOREVER_MS)

    def remove(self, name: str) -> None:
        """Show this consumer no more. Call it in the consumer's event loop; an unknown name is ignored."""
        if self._sources.remove(name):
            self._write_sums()

    async def close(self) -> None:
        """Show nothing more, and leave the registry. A collector cannot be used again."""
        self._sources.clear()
        self._write_sums()
        if self._process_sums is None:
            self._registry.unregister(self)
        await self._threads.close()

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """The body and the content type of an answer to Prometheus: everything that is in the registry.

        `accept` is the request's header of that name. Snapshots are taken here, in short steps; the text is made in a
        thread. In multiprocess mode it is the text of all processes.
        """
        await self._sources.take()
        return await self._threads.compute(self._text, accept)

    def _text(self, accept: str) -> tuple[bytes, str]:
        registry = self._registry
        if self._process_sums is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        encode, content_type = choose_encoder(accept)
        self._here.has_taken = True
        try:
            return encode(registry), content_type
        finally:
            self._here.has_taken = False

    # For the registry.

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would take a snapshot otherwise, only to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The figures; the registry calls this, in whatever thread."""
        if not getattr(self._here, "has_taken", False):
            self._sources.bring_up_to_date()
        rows: dict[str, list[tuple[tuple[str, ...], Value]]] = {}
        for reading, series in bounded(self._sources.readings(), self._max_series):
            whose = (reading.figures.group_id or "", reading.client_id)
            for name, labels, value in series:
                rows.setdefault(name, []).append(((*whose, *labels), value))
        for name in FAMILIES:
            if name in rows:
                yield _family(name, rows[name])

    def _write_sums(self) -> None:
        if self._process_sums is not None:
            self._process_sums.write(self._sources.readings())


async def exposition(consumers: Iterable[Consumer], *, max_series: int = 5_000) -> bytes:
    """The figures of these consumers of this event loop, in Prometheus's text format, without any registry."""
    collector = Collector(CollectorRegistry(), max_series=max_series, multiprocess=False)
    try:
        for number, consumer in enumerate(consumers):
            collector.add(str(number), consumer)
        body, _ = await collector.text()
        return body
    finally:
        await collector.close()


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


def _tell_once() -> None:
    """Say once in a process what its mode leaves out."""
    if MULTIPROCESS not in _told:
        _told.add(MULTIPROCESS)
        _logger.warning(
            "prometheus_sums_only: %s is set, so the figures of consumers are sums of their partitions, without "
            "histograms: one process for each pod needs none of it",
            MULTIPROCESS,
        )
