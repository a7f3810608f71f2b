"""Requests about topics and their logs, sent raw to a node of Kafka and to the embedded broker, and the answers.

Transcripts of Kafka 4.3.1 are kept in tests/embedded/logs/golden.json; `python -m tests.support.log_scripts` records
them again. Left out: throttling, texts and ids. Times near the present are recorded as distances from it.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from pathlib import Path
from random import Random
from uuid import UUID

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.framing import RequestHeader, decode_response, encode_request
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup.embedded.machine.admin.logs import LogRequests
from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.faults.faults import Faults
from aiogroup.embedded.machine.ids import Ids
from aiogroup.embedded.machine.logs.batches import Record, build, header_of, seal
from aiogroup.embedded.machine.logs.log import Budget, Log
from aiogroup.embedded.machine.logs.produce import Produces
from aiogroup.embedded.machine.logs.topic_requests import TopicRequests
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.machine.nodes import Nodes
from aiogroup.embedded.machine.refusals import Troubles
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.machine.timers import Timers
from aiogroup.embedded.machine.transactions.coordinator import TransactionCoordinator
from aiogroup.embedded.machine.transactions.requests import TransactionRequests
from aiogroup.embedded.machine.transactions.seats import Seats
from aiogroup.embedded.messages.cluster import DescribableLogDirTopic, DescribeLogDirsRequest
from aiogroup.embedded.messages.framing import encode_answer
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aiogroup.embedded.messages.producer_ids import InitProducerIdRequest
from aiogroup.embedded.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from aiogroup.embedded.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

CLIENT_ID = "scripted"
LATE_SECONDS = 30
SILENT_SECONDS = 0.5
NEAR_MS = 600_000
GOLDEN = Path(__file__).parent.parent / "embedded" / "logs" / "golden.json"


class RealBroker:
    """A node of Kafka, asked over one connection."""

    def __init__(self, address):
        self._address = address
        self._socket = None

    @property
    def now_ms(self):
        return time.time_ns() // 1_000_000

    def send(self, request, version):
        """Send a request. Returns the answer, or what happened instead."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address)
        self._socket.settimeout(SILENT_SECONDS if getattr(request, "acks", 1) == 0 else LATE_SECONDS)
        frame = encode_request(request, version, 1, CLIENT_ID)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        with self._socket.makefile("rb") as stream:
            try:
                size = stream.read(4)
            except TimeoutError:
                self.close()
                return "no answer"
            if not size:
                self.close()
                return "closed"
            return decode_response(type(request), version, stream.read(struct.unpack(">i", size)[0]))[1]

    def stored(self, topic, partition):
        """The records of a partition. It may take several requests: an answer ends with a segment."""
        found, offset = b"", 0
        while records := self._fetch(topic, partition, offset).records:
            found += records
            data = memoryview(bytes(records))
            while data:
                header = header_of(data)
                offset = header.last_offset + 1
                data = data[12 + header.length :]
        return found

    def _fetch(self, topic, partition, offset=0):
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 26)
        request = FetchRequest(max_wait_ms=1, max_bytes=1 << 26, topics=(FetchTopic(topic, partitions=(asked,)),))
        (answered,) = self.send(request, 12).responses
        return answered.partitions[0]

    def await_leader(self, topic, partitions_count):
        """A new topic takes a moment to reach the node."""
        ends_at = time.monotonic() + LATE_SECONDS
        for partition in range(partitions_count):
            while self._fetch(topic, partition).error_code:
                assert time.monotonic() < ends_at, f"{topic}-{partition} has no leader"

    def close(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class OneNode:
    """The only node of a cluster, as devkafka's."""

    node_id, host, port, rack = 1, "127.0.0.1", 9092, None

    def get(self, node_id):
        return self if node_id == 1 else None

    def live(self, replicas):
        return tuple(each for each in replicas if each == 1)

    def __len__(self):
        return 1


class NoGroups:
    """No group takes part in a transaction."""

    def number_of(self, group_id):
        raise AssertionError(group_id)

    def end_transaction(self, producer_id, *, is_committed):
        pass


class PureBroker:
    """The parts of the machine that keep topics and logs. It is also the peer of its requests."""

    def __init__(self, now_ms=1_800_000_000_000, properties=None, max_bytes=1 << 28, nodes=None, node_id=1):
        self.now_ms, self.node_id, self.is_closed = now_ms, node_id, False
        self.nodes = nodes or OneNode()
        self.budget = Budget(max_bytes)
        self.faults, self.troubles = Faults(), Troubles()
        ids, settings = Ids(Random(1)), Settings.of(properties or {})
        self.topics = Topics(ids.uuid, lambda: Log(self.budget), lambda index, factor: (1, 2, 3)[:factor])
        timers = Timers()
        transactions = TransactionCoordinator(
            Seats(Nodes(1, timers), timers, 1), settings, timers, ids.producer_id, self.topics, NoGroups()
        )
        self._handlers = {
            **Produces(self.topics, self.nodes, settings, self.faults, transactions, self.troubles).handlers(),
            **TransactionRequests(transactions, self.topics, self.faults, ids.producer_id).handlers(),
            **TopicRequests(self.topics, self.nodes, settings, self.faults, self.troubles).handlers(),
            **LogRequests(self.topics, settings, self.faults, self.budget).handlers(),
        }
        self._count = 0

    def answered(self, exchange, now_ms):
        assert now_ms == self.now_ms

    def close(self):
        self.is_closed = True

    def send(self, request, version):
        self._count += 1
        header = RequestHeader(request.API_KEY, version, self._count, CLIENT_ID)
        exchange = Exchange(self._count, self, header, request, self.now_ms)
        self._handlers[type(request)](exchange, request, self.now_ms)
        assert exchange.answered_at_ms == self.now_ms
        if self.is_closed:
            self.is_closed = False
            return "closed"
        if exchange.response is None:
            return "no answer"
        frame = b"".join(encode_answer(type(request), exchange.response, version, 1))
        return decode_response(type(request), version, frame[4:])[1]

    def stored(self, topic, partition):
        return b"".join(self.topics.partition(topic, partition).log.batches())

    def await_leader(self, topic, partitions_count):
        assert len(self.topics.get(topic).partitions) >= partitions_count


class Talk:
    """Sends a script's requests and records the answers. Topics get a suffix, so that runs do not interfere."""

    def __init__(self, broker, suffix):
        self.broker = broker
        self.now_ms = broker.now_ms
        self.transcript = []
        self._end = f"-{suffix}" if suffix else ""

    def name(self, name):
        """A topic's name in this run."""
        return name if not name or name.startswith("!") else f"{name}{self._end}"

    def plain(self, name):
        return None if name is None else name.removesuffix(self._end)

    def _near(self, instant_ms):
        """An instant in a comparable form: unchanged, as its distance from the script's beginning, or `now`."""
        distance_ms = instant_ms - self.now_ms
        if abs(distance_ms) > NEAR_MS:
            return instant_ms if abs(instant_ms) < NEAR_MS else "far"
        return "now" if distance_ms >= 0 else distance_ms

    def said(self, *what):
        self.transcript.append(list(what))

    # Produce.

    def produce(self, why, records, topic="plain", **how):
        self.produce_many(why, [(topic, how.pop("partition", 0), records)], **how)

    def produce_many(self, why, data, *, version=12, acks=-1, transactional_id=None, ids=()):
        asked = tuple(
            TopicProduceData(
                "" if ids else self.name(topic),
                dict(ids).get(topic, ZERO_UUID),
                (PartitionProduceData(partition, records),),
            )
            for topic, partition, records in data
        )
        answer = self.broker.send(ProduceRequest(transactional_id, acks, 1_000, asked), version)
        if isinstance(answer, str):
            self.said("produce", why, answer)
            return
        answered = [(self.plain(topic.name), each) for topic in answer.responses for each in topic.partition_responses]
        for name, each in sorted(answered, key=lambda one: (one[0], one[1].index)):
            self.said(
                "produce",
                why,
                name,
                each.index,
                ErrorCode(each.error_code).name,
                each.base_offset,
                self._near(each.log_append_time_ms),
                each.log_start_offset,
                [error.batch_index for error in each.record_errors],
            )

    def stored(self, topic, partition=0):
        """The headers of the stored batches, without what depends on the time."""
        data = memoryview(self.broker.stored(self.name(topic), partition))
        while data:
            header = header_of(data)
            self.said("stored", topic, *header[:4], *header[5:7], self._near(header.max_timestamp), *header[9:])
            data = data[12 + header.length :]

    def producer_id(self, why, version=5, **fields):
        request = InitProducerIdRequest(**{"transactional_id": None, **fields})
        # A new node has no ids yet: it asks the controller for some when the first one is needed.
        while (answer := self.broker.send(request, version)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        self.said("producer id", why, ErrorCode(answer.error_code).name, answer.producer_id >= 0, answer.producer_epoch)

    # Topics.

    def create(self, *topics, version=7, validate_only=False, configs=False):
        asked = tuple(
            CreatableTopic(
                self.name(topic["name"]),
                topic.get("count", 1),
                topic.get("factor", 1),
                tuple(CreatableReplicaAssignment(*each) for each in topic.get("assignments", ())),
                tuple(CreatableTopicConfig(*each) for each in topic.get("config", ())),
            )
            for topic in topics
        )
        answer = self.broker.send(CreateTopicsRequest(asked, 5_000, validate_only), version)
        for each in sorted(answer.topics, key=lambda each: each.name):
            told = each.configs or ()
            self.said(
                "create",
                self.plain(each.name),
                ErrorCode(each.error_code).name,
                each.topic_id != ZERO_UUID,
                each.num_partitions,
                each.replication_factor,
                [[one.name, one.value, int(one.config_source)] for one in told] if configs else len(told),
            )
            if not each.error_code and not validate_only:
                self.broker.await_leader(each.name, max(each.num_partitions, 1))
        return {self.plain(each.name): each.topic_id for each in answer.topics}

    def add_partitions(self, *topics, version=3, validate_only=False):
        asked = tuple(
            CreatePartitionsTopic(
                self.name(name), count, None if nodes is None else tuple(map(CreatePartitionsAssignment, nodes))
            )
            for name, count, nodes in topics
        )
        answer = self.broker.send(CreatePartitionsRequest(asked, 5_000, validate_only), version)
        for each in sorted(answer.results, key=lambda each: each.name):
            self.said("add", self.plain(each.name), ErrorCode(each.error_code).name)

    def delete(self, *topics, version=6):
        if version > 5:
            states = (
                DeleteTopicState(None, topic) if isinstance(topic, UUID) else DeleteTopicState(self.name(topic))
                for topic in topics
            )
            request = DeleteTopicsRequest(topics=tuple(states), timeout_ms=5_000)
        else:
            request = DeleteTopicsRequest(topic_names=tuple(map(self.name, topics)), timeout_ms=5_000)
        answer = self.broker.send(request, version)
        for each in sorted(answer.responses, key=lambda each: each.name or ""):
            has_id = each.topic_id != ZERO_UUID
            self.said("delete", self.plain(each.name), has_id, ErrorCode(each.error_code).name)

    # Logs.

    def delete_records(self, *asked, version=2):
        """`asked`: (topic, partition, offset)."""
        topics = tuple(
            DeleteRecordsTopic(self.name(topic), (DeleteRecordsPartition(partition, offset),))
            for topic, partition, offset in asked
        )
        answer = self.broker.send(DeleteRecordsRequest(topics, 5_000), version)
        answered = [(self.plain(topic.name), each) for topic in answer.topics for each in topic.partitions]
        for name, each in sorted(answered, key=lambda one: (one[0], one[1].partition_index)):
            code = ErrorCode(each.error_code).name
            self.said("delete records", name, each.partition_index, code, each.low_watermark)

    def producers(self, topic, *partitions):
        asked = (DescribeProducersTopic(self.name(topic), partitions),)
        (answered,) = self.broker.send(DescribeProducersRequest(asked), 0).topics
        for each in sorted(answered.partitions, key=lambda each: each.partition_index):
            told = [
                [
                    one.producer_id,
                    one.producer_epoch,
                    one.last_sequence,
                    self._near(one.last_timestamp),
                    one.coordinator_epoch,
                    one.current_txn_start_offset,
                ]
                for one in sorted(each.active_producers, key=lambda one: one.producer_id)
            ]
            self.said("producers", topic, each.partition_index, ErrorCode(each.error_code).name, told)

    def sizes(self, *topics, version=5):
        """`topics`: (topic, partitions)."""
        asked = tuple(DescribableLogDirTopic(self.name(name), partitions) for name, partitions in topics)
        answer = self.broker.send(DescribeLogDirsRequest(asked), version)
        for folder in answer.results:
            for topic in sorted(folder.topics, key=lambda each: each.name):
                for each in sorted(topic.partitions, key=lambda each: each.partition_index):
                    lag = (each.offset_lag, each.is_future_key)
                    self.said("size", self.plain(topic.name), each.partition_index, each.partition_size, *lag)
            is_told = folder.total_bytes > folder.usable_bytes > 0
            self.said("folder", folder.error_code, len(folder.topics), is_told, answer.error_code)


def some(count=3, at_ms=0, key=b"k", value=b"v" * 20):
    return [Record(place, at_ms + place, key, value) for place in range(count)]


def patched(batch, form, place, value, *, crc=True):
    """A batch with one field overwritten, with or without the right checksum."""
    batch = bytearray(batch)
    struct.pack_into(form, batch, place, value)
    return bytes(seal(batch) if crc else batch)


LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, MAX_TIME, SEQUENCE, COUNT, RECORDS = 8, 16, 17, 21, 23, 35, 53, 57, 61


def of_each_version(talk):
    talk.create({"name": "plain"})
    batch = bytes(build(some(at_ms=talk.now_ms - 1_000)))
    for version in range(3, 13):
        talk.produce(f"version {version}", batch, version=version)
    talk.stored("plain")


def by_id(talk):
    ids = talk.create({"name": "one"}, {"name": "two", "count": 2})
    batch = bytes(build(some(at_ms=talk.now_ms - 1_000)))
    for topic, partition in (("one", 0), ("two", 1), ("one", 1), ("two", -1)):
        talk.produce_many(f"{topic} {partition}", [(topic, partition, batch)], version=13, ids=ids.items())
    talk.produce_many("unknown", [("three", 0, batch)], version=13, ids=[("three", UUID(int=99))])


def damaged_headers(talk):
    talk.create({"name": "plain"})
    batch = bytes(build(some(at_ms=talk.now_ms - 1_000)))
    talk.produce("checksum", patched(batch, ">I", CRC, 1, crc=False))
    for magic in (0, 1, 3, -1):
        talk.produce(f"magic {magic}", patched(batch, ">b", MAGIC, magic))
    for length in (-5, 0, 13, 14, 45, len(batch) - 13, len(batch) - 11):
        talk.produce(f"length {length - len(batch)}", patched(batch, ">i", LENGTH, length, crc=False))
    for size in (0, 11, 16, 40, len(batch) - 1):
        talk.produce(f"cut to {size}", batch[:size])
    talk.produce("two batches", batch + batch)
    for behind in (8, 12, 30):
        talk.produce(f"zeros behind: {behind}", batch + b"\0" * behind)
    talk.produce("half a batch behind", batch + batch[:50])
    for count in (-1, 0, 2, 4):
        talk.produce(f"count {count}", patched(batch, ">i", COUNT, count))
    for delta in (-1, 1, 5):
        talk.produce(f"last delta {delta}", patched(batch, ">i", LAST_DELTA, delta))
    for count in (2, 4):
        less = patched(batch, ">i", LAST_DELTA, count - 1)
        talk.produce(f"count and last delta {count}", patched(less, ">i", COUNT, count))
    talk.produce("base offset", patched(batch, ">q", 0, 5, crc=False))
    talk.produce("control", patched(batch, ">h", ATTRIBUTES, 0x20))
    talk.produce("transactional", patched(batch, ">h", ATTRIBUTES, 0x10))
    talk.produce("sequence", build(some(1), producer_id=7, producer_epoch=0, base_sequence=-1))
    talk.stored("plain")


def damaged_records(talk):
    talk.create({"name": "plain"})
    batch = bytes(build(some(at_ms=talk.now_ms - 1_000)))
    for what, place, value in (
        ("too long", RECORDS, 0x7E),
        ("too short", RECORDS, 0x02),
        ("below nothing", RECORDS, 0x01),
        ("a header that is missing", len(batch) - 1, 0x02),
        ("less than no headers", len(batch) - 1, 0x01),
    ):
        talk.produce(what, patched(batch, ">b", place, value))
    for codec in range(1, 8):
        talk.produce(f"codec {codec} said, not done", patched(batch, ">h", ATTRIBUTES, codec))
    for codec in (1, 2, 3, 4):
        packed = bytes(build(some(5, talk.now_ms - 1_000, value=b"v" * 100), codec=codec))
        talk.produce(f"codec {codec}", packed)
        talk.produce(f"codec {codec}, version 6", packed, version=6)
        if codec > 2:
            # Java's error for damaged gzip and snappy depends on where the damage is.
            talk.produce(f"codec {codec}, damaged", patched(packed, ">B", len(packed) - 10, packed[-10] ^ 0xFF))
        for count in (4, 6):
            other = patched(patched(packed, ">i", LAST_DELTA, count - 1), ">i", COUNT, count)
            talk.produce(f"codec {codec}, count {count}", other)
    talk.produce("codec 5, version 6", patched(batch, ">h", ATTRIBUTES, 5), version=6)
    for codec in (0, 1):
        sparse = [Record(3 * place, talk.now_ms - 1_000, b"k", b"v" * 100) for place in range(3)]
        holes = patched(patched(build(sparse, codec=codec), ">i", LAST_DELTA, 2), ">i", COUNT, 3)
        talk.produce(f"codec {codec}, offsets with holes", holes)
    talk.stored("plain")


def times(talk):
    talk.create(
        {"name": "plain"},
        {"name": "recent", "config": [("message.timestamp.before.max.ms", "60000")]},
        {"name": "later", "config": [("message.timestamp.after.max.ms", str(1 << 40))]},
        {"name": "stamped", "config": [("message.timestamp.type", "LogAppendTime")]},
    )
    now_ms, key, value = talk.now_ms - 1_000, b"k", b"v"
    half = build([Record(0, now_ms, key, value), Record(1, now_ms + 7_200_000, key, value)])
    for topic in ("plain", "recent", "later", "stamped"):
        for what, at_ms in (("old", 5), ("none", -1), ("older than any", -5), ("now", now_ms), ("new", now_ms << 1)):
            talk.produce(what, build([Record(0, at_ms, key, value)]), topic)
        talk.produce("half", half, topic)
        talk.produce("stamped by the client", patched(build(some(at_ms=now_ms)), ">h", ATTRIBUTES, 8), topic)
        never = patched(patched(build(some(at_ms=now_ms)), ">h", ATTRIBUTES, 8), ">q", MAX_TIME, -1)
        talk.produce("stamped by the client with no time", never, topic)
        for codec in (0, 1):
            other = build(some(5, now_ms, value=b"v" * 100), codec=codec)
            talk.produce(f"wrong in the header, codec {codec}", patched(other, ">q", MAX_TIME, now_ms - 50), topic)
        once = build(some(at_ms=now_ms), producer_id=5, producer_epoch=0, base_sequence=0)
        talk.produce("idempotent", bytes(once), topic)
        talk.produce("idempotent again", bytes(once), topic)
        talk.stored(topic)


def sizes_and_keys(talk):
    talk.create(
        {"name": "small", "config": [("max.message.bytes", "200")]},
        *({"name": f"of{size}", "config": [("max.message.bytes", str(size))]} for size in (94, 95)),
        {"name": "compacted", "config": [("cleanup.policy", "compact")]},
    )
    now_ms = talk.now_ms - 1_000
    large = build(some(9, now_ms))
    talk.produce("fits", build(some(1, now_ms)), "small")
    exact = bytes(build(some(1, now_ms, value=b"v" * 26)))
    assert len(exact) == 95
    for size in (94, 95):
        talk.produce("to the byte", exact, f"of{size}")
    talk.produce("large", bytes(large), "small")
    talk.produce("large, checksum", patched(large, ">I", CRC, 1, crc=False), "small")
    talk.produce("large, count", patched(large, ">i", COUNT, 1), "small")
    keyless = build([Record(0, now_ms, b"k", b"v"), Record(1, now_ms, None, b"v"), Record(2, now_ms, None, None)])
    talk.produce("keyless", keyless, "compacted")
    talk.produce("keyless, version 7", keyless, "compacted", version=7)
    both = build([Record(0, now_ms << 1, b"k", b"v"), Record(1, now_ms, None, b"v")])
    talk.produce("keyless and late", both, "compacted")
    talk.produce("empty key", build([Record(0, now_ms, b"", None)]), "compacted")


def acknowledgements(talk):
    talk.create({"name": "plain", "count": 2})
    batch = bytes(build(some(at_ms=talk.now_ms - 1_000)))
    damaged = patched(batch, ">I", CRC, 1, crc=False)
    old = patched(batch, ">b", MAGIC, 1)
    for acks in (-2, -1, 0, 1, 2):
        talk.produce(f"acks {acks}", batch, acks=acks)
        talk.produce(f"acks {acks}, checksum", damaged, acks=acks)
        talk.produce(f"acks {acks}, format", old, acks=acks)
        talk.produce(f"acks {acks}, no such partition", batch, acks=acks, partition=9)
        talk.produce(f"acks {acks}, no such topic", batch, "none", acks=acks)
    talk.produce("below", batch, partition=-1)
    for what, second in (("checksum", damaged), ("format", old), ("magic", patched(batch, ">b", MAGIC, 3))):
        talk.produce_many(f"one of two: {what}", [("plain", 0, batch), ("none", 0, batch), ("plain", 1, second)])
    flagged = patched(batch, ">h", ATTRIBUTES, 0x10)
    talk.produce_many("one of two: transactional", [("plain", 0, batch), ("plain", 1, flagged)])
    talk.stored("plain", 0)
    talk.stored("plain", 1)


def idempotence(talk):
    talk.create({"name": "plain"})
    for what, producer, epoch, sequence, count in (
        ("first", 1, 0, 0, 2),
        ("first again", 1, 0, 0, 2),
        ("next", 1, 0, 2, 1),
        ("gap", 1, 0, 5, 1),
        ("inside of the first", 1, 0, 1, 1),
        ("a part of the first", 1, 0, 0, 1),
        ("third", 1, 0, 3, 1),
        ("fourth", 1, 0, 4, 1),
        ("fifth", 1, 0, 5, 1),
        ("the oldest that is remembered", 1, 0, 0, 2),
        ("sixth", 1, 0, 6, 1),
        ("sixth again", 1, 0, 6, 1),
        ("second again", 1, 0, 2, 1),
        ("the first, forgotten", 1, 0, 0, 2),
        ("a new epoch in the middle", 1, 1, 7, 1),
        ("a new epoch", 1, 1, 0, 1),
        ("the old epoch", 1, 0, 7, 1),
        ("a repetition of the old epoch", 1, 0, 6, 1),
        ("another producer, in the middle", 2, 0, 5, 1),
        ("it goes on", 2, 0, 6, 1),
        ("it begins at last", 2, 0, 0, 1),
        ("over the greatest number", 4, 0, 0x7FFFFFFE, 3),
        ("behind it", 4, 0, 1, 1),
        ("over the greatest number again", 4, 0, 0x7FFFFFFE, 3),
        ("no epoch", 9, -1, 0, 1),
        ("a fifth producer", 5, 0, 0, 1),
        ("its second batch", 5, 0, 1, 1),
        ("a new epoch with the first one's numbers", 5, 1, 0, 1),
        ("the epoch behind it, with the same numbers", 5, 2, 0, 1),
        ("the same again in the newest epoch", 5, 2, 1, 1),
        ("one epoch more", 5, 3, 0, 2),
        ("numbers that only an old epoch had", 5, 3, 1, 1),
    ):
        records = some(count, talk.now_ms - 1_000)
        batch = build(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        talk.produce(what, bytes(batch))
    talk.stored("plain")
    for version in range(6):
        talk.producer_id(f"version {version}", version)
    talk.producer_id("with what it has", producer_id=5, producer_epoch=3)
    talk.producer_id("with half of it", producer_id=5)
    talk.producer_id("with the other half", producer_epoch=5)
    talk.producer_id("an empty transactional id", transactional_id="", transaction_timeout_ms=1_000)


def names(talk):
    for name in ("!", "! ", ".", "..", "!" * 250, "!ü", "__cluster_metadata"):
        talk.create({"name": name.replace("!.", ".")})
    for name in ("with.dot", "with_dot", "with.dot"):
        talk.create({"name": name})
    talk.delete("with.dot")
    talk.create({"name": "with_dot"})
    talk.create({"name": "twice"}, {"name": "once"}, {"name": "twice"})
    for version in range(2, 8):
        talk.create({"name": f"version{version}"}, version=version)
        talk.create({"name": f"version{version}"}, version=version)


def numbers(talk):
    for count, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (0, 0), (-1, -1), (10_001, 1)):
        talk.create({"name": f"n{count}f{factor}", "count": count, "factor": factor})
    talk.create({"name": "checked", "count": 3}, validate_only=True, configs=True)
    for number, (count, factor, assignments) in enumerate(
        (
            (-1, -1, [(0, (1,)), (1, (1,))]),
            (-1, -1, [(1, (1,)), (0, (1,))]),
            (1, -1, [(0, (1,))]),
            (-1, 1, [(0, (1,))]),
            (-1, -1, [(0, (1,)), (0, (1,))]),
            (-1, -1, [(0, (1, 1))]),
            (-1, -1, [(0, (9,))]),
            (-1, -1, [(0, ())]),
            (-1, -1, [(1, (1,)), (2, (1,))]),
        )
    ):
        talk.create({"name": f"placed{number}", "count": count, "factor": factor, "assignments": assignments})


SETTINGS = {
    "cleanup.policy": ("foo", "", "delete,compact", "compact,compact", " compact", "delete,foo", "COMPACT"),
    "compression.gzip.level": ("0", "9", "10", "-1"),
    "compression.lz4.level": ("0", "17", "18"),
    "compression.type": ("foo", "PRODUCER", "producer"),
    "compression.zstd.level": ("100", "-1"),
    "delete.retention.ms": ("-1", "0"),
    "file.delete.delay.ms": ("-1",),
    "flush.messages": ("0",),
    "flush.ms": ("-1",),
    "index.interval.bytes": ("-1",),
    "leader.replication.throttled.replicas": ("*", "0:1", "0:1,1:2", "foo"),
    "local.retention.bytes": ("-3",),
    "local.retention.ms": ("-3", "100"),
    "max.compaction.lag.ms": ("0", "5"),
    "max.message.bytes": ("-1", "99999999999", "0"),
    "message.downconversion.enable": ("true",),
    "message.format.version": ("3.0",),
    "message.timestamp.after.max.ms": ("-1",),
    "message.timestamp.type": ("foo", "logappendtime"),
    "min.cleanable.dirty.ratio": ("2", "x", "0", "-0.1", "0.25"),
    "min.compaction.lag.ms": ("9223372036854775807",),
    "min.insync.replicas": ("0", "2", "x"),
    "nonesuch": ("1",),
    "preallocate": ("TRUE", "yes", "0"),
    "remote.storage.enable": ("true", "false"),
    "retention.bytes": ("-2", "5"),
    "retention.ms": ("x", "-2", "-1", "", None, "1.5", " 5 ", "99999999999999999999", "1_0"),
    "segment.bytes": ("10", "2000000"),
    "segment.index.bytes": ("3",),
    "segment.jitter.ms": ("-1",),
    "segment.ms": ("0",),
    "unclean.leader.election.enable": ("true",),
}


def settings(talk):
    for name, values in SETTINGS.items():
        for value in values:
            talk.create({"name": "checked", "config": [(name, value)]}, validate_only=True)
    lags = [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]
    for config in (lags, [("zz", "1"), ("retention.ms", "x")], [("zz", None)], [("retention.ms", "1")] * 2):
        talk.create({"name": "checked", "config": config}, validate_only=True)
    talk.create({"name": "set", "config": [("retention.ms", " 5 "), ("cleanup.policy", "compact")]}, configs=True)


def partitions(talk):
    talk.create({"name": "grows"})
    for version in range(4):
        talk.add_partitions(("grows", version + 2, None), version=version)
        talk.add_partitions(("grows", version + 2, None), version=version)
    for count in (1, 0, -1, 20_000):
        talk.add_partitions(("grows", count, None), validate_only=True)
    talk.add_partitions(("none", 2, None))
    talk.add_partitions(("grows", 6, None), ("grows", 7, None))
    talk.add_partitions(("grows", 6, [(1,)]), validate_only=True)
    talk.add_partitions(("grows", 6, [(1,)]))
    for nodes in ([(1,), (1,)], [(9,)], [(1, 1)], [], [()]):
        talk.add_partitions(("grows", 7, nodes))
    talk.broker.await_leader(talk.name("grows"), 6)
    batch = build(some(at_ms=talk.now_ms - 1_000))
    talk.produce("the new one", batch, "grows", partition=5)
    talk.produce("one more", batch, "grows", partition=6)


def deletions(talk):
    ids = talk.create(*({"name": f"topic{number}"} for number in range(9)))
    for version in range(1, 7):
        talk.delete(f"topic{version}", version=version)
        talk.delete(f"topic{version}", version=version)
    talk.delete(ids["topic7"])
    talk.delete(ids["topic7"])
    talk.delete("topic8", "topic8")
    talk.delete(UUID(int=7), UUID(int=7))
    talk.delete(ZERO_UUID)
    talk.delete("none", "topic8", "!")


def deleted_records(talk):
    talk.create({"name": "plain", "count": 2}, {"name": "compacted", "config": [("cleanup.policy", "compact")]})
    talk.create({"name": "both", "config": [("cleanup.policy", "compact,delete")]})
    for topic in ("plain", "compacted", "both"):
        for _ in range(3):
            talk.produce("filled", build(some(at_ms=talk.now_ms - 1_000)), topic)
    for offset in (0, 4, 2, 5, 10, -2, 9, -1):
        talk.delete_records(("plain", 0, offset))
        # The answer to a refused batch has the log's start offset.
        talk.produce("refused", build(some(1, 1 << 60)))
    talk.delete_records(("plain", 1, 0), ("plain", 2, 0), ("none", 0, 0), ("compacted", 0, 1), ("both", 0, 1))
    talk.delete_records(("plain", 1, -1), version=0)
    for version in (1, 2):
        talk.delete_records(("both", 0, version + 3), version=version)
    talk.produce("on", build(some(at_ms=talk.now_ms - 1_000)), "both")


def producers(talk):
    talk.create({"name": "plain", "count": 2})
    wraps = (4, 0, 0x7FFFFFFE, 3)
    for producer, epoch, sequence, count in (
        (1, 0, 0, 3),
        (1, 0, 3, 1),
        (2, 4, 7, 2),
        (1, 1, 0, 1),
        (3, 0, 0, 1),
        wraps,
    ):
        records = some(count, talk.now_ms - 1_000)
        talk.produce("filled", build(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))
    talk.producers("plain", 0, 1, 2)
    talk.producers("none", 0)
    talk.delete_records(("plain", 0, -1))
    talk.producers("plain", 0)


def sizes(talk):
    talk.create({"name": "plain", "count": 2}, {"name": "other"})
    talk.produce("filled", build(some(at_ms=talk.now_ms - 1_000)))
    for version in range(1, 6):
        talk.sizes(("plain", (0, 1)), ("other", (0,)), version=version)
    talk.sizes(("plain", (1, 7)), ("none", (0,)))


SCRIPTS = (
    of_each_version,
    by_id,
    damaged_headers,
    damaged_records,
    times,
    sizes_and_keys,
    acknowledgements,
    idempotence,
    names,
    numbers,
    settings,
    partitions,
    deletions,
    deleted_records,
    producers,
    sizes,
)


def golden():
    """Kafka's transcripts by the names of the scripts."""
    return json.loads(GOLDEN.read_text())


def record():
    """Record Kafka's transcripts again."""
    from aiogroup.devkafka import Cluster

    found = {}
    with Cluster() as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        broker = RealBroker((host, int(port)))
        for script in SCRIPTS:
            talk = Talk(broker, f"{time.time_ns():x}")
            script(talk)
            found[script.__name__] = talk.transcript
        broker.close()
    lines = [
        f"  {json.dumps(name)}: [\n    " + ",\n    ".join(map(json.dumps, told)) + "\n  ]"
        for name, told in found.items()
    ]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
