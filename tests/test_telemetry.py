"""Events: their names are log keys, their fields the log's fields, in the words of the design."""

from __future__ import annotations

import dataclasses
import inspect
import io
import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import structlog

from aiogroup import TopicPartition
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.health import Health, HealthStatus, Since
from aiogroup._runtime.telemetry.log import Log

KINDS = [
    each
    for each in vars(events).values()
    if inspect.isclass(each) and issubclass(each, events.Event) and each is not events.Event
]
NAMES = [
    "heartbeat_sent", "heartbeat_acknowledged", "heartbeat_missed", "poll_interval_warning", "poll_interval_exceeded",
    "session_unanswered",
    "rebalance_started", "rebalance_waiting_for_application", "rebalance_completed", "rebalance_failed",
    "event_loop_blocked", "member_removed", "record_redelivered", "new_partition_from_earliest",
]  # fmt: skip


def made(kind):
    values = {"int": 1, "str": "text", "bool": True}
    return kind(**{each.name: values.get(each.type, ()) for each in dataclasses.fields(kind)})


def test_events_of_the_specification_exist():
    assert set(NAMES) - {made(kind).name for kind in KINDS} == set()


def test_names_differ():
    names = [made(kind).name for kind in KINDS]
    assert len(set(names)) == len(names)
    assert all(name.replace("_", "").islower() for name in names)


def test_event_is_a_frozen_value_with_a_level_of_logging():
    for kind in KINDS:
        event = made(kind)
        assert event == made(kind)
        assert kind.LEVEL in ("debug", "info", "warning", "error"), kind
        assert set(event.fields()) == {each.name for each in dataclasses.fields(kind)}
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError, AttributeError)):
            event.anything = 1


def test_numbers_say_their_unit():
    plain = {"generation", "node_id", "partition", "letter_partition", "offset", "position", "leader_epoch"}
    for kind in KINDS:
        for each in dataclasses.fields(kind):
            if each.type == "int":
                known = each.name in plain or each.name.endswith(("_ms", "_count", "_bytes", "_version", "_offset"))
                assert known, f"{kind.__name__}.{each.name}"


def test_event_goes_to_the_log_of_the_standard_library_at_its_level(caplog):
    with caplog.at_level(logging.DEBUG, logger="aiogroup"):
        for kind in KINDS:
            caplog.clear()
            Log("billing", "pod-1").on_event(made(kind))
            (line,) = caplog.records
            assert line.levelname.lower() == made(kind).level, kind
            assert made(kind).name in line.getMessage()
            assert "group='billing'" in line.getMessage()


@pytest.mark.parametrize(("is_expected", "level"), [(True, "info"), (False, "warning")])
@pytest.mark.parametrize("kind", [events.RebalanceFailed, events.CoordinatorLost])
def test_an_error_that_is_expected_is_no_warning_in_the_log(caplog, kind, is_expected, level):
    event = replace(made(kind), is_expected=is_expected)
    with caplog.at_level(logging.DEBUG, logger="aiogroup"):
        Log("billing", "pod-1").on_event(event)
    assert [line.levelname.lower() for line in caplog.records] == [level]


def test_heartbeats_are_not_printed_where_nothing_was_configured(capsys):
    Log("billing", "pod-1").on_event(events.HeartbeatSent(1))
    assert capsys.readouterr() == ("", "")


PAGE = (Path(__file__).parents[1] / "docs/how-to-logging.md").read_text()


@pytest.fixture
def lines():
    """What the JSON formatter of the page makes of what goes to the logger `aiogroup`, from DEBUG on."""
    (block,) = (each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class Json" in each)
    names: dict[str, Any] = {}
    exec(block, names)
    told, handler, log = io.StringIO(), logging.StreamHandler(), logging.getLogger("aiogroup")
    handler.setStream(told)
    handler.setFormatter(names["Json"]())
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in told.getvalue().splitlines()]
    log.removeHandler(handler)
    log.setLevel(level)


def test_a_json_formatter_of_the_standard_library_has_each_field_on_its_own(lines):
    log = Log("billing", "pod-1")
    log.on_event(events.CoordinatorFound(1))
    log.on_event(events.PartitionsLost((TopicPartition("orders", 0),), "fenced"))
    assert lines() == [
        {"time": ANY, "level": "INFO", "logger": "aiogroup", "event": "coordinator_found", "node_id": 1,
         "group": "billing", "client_id": "pod-1"},
        {"time": ANY, "level": "WARNING", "logger": "aiogroup", "event": "partitions_lost",
         "partitions": [["orders", 0]], "why": "fenced", "group": "billing", "client_id": "pod-1"},
    ]  # fmt: skip
    assert json.dumps(lines()[0] | {"time": 1767225600.5}) in " ".join(PAGE.split())


