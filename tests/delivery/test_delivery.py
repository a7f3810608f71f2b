"""What is handed out, what is in hand, what is processed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.delivery.queue import Supply
from aiogroup._core.fetching.lane import Bar
from aiogroup.errors import NoOffsetForPartitionError, RecordDeserializationError
from tests.fetching import wire_batches
from tests.support.effort import examples
from tests.support.records import assigned, fetched, offsets, read_all, rest, tp


def delivering(assignment, *, auto_ack=True, records_per_turn=4):
    return Delivery(assignment, auto_ack=auto_ack, records_per_turn=records_per_turn, turn_ms=60_000)


def one_partition(count=10, **how):
    """A delivery over one partition with `count` records."""
    assignment, (partition,) = assigned(0)
    partition.put(fetched(partition, count))
    return delivering(assignment, **how), partition


def take_all(delivery, max_count=None):
    return {name.partition: offsets(records) for name, records in delivery.take(max_count).items()}


def poison_at(offset):
    def refuse(value):
        raise ValueError("unreadable")

    return {"value_deserializer": refuse} if offset == 0 else {"key_deserializer": _refuse_key(b"k%d" % offset)}


def _refuse_key(bad):
    def read(key):
        if key == bad:
            raise ValueError("unreadable")
        return key

    return read


# The cursor of `async for`.


def test_cursor_gives_records_in_order_and_the_position_follows_on_settling():
    delivery, partition = one_partition()
    assert delivery.open_cursor().offset == 0
    assert delivery.cursor.take().offset == 1
    delivery.settle()
    assert partition.position == 2
    assert partition.ledger.committable == 1
    assert delivery.in_hand() == {tp(0): 1}


def test_settling_twice_changes_nothing():
    delivery, partition = one_partition()
    delivery.open_cursor()
    for _ in range(3):
        delivery.settle()
        assert (partition.position, partition.ledger.committable) == (1, 0)


def test_nothing_is_in_hand_before_the_first_record():
    delivery, partition = one_partition()
    assert not delivery.is_in_hand()
    assert partition.position == 0
    delivery.open_cursor()
    assert delivery.is_in_hand()
    assert partition.position == 1


def test_a_turn_that_is_over_at_once_gives_a_record_all_the_same():
    assignment, (partition,) = assigned(0)
    partition.put(fetched(partition, 3))
    delivery = Delivery(assignment, auto_ack=True, records_per_turn=4, turn_ms=0)
    assert read_all(delivery) == [(0, 0), (0, 1), (0, 2)]


def test_closed_cursor_gives_nothing_and_loses_nothing():
    delivery, partition = one_partition(count=3)
    delivery.open_cursor()
    delivery.close_cursor()
    assert rest(delivery) == []
    assert partition.position == 1
    delivery.process_all()
    assert read_all(delivery) == [(0, 1), (0, 2)]


def test_asking_for_the_next_record_processes_the_one_in_hand():
    delivery, partition = one_partition()
    delivery.open_cursor()
    delivery.process_all()
    assert not delivery.is_in_hand()
    assert partition.ledger.committable == 1


def test_drained_partition_tells_that_there_is_room():
    delivery, partition = one_partition(count=2)
    assert read_all(delivery) == [(0, 0), (0, 1)]
    assert not delivery.open_cursor()
    assert delivery.supply.has_freed
    assert not partition.buffer.pieces


def test_a_piece_is_used_up_when_its_last_record_is_decoded():
    """The next request need not look at it again, and the fetchers may fetch on meanwhile."""
    delivery, partition = one_partition(count=2)
    assert delivery.open_cursor().offset == 0
    assert delivery.supply.has_freed
    assert delivery.supply.drained_count == 1
    assert not partition.buffer.pieces
    assert partition.buffer.fetched_bytes == 0
    assert partition.buffer.ready_count == 2
    assert partition.position == 0
    assert offsets(rest(delivery)) == [1]
    delivery.settle()
    assert partition.position == 2
    assert delivery.open_cursor() is None
    assert delivery.supply.drained_count == 1


def test_who_waits_until_a_piece_is_used_up_is_not_woken_by_a_slice():
    supply = Supply()
    supply.is_drain_wanted = True
    supply.has_freed = True
    assert not supply.take_freed()
    assert (supply.is_drain_wanted, supply.has_freed) == (True, False)
    supply.note_drained()
    assert supply.take_freed()
    assert not supply.is_drain_wanted
    supply.note_drained()
    assert not supply.take_freed(), "nobody waits"


def test_a_piece_with_more_to_decode_is_not_used_up():
    delivery, partition = one_partition(count=3, records_per_turn=2)
    assert delivery.open_cursor().offset == 0
    assert not delivery.supply.has_freed
    assert partition.buffer.pieces
    assert offsets(rest(delivery)) == [1]
    assert delivery.open_cursor().offset == 2
    assert delivery.supply.drained_count == 1
    assert not partition.buffer.pieces


def test_position_passes_offsets_without_records_with_the_last_record():
    assignment, (partition,) = assigned(0)
    partition.put(fetched(partition, 2, data=wire_batches.marker(2, producer=7, abort=False)))
    delivery = delivering(assignment)
    assert offsets([delivery.open_cursor(), *rest(delivery)]) == [0, 1]
    delivery.settle()
    assert partition.position == 3
    delivery.process_all()
    assert partition.ledger.committable == 3


def test_position_passes_what_holds_no_record_at_all():
    assignment, (partition,) = assigned(0)
    partition.put(fetched(partition, 0, data=wire_batches.marker(0, producer=7, abort=False)))
    delivery = delivering(assignment)
    assert not delivery.open_cursor()
    assert partition.position == partition.ledger.committable == 1


# Batches.


def test_batch_takes_at_most_what_is_asked_for_and_goes_on_after_it():
    delivery, partition = one_partition(count=10)
    assert take_all(delivery, 3) == {0: [0, 1, 2]}
    assert (partition.position, partition.ledger.committable) == (3, 0)
    assert delivery.in_hand() == {tp(0): 3}
    delivery.process_all()
    assert partition.ledger.committable == 3
    assert take_all(delivery) == {0: list(range(3, 10))}


@pytest.mark.parametrize("asked", [(4, 4), (3, 4), (4, 8), (10,)])
def test_a_list_that_was_given_is_the_receivers(asked):
    delivery, _ = one_partition(auto_ack=False)
    seen = []
    for count in asked:
        (records,) = delivery.take(count).values()
        seen += offsets(records)
        records.clear()
        assert seen == list(range(len(seen)))
    assert seen + [offset for _, offset in read_all(delivery)] == list(range(10))


@pytest.mark.parametrize("max_count", [None, 1_000])
def test_batch_without_a_bound_takes_every_partition(max_count):
    assignment, partitions = assigned(0, 1, 2)
    for partition in partitions:
        partition.put(fetched(partition, 6))
    assert take_all(delivering(assignment), max_count) == {0: [*range(6)], 1: [*range(6)], 2: [*range(6)]}


def test_only_named_partitions_are_taken():
    assignment, partitions = assigned(0, 1)
    for partition in partitions:
        partition.put(fetched(partition, 2))
    delivery = delivering(assignment)
    assert list(delivery.take(None, [tp(1)])) == [tp(1)]
    assert list(delivery.take(None)) == [tp(0)]


def test_nothing_ready_gives_an_empty_batch():
    assignment, _ = assigned(0)
    delivery = delivering(assignment)
    assert delivery.take(10) == {}
    assert not delivery.open_cursor()


# Fairness.


def test_partitions_take_turns():
    assignment, partitions = assigned(0, 1, 2)
    for partition in partitions:
        partition.put(fetched(partition, 8))
    given = read_all(delivering(assignment, records_per_turn=4))
    turns = [(number, len(list(group))) for number, group in itertools.groupby(given, key=lambda each: each[0])]
    assert turns == [(0, 4), (1, 4), (2, 4)] * 2


def test_small_batches_reach_every_partition():
    assignment, partitions = assigned(0, 1, 2)
    for partition in partitions:
        partition.put(fetched(partition, 100))
    delivery = delivering(assignment, records_per_turn=4)
    first = [next(iter(take_all(delivery, 2))) for _ in range(6)]
    assert first == [0, 1, 2, 0, 1, 2]


def test_partition_that_came_later_gets_its_turn():
    assignment, (first,) = assigned(0)
    first.put(fetched(first, 100))
    delivery = delivering(assignment)
    assert take_all(delivery, 1) == {0: [0]}
    ((second),) = assignment.add({tp(1): first.reset.policy})
    second.start_at(0)
    second.put(fetched(second, 1))
    served = [next(iter(take_all(delivery, 1))) for _ in range(2)]
    assert set(served) == {0, 1}


def test_partitions_with_nothing_to_deliver_are_not_looked_at():
    assignment, partitions = assigned(*range(100))
    delivery = delivering(assignment)
    partitions[50].put(fetched(partitions[50], 1))
    partitions[70].put(fetched(partitions[70], 1))
    assert list(assignment.tally.turns) == [partitions[50], partitions[70]]
    assert read_all(delivery) == [(50, 0), (70, 0)]
    assert not delivery.open_cursor()
    assert not assignment.tally.turns
    partitions[70].put(fetched(partitions[70], 1, 1))
    assert read_all(delivery) == [(70, 1)]


def test_what_was_decoded_ahead_is_delivered_when_the_buffer_is_empty():
    delivery, partition = one_partition(10)
    while delivery.decode_ahead(100):
        pass
    assert not partition.buffer.pieces
    assert [take_all(delivery, 4) for _ in range(4)] == [{0: [0, 1, 2, 3]}, {0: [4, 5, 6, 7]}, {0: [8, 9]}, {}]


def test_a_turn_decodes_so_many_records_of_however_many_partitions():
    assignment, partitions = assigned(*range(10))
    for partition in partitions:
        partition.put(fetched(partition, 1))
    delivery, ready_counts, is_wanted = delivering(assignment, records_per_turn=4), [], True
    while is_wanted:
        is_wanted = delivery.decode_ahead(100)
        ready_counts.append(sum(each.buffer.ready_count for each in partitions))
    assert ready_counts == [4, 8, 10]


def test_no_turn_follows_the_one_that_decodes_the_last():
    delivery, partition = one_partition(10)
    assert delivery.decode_ahead(6)
    assert partition.buffer.ready_count == 4
    assert not delivery.decode_ahead(6)
    assert partition.buffer.ready_count == 6


def test_nothing_is_decoded_that_was_not_asked_for():
    delivery, partition = one_partition(10)
    while delivery.decode_ahead(6):
        pass
    assert partition.buffer.slice is not None
    assert len(partition.buffer.slice.records) == 6


@pytest.mark.parametrize("style", ["batch", "cursor"])
def test_what_was_handed_out_is_not_kept(style):
    delivery, partition = one_partition(4)
    if style == "batch":
        delivery.take(None)
    else:
        delivery.open_cursor()
        rest(delivery)
    delivery.close_cursor()
    assert partition.buffer.slice is not None
    assert partition.buffer.slice.records == []


def test_the_last_record_of_all_that_is_fetched_is_taken_back_without_another_fetch():
    delivery, partition = one_partition(4)
    delivery.open_cursor()
    last = rest(delivery)[-1]
    assert delivery.take_back_iterated() is last
    assert partition.buffer.size_bytes == partition.buffer.slice.size_bytes > 0
    assert delivery.open_cursor() is last
    partition.put(fetched(partition, 2, 4))
    assert read_all(delivery) == [(0, 4), (0, 5)]
    assert partition.position == 6


def test_redelivery_gives_a_partition_no_more_than_its_turn():
    assignment, (first, second) = assigned(0, 1)
    delivery = delivering(assignment, records_per_turn=2)
    for partition in (first, second):
        partition.put(fetched(partition, 20))
    for _ in range(10):
        assert delivery.open_cursor().tp == tp(0)
        assert delivery.take_back_iterated() is not None
    given = [number for number, _ in read_all(delivery)]
    assert given[:8] == [0, 0, 1, 1, 0, 0, 1, 1]


# Leaves: pause, seek, revoke.


def test_paused_partition_keeps_what_is_buffered():
    assignment, (first, second) = assigned(0, 1)
    for partition in (first, second):
        partition.put(fetched(partition, 4))
    delivery = delivering(assignment, records_per_turn=2)
    assert take_all(delivery, 1) == {0: [0]}
    first.bar(Bar.PAUSED)
    delivery.process_all()
    assert take_all(delivery) == {1: [0, 1, 2, 3]}
    first.lift(Bar.PAUSED)
    assert take_all(delivery) == {0: [1, 2, 3]}


def test_forgotten_partition_has_nothing_in_hand():
    delivery, partition = one_partition()
    take_all(delivery, 3)
    delivery.forget([partition])
    assert not delivery.is_in_hand()
    assert delivery.in_hand() == {}


def test_revoked_partition_gives_nothing_from_an_open_cursor():
    assignment, (first, second) = assigned(0, 1)
    for partition in (first, second):
        partition.put(fetched(partition, 4))
    delivery = delivering(assignment)
    assert delivery.open_cursor().tp == tp(0)
    delivery.forget(assignment.remove([tp(0)]))
    assert rest(delivery) == []
    assert read_all(delivery) == [(1, each) for each in range(4)]


def test_seek_takes_back_what_is_in_hand():
    delivery, partition = one_partition()
    take_all(delivery, 5)
    delivery.forget([partition])
    partition.start_at(2)
    assert partition.ledger.committable == 2
    assert take_all(delivery) == {}
    partition.put(fetched(partition, 3, base=2))
    assert take_all(delivery) == {0: [2, 3, 4]}


def test_a_seek_forwards_keeps_what_is_buffered_after_it_and_the_request_under_way():
    delivery, partition = one_partition()
    partition.put(fetched(partition, 10, base=10))
    partition.target.fetched(20)
    take_all(delivery, 2)  # a slice of four is decoded, and two of it are given
    changes_count, starts_count, ledger = partition.target.changes_count, partition.starts_count, partition.ledger
    for offset in (3, 6, 13):
        delivery.seek(partition, offset)
        assert partition.position == partition.ledger.committable == offset
        assert not delivery.is_in_hand()
        assert take_all(delivery, 2) == {0: [offset, offset + 1]}
    assert partition.target.changes_count == changes_count  # so the answer to the request counts
    assert (partition.starts_count, partition.target.offset) == (starts_count + 3, 20)
    delivery.process_all()
    ledger.ack(1)  # of what was in hand before: late, and nothing to this ownership any more
    assert take_all(delivery) == {0: list(range(15, 20))}
    assert not partition.tally.moved


def test_a_seek_to_the_end_of_what_is_buffered_waits_for_what_is_on_its_way():
    delivery, partition = one_partition()
    partition.target.fetched(10)
    delivery.seek(partition, 10)
    assert take_all(delivery) == {}
    partition.put(fetched(partition, 3, base=10))
    assert take_all(delivery) == {0: [10, 11, 12]}


@pytest.mark.parametrize("offset", [1, 11])
def test_a_seek_backwards_or_after_what_is_buffered_drops_it_and_is_asked_for_at_once(offset):
    delivery, partition = one_partition()
    partition.target.fetched(10)
    take_all(delivery, 2)
    delivery.seek(partition, offset)
    assert partition.target.offset == partition.position == offset
    assert partition.buffer.size_bytes == 0
    assert list(partition.tally.moved) == [tp(0)]


def test_a_seek_that_its_leader_must_confirm_drops_what_is_buffered():
    delivery, partition = one_partition()
    partition.target.fetched(10)
    delivery.seek(partition, 5, leader_epoch=3)
    assert not partition.buffer.pieces


def test_a_seek_to_a_poison_record_gives_it_another_chance():
    delivery, partition = one_partition(0)
    partition.put(fetched(partition, 6, **poison_at(3)))
    partition.target.fetched(6)
    assert take_all(delivery) == {0: [0, 1, 2]}
    with pytest.raises(RecordDeserializationError):
        take_all(delivery)
    delivery.seek(partition, 3)
    assert not partition.buffer.pieces
    assert partition.target.offset == 3


def test_what_is_decompressed_in_a_thread_is_not_touched_by_a_seek():
    delivery, partition = one_partition()
    partition.target.fetched(10)
    delivery.supply.inflating = partition.buffer.pieces[0]
    delivery.seek(partition, 5)
    assert delivery.supply.inflating.next_offset == 0
    assert partition.target.offset == 5


@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_poison_record_is_passed_over_and_what_is_in_hand_stays_there(auto_ack):
    delivery, partition = one_partition(0, auto_ack=auto_ack)
    partition.put(fetched(partition, 6, **poison_at(3)))
    assert take_all(delivery, 3) == {0: [0, 1, 2]}
    with pytest.raises(RecordDeserializationError):
        take_all(delivery)
    assert not delivery.pass_over(partition, 2)
    assert delivery.pass_over(partition, 3)
    assert not delivery.pass_over(partition, 3)
    assert (partition.position, partition.ledger.committable) == (4, 0)
    assert take_all(delivery) == {0: [4, 5]}


@pytest.mark.parametrize("ends_at", [4, 6])
def test_a_poison_record_whose_bytes_were_dropped_is_passed_over_if_the_caller_says_where_it_ends(ends_at):
    delivery, partition = one_partition(0)
    partition.put(fetched(partition, 6, **poison_at(3)))
    partition.target.fetched(6)
    assert take_all(delivery, 3) == {0: [0, 1, 2]}
    with pytest.raises(RecordDeserializationError):
        take_all(delivery)
    assert partition.poison_end_at(3) == 4
    assert partition.poison_end_at(2) is None
    partition.drop_buffer()
    assert not delivery.pass_over(partition, 3)
    assert delivery.pass_over(partition, 3, ends_at)
    assert partition.target.offset == partition.position == ends_at


def test_what_was_raised_and_could_be_read_later_is_not_passed_over_any_more():
    """A batch was damaged in one answer and whole in the next one: a late skip must not reach the records behind."""
    delivery, partition = one_partition(0)
    partition.put(fetched(partition, 6, **poison_at(3)))
    partition.target.fetched(6)
    assert take_all(delivery, 3) == {0: [0, 1, 2]}
    with pytest.raises(RecordDeserializationError):
        take_all(delivery)
    partition.drop_buffer()
    partition.put(fetched(partition, 3, 3))
    partition.target.fetched(6)
    assert take_all(delivery, 1) == {0: [3]}
    partition.drop_buffer()
    assert not delivery.pass_over(partition, 3, 6)
    assert partition.target.offset == partition.position == 4


def test_a_damaged_batch_is_passed_over_as_a_whole():
    delivery, partition = one_partition(3)
    damaged = bytearray(wire_batches.built(3, 3))
    damaged[-3] ^= 1
    partition.put(fetched(partition, 0, 3, data=bytes(damaged)))
    partition.target.fetched(6)
    assert take_all(delivery) == {0: [0, 1, 2]}
    with pytest.raises(RecordDeserializationError):
        take_all(delivery)
    assert delivery.pass_over(partition, 3)
    assert partition.target.offset == partition.position == 6


# The record that an ended loop left in hand.


@pytest.mark.parametrize("given_count", [1, 2, 4])
def test_record_of_an_ended_loop_comes_again(given_count):
    delivery, partition = one_partition(count=6)
    given = [delivery.open_cursor(), *(delivery.cursor.take() for _ in range(given_count - 1))]
    again = delivery.take_back_iterated()
    assert again is given[-1]
    assert not delivery.is_in_hand()
    assert partition.position == partition.ledger.committable == given_count - 1
    assert read_all(delivery) == [(0, each) for each in range(given_count - 1, 6)]


@pytest.mark.parametrize("has_come_again", [True, False])
def test_record_comes_again_though_what_is_after_it_was_given_up_to_make_room(has_come_again):
    delivery, partition = one_partition(count=6)
    given = [delivery.open_cursor(), delivery.cursor.take()]
    delivery.close_cursor()
    partition.drop_buffer()
    assert partition.target.offset == 2
    if has_come_again:
        partition.put(fetched(partition, 4, 2))
        delivery.decode_ahead(1)
    assert delivery.take_back_iterated() is given[-1]
    assert not delivery.is_in_hand()
    assert partition.position == partition.ledger.committable == partition.target.offset == 1
    partition.put(fetched(partition, 5, 1))
    assert read_all(delivery) == [(0, each) for each in range(1, 6)]


def test_record_comes_again_before_those_of_other_partitions():
    assignment, (first, second) = assigned(0, 1)
    for partition in (first, second):
        partition.put(fetched(partition, 2))
    delivery = delivering(assignment, records_per_turn=1)
    delivery.open_cursor()
    delivery.take_back_iterated()
    assert read_all(delivery)[0] == (0, 0)


def test_what_was_committed_or_skipped_does_not_come_again():
    delivery, partition = one_partition()
    delivery.open_cursor()
    delivery.settle()
    partition.ledger.process_below(1)
    assert delivery.take_back_iterated() is None
    delivery.open_cursor()
    delivery.process_all()
    assert delivery.take_back_iterated() is None
    assert read_all(delivery)[0] == (0, 2)


def test_batches_are_not_taken_back():
    delivery, _ = one_partition()
    take_all(delivery, 2)
    assert delivery.take_back_iterated() is None
    assert delivery.in_hand() == {tp(0): 2}


def test_record_of_a_partition_that_left_is_not_taken_back():
    delivery, partition = one_partition()
    delivery.open_cursor()
    delivery.forget([partition])
    assert delivery.take_back_iterated() is None


# Acknowledgements.


def test_without_auto_ack_only_acknowledged_records_are_processed():
    delivery, partition = one_partition(auto_ack=False)
    delivery.open_cursor()
    for _ in range(2):
        delivery.cursor.take()
    delivery.process_all()
    assert delivery.in_hand() == {tp(0): 3}
    partition.ledger.ack(1)
    assert partition.ledger.committable == 0
    partition.ledger.ack(0)
    assert partition.ledger.committable == 2
    delivery.process_all()
    assert delivery.in_hand() == {tp(0): 1}
    assert delivery.take_back_iterated() is None


# Poison.


def test_good_records_come_before_the_poison_and_the_position_stays_on_it():
    assignment, (partition,) = assigned(0)
    partition.put(fetched(partition, 6, **poison_at(3)))
    delivery = delivering(assignment)
    assert take_all(delivery, 100) == {0: [0, 1, 2]}
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as failed:
            delivery.take(100)
        assert (failed.value.offset, failed.value.key) == (3, b"k3")
        assert partition.position == 3


def test_poison_loses_nothing_that_other_partitions_gave():
    assignment, (good, bad) = assigned(0, 1)
    good.put(fetched(good, 3))
    bad.put(fetched(bad, 3, **poison_at(0)))
    delivery = delivering(assignment)
    assert take_all(delivery) == {0: [0, 1, 2]}
    with pytest.raises(RecordDeserializationError):
        delivery.take(None)
    assert delivery.in_hand() == {tp(0): 3}


def test_poison_is_reported_though_other_partitions_always_have_records():
    assignment, (good, bad) = assigned(0, 1)
    bad.put(fetched(bad, 3, **poison_at(0)))
    delivery = delivering(assignment)
    told = 0
    for number in range(6):
        good.put(fetched(good, 2, base=2 * number))
        try:
            delivery.take(None)
        except RecordDeserializationError:
            told += 1
    assert told == 3


def test_other_partitions_go_on_beside_the_poison():
    assignment, (bad, good) = assigned(0, 1)
    bad.put(fetched(bad, 1, **poison_at(0)))
    good.put(fetched(good, 8))
    delivery = delivering(assignment, records_per_turn=4)
    given, told = [], 0
    for _ in range(6):
        try:
            first = delivery.open_cursor()
        except RecordDeserializationError:
            told += 1
            continue
        given += [(record.partition, record.offset) for record in (first, *rest(delivery))]
    assert given == [(1, each) for each in range(8)]
    assert told > 0


def test_partition_that_needs_a_seek_raises_its_error_until_it_gets_one():
    assignment, (partition, other) = assigned(0, 1)
    partition.stick(NoOffsetForPartitionError(tp(0)))
    other.put(fetched(other, 1))
    delivery = delivering(assignment)
    with pytest.raises(NoOffsetForPartitionError):
        delivery.open_cursor()
    assert delivery.open_cursor().tp == tp(1)
    partition.start_at(0)
    partition.put(fetched(partition, 1))
    assert read_all(delivery) == [(0, 0)]


def test_partition_that_needs_a_seek_says_nothing_when_it_is_given_up():
    assignment, (partition,) = assigned(0)
    partition.stick(NoOffsetForPartitionError(tp(0)))
    assignment.remove([tp(0)])
    assert not delivering(assignment).open_cursor()


def test_poison_of_a_paused_partition_waits():
    assignment, (bad,) = assigned(0)
    bad.put(fetched(bad, 1, **poison_at(0)))
    bad.bar(Bar.PAUSED)
    delivery = delivering(assignment)
    assert delivery.take(None) == {}
    bad.lift(Bar.PAUSED)
    with pytest.raises(RecordDeserializationError):
        delivery.take(None)


# Decompression that is worth a thread.


def test_batch_that_is_worth_a_thread_is_asked_for_and_not_waited_for():
    assignment, (packed, other) = assigned(0, 1)
    data = wire_batches.built(4, codec=wire_batches.GZIP)
    packed.put(fetched(packed, 0, data=data, inflate_inline_bytes=1))
    other.put(fetched(other, 2))
    delivery = delivering(assignment)
    assert take_all(delivery) == {1: [0, 1]}
    assert list(delivery.supply.to_inflate) == [packed]
    packed.buffer.pieces[0].inflate()
    assert take_all(delivery) == {0: [0, 1, 2, 3]}


# All of it at once.


@settings(max_examples=examples(15), deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("iterate"), st.integers(1, 5)),
            st.tuples(st.just("take"), st.integers(1, 7)),
            st.tuples(st.sampled_from(["settle", "close", "pause", "break"]), st.integers(0, 2)),
        ),
        max_size=12,
    ),
)
def test_each_record_comes_once_and_in_order_whatever_the_way_of_asking(counts, steps):  # noqa: C901 (one branch a step)
    assignment, partitions = assigned(*range(len(counts)))
    for partition, count in zip(partitions, counts, strict=True):
        partition.put(fetched(partition, count))
    delivery, given = delivering(assignment, records_per_turn=3), []

    def iterate(count):
        for _ in range(count):
            record = delivery.cursor.take()
            if record is None:
                delivery.process_all()
                record = delivery.open_cursor()
                if record is None:
                    return
            given.append((record.partition, record.offset))

    for what, number in steps:
        if what == "iterate":
            iterate(number)
        elif what == "take":
            delivery.process_all()
            for records in delivery.take(number).values():
                given += [(record.partition, record.offset) for record in records]
        elif what == "settle":
            delivery.settle()
        elif what == "close":
            delivery.close_cursor()
        elif what == "pause":
            delivery.close_cursor()
            partition = partitions[number % len(partitions)]
            partition.bar(Bar.PAUSED, when=not partition.is_paused)
        elif (record := delivery.take_back_iterated()) is not None:
            assert given.pop() == (record.partition, record.offset)
    for partition in partitions:
        partition.lift(Bar.PAUSED)
    delivery.process_all()
    given += read_all(delivery)
    for number, count in enumerate(counts):
        assert [offset for owner, offset in given if owner == number] == list(range(count))
        assert partitions[number].ledger.committable == count


def test_what_an_answer_said_of_a_partition_that_left_is_not_reported():
    assignment, partitions = assigned(0, 1)
    delivery = delivering(assignment)
    for partition in partitions:
        partition.log.end_offset, partition.log.received_at_ms = 9, 1
        delivery.opened[partition.tp] = partition
    assignment.remove([tp(0)])
    assert set(delivery.take_opened(read_committed=False)) == {tp(1)}
