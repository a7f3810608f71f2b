"""ListOffsets and OffsetForLeaderEpoch at the embedded broker."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aiogroup._core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.machine.logs.direct import damaged
from tests.support.reading_machine import ReadingMachine

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
NOTHING = (0, -1, -1, -1)


@pytest.fixture
def machine():
    machine = ReadingMachine()
    machine.topic()
    return machine


@pytest.fixture
def partition(machine):
    """Offsets 0 to 9 at 100 to 109 ms in epoch 0, 10 to 14 at 50 to 54 ms and 15 to 19 at 200 to 204 ms in epoch 1."""
    partition = machine.partition()
    machine.append(partition, 10, at_ms=100)
    partition.elect(0, machine.now_ms)
    machine.append(partition, 5, at_ms=50)
    machine.append(partition, 5, at_ms=200)
    return partition


def listed(machine, *timestamps, version=11, node_id=0, topic="t", index=0, epoch=-1, **fields):
    """(code, offset, timestamp, epoch) of each."""
    asked = tuple(ListOffsetsPartition(index, epoch, each) for each in timestamps)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(topic, asked),), **fields)
    answer = machine.ask(request, version, node_id)
    ((found),) = answer.topics
    return [(each.error_code, each.offset, each.timestamp, each.leader_epoch) for each in found.partitions]


@pytest.mark.parametrize(
    ("timestamp", "since", "found"),
    [
        (LATEST, 1, (0, 20, -1, 1)),
        (EARLIEST, 1, (0, 0, -1, 0)),
        (MAX_TIMESTAMP, 7, (0, 19, 204, 1)),
        (EARLIEST_LOCAL, 8, (0, 0, -1, 0)),
        (LATEST_TIERED, 9, NOTHING),
        (PENDING_UPLOAD, 11, NOTHING),
        (0, 1, (0, 0, 100, 0)),
        (105, 1, (0, 5, 105, 0)),
        (110, 1, (0, 15, 200, 1)),
        (204, 1, (0, 19, 204, 1)),
        (205, 1, NOTHING),
        (-7, 99, None),
    ],
)
@pytest.mark.parametrize("version", range(1, 12))
def test_marks_and_times_in_every_version(machine, partition, timestamp, since, found, version):
    told = listed(machine, timestamp, version=version)
    if version < since:
        assert told == [(E.UNSUPPORTED_VERSION, -1, -1, -1)]
    else:
        assert told == [found if version >= 4 else (*found[:3], -1)]


def test_an_empty_log(machine):
    assert [listed(machine, each)[0] for each in (LATEST, EARLIEST, MAX_TIMESTAMP, 0)] == [
        (0, 0, -1, 0),
        (0, 0, -1, 0),
        NOTHING,
        NOTHING,
    ]


def test_after_records_were_deleted(machine, partition):
    partition.log.delete_before(12)
    assert listed(machine, EARLIEST) == [(0, 12, -1, 1)]
    assert listed(machine, 0) == [(0, 12, 52, 1)]


@pytest.mark.parametrize(
    ("damage", "code"), [("codec", E.UNKNOWN_SERVER_ERROR), ("count", E.INVALID_RECORD)], ids=["codec", "count"]
)
def test_a_time_in_a_batch_that_cannot_be_read(machine, partition, damage, code):
    partition.log.append(bytearray(damaged(**{damage: True}, timestamp_ms=300)), 1)
    machine.append(partition, 1, at_ms=400)
    told = [listed(machine, each)[0] for each in (204, 250, LATEST)]
    assert told == [(0, 19, 204, 1), (code, -1, -1, -1), (0, 22, -1, 1)]
    assert machine.troubles.kept == []


class Committed:
    """A log in which a transaction is under way from an offset on."""

    def __init__(self, log, stable):
        self._log = log
        self.last_stable_offset = stable

    def __getattr__(self, name):
        return getattr(self._log, name)


def test_read_committed_sees_nothing_behind_the_last_stable_offset(machine, partition):
    partition.log = Committed(partition.log, 15)
    for timestamp, found in ((LATEST, (0, 15, -1, 1)), (105, (0, 5, 105, 0)), (200, NOTHING), (MAX_TIMESTAMP, NOTHING)):
        assert listed(machine, timestamp, isolation_level=1) == [found]
    assert listed(machine, LATEST) == [(0, 20, -1, 1)]
    assert listed(machine, LATEST, isolation_level=1, replica_id=-2) == [(0, 20, -1, 1)]


def test_wrong_node_wrong_epoch_wrong_topic(machine, partition):
    partition.elect(1, machine.now_ms)
    assert listed(machine, LATEST) == [(E.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)]
    assert listed(machine, LATEST, replica_id=-2) == [(0, 20, -1, 2)], "a debugger asks any replica"
    assert listed(machine, LATEST, epoch=1, node_id=1) == [(E.FENCED_LEADER_EPOCH, -1, -1, -1)]
    assert listed(machine, LATEST, epoch=3, node_id=1) == [(E.UNKNOWN_LEADER_EPOCH, -1, -1, -1)]
    assert listed(machine, LATEST, epoch=2, node_id=1) == [(0, 20, -1, 2)]
    for other in ({"topic": "x"}, {"index": 1}):
        assert listed(machine, LATEST, **other) == [(E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)]


def test_a_partition_that_is_named_twice(machine, partition):
    assert listed(machine, LATEST, EARLIEST) == [(E.INVALID_REQUEST, -1, -1, -1)]


def test_faults_of_list_offsets(machine, partition):
    for fault in (
        Fault("ListOffsets", E.LEADER_NOT_AVAILABLE, Place("t", 0)),
        Fault("ListOffsets", E.OFFSET_NOT_AVAILABLE, Place("t", 0), after=True),
    ):
        machine.faults.add(fault)
    assert [listed(machine, LATEST)[0][0] for _ in range(3)] == [E.LEADER_NOT_AVAILABLE, E.OFFSET_NOT_AVAILABLE, 0]


def ends(machine, epoch, version=4, node_id=0, current=-1, topic="t", **fields):
    asked = (OffsetForLeaderPartition(0, current, epoch),)
    answer = machine.ask(
        OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic, asked),), **fields), version, node_id
    )
    ((topic_told),) = answer.topics
    ((told),) = topic_told.partitions
    return told.error_code, told.leader_epoch, told.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_ends_of_epochs(machine, partition, version):
    partition.elect(0, machine.now_ms)
    partition.elect(0, machine.now_ms)
    machine.append(partition)  # offset 20 in epoch 3
    expected = {0: (0, 0, 10), 1: (0, 1, 20), 2: (0, 1, 20), 3: (0, 3, 21), 4: (0, -1, -1), -1: (0, -1, -1)}
    assert {epoch: ends(machine, epoch, version) for epoch in expected} == expected


def test_only_the_leader_tells_ends_of_epochs(machine, partition):
    partition.elect(1, machine.now_ms)
    assert ends(machine, 0)[0] == E.NOT_LEADER_OR_FOLLOWER
    assert ends(machine, 0, replica_id=-2)[0] == E.NOT_LEADER_OR_FOLLOWER
    assert ends(machine, 0, node_id=1, current=1) == (E.FENCED_LEADER_EPOCH, -1, -1)
    assert ends(machine, 0, node_id=1, current=3) == (E.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert ends(machine, 0, node_id=1, current=2) == (0, 0, 10)
    assert ends(machine, 0, topic="x") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_faults_of_offset_for_leader_epoch(machine, partition):
    for after in (False, True):
        machine.faults.add(Fault("OffsetForLeaderEpoch", E.UNKNOWN_LEADER_EPOCH, after=after))
    assert [ends(machine, 0)[0] for _ in range(3)] == [75, 75, 0]
