"""What is asked of one broker, request by request, and what its answers lead to: the machine alone."""

from __future__ import annotations

import dataclasses
import uuid

import pytest

from aiogroup._core.cluster import Broker, Cluster, PartitionInfo, TopicInfo
from aiogroup._core.fetching.asking.broker_fetch import (
    TURN_BYTES,
    AfterSeek,
    BrokerFetch,
    Brokers,
    Denied,
    NotAuthorized,
    OutOfRange,
    Room,
    Want,
)
from aiogroup._core.fetching.asking.budget import FetchBudget
from aiogroup._core.fetching.asking.planner import Planner
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.records.decode import DecodeSettings
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from aiogroup._core.telemetry import events
from aiogroup.config import ConsumerConfig
from tests.fetching import wire_batches
from tests.support.records import assigned, tp

KIB = 1024
CONFIG = ConsumerConfig(max_partition_fetch_bytes=2_000, fetch_max_bytes=1024 * KIB, fetch_max_wait_ms=500)
ID = uuid.UUID(int=1)


def cluster(*leaders):
    partitions = {number: PartitionInfo(leader, 0, (1, 2), (1, 2)) for number, leader in enumerate(leaders)}
    return Cluster(
        brokers={number: Broker(number, f"broker-{number}", 9092) for number in (1, 2)},
        topics={"orders": TopicInfo("orders", ID, partitions)},
    )


class Fetching:
    """Partitions whose leaders are given in order, and a machine for each broker."""

    def __init__(self, *leaders, bound_bytes=64 * KIB * KIB, config=CONFIG):
        self.cluster, self.now_ms, self.drained_count = cluster(*leaders), 0, 0
        self.assignment, self.partitions = assigned(*range(len(leaders)))
        self.tally = self.assignment.tally
        budget = FetchBudget(self.assignment, bound_bytes, config.max_partition_fetch_bytes)
        planner = Planner(self.assignment, config)
        self.brokers = Brokers(planner, budget, config, DecodeSettings(), lambda ledger: ledger.ack, 0)
        self.machines = {node_id: BrokerFetch(node_id, self.brokers, 0) for node_id in sorted({*leaders} - {-1})}
        self.machine = self.machines.get(1)

    def is_due(self, machine=None):
        return (machine or self.machine).is_due(self.cluster, self.now_ms)

    def asked(self, machine=None):
        """The request that is due, as (offsets by partition, the longest wait)."""
        machine = machine or self.machine
        assert machine.is_due(self.cluster, self.now_ms)
        self.request, _ = machine.begin(self.now_ms, self.drained_count)
        found = {each.partition: each.fetch_offset for topic in self.request.topics for each in topic.partitions}
        return found, self.request.max_wait_ms

    def answer(self, *data, machine=None, error=0, session_id=7):
        topics = (FetchableTopicResponse("", ID, data),) if data else ()
        (machine or self.machine).answered(FetchResponse(0, error, session_id, topics), self.cluster, self.now_ms)

    def news(self, machine=None):
        machine = machine or self.machine
        news, machine.news = machine.news, []
        return news


def records(number, count=0, base=0, *, end=None, error=0, replica=-1, diverging=-1, size=1):
    sent = wire_batches.built(count, base, value=b"v" * size) if count else None
    end = base + count if end is None else end
    return PartitionData(
        number, error, end, last_stable_offset=end, log_start_offset=0, records=sent, preferred_read_replica=replica,
        diverging_epoch=EpochEndOffset(0, diverging),
    )  # fmt: skip


# Requests.


def test_one_request_is_under_way_at_a_time_and_the_next_goes_on_behind_its_records():
    it = Fetching(1, 2, 1)
    assert it.asked() == ({0: 0, 2: 0}, 500)
    assert (it.machine.is_under_way, it.is_due()) == (True, False)
    it.answer(records(0, 3), records(2))
    assert (it.machine.is_under_way, it.machine.has_more, it.news()) == (False, False, [])
    assert it.asked() == ({0: 3}, 500)
    assert (it.request.session_id, it.request.session_epoch) == (7, 1)


