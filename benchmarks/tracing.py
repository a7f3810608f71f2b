"""What tracing costs for each record, beside what OpenTelemetry's SDK takes alone, on a bare loop without a broker.

    python -m benchmarks.tracing [--records 2000] [--rounds 15] [--work-us 50,200]

The variants take turns in one process, and each round gives a ratio: so the machine's other load, which is never the
same for long, hardly counts. "alone" is what every instrumentation of a loop must do: begin a span, make it current,
end it, and make current what was so before; with headers it also reads the producer's context from them. `Tracing`
begins no span where the producer sampled the trace out.
A body that works for so long is measured with tracing, sampled out, and without: which share of the rate is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from opentelemetry import context, propagate, trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from aiogroup import Record, TopicPartition
from aiogroup._core.native import Cursor
from aiogroup._core.telemetry.record_observer import End, Whose
from aiogroup._runtime.delivery.handling import Handling
from aiogroup.otel import Tracing
from benchmarks.work import document, items_in_us

WHOSE: Final = Whose("billing", "me", 1, "cluster")
LONG_NS: Final = 10**15
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
ATTRIBUTES: Final = {f"name.{number}": "value" for number in range(8)}
"""As many as `Tracing` gives to a span at its beginning."""
LATER: Final = {f"later.{number}": "value" for number in range(2)}
GOALS: Final = {"sampled out": 8, "sampled out, with traceparent": 8, "sampled": 50}
"""In microseconds."""


class Nothing:
    """An observer that does nothing: what its place in the loop costs."""

    def on_event(self, event: object) -> None: ...

    def begin_record(self, record: Record, whose: Whose) -> End:
        return _nothing


def _nothing(error: str | None) -> None: ...


def records_of(count: int, headers: tuple[tuple[str, bytes], ...] = ()) -> list[Record]:
    return [Record(TopicPartition("orders", 0), offset, 1, 0, None, b"x" * 100, headers) for offset in range(count)]


def cursor_over(records: list[Record]) -> Cursor:
    """What `async for` over a consumer gets, with one slice."""
    cursor = Cursor()

    async def wait() -> Record:
        if cursor.index:
            raise StopAsyncIteration
        return cursor.open(records, 0, LONG_NS)

    cursor.wait = wait
    return cursor


async def loop_over(records: AsyncIterator[Record]) -> None:
    async for _ in records:
        pass


def traced(records: list[Record], provider: TracerProvider) -> Callable[[], Awaitable[None]]:
    def run() -> Awaitable[None]:
        return loop_over(Handling((Tracing(provider),), print, lambda: WHOSE).over(cursor_over(records)))

    return run


def alone(records: list[Record], provider: TracerProvider) -> Callable[[], Awaitable[None]]:
    tracer = provider.get_tracer("alone")

    async def run() -> None:
        async for record in cursor_over(records):
            outer = inside = context.get_current()
            if record.headers:
                carrier = {name: bytes(value or b"").decode() for name, value in record.headers}
                inside = propagate.extract(carrier, outer)
            span = tracer.start_span("process orders", inside, trace.SpanKind.CONSUMER, ATTRIBUTES)
            if span.is_recording():
                span.set_attributes(LATER)
            context.attach(trace.set_span_in_context(span, inside))
            span.end()
            context.attach(outer)

    return run


def variants(count: int) -> dict[str, dict[str, Callable[[], Awaitable[None]]]]:
    out, sampled = TracerProvider(sampler=ParentBased(ALWAYS_OFF)), TracerProvider()
    sampled.add_span_processor(SpanProcessor())
    plain = records_of(count)
    found = {"no tracing": {"aiogroup": lambda: loop_over(cursor_over(plain))}}
    place = Handling((Nothing(),), print, lambda: WHOSE)
    found["an observer that does nothing"] = {"aiogroup": lambda: loop_over(place.over(cursor_over(plain)))}
    for name, provider, flag in (("sampled out", out, "0"), ("sampled", sampled, "1")):
        with_headers = records_of(count, (("traceparent", (TRACE + flag).encode()),))
        for what, records in ((name, plain), (f"{name}, with traceparent", with_headers)):
            found[what] = {"aiogroup": traced(records, provider), "alone": alone(records, provider)}
    return found


async def measure(count: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Microseconds of CPU for each record, by variant and by who did it."""
    all_variants = variants(count)
    found: dict[str, dict[str, list[float]]] = {what: {who: [] for who in of} for what, of in all_variants.items()}
    gc.collect()
    gc.freeze()  # or full passes over the SDK's modules would count in the round in which they happen to come
    for _ in range(rounds):
        for what, of in all_variants.items():
            for who, run in of.items():
                began = time.thread_time()
                await run()
                found[what][who].append((time.thread_time() - began) / count * 1e6)
    return found


async def loop_with_work(records: AsyncIterator[Record], text: str) -> None:
    async for _ in records:
        json.loads(text)


async def kept(work_us: int, count: int, rounds: int) -> float:
    """The share of its rate that a loop with so much work keeps when each record is sampled out."""
    text, records = document(items_in_us(work_us)), records_of(count)
    handling = Handling((Tracing(TracerProvider(sampler=ParentBased(ALWAYS_OFF))),), print, lambda: WHOSE)
    shares = []
    for _ in range(rounds):
        began = time.thread_time()
        await loop_with_work(cursor_over(records), text)
        between = time.thread_time()
        await loop_with_work(handling.over(cursor_over(records)), text)
        shares.append((between - began) / (time.thread_time() - between))
    return statistics.median(shares)


def table(found: dict[str, dict[str, list[float]]]) -> str:
    lines = ["| a record | aiogroup, us | SDK alone, us | ratio |", "|---|---|---|---|"]
    for what, of in found.items():
        ours, goal = of["aiogroup"], f" (goal: {GOALS[what]})" if what in GOALS else ""
        line = f"| {what} | {min(ours):.2f}{goal} |"
        if "alone" in of:
            ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, of["alone"], strict=True))
            line += f" {min(of['alone']):.2f} | {ratio:.2f} |"
        lines.append(line if "alone" in of else f"{line} | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--work-us", default="50,200")
    given = parser.parse_args()
    print(table(asyncio.run(measure(given.records, given.rounds))))
    for work_us in map(int, given.work_us.split(",")):
        share = asyncio.run(kept(work_us, given.records // 10, 10 * given.rounds))
        print(f"sampled out, a body of {work_us} us keeps {share:.2f} of its rate")


if __name__ == "__main__":
    main()
