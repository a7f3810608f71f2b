"""Joins orders and payments by time while one broker is slow: shows the cost and the benefit of `merged()`.

    pip install '.[devkafka]'            # in the clone
    python examples/ordered_join.py      # starts a Kafka of three nodes, or set KAFKA_BOOTSTRAP_SERVERS

Every payment is made a moment after its order. Read in the order of time, a payment always finds its order; with
`max_task_idle_ms=-1`, which never waits, records from the quick brokers overtake the others.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from aiogroup import Consumer
from aiogroup.devkafka import Cluster
from aiogroup.testing import Proxy

ORDERS_COUNT = 20_000
PARTITIONS = 3
SLOW_NODE = 2
DELAY_MS = 80


async def write(servers: str, orders: str, payments: str) -> None:
    """An order every 2 ms, and its payment 1 ms later, in the partition of the next order's number."""
    now_ms = int(time.time() * 1000)
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=20) as producer:
        for number in range(ORDERS_COUNT):
            key, at_ms = b"%d" % number, now_ms + 2 * number
            await producer.send(orders, key=key, partition=number % PARTITIONS, timestamp_ms=at_ms)
            await producer.send(payments, key=key, partition=(number + 1) % PARTITIONS, timestamp_ms=at_ms + 1)
        await producer.flush()


async def join(servers: str, orders: str, payments: str, max_task_idle_ms: int) -> None:
    """Read both topics by time and match each payment with its order."""
    waiting: set[bytes] = set()
    joined = too_early = inversions = last_ms = count = 0
    settings = {"bootstrap_servers": servers, "group_id": None, "auto_offset_reset": "earliest"}
    async with Consumer(orders, payments, enable_auto_commit=False, **settings) as consumer:
        merged = consumer.merged(max_task_idle_ms)
        async for record in merged:
            inversions += record.timestamp < last_ms
            last_ms = record.timestamp
            if record.topic == orders:
                waiting.add(record.key)
            elif record.key in waiting:
                waiting.discard(record.key)
                joined += 1
            else:
                too_early += 1
            count += 1
            if count == 2 * ORDERS_COUNT:
                break
        print(
            f"max_task_idle_ms={max_task_idle_ms}: {inversions} inversions, {joined} payments joined, "
            f"{too_early} before their order; {merged.late} records late, {merged.enforced} without all partitions",
            flush=True,
        )


@contextmanager
def kafka() -> Iterator[str]:
    """The servers to use: those of the environment, or a Kafka that ends with this program."""
    if servers := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield servers
        return
    with Cluster(nodes=3) as cluster:
        yield cluster.bootstrap_servers


async def main(servers: str) -> None:
    orders, payments = (f"{name}-{uuid4().hex[:8]}" for name in ("orders", "payments"))
    await create_topics(servers, orders, payments)
    await write(servers, orders, payments)
    async with Proxy(servers) as proxy:
        proxy.delay("Fetch", ms=DELAY_MS, node_id=SLOW_NODE)  # records of its partitions come slowly
        for max_task_idle_ms in (-1, 0):
            await join(proxy.bootstrap_servers, orders, payments, max_task_idle_ms)


async def create_topics(servers: str, *topics: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    finally:
        await admin.close()


if __name__ == "__main__":
    with kafka() as found:
        asyncio.run(main(found))
