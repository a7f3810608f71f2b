"""The public class `Collector`: the figures of consumers for Prometheus."""

from __future__ import annotations

import logging
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from aiogroup._core.telemetry.figures import HasFigures
from aiogroup._runtime.loop.clock import FOREVER_MS, running_loop
from aiogroup._runtime.loop.threads import Threads
from aiogroup.consumer import Consumer
from aiogroup.errors import ConfigError
from aiogroup.figures.sources import Sources
from aiogroup.prometheus.process_sums import ProcessSums
from aiogroup.prometheus.registered import Registered

__all__ = ["Collector", "exposition"]

MULTIPROCESS: Final = "PROMETHEUS_MULTIPROC_DIR"
_logger: Final = logging.getLogger("aiogroup")
_told: Final[set[str]] = set()
_written: Final[set[Sources]] = set()
"""Of all collectors in multiprocess mode: they write into the same files of the process."""


class Collector:
    """Shows the figures of consumers in a registry of prometheus-client; docs/metrics.md has all of them.

        collector = Collector()
        collector.add("audit", consumer)  # in the consumer's event loop

    Nothing is done per record, and nothing without a scrape. A scrape takes a snapshot on the consumers' event loop, in
    steps of at most 2 ms; the text is made in the thread that scrapes. `await collector.text()` does both for a route
    of yours. A route that calls `generate_latest` on the event loop itself gets a snapshot of the last second.

    With `PROMETHEUS_MULTIPROC_DIR` set, the sums of each consumer are written each second as ordinary metrics, without
    the labels topic and partition, and without histograms.

    Several collectors of one registry, also those of services, show each family once, with the consumers of all.

    Args:
        registry: where the figures are shown; prometheus-client's own one by default.
        max_series: the most series of all its consumers together. Above it, the series of partitions give way to their
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
        self._sources = Sources(self._write_sums)
        self._threads = Threads()
        self._process_sums: ProcessSums | None = None
        self._registered: Registered | None = None
        if MULTIPROCESS in os.environ if multiprocess is None else multiprocess:
            self._process_sums = ProcessSums(CollectorRegistry())  # what is scraped are files, of all processes
            _written.add(self._sources)
            _tell_once()
        else:
            self._registered = Registered.add(self._registry, self._sources, max_series)

    def add(
        self,
        name: str,
        consumer: Consumer[Any, Any] | Callable[[], HasFigures | None],
        *,
        restarts_count: Callable[[], int] | None = None,
    ) -> None:
        """Show a consumer from now on. Call it in the consumer's event loop.

        `name` is your own name for it. It is seen only where another consumer has the same group and the same client
        id: then it is appended to the client id of the one that is seen later, until that is removed. Where the
        consumer is made anew after a failure, give a function that returns the one of now, or `None` between two; or
        the loop of an `aiogroup.asgi.Service`, which has figures then, too.

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
        _written.discard(self._sources)
        if self._registered is not None:
            Registered.remove(self._registry, self._sources)
            self._registered = None
        self._threads.close()

    async def text(self, accept: str = "") -> tuple[bytes, str]:
        """The body and the content type of an answer to Prometheus: everything that is in the registry.

        `accept` is the request's header of that name. Snapshots are taken here, in short steps; the text is made in a
        thread. In multiprocess mode it is the text of all processes.
        """
        await (self._sources if self._registered is None else self._registered).take()
        return await self._threads.compute(self._text, accept, running_loop())

    def _text(self, accept: str, loop: AbstractEventLoop) -> tuple[bytes, str]:
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number, which prometheus-client does not expect
            encode, content_type = choose_encoder("")
        if self._registered is None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return encode(registry), content_type
        with self._registered.having_taken(loop):
            return encode(self._registry), content_type

    def _write_sums(self) -> None:
        if self._process_sums is not None:
            self._process_sums.write(self._sources.readings(chain.from_iterable(tuple(_written))))


async def exposition(consumers: Iterable[Consumer[Any, Any]], *, max_series: int = 5_000) -> bytes:
    """The figures of these consumers of this event loop, in Prometheus's text format, without any registry."""
    collector = Collector(CollectorRegistry(), max_series=max_series, multiprocess=False)
    try:
        for number, consumer in enumerate(consumers):
            collector.add(str(number), consumer)
        body, _ = await collector.text()
        return body
    finally:
        await collector.close()


def _tell_once() -> None:
    """Say once in a process what its mode leaves out."""
    if MULTIPROCESS not in _told:
        _told.add(MULTIPROCESS)
        _logger.warning(
            "prometheus_sums_only: %s is set, so the figures of consumers are sums of their partitions, without "
            "histograms; with one process in each pod, leave it unset",
            MULTIPROCESS,
        )
