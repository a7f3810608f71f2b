"""Fetches that wait: what ends the wait, at which instant, and what it costs."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchTopic
from aiogroup.embedded.machine.faults.faults import Fault
from aiogroup.embedded.machine.logs.batches import Record, build
from tests.support.embedded_clients import Machine
from tests.support.reading_machine import Peer, ReadingMachine, answer_of, only, parts, want


@pytest.fixture
def machine():
    machine = ReadingMachine()
    machine.topic(partitions=3)
    return machine


@pytest.fixture
def three(machine):
    return [machine.partition(index=n) for n in range(3)]


def filed(partition):
    return len(partition.waiters)


def test_it_waits_for_its_time_to_the_millisecond(machine, three):
    waits = machine.fetch((three[0], 0), max_wait_ms=500)
    assert machine.timers.next_at_ms == 1_500
    machine.pass_ms(499)
    assert waits.answered_at_ms is None
    machine.pass_ms(1)
    assert (waits.answered_at_ms, only(answer_of(waits)).records) == (1_500, b"")
    assert (filed(three[0]), machine.timers.next_at_ms) == (0, None)


def test_what_is_deleted_while_it_waits_is_not_sent(machine, three):
    machine.append(three[0], 5)
    waits = machine.fetch((three[0], 0), min_bytes=10_000, max_wait_ms=500)
    three[0].log.delete_before(3)
    machine.pass_ms(499)
    assert waits.answered_at_ms is None
    machine.pass_ms(1)
    told = only(answer_of(waits))
    assert (told.error_code, told.records) == (E.OFFSET_OUT_OF_RANGE, b"")


def test_no_time_to_wait(machine, three):
    for max_wait_ms in (0, -1):
        assert only(answer_of(machine.fetch((three[0], 0), max_wait_ms=max_wait_ms))).error_code == 0
    assert only(answer_of(machine.fetch((three[0], 0), min_bytes=0))).error_code == 0
    assert answer_of(machine.fetch()).responses == ()


def test_an_append_to_any_of_its_partitions_ends_it(machine, three):
    waits = machine.fetch((three[0], 0), (three[1], 0))
    machine.append(three[2])
    assert waits.answered_at_ms is None
    machine.pass_ms(20)
    machine.append(three[1])
    assert waits.answered_at_ms == 1_020
    assert [len(each.records) > 0 for each in parts(answer_of(waits)).values()] == [False, True]
    assert [filed(each) for each in three] == [0, 0, 0]
    assert machine.timers.next_at_ms is None
    machine.append(three[0])


def test_bytes_of_all_its_partitions_count_up_to_their_bounds(machine, three):
    size = machine.append(three[0])
    waits = machine.fetch((three[0], 1), want(three[1], max_bytes=size + 1), min_bytes=3 * size)
    machine.append(three[0])
    machine.append(three[1])
    assert waits.answered_at_ms is None, "two batches"
    machine.append(three[1])
    assert waits.answered_at_ms is None, "of the second one byte counts"
    machine.append(three[0])
    assert waits.answered_at_ms is not None
    assert [len(each.records) for each in parts(answer_of(waits)).values()] == [2 * size, size + 1]


def test_available_bytes_count_from_the_batch_that_holds_the_offset(machine, three):
    size = machine.append(three[0], 10)
    waits = machine.fetch((three[0], 5), min_bytes=size + 1)
    assert waits.answered_at_ms is None
    assert only(answer_of(machine.fetch((three[0], 5), min_bytes=size))).records
    machine.append(three[0])
    assert waits.answered_at_ms is not None


def test_bytes_that_do_not_fit_into_the_answer_end_the_wait(machine, three):
    """The second partition's batch does not fit, so too few bytes were read. But enough bytes are available
    (DelayedFetch.tryComplete).
    """
    size = machine.append(three[0])
    machine.append(three[1], 10)
    told = answer_of(machine.fetch((three[0], 0), (three[1], 0), min_bytes=size + 1, max_bytes=size + 1))
    assert [len(each.records) for each in parts(told).values()] == [size, 0]


def test_min_bytes_are_capped_by_max_bytes(machine, three):
    size = machine.append(three[0])
    machine.append(three[0])
    assert len(only(answer_of(machine.fetch((three[0], 0), min_bytes=1 << 30, max_bytes=size))).records) == size


@pytest.mark.parametrize("version", [10, 18])
def test_a_change_of_leader(machine, three, version):
    """Since version 11 a follower serves too: only an epoch, if the reader named one, ends the wait."""
    waits = machine.fetch((three[0], 0), version=version)
    fenced = machine.fetch(want(three[0], current_leader_epoch=0), version=version)
    machine.pass_ms(7)
    three[0].elect(1, machine.now_ms)
    assert (fenced.answered_at_ms, only(answer_of(fenced)).error_code) == (1_007, E.FENCED_LEADER_EPOCH)
    if version == 10:
        assert (waits.answered_at_ms, only(answer_of(waits)).error_code) == (1_007, E.NOT_LEADER_OR_FOLLOWER)
    else:
        assert waits.answered_at_ms is None
        machine.append(three[0])
        assert only(answer_of(waits)).records


def test_truncation(machine, three):
    machine.append(three[0], 10)
    machine.append(three[1], 10)
    behind = machine.fetch((three[0], 10))
    diverged = machine.fetch(want(three[1], 10, last_fetched_epoch=0))
    for each in three[:2]:
        each.log.truncate(4)
        each.changed(machine.now_ms)
        each.elect(0, machine.now_ms)
    assert only(answer_of(behind)).error_code == E.OFFSET_OUT_OF_RANGE
    assert only(answer_of(diverged)).diverging_epoch == EpochEndOffset(0, 4)


def test_a_log_that_has_grown_again_before_the_change_is_told(machine, three):
    machine.append(three[0], 10)
    diverged = machine.fetch(want(three[0], 10, last_fetched_epoch=0))
    three[0].log.truncate(4)
    three[0].log.append(build([Record(number, 0, None, b"") for number in range(6)]), 1)
    three[0].changed(machine.now_ms)
    assert only(answer_of(diverged)).diverging_epoch == EpochEndOffset(0, 4)


@pytest.mark.parametrize("version", [12, 18])
def test_the_topic_is_deleted(machine, three, version):
    waits = machine.fetch((three[0], 0), version=version)
    machine.topics.delete(three[0].topic, machine.now_ms)
    assert only(answer_of(waits)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_ends_the_wait_but_one_that_was_not_found_does_not(machine, three):
    three[1].replicas = (1, 2)
    told = parts(answer_of(machine.fetch((three[0], 0), (three[1], 0))))
    assert [each.error_code for each in told.values()] == [0, E.NOT_LEADER_OR_FOLLOWER]
    three[2].index = 9
    waits = machine.fetch((three[2], 0), (three[0], 0))
    assert waits.answered_at_ms is None
    machine.pass_ms(500)
    assert [each.error_code for each in parts(answer_of(waits)).values()] == [0, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_fault_that_comes_during_the_wait_is_answered_at_its_end(machine, three):
    waits = machine.fetch((three[0], 0))
    machine.faults.add(Fault("Fetch", E.KAFKA_STORAGE_ERROR))
    machine.pass_ms(500)
    assert only(answer_of(waits)).error_code == E.KAFKA_STORAGE_ERROR


def test_a_fetch_whose_connection_is_closed_is_never_answered(machine, three):
    peer = Peer(0)
    waits = machine.send(machine.fetch_request((three[0], 0)), peer=peer)
    peer.close()
    machine.append(three[0])
    assert (waits.answered_at_ms, peer.answered_count, filed(three[0])) == (None, 0, 0)


def test_an_append_looks_only_at_fetches_that_wait_at_its_partition(machine):
    """An append looks only at fetches that wait at its partition."""
    topic = machine.topic("many", partitions=1_000)
    looked = []
    for partition in topic.partitions:
        machine.fetch((partition, 0), max_wait_ms=10_000)
        (waiter,) = partition.waiters.values()
        partition.waiters[-1] = _Spy(waiter, partition, looked)
    machine.append(topic.partitions[17])
    assert looked == [17]


class _Spy:
    def __init__(self, waiter, partition, looked):
        self.waiter, self.partition, self.looked = waiter, partition, looked

    def on_append(self, partition, size_bytes, now_ms):
        self.looked.append(partition.index)

    on_change = on_append


@pytest.mark.parametrize("ending", ["by the client", "by the broker"])
def test_a_client_that_is_gone_waits_no_longer(ending):
    machine = Machine()
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms))
    (partition,) = machine.cluster.topics.get("orders").partitions
    client = machine.client()
    asked = FetchPartition(0, fetch_offset=0, partition_max_bytes=1)
    client.send(FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=(FetchTopic("orders", partitions=(asked,)),)), 11)
    assert (filed(partition), machine.cluster.next_at_ms) == (1, 600_000)
    if ending == "by the client":
        client.connection.lost(machine.now_ms)
    else:
        machine.do(lambda cluster, _now_ms: cluster.disconnect(None))
    assert (filed(partition), machine.cluster.next_at_ms) == (0, None)
