"""Transactional producers and readers of the embedded broker's machine, with raw requests and a clock moved by hand."""

from __future__ import annotations

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from aiogroup.embedded.machine.logs.batches import Record, build, header_of, records_of
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aiogroup.embedded.messages.producer_ids import InitProducerIdRequest
from aiogroup.embedded.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.embedded_clients import Machine


class TransactionMachine(Machine):
    """Topics of two partitions, by calls."""

    def __init__(self, **options):
        super().__init__(**options)
        self.pass_ms(1_700_000_000_000)

    def topic(self, name="t", partitions=2):
        self.do(lambda cluster, now_ms: cluster.topics.create(name, partitions, now_ms))

    def log(self, topic="t", partition=0):
        return self.cluster.topics.partition(topic, partition).log

    def producer(self, name="x", node_id=1):
        return RawProducer(self, name, node_id)

    def read(self, topic="t", partition=0, offset=0, *, is_committed=True, client=None, max_bytes=1 << 20):
        """The values that a reader sees, computed as a client does, and the offset after them."""
        asked = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        topics = (FetchTopic(topic, partitions=(asked,)),)
        request = FetchRequest(isolation_level=int(is_committed), max_wait_ms=0, max_bytes=max_bytes, topics=topics)
        (answer,) = (client or self.client()).ask(request, 12).responses[0].partitions
        assert not answer.error_code
        return seen(answer, offset)

    def committed(self, topic="t", partition=0, group="g", *, stable=True):
        topics = (OffsetFetchRequestTopic(topic, partition_indexes=(partition,)),)
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, topics=topics),), require_stable=stable)
        each = self.client().ask(request, 8).groups[0].topics[0].partitions[0]
        return ErrorCode(each.error_code).name if each.error_code else each.committed_offset


def seen(answer, offset):
    """The values of an answer's records, without aborted transactions, and the offset after them."""
    data, values = memoryview(bytes(answer.records or b"")), []
    aborted = sorted(answer.aborted_transactions or (), key=lambda each: each.first_offset)
    hidden = set()
    while len(data) >= 61:
        header = header_of(data)
        if len(data) < 12 + header.length:
            break
        while aborted and aborted[0].first_offset <= header.last_offset:
            hidden.add(aborted.pop(0).producer_id)
        records = records_of(data[: 12 + header.length])
        if header.is_control:
            if records[0].key[3] == 0:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            values += [bytes(each.value) for each in records if each.offset >= offset]
        offset = max(offset, header.last_offset + 1)
        data = data[12 + header.length :]
    return values, offset


class RawProducer:
    """A transactional producer that does what it is told; each call returns the name of the answer's code."""

    def __init__(self, machine, name="x", node_id=1):
        self.client, self.name = machine.client(node_id), name
        self.machine = machine
        self.producer_id, self.epoch = -1, -1
        self.sequences = {}

    def init(self, timeout_ms=60_000, *, has=False):
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if has else {}
        answer = self.client.ask(InitProducerIdRequest(self.name, timeout_ms, **fields), 5)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code).name

    def _me(self):
        return self.name, self.producer_id, self.epoch

    def add(self, topic="t", *partitions):
        request = AddPartitionsToTxnRequest(*self._me(), (AddPartitionsToTxnTopic(topic, partitions or (0,)),))
        (answer,) = self.client.ask(request, 3).results_by_topic
        return ErrorCode(answer.results_by_partition[0].partition_error_code).name

    def send(self, value, topic="t", partition=0, *, key=None, version=9):
        sequence = self.sequences.get((topic, partition), 0)
        record = Record(0, self.machine.now_ms, key, value)
        batch = build(
            [record],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = (TopicProduceData(topic, partition_data=(PartitionProduceData(partition, bytes(batch)),)),)
        answer = self.client.ask(ProduceRequest(self.name, -1, 1_000, data), version)
        code = answer.responses[0].partition_responses[0].error_code
        if not code:
            self.sequences[topic, partition] = sequence + 1
        return ErrorCode(code).name

    def add_offsets(self, group="g"):
        answer = self.client.ask(AddOffsetsToTxnRequest(*self._me()[:3], group), 3)
        return ErrorCode(answer.error_code).name

    def commit_offset(self, offset, topic="t", partition=0, group="g", version=3):
        asked = TxnOffsetCommitRequestTopic(topic, (TxnOffsetCommitRequestPartition(partition, offset, -1, ""),))
        request = TxnOffsetCommitRequest(self.name, group, self.producer_id, self.epoch, topics=(asked,))
        (answer,) = self.client.ask(request, version).topics[0].partitions
        return ErrorCode(answer.error_code).name

    def end(self, is_committed=True):
        return ErrorCode(self.client.ask(EndTxnRequest(*self._me(), is_committed), 3).error_code).name

    def state(self):
        (answer,) = self.client.ask(DescribeTransactionsRequest((self.name,)), 0).transaction_states
        return ErrorCode(answer.error_code).name if answer.error_code else answer.transaction_state
