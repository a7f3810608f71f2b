"""Kafka's own system tests of consumers in the classic protocol, small, with our verifiable consumers as processes.

What each scenario is there, and where it is here:

| `kafkatest/tests/client` | here |
|---|---|
| consumer_test.py `test_broker_rolling_bounce`, `test_static_consumer_persisted_after_rejoin` | brokers bounce |
| `test_broker_failure` | a broker fails |
| `test_consumer_bounce`, `test_static_consumer_bounce_with_eager_assignment` | consumers bounce |
| `test_fencing_static_consumer` | conflicting names |
| `test_consumer_failure` | `test_verifiable.py`: a member that is terminated, that is killed |
| `test_group_consumption` | come and go one by one |
| `test_valid_assignment` | one by one with each strategy |
| consumer_rolling_upgrade_test.py | from range to round robin |
| pluggable_test.py | `test_verifiable.py`: one member |

The others need older brokers or clients (client_compatibility_*.py, upgrades), or KIP-848.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.contract import Group
from tests.support.group_members import until
from tests.support.kafka import Place
from tests.support.nodes import coordinator_of
from tests.support.verifiable import STRATEGIES, Bench

LONG_MS = 30_000
"""A session that outlives a broker's restart."""


@pytest.fixture
def make_bench(tmp_path, unique_name):
    benches = []

    def make(cluster, partitions=1):
        place = Place(cluster, unique_name("system"), unique_name("group"), partitions)
        cluster.create_topic(place.topic, partitions, replication_factor=len(cluster.nodes))
        directory = tmp_path / str(len(benches))
        directory.mkdir()
        benches.append(Bench(place, directory))
        return benches[-1]

    yield make
    for each in benches:
        each.__exit__()


@pytest.fixture
def bench(make_bench, kafka_cluster):
    return make_bench(kafka_cluster)


class Consumers:
    """The consumers of one system test: they can be started again under their number."""

    def __init__(self, bench, count, *, static=False, session_ms=LONG_MS, commits=True):
        self.bench = bench
        self._static = static
        self._settings = {"session_ms": session_ms, "commits": commits}
        self.members = [self.start(number) for number in range(count)]

    def start(self, number, **settings):
        name = ("--group-instance-id", f"i-{number}") if self._static else ()
        return self.bench.consumer(*name, **self._settings, **settings)

    async def all_joined(self):
        await self.bench.shared(*self.members, each_has=False)

    async def consume(self, count=50):
        """So many more by all of them together."""
        before = self.total
        await until(lambda: self.total >= before + count, 30, self.bench.tails)
        self.bench.check()

    async def bounce(self, numbers, *, clean=True):
        """End these, and start them again once they are dead."""
        for number in numbers:
            if clean:
                await self.bench.end(self.members[number])
            else:
                await asyncio.to_thread(self.members[number].kill)
        assert sum(each.judged.state == "dead" for each in self.members) == len(numbers)
        for number in numbers:
            self.members[number] = self.start(number)
        await self.all_joined()
        await self.consume()

    @property
    def total(self):
        return sum(each.total for each in self.bench.members)

    @property
    def assigned_counts(self):
        return [each.judged.assigned_count for each in self.members]

    async def finish(self, acknowledged, *, repeats=False):
        """All in order; everything was read, once unless somebody was killed, and is committed."""
        await self.bench.all_read(acknowledged, repeats=repeats)
        await self.bench.end(*(each for each in self.members if each.judged.state != "dead"))
        position = sum(self.bench.group.position.values())
        assert repeats or self.total == position
        assert self.total >= position
        await self.bench.all_committed()


@pytest.mark.parametrize("mode", ["all", "rolling"])
@pytest.mark.parametrize(
    ("static", "keep_alive"), [(False, 0), (False, 1), (True, 1)], ids=["dynamic", "dynamic but one", "static but one"]
)
async def test_consumers_bounce(bench, mode, static, keep_alive):
    consumers = Consumers(bench, 3, static=static)
    async with bench.load() as acknowledged:
        await consumers.all_joined()
        alive = consumers.members[0]
        revoked = alive.judged.revoked_count
        bounced = range(keep_alive, 3)
        for numbers in [bounced] if mode == "all" else [[number] for number in bounced]:
            await consumers.bounce(numbers)
        if keep_alive:  # eager: whoever hears of a rebalance revokes
            assert (alive.judged.revoked_count > revoked) != static
    await consumers.finish(acknowledged)
    bench.check_owners()


@pytest.mark.parametrize("mode", ["all", "rolling"])
async def test_consumers_bounce_without_a_word(bench, mode):
    consumers = Consumers(bench, 3, session_ms=2_500)
    async with bench.load() as acknowledged:
        await consumers.all_joined()
        for numbers in [range(1, 3)] if mode == "all" else [[1], [2]]:
            await consumers.bounce(numbers, clean=False)
    await consumers.finish(acknowledged, repeats=True)
    bench.check_owners()


