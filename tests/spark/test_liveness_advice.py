"""Planted fleets: the advice lies where it must, says nothing where it cannot know, and leaves alone what is well."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup import ConsumerConfig
from aiogroup.spark.liveness.advice import ENOUGH, Enough, findings_of
from aiogroup.spark.liveness.episodes import story_of
from aiogroup.spark.liveness.reference import histograms_of, stretches_of
from tests.support.fleets import DAY_MS, Fleet, random_lines

STEP = 50_000
"""Samples are this far apart, so that a planted day is read in a second."""


def findings(fleet, given_settings=None):
    story = story_of(fleet.group, stretches_of(fleet.lines)[fleet.group])
    return findings_of(story, histograms_of(fleet.lines)[fleet.group], given_settings)


def advice(fleet, given_settings=None):
    return {each.setting: each for each in findings(fleet, given_settings).proposals}


def at_work(members, *, until=DAY_MS + 2 * STEP, since=STEP, **values):
    for each in members:
        for at in range(since, until, STEP):
            each.sample(at, **{"heartbeat_gap_ms": [3_000], "request_gap_ms": [20], "record_ms": [20], **values})


def working(settings=None, count=2, **values):
    """A fleet that works for a day without any trouble."""
    fleet = Fleet(settings=settings or {})
    members = [fleet.member(name) for name in "abcdefgh"[:count]]
    fleet.rebalance(1_000, members)
    at_work(members, **values)
    return fleet, members


def expire(fleet, members, at, slow_ms):
    *others, last = members
    last.tell(at, "poll_interval_exceeded", partitions=["orders-0"], max_poll_interval_ms=300_000,
              broker_acts_within_ms=0)  # fmt: skip
    fleet.rebalance(at + 10, others)
    fleet.rebalance(at + slow_ms, members, whys={last.client_id: "records are asked for again"})
    last.sample(at + slow_ms + 1, request_gap_ms=[300_000 + slow_ms])


def test_a_fleet_that_is_well_keeps_what_it_has():
    fleet, _ = working()
    told = advice(fleet)
    assert {name: each.verdict for name, each in told.items()} == {
        "session_timeout_ms": "keep",
        "heartbeat_interval_ms": "keep",
        "max_poll_interval_ms": "keep",
        "max_poll_records": "keep",
        "group_instance_id": "not enough",
        "registration_timeout_ms": "not enough",
        "expansion_timeout_ms": "not enough",
        "parallel_min_backlog": "not enough",
    }
    assert all(each.proposed == each.current for each in told.values() if each.verdict == "keep")
    assert (told["session_timeout_ms"].gained_least, told["session_timeout_ms"].gained_most) == (0, 0)


def test_handlers_of_known_time_get_a_poll_interval_above_it():
    fleet, members = working()
    for number in range(1, 6):
        expire(fleet, members, number * 10_000_000, slow_ms=100_000)  # 400 s between two requests
    told = advice(fleet)["max_poll_interval_ms"]
    assert (told.verdict, told.current, told.proposed) == ("change", 300_000, 600_000)
    assert (told.gained_least, told.gained_most) == (10, 10)
    assert told.observations_count > ENOUGH.observations_count
    assert told.span_ms >= DAY_MS


def test_batches_of_known_time_get_fewer_records():
    fleet, members = working({"max_poll_interval_ms": 60_000}, record_ms=[400] * 10, batch_records=[500])
    for number in range(1, 6):
        expire(fleet, members, number * 10_000_000, slow_ms=100_000)
    told = advice(fleet)
    assert (told["max_poll_records"].verdict, told["max_poll_records"].proposed) == ("change", 50)
    assert (told["max_poll_interval_ms"].verdict, told["max_poll_interval_ms"].proposed) == ("keep", 60_000)


def test_a_hung_handler_gets_a_shorter_poll_interval():
    fleet, (a, b, c) = working(count=3)
    c.tell(DAY_MS + STEP, "poll_interval_exceeded", partitions=["orders-0"], max_poll_interval_ms=300_000,
           broker_acts_within_ms=0)  # fmt: skip
    fleet.rebalance(DAY_MS + STEP + 10, [a, b])
    told = advice(fleet)["max_poll_interval_ms"]
    assert (told.proposed, told.sooner_ms) == (10_000, 290_000)


def pauses(fleet, members, gap_ms, count=10):
    *others, last = members
    for number in range(1, count + 1):
        at = number * 7_000_000
        fleet.rebalance(at, others)
        last.tell(at + 3_000, "event_loop_blocked", blocked_ms=gap_ms, session_timeout_ms=10_000)
        last.tell(at + 3_001, "member_removed", why="HEARTBEAT: UNKNOWN_MEMBER_ID")
        fleet.rebalance(at + 3_002, members, whys={last.client_id: "HEARTBEAT: UNKNOWN_MEMBER_ID"})
        last.sample(at + 4_000, heartbeat_gap_ms=[gap_ms])


def test_pauses_of_known_length_get_a_session_above_them():
    fleet, members = working()
    pauses(fleet, members, 13_000)
    told = advice(fleet)
    session = told["session_timeout_ms"]
    assert (session.verdict, session.proposed) == ("change", 15_000)
    assert (session.gained_least, session.gained_most) == (20, 20)
    assert told["heartbeat_interval_ms"].verdict == "keep"


def crash(fleet, members, at):
    *others, _ = members
    fleet.rebalance(at + 45_000, others)


def test_a_crash_that_was_noticed_late_gets_a_shorter_session():
    fleet = Fleet(settings={"session_timeout_ms": 45_000, "heartbeat_interval_ms": 3_000})
    members = [fleet.member(name) for name in "abc"]
    fleet.rebalance(1_000, members)
    at_work(members[:2])
    at_work(members[2:], until=DAY_MS // 2)
    crash(fleet, members, DAY_MS // 2)
    told = advice(fleet)
    assert (told["session_timeout_ms"].proposed, told["session_timeout_ms"].sooner_ms) == (15_000, 30_000)
    assert told["heartbeat_interval_ms"].verdict == "keep"


def deploys(away_ms, count=20, *, registration_timeout_ms=None):
    """Two static members, each of which is replaced `count` times, away for so long: twice as many rebalances as
    restarts if that is longer than the coordinator waits, and none otherwise.
    """
    patience_ms = registration_timeout_ms or 10_000
    fleet = Fleet(settings={"registration_timeout_ms": registration_timeout_ms})
    members = [fleet.member(name, settings={"group_instance_id": f"name-{name}"}) for name in "ab"]
    fleet.rebalance(1_000, members)
    began = [STEP, STEP]
    for number in range(count):
        for place, old in enumerate(members):
            at = (number + 1) * DAY_MS // count + 1_000_000 * place
            at_work([old], since=began[place], until=at)
            old.tell(at, "heartbeat_acknowledged", generation=1, latency_ms=1)
            old.stop(at)
            new = fleet.member(old.client_id[-1], pid=old.pid + 1, settings=old.settings)
            members[place], began[place] = new, at + away_ms + 1
            if away_ms > patience_ms:
                fleet.rebalance(at + patience_ms, [members[1 - place]])
                fleet.rebalance(at + away_ms - 400, members)
            else:
                new.start(at + away_ms - 500, -1)
                new.complete(at + away_ms, fleet.generation, 500)
    for each, since in zip(members, began, strict=True):
        at_work([each], since=since, until=began[-1] + 2 * STEP)
    return fleet


def test_deploys_of_known_length_get_a_registration_above_it():
    told = advice(deploys(40_000))["registration_timeout_ms"]
    assert (told.verdict, told.proposed, told.observations_count) == ("change", 60_000, 40)
    assert (told.gained_least, told.gained_most) == (80, 80)


def test_deploys_that_are_spared_already_keep_their_registration():
    told = advice(deploys(40_000, registration_timeout_ms=60_000))["registration_timeout_ms"]
    assert (told.verdict, told.proposed) == ("keep", 60_000)


def rolling(away_ms, count=20, *, together=False):
    """Three members without static names, each of which is replaced `count` times, one after the other or at once."""
    fleet = Fleet()
    members = [fleet.member(name) for name in "abc"]
    fleet.rebalance(1_000, members)
    began = [STEP] * 3
    for number in range(count):
        at = (number + 1) * DAY_MS // count
        for place, old in enumerate(members):
            at += 0 if together else 1_000_000
            at_work([old], since=began[place], until=at)
            old.tell(at, "heartbeat_acknowledged", generation=1, latency_ms=1)
            old.stop(at)
            new = fleet.member(f"{number}-{place}", pid=old.pid + 1)
            members[place], began[place] = new, at + max(0, away_ms) + 1_000
            if not together:
                replace(fleet, members, place, old, at, away_ms)
        if together:
            fleet.rebalance(at + away_ms, members)
    for each, since in zip(members, began, strict=True):
        at_work([each], since=since, until=max(began) + 2 * STEP)
    return fleet


def replace(fleet, members, place, old, at, away_ms):
    others = [each for number, each in enumerate(members) if number != place]
    if away_ms < 0:  # the new one is there first
        fleet.rebalance(at + away_ms, [*members, old])
        fleet.rebalance(at + 10, members)
    else:
        fleet.rebalance(at + 10, others)
        fleet.rebalance(at + away_ms, members)


@pytest.mark.parametrize(
    ("away_ms", "together", "rebalances", "waits_ms"),
    [(41_000, False, 120, 60_000), (5_000, False, 120, None), (-20_000, False, 120, None), (41_000, True, 20, 60_000)],
    ids=["one after the other", "quickly", "the new one first", "all at once"],
)
def test_deploys_without_static_names_get_names(away_ms, together, rebalances, waits_ms):
    fleet = rolling(away_ms, together=together)
    told = advice(fleet)
    names, registration = told["group_instance_id"], told["registration_timeout_ms"]
    assert (names.verdict, names.proposed, names.observations_count) == ("change", None, 60)
    assert (names.gained_least, names.gained_most) == (rebalances, rebalances)
    assert len(findings(fleet).story.rebalances) == rebalances + 1
    assert registration.proposed == waits_ms
    assert registration.verdict == ("keep" if waits_ms is None else "change")
    assert registration.gained_most == 0, "that is told of the names"


def test_a_fleet_that_is_scaled_down_at_night_has_no_restarts():
    fleet = Fleet()
    a, b = fleet.member("a"), fleet.member("b")
    fleet.rebalance(1_000, [a, b])
    at_work([a])
    for number in range(40):
        at = number * 2_000_000 + STEP
        b.stop(at)
        fleet.rebalance(at + 10, [a])
        b = fleet.member("b", pid=number + 2)
        fleet.rebalance(at + 1_000_000, [a, b])
    told = advice(fleet)["group_instance_id"]
    assert (told.verdict, told.observations_count) == ("not enough", 0)


def test_what_several_members_caused_together_is_promised_once():
    """Three of four miss the session at the same time, ten times: the coordinator counts 20 rebalances, not 60."""
    fleet, (a, *others) = working(count=4)
    for number in range(1, 11):
        at = number * 7_000_000
        fleet.rebalance(at, [a])
        for each in others:
            each.tell(at + 3_001, "member_removed", why="HEARTBEAT: UNKNOWN_MEMBER_ID")
        fleet.rebalance(at + 3_002, [a, *others])
        for each in others:
            each.sample(at + 4_000, heartbeat_gap_ms=[13_000])
    told = advice(fleet)["session_timeout_ms"]
    assert (told.verdict, told.proposed) == ("change", 15_000)
    assert (told.rebalances_least, told.rebalances_most) == (20, 20)
    assert (told.gained_least, told.gained_most) == (20, 20)


def test_a_handler_that_never_came_back_is_not_promised():
    fleet, members = working(count=3)
    for number in range(1, 6):
        expire(fleet, members, number * 10_000_000, slow_ms=100_000)
    *others, last = members
    last.tell(DAY_MS, "poll_interval_exceeded", partitions=["orders-0"], max_poll_interval_ms=300_000,
              broker_acts_within_ms=0)  # fmt: skip
    fleet.rebalance(DAY_MS + 10, others)
    told = advice(fleet)["max_poll_interval_ms"]
    assert (told.verdict, told.gained_most) == ("change", 10)


@pytest.mark.parametrize("seed", range(20))
def test_no_more_is_promised_than_there_was(seed):
    lines = [line for number in range(10) for line in random_lines(random.Random(seed * 100 + number), f"g-{number}")]
    told = histograms_of(lines)
    for group, own in stretches_of(lines).items():
        found = findings_of(story_of(group, own), told.get(group, {}), enough=Enough(1, 0))
        there_were = len(found.story.rebalances)
        assert sum(each.gained_most for each in found.proposals) <= there_were
        assert all(each.rebalances_most <= there_were for each in found.proposals)


def test_newcomers_who_come_one_after_another_get_an_expansion():
    fleet = Fleet()
    members = []
    for number in range(36):
        name = f"n{number}"
        members.append(fleet.member(name, settings={"group_instance_id": name}))
        at = 10_000_000 * (number // 6) + 4_000 * (number % 6) + 1_000
        fleet.rebalance(at, members, whys={members[-1].client_id: "joining"})
    for each in members:
        each.sample(DAY_MS // 2 + 30_000_000, heartbeat_gap_ms=[3_000])
    for each in members[:1]:
        each.sample(DAY_MS + 10_000)
    told = advice(fleet)["expansion_timeout_ms"]
    assert (told.verdict, told.proposed) == ("change", 20_000)
    assert told.gained_least == 30


def test_a_second_lane_opens_for_what_takes_longer_than_a_second():
    fleet, (a, *_) = working()
    for number in range(40):
        at = 2_000_000 * (number + 1)
        a.tell(at, "catch_up_started", topic="orders", partition=0, records_count=100_000, token_id="t")
        a.tell(at + 10_000, "catch_up_done", topic="orders", partition=0, duration_ms=10_000)
    told = advice(fleet)["parallel_min_backlog"]
    assert (told.verdict, told.proposed) == ("change", 10_000)


@pytest.mark.parametrize(
    ("until", "step", "missing"),
    [(DAY_MS // 2, STEP, "of 24 hours"), (DAY_MS + STEP, 6_000_000, "of 30 observations of gaps between heartbeats")],
)
def test_too_little_is_not_enough_and_says_what_is_missing(until, step, missing):
    fleet = Fleet()
    a = fleet.member("a")
    fleet.rebalance(1_000, [a])
    for at in range(STEP, until, step):
        a.sample(at, heartbeat_gap_ms=[13_000])
    a.sample(until)
    told = advice(fleet)["session_timeout_ms"]
    assert (told.verdict, told.proposed) == ("not enough", None)
    assert missing in told.why


def test_settings_that_are_given_are_in_the_place_of_those_of_the_log():
    fleet, members = working()
    pauses(fleet, members, 13_000)
    told = advice(fleet, {"session_timeout_ms": 30_000})["session_timeout_ms"]
    assert (told.current, told.verdict) == (30_000, "keep")


def test_nothing_is_proposed_that_the_consumer_refuses():
    fleet, members = working({"session_timeout_ms": 45_000, "heartbeat_interval_ms": 44_000})
    told = advice(fleet)
    assert told["heartbeat_interval_ms"].proposed == 15_000
    assert members


@settings(max_examples=25, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "session_timeout_ms": st.sampled_from([6_000, 10_000, 45_000, 120_000]),
            "heartbeat_interval_ms": st.sampled_from([500, 3_000, 5_000]),
            "max_poll_interval_ms": st.sampled_from([5_000, 60_000, 300_000, 3_600_000]),
            "max_poll_records": st.sampled_from([1, 50, 500, None]),
        }
    ),
    st.lists(st.integers(1, 400_000), min_size=30, max_size=40),
    st.lists(st.integers(1, 4_000_000), min_size=30, max_size=40),
    st.lists(st.integers(1, 60_000), min_size=30, max_size=40),
    st.lists(st.integers(1, 1_000), min_size=30, max_size=40),
)
def test_whatever_was_measured_the_proposals_together_are_settings_and_gain(
    given_settings, beats, gaps, records, sizes
):
    fleet = Fleet(settings=given_settings)
    a, b = fleet.member("a"), fleet.member("b")
    fleet.rebalance(1_000, [a, b])
    a.sample(2_000, heartbeat_gap_ms=beats, request_gap_ms=gaps, record_ms=records, batch_records=sizes)
    a.sample(DAY_MS + 2_000)
    told = advice(fleet)
    proposed = {name: each.proposed for name, each in told.items() if each.verdict != "not enough"}
    dynamic = {
        name: value for name, value in proposed.items() if "registration" not in name and "expansion" not in name
    }
    ConsumerConfig.of(group_id="billing", **{**given_settings, **dynamic})
    for each in told.values():
        assert 0 <= each.gained_least <= each.gained_most
        assert each.rebalances_least <= each.rebalances_most
        assert each.verdict != "change" or each.proposed != each.current
