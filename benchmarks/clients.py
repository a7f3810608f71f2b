"""The clients, all with the same few methods. Settings are the client's defaults, except those in `settings` here.

`drain` is each client's own tight loop, as in its documentation; it reads every record's value. `some` is for the slow
scenarios.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.meter import Meter

BATCH = 500
NOTHING_PENDING = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1_000_000_000}
WAIT_S = 1.0
"""How long a call waits for records, for clients that need a time; with a backlog no call waits."""


@dataclass(frozen=True)
class Plan:
    """What a run reads, and the settings in which it differs from the clients' defaults."""

    servers: str
    topics: tuple[str, ...]
    group: str
    reset: str = "earliest"
    auto_commit: bool = True
    read_committed: bool = False
    check_crcs: bool = False
    """For confluent only, which does not check by default; the others do."""


class Client(abc.ABC):
    """One consumer of one library, in one way of reading.

    Creating it imports its library, which is not measured. `start` does the rest.
    """

    has_loop = True
    """Whether it runs in an event loop, where it can hold up a ticker."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @abc.abstractmethod
    async def start(self) -> None: ...

    @abc.abstractmethod
    async def stop(self) -> None: ...

    @abc.abstractmethod
    async def drain(self, meter: Meter) -> None: ...

    async def some(self) -> Sequence[bytes]:
        """The values of the next records; empty if none came for a while."""
        raise NotImplementedError(type(self).__name__)

    async def commit(self) -> None:
        raise NotImplementedError(type(self).__name__)


class _Asyncio(Client):
    """aiokafka and aiogroup, whose method names are the same."""

    kind: Any
    consumer: Any
    more: Mapping[str, Any] = {}

    async def start(self) -> None:
        settings: dict[str, Any] = {
            **self.more,
            "bootstrap_servers": self.plan.servers,
            "group_id": self.plan.group,
            "auto_offset_reset": self.plan.reset,
            "enable_auto_commit": self.plan.auto_commit,
        }
        if self.plan.read_committed:
            settings["isolation_level"] = "read_committed"
        self.consumer = self.kind(*self.plan.topics, **settings)
        await self.consumer.start()

    async def stop(self) -> None:
        await self.consumer.stop()

    async def commit(self) -> None:
        await self.consumer.commit()


class _AsyncFor(_Asyncio):
    _records: Any = None

    async def drain(self, meter: Meter) -> None:
        count = size = 0
        mark = 1
        async for record in self.consumer:
            count += 1
            size += len(record.value)
            if count >= mark and not (mark := meter.reached(count, size)):
                return

    async def some(self) -> Sequence[bytes]:
        # One iterator for all calls: aiogroup delivers a record that a loop left in hand again to the next loop.
        if self._records is None:
            self._records = aiter(self.consumer)
        return ((await anext(self._records)).value,)


class _GetMany(_Asyncio):
    async def ask(self) -> Any:
        return await self.consumer.getmany(timeout_ms=int(WAIT_S * 1000), max_records=BATCH)

    async def drain(self, meter: Meter) -> None:
        count = size = 0
        mark = 1
        while mark:
            for records in (await self.ask()).values():
                for record in records:
                    count += 1
                    size += len(record.value)
            if count >= mark:
                mark = meter.reached(count, size)

    async def some(self) -> Sequence[bytes]:
        return [record.value for records in (await self.ask()).values() for record in records]


class _Aiokafka(_Asyncio):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        from aiokafka import AIOKafkaConsumer

        self.kind = AIOKafkaConsumer


class _Aiogroup(_Asyncio):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        from aiogroup import Consumer

        self.kind = Consumer

    async def stop(self) -> None:
        await self.consumer.stop(timeout_ms=2_000)


class AiokafkaFor(_AsyncFor, _Aiokafka):
    pass


class AiokafkaMany(_GetMany, _Aiokafka):
    pass


class AiogroupFor(_AsyncFor, _Aiogroup):
    pass


class AiogroupMerged(_Aiogroup):
    async def drain(self, meter: Meter) -> None:
        count = size = 0
        mark = 1
        merged = self.consumer.merged()
        async for record in merged:
            count += 1
            size += len(record.value)
            if count >= mark and not (mark := meter.reached(count, size)):
                break
        if merged.late:
            raise SystemExit(f"{merged.late} of {count} records were out of order")


class AiogroupMany(_GetMany, _Aiogroup):
    pass


class ModeFor(AiogroupFor):
    """KIP-333's mode with nothing pending: the live lane begins at the group's committed offset."""

    more = NOTHING_PENDING


class ModeMany(AiogroupMany):
    more = NOTHING_PENDING


class AiogroupPoll(_GetMany, _Aiogroup):
    async def ask(self) -> Any:
        return await self.consumer.poll()


class _Confluent(Client):
    """librdkafka. Errors come as messages whose value is a text, which the check of the total size would detect."""

    kind: Any
    consumer: Any

    def settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.plan.servers,
            "group.id": self.plan.group,
            "auto.offset.reset": self.plan.reset,
            "enable.auto.commit": self.plan.auto_commit,
            "check.crcs": self.plan.check_crcs,
            # By default it waits a second when its queue is full, and a drain would be idle most of the time.
            "fetch.queue.backoff.ms": 1,
        }


class ConfluentSync(_Confluent):
    """A plain loop in a process of its own, with no event loop that it could hold up."""

    has_loop = False

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        from confluent_kafka import Consumer

        self.kind = Consumer

    async def start(self) -> None:
        self.consumer = self.kind(self.settings())
        self.consumer.subscribe(list(self.plan.topics))

    async def stop(self) -> None:
        self.consumer.close()

    async def drain(self, meter: Meter) -> None:
        consume = self.consumer.consume
        count = size = 0
        mark = 1
        while mark:
            for message in consume(BATCH, WAIT_S):
                count += 1
                size += len(message.value())
            if count >= mark:
                mark = meter.reached(count, size)

    async def some(self) -> Sequence[bytes]:
        # `consume` waits until it has the whole number asked for: one record at a time has the least latency.
        message = self.consumer.poll(WAIT_S)
        return () if message is None or message.error() else (message.value(),)

    async def commit(self) -> None:
        self.consumer.commit(asynchronous=False)


class ConfluentAsync(_Confluent):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        from confluent_kafka.aio import AIOConsumer

        self.kind = AIOConsumer

    async def start(self) -> None:
        self.consumer = self.kind(self.settings())
        await self.consumer.subscribe(list(self.plan.topics))

    async def stop(self) -> None:
        await self.consumer.close()

    async def drain(self, meter: Meter) -> None:
        consume = self.consumer.consume
        count = size = 0
        mark = 1
        while mark:
            for message in await consume(BATCH, WAIT_S):
                count += 1
                size += len(message.value())
            if count >= mark:
                mark = meter.reached(count, size)

    async def some(self) -> Sequence[bytes]:
        message = await self.consumer.poll(WAIT_S)
        return () if message is None or message.error() else (message.value(),)

    async def commit(self) -> None:
        await self.consumer.commit(asynchronous=False)


def _floor(name: str) -> Callable[[Plan], Client]:
    def make(plan: Plan) -> Client:
        from benchmarks import floors

        kind: Callable[[Plan], Client] = getattr(floors, name)
        return kind(plan)

    return make


AIOKAFKA_FOR, AIOKAFKA_MANY = "aiokafka async for", "aiokafka getmany(500)"
AIO_CONSUMER, CONSUMER = "AIOConsumer.consume(500)", "Consumer.consume(500)"
FLOOR_OBJECTS, FLOOR_DECODE, FLOOR_HEAD = "floor: async for", "floor: C decode only", "floor: at the head"
FOR, MANY, POLL = "aiogroup async for", "aiogroup getmany(500)", "aiogroup poll()"
MERGED = "aiogroup merged()"

CLIENTS: dict[str, Callable[[Plan], Client]] = {
    AIOKAFKA_FOR: AiokafkaFor,
    AIOKAFKA_MANY: AiokafkaMany,
    AIO_CONSUMER: ConfluentAsync,
    CONSUMER: ConfluentSync,
    FLOOR_OBJECTS: _floor("Objects"),
    FLOOR_DECODE: _floor("Decode"),
    FOR: AiogroupFor,
    MANY: AiogroupMany,
    POLL: AiogroupPoll,
    MERGED: AiogroupMerged,
}
ON_FOR, ON_MANY = "aiogroup async for, the mode on", "aiogroup getmany(500), the mode on"
MODES: dict[str, Callable[[Plan], Client]] = {ON_FOR: ModeFor, ON_MANY: ModeMany}
"""Measured beside the same client without the mode (`recovering.py`), not beside the others."""
FLOORS = (FLOOR_OBJECTS, FLOOR_DECODE)
HEADS: dict[str, Callable[[Plan], Client]] = {FLOOR_HEAD: _floor("Head")}
"""They read only what comes, no backlog."""


def make(name: str, plan: Plan) -> Client:
    return (CLIENTS | MODES | HEADS)[name](plan)
