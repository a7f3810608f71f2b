"""Fetch at the embedded broker: which bytes, which bounds, which errors, and from which node."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.fetch import EpochEndOffset, FetchRequest, LeaderIdAndEpoch, ReplicaState
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.machine.logs.batches import header_of
from tests.support.reading_machine import ReadingMachine, answer_of, only, parts, want

VERSIONS = range(FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION + 1)


@pytest.fixture
def machine():
    return ReadingMachine()


@pytest.fixture
def filled(machine):
    """A partition with three batches of ten records, all of the same size; and that size."""
    machine.topic()
    partition = machine.partition()
    sizes = [machine.append(partition, 10, b"v" * 50) for _ in range(3)]
    assert len(set(sizes)) == 1
    return partition, sizes[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_whole_batch_that_holds_the_offset_in_every_version(machine, filled, version):
    partition, size = filled
    read = only(answer_of(machine.fetch((partition, 15), version=version)))
    assert read.error_code == 0
    assert read.high_watermark == 30
    assert [header_of(read.records[at : at + size]).base_offset for at in (0, size)] == [10, 20]
    assert len(read.records) == 2 * size
    if version >= 5:
        assert read.log_start_offset == 0


def test_the_first_batch_is_sent_however_large(machine, filled):
    partition, size = filled
    for limits in ({"max_bytes": 1}, {"max_bytes": 0}):
        assert len(only(answer_of(machine.fetch((partition, 0), **limits))).records) == size
    assert len(only(answer_of(machine.fetch((partition, 0, 1)))).records) == size


def test_bytes_are_counted_as_kafka_counts_them(machine):
    """The last batch is cut off. Another partition gets the remaining bytes, or nothing if its first batch does not
    fit.
    """
    machine.topic(partitions=3)
    first, second, third = (machine.partition(index=n) for n in range(3))
    size = machine.append(first, 10, b"v" * 50)
    for each in (first, second, third, third):
        machine.append(each, 10, b"v" * 50)
    told = parts(answer_of(machine.fetch((first, 0, size + 7), (second, 0), (third, 0), max_bytes=2 * size + 6)))
    assert [len(each.records) for each in told.values()] == [size + 7, 0, 0]
    told = parts(answer_of(machine.fetch((first, 0, size), (second, 0), (third, 0), max_bytes=3 * size + 9)))
    assert [len(each.records) for each in told.values()] == [size, size, size + 9]
    small = machine.append(second, 1, b"")
    told = parts(answer_of(machine.fetch((third, 0), (first, 0), (second, 10), max_bytes=2 * size + small)))
    assert [len(each.records) for each in told.values()] == [2 * size, 0, small]


def test_the_settings_bound_applies_besides_the_clients(filled):
    machine = ReadingMachine({"fetch.max.bytes": "1024"})
    machine.topic(partitions=2)
    for index in (0, 1):
        machine.append(machine.partition(index=index), 1, b"v" * 900)
    told = answer_of(machine.fetch((machine.partition(), 0), (machine.partition(index=1), 0), min_bytes=5_000))
    assert [len(each.records) > 0 for each in parts(told).values()] == [True, False]


@pytest.mark.parametrize(("offset", "code"), [(-1, 1), (31, 1), (30, 0), (5, 0), (4, 1)])
def test_offsets_out_of_the_log(machine, filled, offset, code):
    partition, _ = filled
    partition.log.delete_before(5)
    read = only(answer_of(machine.fetch((partition, offset), max_wait_ms=0)))
    assert read.error_code == code
    assert (read.high_watermark, read.log_start_offset) == ((-1, -1) if code else (30, 5))


def test_wrong_node_wrong_epoch(machine, filled):
    partition, _ = filled
    partition.elect(1, machine.now_ms)

    def ask(node_id, version=16, **fields):
        return answer_of(machine.fetch(want(partition, **fields), version=version, node_id=node_id))

    for version in (4, 8, 9, 10):
        assert only(ask(0, version)).error_code == E.NOT_LEADER_OR_FOLLOWER
    assert only(ask(0, 11)).error_code == 0, "since version 11 every replica serves"
    told = ask(0, current_leader_epoch=0)
    assert only(told).error_code == E.FENCED_LEADER_EPOCH
    assert only(told).current_leader == LeaderIdAndEpoch(1, 1)
    ((endpoint),) = told.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (1, "127.0.0.1", 9_001)
    told = ask(1, 15, current_leader_epoch=0)
    assert (only(told).error_code, only(told).current_leader) == (E.FENCED_LEADER_EPOCH, LeaderIdAndEpoch())
    told = ask(1, current_leader_epoch=2)
    assert (only(told).error_code, told.node_endpoints) == (E.UNKNOWN_LEADER_EPOCH, ())
    partition.replicas = (1, 2)
    told = ask(0)
    assert only(told).error_code == E.NOT_LEADER_OR_FOLLOWER
    assert only(told).current_leader == LeaderIdAndEpoch(1, 1)
    machine.dead.append(1)
    assert ask(0).node_endpoints == ()


def test_topics_that_are_not_there(machine, filled):
    partition, _ = filled
    stranger = UUID(int=5)
    assert only(answer_of(machine.fetch(want(partition, topic_id=stranger)))).error_code == E.UNKNOWN_TOPIC_ID
    partition.index = 7
    for version in (12, 13):
        read = only(answer_of(machine.fetch(want(partition), version=version)))
        assert read.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_session_that_knows_the_former_topic_of_that_name(machine, filled):
    partition, _ = filled
    told = answer_of(machine.fetch((partition, 0), session_epoch=0))
    within = {"session_id": told.session_id}
    machine.topics.delete(partition.topic, machine.now_ms)
    assert only(answer_of(machine.fetch(session_epoch=1, **within))).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    machine.topic()
    assert only(answer_of(machine.fetch(session_epoch=2, **within))).error_code == E.INCONSISTENT_TOPIC_ID
    told = answer_of(
        machine.fetch(want(machine.partition()), forgotten=[partition], session_epoch=3, max_wait_ms=0, **within)
    )
    assert (only(told).error_code, only(told).high_watermark) == (0, 0)


def test_by_name_a_session_reads_the_new_topic(machine, filled):
    partition, _ = filled
    told = answer_of(machine.fetch((partition, 30), session_epoch=0, max_wait_ms=0, version=12))
    machine.topics.delete(partition.topic, machine.now_ms)
    machine.topic()
    told = answer_of(machine.fetch(session_epoch=1, session_id=told.session_id, version=12))
    assert only(told).error_code == E.OFFSET_OUT_OF_RANGE


def test_a_session_finds_the_name_of_an_id_that_comes_later(machine, filled):
    """The node had not heard of the topic yet when the session began (CachedPartition.maybeResolveUnknownName)."""
    partition, _ = filled
    machine.coming_ids = [coming := UUID(int=5)]
    told = answer_of(machine.fetch(want(partition, topic_id=coming), session_epoch=0))
    assert only(told).error_code == E.UNKNOWN_TOPIC_ID
    machine.append((machine.topic("later").partitions)[0], 3)
    told = answer_of(machine.fetch(session_epoch=1, session_id=told.session_id))
    assert (only(told).error_code, only(told).high_watermark) == (0, 3)


def test_the_last_epoch_that_was_read_tells_divergence(machine, filled):
    partition, _ = filled  # 0-29 in epoch 0
    partition.elect(1, machine.now_ms)
    partition.elect(1, machine.now_ms)  # epoch 1 is empty
    machine.append(partition, 10)  # 30-39 in epoch 2

    def ask(offset, epoch, **fields):
        return only(answer_of(machine.fetch(want(partition, offset, last_fetched_epoch=epoch, **fields), node_id=1)))

    assert ask(30, 0).records
    diverged = ask(31, 0)
    assert (diverged.error_code, diverged.diverging_epoch) == (0, EpochEndOffset(0, 30))
    assert diverged.records == b""
    assert ask(35, 1).diverging_epoch == EpochEndOffset(0, 30)
    assert ask(35, 2).diverging_epoch == EpochEndOffset()
    assert ask(35, 3).error_code == E.OFFSET_OUT_OF_RANGE, "an epoch that is not known yet"
    assert ask(45, 2).diverging_epoch == EpochEndOffset(2, 40)
    partition.log.delete_before(20)
    assert ask(10, 0).error_code == E.OFFSET_OUT_OF_RANGE
    assert ask(10, 1).error_code == E.OFFSET_OUT_OF_RANGE, "it has diverged too, but the log's start comes first"
    assert ask(35, 0, current_leader_epoch=1).error_code == E.FENCED_LEADER_EPOCH


class Committed:
    """A log in which a transaction is under way from an offset on."""

    def __init__(self, log, stable):
        self._log = log
        self.last_stable_offset = stable

    def __getattr__(self, name):
        return getattr(self._log, name)


def test_read_committed_ends_at_the_last_stable_offset(machine, filled):
    partition, size = filled
    partition.log = Committed(partition.log, 20)
    told = only(answer_of(machine.fetch((partition, 0), isolation_level=1)))
    assert (len(told.records), told.last_stable_offset, told.high_watermark) == (2 * size, 20, 30)
    assert told.aborted_transactions == ()
    told = only(answer_of(machine.fetch((partition, 0))))
    assert (len(told.records), told.last_stable_offset, told.aborted_transactions) == (3 * size, 20, None)
    assert machine.fetch((partition, 20), isolation_level=1).answered_at_ms is None
    behind = only(answer_of(machine.fetch((partition, 25), isolation_level=1)))
    assert (behind.error_code, behind.records) == (0, b""), "Kafka does not wait behind the last stable offset"


def test_the_nearest_replica_is_told_to_a_client_with_a_rack():
    machine = ReadingMachine(
        {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}, racks=("a", "b", "b")
    )
    machine.topic()
    partition = machine.partition()
    machine.append(partition)

    def ask(rack, node_id=0, version=18):
        return only(answer_of(machine.fetch((partition, 0), node_id=node_id, rack_id=rack, version=version)))

    assert (ask("b").preferred_read_replica, ask("b").records, ask("b").high_watermark) == (2, b"", 1)
    assert ask("b").aborted_transactions is None
    at_the_end = only(answer_of(machine.fetch((partition, 1), rack_id="b")))
    assert at_the_end.preferred_read_replica == 2, "it is told at once, records or not"
    for rack in ("", "a", "c"):
        assert (ask(rack).preferred_read_replica, len(ask(rack).records) > 0) == (-1, True)
    assert (ask("b", node_id=2).preferred_read_replica, len(ask("b", node_id=2).records) > 0) == (-1, True)
    machine.dead = [2]
    assert ask("b").preferred_read_replica == 1
    machine.dead = [1, 2]
    assert ask("b").preferred_read_replica == -1


def test_without_a_selector_no_replica_is_told():
    machine = ReadingMachine(racks=("a", "b"))
    machine.topic()
    machine.append(machine.partition())
    told = only(answer_of(machine.fetch((machine.partition(), 0), rack_id="b")))
    assert (told.preferred_read_replica, len(told.records) > 0) == (-1, True)


@pytest.mark.parametrize(
    "fields", [{"version": 4, "replica_id": 1}, {"version": 18, "replica_state": ReplicaState(1, 5)}]
)
def test_a_replica_is_refused(machine, filled, fields):
    partition, _ = filled
    told = answer_of(machine.fetch((partition, 0), **fields))
    assert only(told).error_code == E.INVALID_REQUEST
    ((trouble),) = machine.troubles.kept
    assert trouble.refusal.name == "replicas"


class TestFaults:
    def test_one_partition_is_refused_and_the_others_are_served(self, machine):
        machine.topic(partitions=2)
        for index in (0, 1):
            machine.append(machine.partition(index=index))
        fault = Fault("Fetch", E.TOPIC_AUTHORIZATION_FAILED, Place("t", 1), times=2)
        machine.faults.add(fault)
        wanted = [(machine.partition(index=n), 0) for n in (0, 1)]
        for used, codes in ((1, [0, 29]), (2, [0, 29]), (2, [0, 0])):
            told = parts(answer_of(machine.fetch(*wanted)))
            assert [each.error_code for each in told.values()] == codes
            assert fault.used_count == used

    def test_a_denied_read_moves_the_session_on(self, machine, filled):
        partition, _ = filled
        machine.faults.add(Fault("Fetch", E.NOT_LEADER_OR_FOLLOWER, Place("t"), after=True))
        told = answer_of(machine.fetch((partition, 0), session_epoch=0))
        assert (only(told).error_code, only(told).records) == (E.NOT_LEADER_OR_FOLLOWER, b"")
        told = answer_of(machine.fetch(session_epoch=1, session_id=told.session_id))
        assert only(told).records

    def test_a_fault_that_is_denied_is_not_used_up_by_a_wait(self, machine, filled):
        partition, _ = filled
        fault = Fault("Fetch", E.NOT_LEADER_OR_FOLLOWER, Place("t", 0), after=True)
        machine.faults.add(fault)
        waits = machine.fetch((partition, 30))
        assert fault.used_count == 0
        machine.append(partition)
        assert only(answer_of(waits)).error_code == E.NOT_LEADER_OR_FOLLOWER
        assert fault.used_count == 1

    def test_only_session_errors_apply_to_the_whole_request(self, machine, filled):
        partition, _ = filled
        machine.faults.add(Fault("Fetch", E.INVALID_FETCH_SESSION_EPOCH))
        told = answer_of(machine.fetch((partition, 0)))
        assert (told.error_code, told.responses) == (E.INVALID_FETCH_SESSION_EPOCH, ())
        machine.faults.add(Fault("Fetch", E.KAFKA_STORAGE_ERROR))
        told = answer_of(machine.fetch((partition, 0)))
        assert (told.error_code, only(told).error_code) == (0, E.KAFKA_STORAGE_ERROR)
