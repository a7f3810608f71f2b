"""Two lanes of one partition: where a range ends, whose turn it is, and that neither stands still beside the other."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.lane import Bar, LaneTally
from aiogroup._core.fetching.range_cursor import BoundedDecoder, RangeCursor
from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConfigError, RecordDeserializationError
from tests.fetching import wire_batches
from tests.support.effort import examples
from tests.support.records import assigned, fetched, offsets, rest


def mode(**more):
    return ConsumerConfig.of(group_id="billing", enable_parallel_rebalance=True, **more)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"parallel_share": 0}, "parallel_share=0: a number between 0 and 1"),
        ({"parallel_share": 1.0}, "parallel_share=1.0"),
        ({"parallel_share": "half"}, "parallel_share='half'"),
        ({"parallel_order": "sorted"}, "'unordered' or 'ordered'"),
        ({"parallel_order": "ordered", "parallel_handoff": True}, "choose one"),
        ({"parallel_order": "ordered", "parallel_buffer_bytes": 40_000_000}, "must not be above the live lane's part"),
        ({"parallel_group_id": "billing"}, "a group of its own"),
        ({"parallel_group_id": ""}, "a group of its own"),
        ({"parallel_min_backlog": 0}, "parallel_min_backlog=0"),
        ({"parallel_share": 0.01}, "must fit into each part"),
        ({"group_id": None}, "needs a group_id"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values, why):
    with pytest.raises(ConfigError, match=why):
        ConsumerConfig.of(**{"group_id": "billing", "enable_parallel_rebalance": True, **values})


def test_hand_off_without_the_mode_is_refused():
    with pytest.raises(ConfigError, match="needs enable_parallel_rebalance"):
        ConsumerConfig.of(group_id="billing", parallel_handoff=True)


def test_the_bound_on_what_is_buffered_is_divided():
    config = mode(parallel_share=0.25, max_buffered_bytes=40_000_000)
    assert (config.lane_buffer_bytes("live"), config.lane_buffer_bytes("catch-up")) == (30_000_000, 10_000_000)
    assert ConsumerConfig.of(max_buffered_bytes=40_000_000).lane_buffer_bytes("live") == 40_000_000
    assert mode().second_group_id == "billing.catchup"
    assert mode(parallel_group_id="jobs").second_group_id == "jobs"


# Where a range ends.


def ranged(start, end):
    """A live partition at `end`, and the cursor of the range before it."""
    assignment, (live,) = assigned(0, start_at=end)
    return assignment, live, RangeCursor(live, start, end, -1, LaneTally())


def bounded(cursor, count, base, **how):
    sent = wire_batches.built(count, base, value=b"v")
    return BoundedDecoder(cursor.end, cursor.tp, sent, base, (), DecodeSettings(**how), lambda record: None)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 20), st.integers(1, 20), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 9))
def test_no_record_after_the_end_is_given_and_none_before_is_left_out(start, length, batches, most):
    _, _, cursor = ranged(start, start + length)
    base, given = start, []
    for count in batches:
        decoder = bounded(cursor, count, base)
        base += count
        while (records := decoder.next_slice(most)) is not None:
            given += offsets(records)
        assert decoder.next_offset == min(base, cursor.end) or base - count >= cursor.end
    assert given == list(range(start, min(base, cursor.end)))


def test_a_batch_that_begins_after_the_end_ends_the_range():
    _, _, cursor = ranged(5, 10)
    decoder = bounded(cursor, 4, 12)
    assert decoder.next_slice(10) is None
    assert decoder.next_offset == 12  # passed over by the delivery, up to the end
    cursor.ledger.pass_over(min(decoder.next_offset, cursor.end))
    assert cursor.is_delivered


def test_poison_after_the_end_is_not_this_ranges():
    def refuse(value):
        raise ValueError("unreadable")

    _, _, cursor = ranged(0, 3)
    healthy = bounded(cursor, 3, 0)
    assert offsets(healthy.next_slice(10)) == [0, 1, 2]
    beyond = bounded(cursor, 2, 3, value_deserializer=refuse)
    assert beyond.next_slice(10) is None
    gap = BoundedDecoder(  # compaction left nothing between
        cursor.end, cursor.tp, wire_batches.built(2, 5, value=b"v"), 1, (),
        DecodeSettings(value_deserializer=refuse), lambda record: None,
    )  # fmt: skip
    assert gap.next_slice(10) is None
    inside = bounded(cursor, 2, 2, value_deserializer=refuse)
    with pytest.raises(RecordDeserializationError) as caught:
        inside.next_slice(10)
    assert caught.value.offset == 2


def test_a_cursor_is_closed_where_its_partition_is():
    _, live, cursor = ranged(0, 10)
    for why in (Bar.HELD, Bar.NEW, Bar.LEAVING):
        live.bar(why)
        assert not cursor.is_open
        live.lift(why)
    assert cursor.is_open
    cursor.bar(Bar.PAUSED)
    assert not cursor.is_open


def test_one_range_comes_before_the_next():
    _, live, first = ranged(0, 4)
    second = RangeCursor(live, 4, 9, -1, first.tally)
    second.former = first
    assert not second.is_open
    first.ledger.deliver(range(4), 4)
    assert second.is_open
    assert not first.is_done
    first.ledger.process_all()
    assert first.is_done


# Whose turn it is.


def two(live_count, behind_count, *, share=0.5, records_per_turn=4):
    """A delivery over a partition with so many records at its head, and so many in a range before it."""
    assignment, live, cursor = ranged(0, 1_000)
    if live_count:
        live.put(fetched(live, live_count, 1_000))
    if behind_count:
        cursor.put(bounded(cursor, behind_count, 0, lane="catch-up"))
    how = {"auto_ack": True, "records_per_turn": records_per_turn, "turn_ms": 60_000, "max_bytes": 10**9}
    return Delivery(assignment, catch_up=cursor.tally, share=share, **how), live, cursor


def lanes_of(taken):
    counts = {"live": 0, "catch-up": 0}
    for records in taken.values():
        for record in records:
            counts[record.lane] += 1
    return counts


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.2, 20), (0.9, 90)])
def test_records_are_shared_out_while_both_lanes_have_some(share, expected):
    delivery, _, _ = two(600, 600, share=share)
    for _ in range(3):
        counts = lanes_of(delivery.take(100))
        assert abs(counts["catch-up"] - expected) <= 1
        delivery.process_all()


def test_every_lane_with_data_gets_at_least_one_record_of_a_round():
    delivery, _, _ = two(600, 600, share=0.001)
    for _ in range(5):
        assert lanes_of(delivery.take(10))["catch-up"] >= 1
        delivery.process_all()
    delivery, _, _ = two(600, 600, share=0.999)
    for _ in range(5):
        assert lanes_of(delivery.take(10))["live"] >= 1
        delivery.process_all()


def test_what_one_lane_does_not_use_the_other_gets():
    delivery, _, _ = two(5, 600)
    assert lanes_of(delivery.take(100)) == {"live": 5, "catch-up": 95}
    delivery, _, _ = two(600, 5)
    assert lanes_of(delivery.take(100)) == {"live": 95, "catch-up": 5}
    delivery, _, _ = two(600, 0)
    assert lanes_of(delivery.take(100)) == {"live": 100, "catch-up": 0}


@pytest.mark.parametrize("counts", [(600, 0), (0, 600)])
def test_a_lane_that_is_alone_decodes_ahead_all_that_is_asked_for(counts):
    delivery, live, cursor = two(*counts)
    while delivery.decode_ahead(100):
        pass
    one = live if counts[0] else cursor
    assert len(one.buffer.slice.records) == 100
    assert len(delivery.take(100)[one.tp]) == 100


@pytest.mark.parametrize("counts", [(600, 600), (5, 600), (600, 5), (30, 30)])
def test_what_was_decoded_ahead_is_all_that_is_taken(monkeypatch, counts):
    delivery, live, cursor = two(*counts)
    while delivery.decode_ahead(100):
        pass
    monkeypatch.setattr(PartitionDecoder, "next_slice", lambda *_: pytest.fail("decoded behind its turn"))
    assert live.buffer.ready_count + cursor.buffer.ready_count == min(100, sum(counts))
    assert sum(map(len, delivery.take(min(100, sum(counts))).values())) == min(100, sum(counts))


@pytest.mark.parametrize("is_loop", [True, False])
def test_what_a_lane_missed_while_it_had_nothing_is_not_made_up_for(is_loop):
    delivery, _, cursor = two(600, 0)
    for _ in range(100):
        if is_loop:
            delivery.open_cursor()
            assert len(rest(delivery)) == 3
        else:
            delivery.take(4)
        delivery.process_all()
    cursor.put(bounded(cursor, 100, 0, lane="catch-up"))
    counts = {"live": 0, "catch-up": 0}
    for _ in range(40):
        for lane, count in lanes_of(delivery.take(1)).items():
            counts[lane] += count
        delivery.process_all()
    assert abs(counts["live"] - 20) <= 6


def test_one_record_at_a_time_is_shared_out_as_well():
    delivery, _, _ = two(100, 100, share=0.25)
    counts = {"live": 0, "catch-up": 0}
    for _ in range(80):
        for lane, count in lanes_of(delivery.take(1)).items():
            counts[lane] += count
        delivery.process_all()
    assert abs(counts["catch-up"] - 20) <= 2


def test_slices_of_the_cursor_are_shared_out_as_well():
    delivery, _, _ = two(200, 200, records_per_turn=4)
    given = []
    for _ in range(20):
        given.append(delivery.open_cursor().lane)
        given += [record.lane for record in rest(delivery)]
        delivery.process_all()
    assert abs(given.count("live") - given.count("catch-up")) <= 4


def test_what_a_lane_missed_while_it_had_nothing_is_not_made_up_for_without_end():
    delivery, live, cursor = two(0, 950, records_per_turn=50)
    cursor.end = 10**6
    for base in range(0, 4_750, 950):
        if base:
            cursor.put(bounded(cursor, 950, base, lane="catch-up"))
        assert lanes_of(delivery.take(950))["catch-up"] == 950
        delivery.process_all()
    cursor.put(bounded(cursor, 2_000, 4_750, lane="catch-up"))
    live.put(fetched(live, 4_000, 1_000))
    given = {"live": 0, "catch-up": 0}
    while given["live"] < 2_000:
        given[delivery.open_cursor().lane] += 1 + len(rest(delivery))
        delivery.process_all()
    assert given["catch-up"] >= 800


def test_both_lanes_are_in_hand_and_settle():
    delivery, live, cursor = two(10, 10)
    delivery.take(6)
    assert delivery.in_hand() == {live.tp: 6}
    assert delivery.is_in_hand({live.tp})
    delivery.process_all()
    assert (live.ledger.committable, cursor.ledger.committable) == (1_003, 3)


def test_poison_of_one_lane_is_reported_and_the_other_lane_goes_on():
    delivery, live, cursor = two(40, 0)

    def refuse(value):
        raise ValueError("unreadable")

    cursor.put(bounded(cursor, 5, 0, value_deserializer=refuse, lane="catch-up"))
    given, told = 0, []
    for _ in range(20):
        try:
            given += len(delivery.take(4).get(live.tp, ()))
        except RecordDeserializationError as error:
            told.append((error.lane, error.offset))
        delivery.process_all()
    assert given == 40
    assert told == [("catch-up", 0)] * 10
    assert cursor.poison_offset == 0


def test_in_ordered_mode_the_head_waits_until_everything_before_is_handed_out():
    delivery, live, cursor = two(50, 0)
    cursor.end, live.lanes = 30, SimpleNamespace(waits_for=cursor)
    cursor.put(bounded(cursor, 40, 0, lane="catch-up"))
    taken = offsets(delivery.take(100)[live.tp])
    assert taken == [*range(30), *range(1_000, 1_050)]
    assert taken == sorted(taken)
