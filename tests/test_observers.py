"""Who is told of events: in order, and a faulty observer is told of once and left out."""

from __future__ import annotations

import logging
import sys

import pytest

from aiogroup import ConfigError, Consumer
from aiogroup._core.telemetry import events
from aiogroup._runtime.telemetry.observers import CAUSED_LIMIT, Observers

BEAT = events.HeartbeatSent(1)


class Ears:
    def __init__(self):
        self.heard = []

    def on_event(self, event):
        self.heard.append(event)

    def failures(self):
        return [event for event in self.heard if isinstance(event, events.ObserverFailed)]


class Faulty:
    def __init__(self, error=None):
        self.error = error or ZeroDivisionError("faulty")
        self.told_count = 0

    def on_event(self, event):
        self.told_count += 1
        raise self.error


class Unprintable(Faulty):
    def __repr__(self):
        raise ZeroDivisionError("no repr either")


class UnprintableError(Exception):
    def __repr__(self):
        raise ZeroDivisionError("no repr either")

    __str__ = __repr__


def test_an_observer_may_come_later():
    first, later = Ears(), Ears()
    observers = Observers(first, ())
    observers.emit(BEAT)
    observers.add(later)
    observers.emit(events.HeartbeatSent(2))
    assert (len(first.heard), later.heard) == (2, [events.HeartbeatSent(2)])


def test_a_consumer_takes_observers_later_but_only_such_as_can_hear():
    consumer = Consumer("orders")
    consumer.observe(Ears())
    with pytest.raises(ConfigError, match="on_event"):
        consumer.observe(print)


def test_a_faulty_observer_is_reported_once_and_left_out():
    log, first, faulty, last = Ears(), Ears(), Faulty(), Ears()
    observers = Observers(log, [first, faulty, last])
    observers.emit(BEAT)
    observers.emit(BEAT)
    assert faulty.told_count == 1
    for ears in (log, first, last):
        (failed,) = ears.failures()
        assert [event for event in ears.heard if event != failed] == [BEAT, BEAT]
        assert (failed.event_name, failed.error) == ("heartbeat_sent", "ZeroDivisionError('faulty')")
        assert ears.heard == [BEAT, failed, BEAT]


def test_the_same_object_given_twice_is_one_failure():
    log, faulty = Ears(), Faulty()
    observers = Observers(log, [faulty, faulty])
    observers.emit(BEAT)
    observers.emit(BEAT)
    assert (faulty.told_count, len(log.failures())) == (2, 1)


def test_neither_the_observer_nor_its_error_needs_a_repr():
    log = Ears()
    Observers(log, [Unprintable(UnprintableError())]).emit(BEAT)
    (failed,) = log.failures()
    assert failed.observer.startswith("<test_observers.Unprintable")
    assert failed.error.startswith("<test_observers.UnprintableError")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_process_passes(error):
    log, faulty = Ears(), Faulty(error)
    observers = Observers(log, [faulty])
    with pytest.raises(type(error)):
        observers.emit(BEAT)
    faulty.error = ZeroDivisionError()
    observers.emit(BEAT)  # it was not its fault
    assert (faulty.told_count, len(log.failures())) == (2, 1)


def test_a_log_that_raises_is_left_out_and_reported_on_stderr(capsys):
    log, ears = Faulty(), Ears()
    observers = Observers(log, [ears])
    observers.emit(BEAT)
    observers.emit(BEAT)
    assert (log.told_count, len(ears.failures())) == (1, 1)
    told = capsys.readouterr().err
    assert told.count("gets no more events") == 1
    assert "ZeroDivisionError: faulty" in told
    assert "heartbeat_sent" in told


def test_without_a_log_an_observer_that_raises_is_reported_on_stderr_too(capsys):
    observers = Observers(Faulty(), [Faulty(KeyError("second"))])
    observers.emit(BEAT)
    told = capsys.readouterr().err
    assert told.count("gets no more events") == 2
    assert "KeyError: 'second'" in told


@pytest.mark.parametrize("broken", ["no last resort", "no stderr", "a closed one"])
def test_where_nothing_can_be_written_nothing_is(monkeypatch, broken, tmp_path):
    match broken:
        case "no last resort":
            monkeypatch.setattr(logging, "lastResort", None)
        case "no stderr":
            monkeypatch.setattr(sys, "stderr", None)
        case _:
            with (tmp_path / "closed").open("w") as closed:
                monkeypatch.setattr(sys, "stderr", closed)
    ears = Ears()
    Observers(Faulty(), [ears]).emit(BEAT)
    assert ears.heard[0] == BEAT


def test_what_an_observer_causes_is_emitted_after_what_it_got():
    class Causing(Ears):
        def on_event(self, event):
            super().on_event(event)
            if event == BEAT:
                observers.emit(events.CoordinatorFound(1))
                assert self.heard == [BEAT]

    log, causing, last = Ears(), Causing(), Ears()
    observers = Observers(log, [causing, last])
    observers.emit(BEAT)
    assert log.heard == causing.heard == last.heard == [BEAT, events.CoordinatorFound(1)]


def test_an_observer_that_causes_events_without_end_is_left_out():
    class Endless(Ears):
        def on_event(self, event):
            super().on_event(event)
            observers.emit(event)

    log, endless, last = Ears(), Endless(), Ears()
    observers = Observers(log, [endless, last])
    for _ in range(2):
        observers.emit(BEAT)
    (failed,) = log.failures()
    assert "RuntimeError" in failed.error
    assert len(endless.heard) == CAUSED_LIMIT + 1
    assert len(log.heard) == len(last.heard) == CAUSED_LIMIT + 4


def test_an_observer_that_is_async_is_refused():
    class Async:
        async def on_event(self, event):
            pass

    with pytest.raises(ConfigError, match=r"observers.*on_event.*async"):
        Consumer("orders", observers=[Async()])
