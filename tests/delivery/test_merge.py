"""KIP-695: which record is next, and when to wait. The vectors are those of Kafka's PartitionGroupTest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from aiogroup._core.delivery.merge import NEVER_WAIT, MergeRule, MergeState, Sight, Waiting
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder
from aiogroup.errors import RecordDeserializationError, TimestampError
from tests.fetching import wire_batches
from tests.support.effort import examples, third
from tests.support.merge_scripts import differences, scripts
from tests.support.merging import STALL_MS, World
from tests.support.records import tp

ONE, TWO = tp(1), tp(2)

# PartitionGroupTest: (max_idle_ms, looks), each look (what partition 2 is seen as, when, is it ready); 1 is buffered.
READINESS = {
    "shouldNeverWaitIfIdlingIsDisabled": (NEVER_WAIT, [(Sight(0), 0, True)]),
    "never waits for what it does not know either": (NEVER_WAIT, [(Sight(None), 0, True), (Sight(5), 1, True)]),
    "shouldBeReadyIfAllPartitionsAreBuffered": (0, [(None, 0, True)]),
    "shouldWaitForFetchesWhenMetadataIsIncomplete": (0, [(Sight(None), 0, False), (Sight(0), 0, True)]),
    "shouldWaitForPollWhenLagIsNonzero": (0, [(Sight(1), 0, False), (Sight(1), 10**9, False), (None, 10**9, True)]),
    "shouldIdleAsSpecifiedWhenLagIsZero": (1, [(Sight(0), 0, False), (Sight(0), 1, True), (Sight(0), 2, True)]),
    "shouldUpdateLags": (
        10,
        [(Sight(None), 0, False), (Sight(5), 0, False), (Sight(0), 0, False), (Sight(None), 0, False)],
    ),
    "a deadline is set once": (10, [(Sight(0), 0, False), (Sight(0), 9, False), (Sight(0), 10, True)]),
    "and forgotten when the lag is not 0": (
        10,
        [(Sight(0), 0, False), (Sight(3), 5, False), (Sight(0), 6, False), (Sight(0), 15, False), (Sight(0), 16, True)],
    ),
    "or not known": (10, [(Sight(0), 0, False), (Sight(None), 5, False), (Sight(0), 9, False), (Sight(0), 19, True)]),
    "or there were records": (10, [(Sight(0), 0, False), (None, 5, True), (Sight(0), 6, False), (Sight(0), 16, True)]),
    "what is given up stays so until the lag changes": (
        10,
        [
            (Sight(0), 0, False),
            (Sight(0), 10, True),
            (Sight(0), 99, True),
            (Sight(1), 99, False),
            (Sight(0), 99, False),
        ],
    ),
}


@pytest.mark.parametrize(("max_idle_ms", "looks"), READINESS.values(), ids=READINESS)
def test_ready_or_not(max_idle_ms, looks):
    rule = MergeRule(max_idle_ms, STALL_MS)
    for sight, now_ms, is_ready in looks:
        seen = {} if sight is None else {TWO: sight}
        assert rule.look(seen, now_ms, has_record=True) is is_ready, (sight, now_ms)


@pytest.mark.parametrize("max_idle_ms", [NEVER_WAIT, 0, 10])
def test_nothing_is_ready_where_nothing_is_buffered(max_idle_ms):
    rule = MergeRule(max_idle_ms, STALL_MS)
    for now_ms in (0, 10, 20):
        assert not rule.look({ONE: Sight(0), TWO: Sight(0)}, now_ms, has_record=False)
    assert not rule.look({}, 20, has_record=False)


def test_a_partition_that_blocks_does_not_delay_the_time_of_the_others():
    rule = MergeRule(10, STALL_MS)
    assert not rule.look({ONE: Sight(None), TWO: Sight(0)}, 0, has_record=True)
    assert rule.waiting_for == {ONE: Waiting(MergeState.UNKNOWN, 0), TWO: Waiting(MergeState.IDLING, 0)}
    assert not rule.look({ONE: Sight(1), TWO: Sight(0)}, 10, has_record=True)
    assert rule.waiting_for == {ONE: Waiting(MergeState.BEHIND, 10)}
    assert rule.look({TWO: Sight(0)}, 10, has_record=True)


def test_a_partition_that_left_has_no_deadline_when_it_is_back():
    rule = MergeRule(10, STALL_MS)
    assert not rule.look({TWO: Sight(0)}, 0, has_record=True)
    assert rule.look({}, 5, has_record=True)
    assert not rule.look({TWO: Sight(0)}, 11, has_record=True)
    assert rule.look({TWO: Sight(0)}, 21, has_record=True)


def test_it_says_when_time_alone_changes_something():
    rule = MergeRule(10, STALL_MS)
    assert rule.wake_at_ms is None
    rule.look({ONE: Sight(0)}, 5, has_record=True)
    assert rule.wake_at_ms == 15
    rule.look({ONE: Sight(0)}, 15, has_record=True)
    assert rule.wake_at_ms is None  # it is given up
    rule.look({ONE: Sight(0), TWO: Sight(2)}, 20, has_record=True)
    assert rule.wake_at_ms == 20 + STALL_MS
    never = MergeRule(NEVER_WAIT, STALL_MS)
    never.look({ONE: Sight(0), TWO: Sight(None)}, 5, has_record=False)
    assert (never.wake_at_ms, never.waiting_for, never.take_stalls(10**9)) == (None, {}, [])
    assert not never.needs_records


def test_what_blocks_without_a_good_answer_is_reported_after_that_time_and_again():
    rule = MergeRule(0, STALL_MS)
    assert not rule.look({TWO: Sight(None)}, 0, has_record=True)
    assert rule.take_stalls(STALL_MS - 1) == []
    assert not rule.look({TWO: Sight(4)}, 10, has_record=True)  # from unknown to behind: it blocks all the same
    (stall,) = rule.take_stalls(STALL_MS)
    assert (stall.tp, stall.state, stall.blocked_ms) == (TWO, MergeState.BEHIND, STALL_MS)
    assert rule.take_stalls(2 * STALL_MS - 1) == []
    assert len(rule.take_stalls(2 * STALL_MS)) == 1
    rule.look({TWO: Sight(4, heard_at_ms=2_500)}, 2_600, has_record=True)
    assert rule.take_stalls(3_499) == []  # a broker said something good
    assert rule.wake_at_ms == 3_500
    assert len(rule.take_stalls(3_500)) == 1
    rule.look({TWO: Sight(0)}, 3_600, has_record=True)
    rule.look({TWO: Sight(1)}, 3_700, has_record=True)
    assert rule.take_stalls(4_699) == []  # it blocks again


# Which record.


def test_time_tracking():
    """PartitionGroupTest.testTimeTracking: the two batches, what is chosen, stream time, lateness, what is left."""
    world = World(3, NEVER_WAIT)
    world.pause(0)
    world.hold(1, 1, 3, 5)
    world.hold(2, 2, 4, 6)
    assert world.rule.stream_time is None
    seen = []

    def ask(count):
        for _ in range(count):
            (record,) = world.ask(1)
            world.delivery.settle()
            seen.append((record.partition, record.timestamp, world.rule.stream_time, record.lateness_ms))

    ask(2)
    world.hold(1, 2, 4)
    assert world.rule.stream_time == 2  # adding records does not change it
    ask(6)
    assert seen == [
        (1, 1, 1, 0),
        (2, 2, 2, 0),
        (1, 3, 3, 0),
        (2, 4, 4, 0),
        (1, 5, 5, 0),
        (1, 2, 5, 3),
        (1, 4, 5, 1),
        (2, 6, 6, 0),
    ]
    assert world.rule.late_count == 2
    assert world.ask() == []


def test_the_next_record_is_by_head_timestamp():
    """PartitionGroupTest.shouldChooseNextRecordBasedOnHeadTimestamp: 1, 5, [2], 3."""
    world = World(3, NEVER_WAIT)
    world.hold(1, 1, 5, 3)
    assert world.times(2) == [1, 5]
    world.hold(2, 2, 4, 6)
    assert world.times(2) == [2, 3]
    assert world.times() == [4, 6]


def test_inside_of_a_partition_the_offsets_count_even_when_times_go_back():
    world = World(2)
    world.hold(0, 9, 1, 5, 2)
    world.hold(1, 4, 6, 10, 10)
    assert world.places(7) == [(1, 0), (1, 1), (0, 0), (0, 1), (0, 2), (0, 3), (1, 2)]


def test_equal_times_go_by_topic_and_partition():
    world = World(3)
    for number in (2, 0, 1):
        world.hold(number, 7, 7)
    assert world.places() == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_partition_that_empties_is_looked_at_before_the_next_record():
    world = World(2, 0)
    world.produce(0, 1, 4, 6)
    world.fetch(0, 2)
    world.hold(1, 2, 3, 5)
    assert world.times() == [1, 2, 3, 4]
    assert world.states() == {0: "behind"}
    world.fetch(0)
    assert world.times() == [5, 6]


# What it means for the application.


def test_positions_follow_what_was_handed_out_and_nothing_of_what_lies_after():
    world = World(2)
    world.hold(0, 1, 3, 5, 7)
    world.hold(1, 2, 4, 6, 8)
    assert world.times(3) == [1, 2, 3]
    assert world.positions() == {0: 2, 1: 1}
    assert world.committable() == {0: 1, 1: 1}  # 3 is in hand, 1 and 2 are processed
    assert world.delivery.in_hand() == {tp(0): 1}
    world.delivery.process_all()
    assert world.committable() == {0: 2, 1: 1}


def test_settling_between_two_records_of_a_turn_processes_the_first():
    world = World(2)
    world.hold(0, 1, 3)
    world.hold(1, 2, 4)
    seen = []
    for _ in range(4):
        world.ask(1)
        seen.append((world.positions(), world.committable(), list(world.delivery.in_hand())))
    assert seen[0] == ({0: 1, 1: 0}, {0: 0, 1: 0}, [tp(0)])
    assert seen[1] == ({0: 1, 1: 1}, {0: 1, 1: 0}, [tp(1)])
    assert seen[2] == ({0: 2, 1: 1}, {0: 1, 1: 1}, [tp(0)])


def test_without_auto_ack_everything_stays_in_hand_until_it_is_acknowledged():
    world = World(2, auto_ack=False)
    world.hold(0, 1, 3, 5)
    world.hold(1, 2, 4, 6)
    assert world.times(4) == [1, 2, 3, 4]
    assert world.committable() == {0: 0, 1: 0}
    assert world.delivery.in_hand() == {tp(0): 2, tp(1): 2}
    world[0].ledger.ack(0)
    assert world.committable() == {0: 1, 1: 0}
    assert world.times(1) == [5]
    assert world.delivery.in_hand() == {tp(0): 2, tp(1): 2}


def test_the_record_that_a_loop_left_in_hand_comes_again():
    world = World(2)
    world.hold(0, 1, 3)
    world.hold(1, 2, 4)
    assert world.times(2) == [1, 2]
    assert world.delivery.take_back_iterated().timestamp == 2
    assert world.times() == [2, 3, 4]


def test_after_a_merge_what_a_plain_loop_gives_is_settled():
    world = World(1)
    world.hold(0, 1, 3, 5)
    assert world.times(1) == [1]
    world.delivery.close_cursor()
    world.delivery.process_all()
    assert world.delivery.open_cursor().timestamp == 3
    world.delivery.process_all()
    assert world.committable() == {0: 2}


def test_a_seek_back_and_a_revocation_in_the_middle():
    world = World(3)
    for number in range(3):
        world.hold(number, *range(number, 30, 3))
    assert world.times(10) == list(range(10))
    world.revoke(1)
    assert world.times(2) == [11, 12]
    world.seek(0, 1)
    world.fetch(0)
    records = world.ask(4)
    assert [record.timestamp for record in records] == [3, 6, 9, 12]
    assert [record.lateness_ms for record in records] == [9, 6, 3, 0]
    assert world.rule.stream_time == 12


def test_a_paused_partition_takes_no_part_and_keeps_its_records():
    world = World(2)
    world.hold(0, 1, 3, 5)
    world.hold(1, 2, 4)
    assert world.times(1) == [1]
    world.pause(1)
    assert world.times(1) == [3]
    world.pause(1, is_paused=False)
    assert world.times(2) == [2, 4]


def test_while_a_record_waits_for_its_redelivery_the_others_are_looked_at_and_nothing_is_chosen():
    world = World(3, 50)
    world.hold(0, 1)
    world.fetch(1)
    world[0].bar(Bar.DELAYED)
    assert world.times() == []
    assert world.rule.unknown == (tp(2),)
    world.revoke(2)
    assert world.times() == []
    assert world.rule.unknown == ()
    assert world.states() == {1: "idling"}
    world.now_ms = 50
    assert world.times() == []
    world[0].lift(Bar.DELAYED)
    assert world.times() == [1], "the idle time of the other began during the delay"


def test_what_arrives_while_a_partition_was_given_up_goes_before_what_was_laid_out():
    world = World(2)
    world.hold(0, 1, 2, 3, 4)
    world.fetch(1)
    assert world.times(2) == [1, 2]
    world.hold(1, 1, 3)
    records = world.ask()
    assert [(record.partition, record.timestamp) for record in records] == [(1, 1), (0, 3), (1, 3), (0, 4)]
    assert records[0].lateness_ms == 1
    assert world.rule.enforced_count == 3


def test_enforced_counts_records_that_were_handed_out_without_a_partition():
    world = World(2, 50)
    world.hold(0, 1, 2)
    world.fetch(1)
    assert world.ask() == []
    assert world.states() == {1: "idling"}
    world.now_ms = 50
    assert world.times() == [1, 2]
    assert world.rule.enforced_count == 2
    assert world.rule.missing == (tp(0), tp(1))


def test_more_is_decoded_after_what_is_laid_out_where_it_is_buffered():
    world = World(2, per_turn=8)
    world.hold(0, *range(0, 100, 2))
    world.hold(1, *range(1, 20, 2), *range(21, 100, 2))
    world.delivery.process_all()
    assert world.merging.open(0, 10**12, lambda: True).timestamp == 0
    assert [record.timestamp for record in iter(world.merging.cursor.take, None)] == list(range(1, 8))
    assert world.times() == list(range(8, 100))


def test_decoding_ahead_stops_when_the_turn_is_over():
    world = World(3)
    for number in range(3):
        world.hold(number, 1)
    left = iter([True, False, True, True])
    assert world.merging.decode_ahead(lambda: next(left))
    assert [world[number].buffer.slice is not None for number in range(3)] == [True, False, False]
    assert not world.merging.decode_ahead(lambda: next(left))
    assert world.times() == [1, 1, 1]


# Timestamps.


def test_another_time_may_be_extracted():
    world = World(2, timestamp=lambda record: 100 - record.timestamp)
    world.hold(0, 90, 70)
    world.hold(1, 80, 60)
    assert world.times() == [90, 80, 70, 60]
    assert world.rule.stream_time == 40


def refuse(record):
    raise KeyError("time")


@pytest.mark.parametrize(
    ("extract", "why"),
    [
        (lambda record: -1 if record.timestamp == 3 else record.timestamp, "not -1"),
        (lambda record: None if record.timestamp == 3 else record.timestamp, "not None"),
        (lambda record: 1.5 if record.timestamp == 3 else record.timestamp, "not 1.5"),
        (lambda record: 2**63 if record.timestamp == 3 else record.timestamp, "not 9223372036854775808"),
        (lambda record: refuse(record) if record.timestamp == 3 else record.timestamp, "'time'"),
    ],
)
def test_a_record_without_a_good_time_is_named_and_the_position_stays_on_it(extract, why):
    world = World(2, timestamp=extract)
    world.hold(0, 1, 3, 5)
    world.hold(1, 2, 4)
    assert world.times(1) == [1]
    for _ in range(2):  # where it belongs is not known: nothing else is given before
        with pytest.raises(TimestampError, match="orders-0 at offset 1") as caught:
            world.ask()
        assert why in str(caught.value)
        assert (caught.value.tp, caught.value.record.offset) == (tp(0), 1)
        assert world.positions() == {0: 1, 1: 0}
    world.seek(0, 2)
    world.fetch(0)
    assert world.times() == [2, 4, 5]


def test_the_records_own_time_may_be_missing():
    world = World(2)
    world.hold(0, 1, -1, 5)
    world.hold(1, 2, 6)
    assert world.times(1) == [1]
    with pytest.raises(TimestampError, match="no timestamp"):
        world.ask()


def test_a_handler_skips_records_without_a_good_time():
    told = []
    world = World(2, timestamp=lambda record: record.timestamp - 10, on_bad_timestamp=lambda *each: told.append(each))
    world.hold(0, 11, 3, 4, 15, 5)
    world.hold(1, 12, 16)
    assert world.times() == [11, 12, 15, 16]
    assert [(record.offset, type(error)) for record, error in told] == [(at, TimestampError) for at in (1, 2, 4)]
    assert world.positions() == {0: 5, 1: 2}
    world.delivery.process_all()
    assert world.committable() == {0: 5, 1: 2}


def test_what_the_handler_raises_is_raised_and_nothing_is_skipped():
    def give_up(record, error):
        raise RuntimeError("enough") from error

    world = World(1, on_bad_timestamp=give_up)
    world.hold(0, -5, 1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="enough"):
            world.ask()
    assert world.positions() == {0: 0}


def test_a_poison_record_is_raised_after_the_good_ones_before_it():
    world = World(2)
    world.hold(0, 1, 3)
    world[0].put(_damaged(world[0]))
    world.hold(1, 2, 4, 6)
    assert world.times(3) == [1, 2, 3]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            world.ask()
        assert caught.value.offset == 2
    world.pause(0)
    assert world.times() == [4, 6]


def _damaged(partition):
    data = bytearray(wire_batches.batch([wire_batches.Sent(2, value=b"v", timestamp=5)]))
    data[-1] ^= 1
    return PartitionDecoder(partition.tp, bytes(data), 2, (), DecodeSettings(), lambda record: None)


# By brute force.


@settings(max_examples=examples(15), deadline=None)
@given(scripts)
def test_it_does_what_the_rules_say_whatever_happens(script):
    assert differences(*script) is None


@pytest.mark.simulation
@settings(max_examples=third(6_000), deadline=None)
@given(scripts)
def test_it_does_what_the_rules_say_whatever_happens_at_length(script):
    assert differences(*script) is None
