"""Requests about transactions, sent raw to a node of Kafka and to the embedded broker's machine, and the answers.

Transcripts of Kafka 4.3.1 are kept in tests/embedded/transactions/golden.json; `python -m
tests.support.transaction_scripts` records them again. Ids are numbered by their first appearance. Of instants only
their presence is recorded.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from pathlib import Path

from aiogroup import devkafka
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup.embedded.machine.logs.batches import Record, build, end_of_transaction, header_of
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
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from aiogroup.embedded.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.any_version import decode_any_response, encode_any_request
from tests.support.embedded_clients import Machine

GOLDEN = Path(__file__).parent.parent / "embedded" / "transactions" / "golden.json"
LATE_SECONDS = 60
TIMEOUT_MS = 1_000
STRANGER = 1 << 40
"""An id that no producer has."""
COMMITTED, UNCOMMITTED = 1, 0
UPDATE_FEATURES, SAFE_DOWNGRADE = 57, 2
AGAIN = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
"""Kafka's answers while a transaction is being ended, or while the coordinator starts."""


class RealNode:
    """A node of Kafka over one connection."""

    def __init__(self, address):
        self._socket = socket.create_connection(address, timeout=LATE_SECONDS)
        self._ends_at = time.monotonic() + 10 * LATE_SECONDS

    def ask(self, request, version):
        frame = encode_any_request(request, version, 1, "scripted")
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        with self._socket.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            return decode_any_response(type(request), version, stream.read(size))[1]

    def speak_the_first_protocol(self):
        """Set transaction.version to 1, as the embedded broker has it: a new cluster has 2 (KIP-890)."""
        name = b"transaction.version"
        level = struct.pack(">hb", 1, SAFE_DOWNGRADE)
        body = struct.pack(">ib", 10_000, 2) + bytes([len(name) + 1]) + name + level + bytes(3)
        frame = struct.pack(">hhih", UPDATE_FEATURES, 1, 1, -1) + bytes(1) + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        with self._socket.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)
        while self._transaction_version() != 1:
            self.pass_ms(20)

    def _transaction_version(self):
        request = ApiVersionsRequest(client_software_name="scripted", client_software_version="1")
        features = self.ask(request, 4).finalized_features
        return next((each.max_version_level for each in features if each.name == "transaction.version"), 0)

    def pass_ms(self, ms):
        assert time.monotonic() < self._ends_at
        time.sleep(ms / 1_000)

    @property
    def now_ms(self):
        return time.time_ns() // 1_000_000

    def close(self):
        self._socket.close()


class PureNode:
    """The only node of the embedded broker's machine."""

    def __init__(self):
        self.machine = Machine()
        self.machine.pass_ms(1_700_000_000_000)
        self._client = self.machine.client()

    def ask(self, request, version):
        answer = self._client.ask(request, version)
        assert answer is not None, "it waits"
        return answer

    def pass_ms(self, ms):
        self.machine.pass_ms(ms)

    @property
    def now_ms(self):
        return self.machine.now_ms


class Producer:
    """A transactional producer's own state."""

    def __init__(self, transactional_id, producer_id=-1, epoch=-1):
        self.transactional_id, self.producer_id, self.epoch = transactional_id, producer_id, epoch

    def but(self, **changes):
        """A copy with some wrong fields."""
        found = Producer(self.transactional_id, self.producer_id, self.epoch)
        for name, value in changes.items():
            setattr(found, name, value)
        return found


