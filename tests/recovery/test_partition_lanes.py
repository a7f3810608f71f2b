"""The lanes of one partition, and what they ask of the consumer around them: no loop, no clock, no delivery."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiogroup._core.fetching.assignment import Assignment, LaneTable
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.recovery.lane_starts import Recovery
from aiogroup._core.recovery.partition_lanes import PartitionLanes
from aiogroup._core.recovery.ranges import read
from aiogroup._core.recovery.token import LogId, read_token
from aiogroup._core.telemetry import events
from aiogroup.config import ConsumerConfig
from tests.support.records import LATEST, tp

PLACE = LogId("c", "orders", UUID(int=7), 0)
NOTHING_TO_DO = ("settle", "close_cursor", "forget", "share_out", "drop")


class Owner:
    """A consumer that notes what it is asked to do, and at a time of the test's choice."""

    def __init__(self, **settings):
        self.config = ConsumerConfig.of(group_id="billing", enable_parallel_rebalance=True, **settings)
        self.fetched, self.emitted, self.asked = LaneTable(), [], []
        self.at_ms = 0
        self.emit = self.emitted.append
        self.delivery = self
        for name in NOTHING_TO_DO:
            setattr(self, name, lambda *_, name=name: self.asked.append(name))

    def now_ms(self):
        return self.at_ms

    def wall_ms(self):
        return 5_000_000

    def fresh_id(self):
        return "f" * 16

    def move_live(self, live, offset, leader_epoch, *, is_seek):
        self.asked.append(f"move the live lane to {offset}")
        live.start_at(offset)

    def on_moved(self):
        self.asked.append("on_moved")


def lanes_of(owner, *pending, live):
    (partition,) = Assignment().make({tp(0): LATEST})
    partition.start_at(live)
    partition.lanes = lanes = PartitionLanes(owner, partition, PLACE, Recovery("0" * 16, None, live, -1, read(pending)))
    lanes.is_owned = True
    lanes.fetch_next()
    owner.asked.clear()
    return lanes


def since_s(entry):
    return read_token(entry.offset, entry.metadata, PLACE).token.handoff.since_s


def test_a_range_waits_for_jobs_since_the_commit_that_leaves_it_to_them_and_not_since_somebody_asked():
    owner = Owner(parallel_handoff=True)
    lanes = lanes_of(owner, (10, 20), live=50)
    lanes.live.committed = Committed(10)
    assert lanes.has_uncommitted
    owner.at_ms = 60_000
    assert since_s(lanes.begun()) == (5_060,)
    owner.at_ms = 90_000
    assert since_s(lanes.entry()) == (5_060,)
    assert lanes.has_uncommitted


@pytest.mark.parametrize(
    ("offset", "asked"),
    [
        (15, ["settle", "forget", "on_moved"]),  # in the range: the live lane stays where it is
        (60, ["settle", "forget", "move the live lane to 60", "on_moved"]),
    ],
)
def test_a_seek_is_asked_of_the_owner_in_order(offset, asked):
    owner = Owner()
    lanes = lanes_of(owner, (10, 20), live=50)
    lanes.seek(offset, move=None)
    assert owner.asked == asked
    assert owner.fetched[tp(0)] is lanes.cursors[-1]
    assert lanes.live.position == max(50, offset)


def test_a_seek_that_drops_what_is_pending_is_reported_once():
    owner = Owner()
    lanes = lanes_of(owner, (10, 20), (30, 40), live=50)
    lanes.seek(60, move=None, drop_pending=True)
    assert owner.emitted == [events.RangesDropped("orders", 0, ((10, 20), (30, 40)), "seek")]


def test_lanes_that_are_closed_fetch_nothing():
    owner = Owner()
    lanes = lanes_of(owner, (10, 20), live=50)
    lanes.close()
    assert owner.asked == ["drop", "forget"]
    assert owner.fetched.get(tp(0)) is None
    lanes.fetch_next()
    assert owner.fetched.get(tp(0)) is None
