"""Cursors beside a live lane: when they are fetched from, and when no more. No broker, no task."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from aiogroup._core.changes import Changes
from aiogroup._core.cluster import Cluster
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment, LaneTable
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.range_cursor import BoundedDecoder
from aiogroup._core.recovery.lane_starts import Log, Recovery
from aiogroup._core.recovery.ranges import read
from aiogroup._core.recovery.token import DoneRanges, LogId
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import Failures
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.offsets.committed import Committed
from aiogroup._runtime.recovery import catch_up as catching_up
from aiogroup._runtime.recovery.catch_up import CatchUp
from aiogroup.config import ConsumerConfig
from aiogroup.errors import RecordDeserializationError
from tests.support.records import LATEST, fetched, tp

OLD = "0" * 16


def recovered(*pending, live):
    assert Log(0, live)
    return Recovery(OLD, None, live, -1, read(pending))


class Leaders:
    """Asked where logs begin: of which partitions, each time."""

    def __init__(self):
        self.asked = []

    async def ask_leaders(self, wanted, until_ms, take, *, read_committed):
        self.asked.append(set(wanted))
        await asyncio.sleep(0)


class Home:
    """What a consumer's tasks would share, and one partition that is looked up."""

    def __init__(self, *pending, live, **settings):
        config = ConsumerConfig.of(group_id="billing", enable_parallel_rebalance=True, **settings)
        changes = Changes(Signal)
        self.told, self.beside, self.assignment = [], LaneTable(changes), Assignment(changes)
        self.delivery = Delivery(
            self.assignment,
            catch_up=self.beside.tally,
            share=0.5,
            auto_ack=config.auto_ack,
            records_per_turn=4,
            turn_ms=60_000,
            max_bytes=10**9,
        )
        self.leaders = Leaders()
        self.on_event = self.told.append
        self.catch_up = CatchUp(
            config=config,
            link=SimpleNamespace(cluster=Cluster()),
            assignment=self.assignment,
            delivery=self.delivery,
            changes=changes,
            emit=lambda event: self.on_event(event),
            failures=Failures(self.told.append, now_ms),
            fetched=self.beside,
            offsets=self.leaders,
        )
        (self.live,) = self.assignment.make({tp(0): LATEST})
        self.live.start_at(live)
        self.catch_up.begin(self.live, LogId("c", "orders", UUID(int=7), 0), recovered(*pending, live=live))

    def take_over(self):
        self.assignment.put([self.live])
        self.catch_up.follow()
        return self

    @property
    def fetched_from(self):
        """The range that the catch-up lane's fetchers know."""
        cursor = self.beside.get(tp(0))
        return None if cursor is None or cursor.target.is_halted else (cursor.start, cursor.end)

    def heard(self, kind):
        return [each for each in self.told if type(each) is kind]

    def put(self, cursor, upto):
        """As a fetch answer with the records up to there."""
        data = fetched(cursor, upto - cursor.target.offset, cursor.target.offset)
        cursor.put(data)
        cursor.target.fetched(upto)
        self.live.lanes.fetch_next()


@pytest.fixture
async def home():
    return Home((10, 20), (30, 40), live=50).take_over()


async def test_what_is_looked_up_and_not_taken_over_is_neither_read_nor_forgotten():
    home = Home((10, 20), live=50)
    assert home.fetched_from is None
    home.assignment.add({tp(1): LATEST})
    home.catch_up.follow()  # another partition came: cooperative, before this one is announced
    home.assignment.remove([tp(1)])
    home.catch_up.follow()
    assert home.live.lanes.cursors
    home.take_over()
    assert home.fetched_from == (10, 20)


async def test_an_applications_metadata_leaves_room_for_a_token(home):
    assert home.live.lanes.named(50, "x" * 3_584, 1).metadata.endswith("x")
    with pytest.raises(ValueError, match=r"3585 characters; with two lanes at most 3584"):
        home.live.lanes.named(50, "x" * 3_585, 1)


async def test_one_range_is_fetched_after_the_other_and_in_their_order(home):
    assert home.fetched_from == (10, 20)
    first, second = home.live.lanes.cursors
    home.put(first, 20)
    assert home.fetched_from == (30, 40)
    home.put(second, 40)
    assert home.fetched_from is None
    taken = [record.offset for record in home.delivery.take(100)[tp(0)]]
    assert taken == [*range(10, 20), *range(30, 40)]


