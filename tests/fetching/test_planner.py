"""Which partitions a broker is asked for, and for how much."""

from __future__ import annotations

import uuid

import pytest

from aiogroup._core.changes import Changes, Waiter
from aiogroup._core.cluster import Broker, Cluster, PartitionInfo, TopicInfo
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.asking.planner import Planner, node_for
from aiogroup._core.fetching.lane import Bar
from aiogroup.config import ConsumerConfig
from aiogroup.errors import OffsetOutOfRangeError
from tests.support.records import LATEST, assigned, fetched, read_all, tp

MIB = 1024 * 1024
CONFIG = ConsumerConfig(max_partition_fetch_bytes=2_000, fetch_max_bytes=MIB)

SOON_MS = CONFIG.backoff_ms(1)


def cluster(leaders=(1, 2, 1, 2), epoch=0, topic_id=1):
    partitions = {number: PartitionInfo(leader, epoch, (1, 2), (1, 2)) for number, leader in enumerate(leaders)}
    return Cluster(
        brokers={number: Broker(number, f"broker-{number}", 9092) for number in (1, 2)},
        topics={"orders": TopicInfo("orders", uuid.UUID(int=topic_id), partitions)},
    )


CLUSTER = cluster()


class Told:
    count = 0

    def pulse(self):
        self.count += 1


class Planning:
    """A planner that has looked, and what it asks for."""

    def __init__(self, *numbers, config=CONFIG, changes=None):
        self.assignment, self.partitions = assigned(*numbers, changes=changes)
        self.planner = Planner(self.assignment, config)
        self.look()

    def look(self, now_ms=0, seen=CLUSTER):
        return self.planner.plan_touched(seen, now_ms)

    def asked(self, node_id=1):
        return [each.partition for each in self.planner.broker(node_id).session.wanted]

    def plan(self, node_id=1, free_bytes=64 * MIB):
        return self.planner.next_fetch(node_id, free_bytes)


def test_each_broker_is_asked_for_what_it_leads():
    planning = Planning(0, 1, 2, 3)
    assert planning.asked(1) == [0, 2]
    assert planning.asked(2) == [1, 3]
    assert planning.asked(3) == []
    assert set(planning.planner.nodes) == {1, 2}


def test_paused_broken_and_unknown_positions_are_left_out_until_that_ends():
    planning = Planning(0, 1, 2, 3, 4)
    one_leads_all = cluster((1,) * 5)
    paused, broken, unknown, stuck, _ = planning.partitions
    paused.bar(Bar.PAUSED)
    broken.target.halt()
    unknown.await_reset(LATEST)
    stuck.stick(OffsetOutOfRangeError(stuck.tp, 0))
    planning.look(seen=one_leads_all)
    assert planning.asked() == [4]
    paused.lift(Bar.PAUSED)
    for each in (broken, unknown, stuck):
        each.start_at(7)
    planning.look(seen=one_leads_all)
    assert sorted(planning.asked()) == [0, 1, 2, 3, 4]


def test_nothing_that_was_not_touched_is_looked_at():
    planning = Planning(0, 2)
    first, second = planning.partitions
    first.bars.add(Bar.PAUSED)  # unseen
    second.bar(Bar.PAUSED)
    planning.look()
    assert planning.asked() == [0]


@pytest.mark.parametrize(("count", "is_seen"), [(1, False), (500, True)])
def test_what_is_used_up_makes_a_difference_where_enough_was_buffered(count, is_seen):
    planning = Planning(0)
    (partition,) = planning.partitions
    partition.put(fetched(partition, count))
    planning.look()
    assert (planning.asked() == []) is is_seen
    partition.use_up()
    assert (partition.tp in partition.tally.touched) is is_seen
    planning.look()
    assert planning.asked() == [0]


@pytest.mark.parametrize(
    "touch",
    [
        lambda it: it.start_at(5),
        lambda it: it.bar(Bar.PAUSED),
        lambda it: it.target.halt(),
        lambda it: it.await_reset(LATEST),
        lambda it: it.stick(OffsetOutOfRangeError(it.tp, 0)),
        lambda it: it.back_off(0, CONFIG),
        lambda it: it.target.was_cut_off(5_000),
        lambda it: it.target.fetched(5),
        lambda it: it.put(fetched(it, 500)),
        lambda it: it.target.prefer(2, 0),
        lambda it: it.drop_buffer(),
    ],
)
def test_whatever_decides_a_fetch_is_seen(touch):
    planning = Planning(0)
    before = planning.planner.broker(1).session.wanted.get(tp(0))
    touch(planning.partitions[0])
    planning.look()
    assert planning.planner.broker(1).session.wanted.get(tp(0)) != before