class Talk:
    """Sends a script's requests and records the answers. All names get a suffix, so that runs do not interfere."""

    def __init__(self, node, suffix):
        self.node = node
        self.transcript = []
        self._end = f"-{suffix}"
        self._ids = {-1: "none"}
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(self.name("c"),))
            self._until(lambda request=request: not node.ask(request, 4).coordinators[0].error_code)

    def name(self, name):
        return f"{name}{self._end}" if name else name

    def plain(self, name):
        return name.removesuffix(self._end)

    def _until(self, is_so):
        ends_at = time.monotonic() + LATE_SECONDS
        while not is_so():
            assert time.monotonic() < ends_at
            self.node.pass_ms(20)

    def _id(self, producer_id):
        return self._ids.setdefault(producer_id, f"producer {len(self._ids)}")

    def said(self, *what):
        self.transcript.append(list(what))

    def _settled(self, request, version, code_of):
        """The answer once no transaction is being ended any more."""
        found = []
        self._until(lambda: found.append(self.node.ask(request, version)) or code_of(found[-1]) not in AGAIN)
        return found[-1]

    # Topics and records.

    def create(self, *names, count=1):
        topics = tuple(CreatableTopic(self.name(name), count, 1) for name in names)
        answer = self.node.ask(CreateTopicsRequest(topics, 10_000), 7)
        assert not any(each.error_code for each in answer.topics)
        for name in names:
            self._until(lambda name=name: all(self._is_led(name, index) for index in range(count)))

    def _is_led(self, name, index):
        topics = (ListOffsetsTopic(self.name(name), (ListOffsetsPartition(index, -1, -1),)),)
        return not self.node.ask(ListOffsetsRequest(topics=topics), 7).topics[0].partitions[0].error_code

    def delete(self, name):
        request = DeleteTopicsRequest(topics=(DeleteTopicState(self.name(name)),), timeout_ms=10_000)
        assert not self.node.ask(request, 6).responses[0].error_code
        told = MetadataRequest(topics=(MetadataRequestTopic(name=self.name(name)),))
        self._until(lambda: self.node.ask(told, 9).topics[0].error_code)

    def delete_records(self, name, offset, partition=0):
        asked = DeleteRecordsTopic(self.name(name), (DeleteRecordsPartition(partition, offset),))
        (topic,) = self.node.ask(DeleteRecordsRequest((asked,), 10_000), 2).topics
        each = topic.partitions[0]
        self.said("delete records", name, ErrorCode(each.error_code).name, each.low_watermark)

    def produce(
        self, why, who, sequence=0, topic="t", *, partition=0, count=1, version=11, is_transactional=True, names=True
    ):
        """Produce a batch. `who` may be `None`, or several producers: then each sends a batch, to the partitions from 0
        on.
        """
        self.node.pass_ms(2)  # so that no two batches have the same instant
        data = []
        for place, each in enumerate(who if isinstance(who, tuple) else (who,)):
            fields = {}
            if each is not None:
                fields = {"producer_id": each.producer_id, "producer_epoch": each.epoch, "base_sequence": sequence}
            records = [Record(number, self.node.now_ms, None, b"v") for number in range(count)]
            batch = build(records, **fields, is_transactional=is_transactional and each is not None)
            data.append(PartitionProduceData(partition + place, bytes(batch)))
        first = who[0] if isinstance(who, tuple) else who
        name = first.transactional_id if first is not None and names else None
        request = ProduceRequest(name, -1, 10_000, (TopicProduceData(self.name(topic), partition_data=tuple(data)),))
        answer = self.node.ask(request, version)
        for each in sorted(answer.responses[0].partition_responses, key=lambda one: one.index):
            code = ErrorCode(each.error_code).name
            self.said("produce", why, f"{topic}-{each.index}", code, each.base_offset)

    def fetch(self, offset=0, topic="t", *, partition=0, level=COMMITTED, max_bytes=1 << 20, version=12):
        asked = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        topics = (FetchTopic(self.name(topic), partitions=(asked,)),)
        request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, isolation_level=level, topics=topics)
        (each,) = self.node.ask(request, version).responses[0].partitions
        data, batches = memoryview(bytes(each.records or b"")), []
        while len(data) > 61:
            header = header_of(data)
            batches.append(header.base_offset)
            data = data[12 + header.length :]
        aborted = each.aborted_transactions
        self.said(
            "fetch",
            f"{topic}-{partition} from {offset}, level {level}",
            ErrorCode(each.error_code).name,
            each.high_watermark,
            each.last_stable_offset,
            batches,
            aborted if aborted is None else [[self._id(one.producer_id), one.first_offset] for one in aborted],
        )

    def stored(self, topic="t", partition=0):
        """The headers of all batches, and the contents of markers."""
        asked = FetchPartition(partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = (FetchTopic(self.name(topic), partitions=(asked,)),)
        answer = self.node.ask(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=topics), 12)
        data = memoryview(bytes(answer.responses[0].partitions[0].records or b""))
        while data:
            header = header_of(data)
            batch = data[: 12 + header.length]
            end = end_of_transaction(batch) if header.is_control else None
            told = None if end is None else ["commit" if end.is_committed else "abort", len(batch)]
            who = [self._id(header.producer_id), header.producer_epoch, header.base_sequence]
            self.said("stored", topic, header.base_offset, header.last_offset_delta, header.attributes, *who, told)
            data = data[len(batch) :]

    def ends(self, topic="t", partition=0, marks=(-1, -2, -3, 0)):
        for level in (UNCOMMITTED, COMMITTED):
            for mark in marks:
                asked = ListOffsetsTopic(self.name(topic), (ListOffsetsPartition(partition, -1, mark),))
                request = ListOffsetsRequest(isolation_level=level, topics=(asked,))
                each = self.node.ask(request, 7).topics[0].partitions[0]
                self.said("end", level, mark, ErrorCode(each.error_code).name, each.offset, each.timestamp >= 0)

    def producers(self, topic="t", partition=0):
        asked = (DescribeProducersTopic(self.name(topic), (partition,)),)
        (found,) = self.node.ask(DescribeProducersRequest(asked), 0).topics[0].partitions
        for each in sorted(found.active_producers, key=lambda one: one.producer_id):
            self.said(
                "producer",
                self._id(each.producer_id),
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp > 0,
                each.coordinator_epoch >= 0,
                each.current_txn_start_offset,
            )

    # Transactions.

    def init(self, why, name="x", *, version=5, timeout_ms=60_000, has=None, fences=False):
        """Get a producer's id. `fences`: another producer's transaction is under way."""
        fields = {} if has is None else {"producer_id": has.producer_id, "producer_epoch": has.epoch}
        request = InitProducerIdRequest(self.name(name), timeout_ms, **fields)
        if fences:
            self.said("init", why, ErrorCode(self.node.ask(request, version).error_code).name)
        answer = self._settled(request, version, lambda each: each.error_code)
        code = ErrorCode(answer.error_code).name
        self.said("init", why, code, self._id(answer.producer_id), answer.producer_epoch)
        return Producer(self.name(name), answer.producer_id, answer.producer_epoch)

    def add(self, why, who, *partitions, version=3):
        topics = {}
        for topic, index in partitions or (("t", 0),):
            topics.setdefault(self.name(topic), []).append(index)
        asked = tuple(AddPartitionsToTxnTopic(topic, tuple(indexes)) for topic, indexes in topics.items())
        request = AddPartitionsToTxnRequest(who.transactional_id, who.producer_id, who.epoch, asked)

        def told(answer):
            return [each for topic in answer.results_by_topic for each in topic.results_by_partition]

        def code_of(answer):
            return next((each.partition_error_code for each in told(answer)), 0)

        answer = self._settled(request, version, code_of)
        found = sorted(
            [self.plain(topic.name), each.partition_index, ErrorCode(each.partition_error_code).name]
            for topic in answer.results_by_topic
            for each in topic.results_by_partition
        )
        self.said("add", why, found)

    def add_offsets(self, why, who, group="g", *, version=4):
        request = AddOffsetsToTxnRequest(who.transactional_id, who.producer_id, who.epoch, self.name(group))
        answer = self._settled(request, version, lambda each: each.error_code)
        self.said("add offsets", why, ErrorCode(answer.error_code).name)

    def end(self, why, who, is_committed=True, *, version=4):
        self.node.pass_ms(2)
        request = EndTxnRequest(who.transactional_id, who.producer_id, who.epoch, is_committed)
        answer = self._settled(request, version, lambda each: each.error_code)
        self.said("end of transaction", why, is_committed, ErrorCode(answer.error_code).name)
        if who.transactional_id:
            self._until(lambda: not self._state(who.transactional_id).startswith("Prepare"))

    def _state(self, transactional_id):
        return self._described(transactional_id).transaction_state

    def _described(self, transactional_id):
        return self.node.ask(DescribeTransactionsRequest((transactional_id,)), 0).transaction_states[0]

    def await_abort(self, who):
        """Wait until the transaction has timed out."""
        self._until(lambda: self._state(who.transactional_id) == "CompleteAbort")

    def describe(self, *names):
        for name in names:
            each = self._described(self.name(name))
            topics = sorted([self.plain(one.topic), sorted(one.partitions)] for one in each.topics)
            self.said(
                "described",
                name,
                ErrorCode(each.error_code).name,
                each.transaction_state,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms > 0,
                each.producer_id if each.error_code else self._id(each.producer_id),
                each.producer_epoch,
                topics,
            )

    def listed(self, why, *, version=1, mine=True, **filters):
        answer = self.node.ask(ListTransactionsRequest(**filters), version)
        found = sorted(
            [self.plain(each.transactional_id), each.transaction_state, self._id(each.producer_id)]
            for each in answer.transaction_states
            if each.transactional_id.endswith(self._end)
        )
        self.said("listed", why, ErrorCode(answer.error_code).name, sorted(answer.unknown_state_filters), found)

    # Groups.

    def join(self, group="g"):
        """Join one member. Returns its id and generation."""
        protocols = (JoinGroupRequestProtocol("range", b""),)
        fields = {"protocol_type": "consumer", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
        member_id = ""
        while True:
            request = JoinGroupRequest(self.name(group), member_id=member_id, protocols=protocols, **fields)
            answer = self.node.ask(request, 5)
            member_id = answer.member_id
            if not answer.error_code:
                return member_id, answer.generation_id

    def sync(self, member, group="g"):
        answer = self.node.ask(SyncGroupRequest(self.name(group), member[1], member[0], assignments=()), 3)
        assert not answer.error_code

    def leave(self, member, group="g"):
        self.node.ask(LeaveGroupRequest(self.name(group), members=(MemberIdentity(member[0]),)), 3)

    def commit_in(self, why, who, offset, topic="t", *, group="g", partition=0, version=4, member=None, metadata=""):
        """Commit an offset in a transaction."""
        asked = TxnOffsetCommitRequestPartition(partition, offset, -1, metadata)
        fields = {} if member is None else {"member_id": member[0], "generation_id": member[1]}
        request = TxnOffsetCommitRequest(
            who.transactional_id,
            self.name(group),
            who.producer_id,
            who.epoch,
            **fields,
            topics=(TxnOffsetCommitRequestTopic(self.name(topic), (asked,)),),
        )

        def code_of(answer):
            return answer.topics[0].partitions[0].error_code

        answer = self._settled(request, version, code_of)
        self.said("commit in", why, offset, ErrorCode(code_of(answer)).name)

    def commit(self, offset, topic="t", *, group="g", partition=0):
        """Commit an offset without a transaction and without a member."""
        asked = OffsetCommitRequestTopic(
            self.name(topic), partitions=(OffsetCommitRequestPartition(partition, offset),)
        )
        answer = self.node.ask(OffsetCommitRequest(self.name(group), topics=(asked,)), 5)
        self.said("commit", offset, ErrorCode(answer.topics[0].partitions[0].error_code).name)

    def await_forgotten(self, topic, partition, group="g"):
        """Wait until a deleted topic's offsets are forgotten, which happens a moment after the deletion."""
        topics = (OffsetFetchRequestTopic(self.name(topic), partition_indexes=(partition,)),)
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(self.name(group), topics=topics),))
        self._until(lambda: self.node.ask(request, 5).groups[0].topics[0].partitions[0].committed_offset < 0)

    def committed(self, topic="t", *, group="g", partition=0, stable=True, version=7, is_all=False):
        topics = None if is_all else (OffsetFetchRequestTopic(self.name(topic), partition_indexes=(partition,)),)
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(self.name(group), topics=topics),), require_stable=stable
        )
        (found,) = self.node.ask(request, version).groups
        told = [
            [self.plain(one.name), each.partition_index, ErrorCode(each.error_code).name, each.committed_offset]
            for one in found.topics
            for each in one.partitions
        ]
        self.said("committed", f"stable {stable}, version {version}", ErrorCode(found.error_code).name, sorted(told))


