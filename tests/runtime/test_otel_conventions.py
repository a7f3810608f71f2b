"""Spans and metrics beside the registry of OpenTelemetry's semantic conventions: what it says of messaging in 1.44."""

from __future__ import annotations

import inspect
import re

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv import schemas
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics

from aiogroup import Consumer
from aiogroup.embedded import Broker
from aiogroup.otel import SCHEMA_URL, Metering, Tracing

VERSION = "1.44"
ATTRIBUTES = {
    "error.type": str,
    "messaging.batch.message_count": int,
    "messaging.client.id": str,
    "messaging.consumer.group.name": str,
    "messaging.destination.name": str,
    "messaging.destination.partition.id": str,
    "messaging.kafka.cluster.id": str,
    "messaging.kafka.message.key": str,
    "messaging.kafka.message.tombstone": bool,
    "messaging.kafka.offset": int,
    "messaging.operation.name": str,
    "messaging.operation.type": str,
    "messaging.system": str,
}
"""Those of Kafka's spans that a consumer can know, with their types."""
REQUIRED = {"messaging.operation.name", "messaging.operation.type", "messaging.system"}
OPERATIONS = {"receive": "CLIENT", "process": "CONSUMER", "settle": "CLIENT"}
"""The kinds of spans by `messaging.operation.type`."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
METRICS = {
    "messaging.client.consumed.messages": ("{message}", None),
    "messaging.client.operation.duration": ("s", BUCKETS),
    "messaging.process.duration": ("s", BUCKETS),
}
"""The unit, and the bounds of a histogram."""
OWN = "aiogroup."


@pytest.fixture
async def told():
    """The spans and the metrics of a consumer that did everything once, also by `break`."""
    exporter, reader, provider = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observers = [Tracing(provider, keys=True), Metering(MeterProvider([reader]))]
    async with Broker() as broker:
        broker.create_topic("orders")
        for value in (b"value", b"value", None, b"value"):
            broker.produce("orders", value, key=b"key")
        where = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with Consumer("orders", group_id="ours", max_poll_records=2, observers=observers, **where) as consumer:
            await consumer.getmany(timeout_ms=5_000)
            await consumer.commit()
            with broker.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED"), pytest.raises(Exception, match="ours"):
                await consumer.commit({next(iter(consumer.assignment())): 1})
            async for record in consumer:
                if record.offset == 3:
                    break
    (metrics,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    return exporter.get_finished_spans(), metrics.metrics


async def test_spans_have_the_names_kinds_and_attributes_of_the_registry(told):
    spans, _ = told
    assert {span.attributes["messaging.operation.type"] for span in spans} == set(OPERATIONS)
    for span in spans:
        attributes = span.attributes
        assert span.kind.name == OPERATIONS[attributes["messaging.operation.type"]]
        words = [attributes["messaging.operation.name"], attributes.get("messaging.destination.name")]
        assert span.name == " ".join(filter(None, words))
        assert attributes.keys() >= REQUIRED
        assert attributes["messaging.system"] == "kafka"
        for name, value in attributes.items():
            assert name.startswith(OWN) or type(value) is ATTRIBUTES[name], name
        assert (span.status.status_code.name == "ERROR") == ("error.type" in attributes)
    assert {name for span in spans for name in span.attributes if not name.startswith(OWN)} == ATTRIBUTES.keys()
    single = [span for span in spans if span.name.startswith("process")]
    assert not any("messaging.batch.message_count" in span.attributes for span in single), "not for one message"


async def test_metrics_have_the_names_units_and_buckets_of_the_registry(told):
    _, metrics = told
    assert {each.name for each in metrics} == METRICS.keys()
    for each in metrics:
        unit, bounds = METRICS[each.name]
        assert each.unit == unit
        for point in each.data.data_points:
            assert point.attributes.keys() >= {"messaging.operation.name", "messaging.system"}
            assert point.attributes.keys() <= ATTRIBUTES.keys()
            assert bounds is None or point.explicit_bounds == bounds


def test_the_table_is_that_of_the_version_that_is_named():
    """The SDK brings the registry's names along, as they were generated from some version."""
    assert f"https://opentelemetry.io/schemas/{VERSION}.0" == SCHEMA_URL
    assert schemas.Schemas.V1_44_0.value == SCHEMA_URL
    known = {value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")}
    assert {each for each in ATTRIBUTES if each.startswith("messaging.")} <= known
    deprecated = {value for name, value in documented(messaging_attributes) if "Deprecated" in name}
    assert "messaging.kafka.consumer.group" in deprecated, "the old ones would be seen"
    assert not deprecated & ATTRIBUTES.keys()
    assert METRICS.keys() <= {value for name, value in vars(messaging_metrics).items() if name.startswith("MESSAGING_")}


def documented(module):
    """The text that follows each name of a module, and the name's value."""
    name_and_text = re.compile(r'^MESSAGING_\w+: Final = "([\w.]+)"\n"""(.*?)"""', re.MULTILINE | re.DOTALL)
    for value, text in name_and_text.findall(inspect.getsource(module)):
        yield text, value
