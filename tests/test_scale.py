"""The study of groups at scale: what it counts, on groups so small that the counts are known beforehand."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import warnings

import pytest

from benchmarks import scale, scaling
from benchmarks.scaling import Case, Pace, run_in_virtual_time

LEAVES_SOME = pytest.mark.expected_troubles("left_running")
"""Its members die at the end, if not before, and nobody stops their consumers."""
PACE = Pace(session_s=20.0, heartbeat_s=2.0, back_s=5.0, wave_s=20.0, spread_s=4.0, quiet_s=30.0, record_s=2.0)
LATE_S = 1.0
"""Requests, and the poll of the one who looks."""


@pytest.fixture(autouse=True)
def the_dead():
    """Members that are killed complain, and leave consumers behind that nobody stops."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
    logging.disable(logging.NOTSET)


def cost_of(scenario, **more):
    return run_in_virtual_time(Case(scenario, 4, pace=PACE, **more))


@LEAVES_SOME
def test_a_static_member_that_crashes_costs_its_own_partitions_the_time_until_it_is_back():
    cost = cost_of("crash", is_static=True)
    assert (cost.rebalances, cost.joins) == (0, 1)
    assert cost.standstill_s == pytest.approx(10 * PACE.back_s, abs=10 * LATE_S)
    assert cost.worst_s == pytest.approx(PACE.back_s, abs=LATE_S)


@LEAVES_SOME
def test_a_dynamic_member_that_crashes_holds_up_all_partitions_until_its_session_ends():
    """Whoever comes back begins a round, which waits for the one that died."""
    cost = cost_of("crash")
    assert cost.rebalances == 1
    others_s = 30 * (PACE.session_s - PACE.back_s)
    assert others_s < cost.standstill_s < others_s + 10 * (PACE.session_s + LATE_S)


@LEAVES_SOME
def test_nobody_loses_records_and_each_record_is_counted_once():
    cost = cost_of("quiet")
    assert (cost.rebalances, cost.repeated, cost.standstill_s) == (0, 0, 0.0)
    assert cost.records == 40 * PACE.quiet_s / PACE.record_s
    assert cost.requests > 4 * PACE.quiet_s / PACE.heartbeat_s


@LEAVES_SOME
def test_lost_messages_come_late_and_cost_no_rebalance():
    cost, calm = cost_of("1 % lost"), cost_of("quiet")
    assert cost.rebalances == 0
    assert cost.age_p99_s > 0.2 > calm.age_p99_s


@LEAVES_SOME
def test_the_expansion_timeout_makes_one_round_of_many():
    assert cost_of("scale-up", is_static=True).rebalances > 1
    assert cost_of("scale-up, expansion", is_static=True).rebalances == 1


@LEAVES_SOME
def test_the_seed_decides_all_of_it():
    first, again = (cost_of("rolling restart", protocol="cooperative-sticky", seed=7) for _ in range(2))
    first.cpu_s = again.cpu_s = 0.0
    assert first == again


@LEAVES_SOME
def test_a_case_in_which_the_broker_refuses_something_says_no_figures(monkeypatch):
    """Members that get no connection wait for as long as one looks, and only the figures of the others are told."""
    monkeypatch.setattr(scaling, "LIMIT_S", 60)
    monkeypatch.setattr(scaling, "PROPERTIES", scaling.PROPERTIES | {"max.connections": "20"})
    with pytest.raises(RuntimeError, match="connections"):
        cost_of("start")


@LEAVES_SOME
@pytest.mark.parametrize("scenario", ["crash", "coordinator moves"])
def test_what_members_share_does_not_change_the_figures(monkeypatch, scenario):
    """Answers to Metadata are built and read once for all members of a process."""
    shared = cost_of(scenario)
    monkeypatch.setattr(scaling, "shared_metadata", lambda _cluster: contextlib.nullcontext())
    apart = cost_of(scenario)
    shared.cpu_s = apart.cpu_s = 0.0
    assert shared == apart


def test_a_case_that_the_file_has_is_not_run_again(monkeypatch, tmp_path):
    runs = []

    def run_apart(case):
        runs.append(case["members"])
        return {"seconds": 1, **case, "rebalances": len(runs)} | ({"failed": True} if case["members"] > 10 else {})

    monkeypatch.setattr(scale, "run_apart", run_apart)
    path = tmp_path / "cases"
    todo = list(scale.cases(["start"], [10, 20], [10], ["static"], ["range"]))
    for _ in range(2):
        kept = scale.Kept(path)
        told = [kept.run(case) for case in todo]
    assert runs == [10, 20, 20], "one that failed is run again"
    assert told[0]["rebalances"] == 1
    assert [json.loads(line)["members"] for line in path.read_text().splitlines()] == [10]
