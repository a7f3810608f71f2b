"""Members of a group for tests on real Kafka: one that logs what happens to it, and waiting for conditions."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition

from aiogroup import Consumer
from aiogroup._core.telemetry import events

QUICK = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 200,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 500,
    "metadata_max_age_ms": 2_000,
    "fetch_max_wait_ms": 200,
}
"""Settings for quick rebalances. The session is long enough for two busy cores."""


async def until(condition, seconds=20.0, what=lambda: ""):
    """Return as soon as `condition()` is true; fail after `seconds` with `what()`."""
    ends_at = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends_at, f"not within {seconds} s: {what()}"
        await asyncio.sleep(0.02)
    return found


class Member:
    """A consumer whose loop logs every record, callback and event, in order, in `log` as (what, detail, seconds).

    `hold()` makes the loop keep the record that it gets next in hand until `release()`. `error` is what ended it.
    """

    def __init__(self, cluster, group, *topics, **settings):
        servers = settings.pop("bootstrap_servers", None) or cluster.bootstrap_servers
        settings = {**QUICK, "bootstrap_servers": servers, "group_id": group, **settings}
        self.log = []
        self.records = []
        self.error = None
        self.in_hand = None
        self.at_record = None  # async, called with each record: the application's work
        self.in_callback = None  # async, called with the name of each callback
        self.consumer = Consumer(*topics, listener=self, observers=(self,), **settings)
        self.task = None
        self._go = asyncio.Event()
        self._go.set()

    # What happens to it.

    def _note(self, what, detail):
        self.log.append((what, detail, time.monotonic()))

    def on_event(self, event):
        self._note(type(event).__name__, event)

    async def on_partitions_revoked(self, partitions):
        self._note("revoked", partitions)
        if self.in_callback is not None:
            await self.in_callback("revoked")

    async def on_partitions_assigned(self, partitions):
        self._note("assigned", partitions)
        if self.in_callback is not None:
            await self.in_callback("assigned")

    async def on_partitions_lost(self, partitions):
        self._note("lost", partitions)
        if self.in_callback is not None:
            await self.in_callback("lost")

    # What it does.

    async def start(self):
        await self.consumer.start()
        # `aiter` is called here, because a stop that comes before the task's first step would make it fail there.
        self.task = asyncio.get_running_loop().create_task(self._read(aiter(self.consumer)))
        return self

    async def stop(self, **options):
        self.release()
        try:
            return await self.consumer.stop(**{"timeout_ms": 5_000, **options})
        finally:
            if self.task is not None:
                await asyncio.wait({self.task}, timeout=5)
                self.task.cancel()

    async def _read(self, records):
        try:
            async for record in records:
                self.records.append(record)
                self._note("record", (record.partition, record.offset))
                self.in_hand = record
                await self._go.wait()
                if self.at_record is not None:
                    await self.at_record(record)
                self.in_hand = None
        except Exception as error:  # noqa: BLE001 (whatever it is, the test looks at it)
            self.error = error
            self._note("error", error)

    def hold(self):
        self._go.clear()

    def release(self):
        self._go.set()

    # Questions.

    def count(self, *kinds, since=0):
        names = {getattr(kind, "__name__", kind) for kind in kinds}
        return sum(what in names for what, _, _ in self.log[since:])

    def all(self, kind, since=0):
        name = getattr(kind, "__name__", kind)
        return [detail for what, detail, _ in self.log[since:] if what == name]

    def all_at(self, kind):
        """The times of all entries of this kind."""
        name = getattr(kind, "__name__", kind)
        return [at for what, _, at in self.log if what == name]

    def when(self, kind, since=0):
        """The time of the first entry of this kind."""
        name = getattr(kind, "__name__", kind)
        return next(at for what, _, at in self.log[since:] if what == name)

    @property
    def partitions(self):
        return sorted(tp.partition for tp in self.consumer.assignment())

    @property
    def is_ready(self):
        return self.consumer.health().is_ready

    @property
    def rebalances(self):
        return self.count(events.RebalanceStarted)

    @property
    def is_leader(self):
        return self.all(events.RebalanceCompleted)[-1].is_leader

    def seen(self):
        return {(record.partition, record.offset) for record in self.records}

    def tail(self, lines=25):
        skipped = {"HeartbeatSent", "HeartbeatAcknowledged", "OffsetsCommitted", "record"}
        return "\n".join(f"{at:.3f} {what} {detail}" for what, detail, at in self.log if what not in skipped)[-4_000:]

    async def beats(self, count, seconds=20.0):
        """Wait for `count` more answered heartbeats: a measure of time that suits the membership."""
        since = len(self.log)
        await until(lambda: self.count(events.HeartbeatAcknowledged, since=since) >= count, seconds, self.tail)


@asynccontextmanager
async def running(*members):
    """Start the members, one after the other. In the end stop those that still run, the last first."""
    try:
        for member in members:
            await member.start()
        yield members
    finally:
        for member in reversed(members):
            await member.stop(timeout_ms=2_000)


async def shared_out(partitions_count, *members, seconds=20.0):
    """Wait until the members hold every partition exactly once, and none is rebalancing."""

    def shared():
        held = [number for member in members for number in member.partitions]
        return sorted(held) == list(range(partitions_count)) and all(member.is_ready for member in members)

    await until(shared, seconds, lambda: "\n---\n".join(f"{m.partitions}\n{m.tail()}" for m in members))


async def produce(cluster, topic, partitions_count, count, *, first=0):
    """Produce `count` records to the partitions in turn. Returns their (partition, offset)."""
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
    await producer.start()
    try:
        sent = [
            await producer.send(topic, b"%d" % number, partition=number % partitions_count)
            for number in range(first, first + count)
        ]
        done = await asyncio.gather(*sent)
    finally:
        await producer.stop()
    return {(each.partition, each.offset) for each in done}


def named(topic, *numbers):
    return [TopicPartition(topic, number) for number in numbers]
