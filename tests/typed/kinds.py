"""Keys and values have the types of the deserializers, on each way to read: a type checker must find nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypedDict, Unpack, assert_type

from faststream import FastStream

from aiogroup import (
    Consumer,
    ConsumerSettings,
    Merged,
    RebalanceListener,
    Record,
    Records,
    SettingsBesideDeserializers,
    TimestampError,
    TopicPartition,
)
from aiogroup.asgi import Loop, Service
from aiogroup.dead_letters import DeadLetters
from aiogroup.embedded import Broker
from aiogroup.faststream import KafkaBroker
from aiogroup.prometheus import exposition


@dataclasses.dataclass
class Order:
    customer: str
    amount: int

    @classmethod
    def read(cls, raw: bytes) -> Order:
        return cls(**json.loads(raw))


def orders(group_id: str = "billing") -> Consumer[str, Order]:
    return Consumer("orders", group_id=group_id, key_deserializer=bytes.decode, value_deserializer=Order.read)


# What is made.

assert_type(Consumer("orders"), Consumer[bytes, bytes])
assert_type(Consumer("orders", group_id="billing", key_deserializer=None), Consumer[bytes, bytes])
assert_type(Consumer("orders", value_deserializer=json.loads), Consumer[bytes, Any])
assert_type(Consumer("orders", value_deserializer=int, key_deserializer=bytes.decode), Consumer[str, int])
assert_type(Consumer("orders", value_deserializer=lambda raw: raw.decode()), Consumer[bytes, str])
assert_type(Consumer("orders", value_deserializer=Order.read, observers=[]), Consumer[bytes, Order])
assert_type(
    Consumer[str, Order]("orders", key_deserializer=bytes.decode, value_deserializer=Order.read), Consumer[str, Order]
)


# Ways to read.


async def read_plain(consumer: Consumer) -> None:
    assert_type(consumer, Consumer[bytes, bytes])
    record = await consumer.getone()
    assert_type(record.key, bytes | None)
    assert_type(record.value, bytes | None)


async def read_json(consumer: Consumer[bytes, Any]) -> None:
    async for record in consumer:
        assert_type(record.key, bytes | None)
        if record.value is not None:
            print(record.value["amount"])


async def read_each(consumer: Consumer[str, Order]) -> None:
    async for record in consumer:
        assert_type(record, Record[str, Order])
        assert_type(record.key, str | None)
        assert_type(record.value, Order | None)
        if record.value is not None:
            assert_type(record.value.amount, int)
    assert_type(await anext(aiter(consumer)), Record[str, Order])
    assert_type(await anext(consumer), Record[str, Order])


async def read_one(consumer: Consumer[str, Order], tp: TopicPartition) -> None:
    assert_type(await consumer.getone(), Record[str, Order])
    assert_type(await consumer.getone(tp), Record[str, Order])


async def read_many(consumer: Consumer[str, Order], tp: TopicPartition) -> None:
    batch = await consumer.getmany(tp, timeout_ms=1_000)
    assert_type(batch, Records[str, Order])
    assert_type(batch[tp], list[Record[str, Order]])
    assert_type(batch.get(tp), list[Record[str, Order]] | None)
    for record in batch.all():
        assert_type(record, Record[str, Order])
    for at, records in (await consumer.poll()).items():
        assert_type(at, TopicPartition)
        assert_type(records, list[Record[str, Order]])


async def read_by_time(consumer: Consumer[str, Order]) -> None:
    def at_of(record: Record[str, Order]) -> int:
        return record.timestamp if record.value is None else record.value.amount

    def skip(record: Record[str, Order], error: TimestampError) -> None:
        print(record.key, error)

    merged = consumer.merged(timestamp=at_of, on_bad_timestamp=skip)
    assert_type(merged, Merged[str, Order])
    async for record in merged:
        assert_type(record, Record[str, Order])
    consumer.merged(timestamp=lambda record: 0 if record.value is None else record.value.amount)


# What takes consumers and records.


class Counts(RebalanceListener):
    """Follows its consumer, which it needs for `seek`."""

    def __init__(self) -> None:
        self.consumer: Consumer[str, Order] = Consumer(
            "orders", listener=self, key_deserializer=bytes.decode, value_deserializer=Order.read
        )

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        for tp in assigned:
            self.consumer.seek(tp, 0)


class OrderConsumer(Consumer[str, Order]):
    """A consumer of one's own."""

    def __init__(self, **settings: Unpack[ConsumerSettings]) -> None:
        super().__init__("orders", **settings)


