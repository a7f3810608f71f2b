"""What the probes say of each state, under both policies: the table of docs/service.md, row by row. Pure."""

from __future__ import annotations

import pytest

from aiogroup import Health, HealthStatus
from aiogroup.asgi.probes import Look, Snapshot
from aiogroup.asgi.restarts import Restarts

UNREADY_AFTER_MS = 30_000
STATES = [
    # state, since_ms, needs a new process, wholly degraded, not flowing for ms; /livez, assigned, flowing
    ("stopped", 0, False, False, 0, True, False, False),
    ("stopping", 0, False, False, 0, True, False, False),
    ("fenced", 900_000, True, False, 900_000, True, False, False),
    ("failed", 0, False, False, 0, True, False, False),
    ("failed", 0, True, False, 0, False, False, False),
    ("parked", 59_999, False, False, 59_999, True, False, False),
    ("parked", 60_000, False, False, 60_000, False, False, False),
    ("starting", 900_000, False, False, 900_000, True, False, False),
    ("unreachable", 0, False, False, 29_999, True, True, True),
    ("unreachable", 0, False, False, 30_000, True, True, False),
    ("joining", 900_000, False, False, 900_000, True, False, False),
    ("rebalancing", 0, False, False, 29_999, True, True, True),
    ("rebalancing", 0, False, False, 30_000, True, True, False),
    ("paused", 900_000, False, False, 29_999, True, True, True),
    ("paused", 900_000, False, False, 30_000, True, True, False),
    ("catching_up", 900_000, False, False, 0, True, True, True),
    ("degraded", 900_000, False, False, 0, True, True, True),
    ("degraded", 900_000, False, True, 29_999, True, True, True),
    ("degraded", 900_000, False, True, 30_000, True, True, False),
    ("ready", 900_000, False, False, 0, True, True, True),
]


def look(state, since_ms=0, *, needs_new_process=False, wholly=False, not_flowing_ms=0):
    health = Health(HealthStatus(state), "why", 1, None, None, (), wholly, since_ms)
    return Look(health, not_flowing_ms, needs_new_process)


@pytest.mark.parametrize("row", STATES, ids=str)
def test_each_state_has_its_answers(row):
    state, since_ms, needs_new_process, wholly, not_flowing_ms, live, assigned, flowing = row
    it = look(state, since_ms, needs_new_process=needs_new_process, wholly=wholly, not_flowing_ms=not_flowing_ms)
    answers = (it.is_live, *(it.is_ready(ready, UNREADY_AFTER_MS) for ready in ("assigned", "flowing")))
    assert answers == (live, assigned, flowing)


@pytest.mark.parametrize(("since_ms", "live"), [(59_999, True), (60_000, False)])
def test_a_consumer_that_has_failed_while_its_body_hangs_is_as_dead_as_a_parked_one(since_ms, live):
    health = Health(HealthStatus.FAILED, "why", 1, None, None, (), False, since_ms)
    assert Look(health, has_ended=False).is_live is live
    assert Look(health, has_ended=True).is_live


def test_every_state_has_a_row():
    assert [state for state in HealthStatus if state not in {row[0] for row in STATES}] == []


def test_with_0_ms_flowing_fails_at_once():
    assert not look("rebalancing").is_ready("flowing", 0)
    assert look("ready").is_ready("flowing", 0)


def test_of_several_the_worst_is_told_and_each_can_fail_a_probe():
    looks = {"a": look("ready"), "b": look("unreachable", 5), "c": look("unreachable", 9), "d": look("degraded")}
    both = Snapshot(looks, "assigned", UNREADY_AFTER_MS)
    assert (both.worst.status, both.worst.since_ms, both.is_live, both.is_ready) == ("unreachable", 9, True, True)
    dead = look("failed", needs_new_process=True)
    hidden = Snapshot({"a": look("fenced"), "b": dead}, "assigned", UNREADY_AFTER_MS)
    assert (hidden.worst.status, hidden.is_live, hidden.is_ready) == ("fenced", False, False)


def test_loops_that_have_ended_as_they_may_fail_nothing():
    none = Snapshot({}, "flowing", 0)
    assert (none.worst.status, none.is_live, none.is_ready) == ("ready", True, True)


def test_the_states_stand_in_the_order_of_the_table():
    rows = list(dict.fromkeys(row[0] for row in STATES))
    assert list(HealthStatus) == rows


# How long until the next start.


def test_waits_are_doubled_up_to_a_minute():
    restarts, now, waits = Restarts(), 0, []
    for _ in range(9):
        waits.append(restarts.wait_ms(now))
        now += waits[-1]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_a_life_of_ten_minutes_begins_again_at_one_second():
    restarts = Restarts()
    assert [restarts.wait_ms(now) for now in (0, 599_999, 1_199_999)] == [1_000, 2_000, 1_000]


def test_the_fifth_end_within_ten_minutes_is_one_too_many():
    restarts = Restarts()
    for now in (0, 100_000, 200_000, 300_000):
        restarts.wait_ms(now)
        assert not restarts.are_many(now)
    restarts.wait_ms(599_999)
    assert restarts.are_many(599_999)
    assert not restarts.are_many(600_000), "the first of them is forgotten"
