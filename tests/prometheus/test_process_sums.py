"""prometheus-client's multiprocess mode: sums of the partitions of all processes, and nothing stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
PROCESS = """
import asyncio, sys
from aiogroup import Consumer, TopicPartition
from aiogroup.prometheus import Collector

servers, number = sys.argv[1], int(sys.argv[2])

async def main():
    collector = Collector()
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        collector.add("orders", consumer)
        consumer.assign([TopicPartition("orders", number)])
        await consumer.getmany(timeout_ms=1_000, max_records=3)
        await collector.text()
        if number:
            await consumer.getmany(timeout_ms=1_000, max_records=1)
        body, _ = await collector.text()
    await collector.close()
    await Collector().close()
    sys.stdout.write(body.decode())

asyncio.run(main())
"""


SEVERAL = """
import asyncio, sys
from aiogroup import Consumer, TopicPartition
from aiogroup.prometheus import Collector

servers = sys.argv[1]

async def main():
    collectors = Collector(), Collector()
    given = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
    async with Consumer(**given) as first, Consumer(**given) as second, Consumer(**given) as third:
        for name, collector, consumer in zip("abc", (*collectors, collectors[0]), (first, second, third)):
            consumer.assign([TopicPartition("orders", number) for number in range(2)])
            await consumer.getmany(timeout_ms=1_000)
            collector.add(name, consumer)
        await collectors[0].text()
        body, _ = await collectors[1].text()
        sys.stdout.write(body.decode())
        for collector in collectors:
            await collector.close()

asyncio.run(main())
"""


def run(broker, folder, number, process=PROCESS):
    """The process that reads this partition; what it shows of all processes, and what it says."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    command = [sys.executable, "-c", process, broker.bootstrap_servers, str(number)]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    return ended.stdout.encode(), ended.stderr


def test_the_sums_of_two_processes(broker, scraped, tmp_path):
    lag, consumed = "kafka_consumer_fetch_manager_records_lag", "kafka_consumer_fetch_manager_records_consumed_total"
    body, said = run(broker, tmp_path, 0)
    first = scraped(body)
    assert (first(lag), first(consumed)) == (7, 3)
    assert said.count("figures of consumers are sums") == 1
    second = scraped(run(broker, tmp_path, 1)[0])
    # The first one is gone: what it counted stays, and it has no part in what is now.
    assert (second(lag), second(consumed)) == (0, 3 + 4)
    assert second("aiogroup_end_offset") == 4
    assert second("kafka_consumer_coordinator_assigned_partitions") == 1
    assert second("aiogroup_state", state="ready") == 1
    assert second("kafka_consumer_last_poll_seconds_ago") >= 0
    for sample in second.samples:
        assert not sample.labels.keys() & {"topic", "partition", "pid"}, sample
    assert not [each for each in second.samples if each.name.endswith("_bucket")]


def test_consumers_of_one_name_in_one_process_are_all_counted(broker, scraped, tmp_path):
    shown = scraped(run(broker, tmp_path, 0, SEVERAL)[0])
    assigned = shown.all("kafka_consumer_coordinator_assigned_partitions")
    assert [each.value for each in assigned] == [2, 2, 2]
    assert {each.labels["client_id"] for each in assigned} == {"aiogroup", "aiogroup-b", "aiogroup-c"}


def test_what_is_not_known_makes_a_sum_unknown(tmp_path):
    body = subprocess.run(
        [sys.executable, "-c", WRITER],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        timeout=LIMIT_S,
        check=True,
    ).stdout
    assert body.decode().splitlines() == ["3.0 1.0 3.0", "nan -inf 3.0", "0.0 -inf 3.0", "5.0 5.0 8.0"]


WRITER = """
from prometheus_client import CollectorRegistry
from aiogroup.prometheus.process_sums import ProcessSums
from aiogroup.figures.series import Reading
from aiogroup._core.telemetry.counts import Durations
from aiogroup._core.telemetry.figures import Figures, PartitionFigures, TopicCount
from aiogroup._core.telemetry.health import HealthStatus

registry = CollectorRegistry()
sums = ProcessSums(registry)
whose = {"group": "billing", "client_id": "aiogroup"}

def show(*readings):
    sums.write(readings)
    names = ("records_lag", "records_lag_max", "records_consumed_total")
    print(*(registry.get_sample_value(f"kafka_consumer_fetch_manager_{name}", whose) for name in names))

def reading(*lags, count):
    partitions = tuple(PartitionFigures("orders", at, lag, lag, None, 1, 9, 5) for at, lag in enumerate(lags))
    figures = Figures("billing", "aiogroup", HealthStatus.READY, 5, None, {}, {}, Durations(), Durations(),
                      partitions=partitions, topics={"orders": TopicCount(count, 10)})
    return Reading(figures, "aiogroup")

show(reading(1, 1, 1, count=3))
show(reading(None, count=3))
show()
show(reading(5, count=5))
"""
