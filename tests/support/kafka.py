"""Shared by tests of the consumer on the embedded broker and on Kafka: a fresh topic and group, and an observer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from aiogroup import Consumer, Event, Records, TopicPartition
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.devkafka import Cluster

QUICK: dict[str, Any] = {
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 200,
    "max_poll_interval_ms": 30_000,
    "auto_commit_interval_ms": 50,
    "auto_offset_reset": "earliest",
    "request_timeout_ms": 10_000,
    "default_api_timeout_ms": 10_000,
    "fetch_max_wait_ms": 100,
}
"""Settings with short intervals, so that a test sees within a moment what takes longer in production."""


async def eventually(condition: Callable[[], Any], within_s: float = 10) -> Any:
    """Return the result of `condition` (sync or async) as soon as it is true; fail after `within_s`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert loop.time() < until, f"not so within {within_s} s"
        await asyncio.sleep(0.01)


async def turns(count: int = 20) -> None:
    """Let the loop run some turns, so that every task that is ready makes progress."""
    for _ in range(count):
        await asyncio.sleep(0)


class Ears:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def heard(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]


class Listener:
    """A rebalance listener that keeps its calls; `on_revoked`, `on_assigned`, `on_lost` are awaited inside."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self.inside: dict[str, Callable[[Collection[TopicPartition]], Any]] = {}

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._call("revoked", revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._call("assigned", assigned)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        await self._call("lost", lost)

    async def _call(self, name: str, partitions: Collection[TopicPartition]) -> None:
        self.calls.append((name, frozenset(partitions)))
        if name in self.inside:
            await self.inside[name](partitions)

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@dataclass
class Place:
    """A topic and a group that nobody else uses."""

    cluster: Cluster
    topic: str
    group: str
    partitions: int = 1

    def tp(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """A consumer of the topic in the group, not started; `group_id=None` for one without."""
        given = {"bootstrap_servers": self.cluster.bootstrap_servers, "group_id": self.group, **QUICK, **settings}
        return Consumer(*(topics or (self.topic,)), **given)

    def unsubscribed(self, **settings: Any) -> Consumer:
        given = {"bootstrap_servers": self.cluster.bootstrap_servers, "group_id": self.group, **QUICK, **settings}
        return Consumer(**given)

    @asynccontextmanager
    async def producer(self, **settings: Any):
        producer = AIOKafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, **settings)
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()

    async def produce(self, values: Iterable[object], partition: int = 0) -> None:
        """Append `str(value)` for each value."""
        async with self.producer() as producer:
            for value in values:
                await producer.send(self.topic, str(value).encode(), partition=partition)
            await producer.flush()

    @asynccontextmanager
    async def admin(self):
        admin = AIOKafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def committed(self, partition: int = 0) -> int | None:
        """The group's committed offset, read by another client."""
        async with self.admin() as admin:
            found = await admin.list_consumer_group_offsets(self.group)
        kept = found.get(self.tp(partition))
        return None if kept is None or kept.offset < 0 else kept.offset

    async def committed_is(self, *offsets: int) -> bool:
        """Whether these are the committed offsets of the partitions from 0 on."""
        async with self.admin() as admin:
            found = await admin.list_consumer_group_offsets(self.group)
        return all(self.tp(at) in found and found[self.tp(at)].offset == each for at, each in enumerate(offsets))

    # A broker answers these for the controller, and learns of the change a moment later. Each call waits for that.

    async def add_partitions(self, total: int) -> None:
        async with self.admin() as admin:
            await admin.create_partitions({self.topic: NewPartitions(total)})
            await eventually(lambda: self._is_led(admin, total))

    async def delete(self) -> None:
        """Delete the topic."""
        async with self.admin() as admin:
            await admin.delete_topics([self.topic])

            async def is_gone() -> bool:
                (found,) = await admin.describe_topics([self.topic])
                return found["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

            await eventually(is_gone)

    async def make(self, partitions: int = 1) -> None:
        """Create the topic again."""
        async with self.admin() as admin:

            async def is_made() -> bool:
                answer = await admin.create_topics([NewTopic(self.topic, partitions, 1)])
                return answer.topic_errors[0][1] == ErrorCode.NONE

            await eventually(is_made)
            await eventually(lambda: self._is_led(admin, partitions))

    async def _is_led(self, admin: AIOKafkaAdminClient, total: int) -> bool:
        (found,) = await admin.describe_topics([self.topic])
        return sum(each["leader"] >= 0 for each in found["partitions"]) == total


async def take(consumer: Consumer, count: int, within_s: float = 10) -> list[str]:
    """The values of the next `count` records; the last one stays in hand."""
    async with asyncio.timeout(within_s):
        return [(await consumer.getone()).value.decode() for _ in range(count)]


async def take_batch(consumer: Consumer, count: int) -> Records:
    """One batch of exactly `count` records, which must have been produced before."""
    batch = await consumer.getmany(timeout_ms=10_000, max_records=count)
    assert batch.count == count
    return batch


def values(batch: Records) -> list[str]:
    return [record.value.decode() for record in batch.all()]
