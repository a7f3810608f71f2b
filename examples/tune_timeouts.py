"""The time-outs of a fleet, tuned by its own event log: a day of rebalances, the advice, and the day again with it.

    pip install 'aiogroup[spark]'    # and Java 17 or 21
    python examples/tune_timeouts.py

Three processes read one topic. Now and then a record takes 90 s, longer than the poll interval allows, and each process
is restarted every hour and is away for longer than the group waits for it. So the group rebalances all day. The broker
lives in this process and its clock is virtual: a day takes about a minute. The analysis is the one for real fleets.
"""

import asyncio
import logging
import os
import sys
import tempfile
from pathlib import Path

from aiogroup import Consumer
from aiogroup.embedded import Broker, run_virtual
from aiogroup.eventlog import EventLog
from aiogroup.spark import make_session
from aiogroup.spark.liveness import advise, as_text, read_events

HOUR_S = 3_600
HOURS = 25
NAMES = ("billing-0", "billing-1", "billing-2")
AWAY_S = 45
RECORD_EVERY_S, SLOW_EVERY = 300, 5
SLOW_S = 90
BEFORE = {
    "session_timeout_ms": 30_000,
    "heartbeat_interval_ms": 10_000,
    "max_poll_interval_ms": 60_000,
}


class Process:
    """One process of the application. Its name is static, so it does not leave the group when it stops."""

    def __init__(self, name, broker, log, charged, settings):
        self._charged = charged
        self._made = {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "billing",
            "group_instance_id": name,
            "client_id": name,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 20_000,
            "observers": [log],
            **settings,
        }

    async def start(self):
        self._consumer = Consumer("orders", **self._made)
        await self._consumer.start()
        self._work = asyncio.create_task(self._charge())

    async def _charge(self):
        """Charge what was not charged before: a record whose handler took too long comes again."""
        while True:
            record = await self._consumer.getone()
            if record.value not in self._charged:
                await asyncio.sleep(SLOW_S if int(record.value) % SLOW_EVERY == 0 else 1)
                self._charged.add(record.value)

    async def stop(self):
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        await self._consumer.stop()


async def a_day(settings, folder):
    """Run the fleet. Returns how often its group rebalanced after it had begun."""
    async with Broker(seed=1) as broker, EventLog(folder, interval_ms=60_000) as log:
        broker.create_topic("orders", 6)
        charged = set()  # the application's database
        fleet = [Process(name, broker, log, charged, settings) for name in NAMES]
        await asyncio.gather(*(each.start() for each in fleet))
        generation = broker.group("billing").generation
        records = asyncio.create_task(produce(broker))
        for _ in range(HOURS):
            await asyncio.sleep(HOUR_S - len(fleet) * (AWAY_S + 60))
            for each in fleet:
                await each.stop()
                await asyncio.sleep(AWAY_S)
                await each.start()
                await asyncio.sleep(60)
        rebalances = broker.group("billing").generation - generation
        records.cancel()
        for each in fleet:
            await each.stop()
    return rebalances


async def produce(broker):
    number = 0
    while True:
        await asyncio.sleep(RECORD_EVERY_S)
        broker.produce("orders", b"%d" % number, partition=number % 6)
        number += 1


def analysed(folder):
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = make_session("local[2]", name="time-outs")
    try:
        return advise(read_events(spark, str(folder)))
    finally:
        spark.stop()


def main():
    logging.getLogger("aiogroup").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        before = run_virtual(a_day(BEFORE, Path(folder)))
        print(f"A day and an hour with {BEFORE}: {before} rebalances.\n", flush=True)
        advice = analysed(folder)
    print(as_text(advice), flush=True)
    changed = {each.setting: each.proposed for each in advice.proposals if each.verdict == "change"}
    with tempfile.TemporaryDirectory() as folder:
        after = run_virtual(a_day(BEFORE | changed, Path(folder)))
    print(f"The same with {changed}: {after} rebalances instead of {before}.")


if __name__ == "__main__":
    main()
