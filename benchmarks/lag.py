"""`python -m benchmarks.lag`: the cost of lag with 1,000 partitions on three brokers.

`current_lag` and `lags` use local knowledge, `await lag()` asks the brokers. A proxy counts the requests, and its time
is included.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from aiogroup import Consumer
from aiogroup.devkafka import Cluster
from aiogroup.testing import Proxy
from benchmarks.results import FOLDER, Table, write

PARTITIONS = 1_000
CALLS = 10_000
GOAL_US = 2.0
COLUMNS = (
    ("current_lag_us", "current_lag, median us", "median"),
    ("current_lag_us", "worst", "worst"),
    ("lags_us", "lags, median us", "median"),
    ("lag_ms", "await lag(), median ms", "median"),
    ("requests", "requests of it, worst", "worst"),
)


async def measure(consumer: Consumer, proxy: Proxy) -> dict[str, Any]:
    tps = sorted(consumer.assignment())
    at = time.thread_time()  # the time of this thread only, not of other processes
    for index in range(CALLS):
        consumer.current_lag(tps[index % PARTITIONS])
    each_us = (time.thread_time() - at) / CALLS * 1e6
    at = time.perf_counter()
    lags = consumer.lags()
    all_us = (time.perf_counter() - at) * 1e6
    if set(lags.values()) != {0}:
        raise SystemExit(f"the lag of {PARTITIONS} empty partitions is 0, not {set(lags.values())}")
    asked, at = proxy.count("ListOffsets"), time.perf_counter()
    await consumer.lag()
    lag_ms = (time.perf_counter() - at) * 1e3
    return {
        "current_lag_us": round(each_us, 2),
        "lags_us": round(all_us),
        "lag_ms": round(lag_ms, 1),
        "requests": proxy.count("ListOffsets") - asked,
    }


async def run(rounds: int, into: Table) -> None:
    with Cluster(nodes=3) as cluster:
        cluster.create_topic("lag", PARTITIONS)
        async with Proxy(cluster.bootstrap_servers) as proxy:
            settings: dict[str, Any] = {"bootstrap_servers": proxy.bootstrap_servers, "group_id": None}
            async with Consumer("lag", auto_offset_reset="earliest", enable_auto_commit=False, **settings) as consumer:
                for tp in consumer.assignment():
                    await consumer.position(tp)
                await consumer.lag()  # from now on every end offset is known
                for _ in range(rounds):
                    into.row(f"{PARTITIONS} partitions, 3 brokers", "aiogroup").runs.append(
                        await measure(consumer, proxy)
                    )
                    await asyncio.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    told = Table("lag", COLUMNS)
    asyncio.run(run(options.rounds, told))
    print(told.markdown())
    median = told.rows[0].median("current_lag_us")
    print(f"\ncurrent_lag: {median:.2f} us, {'below' if median < GOAL_US else 'NOT below'} {GOAL_US:g} us")
    write(FOLDER / "lag.json", [told])


if __name__ == "__main__":
    main()
