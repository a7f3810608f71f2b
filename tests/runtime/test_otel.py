"""OpenTelemetry and structlog beside the body of a loop: what is current where, and the conventions' names."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from itertools import count
from pathlib import Path

import pytest
import structlog
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    AlwaysRecordSampler,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
)

from aiogroup import ConcurrentConsumptionError, Consumer, LogContext
from aiogroup._core.native import Cursor
from aiogroup._runtime.loop import clock
from aiogroup.embedded import Broker
from aiogroup.otel import LINKS_LIMIT, SCHEMA_URL, Metering, Tracing
from aiogroup.otel.instrumentor import AiogroupInstrumentor

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
FROM_PRODUCER = [("traceparent", f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01".encode()), ("baggage", b"tenant=blue")]


@pytest.fixture
async def broker():
    async with Broker() as broker:
        broker.create_topic("orders", 1)
        yield broker


class Spans:
    """A tracer provider, and the spans that have ended."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def ended(self, name):
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans():
    return Spans()


@pytest.fixture(autouse=True)
def no_error_of_the_sdk(caplog):
    yield
    assert [each for each in caplog.records if each.name.startswith("opentelemetry")] == []


def consumer_of(broker, *observers, **settings):
    settings = {"group_id": "ours", "client_id": "me", "auto_offset_reset": "earliest"} | settings
    return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, observers=observers, **settings)


def current():
    return trace.get_current_span().get_span_context().span_id


async def fail(consumer):
    async for _ in consumer:
        1 / 0  # noqa: B018


async def in_a_task():
    return current()


async def test_a_span_is_current_in_the_body_and_nowhere_else(broker, spans):
    for number in range(3):
        broker.produce("orders", b"%d" % number)
    seen = []
    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        async for record in consumer:
            seen.append(current())
            assert await asyncio.create_task(in_a_task()) == current()
            if record.offset == 2:
                break
        assert current() == 0
    ended = spans.ended("process orders")
    assert [span.context.span_id for span in ended] == seen
    assert [span.attributes.get("error.type") for span in ended] == [None, None, "not_processed"]
    assert [span.status.status_code.name for span in ended] == ["UNSET", "UNSET", "ERROR"]


async def test_names_and_attributes_are_those_of_the_conventions(broker, spans):
    broker.produce("orders", None, key=b"k1")
    async with consumer_of(broker, Tracing(spans.provider, keys=True)) as consumer:
        async for _ in consumer:
            break
        generation = consumer.group_metadata().generation
    (span,) = spans.ended("process orders")
    cluster_id = span.attributes["messaging.kafka.cluster.id"]
    assert cluster_id
    assert generation == 1
    assert dict(span.attributes) == {
        "messaging.system": "kafka", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "orders", "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "ours", "messaging.client.id": "me", "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "k1", "messaging.kafka.message.tombstone": True,
        "messaging.kafka.cluster.id": cluster_id, "aiogroup.lane": "live", "error.type": "not_processed",
    }  # fmt: skip
    assert span.kind is trace.SpanKind.CONSUMER
    assert span.instrumentation_scope.schema_url == SCHEMA_URL


async def test_without_keys_no_key_is_told(broker, spans):
    broker.produce("orders", b"value", key=b"secret")
    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        await consumer.getone()
        await consumer.commit()
    assert "secret" not in "".join(
        span.to_json() for name in ("process orders", "commit") for span in spans.ended(name)
    )


async def test_the_producers_span_is_the_parent_where_no_other_is_current(broker, spans):
    broker.produce("orders", b"", headers=FROM_PRODUCER)
    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        async for _ in consumer:
            assert baggage.get_baggage("tenant") == "blue"
            break
        assert baggage.get_baggage("tenant") is None
    (span,) = spans.ended("process orders")
    assert (span.parent.trace_id, span.parent.span_id) == (TRACE_ID, SPAN_ID)
    assert not span.links


@pytest.mark.parametrize("parent", [True, False])
async def test_otherwise_it_is_linked(broker, spans, parent):
    broker.produce("orders", b"", headers=FROM_PRODUCER)
    outer = spans.tracer.start_span("outer") if parent else trace.INVALID_SPAN
    with trace.use_span(outer):
        async with consumer_of(broker, Tracing(spans.provider, parent=parent)) as consumer:
            async for _ in consumer:
                break
        assert trace.get_current_span() is outer
    (span,) = spans.ended("process orders")
    assert (None if span.parent is None else span.parent.span_id) == (outer.get_span_context().span_id or None)
    (link,) = span.links
    assert (link.context.trace_id, link.context.span_id) == (TRACE_ID, SPAN_ID)


