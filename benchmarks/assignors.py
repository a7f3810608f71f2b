"""`python -m benchmarks.assignors`: CPU seconds of each assignor for 1000 members and 10,000 partitions, at worst.

Subscriptions are equal, nearly equal, or all different. All members are new, or none, one, half, or all but three of
them. Members have racks or none. It ends with status 1 if an assignor takes longer than LIMIT_S.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from aiokafka.structs import TopicPartition

from aiogroup.assignors import BY_NAME, Held, MemberSubscription, Racks
from aiogroup.assignors.checks import run

LIMIT_S = 5.0
MEMBERS = 1000
RACKS = ("r0", "r1", "r2")
Members = dict[str, MemberSubscription]


def shapes(rng: random.Random) -> Iterator[tuple[str, Mapping[str, int], list[Sequence[str]]]]:
    """Yield (description, partitions, each member's topics)."""
    hundred = {f"topic-{n}": 100 for n in range(100)}
    thousand = {f"topic-{n}": 10 for n in range(1000)}
    single = {f"topic-{n}": 1 for n in range(10_000)}
    yield "equal, 100 topics", hundred, [tuple(hundred)] * MEMBERS
    yield "equal, one topic", {"topic": 10_000}, [("topic",)] * MEMBERS
    yield "99 of 100 topics", hundred, [rng.sample(list(hundred), 99) for _ in range(MEMBERS)]
    yield "half of 1000 topics", thousand, [rng.sample(list(thousand), 500) for _ in range(MEMBERS)]
    yield "5 of 1000 topics", thousand, [rng.sample(list(thousand), 5) for _ in range(MEMBERS)]
    yield "neighbours", thousand, [(f"topic-{n}", f"topic-{(n + 1) % 1000}") for n in range(MEMBERS)]
    yield "10,000 topics of one", single, [tuple(single)[: 10_000 - (n == 0)] for n in range(MEMBERS)]


def joining(name: str, topics: Sequence[str], held: Held, rack: str | None) -> MemberSubscription:
    assignor = BY_NAME[name]
    data = assignor.subscription_user_data(topics, held)
    owned = held.partitions if assignor.is_cooperative else ()
    return MemberSubscription(tuple(topics), data, owned, held.generation, rack)


def crowds(
    name: str, partitions: Mapping[str, int], wanted: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Members]]:
    """Yield (description, members) for the mixtures of new and old members."""
    new = {who: joining(name, topics, Held(), None) for who, topics in wanted.items()}
    yield "all new", new
    if "sticky" not in name:
        return

    def after(there: Sequence[str], topics: Mapping[str, Sequence[str]]) -> Members:
        first = run(BY_NAME[name], {who: joining(name, topics[who], Held(), None) for who in there}, partitions, {})
        return {who: joining(name, topics[who], Held(tuple(first[who]), 1), None) for who in there}

    ids = list(wanted)
    yield "nothing changes", after(ids, wanted)
    yield "one joins", {**new, **after(ids[1:], wanted)}
    yield "half join", {**new, **after(ids[::2], wanted)}
    yield "all but three join", {**new, **after(ids[:3], {**wanted, **dict.fromkeys(ids[:3], tuple(partitions))})}


def main() -> None:
    rng = random.Random(429)
    ids = [f"consumer-{n}-{rng.getrandbits(128):032x}" for n in range(MEMBERS)]
    print("| assignor | subscriptions | members | seconds | with racks |\n|---|---|---|---|---|")
    worst = 0.0
    for shape, partitions, topics in shapes(rng):
        racks: Racks = {
            TopicPartition(topic, number): frozenset(rng.sample(RACKS, 2))
            for topic, count in partitions.items()
            for number in range(count)
        }
        for name in BY_NAME:
            for crowd, members in crowds(name, partitions, dict(zip(ids, topics, strict=True))):
                seconds = []
                placed = {
                    who: MemberSubscription(each.topics, each.user_data, each.owned, each.generation, rng.choice(RACKS))
                    for who, each in members.items()
                }
                for asked, where in ((members, {}), (placed, racks)):
                    started_at = time.process_time()  # CPU time of this process: nothing here waits
                    run(BY_NAME[name], asked, partitions, where)
                    seconds.append(time.process_time() - started_at)
                worst = max(worst, *seconds)
                print(f"| {name} | {shape} | {crowd} | {seconds[0]:.2f} | {seconds[1]:.2f} |", flush=True)
    print(f"\nworst: {worst:.2f} s (limit {LIMIT_S} s)")
    sys.exit(worst > LIMIT_S)


if __name__ == "__main__":
    main()
