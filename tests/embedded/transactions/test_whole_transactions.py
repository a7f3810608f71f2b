"""Transactions on the machine: what no script against one node of Kafka can show."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.machine.logs.compaction import compact
from aiogroup.embedded.messages.producer_ids import InitProducerIdRequest
from aiogroup.embedded.messages.transactions import ListTransactionsRequest
from tests.support.transaction_machine import TransactionMachine


@pytest.fixture
def machine():
    machine = TransactionMachine(nodes=3)
    machine.topic()
    return machine


@pytest.fixture
def producer(machine):
    producer = machine.producer()
    assert producer.init() == "NONE"
    return producer


def begun(producer, value=b"v"):
    assert producer.add() == "NONE"
    assert producer.send(value) == "NONE"
    return producer


def move(machine, node_id, loading_ms=0, name="x"):
    machine.do(lambda cluster, now_ms: cluster.transactions.seats.move(name, node_id, loading_ms, now_ms))


# Time.


def test_a_transaction_is_aborted_a_millisecond_after_its_time(machine):
    producer = machine.producer()
    producer.init(5_000)
    begun(producer)
    machine.pass_ms(5_000)
    assert producer.state() == "Ongoing"
    machine.pass_ms(1)
    assert producer.state() == "CompleteAbort"
    assert (producer.end(), producer.send(b"late")) == ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    assert machine.read() == ([], 2)
    assert producer.init() == "NONE"
    assert producer.epoch == 2


def test_what_is_added_later_does_not_prolong_a_transaction(machine):
    producer = machine.producer()
    producer.init(5_000)
    begun(producer)
    machine.pass_ms(4_000)
    assert producer.add("t", 1) == "NONE"
    machine.pass_ms(1_001)
    assert producer.state() == "CompleteAbort"


def test_a_transaction_that_ended_in_time_has_no_end_any_more(machine, producer):
    begun(producer)
    machine.pass_ms(30_000)
    assert producer.end() == "NONE"
    begun(producer)
    machine.pass_ms(59_999)
    assert producer.state() == "Ongoing"


def test_a_reader_wakes_up_when_a_transaction_times_out(machine, producer):
    begun(producer)
    reader = machine.client()
    topics = (FetchTopic("t", partitions=(FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20),)),)
    reader.send(FetchRequest(isolation_level=1, max_wait_ms=300_000, min_bytes=1, max_bytes=1 << 20, topics=topics), 12)
    began_at_ms = machine.now_ms
    machine.pass_ms(120_000)
    assert reader.answered_at_ms() == began_at_ms + 60_001
    (answer,) = reader.answer().responses[0].partitions
    assert [each.first_offset for each in answer.aborted_transactions] == [0]


def test_an_id_that_nobody_uses_is_forgotten_after_its_time():
    machine = TransactionMachine(properties={"transactional.id.expiration.ms": "10000"})
    machine.topic()
    idle, busy = machine.producer("idle"), machine.producer("busy")
    assert (idle.init(), busy.init()) == ("NONE", "NONE")
    begun(busy)
    machine.pass_ms(9_999)
    assert idle.state() == "Empty"
    machine.pass_ms(1)
    assert idle.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert busy.state() == "Ongoing"
    listed = busy.client.ask(ListTransactionsRequest(), 1).transaction_states
    assert [each.transactional_id for each in listed] == ["busy"]
    assert idle.add() == "INVALID_PRODUCER_ID_MAPPING"


# Who coordinates.


def test_other_and_loading_nodes_refuse(machine, producer):
    begun(producer)
    move(machine, 2, loading_ms=1_000)
    assert (producer.add(), producer.end(), producer.add_offsets(), producer.state()) == ("NOT_COORDINATOR",) * 4
    assert producer.init() == "NOT_COORDINATOR"
    there = machine.producer(node_id=2)
    there.producer_id, there.epoch = producer.producer_id, producer.epoch
    assert (there.add(), there.end(), there.state(), there.init()) == ("COORDINATOR_LOAD_IN_PROGRESS",) * 4
    assert there.client.ask(ListTransactionsRequest(), 0).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    # Leaders whose partition has no record of the transaction yet cannot ask it either: producers repeat this code.
    assert producer.send(b"w") == "NONE"
    assert producer.send(b"w", partition=1) == "NOT_LEADER_OR_FOLLOWER"
    assert there.send(b"w", partition=1) == "NOT_ENOUGH_REPLICAS"
    machine.pass_ms(1_000)
    assert (there.state(), there.end()) == ("Ongoing", "NONE")
    assert machine.read()[0] == [b"v", b"w"]
    (found,) = there.client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=("x",))).coordinators
    assert found.node_id == 2


def test_offsets_while_the_transactions_coordinator_loads(machine, producer):
    assert producer.add_offsets() == "NONE"
    move(machine, 2, loading_ms=1_000)
    assert producer.commit_offset(5, version=1) == "COORDINATOR_NOT_AVAILABLE"
    assert producer.commit_offset(5, version=2) == "COORDINATOR_LOAD_IN_PROGRESS"
    machine.pass_ms(1_000)
    assert producer.commit_offset(5) == "NONE"
    move(machine, 3, loading_ms=1_000)
    assert producer.commit_offset(6) == "NONE"  # the group knows the transaction by now


def test_a_transaction_outlives_its_coordinator_and_its_time_too(machine):
    producer = machine.producer()
    producer.init(5_000)
    begun(producer)
    machine.do(lambda cluster, now_ms: cluster.nodes.kill(1, now_ms))
    (found,) = machine.client(2).ask(FindCoordinatorRequest(key_type=1, coordinator_keys=("x",))).coordinators
    there = machine.producer(node_id=found.node_id)
    assert there.state() == "Ongoing"
    move(machine, 3, loading_ms=20_000)
    machine.pass_ms(10_000)
    log = machine.log()
    assert (log.last_stable_offset, log.end_offset) == (0, 1)
    machine.pass_ms(10_000)
    assert (log.last_stable_offset, log.end_offset) == (2, 2)
    assert machine.producer(node_id=3).state() == "CompleteAbort"
    assert log.producers.by_id[producer.producer_id].coordinator_epoch == 2


def test_nobody_coordinates_until_the_other_nodes_notice_the_death():
    machine = TransactionMachine(nodes=3, failover_ms=5_000)
    machine.topic()
    producer = machine.producer()
    producer.init()
    machine.do(lambda cluster, now_ms: cluster.nodes.kill(1, now_ms))
    client = machine.client(2)

    def found():
        (each,) = client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=("x",))).coordinators
        return each.error_code, each.node_id

    assert found() == (E.COORDINATOR_NOT_AVAILABLE, -1)
    machine.pass_ms(5_000)
    assert found() == (0, 2)


# Epochs.


def test_used_up_epochs_bring_another_id(machine, producer):
    (known,) = next(iter(machine.cluster.transactions.seats)).ids.values()
    known.epoch = producer.epoch = 32_765
    former = producer.producer_id
    assert producer.init(has=True) == "NONE"
    assert (producer.producer_id, producer.epoch) == (former, 32_766)
    assert producer.init(has=True) == "NONE"
    assert (producer.producer_id == former, producer.epoch) == (False, 0)
    # The answer was lost: the producer asks again with what it had.
    given = producer.producer_id
    producer.producer_id, producer.epoch = former, 32_766
    assert producer.init(has=True) == "NONE"
    assert (producer.producer_id, producer.epoch) == (given, 0)


def test_a_fence_may_take_the_last_epoch(machine, producer):
    (known,) = next(iter(machine.cluster.transactions.seats)).ids.values()
    known.epoch = producer.epoch = 32_766
    former = producer.producer_id
    begun(producer)
    other = machine.producer()
    assert other.init() == "CONCURRENT_TRANSACTIONS"
    assert machine.log().producers.by_id[former].epoch == 32_767
    assert other.init() == "NONE"
    assert (other.producer_id == former, other.epoch) == (False, 0)
    assert begun(other).end() == "NONE"


# Groups.


def test_pending_offsets_move_with_their_group(machine, producer):
    producer.add_offsets()
    producer.commit_offset(5)
    machine.do(lambda cluster, now_ms: cluster.coordinators.move("g", 1, 0, now_ms))
    assert machine.committed() == "UNSTABLE_OFFSET_COMMIT"
    assert machine.committed(stable=False) == -1
    assert producer.end() == "NONE"
    assert machine.committed() == 5


def test_a_transaction_ends_while_nobody_coordinates_the_group(machine, producer):
    producer.add_offsets()
    producer.commit_offset(5)
    machine.do(lambda cluster, now_ms: cluster.coordinators.move("g", 1, 1_000, now_ms))
    assert producer.end() == "NONE"
    machine.pass_ms(1_000)
    assert machine.committed() == 5


def test_a_lost_commit_is_a_whole_transaction(machine, producer):
    for offset, is_committed in ((5, True), (6, True), (7, False)):
        producer.add_offsets()
        producer.commit_offset(offset)
        producer.commit_offset(offset + 10, partition=1)
        producer.end(is_committed)
    assert (machine.committed(), machine.committed(partition=1)) == (6, 16)
    machine.do(lambda cluster, now_ms: cluster.coordinators.lose_commits("g", 1, now_ms))
    assert (machine.committed(), machine.committed(partition=1)) == (5, 15)


# Faults.


def test_a_fault_is_answered_in_the_field_where_kafka_puts_it(machine, producer):
    def fault(api, code, place=None, **how):
        machine.cluster.faults.add(Fault(api, code, place or Place(), **how))

    fault("AddPartitionsToTxn", E.TOPIC_AUTHORIZATION_FAILED, Place("t", 1))
    assert producer.add("t", 0, 1) == "OPERATION_NOT_ATTEMPTED"
    assert producer.state() == "Empty"
    fault("AddPartitionsToTxn", E.CONCURRENT_TRANSACTIONS)
    assert (producer.add(), producer.state(), producer.add()) == ("CONCURRENT_TRANSACTIONS", "Empty", "NONE")
    fault("EndTxn", E.COORDINATOR_NOT_AVAILABLE, after=True)
    assert (producer.end(), producer.state(), producer.end()) == ("COORDINATOR_NOT_AVAILABLE", "CompleteCommit", "NONE")
    fault("AddOffsetsToTxn", E.GROUP_AUTHORIZATION_FAILED, Place(group="g"))
    assert (producer.add_offsets("h"), producer.add_offsets()) == ("NONE", "GROUP_AUTHORIZATION_FAILED")
    fault("TxnOffsetCommit", E.COORDINATOR_NOT_AVAILABLE, Place(group="g"))
    assert (producer.commit_offset(1), producer.commit_offset(1)) == ("COORDINATOR_NOT_AVAILABLE", "NONE")
    fault("TxnOffsetCommit", E.TOPIC_AUTHORIZATION_FAILED, Place("t", 1))
    fault("TxnOffsetCommit", E.REQUEST_TIMED_OUT, Place("t", 0), after=True)
    assert producer.commit_offset(1, partition=1) == "TOPIC_AUTHORIZATION_FAILED"
    assert producer.commit_offset(2) == "REQUEST_TIMED_OUT"
    assert (producer.end(), machine.committed(), machine.committed(partition=1)) == ("NONE", 2, -1)
    fault("InitProducerId", E.PRODUCER_FENCED)
    assert (producer.init(), producer.init(), producer.epoch) == ("PRODUCER_FENCED", "NONE", 1)
    fault("InitProducerId", E.PRODUCER_FENCED, after=True)
    assert (producer.init(), producer.init(), producer.epoch) == ("PRODUCER_FENCED", "NONE", 3)
    fault("DescribeTransactions", E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert (producer.state(), producer.state()) == ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "Empty")
    fault("ListTransactions", E.COORDINATOR_NOT_AVAILABLE)
    assert producer.client.ask(ListTransactionsRequest(), 0).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert not producer.client.ask(ListTransactionsRequest(), 0).error_code


# Logs.


def test_compaction_drops_what_was_aborted_and_leaves_what_is_open():
    machine = TransactionMachine()
    config = {"cleanup.policy": "compact"}
    machine.do(lambda cluster, now_ms: cluster.topics.create("t", 1, now_ms, config=config))
    log, partition = machine.log(), machine.cluster.topics.partition("t", 0)
    good, bad, late = (machine.producer(name) for name in "xyz")
    for each in (good, bad, late):
        each.init()
        each.add()
    key = b"k"
    for who, value in ((good, b"1"), (good, b"2"), (bad, b"bad")):
        assert who.send(value, key=key) == "NONE"
    assert (good.end(), bad.end(False)) == ("NONE", "NONE")
    assert late.send(b"open", key=key) == "NONE"
    good.add()
    assert good.send(b"3", key=key) == "NONE"
    assert good.end() == "NONE"
    assert compact(partition, machine.cluster.settings, machine.cluster.now_ms) == 2
    assert machine.read() == ([b"2"], 5)
    assert late.end(False) == "NONE"
    assert machine.read() == ([b"2", b"3"], 9)
    assert log.end_offset == 9


def test_a_marker_that_is_truncated_leaves_the_transaction_open(machine, producer):
    begun(producer)
    producer.end(False)
    begun(producer)
    log = machine.log()
    log.truncate(1)
    assert (log.last_stable_offset, log.end_offset, log.aborted(0, 1)) == (0, 1, [])
    log.truncate(0)
    assert log.last_stable_offset == 0


def test_a_restored_snapshot_knows_its_producers(machine, producer):
    from aiogroup.embedded.machine.refusals import BrokerRefusal
    from aiogroup.embedded.machine.snapshots import restore, take

    producer.add_offsets()
    with pytest.raises(BrokerRefusal, match="x is under way"):
        take(machine.cluster)
    producer.end(False)
    begun(producer)
    producer.end(False)
    kept = take(machine.cluster)
    begun(producer)
    machine.do(lambda cluster, now_ms: restore(cluster, kept, now_ms))
    machine.pass_ms(120_000)
    again = machine.producer()
    again.producer_id, again.epoch, again.sequences = producer.producer_id, producer.epoch, {("t", 0): 1}
    assert again.state() == "CompleteAbort"
    begun(again, b"w")
    assert (again.end(), machine.read()) == ("NONE", ([b"w"], 4))


def test_any_node_gives_ids_to_producers_without_a_transactional_id():
    machine = TransactionMachine(nodes=2)
    for node_id in (1, 2):
        answer = machine.client(node_id).ask(InitProducerIdRequest(None, 0), 5)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
