"""What the members of a planted group lived through is told as it was: causes, times, clocks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup.spark.liveness.buckets import Bucket, above, edges, greatest, merge, quantile
from aiogroup.spark.liveness.episodes import story_of
from aiogroup.spark.liveness.reference import histograms_of, stretches_of
from tests.support.fleets import SETTINGS, Fleet, bucket_of, histogram


def story(fleet):
    return story_of(fleet.group, stretches_of(fleet.lines)[fleet.group])


def three(ahead=(0, 0, 0), **settings):
    """A group of three that is at work from 1,000 s on, and then a minute of samples."""
    fleet = Fleet(settings=settings)
    members = [fleet.member(name, ahead_ms=each) for name, each in zip("abc", ahead, strict=True)]
    fleet.rebalance(1_000_000, members)
    fleet.quiet(1_001_000, 1_061_000, members)
    return fleet, members


def causes(fleet):
    return [(each.cause, each.caused_by.partition("@")[0]) for each in story(fleet).rebalances]


def test_a_member_that_stops_leaves_and_the_others_rebalance():
    fleet, (a, b, c) = three()
    c.stop(1_062_000)
    fleet.rebalance(1_062_010, [a, b])
    fleet.quiet(1_063_000, 1_200_000, [a, b])
    assert causes(fleet) == [("joined", "app-a"), ("left", "app-c")]
    assert [(each.member[:5], each.cause) for each in story(fleet).of("life")] == [
        ("app-a", "open"), ("app-b", "open"), ("app-c", "stop"),
    ]  # fmt: skip


def test_a_member_that_falls_silent_has_crashed():
    fleet, (a, b, _) = three()
    fleet.quiet(1_061_000, 1_300_000, [a, b])
    fleet.rebalance(1_066_000, [a, b])
    assert causes(fleet)[1] == ("crashed", "app-c")
    lives = {each.member[:5]: each for each in story(fleet).of("life")}
    assert (lives["app-c"].cause, lives["app-c"].ended_at_ms) == ("silence", 1_051_000)


def test_a_member_that_only_the_logs_end_cuts_off_is_open():
    fleet, _ = three()
    assert {each.cause for each in story(fleet).of("life")} == {"open"}


def slow_handler(fleet, members):
    a, b, c = members
    c.tell(1_070_000, "poll_interval_exceeded", partitions=["orders-0"], max_poll_interval_ms=5_000,
           broker_acts_within_ms=0)  # fmt: skip
    fleet.rebalance(1_070_010, [a, b])
    fleet.rebalance(1_080_000, [a, b, c], whys={c.client_id: "asks for records again"})
    fleet.quiet(1_081_000, 1_200_000, members)


def test_an_exceeded_poll_interval_costs_two_rebalances():
    fleet, members = three()
    slow_handler(fleet, members)
    assert causes(fleet)[1:] == [("poll_interval_exceeded", "app-c"), ("rejoined", "app-c")]
    (expiry,) = story(fleet).of("poll_interval_exceeded")
    assert (expiry.cause, expiry.duration_ms, expiry.amount) == ("slow", 10_400, 5_000)


def test_a_handler_that_never_comes_back_hung():
    fleet, (a, b, c) = three()
    c.tell(1_070_000, "poll_interval_exceeded", partitions=["orders-0"], max_poll_interval_ms=5_000,
           broker_acts_within_ms=0)  # fmt: skip
    fleet.rebalance(1_070_010, [a, b])
    fleet.quiet(1_081_000, 1_200_000, [a, b, c])
    (expiry,) = story(fleet).of("poll_interval_exceeded")
    assert (expiry.cause, expiry.duration_ms) == ("hung", None)


@pytest.mark.parametrize(("blocked_ms", "cause"), [(12_000, "loop_blocked"), (4_000, "session_expired")])
def test_a_loop_that_was_blocked_is_why_its_member_was_removed(blocked_ms, cause):
    fleet, (a, b, c) = three()
    fleet.rebalance(1_072_000, [a, b])
    c.tell(1_074_000, "event_loop_blocked", blocked_ms=blocked_ms, session_timeout_ms=10_000)
    c.tell(1_074_001, "member_removed", why="HEARTBEAT: UNKNOWN_MEMBER_ID")
    fleet.rebalance(1_074_010, [a, b, c], whys={c.client_id: "HEARTBEAT: UNKNOWN_MEMBER_ID"})
    fleet.quiet(1_081_000, 1_200_000, [a, b, c])
    assert causes(fleet)[1:] == [(cause, "app-c"), ("rejoined", "app-c")]
    (blocked,) = story(fleet).of("loop_blocked")
    assert (blocked.started_at_ms, blocked.ended_at_ms) == (1_074_000 - blocked_ms, 1_074_000)


def pause(member, at, paused_ms, blocked_ms=None):
    """As it is told by a process that goes on: its writer's thread was late, too."""
    member.tell(at, "process_stood_still", stood_still_ms=paused_ms)
    member.tell(at, "event_loop_blocked", blocked_ms=blocked_ms or paused_ms + 200, session_timeout_ms=10_000)


