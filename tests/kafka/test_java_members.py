"""Kafka's own Java consumer and ours in one group: each strategy, each as leader, dynamic and static, in and out.

Both are verifiable clients, and all of their lines are judged.
"""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from aiogroup.admin import remove_members
from tests.support.group_members import until
from tests.support.verifiable import STRATEGIES, Bench

PARTITIONS_COUNT = 5
LONG_MS = 20_000
"""A session that never ends within a test."""
SESSION_MS = 4_000
"""A session that ends for whoever is killed or frozen, and for nobody else on two busy cores."""


@pytest.fixture
def bench(make_place, tmp_path):
    """`bench(strategy, kind)`; each has a topic and a group of its own."""
    benches = []

    def make(strategy, kind, session_ms=LONG_MS):
        directory = tmp_path / str(len(benches))
        directory.mkdir()
        benches.append(JavaBench(make_place(PARTITIONS_COUNT), directory, STRATEGIES[strategy], kind, session_ms))
        return benches[-1]

    yield make
    for each in benches:
        each.__exit__()


class JavaBench(Bench):
    def __init__(self, place, directory, strategy, kind, session_ms):
        super().__init__(place, directory)
        self._settings = {"strategy": strategy, "session_ms": session_ms}
        self._is_static = kind == "static"

    def member(self, name, *, java):
        """Static ones use the name; ids of dynamic ones are not in any order."""
        arguments = ("--group-instance-id", name) if self._is_static else ()
        return self.consumer(*arguments, java=java, **self._settings)

    async def leave(self, member, name):
        """It ends in order; a static one stays in the group until somebody removes it."""
        await self.end(member)
        if self._is_static:
            await remove_members(self.place.group, [name], bootstrap_servers=self.place.cluster.bootstrap_servers)


def shares(strategy, members_count):
    """What members get in the order of their static names, where the names alone say it."""
    if strategy == "roundrobin":
        return [[n for n in range(PARTITIONS_COUNT) if n % members_count == i] for i in range(members_count)]
    share, extra = divmod(PARTITIONS_COUNT, members_count)
    starts = [i * share + min(i, extra) for i in range(members_count + 1)]
    return [list(range(starts[i], starts[i + 1])) for i in range(members_count)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["dynamic", "static"])
async def test_java_and_we_share_a_group(bench, strategy, kind):
    """We lead, Java follows; we leave and Java leads; we come back and follow; Java leaves."""
    bench = bench(strategy, kind)

    def as_named(*members):
        if kind == "static" and "sticky" not in strategy:
            assert [member.partitions for member in members] == shares(strategy, len(members))

    async with bench.load() as acknowledged:
        first = bench.member("name-1", java=False)
        await bench.shared(first)
        java = bench.member("name-2", java=True)
        await bench.shared(first, java)
        as_named(first, java)
        await until(lambda: first.is_leader)
        await bench.read_on(first, java)
        await bench.leave(first, "name-1")
        await bench.shared(java)
        await bench.read_on(java)
        second = bench.member("name-3", java=False)
        await bench.shared(java, second)
        as_named(java, second)
        await until(lambda: second.is_leader is False)
        await bench.read_on(java, second)
        await bench.leave(java, "name-2")
        await bench.shared(second)
        await until(lambda: second.is_leader)
        await bench.read_on(second)
    await bench.all_read(acknowledged)
    await bench.end(second)
    await bench.all_committed()
    bench.check_owners()


@pytest.mark.long
async def test_members_are_frozen_and_killed(bench):
    """Ours and Java's in turn, eager and cooperative, dynamic and static: four groups at a time, as all wait a lot."""
    kinds = [(strategy, kind) for strategy in ("range", "cooperative-sticky") for kind in ("dynamic", "static")]
    await asyncio.gather(*(frozen_and_killed(bench(*kind, SESSION_MS)) for kind in kinds))


async def frozen_and_killed(bench):
    ours, java = bench.member("name-1", java=False), bench.member("name-2", java=True)
    await bench.shared(ours, java)
    sent = await frozen(bench, java, ours) | await frozen(bench, ours, java)
    async with bench.load() as acknowledged:
        await bench.read_on(ours, java)
        await asyncio.to_thread(ours.kill)
        await bench.shared(java)
        await bench.read_on(java)
        ours = bench.member("name-1", java=False)
        await bench.shared(java, ours)
        await bench.read_on(java, ours)
        await asyncio.to_thread(java.kill)
        await bench.shared(ours)
        await bench.read_on(ours)
    await bench.all_read(sent | acknowledged, repeats=True)
    await bench.end(ours)
    await bench.all_committed()
    bench.check_owners()


async def frozen(bench, victim, other):
    """Past its session it has lost all; it comes back, and what it may still have in hand is not committed then."""
    async with bench.load() as acknowledged:
        await bench.read_on(victim, other)
        victim.freeze()
        await bench.shared(other)
        await bench.read_on(other)
    await bench.all_read(acknowledged, repeats=True)
    await bench.all_committed()
    victim.thaw()
    await bench.shared(victim, other)
    await bench.all_committed()  # nobody commits any more who would hide what the zombie committed
    return acknowledged


@pytest.mark.long
async def test_a_rolling_change_from_java_to_ours_and_back(bench):
    """Under load, one by one, three groups at a time; two Java members hand over to each other first."""
    both = ("name-1", "name-2")
    await asyncio.gather(
        rolling_change(bench("range", "dynamic"), both),
        rolling_change(bench("cooperative-sticky", "dynamic"), both),
        rolling_change(bench("range", "static"), ("name-2",), is_noticed=False),
    )


async def rolling_change(bench, names, *, is_noticed=True):
    async with bench.load() as acknowledged:
        members = {"name-1": bench.member("name-1", java=True)}
        await bench.shared(*members.values())
        members["name-2"] = bench.member("name-2", java=True)
        await bench.shared(*members.values())
        await bench.read_on(*members.values())
        for java, name in product((False, True), names):
            old = members[name]
            (other,) = (each for each in members.values() if each is not old)
            before, held = other.judged.assigned_count, old.partitions
            await bench.end(old)
            members[name] = bench.member(name, java=java)
            await bench.shared(*members.values())
            await bench.read_on(*members.values())
            assert is_noticed or (other.judged.assigned_count, members[name].partitions) == (before, held)
    await bench.all_read(acknowledged)
    await bench.end(*members.values())
    await bench.all_committed()
    bench.check_owners()
