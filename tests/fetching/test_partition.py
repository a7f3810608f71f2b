"""What is known of one partition while it is read."""

from __future__ import annotations

import pytest

from aiogroup._core.fetching.partition import Partition, PositionState
from aiogroup.config import ConsumerConfig
from aiogroup.errors import NoOffsetForPartitionError
from tests.support.records import LATEST, fetched, tp


def partition():
    return Partition(tp(0), 1, LATEST)


def test_position_is_unknown_until_it_is_looked_up():
    it = partition()
    assert it.state is PositionState.COMMITTED
    assert it.position is None
    it.start_at(42, was_reset=True)
    assert (it.position, it.target.offset, it.was_reset) == (42, 42, True)
    assert it.ledger.committable == 42


@pytest.mark.parametrize("at", [0, 5])
def test_offsets_of_records_that_are_gone_are_told_until_the_log_was_read_so_far(at):
    it = partition()
    it.start_at(10)
    it.note_gone(10)  # the log was cut off, and nobody knows where: the policy decides
    it.start_at(at, was_reset=True)
    assert [it.is_of_former_log(offset) for offset in (at, at + 1, 10, 11)] == [False, True, True, False]
    it.ledger.move(10)  # what stands there now was read
    assert not it.is_of_former_log(10)
    it.start_at(2)
    assert not it.is_of_former_log(10)


def test_lag_is_unknown_rather_than_nothing():
    it = partition()
    assert it.lag(read_committed=False) is None
    it.start_at(50)
    assert it.lag(read_committed=False) is None
    it.log.end_offset = 90
    assert it.lag(read_committed=False) == 40
    assert it.lag(read_committed=True) is None
    it.log.last_stable_offset = 70
    assert it.lag(read_committed=True) == 20


def test_lag_is_never_below_nothing():
    it = partition()
    it.start_at(50)
    it.log.end_offset = 49
    assert it.lag(read_committed=False) == 0


def test_seek_drops_what_is_buffered_and_what_is_on_its_way():
    it = partition()
    it.start_at(0)
    before = it.target.changes_count
    it.put(fetched(it, 3))
    assert it.buffer.size_bytes > 0
    it.start_at(9)
    assert it.buffer.size_bytes == 0
    assert it.buffer.slice is None
    assert it.target.changes_count > before


def test_dropping_the_buffer_fetches_again_from_the_position():
    it = partition()
    it.start_at(5)
    it.put(fetched(it, 3, base=5))
    it.target.fetched(8)
    it.ledger.deliver([5], 6)
    it.drop_buffer()
    assert it.target.offset == it.position == 6


def test_a_damaged_piece_that_is_dropped_is_fetched_again():
    it = partition()
    it.start_at(0)
    it.put(fetched(it, 3))
    it.target.halt()
    it.drop_buffer()
    assert not it.target.is_halted


@pytest.mark.parametrize("leave", ["reset", "stick"])
def test_position_is_unknown_again_when_it_must_be_looked_up_or_sought(leave):
    it = partition()
    it.start_at(5)
    it.put(fetched(it, 3, base=5))
    if leave == "reset":
        it.await_reset(LATEST)
    else:
        it.stick(NoOffsetForPartitionError(tp(0)))
    assert it.position is None
    assert it.buffer.size_bytes == 0
    it.start_at(1)
    assert (it.position, it.error) == (1, None)


def test_backoff_grows_to_its_bound_and_ends_with_success():
    it = partition()
    it.start_at(0)
    waits = []
    for _ in range(6):
        it.back_off(1_000, ConsumerConfig())
        waits.append(it.target.backoff_until_ms - 1_000)
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    it.start_at(0)
    it.back_off(1_000, ConsumerConfig())
    assert it.target.backoff_until_ms == 1_100


def test_bound_below_the_first_backoff_does_not_shorten_it():
    it = partition()
    it.back_off(0, ConsumerConfig(retry_backoff_ms=500, retry_backoff_max_ms=100))
    assert it.target.backoff_until_ms == 500


def test_closed_partition_takes_no_acknowledgement():
    it = partition()
    it.start_at(0)
    it.ledger.deliver([0], 1)
    it.close()
    it.ledger.ack(0)
    assert it.ledger.committable == 0
