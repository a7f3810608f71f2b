"""What a service remembers: bounded in number and in size, and as JSON has it. Pure."""

from __future__ import annotations

import json

from aiogroup import TopicPartition
from aiogroup._core.telemetry import events
from aiogroup.asgi.page.journal import EVENTS_CHARS, EVENTS_COUNT, SAMPLES_COUNT, Journal, LagSample, plain
from aiogroup.asgi.page.timeline import Timeline

TPS = tuple(TopicPartition("orders", number) for number in range(1_000))
RESERVED = {"number", "at_ms", "event", "level", "loop", "group", "client_id", "command", "version"}


def noted(*given):
    journal = Journal()
    for each in given:
        journal.note("billing", "b", "c", each)
    return journal, [json.loads(text) for text in journal.events()]


def test_an_event_has_its_number_its_loop_and_its_fields():
    _, (first, second) = noted(events.CoordinatorFound(3), events.PartitionsLost(TPS[:2], "why"))
    del first["at_ms"]
    assert first == {
        "number": 1, "event": "coordinator_found", "level": "info", "loop": "billing", "group": "b",
        "client_id": "c", "node_id": 3,
    }  # fmt: skip
    assert (second["number"], second["level"], second["partitions"]) == (2, "warning", ["orders-0", "orders-1"])


def test_what_happens_all_the_time_is_left_out():
    journal, found = noted(events.HeartbeatSent(1), events.OffsetsCommitted(1, 1), events.CoordinatorFound(1))
    assert [each["event"] for each in found] == ["coordinator_found"]
    assert journal.last_number == 1


def test_no_event_has_a_field_of_that_name():
    kinds = [each for each in vars(events).values() if isinstance(each, type)]
    named = [set(kind.__dataclass_fields__) for kind in kinds if hasattr(kind, "__dataclass_fields__")]
    assert len(named) >= 6
    assert [each & RESERVED for each in named if each & RESERVED] == []


def test_it_asks_for_what_is_new():
    journal, _ = noted(*[events.CoordinatorFound(each) for each in range(5)])
    assert [json.loads(text)["number"] for text in journal.events(3)] == [4, 5]
    assert journal.events(5) == []
    assert len(journal.events(6)) == 5, "the asker has seen another process"


def test_it_is_bounded_in_number_and_in_size():
    journal, found = noted(*[events.CoordinatorFound(each) for each in range(EVENTS_COUNT + 7)])
    assert (len(found), found[0]["number"], journal.last_number) == (EVENTS_COUNT, 8, EVENTS_COUNT + 7)
    long = events.ListenerFailed("on_partitions_revoked", "x" * 1_000_000)
    _, found = noted(*[long] * EVENTS_COUNT)
    assert 50 < len(found) < EVENTS_COUNT
    assert sum(len(json.dumps(each)) for each in found) <= EVENTS_CHARS
    assert found[0]["error"].endswith("(1000000 characters)")


def test_long_values_are_cut():
    _, (found,) = noted(events.PartitionsRevoked(TPS))
    assert (len(found["partitions"]), found["partitions"][-1]) == (101, "and 900 more")
    assert plain({TPS[0]: 1, "b": {2}}) == {str(TPS[0]): 1, "b": [2]}
    assert plain(ValueError("x")) == "ValueError('x')"


def test_samples_are_ten_minutes_long():
    journal = Journal()
    for second in range(SAMPLES_COUNT + 5):
        journal.sample("billing", LagSample(second, 1, None, None))
    found = journal.samples()["billing"]
    assert (len(found), found[0].at_ms) == (SAMPLES_COUNT, 5)
    assert [each.at_ms for each in journal.samples(SAMPLES_COUNT + 2)["billing"]] == [
        SAMPLES_COUNT + 3,
        SAMPLES_COUNT + 4,
    ]


# Rebalances.


def rebalances(*given):
    timeline = Timeline()
    for each in given:
        timeline.on_event(each)
    return timeline.entries()


def test_a_rebalance_says_what_came_and_went_and_what_it_waited_for():
    first, second, third = rebalances(
        events.RebalanceStarted("joining", -1),
        events.RebalanceCompleted("joining", 1, TPS[:2], 30, True),
        events.RebalanceStarted("the group rebalances", 1),
        events.RebalanceWaitingForApplication("the group rebalances", 2_000, 60_000),
        events.PartitionsRevoked(TPS[:2]),
        events.RebalanceCompleted("the group rebalances", 2, TPS[1:3], 2_500, False),
        events.RebalanceStarted("subscribe", 2),
    )
    assert (first["came"], first["went"], first["outcome"]) == (["orders-0", "orders-1"], [], "completed")
    assert (second["came"], second["went"]) == (["orders-2"], ["orders-0"])
    assert (second["waited_ms"], second["duration_ms"], second["generation"]) == (2_000, 2_500, 2)
    assert (third["why"], third["outcome"], third["duration_ms"]) == ("subscribe", None, None)


def test_a_rebalance_that_failed_and_partitions_that_were_lost():
    lost, failed = rebalances(
        events.PartitionsLost(TPS[:1], "expelled"),
        events.RebalanceStarted("joining", -1),
        events.RebalanceFailed("timed out", 40),
    )[:2]
    assert (lost["outcome"], lost["lost"], lost["why"]) == ("lost", ["orders-0"], "expelled")
    assert (failed["outcome"], failed["error"], failed["duration_ms"]) == ("failed", "timed out", 40)


def test_partitions_that_were_lost_on_the_way_and_came_again_are_shown():
    _, again, lost = rebalances(
        events.RebalanceCompleted("joining", 1, TPS[:2], 30, True),
        events.RebalanceStarted("the group rebalances", 1),
        events.PartitionsLost(TPS[:1], "expelled"),
        events.RebalanceCompleted("joining", 2, TPS[:2], 2_500, False),
    )
    assert (lost["outcome"], lost["lost"]) == ("lost", ["orders-0"])
    assert (again["came"], again["went"]) == (["orders-0"], [])


def test_only_the_last_ones_are_kept():
    assert len(rebalances(*[events.RebalanceStarted(str(each), each) for each in range(80)])) == 50
