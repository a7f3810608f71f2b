"""prometheus-client's multiprocess mode: sums of all of a process's partitions, as ordinary metrics in files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from aiogroup._core.telemetry.counts import Durations
from aiogroup.figures.families import FAMILIES, OF_ALL, Family
from aiogroup.figures.series import Grain, Reading, series_of

__all__ = ["ProcessSums"]

UNKNOWN: Final = float("nan")
"""For a sum with an unknown part: a series of an ordinary metric in a file cannot be removed, and 0 would be wrong."""
LEAST: Final = float("-inf")
"""For a maximum without a known part: prometheus-client would keep a NaN that it reads first."""
LEFT_OUT: Final = frozenset({"topic", "partition"})


class ProcessSums:
    """Writes the sums of each consumer; another process may be the one that is scraped.

    Histograms are left out: an ordinary one takes one duration after the other, and these are counted already.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._metrics: dict[str, Gauge | Counter] = {
            family.name: _metric(family, registry) for family in FAMILIES.values() if family.kind != "histogram"
        }
        self._counted: dict[tuple[str, tuple[str, ...]], float] = {}
        self._shown: set[tuple[str, tuple[str, ...]]] = set()

    def write(self, readings: Iterable[Reading]) -> None:
        """Write what is known by now. A count that has begun again goes on from where it was.

        A consumer that is gone has no part in a sum; one of which something is not known makes the sum unknown.
        """
        seen: set[tuple[str, tuple[str, ...]]] = set()
        present: set[tuple[str, ...]] = set()
        for reading in readings:
            whose = (reading.figures.group_id or "", reading.client_id)
            present.add(whose)
            for name, labels, value in series_of(reading, Grain.ALL):
                family = FAMILIES[name]
                if isinstance(value, Durations):
                    continue
                kept = zip(family.labels, labels, strict=True)
                key = name, (*whose, *(label for of, label in kept if of not in LEFT_OUT))
                seen.add(key)
                self._write(key, value)
        for name, labels in self._shown - seen:
            metric = self._metrics[name]
            if isinstance(metric, Gauge):
                nothing = LEAST if FAMILIES[name].merge == "max" else UNKNOWN if labels[: len(OF_ALL)] in present else 0
                metric.labels(*labels).set(nothing)
            self._counted.pop((name, labels), None)  # another consumer begins to count at 0
        self._shown |= seen

    def _write(self, key: tuple[str, tuple[str, ...]], value: float) -> None:
        name, labels = key
        metric = self._metrics[name].labels(*labels)
        if isinstance(metric, Gauge):
            metric.set(value)
            return
        before = self._counted.get(key, 0)
        metric.inc(value - before if value >= before else value)
        self._counted[key] = value


def _metric(family: Family, registry: CollectorRegistry) -> Gauge | Counter:
    labels = (*OF_ALL, *(label for label in family.labels if label not in LEFT_OUT))
    if family.kind == "counter":
        return Counter(family.name, family.help, labels, registry=registry)
    if family.merge == "max":
        return Gauge(family.name, family.help, labels, registry=registry, multiprocess_mode="livemax")
    return Gauge(family.name, family.help, labels, registry=registry, multiprocess_mode="livesum")
