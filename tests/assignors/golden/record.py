"""Asks Java's assignors what they answer: `python record.py CLASSPATH [SEED [LIVES]] > java_assignments.jsonl`.

Groups live through a few rounds: what Java answers is what the members hold in the next one.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from aiogroup.devkafka.jars import java

SEED, LIVES = 429, 30
RACKS = ("r0", "r1", "r2")


class Java:
    def __init__(self, classpath):
        self._process = subprocess.Popen(
            [str(java()), "-cp", classpath, "Assignors"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, case):
        case["members"] = dict(sorted(case["members"].items()))  # Java's maps keep the order within a bucket
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        sys.stdout.write(json.dumps({**case, **answer}, separators=(",", ":")) + "\n")
        return answer


def ids(rng, count):
    if rng.random() < 0.5:
        return [f"c{n}" for n in rng.sample(range(20), count)]
    return [f"consumer-{rng.choice('ab')}-{rng.getrandbits(128):032x}" for _ in range(count)]


def replicas(rng, with_racks):
    return sorted(rng.sample(RACKS, rng.randint(1, 2))) if with_racks else []


def grown(rng, partitions, topic, count, with_racks):
    partitions[topic] = [*partitions.get(topic, []), *(replicas(rng, with_racks) for _ in range(count))]


def subscription(rng, partitions, alike):
    topics = sorted(partitions)
    chosen = topics if alike else rng.sample(topics, rng.randint(1, len(topics)))
    return [*chosen, "missing"] if rng.random() < 0.05 else list(chosen)


def live(java, rng, assignor, name):  # noqa: C901 (a life has many turns)
    """One group's life: members come, go and lag behind; topics come, go and grow."""
    alike, with_racks, is_static = rng.random() < 0.5, rng.random() < 0.4, rng.random() < 0.2
    partitions = {}
    for n in range(rng.randint(1, 5)):
        grown(rng, partitions, f"t{n}", rng.randint(1, 10), with_racks)
    members = {}

    def join():
        (who,) = ids(rng, 1)
        members[who] = {"topics": subscription(rng, partitions, alike)}
        if with_racks and rng.random() < 0.9:
            members[who]["rack"] = rng.choice(RACKS)
        if is_static and rng.random() < 0.7:
            members[who]["instance"] = f"i{rng.randrange(1000)}"

    for _ in range(rng.randint(1, 7)):
        join()
    for generation in range(1, 5):
        case = {"name": f"{name} {generation}", "assignor": assignor, "partitions": partitions, "members": members}
        answer = java.ask(json.loads(json.dumps(case)))
        if "assignment" not in answer:
            return
        for who, member in members.items():
            if rng.random() < 0.85:  # the others miss this round, and say next time what they held before it
                member.update(held=answer["assignment"][who], generation=generation)
        for _ in range(rng.choice([0, 1, 1, 2])):
            change = rng.choice(["join", "join", "leave", "grow", "new topic", "end of a topic", "subscribe"])
            if change == "join" and len(members) < 12:
                join()
            elif change == "leave" and len(members) > 1:
                del members[rng.choice(sorted(members))]
            elif change == "grow":
                grown(rng, partitions, rng.choice(sorted(partitions)), rng.randint(1, 4), with_racks)
            elif change == "new topic":
                grown(rng, partitions, f"t{4 + generation}{len(partitions)}", rng.randint(1, 6), with_racks)
            elif change == "end of a topic" and len(partitions) > 1:
                del partitions[rng.choice(sorted(partitions))]
            elif change == "subscribe":
                who = rng.choice(sorted(members))
                members[who]["topics"] = subscription(rng, partitions, alike)
        if alike:
            for member in members.values():
                member["topics"] = sorted(partitions)


