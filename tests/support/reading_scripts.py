"""Requests that read, sent raw to a real node and to the embedded machine: both must answer alike."""

from __future__ import annotations

import dataclasses
import socket
import struct
import time
from uuid import UUID, uuid4
from zlib import crc32

from aiogroup._core.protocol.framing import decode_response, encode_request
from aiogroup._core.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiogroup._core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiogroup.embedded.machine.logs.batches import Record, build
from aiogroup.embedded.messages.framing import encode_answer
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aiogroup.embedded.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.support.reading_machine import ReadingMachine

START_MS = 1_700_000_000_000
FOR_EVER = CreatableTopicConfig("retention.ms", "-1")
"""The scripts' records have old timestamps. A real node would delete them at its check every five minutes."""
NO_ID = UUID(int=0)
STRANGER = UUID(int=0xABC)
WAIT_MS = 2_000
"""More than an answer takes that does not wait, even on a busy machine."""


class RealReader:
    """A node of Kafka over one connection."""

    def __init__(self, address):
        self._socket = socket.create_connection(address, timeout=60)
        self._suffix = uuid4().hex[:8]

    def close(self):
        self._socket.close()

    def send(self, request, version):
        frame = encode_request(request, version, 1, "scripted")
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        with self._socket.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            return decode_response(type(request), version, stream.read(size))[1]

    def ask(self, request, version):
        """The answer, and whether it waited."""
        began_at = time.monotonic()
        answer = self.send(request, version)
        return answer, time.monotonic() - began_at > WAIT_MS / 1_000 * 0.9

    def name(self, topic):
        return f"{topic}-{self._suffix}"

    def create(self, topic, partitions):
        asked = CreatableTopic(self.name(topic), partitions, 1, configs=(FOR_EVER,))
        self._until(
            lambda: self.send(CreateTopicsRequest(topics=(asked,), timeout_ms=10_000), 7).topics[0].error_code == 0
        )
        # Metadata names a leader a moment before the leader has the log.
        self._until(lambda: self._id(topic) and all(self._is_led(topic, index) for index in range(partitions)))
        return self._id(topic)

    def _is_led(self, topic, index):
        asked = ListOffsetsTopic(self.name(topic), (ListOffsetsPartition(index, -1, -1),))
        return self.send(ListOffsetsRequest(topics=(asked,)), 7).topics[0].partitions[0].error_code == 0

    def delete(self, topic):
        asked = DeleteTopicState(name=self.name(topic))
        assert self.send(DeleteTopicsRequest(topics=(asked,), timeout_ms=10_000), 6).responses[0].error_code == 0
        self._until(lambda: self._told(topic).error_code == 3)

    def produce(self, topic, index, batch):
        data = TopicProduceData(name=self.name(topic), partition_data=(PartitionProduceData(index, bytes(batch)),))
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,))
        self._until(lambda: self.send(request, 9).responses[0].partition_responses[0].error_code == 0)

    def _told(self, topic):
        request = MetadataRequest(topics=(MetadataRequestTopic(name=self.name(topic)),))
        return self.send(request, 12).topics[0]

    def _id(self, topic):
        told = self._told(topic)
        return told.topic_id if told.error_code == 0 else None

    @staticmethod
    def _until(is_so):
        ends_at = time.monotonic() + 30
        while not is_so():
            assert time.monotonic() < ends_at
            time.sleep(0.05)


class PureReader:
    """The parts of the machine that read."""

    def __init__(self, **settings):
        self.machine = ReadingMachine(**settings)

    def ask(self, request, version):
        began_at_ms = self.machine.now_ms
        exchange = self.machine.send(request, version)
        if exchange.answered_at_ms is None:
            self.machine.pass_ms(WAIT_MS)
        frame = b"".join(encode_answer(type(request), exchange.response, version, 1))
        return decode_response(type(request), version, frame[4:])[1], exchange.answered_at_ms > began_at_ms

    def name(self, topic):
        return topic

    def create(self, topic, partitions):
        return self.machine.topic(topic, partitions).topic_id

    def delete(self, topic):
        self.machine.topics.delete(self.machine.topics.get(topic), self.machine.now_ms)

    def produce(self, topic, index, batch):
        self.machine.append_batch(self.machine.partition(topic, index), batch)