def of_each_version(talk):
    talk.create("t")
    for version in range(6):
        talk.init(f"version {version}", f"v{version}", version=version)
    for version in range(5):
        who = talk.init("", version=5)
        talk.add(f"version {version}", who, version=min(version, 3))
        talk.produce(f"version {version + 7}", who, 0, version=version + 7)
        talk.add_offsets(f"version {version}", who, version=version)
        talk.commit_in(f"version {version}", who, version, version=version)
        talk.describe("x")
        for listing in range(2):
            talk.listed(f"version {listing}", version=listing)
        talk.end(f"version {version}", who, version % 2 == 0, version=version)
        talk.committed()
    for version in range(4, 13):
        talk.fetch(version=version)
    talk.stored()
    talk.producers()


def states(talk):
    talk.create("t", "u", count=2)
    who = talk.init("first")
    talk.describe("x", "nobody", "")
    for is_committed in (True, False):
        talk.end("nothing is under way", who, is_committed)
    talk.add("no partition", who, ("t", 7), ("t", 0))
    talk.add("no topic", who, ("none", 0), ("t", 0), ("u", 1))
    talk.describe("x")
    talk.add("two topics", who, ("t", 0), ("u", 1))
    talk.describe("x")
    talk.add("again", who, ("t", 0))
    talk.add("one more", who, ("t", 1), ("t", 0))
    talk.describe("x")
    stranger, other, older = (
        who.but(transactional_id=talk.name("nobody")),
        who.but(producer_id=STRANGER),
        who.but(epoch=9),
    )
    empty = who.but(transactional_id="")
    for what, wrong in (("unknown", stranger), ("another id", other), ("another epoch", older), ("no name", empty)):
        talk.add(what, wrong)
        talk.add_offsets(what, wrong)
        talk.end(what, wrong)
    talk.produce("one", who, 0)
    talk.end("commit", who)
    talk.describe("x")
    talk.end("commit again", who)
    talk.end("abort after it", who, False)
    talk.add("the next transaction", who)
    talk.describe("x")
    talk.end("abort", who, False)
    talk.end("abort again", who, False)
    talk.end("commit after it", who)
    for topic, index in (("t", 0), ("t", 1), ("u", 0), ("u", 1)):
        talk.stored(topic, index)
    for timeout_ms in (0, -1, 900_000, 900_001):
        talk.init(f"timeout {timeout_ms}", timeout_ms=timeout_ms)
    talk.init("no name", "")
    talk.init("no name and no time", "", timeout_ms=0)
    talk.describe("x")