@pytest.mark.parametrize("headers", [[("traceparent", b"\xff\xfe")], [("traceparent", b"no")], [("traceparent", None)]])
async def test_headers_that_cannot_be_read_are_no_parent(broker, spans, headers):
    broker.produce("orders", b"", headers=headers)
    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        await consumer.getone()
    (span,) = spans.ended("process orders")
    assert span.parent is None
    assert span.attributes["error.type"] == "not_processed"


async def test_a_loop_that_is_cancelled_or_raises_restores_what_was_current(broker, spans):
    for _ in range(3):
        broker.produce("orders", b"")
    began = asyncio.Event()

    async def loop(consumer):
        with spans.tracer.start_as_current_span("outer") as outer:
            try:
                async for _ in consumer:
                    began.set()
                    await asyncio.Event().wait()
            finally:
                assert trace.get_current_span() is outer

    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        task = asyncio.create_task(loop(consumer))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ZeroDivisionError):
            await fail(consumer)
        assert current() == 0
    assert [span.attributes["error.type"] for span in spans.ended("process orders")] == ["not_processed"] * 2


async def test_a_loop_that_another_task_drops_changes_nothing_there(broker, spans):
    broker.produce("orders", b"")
    loops = []

    async def step(consumer):
        loops.append(aiter(consumer))
        await anext(loops[0])

    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        await asyncio.create_task(step(consumer))
        with spans.tracer.start_as_current_span("other") as other:
            loops.clear()
            assert trace.get_current_span() is other
        assert len(spans.ended("process orders")) == 1


async def test_what_a_body_attached_and_never_detached_is_gone_after_its_record(broker, spans):
    for _ in range(2):
        broker.produce("orders", b"")
    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        async for record in consumer:
            assert baggage.get_baggage("left") is None
            context.attach(baggage.set_baggage("left", "behind"))
            if record.offset == 1:
                break
        assert baggage.get_baggage("left") is None
    assert [span.parent for span in spans.ended("process orders")] == [None, None]


async def test_tasks_that_a_body_starts_and_that_read_too_keep_its_span(broker, spans):
    for _ in range(3):
        broker.produce("orders", b"")

    async def read_one(consumer, before):
        assert current() == before
        await consumer.getone()
        assert current() != before
        await consumer.getone()

    async with consumer_of(broker, Tracing(spans.provider), auto_ack=False) as consumer:
        async for _ in consumer:
            mine = current()
            await asyncio.create_task(read_one(consumer, mine))
            assert current() == mine
            break
        assert current() == 0
    ended = {span.attributes["messaging.kafka.offset"]: span for span in spans.ended("process orders")}
    assert {ended[each].parent.span_id for each in (1, 2)} == {ended[0].context.span_id}


async def test_a_sampler_may_decide_by_the_partition(broker):
    broker.create_topic("many", 3)
    for partition in range(3):
        broker.produce("many", b"", partition=partition)

    class OfPartition(Sampler):
        def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None, **more):
            is_wanted = attributes["messaging.destination.partition.id"] == "1"
            return SamplingResult(Decision.RECORD_AND_SAMPLE if is_wanted else Decision.DROP, attributes)

        def get_description(self):
            return "by partition"

    seen = {}
    async with consumer_of(broker, Tracing(TracerProvider(sampler=OfPartition()))) as consumer:
        consumer.subscribe(["many"])
        async for record in consumer:
            seen[record.partition] = trace.get_current_span().is_recording()
            if len(seen) == 3:
                break
    assert seen == {0: False, 1: True, 2: False}


async def test_two_observers_leave_the_context_as_it_was(broker, spans):
    broker.produce("orders", b"")
    async with consumer_of(broker, Tracing(spans.provider), Tracing(spans.provider)) as consumer:
        async for _ in consumer:
            break
        assert current() == 0
    inner, outer = spans.ended("process orders")
    assert inner.parent.span_id == outer.context.span_id


async def test_a_poll_has_a_link_for_each_record_and_the_exact_count(broker, spans):
    for _ in range(300):
        broker.produce("orders", b"", headers=FROM_PRODUCER)
    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        records = await consumer.getmany(timeout_ms=5_000, max_records=300)
        await consumer.commit(dict.fromkeys(records, 300))
    (span,) = spans.ended("poll orders")
    assert span.kind is trace.SpanKind.CLIENT
    assert span.attributes["messaging.batch.message_count"] == records.count > LINKS_LIMIT
    assert len(span.links) == LINKS_LIMIT
    assert span.links[5].attributes["messaging.kafka.offset"] == 5
    (commit,) = spans.ended("commit orders")
    assert commit.attributes["messaging.operation.type"] == "settle"


