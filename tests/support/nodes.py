"""Shared by tests that end nodes of a cluster: finding the coordinator, constant load, and bringing nodes back."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError


def bring_back(cluster):
    for node in cluster.nodes:
        if node.is_paused:
            node.resume()
        if not node.is_running:
            node.start(wait=False)
    cluster.await_ready()


async def coordinator_of(cluster):
    """The node that coordinates all groups: the leader of the only partition of the offsets topic."""
    live = [f"127.0.0.1:{node.port}" for node in cluster.nodes if node.is_running and not node.is_paused]
    admin = AIOKafkaAdminClient(bootstrap_servers=live)
    await admin.start()
    try:
        number = await admin.find_coordinator("any")
    finally:
        await admin.close()
    return next(node for node in cluster.nodes if node.node_id == number)


class Acknowledged(set):
    """A set of (partition, offset), with the last offset of each partition and the time when it came (`time.time`)."""

    def __init__(self):
        super().__init__()
        self.last = {}

    def note(self, partition, offset):
        self.add((partition, offset))
        self.last[partition] = (offset, time.time())


@asynccontextmanager
async def load(cluster, topic, partitions_count):
    """Produce fifty records a second, one to each partition at a time, so that few requests carry them.

    Yields the records that two in-sync replicas have acknowledged, as `Acknowledged`.
    """
    acknowledged = Acknowledged()

    def count(sent):
        if not sent.cancelled() and not isinstance(sent.exception(), KafkaError):
            acknowledged.note(sent.result().partition, sent.result().offset)

    async def send():
        number = 0
        while True:
            sent = await producer.send(topic, b"%d" % number, partition=number % partitions_count)
            sent.add_done_callback(count)
            number += 1
            if not number % partitions_count:
                await asyncio.sleep(0.02 * partitions_count)

    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", request_timeout_ms=10_000)
    await producer.start()
    sending = asyncio.get_running_loop().create_task(send())
    try:
        yield acknowledged
    finally:
        sending.cancel()
        await asyncio.wait({sending})
        await producer.stop()
        if not sending.cancelled():
            sending.result()  # raises the error that ended it too soon
