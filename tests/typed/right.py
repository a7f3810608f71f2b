"""What an application gets right, with everything annotated: a type checker must find nothing."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Collection
from typing import Any, Unpack

from aiogroup import (
    Assignor,
    CommitFailedError,
    Consumer,
    ConsumerConfig,
    ConsumerRebalanceListener,
    ConsumerSettings,
    Event,
    OffsetAndMetadata,
    RebalanceListener,
    Record,
    RecordDeserializationError,
    TopicPartition,
    __version__,
)
from aiogroup.embedded import Broker


class Both(RebalanceListener):
    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        print(sorted(tp.partition for tp in partitions))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        print(len(partitions))


class One:
    async def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        print(lost)


class Moved(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        print(revoked)

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        print(assigned)


class Ears:
    def on_event(self, event: Event) -> None:
        print(event.name, event.fields())


def consumer_of(*topics: str, **settings: Unpack[ConsumerSettings]) -> Consumer:
    """An application's own way to make consumers keeps the names and types of the settings."""
    return Consumer(*topics, listener=One(), **settings)


def from_environment(given: dict[str, Any], assignor: Assignor) -> Consumer:
    Consumer(partition_assignment_strategy=assignor)
    Consumer(partition_assignment_strategy=["range", assignor])
    Consumer(security_protocol="SSL", ssl_context=ssl.create_default_context(), bootstrap_servers=["a:1", "b:2"])
    Consumer(listener=Moved(), observers=[Ears()], value_deserializer=json.loads, max_poll_records=None)
    print(ConsumerConfig.of(group_id="billing").session_timeout_ms + 1)
    return Consumer("orders", **given)


async def read(consumer: Consumer) -> None:
    counts: dict[TopicPartition, int] = {}
    try:
        async for record in consumer:
            counts[record.tp] = counts.get(record.tp, 0) + 1
            offset: int = record.offset
            await consumer.commit({record.tp: offset + 1, TopicPartition("orders", 1): (5, "text")})
            await consumer.commit({record.tp: OffsetAndMetadata(offset + 1, "")})
    except RecordDeserializationError as error:
        tp: TopicPartition = error.tp
        consumer.seek(tp, error.offset + 1)
        print(error.key, error.lane, error.retriable, tp.topic.upper())
    except CommitFailedError as error:
        print({tp.topic for tp in error.not_owned}, error.committed)
    batch = await consumer.getmany(timeout_ms=1_000)
    for tp, records in batch.items():
        last: Record = records[-1]
        print(tp.partition + 1, last.timestamp, consumer.current_lag(tp) or 0)
    found = (await consumer.offsets_for_times(dict.fromkeys(consumer.assignment(), 0))).values()
    print([each.offset for each in found if each is not None])
    consumer.subscribe(["orders"], listener=Both())


def committed_by(broker: Broker, tp: TopicPartition) -> int:
    behind: int = broker.lag("billing").get(tp, 0)
    offset = broker.committed("billing").get(("orders", 0))
    return broker.committed("billing")["orders", 0] + behind if offset is None else offset


version: str = __version__
asyncio.run(read(consumer_of("orders", auto_offset_reset="earliest")))
