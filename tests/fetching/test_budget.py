"""What is held is counted, and nothing is decoded beyond the bound while other records are there."""

from __future__ import annotations

import pytest

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.records.decode import SLICE_BYTES, PartitionDecoder
from tests.fetching import wire_batches
from tests.support.records import assigned, fetched, offsets, read_all, tp

COUNT, SIZE = 400, 1_000
INFLATED = 512 * 1024
"""The decompressor's buffer for one batch: the smallest guess, grown once."""


def packed(partition, codec=wire_batches.LZ4, count=COUNT, size=SIZE):
    return fetched(partition, 0, data=wire_batches.built(count, codec=codec, value=b"v" * size))


def holding(partitions_count, max_bytes, **how):
    assignment, partitions = assigned(*range(partitions_count))
    for partition in partitions:
        partition.put(packed(partition, **how))
    delivery = Delivery(assignment, auto_ack=True, records_per_turn=100, turn_ms=60_000, max_bytes=max_bytes)
    return assignment, delivery, partitions


@pytest.mark.parametrize("codec", [wire_batches.PLAIN, wire_batches.LZ4])
def test_what_is_held_is_counted_until_it_is_delivered(codec):
    assignment, delivery, (partition,) = holding(1, 1 << 30, codec=codec)
    assert partition.buffer.fetched_bytes == assignment.buffered_bytes > 0
    delivery.take(10)
    decoded = assignment.tally.decoded_bytes
    in_slice = 100 * SIZE
    assert in_slice <= decoded - (INFLATED if codec else 0) < 1.2 * in_slice
    read_all(delivery)
    assert assignment.buffered_bytes == 0


@pytest.mark.parametrize("at_once", [1, 7, 40])
def test_what_is_held_is_the_sum_of_the_pieces_however_many_there_are(at_once):
    assignment, delivery, (partition,) = holding(1, 1 << 30, codec=wire_batches.PLAIN)
    for number in range(50):
        partition.put(fetched(partition, 3, COUNT + 3 * number))
    while delivery.take(at_once):
        assert assignment.tally.fetched_bytes == sum(each.fetched_bytes for each in partition.buffer.pieces)
    assert (assignment.tally.fetched_bytes, assignment.buffered_bytes) == (0, 0)


def test_what_is_held_is_not_counted_anew_with_each_of_many_pieces(monkeypatch):
    """In ordered mode thousands of small answers wait behind a catch-up lane."""
    weighed, size = [], PartitionDecoder.fetched_bytes
    monkeypatch.setattr(PartitionDecoder, "fetched_bytes", property(lambda self: weighed.append(1) or size.fget(self)))
    assignment, (partition,) = assigned(0)
    for number in range(300):
        partition.put(fetched(partition, 1, number))
    while partition.buffer.pieces:
        partition.use_up()
    assert len(weighed) < 300 * 6
    assert assignment.buffered_bytes == 0


@pytest.mark.parametrize("end", ["drop_buffer", "close"])
def test_what_is_dropped_is_held_no_more(end):
    assignment, delivery, (one, other) = holding(2, 1 << 30)
    delivery.take(150)
    before = assignment.buffered_bytes
    getattr(one, end)()
    assert 0 < assignment.buffered_bytes == other.buffer.size_bytes < before
    getattr(other, end)()
    assert assignment.buffered_bytes == 0


@pytest.mark.parametrize("at_once", [1, 30, 150])
def test_one_batch_at_a_time_is_decompressed_where_there_is_no_room(at_once):
    assignment, delivery, partitions = holding(20, 1)
    before, most, seen = assignment.buffered_bytes, 0, {each.tp: [] for each in partitions}
    while taken := delivery.take(at_once):
        for each, records in taken.items():
            seen[each] += offsets(records)
        most = max(most, assignment.buffered_bytes - before)
    assert seen == {each.tp: list(range(COUNT)) for each in partitions}
    assert INFLATED <= most < 1.5 * INFLATED


def test_with_room_partitions_take_turns():
    _, delivery, partitions = holding(5, 1 << 30)
    assert [next(iter(delivery.take(100))) for _ in partitions] == [each.tp for each in partitions]


def test_a_partition_asked_for_by_name_comes_though_another_holds_the_room():
    _, delivery, _ = holding(3, 1)
    assert delivery.take(10, {tp(0)}).keys() == {tp(0)}
    assert delivery.take(10, {tp(2)}).keys() == {tp(2)}


def test_a_paused_partition_does_not_hold_up_the_others():
    _, delivery, partitions = holding(3, 1)
    delivery.take(10, {tp(0)})
    partitions[0].bar(Bar.PAUSED)
    seen = read_all(delivery)
    assert len(seen) == 2 * COUNT


def test_nothing_is_decoded_ahead_without_room():
    assignment, delivery, _ = holding(3, 1)
    assert not delivery.decode_ahead(500)
    assert assignment.tally.decoded_bytes == 0


def test_a_turn_decodes_no_more_bytes_of_many_partitions_than_of_one():
    _, delivery, partitions = holding(5, 1 << 30, codec=wire_batches.PLAIN, count=6, size=100_000)
    assert delivery.decode_ahead(500)
    assert 10 <= sum(each.buffer.ready_count for each in partitions) <= 12


def test_large_records_come_in_short_slices():
    _, delivery, (partition,) = holding(1, 1 << 30, codec=wire_batches.PLAIN, count=60, size=100_000)
    delivery.take(1)
    assert len(partition.buffer.slice.records) * 100_000 <= SLICE_BYTES + 100_000
    assert len(read_all(delivery)) == 59
