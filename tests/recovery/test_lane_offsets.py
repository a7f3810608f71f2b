"""What a call means while two lanes read a partition, and what is committed for both: by hand."""

from __future__ import annotations

import pytest

from aiogroup._core.offsets.ledger import Ledger
from aiogroup._core.recovery.book import Book
from aiogroup._core.recovery.handoff import HandOffWatch
from aiogroup._core.recovery.lane_offsets import LaneOffsets, Mark, Moved, PartitionOffsets
from aiogroup._core.recovery.lane_starts import Log, fold, recover
from aiogroup._core.recovery.ranges import Range
from aiogroup._core.recovery.token import DoneRanges, HandOffNote, Token, read_token, write_token
from aiogroup.records import CATCH_UP, LIVE
from tests.recovery.model import PLACE, Reading

OLD, NEW = "0" * 16, "f" * 16


def after(offset, log, token=None, epoch=-1, **settings):
    metadata = "" if token is None else write_token(token, PLACE, "mine")
    found = read_token(offset, metadata, PLACE)
    return recover(offset, log, epoch=epoch, found=found, fresh_id=NEW, **{"min_backlog": 1} | settings)


class Live:
    def __init__(self, offset):
        self.ledger = Ledger(offset)

    def epoch_before(self, offset):
        return 7


def book(recovery):
    return Book(PLACE, recovery, Live(recovery.live), Reading, lambda: NEW)


def deliver(cursor, upto, *, processed=False):
    cursor.ledger.deliver(range(cursor.ledger.position, upto), upto)
    if processed:
        cursor.ledger.process_all()


# Recovery.


def test_the_seeds_figures():
    first = after(70, Log(0, 120))
    assert (first.pending, first.live, first.id, first.low_water) == ((Range(70, 120),), 120, NEW, 70)
    token = Token(OLD, 140, 7, (Range(85, 120),))
    second = after(85, Log(0, 190, 9), token)
    assert (second.pending, second.live, second.live_epoch) == ((Range(85, 120), Range(140, 190)), 190, 9)
    assert (second.id, second.mark, second.user) == (OLD, Mark(OLD, 85, 140), "mine")
    third = after(140, Log(0, 190))
    assert (third.pending, third.live) == ((Range(140, 190),), 190)


@pytest.mark.parametrize(("end", "live", "pending"), [(120, 120, ()), (90, 120, ()), (121, 121, (Range(120, 121),))])
def test_nothing_is_added_where_the_log_ends_before(end, live, pending):
    recovery = after(120, Log(0, end))
    assert (recovery.live, recovery.pending) == (live, pending)


def test_a_small_backlog_is_no_range_and_a_token_is_obeyed_all_the_same():
    token = Token(OLD, 150, 7, (Range(85, 87),))
    recovery = after(85, Log(0, 1_149), token, min_backlog=1_000)
    assert (recovery.pending, recovery.live, recovery.live_epoch) == ((Range(85, 87),), 150, 7)
    assert after(85, Log(0, 1_150), token, min_backlog=1_000).live == 1_150


def test_what_retention_removed_is_reported_and_the_rest_is_read():
    token = Token(OLD, 150, 7, (Range(85, 100), Range(110, 120)))
    recovery = after(85, Log(115, 200), token)
    assert recovery.gone == (Range(85, 100), Range(110, 115))
    assert recovery.pending == (Range(115, 120), Range(150, 200))
    everything = after(85, Log(180, 200), token)
    assert everything.gone == (Range(85, 100), Range(110, 120), Range(150, 180))
    assert everything.pending == (Range(180, 200),)
    assert after(70, Log(100, 100)).live == 100


def test_a_truncation_cuts_the_ranges_and_what_came_since_is_read_under_a_new_id():
    token = Token(OLD, 150, 7, (Range(85, 100), Range(110, 120)))
    recovery = after(85, Log(0, 200, 9, 115, 6), token)
    assert recovery.pending == (Range(85, 100), Range(110, 115), Range(115, 200))
    assert (recovery.id, recovery.mark, recovery.truncated_at) == (NEW, None, 115)
    short = after(85, Log(0, 90, 9, 90, 6), token)
    assert (short.pending, short.live, short.live_epoch) == ((Range(85, 90),), 90, 6)
    assert after(85, Log(0, 200, 9, 150), token).truncated_at is None


def test_a_range_is_never_shortened_because_the_log_ends_before_it():
    assert after(85, Log(0, 60), Token(OLD, 150, 7, (Range(85, 120),))).pending == (Range(85, 120),)


# Commits.


