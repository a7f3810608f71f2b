"""The alerts and the dashboard of examples/monitoring ask for what the collector exposes, and each alert fires when it
should: promtool runs it, where the machine has it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from aiogroup import Event, TopicPartition
from aiogroup._core.telemetry import events
from aiogroup.prometheus import Collector
from tests.support.kafka import eventually

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "examples/monitoring"
RULES = [
    rule for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
QUERIES = {rule["alert"]: rule["expr"] for rule in RULES} | {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]
}
SELECTOR = re.compile(r"((?:aiogroup|kafka_consumer)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"')
LEVELS = {"debug", "info", "warning", "error"}
OF_THE_APPLICATION = {"group", "client_id", "topic"}
KNOWN_EVENTS = {
    kind.name.fget(object.__new__(kind))
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}


def of_by(query):
    """The labels of each `by (...)`."""
    return {label.strip() for found in re.findall(r"by \(([^)]*)\)", query) for label in found.split(",")}


@pytest.fixture
async def exposed(make, scraped):
    """For each name that a collector exposes, the values of its labels: of a member that reads both lanes and commits,
    in a service's loop.
    """
    collector = Collector(CollectorRegistry())
    async with make("orders", enable_parallel_rebalance=True) as consumer:
        collector.add("billing", consumer, restarts_count=lambda: 0)
        await consumer.getmany(TopicPartition("orders", 0), timeout_ms=1_000, max_records=7)
        await consumer.commit()
        await eventually(lambda: consumer.metrics()["last_heartbeat_ms_ago"] is not None)
        scrape = scraped((await collector.text(""))[0])
    await collector.close()
    found = {}
    for sample in scrape.samples:
        labels = found.setdefault(sample.name, {})
        for name, value in sample.labels.items():
            labels.setdefault(name, set()).add(value)
    for labels in (each for each in found.values() if "event" in each):
        labels |= {
            "event": KNOWN_EVENTS,
            "level": {"debug", "info", "warning", "error"},
        }  # also of what has not happened
    return found


def unknown_in(query, exposed):
    """The names, labels and values of a query that the collector does not expose."""
    selectors = SELECTOR.findall(query)
    for name, matchers in selectors:
        for label, _, value in MATCHER.findall(matchers):
            values = exposed.get(name, {}).get(label, set())
            wanted = set() if label in OF_THE_APPLICATION else set(value.split("|"))
            if not values or wanted - values:
                yield f"{name}: {label}={value}"
    yield from {name for name, _ in selectors} - exposed.keys()
    yield from of_by(query) - {label for name, _ in selectors for label in exposed.get(name, ())}


@pytest.mark.parametrize("asker", QUERIES)
async def test_what_is_asked_for_is_exposed(exposed, asker):
    assert SELECTOR.findall(QUERIES[asker])
    assert list(unknown_in(QUERIES[asker], exposed)) == []


@pytest.mark.parametrize(
    "query",
    [
        "aiogroup_lags_records",
        "rate(kafka_consumer_records_consumed_total[5m])",
        'aiogroup_state{status="failed"}',
        'aiogroup_state{state=~"failed|poked"} == 1',
        'aiogroup_events_total{event="dead_letter_lost"}',
        'aiogroup_lag_records{lane="catch_up"}',
        "sum by (group, pod) (aiogroup_lag_records)",
        "histogram_quantile(0.9, aiogroup_commit_seconds)",
    ],
)
async def test_what_is_not_exposed_is_seen(exposed, query):
    assert len(list(unknown_in(query, exposed))) == 1


def test_there_are_six_alerts_and_the_page_says_what_to_do_at_each():
    page = (ROOT / "docs/how-to-alerts.md").read_text()
    assert len(RULES) == 6
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_each_panel_says_what_it_shows_and_stands_alone():
    places = [panel["gridPos"] for panel in PANELS]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert all(panel["description"] for panel in PANELS)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


@pytest.mark.parametrize(
    "command", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")], ids=lambda each: each[0]
)
def test_promtool(command):
    """Each alert fires where it should, and not where it should not."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it is in the package prometheus of Debian")
    told = subprocess.run([promtool, *command], cwd=MONITORING, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_each_alert_has_a_test_with_and_without_it():
    tests = [
        each
        for case in yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
        for each in case["alert_rule_test"]
    ]
    for rule in RULES:
        fires = {bool(each.get("exp_alerts")) for each in tests if each["alertname"] == rule["alert"]}
        assert fires == {True, False}, rule["alert"]