async def test_what_a_paused_partition_had_to_drop_is_fetched_before_what_follows(home):
    first, second = home.live.lanes.cursors
    home.put(first, 20)
    first.bar(Bar.PAUSED)
    first.drop_buffer()
    home.live.lanes.note_done()
    assert home.fetched_from == (10, 20)
    assert first.target.offset == 10
    home.put(second, 40)
    first.lift(Bar.PAUSED)
    home.put(first, 20)
    taken = [home.delivery.take(100)[tp(0)] for _ in range(2)]
    assert [[record.offset for record in each] for each in taken] == [[*range(10, 20)], [*range(30, 40)]]


async def test_a_partition_that_is_given_up_is_not_read_any_more(home):
    first, second = home.live.lanes.cursors
    home.put(first, 20)
    home.delivery.take(3)
    home.assignment.remove([tp(0)])
    home.catch_up.follow()
    assert home.beside.get(tp(0)) is None
    assert not first.buffer.pieces
    assert not home.delivery.is_in_hand()
    assert not home.beside.tally.turns
    assert second not in home.beside


async def test_nothing_is_fetched_for_a_cursor_that_a_seek_replaced(home):
    home.live.lanes.seek(60, move=None, drop_pending=True)
    assert home.beside.get(tp(0)) is None
    assert home.live.position == 60
    assert [each.dropped for each in home.heard(events.RangesDropped)] == [((10, 20), (30, 40))]
    home.live.lanes.seek(5, move=None)
    assert home.fetched_from == (5, 60)


async def test_a_seek_in_one_lane_leaves_the_buffer_of_the_other(home):
    home.live.put(fetched(home.live, 10, 50))
    home.live.lanes.seek(35, move=None)
    assert home.live.buffer.pieces
    assert home.live.lanes.book.pending == ((10, 20), (35, 40))


async def test_what_is_done_is_reported_once_and_the_lane_stands_by(home):
    for cursor in home.live.lanes.cursors:
        home.put(cursor, cursor.end)
    home.delivery.take(100)
    assert home.catch_up.is_catching_up()
    home.live.lanes.note_done()
    home.delivery.process_all()
    for _ in range(2):
        home.live.lanes.note_done()
    assert not home.catch_up.is_catching_up()
    assert [(each.start_offset, each.end_offset) for each in home.heard(events.RangeDone)] == [(10, 20), (30, 40)]
    assert len(home.heard(events.CatchUpDone)) == 1
    assert home.beside.get(tp(0)) is None


async def test_retention_moves_what_was_not_delivered_and_tells_it(home):
    first, second = home.live.lanes.cursors
    home.put(first, 15)
    home.live.lanes.raise_log_start(35)  # what is buffered is delivered first
    assert first.ledger.position == 10
    assert [(each.start_offset, each.end_offset) for each in home.heard(events.RangeTruncated)] == [(30, 35)]
    home.delivery.take(5)
    home.delivery.process_all()
    home.delivery.take(1)
    home.live.lanes.raise_log_start(35)
    assert [(each.start_offset, each.end_offset) for each in home.heard(events.RangeTruncated)] == [(30, 35), (15, 20)]
    assert first.is_done
    assert home.fetched_from == (30, 40)
    assert second.target.offset == 35


async def test_ranges_that_are_left_to_a_job_are_not_read_until_they_are_overdue():
    home = Home((10, 20), (30, 40), live=50, parallel_handoff=True, parallel_handoff_timeout_ms=1).take_over()
    assert home.fetched_from is None
    lanes = home.live.lanes
    lanes.book.note_durable(lanes.book.commit_processed())
    lanes.fold(DoneRanges(OLD, read([(12, 20), (30, 40)])))
    assert lanes.book.pending == ((10, 12),)
    assert home.fetched_from is None
    lanes.raise_log_start(1)
    lanes.raise_log_start(6)  # as near as it will be at the next look
    assert [(each.start_offset, each.end_offset) for each in home.heard(events.HandOffOverdue)] == [(10, 12)]
    assert home.fetched_from == (10, 12)


