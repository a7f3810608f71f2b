"""What `Tracing` and `LogContext` make current where loops lie inside of each other, or end in another context."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiogroup import Consumer, LogContext
from aiogroup.embedded import Broker
from aiogroup.otel import Tracing
from tests.support.kafka import eventually

COUNT = 4


@pytest.fixture
async def broker():
    async with Broker() as broker:
        for topic in ("commands", "replies"):
            broker.create_topic(topic, 1)
            for number in range(COUNT):
                headers = {"traceparent": f"00-{trace_id_of(topic, number):032x}-{number + 1:016x}-01".encode()}
                broker.produce(topic, b"", headers=headers)
        yield broker


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def make_consumer(broker, exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def make(topic):
        observers = [Tracing(provider), LogContext()]
        settings = {"group_id": topic, "auto_offset_reset": "earliest", "observers": observers}
        return Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings)

    return make


def trace_id_of(topic, number):
    return (0xC000 if topic == "commands" else 0xE000) + number


def current():
    """The span, and the topic and offset that a line of the log would have."""
    fields = structlog.contextvars.get_contextvars()
    return trace.get_current_span(), fields.get("topic"), fields.get("offset")


NOTHING = (trace.INVALID_SPAN, None, None)


def parents(exporter, topic):
    """The trace and the span of each record's parent."""
    ended = [span for span in exporter.get_finished_spans() if span.name == f"process {topic}"]
    return [(span.parent.trace_id, span.parent.span_id) for span in ended]


async def test_a_record_that_a_body_reads_ends_for_its_task_with_the_bodys_own_record(make_consumer, exporter):
    commands_spans = []
    async with make_consumer("commands") as commands, make_consumer("replies") as replies:
        async for command in commands:
            span, topic, offset = current()
            assert (topic, offset) == ("commands", command.offset)
            commands_spans.append(span.get_span_context())
            if command.offset == 1:
                assert current()[1:] == ("commands", 1)
                continue  # without a reply
            reply = await replies.getone()
            assert current()[1:] == ("replies", reply.offset)
            if command.offset == COUNT - 1:
                break
        assert current() == NOTHING
    assert current() == NOTHING
    assert parents(exporter, "commands") == [(trace_id_of("commands", each), each + 1) for each in range(COUNT)]
    with_reply = [commands_spans[each] for each in (0, 2, 3)]
    assert parents(exporter, "replies") == [(each.trace_id, each.span_id) for each in with_reply]


async def records_of(consumer):
    async for record in consumer:
        yield record


@pytest.mark.parametrize("way", ["it raises", "it breaks"])
async def test_a_generator_that_a_body_left_leaves_nothing_to_the_next_record(make_consumer, exporter, way):
    """Python closes the generator in another task, so only the next record can give back what was current here."""
    async with make_consumer("commands") as consumer:
        with contextlib.suppress(ZeroDivisionError):
            async for _ in records_of(consumer):
                if way == "it breaks":
                    break
                1 / 0  # noqa: B018
        gc.collect()  # the traceback held the generator
        await eventually(exporter.get_finished_spans)
        seen = []
        async for record in consumer:
            seen.append((current()[1:], record.offset))
            if record.offset == COUNT - 1:
                break
        assert current() == NOTHING
    assert seen == [(("commands", offset), offset) for _, offset in seen]
    numbers = [0, *(offset for _, offset in seen)]
    assert parents(exporter, "commands") == [(trace_id_of("commands", each), each + 1) for each in numbers]


async def test_fields_that_were_there_before_come_back_in_another_context_too(make_consumer):
    """A task that the body started has a copy of its context: the record ends there, too, when it ends here."""
    seen = []
    with structlog.contextvars.bound_contextvars(topic="mine"):
        async with make_consumer("commands") as commands, make_consumer("replies") as replies:
            ended = asyncio.Event()

            async def started_by_the_body():
                await ended.wait()
                async for _ in replies:
                    seen.append(current()[1:])
                    break
                seen.append(current())

            await commands.getone()
            task = asyncio.create_task(started_by_the_body())
            await commands.getone()
            ended.set()
            await task
    assert seen == [("replies", 0), (trace.INVALID_SPAN, "mine", None)]


async def test_a_generator_that_is_closed_by_its_task_leaves_nothing_current(make_consumer):
    async with make_consumer("commands") as consumer:
        async with contextlib.aclosing(records_of(consumer)) as records:
            async for _ in records:
                assert current()[1:] == ("commands", 0)
                break
        assert current() == NOTHING
