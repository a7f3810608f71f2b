"""Our assignors beside Java's: what they say when they join, byte for byte, and what they answer as leaders.

Java decides by the order of its hash tables where its own rules leave a choice, and so do we: answers are equal, not
only as good. Left out is the one case in which Java breaks its own rules.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition

from aiogroup._core.membership.classic.requests import read_subscription, write_subscription
from aiogroup.assignors import BY_NAME, Held
from aiogroup.assignors.checks import run

GOLDEN = Path(__file__).parent / "golden" / "java_assignments.jsonl.gz"


@cache
def cases():
    with gzip.open(GOLDEN, "rt") as lines:
        return [json.loads(line) for line in lines]


def flat(by_topic):
    return tuple(TopicPartition(topic, number) for topic, numbers in by_topic.items() for number in numbers)


def members_of(case):
    return {
        who: read_subscription(bytes.fromhex(case["said"][who]["blob"]), member.get("instance"))
        for who, member in case["members"].items()
    }


def answers(case):
    """Ours and Java's."""
    racks = {
        TopicPartition(topic, number): frozenset(each)
        for topic, all_racks in case["partitions"].items()
        for number, each in enumerate(all_racks)
    }
    counts = {topic: len(all_racks) for topic, all_racks in case["partitions"].items()}
    ours = run(BY_NAME[case["assignor"]], members_of(case), counts, racks)
    return {who: sorted(tps) for who, tps in ours.items()}, {
        who: sorted(flat(by_topic)) for who, by_topic in case["assignment"].items()
    }


def is_broken(case):
    """Whether Java gave a partition to a member that no longer subscribes to its topic (a former owner)."""
    return any(
        topic not in case["members"][who]["topics"] for who, topics in case["assignment"].items() for topic in topics
    )


def test_what_members_say_when_they_join_is_what_java_members_say():
    for case in cases():
        assignor = BY_NAME[case["assignor"]]
        for who, member in case["members"].items():
            generation = member.get("generation", -1)
            tps = flat(member.get("held", {}))
            data = assignor.subscription_user_data(member["topics"], Held(tps, generation))
            if "user_data" in member:
                data = bytes.fromhex(member["user_data"])
            else:
                assert (data if data is None else data.hex()) == case["said"][who]["user_data"], case["name"]
            owned = Held(tps if assignor.is_cooperative else (), member.get("generation_field", generation))
            blob = write_subscription(member["topics"], data, member.get("rack"), owned)
            assert blob.hex() == case["said"][who]["blob"], case["name"]


@pytest.mark.parametrize("name", BY_NAME)
def test_answers_are_javas(name):
    asked = [case for case in cases() if case["assignor"] == name and not is_broken(case)]
    differ = {}
    for case in asked:
        ours, javas = answers(case)
        if ours != javas:
            differ[case["name"]] = (ours, javas)
    assert differ == {}
    assert len(asked) >= 20


def test_the_cases_are_of_all_kinds():
    kinds = Counter()
    for case in cases():
        members = members_of(case).values()
        alike = len({frozenset(member.topics) for member in members}) == 1
        racks = len({member.rack for member in members}) > 1
        kinds[case["assignor"], alike, racks] += 1
    assert {name for name, _, _ in kinds} == set(BY_NAME)
    for name in ("range", "sticky", "cooperative-sticky"):
        assert min(kinds[name, alike, racks] for alike in (True, False) for racks in (True, False)) >= 5, kinds
    assert [case["name"] for case in cases() if is_broken(case)] == ["a former owner reads something else"]


def test_a_former_owner_gets_nothing_that_it_does_not_read():
    (case,) = filter(is_broken, cases())
    ours, _ = answers(case)  # checked by `run`
    assert sum(map(len, ours.values())) == 9
    assert [len(ours[who]) for who in "abc"] == [4, 1, 4]
