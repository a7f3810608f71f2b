"""What is measured between requests: nothing while one waits, and no time per record where several overlapped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aiogroup._core.telemetry.meter import Meter
from aiogroup._runtime.delivery.metering import MeteredGroup


class Group:
    def __init__(self):
        self.heard = []

    def may_deliver(self, _now):
        return True

    def is_settled(self):
        return False

    def on_request(self, now):
        self.heard.append(now)

    def on_answer(self):
        self.heard.append(None)


@pytest.fixture
def metered(monkeypatch):
    now = SimpleNamespace(ms=0)
    monkeypatch.setattr("aiogroup._runtime.delivery.metering.now_ms", lambda: now.ms)
    tally = SimpleNamespace(handed_out_count=0)
    delivery = SimpleNamespace(settle=lambda: None, tallies={"live": tally})
    group, meter = Group(), Meter()
    return SimpleNamespace(now=now, tally=tally, group=group, meter=meter, of=MeteredGroup(group, meter, delivery, 0))


def test_a_request_after_another(metered):
    metered.of.on_request(5)
    metered.now.ms, metered.tally.handed_out_count = 10, 4
    metered.of.on_answer()
    metered.of.on_request(110)
    assert metered.meter.request_gap_ms.counts == {27: 1}
    assert metered.meter.record_ms.counts == {19: 4}
    assert metered.meter.batch_records.counts == {8: 1}
    assert (metered.meter.requests_count, metered.meter.records_count) == (1, 4)
    assert metered.group.heard == [5, None, 110]
    assert metered.of.may_deliver(0)
    assert not metered.of.is_settled()


def test_requests_that_overlap(metered):
    metered.of.on_request(0)
    metered.of.on_request(1)
    metered.now.ms, metered.tally.handed_out_count = 10, 2
    metered.of.on_answer()
    metered.of.on_request(50)
    assert metered.meter.requests_count == 0, "one is under way all the time"
    metered.now.ms = 60
    metered.of.on_answer()
    metered.of.on_answer()
    metered.of.on_request(160)
    assert metered.meter.request_gap_ms.counts == {27: 1}
    assert metered.meter.record_ms.counts == {}
    assert metered.meter.records_count == 2
