"""Spans around the records of a real group: each record of two rounds of a loop has one, in order, and the member's own
generation stands in structlog's fields.
"""

from __future__ import annotations

import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiogroup import LogContext
from aiogroup.otel import Tracing


async def test_each_record_has_a_span_and_what_a_loop_left_has_two(make_place):
    place, exporter = make_place(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    await place.produce(range(20))
    async with place.consumer(auto_offset_reset="earliest", observers=[Tracing(provider), LogContext()]) as consumer:
        for last in (7, 19):
            async for record in consumer:
                assert trace.get_current_span().attributes["messaging.kafka.offset"] == record.offset
                fields = structlog.contextvars.get_contextvars()
                assert fields["offset"] == record.offset
                assert fields["generation"] == consumer.group_metadata().generation
                if record.offset == last:
                    break
    ended = [span.attributes for span in exporter.get_finished_spans()]
    offsets = [each["messaging.kafka.offset"] for each in ended]
    assert offsets == [*range(8), *range(7, 20)]
    assert [offsets[at] for at, each in enumerate(ended) if "error.type" in each] == [7, 19]
    assert {each["messaging.kafka.cluster.id"] for each in ended} != {""}
    assert len({each["messaging.kafka.cluster.id"] for each in ended}) == 1
