"""DeleteRecords, DescribeProducers and DescribeLogDirs: cases that the scripts against Kafka cannot show."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.machine.logs.batches import Record, build
from tests.support.log_scripts import PureBroker, Talk


@pytest.fixture
def broker():
    broker = PureBroker()
    for topic in ("t-x", "u-x"):
        for partition in broker.topics.create(topic, 2, 0, replication_factor=2).partitions:
            partition.log.append(build([Record(place, 0, None, b"v") for place in range(4)]), 0)
    return broker


def test_a_fault_comes_before_or_after_the_deletion(broker):
    talk = Talk(broker, "x")
    broker.faults.add(Fault("DeleteRecords", ErrorCode.KAFKA_STORAGE_ERROR, Place(topic="t-x", partition=0)))
    broker.faults.add(Fault("DeleteRecords", ErrorCode.REQUEST_TIMED_OUT, Place(topic="t-x", partition=1), after=True))
    talk.delete_records(("t", 0, 2), ("t", 1, 2), ("u", 0, 2))
    assert [line[3:] for line in talk.transcript] == [
        ["KAFKA_STORAGE_ERROR", -1],
        ["REQUEST_TIMED_OUT", -1],
        ["NONE", 2],
    ]
    assert [each.log.start_offset for each in broker.topics.get("t-x").partitions] == [0, 2]


def test_only_the_leader_deletes_and_knows_producers(broker):
    talk = Talk(broker, "x")
    broker.topics.partition("t-x", 0).elect(2, 0)
    talk.delete_records(("t", 0, 2), ("t", 1, 2))
    talk.producers("t", 0, 1)
    assert [line[3] for line in talk.transcript] == ["NOT_LEADER_OR_FOLLOWER", "NONE"] * 2


def test_a_node_tells_the_sizes_of_the_replicas_that_it_holds(broker):
    broker.topics.partition("t-x", 0).replicas = (2,)
    talk = Talk(broker, "x")
    talk.sizes(("t", (0, 1)), ("u", (1,)))
    assert [line[:3] for line in talk.transcript[:-1]] == [["size", "t", 1], ["size", "u", 1]]
    assert broker.topics.partition("t-x", 1).log.size_bytes == talk.transcript[0][3] > 0