@pytest.mark.parametrize(("paused_ms", "cause"), [(12_000, "process_paused"), (4_000, "session_expired")])
def test_a_process_that_stood_still_had_no_loop_that_was_blocked(paused_ms, cause):
    fleet, (a, b, c) = three()
    fleet.rebalance(1_072_000, [a, b])
    pause(c, 1_074_000, paused_ms)
    c.tell(1_074_001, "member_removed", why="HEARTBEAT: UNKNOWN_MEMBER_ID")
    fleet.rebalance(1_074_010, [a, b, c], whys={c.client_id: "HEARTBEAT: UNKNOWN_MEMBER_ID"})
    fleet.quiet(1_081_000, 1_200_000, [a, b, c])
    assert causes(fleet)[1:] == [(cause, "app-c"), ("rejoined", "app-c")]
    (paused,) = story(fleet).of("process_paused")
    assert (paused.started_at_ms, paused.ended_at_ms) == (1_074_000 - paused_ms, 1_074_000)
    assert story(fleet).of("loop_blocked") == []


def test_a_pause_does_not_excuse_a_loop_that_was_blocked_at_another_time():
    fleet, (a, b, c) = three()
    pause(c, 1_065_000, 3_000)
    fleet.rebalance(1_072_000, [a, b])
    c.tell(1_084_000, "event_loop_blocked", blocked_ms=12_000, session_timeout_ms=10_000)
    c.tell(1_084_001, "member_removed", why="HEARTBEAT: UNKNOWN_MEMBER_ID")
    fleet.rebalance(1_084_010, [a, b, c])
    fleet.quiet(1_085_000, 1_200_000, [a, b, c])
    assert causes(fleet)[1:] == [("loop_blocked", "app-c"), ("rejoined", "app-c")]
    assert [each.duration_ms for each in story(fleet).of("loop_blocked")] == [12_000]


@pytest.mark.parametrize(("paused_ms", "cause"), [(310_000, "process_paused"), (12_000, "poll_interval_exceeded")])
def test_an_application_that_stood_still_with_its_process_did_not_ask_too_late(paused_ms, cause):
    fleet, (a, b, c) = three()
    fleet.rebalance(1_072_000, [a, b])
    pause(c, 1_380_000, paused_ms)
    c.tell(1_380_001, "poll_interval_exceeded", partitions=["orders-0"], max_poll_interval_ms=300_000,
           broker_acts_within_ms=0)  # fmt: skip
    fleet.rebalance(1_380_010, [a, b, c])
    fleet.quiet(1_073_000, 1_500_000, [a, b])
    assert causes(fleet)[1:] == [(cause, "app-c"), ("rejoined", "app-c")]
    assert [each.cause for each in story(fleet).of("life")] == ["open", "open", "silence"], "one life of each"