class Script:
    """Plays a script against one of them, and records the answers, with the same names for the same things."""

    def __init__(self, reader):
        self.reader = reader
        self.transcript = []
        self._ids = {}
        self._sessions = [0]
        self._asked = None

    def create(self, topic, partitions=1):
        self._ids.setdefault(topic, []).append(self.reader.create(topic, partitions))

    def delete(self, topic):
        self.reader.delete(topic)

    def produce(self, topic, index=0, count=10, value=b"v" * 50, at_ms=START_MS):
        """One batch; returns its size."""
        batch = build([Record(number, at_ms + number, None, value) for number in range(count)])
        self.reader.produce(topic, index, batch)
        return len(batch)

    def fetch(self, *wanted, version=18, forget=(), session=-1, **fields):
        """`wanted`: (topic, partition, offset, {fields})."""
        request = FetchRequest(
            topics=tuple(self._topic(version, *each) for each in wanted),
            forgotten_topics_data=tuple(
                ForgottenTopic(self.reader.name(topic), self._id(topic), (index,)) for topic, index in forget
            ),
            session_id=self._sessions[session] if session >= 0 else 0,
            **{"max_wait_ms": WAIT_MS, "min_bytes": 1, **fields},
        )
        return self._ask(request, version)

    def _topic(self, version, topic, index, offset, more=None):
        more = {"partition_max_bytes": 1 << 20, **(more or {})}
        topic_id = more.pop("topic_id", None) or self._id(topic)
        return FetchTopic(self.reader.name(topic), topic_id, (FetchPartition(index, fetch_offset=offset, **more),))

    def _id(self, topic):
        """The id of a topic. `name@0` means the first topic of that name."""
        name, _, number = topic.partition("@")
        return self._ids[name][int(number or -1)] if name in self._ids else STRANGER

    def list_offsets(self, topic, *timestamps, version=11, index=0, epoch=-1, **fields):
        for timestamp in timestamps:
            asked = (ListOffsetsPartition(index, epoch, timestamp),)
            self._ask(ListOffsetsRequest(topics=(ListOffsetsTopic(self.reader.name(topic), asked),), **fields), version)

    def end_of_epoch(self, topic, epoch, version=4, index=0, current=-1, **fields):
        asked = (OffsetForLeaderPartition(index, current, epoch),)
        topics = (OffsetForLeaderTopic(self.reader.name(topic), asked),)
        self._ask(OffsetForLeaderEpochRequest(topics=topics, **fields), version)

    def _ask(self, request, version):
        answer, waited = self.reader.ask(request, version)
        if isinstance(answer, FetchResponse):
            session = answer.session_id
            if session not in self._sessions:
                self._sessions.append(session)
            told = {
                "session": self._sessions.index(session),
                "error": answer.error_code,
                "waited": waited,
                "topics": [
                    (self._name(topic), [self._plain(each) for each in topic.partitions]) for topic in answer.responses
                ],
                "endpoints": len(answer.node_endpoints),
            }
        else:
            told = dataclasses.asdict(answer)
            for topic in told["topics"]:
                for key in ("name", "topic"):
                    if key in topic:
                        topic[key] = topic[key].rpartition("-")[0] or topic[key]
        self.transcript.append((type(request).__name__, version, told))
        return answer

    def _name(self, topic):
        for name, ids in self._ids.items():
            if topic.topic_id in ids:
                return name, ids.index(topic.topic_id)
            if topic.topic == self.reader.name(name):
                return name
        return str(topic.topic_id) if topic.topic_id != NO_ID else topic.topic.rpartition("-")[0] or topic.topic

    @staticmethod
    def _plain(partition):
        plain = dataclasses.asdict(dataclasses.replace(partition, records=None))
        records = partition.records
        return {**plain, "records": None if records is None else (len(records), crc32(records))}


def inside_of_a_batch(script):
    script.create("t")
    for _ in range(3):
        script.produce("t")
    for version in range(4, 19):
        script.fetch(("t", 0, 15), version=version)
        script.fetch(("t", 0, 15), version=version, isolation_level=1)
        script.fetch(("t", 0, 30), version=version, isolation_level=1, max_wait_ms=0)


def bounds(script):
    script.create("t", 3)
    size = 0
    for index in (0, 0, 1, 2, 2):
        size = script.produce("t", index)
    three = [("t", index, 0) for index in range(3)]
    for max_bytes in (0, 1, size - 1, size, size + 1, 2 * size, 2 * size + 7, 3 * size, 3 * size + 9, 4 * size - 1):
        script.fetch(*three, max_bytes=max_bytes)
        script.fetch(*reversed(three), max_bytes=max_bytes)
    for max_bytes in (0, 1, size, size + 8, 2 * size, 3 * size):
        script.fetch(*((*each, {"partition_max_bytes": max_bytes}) for each in three))
    script.fetch(("t", 0, 5), max_bytes=size + 30)
    script.fetch(("t", 0, 0), ("t", 1, 0, {"partition_max_bytes": 9}), min_bytes=size + 3, max_bytes=size + 3)


def waits(script):
    script.create("t", 2)
    size = script.produce("t")
    script.fetch(("t", 0, 10))
    script.fetch(("t", 0, 0), min_bytes=size + 1)
    script.fetch(("t", 0, 10), ("u", 0, 0), version=12)
    script.fetch(("t", 0, 10), ("t", 0, 0, {"topic_id": STRANGER}))
    script.fetch(("t", 0, 10), ("t", 1, 0, {"current_leader_epoch": 5}))
    script.fetch(("t", 0, 10), min_bytes=0)
    script.fetch(("t", 0, 0), ("t", 1, 0), min_bytes=size + 5, max_bytes=size)
    script.fetch(max_wait_ms=WAIT_MS)


