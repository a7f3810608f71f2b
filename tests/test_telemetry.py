"""Events: their names are log keys, their fields the log's fields, in the words of the design."""

from __future__ import annotations

import dataclasses
import inspect
import logging

import pytest
import structlog

from aiogroup.telemetry import events
from aiogroup.telemetry.health import Health, HealthStatus
from aiogroup.telemetry.log import Log

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


def test_names_are_told_apart():
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
    plain = {"generation", "node_id", "partition", "offset", "position", "leader_epoch"}
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
            assert line.levelname.lower() == kind.LEVEL, kind
            assert made(kind).name in line.getMessage()
            assert "group='billing'" in line.getMessage()


def test_heartbeats_are_not_printed_where_nothing_was_configured(capsys):
    Log("billing", "pod-1").on_event(events.HeartbeatSent(1))
    assert capsys.readouterr() == ("", "")


def test_applications_structlog_is_used_as_it_is():
    seen = []

    def keep(_logger, level, entry):
        seen.append((level, entry))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    try:
        Log("billing", "pod-1").on_event(events.HeartbeatMissed("closed"))
    finally:
        structlog.reset_defaults()
    ((level, entry),) = seen
    assert level == "warning"
    assert entry["event"] == "heartbeat_missed"
    assert (entry["why"], entry["group"], entry["client_id"]) == ("closed", "billing", "pod-1")


@pytest.mark.parametrize(
    ("status", "is_alive", "is_ready"),
    [
        (HealthStatus.READY, True, True),
        (HealthStatus.DEGRADED, True, True),
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
