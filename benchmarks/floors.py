"""Lower bounds for any asyncio client in Python: one socket, aiokafka's C decoder, and as little else as possible.

They have no group, commit no offsets, handle no errors and read one topic. The next fetch is under way while records
are read.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.conn import create_conn
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
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


class Head(_Floor):
    """At the head of the log: a bare asyncio protocol. The request is packed and the answer cut by hand."""

    async def start(self) -> None:
        await super().start()
        wanted = [(partition, -1) for partition in self._offsets]
        answer = await self._socket.send(OffsetRequest(-1, 0, [(self.plan.topics[0], wanted)]))
        for _, partitions in answer.topics:
            for partition, error, _, offset, *_ in partitions:
                if error:
                    raise SystemExit(f"the floor got error {error} for partition {partition}")
                self._offsets[partition] = offset
        host, port = self.plan.servers.split(",")[0].rsplit(":", 1)
        loop = asyncio.get_running_loop()
        _, self._wire = await loop.create_connection(lambda: _Wire(self.plan.topics[0], self._offsets), host, int(port))

    async def stop(self) -> None:
        self._wire.transport.close()
        await super().stop()

    async def drain(self, meter: Meter) -> None:
        raise NotImplementedError("this floor stands at the head")

    async def some(self) -> Sequence[bytes]:
        values = self._wire.values
        if not values:
            self._wire.waiter = asyncio.get_running_loop().create_future()
            await self._wire.waiter
        return (values.popleft(),)


_HEADER = struct.Struct(">ihhih")  # size, API key, version, correlation id, length of the client id (none)
_ASKED = struct.Struct(">iiiibi")  # replica, wait, least bytes, most bytes, isolation, topics
_PARTITION = struct.Struct(">iqi")
_ANSWERED = struct.Struct(">ihqqi")  # partition, error, high watermark, last stable offset, aborted transactions
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


class _Wire(asyncio.Protocol):
    """Fetch v4 of one topic, one request after the other."""

    transport: asyncio.Transport

    def __init__(self, topic: str, offsets: dict[int, int]) -> None:
        self.values: deque[bytes] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self._name = _INT16.pack(len(topic)) + topic.encode()
        self._offsets = offsets
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        partitions = b"".join(_PARTITION.pack(each, at, PARTITION_BYTES) for each, at in self._offsets.items())
        named = _ASKED.pack(-1, 500, 1, FETCH_BYTES, 0, 1) + self._name + _INT32.pack(len(self._offsets))
        size = _HEADER.size - 4 + len(named) + len(partitions)
        self.transport.write(_HEADER.pack(size, 1, 4, 0, -1) + named + partitions)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + _INT32.unpack_from(self._received)[0]:
            return
        frame, self._received = bytes(self._received), bytearray()  # one request at a time has one answer
        self._take(frame)
        self._ask()
        if self.values and self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def _take(self, frame: bytes) -> None:
        at = 4 + 4 + 4 + 4 + len(self._name)  # size, correlation id, throttle time, topics
        (count,) = _INT32.unpack_from(frame, at)
        at += 4
        for _ in range(count):
            partition, error, _, _, aborted_count = _ANSWERED.unpack_from(frame, at)
            if error:
                raise SystemExit(f"the floor got error {error} for partition {partition}")
            at += _ANSWERED.size + 16 * max(0, aborted_count)
            (size,) = _INT32.unpack_from(frame, at)
            at += 4
            if size <= 0:
                continue
            for batch in _batches(MemoryRecords(frame[at : at + size])):
                if not batch.validate_crc():
                    raise SystemExit("the floor read a corrupt batch")
                for record in batch:
                    if record.offset >= self._offsets[partition]:
                        self.values.append(record.value)
                self._offsets[partition] = batch.next_offset
            at += size
