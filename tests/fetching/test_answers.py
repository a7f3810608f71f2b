"""What an answer to Fetch changes in a lane, and what it leaves to the fetchers."""

from __future__ import annotations

import uuid

import pytest

from aiogroup._core.fetching.asking.answers import ask_for_whole, is_out_of_range, take
from aiogroup._core.fetching.asking.remedies import FetchRemedy
from aiogroup._core.fetching.asking.sessions import Asked
from aiogroup._core.fetching.lane import LogBounds
from aiogroup._core.fetching.partition import PositionState
from aiogroup._core.fetching.records.decode import DecodeSettings
from aiogroup._core.fetching.target import UNKNOWN
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import EpochEndOffset, PartitionData
from aiogroup.config import ConsumerConfig
from aiogroup.errors import RecordTooLargeError
from tests.fetching import wire_batches
from tests.support.records import assigned

CONFIG = ConsumerConfig()
RECORDS = wire_batches.built(3, 5, value=b"v")


class Fetch:
    """A partition at 5 that was asked for, and what becomes of an answer that comes at 1,000."""

    def __init__(self):
        _, (self.lane,) = assigned(0, start_at=5)
        target = self.lane.target
        self.asked = Asked(self.lane, target.changes_count, uuid.UUID(int=1), 0, target.offset, 100)

    def take(self, records=RECORDS, *, error=0, replica=UNKNOWN, diverging=-1):
        data = PartitionData(
            0, error, 9, last_stable_offset=8, log_start_offset=2, records=records, preferred_read_replica=replica,
            diverging_epoch=EpochEndOffset(0, diverging),
        )  # fmt: skip
        return take(self.asked, data, 1_000, DecodeSettings(), lambda ledger: ledger.ack)

    @property
    def bounds(self):
        log = self.lane.log
        return log.begin_offset, log.last_stable_offset, log.end_offset, log.heard_at_ms, log.received_at_ms


UNHEARD = (None, None, None, None, None)


def test_records_are_buffered_and_the_next_fetch_begins_after_them():
    fetch = Fetch()
    taken = fetch.take()
    assert (taken.is_current, taken.is_buffered, taken.remedy) == (True, True, FetchRemedy.PROCEED)
    assert (fetch.lane.target.offset, fetch.lane.buffered_count, len(fetch.lane.buffer.pieces)) == (8, 3, 1)
    assert fetch.bounds == (2, 8, 9, 1_000, 1_000)


@pytest.mark.parametrize("move", [lambda lane: lane.start_at(5), lambda lane: lane.target.fetched(6)])
def test_an_answer_to_where_the_lane_was_before_gives_the_bounds_of_the_log_and_no_records(move):
    fetch = Fetch()
    move(fetch.lane)
    taken = fetch.take(replica=3)
    assert (taken.is_current, taken.is_buffered, taken.names_replica) == (False, False, False)
    assert not fetch.lane.buffer.pieces
    assert fetch.lane.target.preferred_replica == UNKNOWN
    assert fetch.bounds == (2, 8, 9, 1_000, None)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, FetchRemedy.REFRESH),
        (ErrorCode.OFFSET_OUT_OF_RANGE, FetchRemedy.OUT_OF_RANGE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, FetchRemedy.NOT_AUTHORIZED),
    ],
)
def test_an_error_changes_nothing_and_says_what_is_to_be_done(error, remedy):
    fetch = Fetch()
    taken = fetch.take(error=error)
    assert (taken.is_current, taken.remedy, taken.is_buffered) == (True, remedy, False)
    assert (fetch.bounds, fetch.lane.target.offset) == (UNHEARD, 5)


def test_a_log_that_parts_from_what_was_read_gives_no_records():
    fetch = Fetch()
    taken = fetch.take(diverging=4)
    assert (taken.is_diverged, taken.is_buffered, fetch.bounds) == (True, False, UNHEARD)


def test_the_replica_that_an_answer_names_is_preferred_from_now_on():
    fetch = Fetch()
    assert fetch.take(None, replica=3).names_replica
    assert (fetch.lane.target.preferred_replica, fetch.lane.target.preferred_until_ms) == (3, 301_000)


def test_an_answer_without_records_heals_unless_a_long_batch_had_no_room():
    fetch = Fetch()
    fetch.lane.target.failed("NOT_LEADER_OR_FOLLOWER")
    fetch.lane.back_off(0, CONFIG)
    fetch.lane.back_off(0, CONFIG)
    fetch.lane.target.was_cut_off(500)
    fetch.take(None)
    assert (fetch.lane.target.error, fetch.lane.target.failures_count) == ("NOT_LEADER_OR_FOLLOWER", 2)
    fetch.lane.target.was_cut_off(0)
    fetch.take(None)
    assert (fetch.lane.target.error, fetch.lane.target.failures_count) == ("", 0)


def test_a_part_of_a_batch_is_asked_for_whole_then_reported_then_raised():
    fetch = Fetch()
    taken = fetch.take(RECORDS[:-1])
    assert (taken.incomplete_bytes, taken.is_buffered) == (len(RECORDS), False)
    told = [ask_for_whole(fetch.asked, len(RECORDS), len(RECORDS) - 1, 0, CONFIG) for _ in range(3)]
    assert told[0] is None
    assert told[1] == told[2] == fetch.lane.target.error
    assert f"takes {len(RECORDS)} bytes, and {len(RECORDS) - 1} of them came although 100 were asked for" in told[1]
    assert isinstance(fetch.lane.error, RecordTooLargeError)
    assert fetch.lane.target.backoff_until_ms > 0


def test_once_it_may_be_that_other_partitions_took_the_room_of_the_answer():
    fetch = Fetch()
    for _ in range(2):
        ask_for_whole(fetch.asked, len(RECORDS), 10, 0, CONFIG)
    assert fetch.lane.error is None
    assert fetch.lane.target.failures_count == 1


def test_out_of_range_counts_at_the_position_only():
    fetch = Fetch()
    assert is_out_of_range(fetch.lane, 5)
    fetch.take()
    assert not is_out_of_range(fetch.lane, 8)


def test_what_a_topic_recreated_has_is_not_what_the_old_one_had():
    fetch = Fetch()
    fetch.take()
    fetch.lane.start_over(2, uuid.UUID(int=2))
    assert fetch.bounds == UNHEARD
    assert isinstance(fetch.lane.log, LogBounds)
    assert (fetch.lane.state, fetch.lane.buffer.size_bytes) == (PositionState.COMMITTED, 0)
