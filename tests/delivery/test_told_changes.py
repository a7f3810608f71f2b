"""What partitions, the assignment and the hand tell when they change, so that nobody else has to."""

from __future__ import annotations

import pytest

from aiogroup._core.changes import Change
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.blocks import Block
from aiogroup._core.fetching.lane import Bar
from aiogroup.errors import NoOffsetForPartitionError
from tests.support.records import LATEST, assigned, fetched, tp


class Told:
    def __init__(self):
        self.changes = set()

    def tell(self, change):
        self.changes.add(change)


class Reading:
    """Two records of a partition are buffered; the first was given."""

    def __init__(self, *, auto_ack=True):
        self.told = Told()
        self.assignment, (self.partition,) = assigned(0, changes=self.told)
        self.delivery = Delivery(self.assignment, auto_ack=auto_ack, records_per_turn=256, turn_ms=60_000)
        self.partition.put(fetched(self.partition, 2))
        self.partition.target.offset = 2
        self.record = self.delivery.open_cursor()
        self.delivery.settle()
        self.told.changes.clear()


DEEDS = {
    "a request for the next record": (lambda reading: reading.delivery.process_all(), {Change.HAND}),
    "skip": (lambda reading: reading.delivery.process_all((tp(0),)), {Change.HAND}),
    "an iteration that begins again": (lambda reading: reading.delivery.take_back_iterated(), {Change.HAND}),
    "a poison record passed over": (
        lambda reading: reading.delivery.pass_over(reading.partition, 1),
        {Change.POSITION},
    ),
    "a seek within the buffer": (lambda reading: reading.partition.go_on_at(1), {Change.POSITION}),
    "a seek elsewhere": (lambda reading: reading.delivery.seek(reading.partition, 9), {Change.POSITION, Change.HAND}),
    "a reset": (lambda reading: reading.partition.await_reset(LATEST), {Change.POSITION}),
    "an error": (lambda reading: reading.partition.fail(NoOffsetForPartitionError(tp(0))), {Change.READABLE}),
    "an error that only a seek ends": (
        lambda reading: reading.partition.stick(NoOffsetForPartitionError(tp(0))),
        {Change.POSITION},
    ),
    "a pause": (lambda reading: reading.partition.pause(Bar.PAUSED), {Change.BARRED}),
    "its end": (lambda reading: reading.partition.pause(Bar.PAUSED, when=False), {Change.BARRED}),
    "a buffer that is dropped": (lambda reading: reading.partition.drop_buffer(), {Change.FETCHABLE}),
    "a partition given up": (lambda reading: reading.assignment.remove([tp(0)]), {Change.ASSIGNED}),
    "what was held of it": (lambda reading: reading.delivery.forget([reading.partition]), {Change.HAND}),
    "a partition that comes": (lambda reading: reading.assignment.add({tp(1): LATEST}), {Change.ASSIGNED}),
    "a request by name": (lambda reading: reading.assignment.need(frozenset({tp(0)})), {Change.FETCHABLE}),
    "a merge": (lambda reading: reading.assignment.limit(10), {Change.FETCHABLE}),
}


@pytest.mark.parametrize(("deed", "told"), DEEDS.values(), ids=DEEDS)
def test_a_deed_is_told(deed, told):
    reading = Reading()
    deed(reading)
    assert told <= reading.told.changes


def test_an_acknowledgement_is_told():
    reading = Reading(auto_ack=False)
    reading.delivery.ack(reading.partition.ledger, reading.record.offset)
    assert reading.told.changes == {Change.HAND}


def test_a_block_that_sets_records_aside_is_told():
    reading = Reading()
    reading.assignment.blocks.begin(Block(frozenset(), frozenset({tp(0)})))
    reading.assignment.suspend()
    assert reading.told.changes == {Change.HAND, Change.BARRED}


def test_a_request_that_finds_nothing_in_hand_tells_nothing():
    reading = Reading()
    reading.delivery.process_all()
    reading.told.changes.clear()
    reading.delivery.process_all()
    assert reading.told.changes == set()


def test_a_request_by_name_is_told_once():
    reading = Reading()
    reading.assignment.need(frozenset({tp(0)}))
    reading.told.changes.clear()
    reading.assignment.need(frozenset({tp(0)}))
    assert reading.told.changes == set()
