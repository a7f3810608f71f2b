"""The figures of consumers as metrics of OpenTelemetry: the table of docs/metrics.md, under names of `aiogroup.*`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Final, TypeAlias

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from aiogroup._core.telemetry.counts import BOUNDS_MS, Durations
from aiogroup._core.telemetry.figures import HasFigures
from aiogroup._runtime.loop.clock import steady_ms
from aiogroup.consumer import Consumer
from aiogroup.figures.families import FAMILIES, OF_ALL, Family
from aiogroup.figures.series import Value, bounded
from aiogroup.figures.sources import Sources, bring_up_to_date
from aiogroup.otel.attributes import CLIENT_ID, GROUP, PARTITION, SCHEMA_URL, TOPIC

__all__ = ["FiguresMetering", "metric_of"]

TOGETHER_MS: Final = 500
"""A reader asks for one metric after the other: it gets them from one snapshot."""
ATTRIBUTES: Final = {"group": GROUP, "client_id": CLIENT_ID, "topic": TOPIC, "partition": PARTITION}
PREFIXES: Final = ("kafka_consumer_fetch_manager_", "kafka_consumer_coordinator_", "kafka_consumer_", "aiogroup_")
UNITS: Final = {"_seconds": "s", "_bytes": "By", "_ratio": "1"}

Rows: TypeAlias = dict[str, list[Observation]]


def metric_of(family: Family) -> tuple[str, str]:
    """The name of a figure in OpenTelemetry, and its unit, which its name in Prometheus ends with."""
    name, unit = family.name.removesuffix("_total"), ""
    name = next(name.removeprefix(each) for each in PREFIXES if name.startswith(each))
    name = name.replace("_seconds_ago", "_ago_seconds")
    for suffix, of in UNITS.items():
        if name.endswith(suffix):
            name, unit = name.removesuffix(suffix), of
    return f"aiogroup.{name}{'_duration' if family.kind == 'histogram' else ''}", unit


NAMES: Final = {name: metric_of(family)[0] for name, family in FAMILIES.items()}


class FiguresMetering:
    """Shows the figures of consumers as `aiogroup.*`; docs/metrics.md has all of them.

        metering = FiguresMetering()
        metering.add("audit", consumer)  # in the consumer's event loop

    Nothing is done per record, and nothing unless a reader of the SDK collects: it takes a snapshot on the consumers'
    event loop, in steps of at most 2 ms, and does the rest in its own thread. OpenTelemetry has no histogram that is
    counted already: each is three counters, `.count`, `.sum` and `.bucket` with the attribute `aiogroup.le`.

    Args:
        meter_provider: the global one by default.
        max_series: as of `aiogroup.prometheus.Collector`.
    """

    def __init__(self, meter_provider: metrics.MeterProvider | None = None, *, max_series: int = 5_000) -> None:
        self._max_series = max_series
        self._sources = Sources()
        self._rows: tuple[int, Rows] | None = None
        meter = metrics.get_meter("aiogroup", version("aiogroup"), meter_provider, SCHEMA_URL)
        for family in FAMILIES.values():
            name, unit = metric_of(family)
            if family.kind == "histogram":
                for part, unit_of in (("count", ""), ("sum", unit), ("bucket", "")):
                    whole = f"{name}.{part}"
                    meter.create_observable_counter(whole, [partial(self._observed, whole)], unit_of, family.help)
            elif family.kind == "counter":
                meter.create_observable_counter(name, [partial(self._observed, name)], unit, family.help)
            else:
                meter.create_observable_gauge(name, [partial(self._observed, name)], unit, family.help)

    def add(
        self,
        name: str,
        consumer: Consumer[Any, Any] | Callable[[], HasFigures | None],
        *,
        restarts_count: Callable[[], int] | None = None,
    ) -> None:
        """Show a consumer from now on: as `aiogroup.prometheus.Collector.add`. Call it in the consumer's event loop.

        Raises:
            ConfigError: the name is in use.
            RuntimeError: no event loop runs here.
        """
        self._sources.add(name, consumer, restarts_count)

    def remove(self, name: str) -> None:
        """Show this consumer no more. Call it in the consumer's event loop; an unknown name is ignored."""
        self._sources.remove(name)
        self._rows = None

    def close(self) -> None:
        """Show nothing more: OpenTelemetry keeps the metrics, without a value."""
        self._sources.clear()
        self._rows = None

    def _observed(self, name: str, _options: CallbackOptions) -> Iterable[Observation]:
        if self._rows is None or steady_ms() - self._rows[0] >= TOGETHER_MS:
            bring_up_to_date(self._sources)
            rows = self._made()
            self._rows = steady_ms(), rows
        return self._rows[1].get(name, ())

    def _made(self) -> Rows:
        rows: Rows = {}
        for reading, series in bounded(self._sources.readings(self._sources), self._max_series):
            whose = (reading.figures.group_id or "", reading.client_id)
            for name, labels, value in series:
                pairs = zip((*OF_ALL, *FAMILIES[name].labels), (*whose, *labels), strict=True)
                attributes = {ATTRIBUTES.get(label, f"aiogroup.{label}"): of for label, of in pairs if of}
                for part, number, more in _parts(value):
                    rows.setdefault(NAMES[name] + part, []).append(Observation(number, {**attributes, **more}))
        return rows


def _parts(value: Value) -> Iterator[tuple[str, float, dict[str, str]]]:
    """One number, or those of a histogram: which part of it, the number, and its further attributes."""
    if not isinstance(value, Durations):
        yield "", value, {}
        return
    yield ".count", sum(value.counts), {}
    yield ".sum", value.sum_ms / 1_000, {}
    for bound, count in zip((*BOUNDS_MS, None), accumulate(value.counts), strict=True):
        yield ".bucket", count, {"aiogroup.le": "+Inf" if bound is None else str(bound / 1_000)}
