"""Two lanes on many partitions: what is done once for all of them is not done once for each."""

from __future__ import annotations

from collections import Counter

import pytest

from aiogroup import Consumer
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.target import FetchTarget
from aiogroup.embedded import Broker, run_virtual

COUNT = 200
TIMES_MOST = 20


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_start_and_seek_take_time_in_proportion_to_the_partitions(monkeypatch, order):
    calls = Counter()

    def counted(owner, name):
        former = getattr(owner, name)

        def call(*args, **kwargs):
            calls[name] += 1
            return former(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted(Assignment, "get")
    counted(FetchTarget, "bound")

    async def script():
        async with Broker() as broker:
            broker.create_topic("orders", COUNT)
            for partition in range(COUNT):
                broker.produce_many("orders", [b"x"] * 3, partition=partition)
            settings = {"group_id": "g", "auto_offset_reset": "earliest", "parallel_order": order}
            async with Consumer(
                "orders",
                bootstrap_servers=broker.bootstrap_servers,
                enable_parallel_rebalance=True,
                parallel_min_backlog=1,
                **settings,
            ) as consumer:
                await consumer.getmany(timeout_ms=100)
                assert len(consumer.lanes()) == COUNT
                assert max(calls.values()) < TIMES_MOST * COUNT, calls
                calls.clear()
                await consumer.seek_to_beginning()
                assert (await consumer.getmany(timeout_ms=1_000)).count
                assert max(calls.values()) < TIMES_MOST * COUNT, calls

    run_virtual(script())
