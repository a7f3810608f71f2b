"""A faulty observer, or a log that raises, is told once and left out: nothing else of the consumer notices it."""

from __future__ import annotations

import asyncio
import logging

import pytest
import structlog

from aiogroup._core.telemetry import events
from tests.support.kafka import Ears, eventually, take, turns

KINDS = [
    events.MemberMoved,
    events.HeartbeatAcknowledged,
    events.RebalanceStarted,
    events.RebalanceCompleted,
    events.OffsetsCommitted,
    events.PositionFromPolicy,
    events.PartitionsRevoked,
    events.ConsumerStopped,
]


class Faulty:
    """Raises whenever it is told of one kind of event, and counts how often it was told of anything after that."""

    def __init__(self, kind, error):
        self.kind = kind
        self.error = error
        self.told_after_count = -1

    def on_event(self, event):
        if self.told_after_count >= 0:
            self.told_after_count += 1
        if isinstance(event, self.kind):
            self.told_after_count = max(0, self.told_after_count)
            raise self.error


class Odd(BaseException):
    """What a library may use to unwind its own stack: no Exception."""


@pytest.mark.parametrize("with_thread", [False, True], ids=["no-thread", "thread"])
@pytest.mark.parametrize("error", [ZeroDivisionError("faulty"), Odd("faulty"), asyncio.CancelledError("faulty")])
async def test_a_faulty_observer_costs_no_task_no_membership_and_no_record(make_place, error, with_thread):
    place, ears = make_place(), Ears()
    faulty = [Faulty(kind, error) for kind in KINDS]
    await place.produce(range(20))
    settings = {"heartbeat_thread": with_thread, "heartbeat_interval_ms": 100}
    async with place.consumer(observers=[*faulty, ears], **settings) as consumer:
        assert await take(consumer, 10) == [str(value) for value in range(10)]
        await eventually(lambda: len(ears.heard(events.HeartbeatAcknowledged)) >= 5)
        await consumer.enforce_rebalance()
        assert await take(consumer, 9) == [str(value) for value in range(10, 19)]
        await eventually(lambda: len(ears.heard(events.RebalanceCompleted)) == 2)
        assert await take(consumer, 1) == ["19"]
        await consumer.commit()
        report = await consumer.stop()
    assert report.problems == ()
    assert await place.committed() == 20
    assert not ears.heard(events.PartitionsLost)
    assert not ears.heard(events.TaskFailed)
    told = ears.heard(events.ObserverFailed)
    assert [each.event_name for each in told] == list(dict.fromkeys(each.event_name for each in told))
    assert {each.event_name for each in told} == {kind_name(kind) for kind in KINDS}
    for each in told:
        assert each.error == repr(error)
        assert "Faulty" in each.observer
        assert "raise self.error" in each.traceback
    assert [each.told_after_count for each in faulty] == [0] * len(KINDS)


def kind_name(kind):
    return kind.name.fget(object.__new__(kind))


@pytest.mark.parametrize("with_thread", [False, True], ids=["no-thread", "thread"])
@pytest.mark.parametrize("at", ["heartbeat_acknowledged", "rebalance_completed", "offsets_committed"])
async def test_a_faulty_log_processor_costs_nothing_and_stderr_has_it(make_place, capsys, at, with_thread, caplog):
    place, ears, written = make_place(), Ears(), []

    def faulty(_logger, _level, entry):
        written.append(entry["event"])
        if entry["event"] == at:
            raise ZeroDivisionError("a faulty processor")
        raise structlog.DropEvent

    await place.produce(range(10))
    caplog.set_level(logging.DEBUG, logger="aiogroup")
    structlog.configure(processors=[faulty])
    try:
        settings = {"heartbeat_thread": with_thread, "heartbeat_interval_ms": 100}
        async with place.consumer(observers=[ears], **settings) as consumer:
            assert await take(consumer, 9) == [str(value) for value in range(9)]
            await eventually(lambda: len(ears.heard(events.HeartbeatAcknowledged)) >= 5)
            await consumer.commit()
            assert await take(consumer, 1) == ["9"]
            await consumer.commit()
            assert (await consumer.stop()).problems == ()
    finally:
        structlog.reset_defaults()
    await turns()
    assert await place.committed() == 10
    assert written[-1] == at
    assert written.count(at) == 1
    (failed,) = ears.heard(events.ObserverFailed)
    assert (failed.event_name, failed.error) == (at, "ZeroDivisionError('a faulty processor')")
    told = capsys.readouterr().err
    assert told.count("ZeroDivisionError: a faulty processor") == 1
    assert told.count("gets no more events") == 1
    assert at in told