async def test_of_a_poll_that_is_sampled_out_no_producer_is_looked_for(broker, monkeypatch):
    read, extract = [], propagate.extract
    monkeypatch.setattr(propagate, "extract", lambda *args: read.append(args) or extract(*args))
    for sampler in (ALWAYS_OFF, ALWAYS_ON):
        broker.produce("orders", b"", headers=FROM_PRODUCER)
        async with consumer_of(broker, Tracing(TracerProvider(sampler=sampler))) as consumer:
            records = await consumer.getmany(timeout_ms=5_000)
        assert len(read) == (records.count if sampler is ALWAYS_ON else 0)


async def test_a_record_that_is_sampled_out_costs_no_span_and_keeps_the_trace(broker):
    broker.produce("orders", b"", headers=[("traceparent", FROM_PRODUCER[0][1][:-2] + b"00")])
    async with consumer_of(broker, Tracing(TracerProvider(sampler=ALWAYS_OFF))) as consumer:
        async for _ in consumer:
            span = trace.get_current_span()
            assert not span.is_recording()
            assert span.get_span_context().trace_id == TRACE_ID
            break


class OfSomebodyElse(ParentBased):
    """A sampler that the SDK does not know: only it can say what it samples."""


KEEPS, KEEPS_INNER = {"remote_parent_not_sampled": ALWAYS_ON}, {"local_parent_not_sampled": ALWAYS_ON}


@pytest.mark.parametrize(
    ("sampler", "flags", "has_span", "has_inner"),
    [
        (ParentBased(ALWAYS_ON), b"00", False, False),
        (ParentBasedTraceIdRatio(1), b"00", False, False),
        (ParentBased(ALWAYS_ON), b"01", True, True),
        (ParentBased(ALWAYS_ON, **KEEPS), b"00", True, True),
        (ParentBased(ParentBased(ALWAYS_OFF), **KEEPS), b"00", True, True),
        (ParentBased(ALWAYS_ON, **KEEPS_INNER), b"00", True, True),
        (OfSomebodyElse(ALWAYS_ON), b"00", True, False),
        (AlwaysRecordSampler(ParentBased(ALWAYS_ON)), b"00", True, True),
        (ALWAYS_ON, b"00", True, True),
        (ALWAYS_OFF, b"00", True, False),
    ],
)
async def test_a_span_that_the_sampler_can_only_drop_is_not_begun(broker, sampler, flags, has_span, has_inner):
    """What the body begins is of the producer's trace all the same, and sampled as the sampler has it."""
    broker.produce("orders", b"", headers=[("traceparent", FROM_PRODUCER[0][1][:-2] + flags), FROM_PRODUCER[1]])
    provider = TracerProvider(sampler=sampler)
    async with consumer_of(broker, Tracing(provider)) as consumer:
        async for _ in consumer:
            current = trace.get_current_span().get_span_context()
            assert (current.trace_id, current.is_remote) == (TRACE_ID, not has_span)
            assert baggage.get_baggage("tenant") == "blue"
            inner = provider.get_tracer("body").start_span("inner")
            assert (inner.get_span_context().trace_id, inner.is_recording()) == (TRACE_ID, has_inner)
            break
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert baggage.get_baggage("tenant") is None


async def test_metrics_have_the_conventions_names_and_units(broker):
    for _ in range(4):
        broker.produce("orders", b"")
    reader = InMemoryMetricReader()
    async with consumer_of(broker, Metering(MeterProvider([reader])), max_poll_records=2) as consumer:
        await consumer.getmany(timeout_ms=5_000)
        await consumer.commit()
        async for record in consumer:
            if record.offset == 3:
                break
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    found = {each.name: each for each in scope.metrics}
    assert {name: each.unit for name, each in found.items()} == {
        "messaging.client.consumed.messages": "{message}", "messaging.process.duration": "s",
        "messaging.client.operation.duration": "s",
    }  # fmt: skip
    assert sum(each.value for each in found["messaging.client.consumed.messages"].data.data_points) == 4
    processed = found["messaging.process.duration"].data.data_points
    assert sorted((each.attributes.get("error.type", ""), each.count) for each in processed) == [
        ("", 1), ("not_processed", 1),
    ]  # fmt: skip
    called = found["messaging.client.operation.duration"].data.data_points
    assert sorted(each.attributes["messaging.operation.name"] for each in called) == ["commit", "poll"]


