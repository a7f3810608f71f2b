"""The arithmetic of the benchmarks: medians, ratios, percentiles, turns, and what counts as a change."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

import psutil
import pytest

from aiogroup.devkafka.waiting import wait_until
from benchmarks import catching_up, draining, goals, living, recovering, stopping, timeline
from benchmarks import clients as c
from benchmarks.compare import changes, markdown, missing, shown
from benchmarks.flow import has_gaps
from benchmarks.meter import Meter, Ticker, percentile
from benchmarks.results import Table
from benchmarks.turns import measure, rotated, take_turns


def rows(kind="drain", client="aiogroup async for", ratio=5.0, **metrics):
    runs = [dict(zip(metrics, values, strict=True)) for values in zip(*metrics.values(), strict=True)]
    medians = {metric: sorted(values)[len(values) // 2] for metric, values in metrics.items()}
    return [{"kind": kind, "scenario": "s", "client": client, "medians": medians, "ratio": ratio, "runs": runs}]


def clear(old, new):
    return {each.metric: (round(each.percent), each.is_better) for each in changes(old, new) if each.is_clear}


def test_a_change_is_one_of_the_median_beyond_every_run_of_the_other():
    old = rows(records_per_s=(100, 110, 120), late_max_ms=(5, 6, 7))
    assert clear(old, rows(ratio=7.0, records_per_s=(200, 220, 240), late_max_ms=(2, 3, 4))) == {
        "records_per_s": (100, True),
        "late_max_ms": (-50, True),
        "ratio": (40, True),
    }
    assert clear(old, rows(ratio=4.0, records_per_s=(50, 55, 60), late_max_ms=(10, 12, 14))) == {
        "records_per_s": (-50, False),
        "late_max_ms": (100, False),
        "ratio": (-20, False),
    }


def test_runs_that_overlap_and_small_differences_are_noise():
    old = rows(records_per_s=(100, 110, 120))
    assert clear(old, rows(ratio=9.0, records_per_s=(120, 150, 160))) == {}
    assert clear(rows(records_per_s=(100, 101, 102)), rows(ratio=9.0, records_per_s=(103, 104, 105))) == {}


def test_few_runs_say_little():
    assert clear(rows(late_max_ms=(10, 10)), rows(late_max_ms=(14, 14))) == {}
    assert clear(rows(late_max_ms=(10, 10)), rows(late_max_ms=(20, 20))) == {"late_max_ms": (100, False)}


def test_circumstances_are_no_results():
    assert clear(rows(load=(1, 1, 1), others_cores=(0, 0, 0)), rows(load=(9, 9, 9), others_cores=(2, 2, 2))) == {}


def test_a_metric_that_was_nothing_changes_without_a_percentage():
    [change, _] = changes(rows(late_max_ms=(0, 0, 0)), rows(late_max_ms=(3, 3, 3)))
    assert change.is_clear
    assert not change.is_better
    assert "| 0 | 3 | - | worse |" in markdown([change])


def test_what_only_one_of_the_two_has_is_named():
    old, new = rows(records_per_s=(1,)), rows(client="floor", records_per_s=(1,))
    assert missing(old, new) == ([("drain", "s", "aiogroup async for")], [("drain", "s", "floor")])
    assert list(changes(old, new)) == []


def test_ratios_are_those_of_medians():
    table = Table("drain", (("records_per_s", "records/s", "median"), ("late", "late", "worst")), "a", "records_per_s")
    for client, rates in {"a": (10, 30, 20), "b": (50, 10, 90)}.items():
        table.row("s", client).runs += [{"records_per_s": rate, "late": rate} for rate in rates]
    assert table.ratio(table.row("s", "b")) == pytest.approx(2.5)
    assert table.markdown().splitlines()[-1] == "| s | b | 50 | 2.5 | 90 |"


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles_are_values_that_were_measured(share, expected):
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_a_high_percentile_of_a_few_values_is_the_highest():
    assert percentile([1, 3, 2], 0.99) == 3


def test_the_percentile_of_nothing_is_nothing():
    assert percentile([], 0.99) == 0


async def test_a_loop_that_is_held_from_the_start_is_a_late_tick():
    loop, ticker = asyncio.get_running_loop(), Ticker()
    ticker.start()
    until = loop.time() + 0.03
    while loop.time() < until:
        pass
    await ticker.stop()
    assert ticker.result()["late_max_ms"] >= 20
    assert 0 <= ticker.result()["late_own_ms"] <= ticker.result()["late_max_ms"]


async def test_a_drain_is_measured_from_the_end_of_the_first_batch_to_the_last_record():
    meter = Meter(1_000, has_loop=False)
    assert meter.reached(400, 40_000) == 1_000
    assert meter.reached(999, 99_900) == 1_000
    assert meter.reached(1_000, 100_000) == 0
    assert (meter.count, meter.size) == (1_000, 100_000)
    result = await meter.result()
    assert result["records"] == 1_000
    assert "late_max_ms" not in result


async def test_a_first_batch_that_is_everything_measures_nothing():
    meter = Meter(500, has_loop=False)
    assert meter.reached(500, 50_000) == 0
    with pytest.raises(SystemExit, match="take more records"):
        await meter.result()


def test_each_round_begins_with_the_next_client():
    assert [client for _, client in rotated("abc", 4)] == list("abcbcacababc")


def test_the_first_run_on_a_topic_is_not_counted():
    runs = []

    def run(client):
        runs.append(client)
        return {"number": len(runs)}

    assert [each["number"] for _, each in take_turns("ab", 1, run)] == [2, 3]


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (1_234_567.8, "1,234,568"), (3.14159, "3.14"), (0, "0")])
def test_numbers_are_shown_with_what_can_be_trusted(value, text):
    assert shown(value) == text


def test_a_flow_without_gaps_is_one_stretch_of_each_partition():
    assert not has_gaps([4, 7, 5, 10, 8], 3)
    assert not has_gaps([], 3)
    for broken in ([4, 10], [4, 4, 7], [7, 4]):
        assert has_gaps(broken, 3)


def drained(**rates):
    """A drain table with one run of each client, in the scenarios of 4 and 80 partitions."""
    table = draining.table()
    for client, rate in rates.items():
        for partitions in (4, 80):
            run = {"records_per_s": rate, "late_max_ms": 9.0, "late_p99_ms": 1.0}
            table.row(draining.name(partitions), getattr(c, client)).runs.append(run)
    return table


def verdict(start, *tables):
    [goal] = [goal for goal in goals.judged(tables) if goal.text.startswith(start)]
    return goal.held, "; ".join(part.told for part in goal.parts)


@pytest.mark.parametrize(("rate", "held"), [(500, True), (499, False)])
def test_a_goal_is_held_when_every_part_of_it_is(rate, held):
    assert verdict("`async for`, 100 B", drained(FOR=rate, AIOKAFKA_FOR=100, AIO_CONSUMER=400))[0] is held
    assert verdict("`async for`, 100 B", drained(FOR=rate, AIOKAFKA_FOR=90, AIO_CONSUMER=500))[0] is held


@pytest.mark.parametrize(("percent", "held"), [(30, True), (31, False)])
def test_the_cost_of_records_that_come_one_by_one_is_a_goal(percent, held):
    table = living.flow_table()
    for client, share in ((c.FOR, percent), (c.AIOKAFKA_FOR, 40)):
        table.row(living.FLOW, client).runs.append({"cpu_percent": share})
    assert verdict("CPU at 1000 msg/s", table)[0] is held


@pytest.mark.parametrize(("ours", "held"), [(0.8, True), (0.81, False)])
def test_the_median_age_and_the_median_commit_are_goals(ours, held):
    flow, commit = living.flow_table(), living.commit_table()
    for client, p50_ms in ((c.FOR, 0.5), (c.AIOKAFKA_FOR, 0.5), (c.MANY, ours), (c.AIOKAFKA_MANY, 0.8)):
        flow.row(living.FLOW, client).runs.append({"p50_ms": p50_ms})
        commit.row(living.COMMIT, client).runs.append({"p50_ms": p50_ms})
    assert verdict("end-to-end latency p50", flow)[0] is held
    assert verdict("commit of what was just read, p50", commit)[0] is held


def test_a_goal_of_which_a_part_was_not_measured_is_not_held_but_can_be_missed():
    assert verdict("`async for`, 100 B", drained(FOR=500, AIOKAFKA_FOR=100))[0] is None
    assert verdict("`async for`, 100 B", drained(FOR=100, AIOKAFKA_FOR=100))[0] is False
    assert {goal.held for goal in goals.judged([])} == {None}


def test_a_run_that_failed_is_reported_and_of_our_own_a_goal_that_is_missed():
    table = Table("drain", (("records_per_s", "records/s", "median"),), c.AIOKAFKA_FOR, "records_per_s")
    for client in (c.AIOKAFKA_FOR, c.FOR):
        table.row("s", client).runs += [{"failed": "no end in 150 s"}, {"records_per_s": 20}]
    assert table.ratio(table.row("s", c.FOR)) == 1
    assert "s, aiokafka async for: a run failed: no end in 150 s" in table.markdown()
    assert [row["medians"] for row in table.told()] == [{"records_per_s": 20}] * 2
    [goal] = [goal for goal in goals.judged([table]) if "every run" in goal.text]
    assert goal.held is False
    assert [part.told for part in goal.parts] == ["s, aiogroup async for: 1 failed"]
    table.row("s", c.FOR).runs[0] = {"records_per_s": 10}
    [goal] = [goal for goal in goals.judged([table]) if "every run" in goal.text]
    assert goal.held


def test_a_process_that_fails_or_does_not_end_measured_nothing_else():
    assert "invalid choice: 'nobody'" in measure("drain", "nobody")["failed"]
    assert measure("drain", c.FOR, limit_s=0.001) == {"failed": "no end in 0 s"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_run_under_way_ends_with_who_is_ended(number):
    command = [sys.executable, "-m", "benchmarks", "--parts", "machine"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        runs = psutil.Process(process.pid).children
        wait_until(runs, 20_000, lambda: "a run")
        [run] = runs()
        process.send_signal(number)
        assert process.wait(60) == 130
        wait_until(lambda: not run.is_running() or run.status() == psutil.STATUS_ZOMBIE, 60_000, lambda: "its end")


def test_the_highest_tick_stands_for_all_and_missing_scenarios_are_counted():
    def ours(how):
        ticks = [goal for goal in goals.judged([table]) if goal.text.endswith(c.FOR) and "latest tick" in goal.text]
        return next(goal for goal in ticks if how in goal.text)

    table = drained(FOR=1)
    for how in ("worst", "median"):
        told = [part.told for part in ours(how).parts]
        assert told == ["9 ms (100 B, 80 partitions)", "6 of 8 scenarios not measured"]
    table.row(draining.name(4), c.FOR).runs += [{"late_max_ms": 9}, {"late_max_ms": 10.1}]
    assert ours("worst").held is False
    assert ours("median").held is None  # nothing against it so far
    table.row(draining.name(4), c.FOR).runs += [{"late_max_ms": 10.1}] * 2
    assert ours("median").held is False


def test_the_slowest_stop_of_all_rounds_is_judged():
    table = stopping.table()
    for state in ("frozen", "killed"):
        table.row(stopping.scenario(state), c.MANY).runs.append({"took_ms": 2_000})
    assert verdict("stop(", table)[0] is True
    table.row(stopping.scenario("frozen"), c.MANY).runs.append({"took_ms": 2_101})
    assert verdict("stop(", table)[0] is False


S = 1_000_000_000


class Came:
    def __init__(self, value, lane="live"):
        self.value, self.lane = value, lane


def watched(*, flow, backlog_at_s=(1.0, 2.0), lane=lambda number: "live"):
    """A watch that was assigned at 100 s; `flow` is when each record was made and came, in seconds since then."""
    watch, now = catching_up.Watch(), [0.0]
    watch.assigned_at_ns = 100 * S
    came = [(came_at, Came(catching_up.STAMP.pack(n, round((100 + made) * S)), lane(n))) for n, (made, came_at) in flow]
    came += [(at, Came(b"{...")) for at in backlog_at_s]
    clock = pytest.MonkeyPatch()
    clock.setattr(catching_up.time, "monotonic_ns", lambda: round((100 + now[0]) * S))
    try:
        for at, record in sorted(came, key=lambda each: each[0]):
            now[0] = at
            watch.take([record])
    finally:
        clock.undo()
    return watch


def test_what_was_made_before_the_assignment_is_backlog_and_the_rest_is_live():
    flow = [(0, (-1.0, 3.0)), (1, (0.5, 0.51)), (2, (2.5, 2.52)), (3, (5.5, 5.53))]
    result = watched(flow=list(flow)).result(2, 1)
    assert result["first_live_ms"] == pytest.approx(510)
    assert result["catch_up_s"] == 3.0  # the oldest of the flow came last of the backlog
    assert result["catch_up_per_s"] == 1
    assert (result["live_p50_ms"], result["live_p99_ms"], result["live_count"]) == (10, 20, 2)
    assert result["steady_p99_ms"] == 30
    assert result["positions"] == [(1000, 1), (2000, 2), (3000, 2)]
    assert result["ages"] == [(500, 10), (2500, 20), (5500, 30)]


def test_a_fresh_record_that_the_catch_up_lane_brought_is_counted_and_has_no_age():
    flow = [(0, (0.1, 1.9)), (1, (0.5, 0.51)), (2, (5.5, 5.53))]
    result = watched(flow=flow, lane=lambda n: "live" if n else "catch-up").result(2, 1)
    assert (result["behind_count"], result["live_count"], result["live_p99_ms"]) == (1, 1, 10)


@pytest.mark.parametrize(
    ("count", "flow", "why"),
    [
        (3, [(0, (0.1, 0.2))], "2 records of the backlog came, not 3"),
        (2, [(0, (0.1, 0.2)), (2, (0.3, 0.4))], "missing or repeated"),
        (2, [(0, (0.1, 0.2)), (0, (0.1, 0.3))], "missing or repeated"),
        (2, [(0, (4.5, 4.6))], "take more records"),
        (2, [(0, (0.5, 0.6))], "take more seconds"),
    ],
)
def test_a_catch_up_that_was_not_complete_measured_nothing(count, flow, why):
    with pytest.raises(SystemExit, match=why):
        watched(flow=flow).result(count, 1)


def recovered(first_live_ms=5.0, live_p99_ms=20.0, per_s=50):
    table, beside = recovering.tables()
    mode = {"first_live_ms": first_live_ms, "live_p99_ms": live_p99_ms, "steady_p99_ms": 10.0, "catch_up_per_s": per_s}
    for way in ("", recovering.LOOP):
        table.row(recovering.READ, catching_up.TWO_LANES + way).runs.append(mode)
        table.row(recovering.READ, catching_up.PLAIN + way).runs.append(mode | {"catch_up_per_s": 100})
    table.row(recovering.WORK, catching_up.TWO_LANES).runs.append(mode)
    for clients, rate in ((recovering.OFF, 100), (recovering.ON, 98)):
        for client in clients:
            beside.row(recovering.DRAIN, client).runs.append({"records_per_s": rate})
    return [goal.held for goal in recovering.judged([table, beside])]


def test_the_goals_of_recovery_are_judged_one_by_one():
    assert recovered() == [True, True, True, True]
    assert recovered(first_live_ms=1_001) == [False, True, True, True]
    assert recovered(live_p99_ms=20.1) == [True, False, True, True]
    assert recovered(per_s=49) == [True, True, False, True]
    assert [goal.held for goal in recovering.judged(recovering.tables())] == [None] * 4


def test_the_picture_of_a_recovery_is_the_one_of_its_data():
    """`python -m benchmarks.timeline` draws it again."""
    data = json.loads(timeline.DATA.read_text())
    assert timeline.PICTURE.read_text() == timeline.drawn(data)
    assert {catching_up.PLAIN, catching_up.TWO_LANES, catching_up.AIOKAFKA} <= set(data["runs"])


def test_of_each_client_the_run_of_the_median_catch_up_is_drawn():
    def run(seconds):
        positions = [[at, at] for at in range(11)]
        return {"first_live_ms": 1, "catch_up_s": seconds, "positions": positions, "ages": [[0, 1.0], [90_000, 1.0]]}

    row = {
        "kind": "recover",
        "scenario": recovering.WORK,
        "client": catching_up.PLAIN,
        "runs": [run(9), run(2), run(5)],
    }
    other = row | {"scenario": recovering.READ, "runs": [run(1)]}
    data = timeline.taken({"records": 10, "rows": [row, other]})
    assert data["until_s"] == 9.0
    assert data["runs"] == {
        catching_up.PLAIN: {
            "first_live_ms": 1,
            "catch_up_s": 5,
            "positions": [[0, 0], [5, 5], [10, 10]],
            "ages": [[0, 1.0]],
        }
    }