async def test_a_jobs_result_takes_nothing_out_of_the_hand_and_what_it_made_superfluous_is_not_delivered():
    settings = {"parallel_handoff": True, "parallel_handoff_timeout_ms": 1, "auto_ack": False}
    home = Home((10, 30), (40, 60), live=70, **settings).take_over()
    lanes, delivery = home.live.lanes, home.delivery
    while home.fetched_from is None:  # until it is overdue, and read here
        lanes.fold(None)
        await asyncio.sleep(0.001)
    first, second = lanes.cursors
    home.put(first, 30)
    taken = delivery.take(8)[tp(0)]
    lanes.fold(DoneRanges(OLD, read([(12, 14), (20, 26), (40, 50)])))
    assert delivery.in_hand() == {tp(0): 8}
    assert lanes.cursors[0] is first
    assert home.fetched_from == (10, 20)  # its rest is fetched again, up to where it ends now
    assert lanes.named(18, "", 1).offset == 18
    for record in taken:
        first.ledger.ack(record.offset)
    assert not delivery.is_in_hand()
    home.put(first, 20)
    given = [record.offset for record in delivery.take(100)[tp(0)]]
    while home.fetched_from is not None:
        cursor = home.beside[tp(0)]
        home.put(cursor, cursor.end)
        given += [record.offset for record in delivery.take(100)[tp(0)]]
    assert given == [18, 19, *range(26, 30), *range(50, 60)]
    assert second.buffer.pieces == first.buffer.pieces
    for cursor in lanes.cursors:
        for offset in range(cursor.start, cursor.end):
            cursor.ledger.ack(offset)
    assert lanes.entry().offset == 70


async def test_a_jobs_result_under_another_id_moves_nothing(home):
    first, _ = home.live.lanes.cursors
    home.put(first, 20)
    home.live.lanes.fold(DoneRanges("1" * 16, read([(10, 20)])))
    assert len(home.delivery.take(100)[tp(0)]) == 10


async def test_a_topic_that_was_recreated_is_read_in_one_lane(home):
    home.live.lanes.abandon("the topic was deleted and recreated")
    assert home.live.lanes.left_count is None
    assert home.beside.get(tp(0)) is None
    assert len(home.heard(events.RangesDropped)) == 1


async def test_what_waits_for_catch_up_lanes_shares_one_bound():
    home = Home((10, 20), live=50, parallel_order="ordered", parallel_buffer_bytes=1_000_000).take_over()
    assert home.live.target.most_bytes == 500_000
    assert not home.live.is_open
    (cursor,) = home.live.lanes.cursors
    cursor.put(BoundedDecoder(20, tp(0), b"", 20, (), None, None))
    cursor.rise_to(20)
    assert home.live.lanes.let_live_go_on()
    assert home.live.is_open
    assert home.live.target.most_bytes == 0
    assert not home.live.lanes.let_live_go_on()


async def test_lanes_that_are_closed_do_not_come_back_to_life(home):
    """`seek_to_committed` asked for a while, and the partition was given up meanwhile."""
    home.assignment.remove([tp(0)])
    home.catch_up.follow()
    home.live.lanes.return_to_durable(Committed(15, "", -1), move=None)
    assert home.beside.get(tp(0)) is None


async def test_a_reset_below_what_was_reported_takes_it_back(home):
    """Records come again from 60 on: until these are processed no commit may say so."""
    home.live.put(fetched(home.live, 20, 50))
    home.delivery.take(20)
    home.delivery.process_all()
    book = home.live.lanes.book
    told = book.commit_processed()
    assert told.live == 70
    home.live.lanes.return_to(60)
    home.live.start_at(60, was_reset=True)
    again = book.commit_processed()
    assert again.live == 60
    assert again.id != told.id
    assert not book.note_durable(told)
    assert home.live.ledger.committable == 60


async def test_to_ask_whether_something_is_uncommitted_changes_nothing(home):
    lanes, book = home.live.lanes, home.live.lanes.book
    home.live.committed = Committed(10)
    assert lanes.has_uncommitted  # the token
    entry = lanes.entry()
    home.live.committed = Committed(entry.offset, entry.metadata)
    assert not lanes.has_uncommitted
    home.live.put(fetched(home.live, 20, 50))
    home.delivery.take(20)
    home.delivery.process_all()
    told = book.reported
    assert lanes.has_uncommitted
    assert book.reported == told
    entry = lanes.entry()
    home.live.committed = Committed(entry.offset, entry.metadata)
    assert not lanes.has_uncommitted
    home.live.lanes.return_to(60)  # what was told is taken back: the token needs another id, once
    home.live.start_at(60, was_reset=True)
    before_id = book.id
    assert lanes.has_uncommitted
    assert book.id == before_id