async def test_each_line_of_a_body_names_its_record_and_no_other(broker):
    for _ in range(2):
        broker.produce("orders", b"value", key=b"secret")
    lines, both = [], asyncio.Barrier(2)
    async with consumer_of(broker, LogContext(), auto_ack=False) as consumer:

        async def work():
            await consumer.getone()
            await both.wait()
            lines.append(structlog.contextvars.get_contextvars())
            await both.wait()

        await asyncio.gather(work(), work())
    assert sorted(line.pop("offset") for line in lines) == [0, 1]
    assert lines == [{"topic": "orders", "partition": 0, "lane": "live", "generation": 1}] * 2


async def test_after_a_record_the_fields_that_were_there_before_are_there_again(broker):
    broker.produce("orders", b"")
    with structlog.contextvars.bound_contextvars(topic="mine"):
        async with consumer_of(broker, LogContext()) as consumer:
            async for _ in consumer:
                assert structlog.contextvars.get_contextvars()["topic"] == "orders"
                break
        assert structlog.contextvars.get_contextvars() == {"topic": "mine"}


async def test_instrumented_consumers_are_traced_and_no_others(broker, spans):
    points = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]["opentelemetry_instrumentor"]
    instrumentor = EntryPoint("aiogroup", points["aiogroup"], "opentelemetry_instrumentor").load()()
    broker.produce("orders", b"")
    instrumentor.instrument(tracer_provider=spans.provider)
    try:
        traced = consumer_of(broker)
    finally:
        instrumentor.uninstrument()
    async with traced:
        await traced.getone()
    async with consumer_of(broker) as consumer:
        assert type(aiter(consumer)) is Cursor
    assert len(spans.ended("process orders")) == 1


async def test_what_an_instrumented_consumer_was_given_is_not_added_again(broker, spans):
    broker.produce("orders", b"")
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    instrumentor = AiogroupInstrumentor()
    instrumentor.instrument(tracer_provider=spans.provider, meter_provider=provider)
    try:
        traced = consumer_of(broker, Tracing(spans.provider), Metering(provider))
    finally:
        instrumentor.uninstrument()
    async with traced:
        await traced.getone()
    assert len(spans.ended("process orders")) == 1
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    (consumed,) = (each for each in scope.metrics if each.name == "messaging.client.consumed.messages")
    assert [each.value for each in consumed.data.data_points] == [1]


def test_importing_aiogroup_imports_no_part_of_opentelemetry():
    code = "import aiogroup, sys; print([name for name in sys.modules if 'opentelemetry' in name or 'otel' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_wall_clock_that_steps_back_makes_no_duration_wrong(broker, spans, monkeypatch):
    real, looks = clock.time.time_ns, count()
    monkeypatch.setattr(clock.time, "time_ns", lambda: real() - next(looks) * 3_600_000_000_000)
    broker.produce("orders", b"x")
    reader = InMemoryMetricReader()
    observers = Metering(MeterProvider([reader])), Tracing(spans.provider)
    async with consumer_of(broker, *observers, enable_auto_commit=False) as consumer:
        await consumer.getmany(timeout_ms=10_000)
        await consumer.commit()
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    (called,) = (each for each in scope.metrics if each.name == "messaging.client.operation.duration")
    assert len(called.data.data_points) == 2
    assert all(0 < each.sum < 60 for each in called.data.data_points)
    for name in ("poll orders", "commit"):
        (span,) = spans.ended(name)
        assert 0 < span.end_time - span.start_time < 60e9


async def test_an_empty_poll_has_no_span_and_one_that_fails_has(broker, spans):
    async with consumer_of(broker, Tracing(spans.provider)) as consumer:
        assert not (await consumer.getmany(timeout_ms=0)).count
        assert not (await consumer.poll(0)).count
        assert spans.ended("poll") == []
        broker.produce("orders", b"")
        assert (await consumer.getmany(timeout_ms=5_000)).count
        assert len(spans.ended("poll orders")) == 1
        waiting = asyncio.ensure_future(consumer.poll(5_000))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentConsumptionError):
            await consumer.poll(0)
        (failed,) = spans.ended("poll")
        assert failed.attributes["error.type"] == "ConcurrentConsumptionError"
        waiting.cancel()
