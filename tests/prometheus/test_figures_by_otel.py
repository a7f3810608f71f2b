"""The figures through OpenTelemetry: the same as Prometheus reads, under names that come from the same table."""

from __future__ import annotations

import asyncio
import time

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from aiogroup import TopicPartition
from aiogroup.errors import ConfigError
from aiogroup.figures.families import FAMILIES
from aiogroup.otel import SCHEMA_URL, FiguresMetering
from aiogroup.otel.figures import metric_of
from aiogroup.prometheus import exposition

WHOSE = {"messaging.consumer.group.name": "billing", "messaging.client.id": "aiogroup"}
LABELS = {"group": "messaging.consumer.group.name", "client_id": "messaging.client.id"} | {
    "topic": "messaging.destination.name", "partition": "messaging.destination.partition.id",
}  # fmt: skip


@pytest.fixture(autouse=True)
def always_anew(monkeypatch):
    """Not the figures of the last half second."""
    monkeypatch.setattr("aiogroup.otel.figures.TOGETHER_MS", 0)


class Meters:
    """The figures of what was added, as an exporter of OpenTelemetry reads them in its thread."""

    def __init__(self, **arguments):
        self._reader = InMemoryMetricReader()
        self.metering = FiguresMetering(MeterProvider([self._reader]), **arguments)

    async def read(self):
        """Value by name and attributes, and the unit by name."""
        data = await asyncio.to_thread(self._reader.get_metrics_data)
        if data is None:
            return {}, {}
        (scope,) = data.resource_metrics[0].scope_metrics
        assert (scope.scope.name, scope.schema_url) == ("aiogroup", SCHEMA_URL)
        points = {
            (metric.name, *sorted(point.attributes.items())): point.value
            for metric in scope.metrics
            for point in metric.data.data_points
        }
        return points, {metric.name: metric.unit for metric in scope.metrics}


def as_otel(sample):
    """The name and the attributes that a series of Prometheus has in OpenTelemetry."""
    name = next((each for each in FAMILIES if sample.name in (each, *(f"{each}_{x}" for x in PARTS))), None)
    part = sample.name.removeprefix(name).replace("_", ".")
    labels = {LABELS.get(key, f"aiogroup.{key}"): value for key, value in sample.labels.items() if value}
    return (metric_of(FAMILIES[name])[0] + part, *sorted(labels.items()))


PARTS = ("count", "sum", "bucket")
MOVING = ("_ago", "age", "aiogroup.deadline_used")
CALM = {"heartbeat_interval_ms": 40_000, "session_timeout_ms": 120_000}
"""No heartbeat comes between two looks."""


async def test_they_are_those_that_prometheus_reads(make, scraped):
    meters = Meters()
    async with make("orders", **CALM) as consumer:
        meters.metering.add("billing", consumer, restarts_count=lambda: 3)
        await consumer.getmany(TopicPartition("orders", 0), timeout_ms=1_000, max_records=7)
        await consumer.commit()
        theirs = scraped(await exposition([consumer]))
        ours, units = await meters.read()
    expected = {as_otel(each): each.value for each in theirs.samples}
    restarts = ("aiogroup.restarts", *sorted(WHOSE.items()))
    still = {key for key in expected if not key[0].endswith(MOVING)}
    assert restarts in ours
    assert {key: value for key, value in ours.items() if key in still} == {key: expected[key] for key in still}
    assert {name for name, *_ in ours.keys() ^ expected.keys()} <= {restarts[0]}
    assert ours["aiogroup.records_lag", *sorted({**WHOSE, **ORDERS_0}.items())] == 3
    assert (units["aiogroup.last_poll_ago"], units["aiogroup.buffered"], units["aiogroup.deadline_used"]) == (
        "s", "By", "1",
    )  # fmt: skip
    assert units["aiogroup.commit_duration.sum"] == "s"


ORDERS_0 = {"messaging.destination.name": "orders", "messaging.destination.partition.id": "0"}


def test_no_two_figures_have_one_name():
    names = [metric_of(each)[0] for each in FAMILIES.values()]
    assert len(set(names)) == len(FAMILIES)
    assert {each for each in names if not each.startswith("aiogroup.")} == set()


async def test_what_is_gone_has_no_value_any_more(make):
    meters = Meters()
    async with make(group_id=None) as consumer:
        meters.metering.add("orders", consumer)
        for wanted in ({"0", "1"}, {"1"}):
            consumer.assign([TopicPartition("orders", int(each)) for each in wanted])
            await consumer.getmany(timeout_ms=1_000)
            points, _ = await meters.read()
            rows = [dict(rest) for name, *rest in points if name == "aiogroup.records_lag"]
            assert {each["messaging.destination.partition.id"] for each in rows} == wanted
            assert "messaging.consumer.group.name" not in rows[0], "it has no group"
    meters.metering.remove("orders")
    meters.metering.remove("orders")
    assert (await meters.read())[0] == {}


async def test_there_are_at_most_so_many_series(make):
    meters = Meters(max_series=1)
    async with make("orders") as consumer:
        meters.metering.add("billing", consumer)
        await consumer.getmany(timeout_ms=1_000)
        points, _ = await meters.read()
    assert points["aiogroup.series_dropped", *sorted(WHOSE.items())] > 0
    (lag,) = [key for key in points if key[0] == "aiogroup.records_lag"]
    assert dict(lag[1:]) == WHOSE, "the sum of all partitions names none"


async def test_a_name_is_used_once_until_it_is_closed(make):
    meters = Meters()
    meters.metering.add("billing", make("orders"))
    with pytest.raises(ConfigError, match="'billing' already"):
        meters.metering.add("billing", make("orders"))
    assert (await meters.read())[0]
    meters.metering.close()
    assert (await meters.read())[0] == {}


async def test_a_wall_clock_that_steps_back_stops_no_figure(make, monkeypatch):
    meters, real = Meters(), time.time_ns
    async with make("orders") as consumer:
        meters.metering.add("billing", consumer)
        seen = []
        for _ in range(3):
            await consumer.getmany(TopicPartition("orders", 0), timeout_ms=1_000, max_records=2)
            points, _ = await meters.read()
            seen += [value for (name, *_), value in points.items() if name == "aiogroup.records_consumed"]
            monkeypatch.setattr(time, "time_ns", lambda: real() - 3_600_000_000_000)
    assert seen == [2, 4, 6]
