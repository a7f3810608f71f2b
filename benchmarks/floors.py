"""Two lower bounds for any asyncio client in Python: one socket, aiokafka's connection and C decoder, and nothing else.

They have no group, commit no offsets, handle no errors and read one topic. The next fetch is under way while records
are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka.conn import create_conn
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.memory_records import MemoryRecords

from benchmarks.clients import Client, Plan
from benchmarks.meter import Meter

FETCH_BYTES = 8 * 2**20
PARTITION_BYTES = 2**20
RECORDS_PER_TURN = 256


@dataclass(slots=True)
class Object:
    """The one object per record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any


class _Floor(Client):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._offsets: dict[int, int] = {}
        self._next: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        host, port = self.plan.servers.split(",")[0].rsplit(":", 1)
        self._socket = await create_conn(host, int(port))
        metadata = await self._socket.send(MetadataRequest(list(self.plan.topics)))
        self._offsets = {partition: 0 for _, _, _, parts in self._topics(metadata) for partition in parts}

    async def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._socket.close()

    def _topics(self, metadata: Any) -> Iterator[tuple[int, str, bool, list[int]]]:
        for error, topic, is_internal, partitions in metadata.topics:
            yield error, topic, is_internal, [partition for _, partition, *_ in partitions]

    def _fetch(self) -> asyncio.Task[Any]:
        # In turns: a partition that was just served comes last, otherwise the first ones would fill every answer.
        wanted = [(partition, offset, PARTITION_BYTES) for partition, offset in self._offsets.items()]
        request = FetchRequest(500, 1, FETCH_BYTES, 0, [(self.plan.topics[0], wanted)])
        return asyncio.get_running_loop().create_task(self._send(request))

    async def _send(self, request: FetchRequest) -> Any:
        return await self._socket.send(request)

    async def pieces(self) -> AsyncIterator[tuple[int, list[Any]]]:
        """Every partition's batches, not decoded; the next position is read from their headers."""
        self._next = self._fetch()
        while True:
            answer = await self._next
            found = []
            for _, partitions in answer.topics:
                for partition, error, *_, data in partitions:
                    if error:
                        raise SystemExit(f"the floor got error {error} for partition {partition}")
                    batches = list(_batches(MemoryRecords(data))) if data else []
                    if batches:
                        del self._offsets[partition]
                        self._offsets[partition] = batches[-1].next_offset
                        found.append((partition, batches))
            self._next = self._fetch()
            for each in found:
                yield each


def _batches(records: Any) -> Iterator[Any]:
    while records.has_next():
        yield records.next_batch()


class Objects(_Floor):
    """`async for` over one slotted object per record."""

    async def _records(self) -> AsyncIterator[Object]:
        topic, in_turn = self.plan.topics[0], 0
        async for partition, batches in self.pieces():
            for batch in batches:
                if not batch.validate_crc():
                    raise SystemExit("the floor read a corrupt batch")
                for each in batch:
                    yield Object(topic, partition, each.offset, each.timestamp, each.key, each.value, each.headers)
                    in_turn += 1
                    if in_turn >= RECORDS_PER_TURN:
                        in_turn = 0
                        await asyncio.sleep(0)

    async def drain(self, meter: Meter) -> None:
        count = size = 0
        mark = 1
        async for record in self._records():
            count += 1
            size += len(record.value or b"")
            if count >= mark and not (mark := meter.reached(count, size)):
                return


class Decode(_Floor):
    """aiokafka's decoder alone, without objects of our own."""

    async def drain(self, meter: Meter) -> None:
        count = size = 0
        mark = 1
        async for _, batches in self.pieces():
            for batch in batches:
                if not batch.validate_crc():
                    raise SystemExit("the floor read a corrupt batch")
                for record in batch:
                    count += 1
                    size += len(record.value)
                if count >= mark and not (mark := meter.reached(count, size)):
                    return
            await asyncio.sleep(0)
