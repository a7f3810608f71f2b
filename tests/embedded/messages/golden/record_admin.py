"""Records what a real broker answers to the broker's messages: `python record_admin.py HOST:PORT`, see README.md.

For each version up to the newest there is a topic, a group and a transaction of its own. For each (request, version)
the first answer is kept that does not tell the client to ask again.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aiogroup._core.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aiogroup._core.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.schema import specs
from aiogroup.devkafka.waiting import wait_until
from aiogroup.embedded.messages.cluster import (
    DescribableLogDirTopic,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ElectableTopic,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    TopicRequest,
)
from aiogroup.embedded.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from aiogroup.embedded.messages.groups import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aiogroup.embedded.messages.producer_ids import InitProducerIdRequest
from aiogroup.embedded.messages.ranges import LATER, RANGES
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
    CreatePartitionsRequest,
    CreatePartitionsTopic,
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

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request, Response

ALL = {**RANGES, **LATER}
NEWEST = 13
TOPIC, TRANSACTION = 2, 1
ASK_AGAIN = {14, 15, 16, 51}
"""The codes while the coordinator loads or moves, or a transaction is being ended."""


def codes(message: Any) -> set[int]:
    """All error codes of a message."""
    found = set()
    for spec in specs(type(message)):
        value = getattr(message, spec.name)
        if spec.name.endswith("error_code"):
            found.add(value)
        for each in value if isinstance(value, tuple) else (value,):
            if hasattr(type(each), "__dataclass_fields__"):
                found |= codes(each)
    return found


class Link:
    """One connection, and the exchanges on it."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        self.file = self.socket.makefile("rb")
        self.kept: dict[tuple[str, int], dict[str, object]] = {}

    def ask(self, request: Request[Any], version: int) -> Response:
        """The answer in this version, or in the one nearest to it."""
        kind = type(request)
        lowest, highest = ALL[kind]
        if kind is ProduceRequest:
            lowest = ProduceRequest.MIN_VERSION
        version = max(lowest, min(version, highest))
        answers: list[Any] = []

        def is_answered() -> bool:
            frame = encode_any_request(request, version, 1, "golden")
            self.socket.sendall(len(frame).to_bytes(4) + frame)
            answer = self.file.read(int.from_bytes(self.file.read(4)))
            _, response = decode_any_response(kind, version, answer)
            row = {"message": kind.api_name(), "version": version, "request": frame.hex(), "response": answer.hex()}
            answers.append((row, response))
            return not codes(response) & ASK_AGAIN

        wait_until(is_answered, 30_000, lambda: f"{kind.api_name()}: {answers[-1][1]}")
        row, response = answers[-1]
        if kind.api_name() != "JoinGroup" or version < JoinGroupRequest.MIN_VERSION:
            self.kept.setdefault((kind.api_name(), version), row)
        return response  # type: ignore[no-any-return]


def batch(producer_id: int = -1, epoch: int = -1, *, is_transactional: bool = False) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1 if is_transactional else 0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0 if is_transactional else -1,
        batch_size=1000,
    )
    builder.append(0, 1_700_000_000_000, b"key", b"value", [])
    return bytes(builder.build())


def topics(link: Link, version: int) -> tuple[str, UUID]:
    """Make topics, change them, and delete all but one, which is returned."""
    name, gone = f"golden-{version}", f"gone-{version}"
    made: Any = link.ask(
        CreateTopicsRequest(
            (
                CreatableTopic(name, 1, 1, configs=(CreatableTopicConfig("retention.ms", "-1"),)),
                CreatableTopic(gone, -1, -1, (CreatableReplicaAssignment(0, (1,)),)),
                CreatableTopic("no/name", 1, 1),
            )
        ),
        version,
    )
    topic_id = next(each.topic_id for each in made.topics if each.name == name)
    grown = (CreatePartitionsTopic(name, 2, None), CreatePartitionsTopic(gone, 1, None))
    link.ask(CreatePartitionsRequest(grown, 10_000), version)
    asked = (
        {"topics": tuple(map(DeleteTopicState, (gone, "no/name")))}
        if version > 5
        else {"topic_names": (gone, "no/name")}
    )
    link.ask(DeleteTopicsRequest(**asked, timeout_ms=10_000), version)
    wait_until(lambda: is_led(link, name), 30_000, lambda: f"no leader of {name}")
    return name, topic_id


def is_led(link: Link, name: str) -> bool:
    answer: Any = Link(*link.socket.getpeername()).ask(DescribeTopicPartitionsRequest((TopicRequest(name),)), 0)
    return [each.error_code for each in answer.topics[0].partitions] == [0, 0]