def test_what_a_request_may_bring_is_reserved_until_its_answer_or_its_loss():
    it = Fetching(1)
    for end in (lambda: it.answer(), lambda: it.machine.lost("gone", 0), it.machine.end):
        it.now_ms += 10_000
        it.asked()
        assert it.tally.in_flight_bytes == it.request.max_bytes > 0
        end()
        assert it.tally.in_flight_bytes == 0


def test_each_broker_without_a_request_has_a_share_of_the_memory():
    it = Fetching(1, 2, bound_bytes=1_000 * KIB)
    it.asked()
    assert it.request.max_bytes == 500 * KIB
    it.machine.end()
    it.asked(it.machines[2])
    assert it.request.max_bytes == 1_000 * KIB


def test_while_a_full_buffer_is_left_out_the_waits_are_short_and_grow_until_something_is_drained():
    it = Fetching(1, 1)
    it.asked()
    it.answer(records(0, 500), records(1))
    waits = []
    for _ in range(7):
        waits.append(it.asked()[1])
        it.answer()
    assert waits == [40, 80, 160, 320, 500, 500, 500]
    it.drained_count = 1
    assert it.asked()[1] == 20


@pytest.mark.parametrize("pause", [False, True])
def test_without_anything_to_ask_for_the_buffers_are_waited_for(pause):
    it = Fetching(1)
    it.asked()
    it.answer(records(0, 0 if pause else 500))
    if pause:
        it.partitions[0].bar(Bar.PAUSED)
    assert (it.is_due(), it.machine.waits_for, it.machine.tried_since_ms) == (False, Room.BUFFER, None)


def test_memory_that_another_request_has_reserved_is_waited_for_and_given_back():
    it = Fetching(1, 2, bound_bytes=300 * KIB)
    second = it.machines[2]
    it.brokers.idle_count = 1  # as if the second broker were new
    it.asked()
    assert (it.is_due(second), second.waits_for) == (False, Room.MEMORY)
    it.answer(records(0))
    assert it.news() == [Want.BROKERS]
    assert it.is_due(second)


def test_it_is_known_since_when_the_broker_owes_a_connection_or_an_answer():
    it = Fetching(1)
    it.now_ms = 100
    assert it.is_due()
    assert (it.machine.asked_at_ms, it.machine.tried_since_ms) == (100, 0)
    it.now_ms = 300
    it.asked()
    assert (it.machine.asked_at_ms, it.machine.tried_since_ms) == (300, 0)
    it.answer()
    assert (it.machine.asked_at_ms, it.machine.tried_since_ms, it.brokers.answered_at_ms) == (None, None, 300)
    assert it.is_due()
    assert (it.machine.asked_at_ms, it.machine.tried_since_ms) == (300, 300)
    it.partitions[0].bar(Bar.PAUSED)
    assert not it.is_due()
    assert (it.machine.asked_at_ms, it.machine.tried_since_ms) == (None, None)


# Answers.


@pytest.mark.parametrize(("ends", "is_more_there"), [((3, 0), False), ((3, 4), True), ((9, 0), True)])
def test_whether_the_next_answer_will_wait_for_new_records_is_known(ends, is_more_there):
    it = Fetching(1, 1)
    it.asked()
    it.answer(records(0, 3, end=ends[0]), records(1, end=ends[1]))
    assert it.machine.is_more_there is is_more_there
    assert it.machine.opened == it.partitions