@pytest.mark.parametrize("conflicts", [1, 2])
@pytest.mark.parametrize("stage", ["stable", "all"])
async def test_conflicting_names(bench, conflicts, stage):
    """One of two with the same name is left, and it is the newer one where the older one was a member already."""
    consumers, apart = Consumers(bench, 3, static=True), Group()
    async with bench.load() as acknowledged:
        if stage == "stable":
            await consumers.all_joined()
        # A group of their own for the checker: who is fenced learns of it late, and may read what is committed.
        everybody = [*consumers.members, *(consumers.start(number, group=apart) for number in range(conflicts))]
        for each in everybody:
            each.judged.may_be_fenced = True

        def settled():
            states = [each.judged.state for each in everybody]
            return (states.count("joined"), states.count("dead")) == (3, conflicts) and all(
                "startup_complete" in each.names for each in everybody
            )

        await until(settled, 30, bench.tails)
        if stage == "stable":
            assert [each.judged.state for each in everybody] == ["dead"] * conflicts + ["joined"] * 3
        dead = [each for each in everybody if each.judged.state == "dead"]
        assert [await asyncio.to_thread(each.wait) for each in dead] == [0] * conflicts
        consumers.members = [each for each in everybody if each not in dead]
        await consumers.all_joined()
        await consumers.consume()
    await consumers.finish(acknowledged, repeats=True)  # both may have read before one of them is fenced


async def test_come_and_go_one_by_one(bench):
    consumers = Consumers(bench, 0)
    async with bench.load() as acknowledged:
        for number in range(3):
            consumers.members.append(consumers.start(number))
            await consumers.all_joined()
            await consumers.consume()
        for _ in range(2):
            await bench.end(consumers.members.pop(0))
            await consumers.all_joined()
            await consumers.consume()
    await consumers.finish(acknowledged)
    assert bench.group.committed == bench.group.position
    bench.check_owners()


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_one_by_one_with_each_strategy(make_bench, kafka_cluster, strategy):
    bench = make_bench(kafka_cluster, 6)
    members = []
    for count in (1, 2, 3):
        members.append(bench.consumer(strategy=STRATEGIES[strategy], session_ms=LONG_MS))
        await bench.shared(*members)
        assert [len(each.partitions) for each in members] == [6 // count] * count
    await bench.end(*members)
    bench.check_owners()


async def test_from_range_to_round_robin(make_bench, kafka_cluster):
    bench = make_bench(kafka_cluster, 4)
    by_range, by_round_robin = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    both = f"{STRATEGIES['roundrobin']},{STRATEGIES['range']}"
    rounds = [("range", 0, None), ("range", 1, by_range)]
    rounds += [(both, 0, by_range), (both, 1, by_round_robin)]
    rounds += [("roundrobin", 0, by_round_robin), ("roundrobin", 1, by_round_robin)]
    members = {}
    for strategy, number, expected in rounds:
        if number in members:
            await bench.end(members[number])
        members[number] = bench.consumer(strategy=STRATEGIES.get(strategy, strategy), session_ms=LONG_MS)
        await bench.shared(*members.values())
        assert expected is None or sorted(each.partitions for each in members.values()) == expected
    await bench.end(*members.values())
    bench.check_owners()


async def test_brokers_bounce_one_by_one(make_bench, cluster_3):
    """Nobody rebalances: not dynamic members, and not static ones that got another member id by a bounce before."""
    dynamic = Consumers(make_bench(cluster_3), 2)
    static = Consumers(make_bench(cluster_3), 3, static=True)
    async with dynamic.bench.load() as first, static.bench.load() as second:
        for each in (dynamic, static):
            await each.all_joined()
        await static.bounce([1])
        await static.bounce([0, 2])
        before = [each.assigned_counts for each in (dynamic, static)]
        for node in cluster_3.nodes:
            await asyncio.to_thread(node.stop)
            await asyncio.to_thread(node.start)
            for each in (dynamic, static):
                await each.all_joined()
                await each.consume()
        assert [each.assigned_counts for each in (dynamic, static)] == before
    await dynamic.finish(first)
    await static.finish(second)
    assert [each.bench.check_owners() for each in (dynamic, static)] == [None, None]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
async def test_a_broker_fails(make_bench, cluster_3, clean):
    """It is the coordinator; a group that commits explicitly and one with auto-commit do not rebalance."""
    groups = [Consumers(make_bench(cluster_3), 2, commits=commits) for commits in (True, False)]
    async with groups[0].bench.load() as first, groups[1].bench.load() as second:
        for each in groups:
            await each.all_joined()
            await each.consume()
        before = [each.assigned_counts for each in groups]
        node = await coordinator_of(cluster_3)
        await asyncio.to_thread(node.stop if clean else node.kill)
        for each in groups:
            await each.consume(200)
        assert [each.assigned_counts for each in groups] == before
    await groups[0].finish(first)
    await groups[1].finish(second)
    assert groups[0].bench.group.committed == groups[0].bench.group.position
