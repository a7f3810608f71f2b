"""An application that takes its names from aiokafka and its consumer from aiogroup: nothing to find."""

from __future__ import annotations

from aiokafka import ConsumerRebalanceListener, TopicPartition  # type: ignore[import-untyped]
from aiokafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from aiogroup import Consumer as AIOKafkaConsumer


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        print(revoked)

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        print(assigned)


async def read() -> None:
    tp = TopicPartition("orders", 0)
    consumer = AIOKafkaConsumer("orders", listener=Listener())
    consumer.subscribe(["orders"], listener=Listener())
    consumer.seek(tp, 5)
    await consumer.commit({tp: OffsetAndMetadata(5, "")})
    seen: dict[TopicPartition, int] = {}
    async for record in consumer:
        seen[record.tp] = record.offset