def fencing(talk):
    talk.create("t")
    first = talk.init("first")
    second = talk.init("second")
    talk.add("the first one", first)
    talk.add("the second one", second)
    talk.produce("the second one", second, 0)
    talk.produce("the first one", first, 0)
    third = talk.init("third, while a transaction is under way", fences=True)
    talk.describe("x")
    for version in range(5):
        talk.add(f"version {version}", second, version=min(version, 3))
        talk.add_offsets(f"version {version}", second, version=version)
        talk.end(f"version {version}", second, version=version)
        talk.commit_in(f"version {version}", second, 5, version=version)
    for version in (3, 9, 10, 11, 12):
        talk.produce(f"version {version}", second, 1, version=version)
    talk.fetch()
    talk.stored()
    talk.add("the third one", third)
    talk.produce("the third one", third, 0)
    talk.produce("the second one", second, 1)
    talk.end("the third one", third)
    for version in range(3, 6):
        talk.init(f"an old epoch, version {version}", has=first, version=version)
        talk.init(f"another id, version {version}", has=third.but(producer_id=STRANGER), version=version)
    fourth = talk.init("with what it has", has=third)
    talk.init("again, as the answer was lost", has=third)
    talk.init("with half of it", has=third.but(epoch=-1))
    talk.init("with what it has now", has=fourth)
    talk.init("a new one with anything", "y", has=third)
    fifth = talk.init("a new one", "y")
    talk.describe("x", "y")
    talk.add("under way", fifth)
    talk.init("under way, with what it has", "y", has=fifth, fences=True)
    talk.describe("y")
    talk.fetch()