def test_a_long_answer_is_taken_in_parts_and_nothing_is_asked_meanwhile():
    it = Fetching(1, 1, 1)
    it.asked()
    it.answer(*(records(number, 2, size=TURN_BYTES // 2) for number in range(3)))
    _, second, third = it.partitions
    assert [len(each.buffer.pieces) for each in it.partitions] == [1, 0, 0]
    assert (it.machine.has_more, it.is_due()) == (True, False)
    second.start_at(7)  # a seek in between
    it.assignment.remove([third.tp])
    while it.machine.has_more:
        it.machine.take_more(it.cluster, it.now_ms)
    assert [len(each.buffer.pieces) for each in it.partitions] == [1, 0, 0]
    assert it.asked()[0] == {1: 7}


@pytest.mark.parametrize("is_ended", [False, True])
def test_the_rest_of_a_long_answer_is_counted_until_it_is_taken(is_ended):
    it = Fetching(1, 1, 1)
    it.asked()
    it.answer(*(records(number, 2, size=TURN_BYTES // 2) for number in range(3)))
    held_bytes = it.tally.held_bytes
    assert it.tally.in_flight_bytes == 2 * it.partitions[0].buffer.size_bytes > 0
    if is_ended:
        it.machine.end()
        assert it.tally.in_flight_bytes == 0
        return
    while it.machine.has_more:
        it.machine.take_more(it.cluster, it.now_ms)
        assert it.tally.held_bytes == held_bytes
    assert it.tally.in_flight_bytes == 0


def test_an_answer_of_a_broker_that_the_partition_has_left_is_not_used():
    it = Fetching(1, 2)
    it.asked()
    it.cluster = cluster(2, 2)
    assert it.is_due(it.machines[2])
    it.answer(records(0, 3))
    assert (it.partitions[0].buffer.size_bytes, it.partitions[0].log.heard_at_ms) == (0, None)


def test_an_answer_without_news_of_what_was_just_asked_again_is_heard_all_the_same():
    it = Fetching(1)
    it.asked()
    it.answer(records(0, 3))
    it.asked()
    it.now_ms = 70
    it.answer()
    assert (it.partitions[0].log.heard_at_ms, it.partitions[0].log.received_at_ms) == (70, 0)


def test_records_are_read_up_to_where_they_are_wanted():
    it = Fetching(1, 1)
    it.brokers.ends = {tp(0): 3, tp(1): 4}
    it.asked()
    it.answer(records(0, 3), records(1, 3))
    assert [each.target.is_halted for each in it.partitions] == [True, False]


def failed(what):
    return events.FetchFailed(1, "orders", 0, what)


@pytest.mark.parametrize(
    ("data", "expected", "waits"),
    [
        ({"error": E.NOT_LEADER_OR_FOLLOWER}, ["failed", "denied", Want.METADATA], True),
        ({"error": E.LEADER_NOT_AVAILABLE}, ["failed", Want.METADATA], True),
        ({"error": E.UNKNOWN_LEADER_EPOCH}, ["failed"], True),
        ({"error": E.OFFSET_OUT_OF_RANGE}, ["failed", "range"], False),
        ({"error": E.TOPIC_AUTHORIZATION_FAILED}, ["failed", NotAuthorized("orders"), Want.METADATA], True),
        ({"diverging": 1}, [], True),
        ({"replica": 2}, [Want.BROKERS], False),
    ],
)
def test_what_an_answer_about_a_partition_leads_to(data, expected, waits):
    it = Fetching(1)
    (partition,) = it.partitions
    it.asked()
    before = partition.target.changes_count
    it.answer(records(0, **data))
    assert partition.target.changes_count - before == ("diverging" in data)  # an answer under way is dropped
    name = E(data["error"]).name if "error" in data else ""
    meant = {"failed": failed(name), "denied": Denied(partition, is_first=True), "range": OutOfRange(partition, 0)}
    assert it.news() == [meant.get(each, each) if isinstance(each, str) else each for each in expected]
    assert (partition.target.error, partition.target.backoff_until_ms > 0) == (name, waits)
    assert it.machine.opened == ([] if name or "diverging" in data else [partition])


def test_a_leader_that_denies_it_again_is_told_apart_from_one_that_does_for_the_first_time():
    it = Fetching(1)
    for is_first in (True, False):
        it.asked()
        it.answer(records(0, error=E.NOT_LEADER_OR_FOLLOWER))
        assert Denied(it.partitions[0], is_first) in it.news()
        it.now_ms += 10_000


def test_a_follower_out_of_range_sends_the_partition_back_to_the_leader():
    it = Fetching(2)
    it.machine = BrokerFetch(1, it.brokers, 0)
    it.partitions[0].target.prefer(1, 0)
    assert it.asked()[0] == {0: 0}
    it.answer(records(0, error=E.OFFSET_OUT_OF_RANGE))
    assert it.news() == [failed("OFFSET_OUT_OF_RANGE"), Want.BROKERS, Want.METADATA]
    it.now_ms = 10_000
    assert it.asked(it.machines[2])[0] == {0: 0}


def test_a_node_that_names_itself_as_the_replica_is_not_the_leader():
    it = Fetching(1)
    it.asked()
    it.answer(records(0, 3, replica=1))
    assert failed("NOT_LEADER_OR_FOLLOWER") in it.news()
    assert not it.partitions[0].buffer.pieces


def test_a_replica_that_the_metadata_do_not_have_is_waited_for_and_metadata_are_asked_for():
    it = Fetching(1)
    (partition,) = it.partitions
    why = "its leader names node 9, which the metadata do not have yet"
    waits = []
    for _ in range(3):
        it.asked()
        it.answer(records(0, replica=9))
        assert it.news() == [failed(why), Want.METADATA]
        assert (partition.target.error, partition.target.failing_since_ms) == (why, 0)
        assert not it.is_due()
        waits.append(partition.target.backoff_until_ms - it.now_ms)
        it.now_ms = partition.target.backoff_until_ms
    assert waits[0] < waits[1] < waits[2]
    it.cluster = dataclasses.replace(it.cluster, brokers={**it.cluster.brokers, 9: Broker(9, "broker-9", 9092)})
    it.asked()
    it.answer(records(0, replica=9))
    assert it.news() == [Want.BROKERS]
    assert not it.is_due()
    near = BrokerFetch(9, it.brokers, 0)
    it.asked(near)
    it.answer(records(0, 3), machine=near)
    assert (partition.target.error, partition.target.failing_since_ms) == ("", None)


def test_records_that_come_with_the_name_of_an_unknown_replica_are_taken():
    it = Fetching(1)
    it.asked()
    it.answer(records(0, 3, replica=9))
    assert (it.news(), it.machine.opened) == ([Want.BROKERS], [*it.partitions])
    assert it.partitions[0].buffer.pieces


def test_a_batch_that_was_cut_off_is_asked_for_whole_and_reported_the_second_time():
    it = Fetching(1)
    whole = wire_batches.built(3, value=b"v" * 5_000)
    for is_reported in (False, True):
        it.asked()
        it.answer(PartitionData(0, 0, 3, records=whole[:-1]))
        assert [type(each) for each in it.news()] == [events.FetchFailed] * is_reported
        it.now_ms += 10_000
        assert it.partitions[0].target.batch_bytes == len(whole)


def test_an_answer_longer_than_what_was_reserved_raises_what_is_reserved():
    it = Fetching(1, bound_bytes=300 * KIB)
    it.asked()
    it.answer(records(0, 2, size=200 * KIB))
    assert it.brokers.budget.largest_bytes > 400 * KIB


# Sessions.


@pytest.mark.parametrize("code", [E.FETCH_SESSION_ID_NOT_FOUND, E.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_that_the_broker_does_not_know_is_replaced_at_once(code):
    it = Fetching(1)
    it.machine.lost("once", 0)
    it.now_ms = it.machine.wake_at_ms
    it.news()
    it.asked()
    it.answer(records(0))
    it.asked()
    it.answer(error=code)
    assert it.news() == [events.FetchSessionLost(1, code.name, 1)]
    assert it.machine.is_answered
    assert it.asked()[0] == {0: 0}
    assert it.request.session_epoch == 0


def test_another_error_of_the_whole_answer_is_waited_out_longer_each_time():
    it = Fetching(1)
    waits = []
    for _ in range(3):
        it.asked()
        it.answer(error=E.UNKNOWN_SERVER_ERROR)
        assert it.news() == [events.FetchFailed(1, None, None, "UNKNOWN_SERVER_ERROR"), Want.METADATA]
        waits.append(it.machine.wake_at_ms - it.now_ms)
        assert not it.is_due()
        it.now_ms = it.machine.wake_at_ms
    assert waits == [CONFIG.backoff_ms(number) for number in (1, 2, 3)]
    it.asked()
    it.answer(records(0))
    assert it.machine.is_answered


# No answer.


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_request_that_is_lost_is_sent_in_full_after_a_while(is_sent):
    it = Fetching(1, 1)
    if is_sent:
        it.asked()
        it.answer(records(0), records(1))
        assert it.asked() == ({}, 500)
    assert it.is_due() is not is_sent
    it.machine.lost("nobody is there", it.now_ms)
    assert it.news() == [events.FetchFailed(1, None, None, "nobody is there"), Want.METADATA]
    assert {each.target.error for each in it.partitions} == {"nobody is there"}
    assert (it.machine.is_answered, it.machine.asked_at_ms, it.is_due()) == (False, None, False)
    it.now_ms = it.machine.wake_at_ms
    assert it.asked()[0] == {0: 0, 1: 0}


def test_an_answer_to_a_machine_that_ended_is_not_waited_for():
    it = Fetching(1)
    it.asked()
    it.answer(records(0))
    it.asked()
    it.machine.end()
    assert (it.machine.is_under_way, it.brokers.idle_count) == (False, 0)
    it.machine = BrokerFetch(1, it.brokers, it.now_ms)
    assert it.asked()[0] == {0: 0}  # in full: nobody knows whether the broker has read the last request


# After a seek.


@pytest.fixture
def sought():
    """The second partition was moved while a request waits at the broker."""
    it = Fetching(1, 1)
    it.asked()
    it.answer(records(0), records(1))
    it.asked()
    moved = it.partitions[1]
    moved.start_at(5)
    it.tally.was_moved(moved.tp)
    it.after = AfterSeek(1, it.brokers, 0)
    return it


def test_what_a_seek_moved_is_asked_for_beside_the_session_without_a_wait(sought):
    assert sought.asked(sought.after) == ({1: 5}, 0)
    assert (sought.request.session_id, sought.request.session_epoch) == (0, -1)
    sought.answer(records(1, 3, base=5), machine=sought.after)
    assert sought.partitions[1].buffered_count == 3
    assert sought.asked(sought.after) == ({1: 8}, 0)


def test_without_records_it_waits_longer_each_time_unless_something_changes(sought):
    waits = []
    for _ in range(3):
        sought.asked(sought.after)
        sought.answer(records(1), machine=sought.after)
        assert not sought.is_due(sought.after)
        waits.append(sought.after.wake_at_ms - sought.now_ms)
        sought.now_ms = sought.after.wake_at_ms
    assert waits == [20, 40, 80]
    sought.asked(sought.after)
    sought.answer(records(1, 3, base=5), machine=sought.after)
    sought.asked(sought.after)
    sought.answer(records(1), machine=sought.after)
    assert sought.after.wake_at_ms - sought.now_ms == 20
    sought.after.hurry()
    assert not sought.is_due(sought.after), "it had no records a moment ago"
    sought.partitions[1].start_at(6)
    sought.after.hurry()
    assert sought.is_due(sought.after)


def test_its_waits_are_bounded(sought):
    for _ in range(20):
        sought.asked(sought.after)
        sought.answer(records(1), machine=sought.after)
        assert sought.after.wake_at_ms - sought.now_ms <= 500
        sought.now_ms = sought.after.wake_at_ms


def test_it_ends_when_a_request_of_the_session_names_what_was_moved(sought):
    assert sought.is_due(sought.after)
    sought.answer()
    assert sought.asked()[0] == {1: 5}
    assert (sought.after.is_wanted, sought.is_due(sought.after)) == (False, False)


def test_if_it_is_lost_the_session_asks(sought):
    sought.asked(sought.after)
    sought.after.lost("gone", 0)
    assert sought.news(sought.after) == [events.FetchFailed(1, None, None, "gone")]
    assert not sought.after.is_wanted
    assert (sought.machine.is_under_way, sought.tally.in_flight_bytes > 0) == (True, True)
