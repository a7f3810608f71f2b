"""The metrics of the semantic conventions: what was consumed, and how long records, polls and commits took."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics

from aiogroup.otel.attributes import PARTITION, SCHEMA_URL, AttributesOfRecords, attributes_of

if TYPE_CHECKING:
    from aiogroup._core.telemetry.event import Event
    from aiogroup._core.telemetry.record_observer import End, Whose
    from aiogroup.records import Record, Records
    from aiogroup.structs import TopicPartition

__all__ = ["Metering"]

SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class Metering:
    """An observer that keeps the conventions' metrics: `messaging.client.consumed.messages`,
    `messaging.process.duration`, and `messaging.client.operation.duration` of `poll` and `commit`, in seconds.

    Args:
        meter_provider: the global one by default.
    """

    def __init__(self, meter_provider: metrics.MeterProvider | None = None) -> None:
        self._known = AttributesOfRecords()
        meter = metrics.get_meter("aiogroup", version("aiogroup"), meter_provider, SCHEMA_URL)
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self._processed = meter.create_histogram(
            "messaging.process.duration", "s", explicit_bucket_boundaries_advisory=SECONDS_BUCKETS
        )
        self._called = meter.create_histogram(
            "messaging.client.operation.duration", "s", explicit_bucket_boundaries_advisory=SECONDS_BUCKETS
        )

    def on_event(self, event: Event) -> None:
        """Events are counted by `FiguresMetering`."""

    def begin_record(self, record: Record, whose: Whose) -> End:
        known = self._known.of(record, whose)
        self._consumed.add(1, known)
        began = time.perf_counter()

        def end(error: str | None) -> None:
            attributes = known if error is None else {**known, "error.type": error}
            self._processed.record(time.perf_counter() - began, attributes)

        return end

    def on_poll(
        self, records: Records | None, _began_ns: int, duration_ns: int, error: str | None, whose: Whose
    ) -> None:
        by_partition: Mapping[TopicPartition, list[Record]] = records if records is not None else {}
        for tp, found in by_partition.items():
            of_partition = attributes_of("poll", "receive", (tp.topic,), whose)
            of_partition[PARTITION] = str(tp.partition)
            self._consumed.add(len(found), of_partition)
        topics = {tp.topic for tp in by_partition}
        self._took(duration_ns, error, attributes_of("poll", "receive", topics, whose))

    def on_commit(
        self, topics: Collection[str], _began_ns: int, duration_ns: int, error: str | None, whose: Whose
    ) -> None:
        self._took(duration_ns, error, attributes_of("commit", "settle", topics, whose))

    def _took(self, duration_ns: int, error: str | None, attributes: dict[str, Any]) -> None:
        if error is not None:
            attributes["error.type"] = error
        self._called.record(duration_ns / 1e9, attributes)
