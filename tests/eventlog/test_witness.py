"""A process that stands still makes a waiting thread late, and uses no processor: everything else is no standstill."""

from __future__ import annotations

import threading

import pytest

from aiogroup.eventlog import witness
from aiogroup.eventlog.witness import BEAT_MS, Witness


class Clocks:
    """Of the machine and of the processor; as the event it says how long a wait for it takes."""

    def __init__(self, monkeypatch):
        self.now = self.used = 0
        self.waits_ms, self.computes_ms = BEAT_MS, 0
        self.meanwhile = lambda: None
        monkeypatch.setattr(witness, "thread_ms", lambda: self.now)
        monkeypatch.setattr(witness, "processor_ms", lambda: self.used)

    def wait(self, timeout):
        assert timeout == BEAT_MS / 1_000
        self.now += self.waits_ms
        self.used += self.computes_ms
        self.meanwhile()


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


@pytest.mark.parametrize(
    ("waits_ms", "computes_ms", "stood_ms"),
    [
        pytest.param(BEAT_MS, 0, 0, id="in time"),
        pytest.param(3, 0, 0, id="woken by a line"),
        pytest.param(BEAT_MS + 8_000, 0, 8_000, id="stopped"),
        pytest.param(BEAT_MS + 8_000, 8_000, 0, id="a call that computes and keeps other threads from running"),
        pytest.param(BEAT_MS + 8_000, 30_000, 0, id="with threads of its own"),
    ],
)
def test_a_wait_that_was_late_without_computing_is_a_standstill(clocks, waits_ms, computes_ms, stood_ms):
    told, seen = Witness(), []
    clocks.waits_ms, clocks.computes_ms = waits_ms, computes_ms
    clocks.meanwhile = lambda: seen.append(told.stood_still_ms(10_000))
    told.wait(clocks)
    assert seen == [stood_ms], "by another thread, before this one has run again"
    assert told.stood_still_ms(10_000) == stood_ms


def test_what_lies_back_longer_than_is_asked_for_is_not_told(clocks):
    told = Witness()
    clocks.waits_ms = BEAT_MS + 8_000
    told.wait(clocks)
    clocks.waits_ms = BEAT_MS
    told.wait(clocks)
    assert told.stood_still_ms(BEAT_MS) == 8_000
    assert told.stood_still_ms(BEAT_MS - 1) == 0


def test_a_disk_that_holds_the_thread_up_is_no_standstill(clocks):
    told = Witness()
    told.wait(clocks)
    clocks.now += 60_000
    assert told.stood_still_ms(60_000) == 0


def test_a_thread_that_waits_now_and_is_not_late_saw_nothing():
    told, wake = Witness(), threading.Event()
    thread = threading.Thread(target=told.wait, args=(wake,))
    thread.start()
    assert told.stood_still_ms(10_000) == 0
    wake.set()
    thread.join()