def test_partition_that_failed_waits_and_the_planner_says_until_when():
    planning = Planning(0, 2)
    first, second = planning.partitions
    first.back_off(700 - SOON_MS, CONFIG)
    second.back_off(300 - SOON_MS, CONFIG)
    planning.look(100)
    assert (planning.asked(), planning.plan().max_bytes, planning.planner.wake_at_ms) == ([], 0, 300)
    planning.look(300)
    assert (planning.asked(), planning.planner.wake_at_ms) == ([2], 700)
    planning.look(700)
    assert (planning.asked(), planning.planner.wake_at_ms) == ([2, 0], None)


def test_partition_that_fails_again_meanwhile_waits_longer():
    planning = Planning(0)
    (partition,) = planning.partitions
    partition.back_off(300 - SOON_MS, CONFIG)
    planning.look(100)
    partition.target.retry_now()
    partition.back_off(900 - SOON_MS, CONFIG)
    planning.look(200)
    planning.look(300)
    assert planning.asked() == []
    planning.look(900)
    assert planning.asked() == [0]


def test_partition_with_enough_buffered_is_left_out_until_it_is_drained():
    planning = Planning(0, 2)
    full, _ = planning.partitions
    full.put(fetched(full, 500))
    planning.look()
    assert (planning.asked(), planning.plan().full_count) == ([2], 1)
    delivery = Delivery(planning.assignment, auto_ack=True, records_per_turn=100, turn_ms=60_000)
    assert len(read_all(delivery)) == 500
    planning.look()
    assert (planning.asked(), planning.plan().full_count) == ([2, 0], 0)


def test_the_next_fetch_is_on_its_way_while_one_is_read():
    planning = Planning(0)
    (partition,) = planning.partitions

    def buffer(size_bytes):
        while partition.buffer.fetched_bytes < size_bytes:
            partition.put(fetched(partition, 10))
        planning.look()

    buffer(CONFIG.max_partition_fetch_bytes)
    assert planning.asked() == [0]
    buffer(2 * CONFIG.max_partition_fetch_bytes)
    assert planning.asked() == []


def test_partition_whose_offset_moved_goes_after_the_others():
    planning = Planning(0, 2)
    planning.partitions[0].target.fetched(10)
    planning.look()
    assert planning.asked() == [2, 0]


def test_request_never_asks_for_more_than_there_is_room_for():
    planning = Planning(0)
    assert planning.plan(free_bytes=100_000).max_bytes == 100_000
    assert planning.plan(free_bytes=64 * MIB).max_bytes == MIB


@pytest.mark.parametrize("free_bytes", [0, -5, 65_535])
def test_full_buffers_ask_for_nothing_at_all(free_bytes):
    planned = Planning(0).plan(free_bytes=free_bytes)
    assert (planned.max_bytes, planned.full_count, planned.is_blocked) == (0, 1, True)


def test_small_fetch_max_bytes_still_fetches():
    small = ConsumerConfig(max_partition_fetch_bytes=2_000, fetch_max_bytes=1_000)
    assert Planning(0, config=small).plan(free_bytes=5_000).max_bytes == 1_000


def test_batch_that_did_not_fit_is_asked_for_whole_until_it_came():
    planning = Planning(0)
    (partition,) = planning.partitions
    partition.target.was_cut_off(3 * MIB)
    planning.look()
    assert planning.plan().max_bytes == 3 * MIB
    assert planning.planner.broker(1).session.wanted[tp(0)].max_bytes == 3 * MIB
    partition.target.heal()
    planning.look()
    assert planning.plan().max_bytes == MIB
    assert planning.planner.broker(1).session.wanted[tp(0)].max_bytes == 2_000


def test_leader_that_moves_takes_its_partitions_along():
    planning = Planning(0, 1)
    planning.look(seen=cluster((2, 2), epoch=1))
    assert (planning.asked(1), planning.asked(2)) == ([], [0, 1])
    assert set(planning.planner.nodes) == {2}
    assert {each.leader_epoch for each in planning.planner.broker(2).session.wanted.values()} == {1}


def test_partition_that_is_given_up_is_asked_for_no_more():
    planning = Planning(0, 2)
    planning.assignment.remove([tp(0)])
    planning.look()
    assert planning.asked() == [2]
    planning.assignment.remove([tp(2)])
    planning.look()
    assert not planning.planner.nodes
    assert planning.plan().max_bytes == 0