def test_the_json_formatter_keeps_the_message_and_the_traceback_of_other_loggers(lines):
    log = logging.getLogger("aiogroup.application")  # its records reach the same handler
    log.error("cannot handle %s", 5, exc_info=ValueError("no such order"))
    (line,) = lines()
    assert line["message"] == "cannot handle 5"
    assert "ValueError: no such order" in line["exception"]


def test_no_field_of_an_event_hides_one_of_a_log_record(lines):
    for kind in KINDS:
        Log("billing", "pod-1").on_event(made(kind))
    for kind, line in zip(KINDS, lines(), strict=True):
        assert line.keys() == {"time", "level", "logger", "event", "group", "client_id", *made(kind).fields()}, kind
        assert line["event"] == made(kind).name


@pytest.fixture
def structlog_entries():
    """What reaches an application's structlog that filters nothing."""
    seen = []

    def keep(_logger, level, entry):
        seen.append((level, entry))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    yield seen
    structlog.reset_defaults()


def test_applications_structlog_is_used_as_it_is(structlog_entries):
    Log("billing", "pod-1").on_event(events.HeartbeatMissed("closed"))
    ((level, entry),) = structlog_entries
    assert level == "warning"
    assert (entry["event"], entry["logger"]) == ("heartbeat_missed", "aiogroup")
    assert (entry["why"], entry["group"], entry["client_id"]) == ("closed", "billing", "pod-1")


def test_structlog_that_is_configured_after_the_consumer_was_made_is_used(request):
    log = Log("billing", "pod-1")
    entries = request.getfixturevalue("structlog_entries")
    log.on_event(events.HeartbeatMissed("closed"))
    assert len(entries) == 1


@pytest.mark.parametrize(
    ("level", "loud"),
    [
        (logging.NOTSET, {"info", "warning", "error"}),
        (logging.DEBUG, {"debug", "info", "warning", "error"}),
        (logging.WARNING, {"warning", "error"}),
    ],
)
def test_structlog_without_a_filter_hears_what_the_level_of_the_logger_says(structlog_entries, level, loud):
    logger = logging.getLogger("aiogroup")
    before = logger.level
    logger.setLevel(level)
    try:
        for kind in KINDS:
            Log("billing", "pod-1").on_event(made(kind))
    finally:
        logger.setLevel(before)
    assert {level for level, _ in structlog_entries} == loud
    assert len(structlog_entries) == len([kind for kind in KINDS if made(kind).level in loud])


def test_positions_of_one_round_are_one_event_for_each_policy():
    found = {TopicPartition("orders", number): ("latest", 10 + number) for number in (2, 0)}
    found[TopicPartition("orders", 1)] = ("earliest", 0)
    one, other = TopicPartition("orders", 0), TopicPartition("orders", 2)
    assert events.PositionFromPolicy.of_round(found) == [
        events.PositionFromPolicy((TopicPartition("orders", 1),), (0,), "earliest"),
        events.PositionFromPolicy((one, other), (10, 12), "latest"),
    ]
    assert events.PositionFromPolicy.of_round({}) == []


@pytest.mark.parametrize(
    ("status", "is_alive", "is_ready"),
    [
        (HealthStatus.READY, True, True),
        (HealthStatus.DEGRADED, True, True),
        (HealthStatus.CATCHING_UP, True, True),
        (HealthStatus.REBALANCING, True, False),
        (HealthStatus.STARTING, True, False),
        (HealthStatus.FENCED, True, False),
        (HealthStatus.STOPPING, True, False),
        (HealthStatus.JOINING, True, False),
        (HealthStatus.UNREACHABLE, True, False),
        (HealthStatus.PARKED, False, False),
        (HealthStatus.FAILED, False, False),
        (HealthStatus.STOPPED, False, False),
    ],
)
def test_rebalancing_is_alive_and_not_ready(status, is_alive, is_ready):
    health = Health(status, "why", 1, None, None)
    assert (health.is_alive, health.is_ready) == (is_alive, is_ready)


def test_what_is_degraded_in_all_of_its_partitions_is_not_ready():
    health = Health(HealthStatus.DEGRADED, "why", 1, None, None, is_wholly_degraded=True)
    assert (health.is_alive, health.is_ready) == (True, False)


def test_how_long_something_has_been_as_it_is():
    since = Since()
    assert [since.ms(*each) for each in [("a", 5), ("a", 9), ("b", 12), ("b", 12), ("a", 20), ("a", 21)]] == [
        0, 4, 0, 0, 0, 1,
    ]  # fmt: skip