def logs(link: Link, version: int, name: str, topic_id: UUID) -> None:
    data = TopicProduceData(name, topic_id, (PartitionProduceData(0, batch()), PartitionProduceData(1, b"")))
    link.ask(ProduceRequest(None, -1, 10_000, (data,)), version)
    first = DeleteRecordsTopic(name, (DeleteRecordsPartition(0, -1), DeleteRecordsPartition(1, 9)))
    link.ask(DeleteRecordsRequest((first,), 10_000), version)
    link.ask(DescribeProducersRequest((DescribeProducersTopic(name, (0,)),)), version)
    link.ask(DescribeLogDirsRequest((DescribableLogDirTopic(name, (0,)),)), version)


def cluster(link: Link, version: int, name: str) -> None:
    link.ask(DescribeClusterRequest(), version)
    link.ask(DescribeTopicPartitionsRequest((TopicRequest(name), TopicRequest("unknown")), 1), version)
    link.ask(ElectLeadersRequest(0, (ElectableTopic(name, (0,)),)), version)
    link.ask(ListPartitionReassignmentsRequest(), version)
    change = AlterConfigsResource(TOPIC, name, (AlterableConfig("retention.ms", "1000"),))
    link.ask(AlterConfigsRequest((change, AlterConfigsResource(TOPIC, "unknown"))), version)
    changes = (
        IncrementalAlterableConfig("cleanup.policy", 2, "compact"),
        IncrementalAlterableConfig("no.name", 0, "1"),
    )
    resources = tuple(IncrementalAlterConfigsResource(TOPIC, name, (each,)) for each in changes[:1])
    link.ask(IncrementalAlterConfigsRequest(resources), version)
    wanted = (DescribeConfigsResource(TOPIC, name, ("retention.ms",)), DescribeConfigsResource(TOPIC, "unknown"))
    link.ask(DescribeConfigsRequest(wanted, include_synonyms=True), version)
    link.ask(ListConfigResourcesRequest(), version)


def groups(link: Link, version: int, name: str) -> None:
    group = f"golden-{version}"
    link.ask(FindCoordinatorRequest(coordinator_keys=(group,)), 6)
    if version < JoinGroupRequest.MIN_VERSION:
        offer = (JoinGroupRequestProtocol("range", bytes(6)),)
        joined: Any = link.ask(JoinGroupRequest(group, 30_000, -1, protocol_type="consumer", protocols=offer), version)
        link.ask(LeaveGroupRequest(group, members=(MemberIdentity(joined.member_id),)), version)
    link.ask(OffsetDeleteRequest(group, (OffsetDeleteRequestTopic(name, (OffsetDeleteRequestPartition(0),)),)), version)
    link.ask(DeleteGroupsRequest((group, "unknown")), version)
    beat = {"member_id": f"member-{version}", "rebalance_timeout_ms": 60_000, "topic_partitions": ()}
    link.ask(ConsumerGroupHeartbeatRequest(f"new-{group}", **beat, subscribed_topic_names=(name,)), version)
    link.ask(ConsumerGroupDescribeRequest((f"new-{group}", "unknown")), version)


def transaction(link: Link, version: int, name: str, topic_id: UUID) -> None:
    me, group = f"golden-{version}", f"txn-{version}"
    link.ask(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=(me,)), 6)
    link.ask(FindCoordinatorRequest(coordinator_keys=(group,)), 6)
    got: Any = link.ask(InitProducerIdRequest(me, 60_000), version)
    who = (me, got.producer_id, got.producer_epoch)
    link.ask(AddPartitionsToTxnRequest(*who, (AddPartitionsToTxnTopic(name, (0,)),)), version)
    records = batch(*who[1:], is_transactional=True)
    link.ask(
        ProduceRequest(me, -1, 10_000, (TopicProduceData(name, topic_id, (PartitionProduceData(0, records),)),)), 11
    )
    link.ask(AddOffsetsToTxnRequest(*who, group), version)
    offsets = (TxnOffsetCommitRequestTopic(name, (TxnOffsetCommitRequestPartition(0, 1, -1, "golden"),)),)
    link.ask(TxnOffsetCommitRequest(me, group, *who[1:], topics=offsets), version)
    link.ask(DescribeTransactionsRequest((me,)), version)
    link.ask(ListTransactionsRequest(("Ongoing", "unknown")), version)
    link.ask(EndTxnRequest(*who, committed=version % 2 == 0), version)


def main() -> None:
    host, port = sys.argv[1].rsplit(":", 1)
    link = Link(host, int(port))
    for version in range(NEWEST + 1):
        name, topic_id = topics(link, version)
        logs(link, version, name, topic_id)
        cluster(link, version, name)
        groups(link, version, name)
        transaction(link, version, name, topic_id)
    dull = {FindCoordinatorRequest.api_name(), LeaveGroupRequest.api_name()}
    lines = [json.dumps(link.kept[each]) for each in sorted(link.kept) if each[0] not in dull]
    Path(__file__).with_name("broker_session.jsonl").write_text("\n".join(lines) + "\n")
    sys.stdout.write(f"{len(lines)} exchanges\n")


if __name__ == "__main__":
    main()