def out_of_the_log(script):
    script.create("t")
    script.produce("t")
    for version in (4, 5, 11, 12, 16, 18):
        for offset in (-1, 10, 11, 99):
            script.fetch(("t", 0, offset), version=version, max_wait_ms=0)


def sessions(script):
    script.create("t", 4)
    four = [("t", index, 0) for index in range(4)]

    def ask(epoch, *wanted, session=1, **fields):
        script.fetch(*wanted, session=session, session_epoch=epoch, max_wait_ms=0, **fields)

    ask(0, *four, session=-1)
    ask(1)
    script.produce("t", 2)
    ask(2)
    ask(3)
    ask(3)
    ask(4, ("t", 2, 10))
    script.produce("t", 1)
    ask(5, forget=[("t", 1)])
    ask(6, ("t", 1, 0))
    ask(7, ("t", 1, 77))
    ask(8)
    ask(9, ("t", 1, 0))
    ask(11)
    ask(0, *four)
    ask(1)
    ask(1, session=2)
    ask(-1, ("t", 2, 0), session=2)
    ask(2, session=2)
    ask(0, *four, session=-1, version=12)
    ask(1, session=3, version=13)
    ask(1, session=3, version=12, forget=[("t", index) for index in range(4)])
    ask(2, session=3, version=12)
    ask(7, session=-1)
    ask(0, session=-1)


def turns(script):
    script.create("t", 4)
    size = 0
    for index in range(4):
        size = script.produce("t", index)
    fields = {"max_bytes": 2 * size, "max_wait_ms": 0}
    script.fetch(*(("t", index, 0) for index in range(4)), session_epoch=0, **fields)
    for epoch in range(1, 5):
        script.fetch(session=1, session_epoch=epoch, **fields)


def strangers(script):
    script.create("t")
    script.produce("t")
    for version in (4, 9, 12, 13, 18):
        script.fetch(("t", 0, 0), ("u", 0, 0), ("t", 5, 0), version=version, session_epoch=0 if version > 6 else -1)
    for epoch in (1, 2):
        script.fetch(session=1, session_epoch=epoch, version=12)
    script.list_offsets("u", -1)
    script.list_offsets("t", -1, index=7)
    script.end_of_epoch("u", 0)
    script.end_of_epoch("t", 0, index=7)


def made_anew(script):
    script.create("t")
    script.produce("t")
    script.fetch(("t", 0, 0), session_epoch=0)
    script.fetch(("t", 0, 0), session_epoch=0, version=12)
    script.delete("t")
    script.fetch(session=1, session_epoch=1, max_wait_ms=0)
    script.fetch(session=2, session_epoch=1, max_wait_ms=0, version=12)
    script.create("t")
    script.produce("t", count=3)
    script.fetch(session=1, session_epoch=2, max_wait_ms=0)
    script.fetch(session=2, session_epoch=2, max_wait_ms=0, version=12)
    script.fetch(("t", 0, 0), forget=[("t@0", 0)], session=1, session_epoch=3, max_wait_ms=0)
    script.fetch(("t@0", 0, 0), max_wait_ms=0)


def epochs(script):
    script.create("t")
    script.produce("t")
    for version in (9, 12, 16, 18):
        for current in (-1, 0, 1):
            script.fetch(("t", 0, 0, {"current_leader_epoch": current}), version=version)
    for offset, epoch in ((0, 0), (10, 0), (11, 0), (-1, 0), (0, 1), (10, 7)):
        script.fetch(("t", 0, offset, {"last_fetched_epoch": epoch}), max_wait_ms=0)
    for version in (2, 3, 4):
        for epoch in (-1, 0, 1):
            script.end_of_epoch("t", epoch, version)
        for current in (0, 1):
            script.end_of_epoch("t", 0, version, current=current)
    for current in (0, 1):
        script.list_offsets("t", -1, -2, epoch=current)


def offsets(script):
    script.create("t")
    marks = (-1, -2, -3, -4, -5, -6, -7, 0)
    script.list_offsets("t", *marks)
    script.produce("t", at_ms=START_MS + 100)
    script.produce("t", at_ms=START_MS + 50)
    script.produce("t", at_ms=START_MS + 200)
    for version in range(1, 12):
        script.list_offsets("t", *marks, version=version)
    for after_ms in (0, 55, 105, 109, 110, 200, 209, 210):
        script.list_offsets("t", START_MS + after_ms)
        script.list_offsets("t", START_MS + after_ms, isolation_level=1)
    script.list_offsets("t", -1, -3, replica_id=-2)


SCRIPTS = [inside_of_a_batch, bounds, waits, out_of_the_log, sessions, turns, strangers, made_anew, epochs, offsets]
