"""The records to read, written once for all clients of a scenario, by librdkafka's producer and outside of any run."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from aiogroup.devkafka import Cluster

POOL = 1_000
BATCH_BYTES = 16_384
"""The batch size of Java's and aiokafka's producers; librdkafka's own default is a million."""
IN_TRANSACTION = 1_000
ABORTED_OF = 10
FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Backlog:
    """A topic of `count` records with values of `size` bytes and keys of 8, dealt out to the partitions in turn."""

    topic: str
    partitions: int
    count: int
    size: int
    codec: str = "none"
    batch_bytes: int = BATCH_BYTES
    transactional: bool = False
    """Written in transactions of 1,000 records. Every tenth is aborted, and its records do not count towards
    `count`.
    """

    more_of_first: int = 0
    """So many further records are in partition 0."""

    is_timed: bool = False
    """The timestamp of each record is a millisecond above that of the last."""

    def write(self, cluster: Cluster) -> None:
        cluster.create_topic(self.topic, self.partitions)
        settings: dict[str, str | int] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.type": self.codec,
            "linger.ms": 50,
            "batch.size": self.batch_bytes,
            "acks": 1,
        }
        if self.transactional:
            settings |= {"transactional.id": self.topic, "acks": "all"}
        if self.is_timed:  # a batch that is sent again, for example while there is no leader, keeps its place
            settings |= {"enable.idempotence": "true", "acks": "all"}
        producer = Producer(settings)
        if self.transactional:
            self._write_transactions(producer)
        else:
            self._write(producer, self.count)
            replace(self, partitions=1)._write(producer, self.more_of_first)
        if producer.flush(60):
            raise SystemExit(f"{self.topic}: the broker did not take every record in 60 s")

    def remove(self, cluster: Cluster) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})  # kept: without it its answers are lost
        for done in admin.delete_topics([self.topic]).values():
            done.result(30)

    def _write_transactions(self, producer: Producer) -> None:
        producer.init_transactions(30)
        left, number = self.count, 0
        while left:
            number += 1
            producer.begin_transaction()
            if number % ABORTED_OF == 0:
                self._write(producer, IN_TRANSACTION)
                producer.flush(60)  # otherwise they are dropped unwritten, and the log holds no aborted records
                producer.abort_transaction(30)
                continue
            self._write(producer, min(IN_TRANSACTION, left))
            producer.commit_transaction(30)
            left -= min(IN_TRANSACTION, left)

    def _write(self, producer: Producer, count: int) -> None:
        values, partitions, topic = pool(self.size), self.partitions, self.topic
        first_ms = FIRST_MS if self.is_timed else None
        for number in range(count):
            while True:
                try:
                    key, at_ms = number.to_bytes(8, "big"), 0 if first_ms is None else first_ms + number
                    producer.produce(topic, values[number % POOL], key, number % partitions, timestamp=at_ms)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 10_000 == 0:
                producer.poll(0)


def pool(size: int) -> list[bytes]:
    """Values as services write them: JSON with numbers and ids, which codecs shrink to about a third."""
    rng = random.Random(size)
    values = []
    for number in range(POOL):
        text = ""
        while len(text) < size:
            event = {"id": rng.getrandbits(40), "kind": rng.choice(("click", "view", "order")), "user": f"u{number}"}
            text += json.dumps(event | {"price": rng.randrange(10_000) / 100, "at": 1_700_000_000 + number})
        values.append(text[:size].encode())
    return values
