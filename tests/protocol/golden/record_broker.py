"""Records what a real broker answers: `python record_broker.py HOST:PORT`, see README.md beside this file.

One short group session per level from 0 to the newest version; at each level every request is sent in the highest
version that is neither above the level nor outside of what both sides speak. Each (request, version) is kept once.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer

from aiogroup._core.protocol import decode_response, encode_request, negotiate
from aiogroup._core.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.messages.list_groups import ListGroupsRequest
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
from aiogroup._core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC = "golden"
RECORDS = 3


class Link:
    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        self.kept: dict[tuple[str, int], dict[str, object]] = {}
        self.ranges: dict[int, tuple[int, int]] = {}
        self.correlation_id = 0

    def exchange(self, frame: bytes) -> bytes:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self.socket.recv(size - len(data)) or sys.exit("the broker closed the connection")
        return data

    def keep(self, message: str, version: int, request: bytes, response: bytes) -> None:
        row = {"message": message, "version": version, "request": request.hex(), "response": response.hex()}
        self.kept.setdefault((message, version), row)

    def ask(self, request, level: int):
        kind = type(request)
        highest = max(level, kind.MIN_VERSION)
        version = negotiate(kind, self.ranges, at_most=highest) if self.ranges else min(highest, kind.MAX_VERSION)
        self.correlation_id += 1
        frame = encode_request(request, version, self.correlation_id, "golden")
        answer = self.exchange(frame)
        correlation_id, response = decode_response(kind, version, answer)
        assert correlation_id == self.correlation_id
        self.keep(kind.api_name(), version, frame, answer)
        return response


def session(link: Link, level: int, topic_id) -> None:
    group = f"golden-{level}"
    link.ask(ApiVersionsRequest("golden", "1.0"), level)
    link.ask(MetadataRequest((MetadataRequestTopic(name=TOPIC),)), level)
    link.ask(FindCoordinatorRequest(coordinator_keys=(group,)), level)
    instance = "static" if level >= 5 else None
    join = {
        "group_id": group,
        "session_timeout_ms": 30000,
        "rebalance_timeout_ms": 60000,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol("range", encode_subscription(Subscription((TOPIC,)))),),
        "reason": "golden",
    }
    joined = link.ask(JoinGroupRequest(**join), level)
    if joined.error_code == 79:
        joined = link.ask(JoinGroupRequest(member_id=joined.member_id, **join), level)
    assert joined.error_code == 0, joined
    member, generation = joined.member_id, joined.generation_id
    mine = encode_assignment(Assignment((TopicPartitions(TOPIC, (0,)),)))
    who = {"group_id": group, "generation_id": generation, "member_id": member}
    link.ask(
        SyncGroupRequest(
            **who,
            group_instance_id=instance if level >= 3 else None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(member, mine),),
        ),
        level,
    )
    link.ask(HeartbeatRequest(**who, group_instance_id=instance if level >= 3 else None), level)
    offset = OffsetCommitRequestPartition(0, 2, 0, "golden")
    link.ask(
        OffsetCommitRequest(
            group,
            generation,
            member,
            instance if level >= 7 else None,
            topics=(OffsetCommitRequestTopic(TOPIC, topic_id, (offset,)),),
        ),
        level,
    )
    wanted = OffsetFetchRequestGroup(group, topics=(OffsetFetchRequestTopic(TOPIC, topic_id, (0,)),))
    link.ask(OffsetFetchRequest((wanted,), require_stable=level >= 7), level)
    latest = ListOffsetsTopic(TOPIC, (ListOffsetsPartition(0, -1, -1),))
    link.ask(ListOffsetsRequest(topics=(latest,), timeout_ms=1000), level)
    fetch = FetchTopic(TOPIC, topic_id, (FetchPartition(0, 0, 0, partition_max_bytes=10000),))
    link.ask(FetchRequest(max_wait_ms=100, min_bytes=1, isolation_level=1, session_epoch=0, topics=(fetch,)), level)
    epoch = OffsetForLeaderTopic(TOPIC, (OffsetForLeaderPartition(0, -1, 0),))
    link.ask(OffsetForLeaderEpochRequest(topics=(epoch,)), level)
    link.ask(DescribeGroupsRequest((group,), include_authorized_operations=level >= 3), level)
    link.ask(ListGroupsRequest(), level)
    link.ask(LeaveGroupRequest(group, (MemberIdentity(member, reason="golden"),)), level)


def wait_for_coordinator(link: Link) -> None:
    """The first question creates the offsets topic; nothing of it is kept."""
    wanted = OffsetFetchRequestGroup("golden-0", topics=None)
    while True:
        found = link.ask(FindCoordinatorRequest(coordinator_keys=("golden-0",)), 99).coordinators[0]
        if not found.error_code and not link.ask(OffsetFetchRequest((wanted,)), 99).groups[0].error_code:
            link.kept.clear()
            return
        time.sleep(0.2)


async def produce(address: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for i in range(RECORDS):
            await producer.send_and_wait(TOPIC, b"value-%d" % i, key=b"key-%d" % i, partition=0)


def main() -> None:
    address = sys.argv[1]
    host, port = address.rsplit(":", 1)
    asyncio.run(produce(address))
    link = Link(host, int(port))
    wait_for_coordinator(link)
    # Version 99 is answered in version 0 with error 35 and the ranges (KIP-511).
    unknown = struct.pack(">hhih", 18, 99, 1, -1) + b"\0\0\0\0"
    link.keep("ApiVersions", 99, unknown, link.exchange(unknown))
    link.ranges = {
        each.api_key: (each.min_version, each.max_version)
        for each in link.ask(ApiVersionsRequest("golden", "1.0"), 99).api_keys
    }
    topic = link.ask(MetadataRequest((MetadataRequestTopic(name=TOPIC),)), 99).topics[0]
    for level in range(19):
        session(link, level, topic.topic_id)
    lines = [json.dumps(link.kept[each]) for each in sorted(link.kept)]
    Path(__file__).with_name("broker_session.jsonl").write_text("\n".join(lines) + "\n")
    sys.stdout.write(f"{len(lines)} exchanges; {dict(sorted(link.ranges.items()))}\n")


if __name__ == "__main__":
    main()