def zombies(talk):
    """Batches of a fenced producer do not hinder its successor."""
    talk.create("t")
    old = talk.init("old")
    talk.add("old", old)
    talk.produce("old", old, 0)
    talk.end("old", old)
    talk.produce("old, in no transaction", old, 1)
    new = talk.init("new")
    talk.add("new", new)
    talk.produce("new", new, 0)
    for sequence in range(3):
        talk.produce(f"old {sequence}", old, sequence)
        talk.produce(f"new {sequence + 1}", new, sequence + 1)
    talk.end("new", new)
    talk.produce("old", old, 0)
    talk.add("new", new)
    talk.produce("new", new, 4)
    talk.end("new", new)
    talk.stored()


def reading(talk):
    talk.create("t")
    one, other, third = (talk.init("", name) for name in "xyz")
    talk.produce("plain", None)
    for who in (one, other, third):
        talk.add("", who)
    talk.ends()
    talk.produce("0", one, 0)
    talk.fetch()
    talk.produce("0", other, 0)
    talk.produce("plain", None, count=3)
    talk.produce("1", one, 1, count=2)
    for offset in range(3):
        talk.fetch(offset)
    talk.fetch(level=UNCOMMITTED)
    talk.ends()
    talk.producers()
    talk.end("one", one)
    talk.fetch()
    talk.ends()
    talk.produce("0", third, 0)
    talk.end("other", other, False)
    talk.produce("plain", None)
    talk.end("third", third, False)
    talk.producers()
    talk.ends()
    for offset in range(15):
        talk.fetch(offset)
    talk.fetch(0, max_bytes=200)
    talk.fetch(3, max_bytes=100)
    talk.fetch(level=UNCOMMITTED)
    talk.stored()
    talk.add("", one)
    talk.add("", third)
    talk.produce("goes on", one, 3)
    talk.produce("goes on", third, 1)
    talk.delete_records("t", 5)
    talk.fetch(5)
    talk.delete_records("t", -1)
    talk.fetch(15)
    talk.ends(marks=(-1, -2, 0))  # Kafka's segment still has the latest time of a deleted record
    talk.end("one", one)
    talk.end("third", third, False)
    talk.ends()
    for offset in range(13, 19):
        talk.fetch(offset)


