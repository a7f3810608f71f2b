"""Spans of OpenTelemetry that are current while a record is handled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context, propagate, trace
from opentelemetry.propagators.textmap import Getter

from aiogroup._core.telemetry.record_observer import Current, Headers, drop_what_is_over
from aiogroup.otel.attributes import GROUP, PARTITION, SCHEMA_URL, TOPIC, AttributesOfRecords, attributes_of

if TYPE_CHECKING:
    from aiogroup._core.telemetry.event import Event
    from aiogroup._core.telemetry.record_observer import End, Whose
    from aiogroup.records import Record, Records

__all__ = ["LINKS_LIMIT", "Tracing"]

LINKS_LIMIT: Final = 128
"""What the SDK keeps by default."""
STATE: Final = ("tracestate",)
"""It belongs to a `traceparent`: one without the other would be another trace's."""


class _Getter(Getter[Headers]):
    """Reads a record's headers; values that are no UTF-8 are ignored."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = None
        for name, value in carrier:
            if name == key and (text := _text(value)) is not None:
                found = [text] if found is None else [*found, text]
        return found

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_GETTER: Final = _Getter()


class Tracing:
    """An observer that makes a `process` span for each record, current in the loop's body, and a span for each `poll`
    that got records or failed, and each `commit`.

    Args:
        tracer_provider: the global one by default.
        parent: the producer's span is the parent where no other span is current; otherwise, and if this is False, it is
            linked.
        keys: set `messaging.kafka.message.key`. Keys are data: off by default.
    """

    def __init__(
        self, tracer_provider: trace.TracerProvider | None = None, *, parent: bool = True, keys: bool = False
    ) -> None:
        self._tracer = trace.get_tracer("aiogroup", version("aiogroup"), tracer_provider, SCHEMA_URL)
        self._follows_producers = _follows_producers(self._tracer)
        self._is_parent = parent
        self._has_keys = keys
        self._known = AttributesOfRecords()

    def on_event(self, event: Event) -> None:
        """Events are not traced: they are in the log and in the metrics."""

    def begin_record(self, record: Record, whose: Whose) -> End:
        outer, links = context.get_current(), None
        if outer:  # the span of a record may be there that ended elsewhere
            drop_what_is_over()
            outer = context.get_current()
        inside = outer
        if record.headers:
            if self._is_parent and not (outer and trace.get_current_span(outer).get_span_context().is_valid):
                inside = propagate.extract(record.headers, outer, _GETTER)
                if self._follows_producers and _is_sampled_out(inside):
                    return _made_current(inside, outer).end
            else:
                links = tuple(_links((record,)))
        name = f"process {record.topic}"
        span = self._tracer.start_span(name, inside, trace.SpanKind.CONSUMER, self._known.of(record, whose), links)
        current = _made_current(trace.set_span_in_context(span, inside), outer)
        if not span.is_recording():  # mostly it is sampled out, by its trace
            return current.end
        span.set_attributes(self._of_record(record))

        def end(error: str | None) -> None:
            if error is not None:
                _fail(span, error)
            span.end()
            current.end()

        return end

    def on_poll(
        self, records: Records | None, began_ns: int, duration_ns: int, error: str | None, whose: Whose
    ) -> None:
        if records is not None and not records.count and error is None:
            return  # a service that polls an idle topic has nothing else
        topics = {tp.topic for tp in records or ()}
        attributes = attributes_of("poll", "receive", topics, whose)
        if records is not None:
            attributes["messaging.batch.message_count"] = records.count
        self._ended("poll", topics, (began_ns, duration_ns), error, attributes, records)

    def on_commit(
        self, topics: Collection[str], began_ns: int, duration_ns: int, error: str | None, whose: Whose
    ) -> None:
        attributes = attributes_of("commit", "settle", topics, whose)
        self._ended("commit", topics, (began_ns, duration_ns), error, attributes, None)

    def begin_send(self, topic: str, headers: Headers, whose: Whose) -> tuple[Headers, End]:
        outer, links = context.get_current(), []
        inside = outer
        is_alone = not trace.get_current_span(outer).get_span_context().is_valid
        if is_alone and self._is_parent:
            inside = propagate.extract(headers, outer, _GETTER)
        else:
            found = trace.get_current_span(propagate.extract(headers, context.Context(), _GETTER)).get_span_context()
            links = [trace.Link(found)] if found.is_valid else []
        attributes = attributes_of("send", "send", (topic,), whose)
        attributes.pop(GROUP, None)
        span = self._tracer.start_span(f"send {topic}", inside, trace.SpanKind.PRODUCER, attributes, links)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span, inside))
        if carrier:  # what does not name the span, as baggage, stays
            replaced = {*carrier, *(STATE if "traceparent" in carrier else ())}
            kept = (each for each in headers if each[0] not in replaced)
            headers = (*kept, *((name, text.encode()) for name, text in carrier.items()))

        def end(error: str | None) -> None:
            if error is not None:
                _fail(span, error)
            span.end()

        return headers, end

    def _of_record(self, record: Record) -> dict[str, Any]:
        attributes: dict[str, Any] = {"messaging.kafka.offset": record.offset, "aiogroup.lane": record.lane}
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        if self._has_keys and (key := _text(record.key)) is not None:
            attributes["messaging.kafka.message.key"] = key
        return attributes

    def _ended(
        self,
        call: str,
        topics: Collection[str],
        when: tuple[int, int],
        error: str | None,
        attributes: dict[str, Any],
        records: Records | None,
    ) -> None:
        name = f"{call} {next(iter(topics))}" if len(topics) == 1 else call
        began_ns, duration_ns = when
        span = self._tracer.start_span(name, kind=trace.SpanKind.CLIENT, attributes=attributes, start_time=began_ns)
        if records is not None and span.is_recording():  # of one that is sampled out no record is looked at
            for link in _links(records.all()):
                span.add_link(link.context, link.attributes)
        if error is not None:
            _fail(span, error)
        span.end(began_ns + duration_ns)


def _follows_producers(tracer: trace.Tracer) -> bool:
    """Whether the tracer's sampler drops every span of a trace that the producer sampled out. Such a span is not begun:
    it would take half of the record's time, and nobody would see it.

    The answer is yes only for a sampler of the SDK whose description says so; the specification fixes its form.
    """
    sampler = getattr(tracer, "sampler", None)
    if sampler is None or type(sampler).__module__ != "opentelemetry.sdk.trace.sampling":
        return False
    described = sampler.get_description()
    remote, local = "remoteParentNotSampled:AlwaysOffSampler,", "localParentNotSampled:AlwaysOffSampler}"
    # A description contains those of the samplers that it is made of, which may have the same names in them.
    is_alone = described.count("remoteParentNotSampled:") == 1
    return is_alone and described.startswith("ParentBased{") and remote in described and described.endswith(local)


def _is_sampled_out(inside: context.Context) -> bool:
    producer = trace.get_current_span(inside).get_span_context()
    return not producer.trace_flags & trace.TraceFlags.SAMPLED and producer.is_valid


def _links(records: Iterable[Record]) -> Iterator[trace.Link]:
    """A link to the span of each record's producer, of the first `LINKS_LIMIT` that name one; what differs from record
    to record stands on it.
    """
    left_count = LINKS_LIMIT
    for record in records:
        if not left_count:
            return
        if not record.headers:
            continue
        found = propagate.extract(record.headers, context.Context(), _GETTER)
        producer = trace.get_current_span(found).get_span_context()
        if producer.is_valid:
            left_count -= 1
            of_record: dict[str, str | int] = {
                TOPIC: record.topic,
                PARTITION: str(record.partition),
                "messaging.kafka.offset": record.offset,
            }
            yield trace.Link(producer, of_record)


def _made_current(inside: context.Context, outer: context.Context) -> Current:
    """The outer context is attached again in the end. `detach` would log an error in another context than that of
    `attach`, as where another task dropped the loop.
    """
    context.attach(inside)
    return Current(context.attach, outer)


def _fail(span: trace.Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(trace.StatusCode.ERROR)


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return None
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        return None
