"""What an application gets wrong, one mistake a line: a type checker must find every line marked, and no other."""

from __future__ import annotations

import asyncio

from aiogroup import Consmer as Misspelt  # mistake
from aiogroup import (
    Consumer,
    ConsumerConfig,
    OffsetAndMetadata,
    RebalanceListener,
    Record,
    RecordDeserializationError,
    TopicPartition,
)
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker


class Deaf:
    """Its callback is misspelt, so that nothing of it would ever be called."""

    def on_partition_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        print(assigned)


class Swapped(RebalanceListener):
    def on_partitions_revoked(self, revoked: int) -> None:  # mistake
        print(revoked)


def committed_by(broker: Broker) -> int:
    broker.committed("billing").get("orders")  # mistake
    return broker.committed("billing").get(("orders", 0))  # mistake


class AsyncRead:
    async def read(self, consumer: Consumer) -> None:
        print(consumer)


class Mute:
    def on_events(self, event: object) -> None:
        print(event)


def handle(record: Record) -> int:
    print(record.tp.topik)  # mistake
    print(record.ofset)  # mistake
    topic: int = record.tp.topic  # mistake
    return topic


async def settings() -> None:
    Consumer("orders", sesion_timeout_ms=10_000)  # mistake
    Consumer("orders", session_timeout_ms="10000")  # mistake
    Consumer("orders", enable_auto_commit="no")  # mistake
    Consumer("orders", value_deserializer="json")  # mistake
    Consumer("orders", listener=Deaf())  # mistake
    Consumer("orders", observers=[Mute()])  # mistake
    ConsumerConfig.of(group="billing")  # mistake
    ConsumerConfig(group="billing")  # mistake


async def read(consumer: Consumer, tp: TopicPartition) -> None:
    consumer.commit()  # mistake
    consumer.seek("orders", 5)  # mistake
    await consumer.commit({tp: "5"})  # mistake
    await consumer.commit({tp: OffsetAndMetadata("5", "")})  # mistake
    behind: int = consumer.current_lag(tp)  # mistake
    first: str = (await consumer.beginning_offsets([tp]))[tp]  # mistake
    found = await consumer.offsets_for_times({tp: 0})
    print(found[tp].offset, behind, first)  # mistake
    consumer.subscribe(["orders"], listener=Deaf())  # mistake
    for record in consumer:  # mistake
        handle(record)
    for record in await consumer.getmany(timeout_ms=1_000):
        handle(record)  # mistake
    print(TopicPartition("orders", "0"))  # mistake
    try:
        handle(await consumer.getone())
    except RecordDeserializationError as error:
        number: int = error.tp  # mistake
        print(error.ofset, number)  # mistake
        consumer.seek(error.tp, error.key)  # mistake


def orders() -> Consumer[str, int]:
    return Consumer("orders", key_deserializer=bytes.decode, value_deserializer=int)


async def read_numbers(consumer: Consumer[str, int], tp: TopicPartition) -> None:
    async for record in consumer:
        print(record.key.upper())  # mistake
        print(record.value + 1)  # mistake
        kept: Record[str, str] = record  # mistake
        print(kept)
    async for record in consumer.merged(timestamp=lambda record: record.value):  # mistake
        handle(record)  # mistake
    batch = await consumer.getmany(timeout_ms=1_000)
    print([each.value.upper() for each in batch[tp]])  # mistake
    await read(consumer, tp)  # mistake
    await read_numbers(Consumer("orders"), tp)  # mistake
    await read_numbers(Consumer("orders", value_deserializer=int), tp)  # mistake
    Consumer("orders", value_deserializer=str.upper)  # mistake
    Record(tp, 0, 0, 0, "a", 1, ()).value.upper()  # mistake


def read_at_once(consumer: Consumer) -> None:
    print(consumer)


async def read_plain(consumer: Consumer) -> None:
    print(consumer)


async def read_numbers_alone(consumer: Consumer[str, int]) -> None:
    print(consumer)


Service(Loop(lambda: Consumer("orders"), read_at_once))  # mistake
Service(Loop(lambda: Consumer("orders"), AsyncRead().read))  # mistake
Service(orders=Loop(orders, read_plain))  # mistake
Service(orders=Loop(lambda: Consumer("orders"), read_numbers_alone))  # mistake
asyncio.run(settings())
print(Misspelt)