def produced(talk):
    talk.create("t", "u", count=2)
    who = talk.init("")
    for version in range(7, 12):
        talk.produce(f"not added, version {version}", who, 0, version=version)
    talk.add("", who)
    talk.produce("another partition", who, 0, partition=1)
    talk.produce("another topic", who, 0, "u")
    talk.produce("both", (who, who), 0)
    talk.produce("no name", who, 1, names=False)
    talk.produce("another name", who.but(transactional_id=talk.name("other")), 1)
    talk.produce("another name, another partition", who.but(transactional_id=talk.name("other")), 0, partition=1)
    talk.produce("another id", who.but(producer_id=STRANGER), 0)
    talk.produce("another epoch", who.but(epoch=5), 0)
    talk.produce("two producers", (who, who.but(producer_id=STRANGER)), 1)
    talk.produce("two epochs", (who, who.but(epoch=7)), 1)
    talk.produce("a gap", who, 5)
    talk.produce("not transactional", who, 1, is_transactional=False)
    talk.produce("not transactional, no name", who, 1, is_transactional=False, names=False)
    talk.produce("goes on", who, 1)
    talk.produce("again", who, 1)
    talk.end("", who)
    talk.produce("after the end", who, 2)
    talk.produce("again after the end", who, 1)
    talk.produce("not transactional after the end", who, 2, is_transactional=False)
    talk.add("", who)
    talk.produce("the next transaction from 0", who, 0)
    talk.produce("the next transaction", who, 3)
    talk.end("", who, False)
    talk.produce("version 12 adds what is missing", who, 0, partition=1, version=12)
    talk.describe("x")
    talk.end("", who)
    again = talk.init("")
    talk.add("", again)
    talk.produce("the next epoch in the middle", again, 4)
    talk.produce("the next epoch", again, 0)
    talk.produce("the epoch before", who, 4)
    talk.end("", again)
    talk.stored()
    talk.stored("t", 1)
    talk.stored("u")
    talk.producers()


