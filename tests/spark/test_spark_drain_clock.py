"""A job's waits go by the clock that nobody sets: without Spark and without a broker."""

from __future__ import annotations

import importlib
from uuid import UUID

import pytest

from aiogroup import TopicPartition
from aiogroup._core.recovery.ranges import Range
from aiogroup._core.recovery.token import LogId, Token
from aiogroup.spark.standing import Pending, Standing

drain = importlib.import_module("aiogroup.spark.drain")  # the package has a function of this name


class Clock:
    """Ten seconds pass while one looks, and each time somebody sets the wall clock."""

    def __init__(self, set_by_ms):
        self.set_by_ms = set_by_ms
        self.looks_count = self.steady_ms = 0
        self.wall_ms = 1_790_000_000_000

    def pass_on(self):
        self.looks_count += 1
        assert self.looks_count < 20
        self.steady_ms += 10_000
        self.wall_ms += 10_000 + self.set_by_ms


@pytest.mark.parametrize("set_by_ms", [0, 3_600_000, -3_600_000])
def test_it_waits_for_other_drivers_however_the_clock_is_set(monkeypatch, set_by_ms):
    clock = Clock(set_by_ms)
    place = LogId("cluster", "orders", UUID(int=1), 0)
    left = Pending(place, Token("0" * 16, 100, 0, (Range(0, 10),)), (), 0, 100)

    async def look(access):
        return Standing({TopicPartition("orders", 0): left})

    class Claims(drain.Claims):
        """Another driver holds the partition."""

        def __init__(self, access, session_timeout_ms):
            pass

        async def __aenter__(self):
            return self

        async def __aexit__(self, *error):
            pass

        async def hold(self):
            clock.pass_on()
            return {}

        async def release(self, wait_ms=0):
            pass

    async def list_members(group_id, **settings):
        return ()

    for name, value in {
        "look": look, "Claims": Claims, "check_session": lambda spark, reader: None, "list_members": list_members,
        "steady_ms": lambda: clock.steady_ms, "wall_ms": lambda: clock.wall_ms,
    }.items():  # fmt: skip
        monkeypatch.setattr(drain, name, value, raising=False)
    report = drain.drain(
        None, None, bootstrap_servers="127.0.0.1:9092", group_id="g", topics="orders", others_timeout_ms=60_000
    )
    assert clock.looks_count == 7, "the first one found what is left, and then nothing moved for 60 s"
    assert report.left_count == 10