def lanes(*ranges, live=(120, 150, 150)):
    return PartitionOffsets(LaneOffsets(*live), tuple(LaneOffsets(*each) for each in ranges))


@pytest.mark.parametrize(
    ("offset", "low_water", "live"),
    [(71, 71, 150), (100, 100, 150), (121, 70, 121), (150, 70, 150), (120, 70, 120)],
)
def test_a_commit_says_how_far_the_lane_is_that_it_lies_in(offset, low_water, live):
    done = lanes((70, 70, 100, 120)).commit(offset)
    assert (done.low_water, done.live.processed) == (low_water, live)


@pytest.mark.parametrize("offset", [0, 70, 101, 119, 151])
def test_a_commit_of_what_no_lane_delivered_is_refused_and_names_the_ranges(offset):
    with pytest.raises(ValueError, match=r"\[70, 120\).*above 70 up to 100.*from 120 up to 150"):
        lanes((70, 70, 100, 120)).commit(offset)


def test_at_the_end_of_a_range_that_is_the_live_start_the_range_has_precedence():
    assert lanes((70, 70, 120, 120)).commit(120).pending == ()
    touching = lanes((70, 70, 100, 100), (100, 100, 120, 120)).commit(100)
    assert touching.pending == (Range(100, 120),)


def test_a_commit_takes_nothing_back_of_a_range_and_what_it_says_of_the_live_lane():
    done = lanes((70, 90, 100, 120)).commit(80).commit(130)
    assert (done.low_water, done.live.processed) == (90, 130)


@pytest.mark.parametrize("offset", [71, 100, 119])
def test_inside_of_a_range_that_is_done_nothing_is_to_commit(offset):
    done = lanes((70, 120, 120, 120))
    with pytest.raises(ValueError, match=r"pending ranges none.*\(none were delivered\).*done already: \[70, 120\)"):
        done.commit(offset)
    assert done.commit(120) == done  # who heard no answer says it again; it is not the live lane's


def test_what_the_catch_up_lane_delivered_before_is_done_too_and_what_a_job_was_left_is_not():
    three = lanes((70, 75, 90, 90), (90, 90, 90, 95), (95, 95, 110, 120)).commit(105)
    assert three.pending == (Range(90, 95), Range(105, 120))
    assert lanes((70, 75, 90, 90), (90, 90, 110, 120)).commit(130).pending == (Range(75, 90), Range(90, 120))


@pytest.mark.parametrize(
    ("mark", "is_new"),
    [(Mark(OLD, 70, 150), False), (Mark(OLD, 71, 150), True), (Mark(OLD, 70, 151), True), (Mark(OLD, 0, 0), False)],
)
def test_an_id_is_new_when_a_place_goes_back(mark, is_new):
    assert lanes((70, 70, 100, 120)).needs_new_id(mark) is is_new


# Seeks.


@pytest.mark.parametrize(
    ("offset", "moved"),
    [
        (70, Moved(150, 120, (Range(70, 80), Range(90, 120)), CATCH_UP)),
        (75, Moved(150, 120, (Range(75, 80), Range(90, 120)), CATCH_UP, (Range(70, 75),))),
        (95, Moved(150, 120, (Range(70, 80), Range(95, 120)), CATCH_UP, (Range(90, 95),))),
        (80, Moved(150, 120, (Range(70, 80), Range(80, 120)), CATCH_UP, is_new_id=True)),
        (60, Moved(150, 120, (Range(60, 120),), CATCH_UP, is_new_id=True)),
        (120, Moved(120, 120, (Range(70, 80), Range(90, 120)), LIVE, is_new_id=True)),
        (150, Moved(150, 120, (Range(70, 80), Range(90, 120)), LIVE)),
        (500, Moved(500, 120, (Range(70, 80), Range(90, 120)), LIVE)),
    ],
)
def test_a_seek_moves_one_lane_and_the_other_returns_to_what_is_not_processed(offset, moved):
    assert lanes((70, 70, 75, 80), (90, 90, 95, 120)).seek(offset) == moved


def test_a_seek_to_the_end_of_a_range_skips_a_poison_record_only():
    two = lanes((70, 110, 119, 120))
    assert two.seek(120, poison_at=119) == Moved(150, 120, (), CATCH_UP, (Range(110, 120),))
    assert two.seek(120, poison_at=118).lane == LIVE
    assert two.seek(120).lane == LIVE
    assert two.seek(120, "live", poison_at=119).lane == LIVE
    assert two.seek(120, "catch-up", poison_at=113).pending == ()
    touching = lanes((70, 70, 99, 100), (100, 100, 100, 120))
    assert touching.seek(100, poison_at=99).pending == (Range(100, 120),)


