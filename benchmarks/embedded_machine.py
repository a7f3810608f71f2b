"""The embedded broker's machine by itself: `python -m benchmarks.embedded_machine [--rounds 5]`.

Records of 100 bytes in batches of 16 KiB, as frames into a connection and out of it, without a socket; CPU seconds of
the best round, as the machine knows no waiting.
"""

from __future__ import annotations

import argparse
import struct
import time
from random import Random
from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.framing import encode_request
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.logs.batches import Record, build
from aiogroup.embedded.machine.logs.direct import DirectLogs
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request

NOW_MS = 1_800_000_000_000
VALUE = b"v" * 100
BATCH_RECORDS = 147
BATCHES = 4_000
FETCH_BYTES = 1 << 20
TOPIC = "t"


def framed(request: Request[Any], version: int) -> bytes:
    frame = encode_request(request, version, 1, "benchmark")
    return struct.pack(">i", len(frame)) + frame


def filled() -> Cluster:
    """A machine with one partition of records."""
    cluster = Cluster(Settings.of({}), Random(1))
    cluster.topics.create(TOPIC, 1, NOW_MS)
    DirectLogs(cluster.topics, cluster.settings).produce_many(TOPIC, [VALUE] * (BATCHES * BATCH_RECORDS), NOW_MS)
    return cluster


def records_out(cluster: Cluster) -> float:
    """Records a second that fetches of 1 MiB take out."""
    connection = cluster.connect(1, NOW_MS)
    (partition,) = cluster.topics.get(TOPIC).partitions  # type: ignore[union-attr]
    end_offset = partition.log.end_offset
    frames, offset = [], 0
    while offset < end_offset:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=(FetchTopic(TOPIC, partitions=(asked,)),))
        frames.append(framed(request, 12))
        offset += len(partition.log.read(offset, FETCH_BYTES)) * BATCH_RECORDS
    begin_s, size_bytes = time.process_time(), 0
    for frame in frames:
        connection.receive(frame, NOW_MS)
        cluster.work()
        size_bytes += sum(len(buffer) for output in cluster.take_output() for buffer in output.buffers)
    duration_s = time.process_time() - begin_s
    if size_bytes < partition.log.size_bytes:
        raise RuntimeError(f"{size_bytes} bytes came of {partition.log.size_bytes}")
    return end_offset / duration_s


def records_in() -> float:
    """Records a second that Produce requests of one batch bring in."""
    cluster = Cluster(Settings.of({}), Random(1))
    (partition,) = cluster.topics.create(TOPIC, 1, NOW_MS).partitions
    connection = cluster.connect(1, NOW_MS)
    batch = bytes(build(Record(place, NOW_MS, None, VALUE) for place in range(BATCH_RECORDS)))
    data = (TopicProduceData(TOPIC, partition_data=(PartitionProduceData(0, batch),)),)
    frame = framed(ProduceRequest(None, 1, 1_000, data), 12)
    begin_s = time.process_time()
    for _ in range(BATCHES):
        connection.receive(frame, NOW_MS)
        cluster.work()
        cluster.take_output()
    duration_s = time.process_time() - begin_s
    if partition.log.end_offset != BATCHES * BATCH_RECORDS:
        raise RuntimeError(f"{partition.log.end_offset} records came")
    return partition.log.end_offset / duration_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = range(parser.parse_args().rounds)
    cluster = filled()
    print(f"out: {max(records_out(cluster) for _ in rounds):,.0f} records/s")
    print(f"in:  {max(records_in() for _ in rounds):,.0f} records/s")


if __name__ == "__main__":
    main()