@pytest.mark.parametrize("way", ["seek", "seek_to_committed"])
async def test_a_lane_that_is_sent_where_it_stands_reads_again(home, way):
    """A deserializer may have failed for a moment: what it said of a record is not kept."""

    def refuse(value):
        raise ValueError("not now")

    home.live.put(fetched(home.live, 10, 50, value_deserializer=refuse))
    with pytest.raises(RecordDeserializationError):
        home.delivery.take(10)
    if way == "seek":
        home.live.lanes.seek(50, move=None)
    else:
        home.live.lanes.return_to_durable(Committed(50, "", -1), move=None)
    assert not home.live.buffer.pieces
    assert home.live.target.offset == 50


@pytest.mark.parametrize("order", ["ordered", "unordered"])
async def test_a_range_that_retention_took_does_not_let_the_next_one_go_before_those_in_front(order):
    home = Home((10, 20), (30, 40), (42, 44), live=50, parallel_order=order).take_over()
    first, second, third = home.live.lanes.cursors
    home.put(first, 20)
    home.live.put(fetched(home.live, 5, 50))
    home.live.lanes.raise_log_start(41)
    assert second.is_done
    assert not third.is_open
    assert home.live.is_open is (order == "unordered")
    home.put(third, 44)
    given = []
    while records := home.delivery.take(100).get(tp(0)):
        given += [record.offset for record in records]
        home.live.lanes.let_live_go_on()
    old = [*range(10, 20), 42, 43]
    assert [each for each in given if each < 50] == old
    assert order == "unordered" or given == [*old, *range(50, 55)]


async def test_what_may_wait_of_the_live_lane_follows_every_move():
    home = Home((10, 20), live=50, parallel_order="ordered", parallel_buffer_bytes=1_000_000).take_over()
    task = asyncio.create_task(home.catch_up.run())
    lanes = home.live.lanes
    try:
        for move, most_bytes in (
            (lambda: lanes.seek(60, move=None, drop_pending=True), 0),
            (lambda: lanes.seek(5, move=None), 500_000),
            (lambda: lanes.return_to_durable(Committed(60, "", -1), move=None), 0),
        ):
            await asyncio.sleep(0)
            move()
            await asyncio.sleep(0.01)
            assert home.live.target.most_bytes == most_bytes
    finally:
        task.cancel()


async def test_doubts_do_not_put_off_the_look_at_where_logs_begin(home, monkeypatch):
    monkeypatch.setattr(catching_up, "LOG_START_MS", 50)
    leaders = home.leaders
    task = asyncio.create_task(home.catch_up.run_log_starts())
    try:
        async with asyncio.timeout(10):
            while not any(tp(0) in asked for asked in leaders.asked):
                home.catch_up.doubt(tp(7))
                await asyncio.sleep(0.005)
        assert leaders.asked.count({tp(7)}) > 3
        assert {tp(0), tp(7)} in leaders.asked or {tp(0)} in leaders.asked
    finally:
        task.cancel()


async def test_a_frozen_leader_asked_where_logs_begin_does_not_put_off_what_is_reported(home):
    is_asked, is_reported = asyncio.Event(), asyncio.Event()
    home.on_event = lambda event: is_reported.set() if type(event) is events.RangeDone else None

    async def ask_for_ever(*_, **__):
        is_asked.set()
        await asyncio.Event().wait()

    home.leaders.ask_leaders = ask_for_ever
    tasks = [asyncio.create_task(each()) for each in (home.catch_up.run, home.catch_up.run_log_starts)]
    try:
        async with asyncio.timeout(10):
            home.catch_up.doubt(tp(7))
            await is_asked.wait()
            home.live.lanes.cursors[0].rise_to(20)
            home.catch_up.wanted.pulse()
            await is_reported.wait()
    finally:
        for task in tasks:
            task.cancel()