def test_only_drop_pending_drops_all_ranges_and_says_which():
    moved = lanes((70, 75, 80, 120)).seek(130, drop_pending=True)
    assert (moved.live, moved.live_start, moved.pending, moved.dropped) == (130, 130, (), (Range(75, 120),))


@pytest.mark.parametrize(
    ("offset", "lane", "drop"),
    [(100, "live", False), (60, "live", False), (130, "catch-up", False), (9, "catch-up", True)],
)
def test_a_lane_that_was_named_goes_nowhere_else(offset, lane, drop):
    with pytest.raises(ValueError, match=r"live lane|no catch-up lane"):
        lanes((70, 75, 80, 120)).seek(offset, lane, drop_pending=drop)


# The book.


def test_what_is_committed_is_the_low_water_mark_with_the_token_until_nothing_is_pending():
    one = book(after(70, Log(0, 120), epoch=3))
    deliver(one.live, 150, processed=True)
    deliver(one.cursors[0], 85, processed=True)
    commit = one.commit_processed()
    token = read_token(commit.offset, commit.metadata, PLACE).token
    assert (commit.offset, token) == (85, Token(NEW, 150, 7, (Range(85, 120),)))
    assert one.is_catching_up
    deliver(one.cursors[0], 120, processed=True)
    commit = one.commit_processed()
    assert (commit.offset, commit.metadata, commit.leader_epoch) == (150, "", 7)
    assert not one.is_catching_up


def test_a_commit_of_one_lane_says_of_the_other_what_was_said_before():
    one = book(after(70, Log(0, 120)))
    deliver(one.live, 150, processed=True)
    deliver(one.cursors[0], 85, processed=True)  # asked for the next ones; nobody said that these are done
    assert (one.commit_named(130).offset, one.commit_named(130).live) == (70, 130)
    assert (one.commit_named(80).offset, one.commit_named(80).live) == (80, 130)
    assert (one.commit_processed().offset, one.commit_processed().live) == (85, 150)
    assert one.commit_named(131).offset == 85


def test_a_seek_makes_nothing_durable_that_was_processed_and_not_committed():
    one = book(after(70, Log(0, 120)))
    deliver(one.cursors[0], 85, processed=True)
    deliver(one.cursors[0], 90)
    deliver(one.live, 125, processed=True)
    one.live.ledger = Ledger(130)
    one.move(one.seek(130))
    assert one.pending == (Range(85, 120),)
    assert [each.ledger.position for each in one.cursors] == [85, 85]
    commit = one.commit_named(130)
    assert (commit.offset, commit.live) == (70, 130)
    assert one.commit_named(75).offset == 75
    assert one.commit_named(85).offset == 85
    assert one.commit_processed().offset == 85


def test_what_a_seek_cut_off_is_done_with_the_rest_of_the_range():
    one = book(after(70, Log(0, 120)))
    deliver(one.cursors[0], 90, processed=True)
    one.commit_named(75)
    one.move(one.seek(130))
    assert one.reported.pending == (Range(75, 90), Range(90, 120))
    assert one.commit_named(120).offset == 75  # the live lane's, as nothing more was delivered of the range
    deliver(one.cursors[1], 120)
    assert (one.commit_named(120).offset, one.reported.pending) == (120, ())


def test_offsets_without_a_record_are_done_with_the_last_record_before_them():
    one = book(after(70, Log(0, 120)))
    deliver(one.cursors[0], 100)
    one.cursors[0].ledger.pass_over(120)
    deliver(one.live, 130)
    assert one.commit_named(99).offset == 99
    assert one.commit_named(130).offset == 99
    assert (one.commit_named(100).offset, one.reported.pending) == (130, ())


def test_a_range_without_a_record_is_done_when_it_was_read():
    one = book(after(70, Log(0, 71)))
    assert one.commit_named(71).offset == 70
    one.cursors[0].ledger.pass_over(71)
    assert one.commit_named(71).offset == 71


def test_nothing_is_done_by_a_seek_that_was_not_named():
    one = book(after(70, Log(0, 120)))
    deliver(one.cursors[0], 120, processed=True)
    one.move(one.seek(130))
    assert one.commit_named(120).offset == 120
    two = book(after(70, Log(0, 120)))
    deliver(two.cursors[0], 120, processed=True)
    two.live.ledger = Ledger(130)
    two.move(two.seek(130))
    assert (two.commit_named(130).offset, two.pending) == (70, ())


