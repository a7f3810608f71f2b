"""The public class `EventLog`: an observer that writes what happens to consumers as lines of JSON."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from aiogroup._core.telemetry.event import Event
from aiogroup._core.telemetry.events import EventLoopBlocked
from aiogroup._core.telemetry.meter import Observed
from aiogroup._runtime.loop.clock import mono_ms, wall_ms
from aiogroup._runtime.loop.threads import Threads
from aiogroup.errors import ConfigError
from aiogroup.eventlog.columns import EventsDropped, ProcessStoodStill
from aiogroup.eventlog.files import FileWriter, Rotation
from aiogroup.eventlog.lines import Lines
from aiogroup.eventlog.topic import Producer, TopicWriter
from aiogroup.eventlog.watch import Watch

__all__ = ["EventLog"]

DAY_MS: Final = 86_400_000
NOBODY: Final[dict[str, Any]] = {}


class EventLog:
    """Writes each event as one line of JSON, and each interval a sample of each consumer; docs/event-log.md has all.

        log = EventLog("/var/log/billing/events.jsonl")
        consumer = Consumer("orders", group_id="billing", observers=[log])

    One log may serve several consumers. It never makes them wait: a thread writes the files, and lines for which the
    queue has no room are dropped, counted, and reported by a line `events_dropped`. No failure of the log reaches a
    consumer. Call `await log.close()` after the consumers were stopped; otherwise the lines are written at exit.

    Args:
        path: a file whose name gets the host, the process and the time of its beginning, such as
            `events-web1-4711-1790000000000.jsonl`, so that no two processes write one file; or an existing folder.
        topic: the lines go to this topic, by `producer`, in its event loop; not together with `path`.
        producer: the application's `AIOKafkaProducer`, or one with the same `send`. The application starts and stops
            it, and stops it after the log was closed.
        interval_ms: how often each consumer is sampled.
        rotate_bytes: a new file begins before the present one would exceed this size.
        rotate_ms: a new file begins when the present one reaches this age.
        keep: how many files of this host are kept; the oldest are deleted.
        max_queue: how many lines may wait.
        every_event: write the events that come with each heartbeat, commit or merge one by one, too. They are counted
            in samples otherwise.

    Raises:
        ConfigError: neither a path nor a topic with a producer is given, or both are; or a number is below 1 or no int.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        topic: str | None = None,
        producer: Producer | None = None,
        interval_ms: int = 10_000,
        rotate_bytes: int = 67_108_864,
        rotate_ms: int = DAY_MS,
        keep: int = 30,
        max_queue: int = 10_000,
        every_event: bool = False,
    ) -> None:
        numbers = {
            "interval_ms": interval_ms, "rotate_bytes": rotate_bytes, "rotate_ms": rotate_ms, "keep": keep,
            "max_queue": max_queue,
        }  # fmt: skip
        for name, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name}={value!r}: a whole number from 1 on is needed")
        _check_goal(path, topic, producer)
        self._path = None if path is None else Path(path)
        self._topic, self._producer = topic, producer
        self._interval_ms = interval_ms
        self._rotation = (rotate_bytes, rotate_ms, keep)
        self._max_queue = max_queue
        self._every_event = every_event
        self._lines = Lines()
        self._writer = self._make_writer()

    @property
    def dropped_count(self) -> int:
        """How many lines were not written in this process."""
        return self._writer.dropped_count

    def of_consumer(self, consumer: Observed) -> Watch:
        """The observer of one consumer; `Consumer` calls this."""
        return Watch(consumer, self._write, self._on_failed, self._interval_ms, every_event=self._every_event)

    def on_event(self, event: Event) -> None:
        """An event of no consumer, such as one of a service; those of consumers go to their own observers."""
        try:
            self._write(event, NOBODY)
        except Exception:  # noqa: BLE001 (a log must not be left out for one line)
            self._on_failed()

    async def close(self, timeout_ms: int = 5_000) -> bool:
        """Write what waits, and end. Returns whether all was written in that time; later lines are counted only."""
        if isinstance(self._writer, TopicWriter):
            return await self._writer.close(timeout_ms)
        threads = Threads()
        try:
            return await threads.compute(self._writer.close, timeout_ms)
        finally:
            threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Lines.

    def _write(self, event: Event, whose: dict[str, Any]) -> None:
        if os.getpid() != self._lines.pid:  # a forked process has another file, and no thread yet
            self._lines = Lines()
            self._writer = self._make_writer()
        if isinstance(event, EventLoopBlocked) and isinstance(self._writer, FileWriter):
            stood_ms = self._writer.stood_still_ms(event.blocked_ms)
            if 2 * stood_ms >= event.blocked_ms:
                self._put(ProcessStoodStill(stood_ms), whose)
        self._put(event, whose)

    def _put(self, event: Event, whose: dict[str, Any]) -> None:
        self._writer.put(self._lines.of(event, whose, wall_ms(), mono_ms()))

    def _make_writer(self) -> FileWriter | TopicWriter:
        lines = self._lines

        def dropped_line(count: int, total: int) -> bytes:
            return lines.of(EventsDropped(count, total), NOBODY, wall_ms(), mono_ms())

        if self._producer is not None and self._topic is not None:
            key = f"{lines.host}-{lines.pid}".encode()
            return TopicWriter(self._producer, self._topic, key, self._max_queue, dropped_line)
        assert self._path is not None
        return FileWriter(Rotation(self._path, lines.host, *self._rotation), self._max_queue, dropped_line)

    def _on_failed(self) -> None:
        self._writer.drop()


def _check_goal(path: object, topic: object, producer: object) -> None:
    if (path is None) == (topic is None and producer is None):
        raise ConfigError("EventLog: give a path, or a topic and a producer, and not both")
    if path is not None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise ConfigError(f"EventLog: {path!r} is no path")
    elif not isinstance(topic, str) or not topic or not callable(getattr(producer, "send", None)):
        raise ConfigError("EventLog: a topic needs a producer, and a producer a topic: its send(topic, value=, key=)")
