"""Days of real consumers in virtual time, with planted troubles: the advice lies where it must, or says to keep.

Nothing is planted into the log here, as in tests/spark/test_liveness_advice.py: consumers write it while they live
through handlers of known length, deploys of known length and blocked loops, on the embedded broker.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from aiogroup import Consumer, ConsumerStoppedError
from aiogroup._runtime.membership import loop_watchdog
from aiogroup.embedded import Broker, run_virtual
from aiogroup.eventlog import EventLog
from aiogroup.spark.liveness.advice import findings_of
from aiogroup.spark.liveness.episodes import story_of
from aiogroup.spark.liveness.reference import histograms_of, stretches_of

pytestmark = pytest.mark.lengthy

HOUR_S = 3_600
HOURS = 25
NAMES = ("billing-0", "billing-1")
RECORD_EVERY_S = 300
SETTINGS = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 10_000, "max_poll_interval_ms": 60_000}


class Process:
    """One process of the application. With a static name it does not leave the group when it stops."""

    def __init__(self, name, broker, log, slow_s, settings, *, is_static):
        self._slow_s = slow_s
        self._given = {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "billing",
            **({"group_instance_id": name} if is_static else {}),
            "client_id": name,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 25_000,
            "observers": [log],
            **settings,
        }

    async def start(self):
        self._consumer = Consumer("orders", **self._given)
        await self._consumer.start()
        self._work = asyncio.ensure_future(self._read())

    async def _read(self):
        with suppress(ConsumerStoppedError):
            while True:
                record = await self._consumer.getone()
                # A record whose handler took too long comes again: each value is slow once.
                await asyncio.sleep(self._slow_s.pop(record.value, 1))

    async def stop(self):
        await self._consumer.stop()
        await self._work


async def produce(broker):
    for number in range(HOURS * HOUR_S // RECORD_EVERY_S):
        await asyncio.sleep(RECORD_EVERY_S)
        broker.produce("orders", b"%d" % number, partition=number % 4)


async def a_day(folder, settings, *, slow_s=0, away_s=10, blocked_s=0, is_static=True):
    """Every hour: each process is replaced, the loop is blocked once, and one record takes long. Returns how often the
    group rebalanced after it had begun.
    """
    folder.mkdir()
    async with Broker(seed=1) as broker, EventLog(folder, interval_ms=60_000) as log:
        broker.create_topic("orders", 4)
        slow = {b"%d" % number: slow_s for number in range(6, 400, HOUR_S // RECORD_EVERY_S)} if slow_s else {}
        fleet = [Process(name, broker, log, slow, settings, is_static=is_static) for name in NAMES]
        await asyncio.gather(*(each.start() for each in fleet))
        await asyncio.sleep(60)
        generation = broker.group("billing").generation
        records = asyncio.ensure_future(produce(broker))
        for _ in range(HOURS):
            await asyncio.sleep(HOUR_S / 4)
            asyncio.get_running_loop().jump(blocked_s)  # nothing of this process runs meanwhile
            await asyncio.sleep(HOUR_S / 2)
            for each in fleet:
                await each.stop()
                await asyncio.sleep(away_s)
                await each.start()
                await asyncio.sleep(HOUR_S / 8 - away_s)
        rebalances = broker.group("billing").generation - generation
        records.cancel()
        for each in fleet:
            await each.stop()
    return rebalances


def advised(folder):
    """The findings of the reference, which needs no Spark: tests/kafka/test_spark_liveness.py holds the job to it."""
    lines = [json.loads(line) for path in folder.iterdir() for line in path.read_bytes().splitlines()]
    (own,) = stretches_of(lines).values()
    (histograms,) = histograms_of(lines).values()
    return findings_of(story_of("billing", own), histograms)


@pytest.fixture(autouse=True)
def sparse_ticks(monkeypatch):
    """Half of a calm day's work is the watchdog's, which looks four times a second."""
    monkeypatch.setattr(loop_watchdog, "TICK_MS", 5_000)


def test_a_day_of_known_troubles_gets_time_outs_above_them_and_is_calm_with_them(tmp_path):
    troubles = {"slow_s": 90, "away_s": 45, "blocked_s": 40}
    before = run_virtual(a_day(tmp_path / "before", SETTINGS, **troubles))
    assert before >= 4 * HOURS
    findings = advised(tmp_path / "before")
    promised = [(each.gained_least, each.gained_most) for each in findings.proposals]
    there_were = len(findings.story.rebalances) - 1  # the first one began the group
    assert [*map(sum, zip(*promised, strict=True))] == [there_were, there_were]
    assert there_were <= before, "the broker counts a generation without members, too"
    causes = {each.cause for each in findings.story.rebalances}
    assert {"poll_interval_exceeded", "loop_blocked", "left", "returned", "rejoined"} <= causes
    changed = {each.setting: each.proposed for each in findings.proposals if each.verdict == "change"}
    assert changed == {
        "session_timeout_ms": 60_000,
        "max_poll_interval_ms": 120_000,
        "registration_timeout_ms": 90_000,
    }, "each above what was planted"
    assert run_virtual(a_day(tmp_path / "after", SETTINGS | changed, **troubles)) == 0


def test_a_day_without_troubles_keeps_everything(tmp_path):
    settings = {**SETTINGS, "registration_timeout_ms": 30_000}
    assert run_virtual(a_day(tmp_path / "day", settings)) == 0
    told = {each.setting: each.verdict for each in advised(tmp_path / "day").proposals}
    assert told == dict.fromkeys(told, "keep") | {
        "group_instance_id": "not enough",  # everybody has one
        "expansion_timeout_ms": "not enough",  # nobody scaled up
        "parallel_min_backlog": "not enough",  # nobody came back to a backlog
    }


def test_a_day_of_deploys_without_static_names_gets_names_and_is_calm_with_them(tmp_path):
    troubles = {"away_s": 45}
    before = run_virtual(a_day(tmp_path / "before", SETTINGS, is_static=False, **troubles))
    assert before >= 4 * HOURS
    findings = advised(tmp_path / "before")
    told = {each.setting: each for each in findings.proposals if each.verdict == "change"}
    assert {name: each.proposed for name, each in told.items()} == {
        "group_instance_id": None,
        "registration_timeout_ms": 60_000,
    }
    names = told["group_instance_id"]
    assert 0.9 * before <= names.gained_least <= names.gained_most <= before
    settings = SETTINGS | {"registration_timeout_ms": 60_000}
    assert run_virtual(a_day(tmp_path / "after", settings, is_static=True, **troubles)) == 0