def test_the_applications_own_metadata_stays_as_long_as_the_low_water_mark_does():
    one = book(after(85, Log(0, 190), Token(OLD, 150, 7, (Range(85, 120),))))
    assert read_token(85, one.commit_processed().metadata, PLACE).user == "mine"
    deliver(one.cursors[0], 86, processed=True)
    assert read_token(86, one.commit_processed().metadata, PLACE).user == ""
    deliver(one.cursors[0], 90)
    assert read_token(90, one.commit_named(90, "yours").metadata, PLACE).user == "yours"


def test_a_broker_that_takes_less_gets_a_shorter_token_and_then_none():
    token = Token(OLD, 1_000, 7, tuple(Range(at, at + 5) for at in range(0, 900, 10)))
    one = book(after(0, Log(0, 1_000), token))
    commit = one.commit_processed()
    short = one.shorter(commit, 200)
    assert len(short.metadata) <= 200 < len(commit.metadata)
    assert (short.offset, short.live, short.ranges) == (0, 1_000, commit.ranges)
    assert len(one.commit_processed().metadata) <= 200
    assert one.shorter(commit, 20).metadata == "mine"
    assert one.shorter(commit, 2).metadata == ""


def test_who_knows_no_tokens_learns_the_epoch_before_the_low_water_mark():
    one = book(after(70, Log(0, 120), epoch=3))
    assert one.commit_processed().leader_epoch == 3
    assert one.commit_processed().offset == 70


def test_a_jobs_result_counts_under_its_own_id_only():
    pending = (Range(70, 120),)
    done = DoneRanges(OLD, (Range(70, 80), Range(90, 100)))
    assert fold(pending, OLD, done) == (Range(80, 90), Range(100, 120))
    assert fold(pending, NEW, done) == pending
    assert fold(pending, OLD, None) == pending


def test_a_job_that_knows_the_id_proves_that_it_was_durable_whoever_committed_it():
    """A service that commits in transactions only: no OffsetCommit of its own is ever answered."""
    one = book(after(70, Log(0, 120)))
    one.commit_named(120)  # `offsets_for_transaction`
    assert one.fold(DoneRanges(NEW, (Range(70, 110),)))
    assert one.pending == (Range(110, 120),)
    assert one.commit_named(120).offset == 110


def held(cursor, start, upto):
    """Delivered as by an application that acknowledges each record."""
    cursor.ledger.deliver(range(start, upto), upto)


def test_a_jobs_result_leaves_what_is_in_hand_as_it_is_and_nothing_superfluous_is_delivered():
    one = book(after(100, Log(0, 200), Token(OLD, 200, 7, (Range(100, 180), Range(185, 200)))))
    first, second = one.cursors
    held(first, 100, 150)
    assert one.fold(DoneRanges(OLD, (Range(100, 120), Range(140, 160), Range(170, 175), Range(185, 190))))
    assert one.pending == (Range(100, 150), Range(160, 170), Range(175, 180), Range(190, 200))
    assert one.cursors[0] is first
    assert (first.end, first.ledger.in_hand_count) == (150, 50)
    assert second not in one.cursors
    assert [each.ledger.position for each in one.cursors if each.ledger.position < each.end] == [160, 175, 190]
    assert not one.fold(DoneRanges(OLD, (Range(100, 120), Range(140, 160), Range(170, 175), Range(185, 190))))
    assert one.commit_named(149).offset == 149  # delivered, and by no means refused
    assert one.commit_named(150).offset == 160  # what the job has done goes with it


def test_a_jobs_result_may_reach_into_the_middle_of_what_goes_on():
    one = book(after(100, Log(0, 200), Token(OLD, 200, 7, (Range(100, 200),))))
    (cursor,) = one.cursors
    held(cursor, 100, 150)
    assert one.fold(DoneRanges(OLD, (Range(160, 170), Range(180, 200))))
    assert [(each.start, each.end) for each in one.cursors] == [(100, 160), (170, 180)]
    assert one.cursors[0] is cursor
    assert cursor.ledger.position == 150


def test_a_commit_that_is_on_its_way_while_a_job_is_folded_in_covers_what_it_covered():
    one = book(after(100, Log(0, 200), Token(OLD, 200, 7, (Range(100, 200),))))
    (cursor,) = one.cursors
    held(cursor, 100, 150)
    commit = one.commit_named(140)
    assert one.fold(DoneRanges(OLD, (Range(160, 170),)))
    assert one.note_durable(commit)
    assert cursor.ledger.committable == 140
    assert cursor.ledger.in_hand_count == 10