def test_a_removed_member_that_comes_back_into_the_same_round_is_its_cause():
    fleet, members = three()
    members[2].tell(1_074_001, "member_removed", why="HEARTBEAT: UNKNOWN_MEMBER_ID")
    fleet.rebalance(1_074_010, members)
    assert causes(fleet)[1] == ("session_expired", "app-c")


def test_a_reason_of_its_own_is_what_asked_for_a_rebalance():
    fleet, (a, b, c) = three()
    fleet.rebalance(1_074_010, [a, b, c], whys={b.client_id: "topic orders has new partitions"})
    assert causes(fleet)[1] == ("asked", "app-b")
    assert story(fleet).rebalances[1].why == "topic orders has new partitions"


def test_where_the_log_has_the_reason_as_a_word_the_prose_does_not_count():
    fleet, (a, b, c) = three()
    whys = {a.client_id: "follows", b.client_id: "the group rebalances, says the application"}
    fleet.rebalance(1_074_010, [a, b, c], whys=whys, reasons={b.client_id: "other"})
    assert causes(fleet)[1] == ("asked", "app-b")
    assert story(fleet).rebalances[1].why == "the group rebalances, says the application"


def test_who_came_last_and_how_long_each_waited():
    fleet, members = three()
    fleet.rebalance(1_074_000, members, waits={"app-b": 20_000, "app-c": 500})
    found = story(fleet).rebalances[1]
    assert found.last_member.startswith("app-b")
    assert {name[:5]: ms for name, ms in found.waited_ms.items()} == {"app-a": 0, "app-b": 20_000, "app-c": 500}
    assert (found.longest_wait_ms, found.duration_ms) == (20_000, 20_400)
    assert found.standstill_ms == 2 * (20_400 + 400 + 19_900)


def test_a_hand_over_that_was_given_up_is_no_wait_of_the_next_rebalance():
    fleet, (a, b, c) = three()
    c.start(1_069_000, 1)
    slow_handler(fleet, (a, b, c))
    assert max(story(fleet).rebalances[-1].waited_ms.values()) == 0


@pytest.mark.parametrize("way", ["every_event", "samples"])
def test_a_static_members_absence_is_from_the_last_heard_of_it_to_the_first(way):
    fleet = Fleet()
    a, b = (fleet.member(name, settings={"group_instance_id": f"name-{name}"}) for name in "ab")
    fleet.rebalance(1_000_000, [a, b])
    fleet.quiet(1_001_000, 1_041_000, [a, b])
    if way == "every_event":
        b.tell(1_041_000, "heartbeat_acknowledged", generation=1, latency_ms=2)
    else:  # the sample before the end
        b.tell(1_042_000, "sample", settings=SETTINGS, histograms={}, since_heartbeat_ms=1_000)
    b.stop(1_042_000)
    successor = fleet.member("b", pid=2, settings={"group_instance_id": "name-b"})
    successor.start(1_070_000, -1)
    successor.complete(1_071_000, 1, 1_000)  # the same generation: nobody rebalanced
    fleet.quiet(1_072_000, 1_172_000, [a, successor])
    (absence,) = story(fleet).of("static_absence")
    assert (absence.instance, absence.duration_ms) == ("name-b", 30_000)
    assert len(story(fleet).rebalances) == 1


def test_a_silent_coordinator_lasts_until_one_is_found_unless_it_was_expected():
    fleet, (a, _, c) = three()
    a.tell(1_062_000, "coordinator_lost", node_id=1, why="no answer", is_expected=False)
    a.tell(1_069_000, "coordinator_found", node_id=2)
    c.tell(1_062_000, "coordinator_lost", node_id=1, why="NOT_COORDINATOR", is_expected=True)
    (silent,) = story(fleet).of("silent_coordinator")
    assert (silent.member[:5], silent.duration_ms, silent.cause) == ("app-a", 7_000, "no answer")