def offsets(talk):
    talk.create("t", "u", count=2)
    who, other = talk.init(""), talk.init("", "y")
    for version in range(5):
        talk.commit_in(f"not added, version {version}", who, 1, version=version)
    talk.commit(2)
    talk.add_offsets("", who)
    talk.describe("x")
    talk.commit_in("", who, 7)
    talk.commit_in("", who, 8, "u", partition=1)
    for version in range(1, 8):
        talk.committed(version=version, stable=version == 7)
    talk.committed(stable=False)
    talk.committed("u", partition=1)
    talk.committed("u", partition=0)
    talk.committed(is_all=True)
    talk.committed(is_all=True, stable=False)
    talk.commit_in("later", who, 9)
    talk.commit_in("another id", who.but(producer_id=STRANGER), 9)
    talk.commit_in("another epoch", who.but(epoch=7), 9)
    talk.commit_in("an older epoch", who.but(epoch=-1), 9)
    talk.commit_in("no topic", who, 9, "none")
    talk.commit_in("no partition", who, 9, partition=9)
    talk.commit_in("no group", who, 9, group="")
    talk.commit_in("a long word", who, 10, partition=1, metadata="m" * 4_097)
    talk.commit_in("a word", who, 10, partition=1, metadata="m" * 4_096)
    talk.end("", who)
    talk.committed(is_all=True)
    talk.commit_in("after the end", who, 11)
    talk.add_offsets("", who)
    talk.commit_in("", who, 11)
    talk.end("", who, False)
    talk.committed(is_all=True)
    for what, first_end, second_end in (("both", who, other), ("both, the other way", other, who)):
        talk.add_offsets(what, who)
        talk.add_offsets(what, other)
        talk.commit_in("first", who, 20)
        talk.commit_in("second", other, 30)
        talk.committed()
        talk.end(what, first_end)
        talk.committed()
        talk.committed(stable=False)
        talk.end(what, second_end)
        talk.committed()
    talk.add_offsets("", who)
    talk.commit_in("overtaken", who, 40)
    talk.commit(50)
    talk.committed()
    talk.end("", who)
    talk.committed()
    talk.add_offsets("", who)
    talk.commit_in("a topic that goes", who, 60, "u")
    talk.commit_in("", who, 60)
    talk.delete("u")
    talk.await_forgotten("u", 1)
    talk.end("", who)
    talk.committed(is_all=True)