class JsonConsumer(Consumer[bytes, Order]):
    """A consumer of one's own that says what reads the values."""

    def __init__(self, *topics: str, **settings: Unpack[SettingsBesideDeserializers]) -> None:
        super().__init__(*topics, value_deserializer=Order.read, **settings)


def of_orders(**settings: Unpack[SettingsBesideDeserializers]) -> Consumer[bytes, Order]:
    return Consumer("orders", value_deserializer=Order.read, **settings)


async def give_up(consumer: Consumer[str, Order]) -> None:
    async with DeadLetters(consumer) as dead_letters:
        async for record in consumer:
            try:
                await handle(record)
            except ValueError as error:
                await dead_letters.send(record, error)


class Loud:
    """Observes records of any consumer."""

    def on_event(self, event: object) -> None:
        print(event)

    def begin_record(self, record: Record[Any, Any], whose: object) -> Callable[[str | None], object]:
        print(record.value, whose)
        return print


class Mine(TypedDict, total=False):
    group_id: str
    session_timeout_ms: int


def by_settings(**settings: Unpack[ConsumerSettings]) -> Consumer[Any, Any]:
    return Consumer("orders", **settings)


def by_mine(mine: Mine, given: dict[str, Any]) -> None:
    assert_type(Consumer("orders", **mine), Consumer[bytes, bytes])
    assert_type(Consumer("orders", value_deserializer=Order.read, **mine), Consumer[bytes, Order])
    plain: Consumer = Consumer("orders", **given)
    typed: Consumer[str, Order] = Consumer("orders", **given)
    print(plain, typed)


async def handle(record: Record[str, Order]) -> None:
    print(record.value)


async def handle_nones(record: Record[str | None, Order | None]) -> None:
    print(record.value)


async def each(consumer: Consumer[str, Order], do: Callable[[Record[str, Order]], Awaitable[None]]) -> None:
    async for record in consumer:
        await do(record)


def ends(consumers: Iterable[Consumer[object, object]]) -> list[int]:
    return [lag or 0 for consumer in consumers for lag in consumer.lags().values()]


async def pass_on(own: OrderConsumer) -> None:
    await each(orders(), handle)
    await each(own, handle_nones)
    print(ends([orders(), own]), await exposition([orders(), Consumer("orders")]))
    await give_up(own)
    print(ends([JsonConsumer("orders", group_id="billing"), of_orders(session_timeout_ms=45_000)]))


async def read_own(consumer: OrderConsumer) -> None:
    assert_type((await consumer.getone()).value, Order | None)


service = Service(
    orders=Loop(orders, read_each),
    plain=Loop(lambda: Consumer("orders"), read_plain),
    json=Loop(lambda: Consumer("orders", value_deserializer=json.loads), read_json),
    typed=Loop(lambda: Consumer("orders", key_deserializer=bytes.decode, value_deserializer=Order.read), read_each),
    own=Loop(OrderConsumer, read_own),
)
assert_type(service["orders"].consumer, Consumer[Any, Any] | None)


# Beside.


def at_offset(broker: Broker) -> None:
    committed = broker.committed("billing").get(("orders", 0))
    print(0 if committed is None else committed + 1, broker.committed("billing").get(("orders", 0), 0) + 1)


def made(tp: TopicPartition) -> None:
    """Records for the tests of an application."""
    assert_type(Record(tp, 0, 0, 0, "ada", Order("ada", 5), ()), Record[str, Order])
    tombstone: Record[str, Order] = Record(tp, 0, 0, 0, "ada", None, ())
    print(tombstone)


broker = KafkaBroker("localhost:9092", consumer_settings={"heartbeat_thread": True}, observers=[Loud()])
app = FastStream(broker)


@broker.subscriber("orders", group_id="billing")
async def bill(order: Order) -> None:
    print(order)
