"""The collector: who is scraped, by whom, and what is absent."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from aiogroup import TopicPartition
from aiogroup.errors import ConfigError
from aiogroup.figures.sources import Source
from aiogroup.prometheus import Collector, exposition
from tests.support.kafka import eventually

LAG = "kafka_consumer_fetch_manager_records_lag"


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
async def collector(registry):
    made = Collector(registry)
    yield made
    await made.close()


async def test_the_figures_are_those_of_the_consumer(make, scraped):
    async with make("orders") as consumer:
        await consumer.getmany(TopicPartition("orders", 0), timeout_ms=1_000, max_records=7)
        await consumer.commit()
        scrape = scraped(await exposition([consumer]))
        lags = consumer.lags()
    whose = {"group": "billing", "client_id": "aiogroup"}
    for tp, lag in lags.items():
        assert scrape(LAG, topic="orders", partition=str(tp.partition), **whose) == lag
    assert (lags[TopicPartition("orders", 0)], scrape(f"{LAG}_max", topic="orders")) == (3, 4)
    assert scrape("aiogroup_lag_records", partition="0", lane="live") == 3
    assert scrape("aiogroup_committed_offset", partition="0") == 7
    assert scrape("aiogroup_end_offset", partition="1") == 4
    assert scrape("kafka_consumer_fetch_manager_records_consumed_total", topic="orders") == 7
    assert scrape("kafka_consumer_coordinator_assigned_partitions") == 2
    assert scrape("kafka_consumer_coordinator_rebalance_total") == 1
    assert scrape("kafka_consumer_coordinator_commit_total") == 1
    assert scrape("aiogroup_commit_seconds_count", outcome="ok") == 1
    assert scrape("aiogroup_commit_seconds_count", outcome="error") == 0
    assert scrape("aiogroup_rebalance_seconds_bucket", reason="joining", le="+Inf") == 1
    assert scrape("aiogroup_events_total", event="offsets_committed", level="debug") == 1
    assert {each.labels["state"] for each in scrape.all("aiogroup_state") if each.value == 1} == {"ready"}
    assert scrape("aiogroup_series_dropped") == 0


async def test_what_is_not_known_is_absent(make, scraped):
    scrape = scraped(await exposition([make("orders")]))
    names = {each.name for each in scrape.samples if not each.name.startswith("aiogroup_loop_blocked")}
    assert names == {"aiogroup_state", "aiogroup_series_dropped"}
    async with make("orders") as consumer:
        scrape = scraped(await exposition([consumer]))
        assert scrape.all("aiogroup_committed_offset") == []
        assert scrape.all("aiogroup_lag_records") == [
            each for each in scrape.all("aiogroup_lag_records") if each.labels["lane"] == "live"
        ]
        assert scrape("kafka_consumer_last_poll_seconds_ago") is None
        assert scrape("aiogroup_restarts_total") is None


async def test_without_a_group_the_label_is_empty_and_its_figures_are_absent(make, scraped):
    async with make(group_id=None) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        await consumer.getmany(timeout_ms=1_000)
        scrape = scraped(await exposition([consumer]))
    assert scrape(LAG, group="", partition="0") == 0
    assert scrape("kafka_consumer_coordinator_heartbeat_total") is None
    assert scrape("aiogroup_commit_seconds_count") is None


async def test_a_thread_that_scrapes_asks_the_loop(make, scraped, collector, registry):
    async with make("orders") as consumer:
        collector.add("billing", consumer)
        await consumer.getmany(timeout_ms=1_000, max_records=4)
        first = scraped(await asyncio.to_thread(generate_latest, registry))
        await consumer.getmany(timeout_ms=1_000, max_records=4)
        second = scraped(await asyncio.to_thread(generate_latest, registry))
    consumed = "kafka_consumer_fetch_manager_records_consumed_total"
    assert (first(consumed), second(consumed)) == (4, 8)


async def test_a_scrape_on_the_loop_has_a_snapshot_of_the_last_second(make, scraped, collector, registry):
    async with make("orders") as consumer:
        collector.add("billing", consumer)
        consumed = "kafka_consumer_fetch_manager_records_consumed_total"
        assert scraped(generate_latest(registry))(consumed) is None
        await consumer.getmany(timeout_ms=1_000, max_records=4)

        def has_news():
            return scraped(generate_latest(registry))(consumed) == 4

        await eventually(has_news, within_s=30)


async def test_a_loop_that_is_blocked_gives_the_last_snapshot(make, scraped, collector, registry):
    async with make("orders") as consumer:
        collector.add("billing", consumer)
        await collector.text()
        bodies = []
        scraping = threading.Thread(target=lambda: bodies.append(generate_latest(registry)))
        scraping.start()
        scraping.join(60)  # this blocks the loop
    assert scraped(bodies[0])("kafka_consumer_coordinator_assigned_partitions") == 2


async def test_a_wall_clock_that_steps_makes_no_snapshot_older(make, monkeypatch):
    source, real = Source("orders", lambda: consumer, None), time.time_ns
    async with make("orders") as consumer:
        await source.take()
        monkeypatch.setattr(time, "time_ns", lambda: real() + 3_600_000_000_000)
        assert source.last is not None


async def test_a_loop_that_is_closed_shows_nothing(make, scraped, collector, registry):
    def run():
        async def add():
            collector.add("elsewhere", make("orders"))
            await collector.text()

        asyncio.run(add())

    await asyncio.to_thread(run)
    assert scraped(await asyncio.to_thread(generate_latest, registry)).samples == []


async def test_a_text_has_the_consumers_of_other_loops(make, scraped, collector):
    added, is_over = threading.Event(), threading.Event()

    def run():
        async def live():
            collector.add("elsewhere", make("orders", client_id="elsewhere"))
            added.set()
            await asyncio.to_thread(is_over.wait, 60)

        asyncio.run(live())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        await asyncio.to_thread(added.wait, 60)
        collector.add("here", make("orders", client_id="here"))
        states = scraped((await collector.text())[0]).all("aiogroup_state")
    finally:
        is_over.set()
        thread.join(60)
    assert {each.labels["client_id"] for each in states} == {"here", "elsewhere"}


async def test_the_collectors_of_a_registry_show_each_family_once(make, scraped, collector, registry):
    other = Collector(registry)
    collector.add("billing", make("orders"))
    for each in ("billing", "audit"):
        other.add(each, make("orders"))
    for body in ((await collector.text())[0], (await other.text())[0], generate_latest(registry)):
        assert body.count(b"# TYPE aiogroup_state ") == 1
        states = scraped(body).all("aiogroup_state")
        assert {each.labels["client_id"] for each in states} == {"aiogroup", "aiogroup-billing", "aiogroup-audit"}
    await other.close()
    assert {each.labels["client_id"] for each in scraped(generate_latest(registry)).all("aiogroup_state")} == {
        "aiogroup"
    }


async def test_between_two_consumers_there_is_nothing(make, scraped, collector):
    consumer = make("orders")
    now = [consumer]
    collector.add("billing", lambda: now[0], restarts_count=lambda: 3)
    assert scraped((await collector.text())[0])("aiogroup_restarts_total", group="billing") == 3
    now[0] = None
    assert scraped((await collector.text())[0]).samples == []


async def test_a_text_takes_one_snapshot(make, collector):
    consumer, asked = make("orders"), []
    collector.add("billing", lambda: asked.append(1) or consumer)
    await collector.text()
    assert len(asked) == 1


async def test_two_consumers_of_one_name_are_two_series(make, scraped, collector):
    collector.add("billing", make("orders"))
    collector.add("audit", make("orders"))
    collector.add("other", make("orders", client_id="other"))
    states = scraped((await collector.text())[0]).all("aiogroup_state")
    assert {each.labels["client_id"] for each in states} == {"aiogroup", "aiogroup-audit", "other"}


async def test_a_consumer_keeps_its_series_while_the_other_of_its_name_is_replaced(make, scraped, collector):
    async with make("orders") as first, make("orders") as second:
        now = {"a": first, "b": second}
        collector.add("a", lambda: now["a"])
        collector.add("b", lambda: now["b"])

        async def shown():
            states = scraped((await collector.text())[0]).all("aiogroup_state")
            return {each.labels["client_id"] for each in states}

        assert await shown() == {"aiogroup", "aiogroup-b"}
        now["a"] = None
        assert await shown() == {"aiogroup-b"}
        now["a"] = make("orders")
        assert await shown() == {"aiogroup", "aiogroup-b"}
        now["b"] = make("orders", client_id="other")
        assert await shown() == {"aiogroup", "other"}
        collector.remove("a")
        now["b"] = make("orders")
        assert await shown() == {"aiogroup"}


async def test_a_consumer_keeps_its_series_when_another_collector_ends(make, scraped, collector, registry):
    last = Collector(registry)
    collector.add("billing", make("orders"))
    last.add("audit", make("orders"))
    for shown in ({"aiogroup", "aiogroup-audit"}, {"aiogroup-audit"}):
        states = scraped((await last.text())[0]).all("aiogroup_state")
        assert {each.labels["client_id"] for each in states} == shown
        await collector.close()


async def test_what_is_removed_is_not_shown(make, scraped, collector, registry):
    collector.add("billing", make("orders"))
    with pytest.raises(ConfigError, match="'billing' already"):
        collector.add("billing", make("orders"))
    collector.remove("billing")
    collector.remove("billing")
    assert scraped((await collector.text())[0]).samples == []


async def test_a_closed_collector_has_left_the_registry(registry):
    await Collector(registry).close()
    assert generate_latest(registry) == b""
    await Collector(registry).close()


async def test_openmetrics_is_spoken_to_who_asks_for_it(make, collector):
    collector.add("billing", make("orders"))
    body, content_type = await collector.text("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert "aiogroup_state" in {each.name for each in openmetrics(body.decode())}
    _, plain = await collector.text()
    assert plain.startswith("text/plain")


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
async def test_who_asks_for_a_version_that_is_no_number_gets_the_plain_text(make, scraped, collector, kind):
    collector.add("billing", make("orders"))
    body, content_type = await collector.text(f"{kind};version=abc")
    assert content_type.startswith("text/plain; version=0.0.4")
    assert scraped(body)("aiogroup_series_dropped") == 0


async def test_the_loop_runs_between_the_steps_of_a_scrape(make, broker):
    broker.create_topic("wide", 1_000)
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with make(group_id=None) as consumer:
        consumer.assign([TopicPartition("wide", number) for number in range(1_000)])
        source = Source("wide", lambda: consumer, None)
        counting = asyncio.ensure_future(count())
        await asyncio.sleep(0)
        before = turns
        await source.take()
        after = turns
        counting.cancel()
    assert after - before >= 4


@pytest.mark.parametrize("most", [0, -1, "many"])
def test_a_bound_is_a_number(most, registry):
    with pytest.raises(ConfigError, match="max_series"):
        Collector(registry, max_series=most)


def test_to_add_needs_a_loop(make, registry):
    with pytest.raises(RuntimeError):
        Collector(registry).add("billing", make("orders"))