def test_partition_that_comes_later_is_asked_for():
    planning = Planning(0)
    (added,) = planning.assignment.add({tp(2): LATEST})
    planning.look()
    assert planning.asked() == [0]
    added.start_at(3)
    planning.look()
    assert planning.asked() == [0, 2]


def test_partition_of_a_topic_that_was_recreated_is_asked_for_under_the_new_id_once_it_has_a_position():
    planning = Planning(0, 2)
    for partition in planning.partitions:
        planning.assignment.start_over(partition, uuid.UUID(int=2))
    planning.look(seen=cluster(topic_id=2))
    assert planning.asked() == []
    for partition in planning.partitions:
        partition.start_at(0)
    planning.look(seen=cluster(topic_id=2))
    assert planning.asked() == [0, 2]
    assert {each.topic_id for each in planning.planner.broker(1).session.wanted.values()} == {uuid.UUID(int=2)}


def test_preferred_replica_is_read_from_while_it_holds():
    planning = Planning(0)
    (partition,) = planning.partitions
    partition.target.prefer(2, 0)
    planning.look(0)
    assert (planning.asked(1), planning.asked(2), planning.planner.wake_at_ms) == ([], [0], 300_000)
    planning.look(299_999)
    assert planning.asked(2) == [0]
    planning.look(300_000)
    assert (planning.asked(1), planning.asked(2)) == ([0], [])


def test_lane_that_moves_to_another_broker_is_told_of():
    """By time alone, or by a look for one broker: whoever starts the senders must hear of it."""
    changes = Changes(Told)
    planning = Planning(0, changes=changes)
    (partition,), told = planning.partitions, changes[Waiter.FETCHERS]
    partition.target.prefer(2, 0)
    planning.look(0)
    before_count = told.count
    planning.look(299_999)
    assert told.count == before_count
    planning.look(300_000)
    assert (planning.asked(1), told.count) == ([0], before_count + 1)


def test_failure_at_a_preferred_replica_is_waited_for_and_no_longer():
    planning = Planning(0)
    (partition,) = planning.partitions
    partition.target.prefer(2, 0)
    planning.look(0)
    partition.back_off(200 - SOON_MS, CONFIG)
    planning.look(100)
    assert (planning.asked(2), planning.planner.wake_at_ms) == ([], 200)
    planning.look(200)
    assert (planning.asked(2), planning.planner.wake_at_ms) == ([0], 300_000)


def test_preferred_replica_that_left_the_cluster_is_forgotten():
    _, (partition,) = assigned(0)
    partition.target.prefer(9, 0)
    assert node_for(partition, CLUSTER, 0) == 1


def test_partition_without_a_leader_is_asked_of_nobody():
    planning = Planning(7)
    assert set(planning.planner.nodes) == {-1}
    assert planning.asked(1) == planning.asked(2) == []


def test_answer_is_of_interest_while_the_same_partition_is_at_the_same_broker():
    planning = Planning(0)
    asked = planning.planner.broker(1).session.wanted[tp(0)]
    planning.partitions[0].start_at(9)
    planning.look()
    assert planning.planner.is_at(1, tp(0), asked)
    assert not planning.planner.is_at(2, tp(0), asked)
    planning.partitions[0].topic_id = uuid.UUID(int=9)
    assert not planning.planner.is_at(1, tp(0), asked)
    planning.partitions[0].topic_id = uuid.UUID(int=1)
    planning.look(seen=cluster((2, 2, 2, 2)))
    assert not planning.planner.is_at(1, tp(0), asked)
    planning.assignment.remove([tp(0)])
    planning.assignment.add({tp(0): LATEST})
    planning.look()
    assert not planning.planner.is_at(1, tp(0), asked)


def test_an_answer_without_news_confirms_what_was_heard_but_of_what_was_just_asked_again():
    planning = Planning(0, 2)
    first, second = planning.partitions
    broker = planning.planner.broker(1)
    begun = broker.session.begin()
    assert planning.planner.heard_at_ms(first) is None
    first.log.heard_at_ms = second.log.heard_at_ms = 100
    broker.session.answered(0, 7, begun.partitions)
    broker.answered_at_ms = 100
    broker.session.begin()
    broker.answered_at_ms = 900  # nothing is new
    assert planning.planner.heard_at_ms(first) == 900
    first.target.fetched(5)
    planning.look()
    broker.named = broker.session.begin().partitions
    assert planning.planner.heard_at_ms(first) == 100
    assert planning.planner.heard_at_ms(second) == 900
    second.bar(Bar.PAUSED)
    planning.look()
    broker.named = broker.session.begin().partitions
    assert planning.planner.heard_at_ms(second) == 100  # it is not asked for any more