def by_hand(java):
    """What does not happen by chance."""
    three = {"t": [[], [], []]}
    same = {"topics": ["t"], "held": {"t": [0, 1]}, "generation": 4}
    older = {"topics": ["t"], "held": {"t": [1, 2]}, "generation": 3}
    all_of_it = {"topics": ["t"], "held": {"t": [0, 1, 2]}, "generation": 7}
    version_0 = "00000001000174000000020000000000000001"
    for assignor in ("sticky", "cooperative-sticky"):
        groups = {
            "two claim one in the same generation": {"a": same, "b": {**older, "generation": 4}},
            "two claim one in different generations": {"a": same, "b": older},
            "the stale one claims all": {"a": {**all_of_it, "generation": 2}, "b": same},
            "one holds it all, two come": {"a": all_of_it, "b": {"topics": ["t"]}, "c": {"topics": ["t"]}},
            "the other way": {"c": all_of_it, "b": {"topics": ["t"]}, "a": {"topics": ["t"]}},
            "no generation": {"a": {**same, "generation": -1}, "b": older},
            "version 0": {"a": {**same, "user_data": version_0}, "b": {"topics": ["t"]}},
            "version 0 and a stray byte": {"a": {**same, "user_data": version_0 + "01"}, "b": {"topics": ["t"]}},
            "nonsense": {"a": {**same, "user_data": "7fffffff"}, "b": older},
            "less than nonsense": {"a": {**same, "user_data": "ff"}, "b": older},
            "negative": {"a": {**same, "user_data": "ffffffff00000001"}, "b": older},
            "empty": {"a": {**same, "user_data": ""}, "b": older},
            "the subscription's generation is missing": {"a": {**same, "generation_field": -1}, "b": {"topics": ["t"]}},
            "nobody subscribes to anything": {"a": {"topics": []}},
            "nothing there": {"a": {"topics": ["u"]}, "b": {"topics": ["u"]}},
        }
        for name, members in groups.items():
            java.ask({"name": name, "assignor": assignor, "partitions": three, "members": members})
    members = {
        "a": {"topics": ["t"], "held": {"t": [1, 2, 3, 4, 5, 6]}, "generation": 3},
        "b": {"topics": ["u"], "held": {"t": [0, 1]}, "generation": 2},
        "c": {"topics": ["t", "u"], "held": {}, "generation": 3},
    }
    partitions = {"t": [[]] * 8, "u": [[]]}
    case = {"name": "a former owner reads something else", "partitions": partitions, "members": members}
    java.ask({**case, "assignor": "sticky"})
    for count in (12, 13, 14, 25, 26, 60):
        many = {f"topic-{n}": [[]] for n in range(count)}
        members = {"a": {"topics": sorted(many), "held": {topic: [0] for topic in many}, "generation": 2147483647}}
        java.ask({"name": f"{count} topics", "assignor": "sticky", "partitions": many, "members": members})
    crowd = {f"member-{n}": {"topics": ["t"], "held": {"t": [n]}, "generation": 1} for n in range(26)}
    java.ask(
        {"name": "26 members, 26 partitions", "assignor": "sticky", "partitions": {"t": [[]] * 26}, "members": crowd}
    )
    crowd = {who: {**each, "held": {"t": [2 * n, 2 * n + 1]}} for n, (who, each) in enumerate(crowd.items())}
    crowd["new"] = {"topics": ["t"]}
    java.ask({"name": "26 hold two, one comes", "assignor": "sticky", "partitions": {"t": [[]] * 52}, "members": crowd})


def main():
    seed, lives = (*map(int, sys.argv[2:]), *(SEED, LIVES)[len(sys.argv) - 2 :])
    java, rng = Java(sys.argv[1]), random.Random(seed)
    by_hand(java)
    for line in (Path(__file__).parent / "found.jsonl").read_text().splitlines():
        java.ask(json.loads(line))
    for n in range(lives):
        for assignor in ("sticky", "cooperative-sticky"):
            live(java, rng, assignor, f"life {n}")
    for n in range(lives):
        live(java, rng, "range", f"life {n}")
    for n in range(5):
        live(java, rng, "roundrobin", f"life {n}")


if __name__ == "__main__":
    main()