def members(talk):
    talk.create("t")
    who = talk.init("")
    for group in "ghi":
        talk.add_offsets("", who, group)
    for version in (3, 4):
        talk.commit_in(f"a generation of nobody, version {version}", who, 1, version=version, member=("", 3))
    member = talk.join()
    talk.commit_in("before the assignment", who, 1, member=member)
    talk.sync(member)
    for version in range(5):
        fields = {"member": member} if version >= 3 else {}
        talk.commit_in(f"a member, version {version}", who, 2, version=version, **fields)
    talk.commit_in("nobody", who, 3)
    talk.commit_in("another member", who, 3, member=("who", member[1]))
    talk.commit_in("another generation", who, 3, member=(member[0], member[1] + 1))
    talk.commit_in("a member without a generation", who, 3, member=(member[0], -1))
    talk.commit_in("a generation without a member", who, 3, member=("", member[1]))
    talk.leave(member)
    talk.commit_in("it has left", who, 4, member=member)
    talk.commit_in("nobody is left", who, 5)
    talk.commit_in("a member without a group", who, 5, group="h", member=("who", -1))
    talk.end("", who)
    talk.committed()
    talk.committed(group="h")
    talk.committed(group="i")


def timeouts(talk):
    talk.create("t")
    who = talk.init("", timeout_ms=TIMEOUT_MS)
    talk.commit(1)
    talk.add("", who)
    talk.add_offsets("", who)
    talk.produce("", who, 0)
    talk.commit_in("", who, 5)
    talk.committed()
    talk.await_abort(who)
    talk.describe("x")
    talk.committed()
    talk.fetch()
    talk.stored()
    talk.producers()
    talk.produce("it does not know", who, 1)
    talk.add("it does not know", who)
    talk.commit_in("it does not know", who, 6)
    for version in (1, 2):
        talk.end("it does not know", who, version=version)
    talk.init("with what it has", has=who)
    talk.init("without")
    talk.describe("x")


def listings(talk):
    talk.create("t")
    fresh, open_one, done, undone = (talk.init("", name) for name in ("fresh", "open", "done", "undone"))
    for who in (open_one, done, undone):
        talk.add("", who)
    talk.end("", done)
    talk.end("", undone, False)
    talk.listed("all")
    talk.listed("by state", state_filters=("Ongoing", "CompleteAbort", "no such state", "ongoing", "Dead"))
    talk.listed("unknown states", state_filters=("ongoing",))
    talk.listed("by producer", producer_id_filters=(fresh.producer_id, done.producer_id, 1 << 40))
    talk.listed("both", producer_id_filters=(fresh.producer_id,), state_filters=("Ongoing",))
    for duration_ms in (-2, 0, 60_000):
        talk.listed(f"longer than {duration_ms}", duration_filter=duration_ms)
    talk.describe("fresh", "open", "done", "undone")


def deletions(talk):
    talk.create("t", "u")
    who = talk.init("")
    talk.add("", who, ("t", 0), ("u", 0))
    talk.produce("", who, 0)
    talk.produce("", who, 0, "u")
    talk.delete("t")
    talk.describe("x")
    talk.end("one of its topics is gone", who)
    talk.describe("x")
    talk.stored("u")


SCRIPTS = (
    of_each_version,
    states,
    fencing,
    zombies,
    reading,
    produced,
    offsets,
    members,
    timeouts,
    listings,
    deletions,
)


def golden():
    """Kafka's transcripts by the names of the scripts."""
    return json.loads(GOLDEN.read_text())


def transcript_of(script, node, suffix):
    talk = Talk(node, suffix)
    script(talk)
    return talk.transcript


class Cluster(devkafka.Cluster):
    """A node of Kafka with the first protocol of transactions."""

    def __init__(self):
        super().__init__(properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})

    def node(self):
        host, port = self.bootstrap_servers.split(":")
        return RealNode((host, int(port)))

    def __enter__(self):
        super().__enter__()
        node = self.node()
        node.speak_the_first_protocol()
        node.close()
        return self


def of_kafka(script, cluster):
    node = cluster.node()
    try:
        return transcript_of(script, node, f"{time.time_ns():x}")
    finally:
        node.close()


def record():
    """Record Kafka's transcripts again."""
    with Cluster() as cluster:
        found = {script.__name__: of_kafka(script, cluster) for script in SCRIPTS}
    lines = [
        f"  {json.dumps(name)}: [\n    " + ",\n    ".join(map(json.dumps, told)) + "\n  ]"
        for name, told in found.items()
    ]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