def test_what_is_pending_as_an_ownership_begins_can_be_committed_until_anything_happens():
    one = book(after(70, Log(0, 120)))
    begun = one.commit_begun()
    assert begun == one.commit_begun()
    assert read_token(70, begun.metadata, PLACE).token.pending == (Range(70, 120),)
    deliver(one.live, 130, processed=True)
    deliver(one.cursors[0], 80, processed=True)
    assert (one.commit_begun().offset, one.commit_begun().live) == (70, 120)
    one.commit_named(75)
    assert one.commit_begun() is None
    assert book(after(120, Log(0, 120))).commit_begun() is None
    moved = book(after(70, Log(0, 120)))
    moved.move(moved.seek(90))
    assert moved.commit_begun() is None


def test_a_job_folds_into_the_book_and_is_durable_with_the_next_commit():
    one = book(after(85, Log(0, 150), Token(OLD, 150, 7, (Range(85, 120),))))
    assert not one.fold(DoneRanges(NEW, (Range(85, 100),)))
    assert one.fold(DoneRanges(OLD, (Range(85, 100),)))
    assert not one.fold(DoneRanges(OLD, (Range(85, 100),)))
    assert one.commit_processed().offset == 100


# Hand-off.


def test_a_range_is_the_members_own_when_no_job_works_on_it_or_retention_comes_near():
    watch, one, other = HandOffWatch(1_000), Range(70, 120), Range(150, 190)
    assert watch.overdue((one, other), 0, 10) == ()
    assert watch.overdue((one, other), 999, 10) == ()
    assert watch.overdue((one, other), 1_000, 10) == (one, other)
    near = HandOffWatch(1_000)
    assert near.overdue((one, other), 0, 10) == ()
    assert near.overdue((one, other), 1, 40) == (one,)


def test_a_job_that_works_on_one_range_lets_no_other_of_the_partition_become_overdue():
    watch, one, other = HandOffWatch(1_000), Range(70, 120), Range(150, 190)
    assert watch.overdue((one, other), 0) == ()
    rest = Range(100, 120)
    watch.note_progress((rest, other), 900)  # the job has moved the first
    assert watch.overdue((rest, other), 1_899) == ()
    watch.note_progress((rest, other), 1_899, at_s=1)  # it is at work still, as it wrote in the first second
    assert watch.overdue((rest, other), 1_999) == ()
    assert watch.overdue((rest, other), 2_000) == (rest, other)


def test_a_range_waits_since_the_instant_that_the_token_says_however_often_the_service_restarts():
    span, other = Range(70, 120), Range(150, 190)
    token = Token(OLD, 190, 7, (span,), HandOffNote("0" * 8, False, (1_000,)))
    recovery = after(70, Log(0, 220), token)
    assert recovery.pending == (span, Range(190, 220))
    watch = HandOffWatch(900_000, recovery.since_s)
    assert watch.since_s(recovery.pending, 1_600_000) == (1_000, 1_600)
    assert watch.since_s(recovery.pending, 1_700_000) == (1_000, 1_700)  # to ask changes nothing
    watch.note_waiting((each.end for each in recovery.pending), 1_600_000)
    assert watch.overdue(recovery.pending, 1_899_999) == ()
    assert watch.overdue(recovery.pending, 1_900_000) == (span,)
    assert watch.since_s(recovery.pending, 1_900_000) == (1_000, 1_600)
    # What the member itself reads of a range is not a job's progress: after a restart it does not wait for one again.
    assert watch.since_s((Range(100, 120), Range(190, 220)), 1_900_000) == (1_000, 1_600)
    # A clock that is ahead puts nothing off.
    ahead = HandOffWatch(1_000, [(120, 10**9)])
    ahead.note_progress((span, other), 5_000, at_s=10**9)
    assert ahead.overdue((span, other), 5_000) == ()
    assert ahead.overdue((span, other), 6_000) == (span, other)


def test_a_jobs_progress_counts_from_when_it_was_written_not_from_when_it_is_read_again():
    rest = Range(100, 120)
    for _ in range(2):  # two lives of a service whose application commits nothing
        watch = HandOffWatch(900_000, [(120, 1_000)])
        watch.note_progress((rest,), 2_000_000, at_s=1_500)
        assert watch.since_s((rest,), 2_000_000) == (1_500,)
    watch.note_progress((Range(110, 120),), 2_000_000, at_s=3_000)
    assert watch.since_s((Range(110, 120),), 2_000_000) == (2_000,)
