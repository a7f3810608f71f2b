"""Sends lines to a topic with the application's own producer, in a task."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from aiogroup._runtime.loop.clock import timeout_ms
from aiogroup._runtime.loop.supervisor import start_task

__all__ = ["Producer", "TopicWriter"]

_logger: Final = logging.getLogger("aiogroup")


class Producer(Protocol):
    """What is used of aiokafka's producer, or of one like it."""

    async def send(self, topic: str, value: bytes | None = None, key: bytes | None = None) -> Awaitable[Any]: ...


class TopicWriter:
    """A bounded queue and the task that empties it, in the event loop of the consumers and the producer.

    All lines have the key of their process, so that they stay in order. A line that the producer refuses is counted;
    the producer itself repeats what fails.
    """

    def __init__(
        self, producer: Producer, topic: str, key: bytes, max_queue: int, dropped_line: Callable[[int, int], bytes]
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._key = key
        self._max_queue = max_queue
        self._dropped_line = dropped_line
        self._queue: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Future[Any]] = set()
        self._told_count = 0
        self._is_failing = False
        self._is_closed = False
        self.dropped_count = 0

    def put(self, line: bytes) -> None:
        """Send this line in a while, or count it as dropped.

        Raises:
            RuntimeError: no event loop runs here; the line was not taken.
        """
        if self._is_closed or len(self._queue) + len(self._under_way) >= self._max_queue:
            self.dropped_count += 1
            return
        if self._task is None or self._task.done():
            self._task = start_task("event log", self._send)
        self._queue.append(line)

    def drop(self, count: int = 1) -> None:
        self.dropped_count += count

    async def close(self, limit_ms: int) -> bool:
        """Wait until everything is sent and acknowledged. Returns whether it was in time; the producer stays open."""
        self._is_closed = True
        try:
            async with timeout_ms(limit_ms):
                if self._task is not None:
                    await asyncio.wait({self._task})
                while self._under_way:
                    await asyncio.wait(set(self._under_way))
        except TimeoutError:
            if self._task is not None:
                self._task.cancel()
                await asyncio.sleep(0)  # it counts the line that it has in hand
            self.dropped_count += len(self._queue)
            self._queue.clear()
            return False
        return True

    async def _send(self) -> None:
        while self._queue:
            if self.dropped_count > self._told_count and not self._is_failing:
                line = self._dropped_line(self.dropped_count - self._told_count, self.dropped_count)
                self._told_count = self.dropped_count
            else:
                line = self._queue.popleft()
            try:
                sent = await self._producer.send(self._topic, value=line, key=self._key)
            except asyncio.CancelledError:
                self.dropped_count += 1
                raise
            except Exception as error:  # noqa: BLE001 (whatever it raises, the consumer goes on)
                self._fail(error)
            else:
                if isinstance(sent, asyncio.Future):
                    self._under_way.add(sent)
                    sent.add_done_callback(self._on_sent)

    def _on_sent(self, sent: asyncio.Future[Any]) -> None:
        self._under_way.discard(sent)
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled() or error is not None:
            self._fail(error)
        else:
            self._is_failing = False

    def _fail(self, error: BaseException | None) -> None:
        self.dropped_count += 1
        if not self._is_failing:
            self._is_failing = True
            told = "cancelled" if error is None else type(error).__name__
            _logger.warning("event_log_failed: the topic %s: %s; lines are counted as dropped", self._topic, told)