def test_a_catch_up_has_its_backlog_and_its_time():
    fleet, (a, *_) = three()
    for partition in (0, 1):
        a.tell(1_062_000, "catch_up_started", topic="orders", partition=partition, records_count=5_000, token_id="t")
    a.tell(1_069_000, "catch_up_done", topic="orders", partition=1, duration_ms=7_000)
    told = {each.cause: (each.amount, each.duration_ms) for each in story(fleet).of("catch_up")}
    assert told == {"orders-0": (5_000, None), "orders-1": (5_000, 7_000)}


@pytest.mark.parametrize("ahead", [(0, 0, 0), (0, 7_000, 0), (-120_000, 0, 90_000)])
def test_clocks_that_differ_are_told_and_change_no_cause(ahead):
    fleet, members = three(ahead)
    slow_handler(fleet, members)
    found = story(fleet)
    assert [each.cause for each in found.rebalances] == ["joined", "poll_interval_exceeded", "rejoined"]
    told = {each.host[-1]: each.ahead_ms for each in found.skews}
    assert [told[name] - told["a"] for name in "abc"] == [each - ahead[0] for each in ahead]
    assert all(each.duration_ms == 400 for each in found.rebalances)


def test_a_new_process_under_the_same_number_is_another_life():
    fleet, (a, b, _) = three()
    again = fleet.member("c")  # the same client id, host and process number
    again.start(1_080_000, -1)
    fleet.rebalance(1_080_010, [a, b, again], whys={"app-c": "joining"})
    fleet.quiet(1_081_000, 1_200_000, [a, b, again])
    assert len([each for each in story(fleet).of("life") if each.member == "app-c@host-c:1"]) == 2


def fail(member, at, why, until=None, **more):
    """As a consumer tells it: why, then what it lost, then samples until its application stops it or is killed."""
    member.tell(at, "member_failed", why=why, **more)
    member.tell(at + 1, "partitions_lost", partitions=["orders-0"], why=why)
    member.fleet.quiet(at + 5_000, until or at + 65_000, [member])


def test_a_fenced_member_has_one_life_and_its_name_is_away_only_between_two_processes():
    fleet = Fleet()
    a, b, c = (fleet.member("a", host=f"host-{n}", pid=n, settings={"group_instance_id": "name-a"}) for n in (1, 2, 3))
    fleet.rebalance(1_000_000, [a])
    fleet.quiet(1_001_000, 1_039_000, [a])
    a.tell(1_039_900, "heartbeat_acknowledged", generation=1, latency_ms=2)
    b.start(1_040_000, -1)
    b.complete(1_041_000, 1, 1_000)
    fail(a, 1_041_500, "another process uses group_instance_id='name-a' now")
    a.stop(1_107_000)
    fleet.quiet(1_042_000, 1_122_000, [b])
    lives = [(each.host, each.cause, each.ended_at_ms) for each in story(fleet).of("life")]
    assert lives == [("host-1", "fenced", 1_041_500), ("host-2", "open", None)]
    assert [each.duration_ms for each in story(fleet).of("static_absence")] == [1_100]  # the take-over
    b.tell(1_121_900, "heartbeat_acknowledged", generation=1, latency_ms=2)
    b.stop(1_122_000)
    c.start(1_150_000, -1)
    c.complete(1_151_000, 1, 1_000)
    fleet.quiet(1_152_000, 1_172_000, [c])
    absence = story(fleet).of("static_absence")[-1]
    assert (absence.host, absence.started_at_ms, absence.ended_at_ms) == ("host-2", 1_121_900, 1_151_000)


@pytest.mark.parametrize(
    ("error", "why", "end"),
    [
        ("FencedInstanceIdError", "somebody has the name", "fenced"),
        ("GroupAuthorizationError", "group_instance_id='name-a' may not join", "failed"),
    ],
)
def test_who_was_fenced_is_told_by_the_type_of_the_error_where_the_log_has_it(error, why, end):
    fleet = Fleet()
    a = fleet.member("a", settings={"group_instance_id": "name-a"})
    fleet.rebalance(1_000_000, [a])
    fail(a, 1_041_500, why, error=error)
    assert [each.cause for each in story(fleet).of("life")] == [end]


