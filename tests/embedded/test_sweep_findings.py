"""Bugs that other clients' test suites found in another Kafka-compatible broker, as far as no other test covers them.

The other bugs are covered elsewhere: a fetch inside of a batch and offsets by time in tests/embedded/reading,
`max.message.bytes` and the answers of CreatePartitions and DescribeConfigs by the scripts of logs and administrators,
aborted records in tests/embedded/transactions, auto-creation in Metadata's own test.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aiogroup.embedded import Broker
from tests.support.embedded_clients import Machine
from tests.support.group_scripts import reads

GROUP = "billing"
MEMBERS_COUNT = 12
STEPS_COUNT = 400


class Member:
    """A member that acts as a client must: it joins, syncs, sends heartbeats and rejoins, one request at a time."""

    def __init__(self, machine):
        self._client = machine.client()
        self._join = JoinGroupRequest(
            GROUP,
            10_000,
            10_000,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol("range", reads("orders")),),
        )
        self._sent = None
        self._joined = None
        self._is_synced = False
        self.codes = set()

    @property
    def member_id(self):
        return self._join.member_id

    @property
    def is_stable(self):
        return self._is_synced

    def act(self):
        """Take an answer, if one has come, and send the next request."""
        if self._sent is not None:
            answer = self._client.answer()
            if answer is None:
                return
            self._take(answer)
        if self._joined is None:
            self._sent = self._join
        elif not self._is_synced:
            everybody = [each.member_id for each in self._joined.members]
            shares = tuple(SyncGroupRequestAssignment(each, b"") for each in everybody)
            self._sent = SyncGroupRequest(
                GROUP, self._joined.generation_id, self.member_id, protocol_type="consumer", protocol_name="range"
            )
            self._sent = replace(self._sent, assignments=shares)
        else:
            self._sent = HeartbeatRequest(GROUP, self._joined.generation_id, self.member_id)
        self._client.send(self._sent)

    def _take(self, answer):
        code = ErrorCode(answer.error_code)
        self.codes.add(code)
        if isinstance(self._sent, JoinGroupRequest):
            self._join = replace(self._join, member_id=answer.member_id)
            self._joined, self._is_synced = (None if code else answer), False
        elif code:
            self._joined, self._is_synced = None, False
        elif isinstance(self._sent, SyncGroupRequest):
            self._is_synced = True

    def leave(self, machine):
        """Leave over another connection, in whatever state the member is. Later answers to it are ignored."""
        answer = machine.client().ask(LeaveGroupRequest(GROUP, members=(MemberIdentity(self.member_id),)))
        return ErrorCode(answer.members[0].error_code)


@pytest.mark.parametrize("seed", range(5))
def test_no_member_is_unknown_while_others_come_and_go(seed):
    machine, rng = Machine(), Random(seed)
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms))
    members, left_count = [], 0
    for _ in range(STEPS_COUNT):
        if len(members) < MEMBERS_COUNT and rng.random() < 0.1:
            members.append(Member(machine))
        if members and rng.random() < 0.02:
            member = members.pop(rng.randrange(len(members)))
            if member.member_id:
                assert member.leave(machine) is ErrorCode.NONE
                left_count += 1
        for member in rng.sample(members, k=rng.randint(0, len(members))):
            member.act()
        machine.pass_ms(rng.randint(0, 50))
    for _ in range(30):  # longer than the session of a newcomer that was given an id and did not use it
        for member in members:
            member.act()
        machine.pass_ms(1_000)
    assert left_count > 1
    assert all(member.is_stable for member in members)
    seen = set().union(*(member.codes for member in members))
    assert seen == {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS}


def test_what_was_committed_with_an_offset_comes_back_and_outlives_the_coordinator():
    machine = Machine(nodes=2)
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms))
    place = OffsetCommitRequestPartition(0, 7, committed_leader_epoch=3, committed_metadata="ä word")
    client = machine.client()
    client.ask(OffsetCommitRequest(GROUP, topics=(OffsetCommitRequestTopic("orders", partitions=(place,)),)), 9)
    for node_id in (1, 2):
        machine.do(lambda cluster, now_ms, to=node_id: cluster.coordinators.move(GROUP, to, 0, now_ms))
        asked = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(GROUP, topics=None),))
        (group,) = machine.client(node_id).ask(asked, 9).groups
        ((told,),) = [topic.partitions for topic in group.topics]
        assert (told.committed_offset, told.committed_leader_epoch, told.metadata) == (7, 3, "ä word")


async def test_a_topic_is_made_by_whoever_asks_for_it_first():
    async with Broker(auto_create_topics=True, properties={"num.partitions": "2"}) as broker:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("asked-for", b"first", partition=1)
        async with AIOKafkaConsumer(
            "asked-for", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"first"
            assert consumer.partitions_for_topic("asked-for") == {0, 1}
