"""A job's waits go by the clock that nobody sets: without Spark and without a broker."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from aiogroup.runtime.loop import clock
from aiogroup.spark.drain import Job


@pytest.mark.parametrize("set_by_s", [3_600, -3_600])
def test_it_waits_for_other_drivers_however_the_clock_is_set(monkeypatch, set_by_s):
    now_s = [5.0, 1_790_000_000.0]
    monkeypatch.setattr(
        clock,
        "time",
        SimpleNamespace(monotonic=lambda: now_s[0], time_ns=lambda: int(now_s[1] * 1e9)),
    )
    rounds_count = 0

    class Stuck(Job):
        left_count = 7

        def _round(self, claims):
            nonlocal rounds_count
            rounds_count += 1
            assert rounds_count < 20
            now_s[0] += 10
            now_s[1] += set_by_s
            return False

    portal = SimpleNamespace(call=lambda *_: None)
    job = Stuck(None, None, None, portal, 1, 1, None)
    job.run(SimpleNamespace(release=nullcontext), 60_000)
    assert rounds_count == 7, "the first one found what is left, and then nothing moved for 60 s"
    assert job.report().elapsed_ms == 70_000