def test_a_member_that_failed_and_is_killed_later_did_not_crash():
    fleet, (a, b, c) = three()
    fail(c, 1_062_000, "not authorized to read group 'billing'", until=1_120_000)
    fleet.rebalance(1_062_010, [a, b])
    fleet.quiet(1_063_000, 1_300_000, [a, b])
    assert causes(fleet) == [("joined", "app-a"), ("failed", "app-c")]
    (life,) = (each for each in story(fleet).of("life") if each.member.startswith("app-c"))
    assert (life.cause, life.ended_at_ms) == ("failed", 1_062_000)


def test_consumers_of_one_process_with_one_client_id_are_members_each():
    fleet = Fleet()
    a, b = (fleet.member("a", number=number) for number in range(2))
    fleet.rebalance(1_000_000, [a])
    fleet.rebalance(1_010_000, [a, b])
    fleet.quiet(1_011_000, 1_061_000, [a, b])
    a.stop(1_062_000)
    fleet.rebalance(1_062_010, [b])
    fleet.quiet(1_063_000, 1_120_000, [b])
    told = [(each.cause, each.caused_by, each.members_count) for each in story(fleet).rebalances]
    assert told == [
        ("joined", "app-a@host-a:1", 1), ("joined", "app-a@host-a:1#1", 2), ("left", "app-a@host-a:1", 1),
    ]  # fmt: skip
    assert {each.member: each.cause for each in story(fleet).of("life")} == {
        "app-a@host-a:1": "stop", "app-a@host-a:1#1": "open",
    }  # fmt: skip


def test_a_clock_that_is_set_back_a_little_is_no_new_process():
    fleet, (a, *_) = three()
    a.ahead_ms = -2_000
    fleet.quiet(1_061_000, 1_100_000, [a])
    assert len([each for each in story(fleet).of("life") if each.member.startswith("app-a")]) == 1


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**9), st.lists(st.integers(0, 60)))
def test_late_and_repeated_lines_change_nothing(seed, repeated):
    fleet, members = three((0, 7_000, -3_000))
    slow_handler(fleet, members)
    written = fleet.lines
    lines = [*written, *(written[each % len(written)] for each in repeated)]
    random.Random(seed).shuffle(lines)
    assert stretches_of(lines) == stretches_of(written)
    assert histograms_of(lines) == histograms_of(written)
    shuffled = stretches_of(lines)[fleet.group]
    random.Random(seed).shuffle(shuffled)
    assert story_of(fleet.group, shuffled) == story(fleet)


def test_lines_without_a_group_tell_nothing():
    fleet, _ = three()
    assert stretches_of({**line, "group": None} for line in fleet.lines) == {}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**7), min_size=1), st.integers(0, 10**7), st.floats(0.01, 1))
def test_a_histogram_answers_with_an_interval_that_holds_the_truth(values, bound, part):
    counts = {Bucket(int(number)): count for number, count in histogram(values).items()}
    least, most = above(counts, bound)
    assert least <= sum(value > bound for value in values) <= most
    lower, upper = quantile(counts, part)
    exact = sorted(values)[max(0, -int(-part * len(values) // 1) - 1)]
    assert lower <= exact <= upper * (1 + 1e-9)
    assert max(values) <= greatest(counts) * (1 + 1e-9)
    assert merge([counts, counts]) == {bucket: 2 * count for bucket, count in counts.items()}


def test_a_coarse_bucket_holds_those_before_it():
    assert edges(Bucket(8)) == (2 ** (7 / 4), 4.0)
    assert edges(Bucket(8, 4)) == (2.0, 4.0)
    assert bucket_of(4) == 8
