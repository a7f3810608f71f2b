"""Cooperative rebalancing (KIP-429): what is kept flows, what leaves is handed over, nothing has two owners."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import errors
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup._core.telemetry import events
from aiogroup.testing import CUT, Proxy
from tests.support.group_members import Member, named, produce, running, shared_out, until

STRATEGY = "cooperative-sticky"
CALLBACKS = ("revoked", "assigned", "lost")


@pytest.fixture
def topic(kafka_cluster, unique_name):
    """`topic(partitions)` makes one and gives its name."""

    def make(partitions_count):
        name = unique_name("cooperative")
        kafka_cluster.create_topic(name, partitions_count)
        return name

    return make


class Cooperative(Member):
    def __init__(self, cluster, group, *topics, **settings):
        super().__init__(cluster, group, *topics, **{"partition_assignment_strategy": STRATEGY, **settings})

    @property
    def is_ready(self):
        """Ready, and not only because records flow through a rebalance."""
        health = self.consumer.health()
        return health.is_ready and "rebalances" not in health.why

    @property
    def callbacks(self):
        return [(what, sorted(tp.partition for tp in detail)) for what, detail, _ in self.log if what in CALLBACKS]


def one_owner(*members):
    """No partition is one member's before the other gave it up, by the order of their callbacks."""
    owned = {}
    log = sorted(
        (at, index, what, detail) for index, m in enumerate(members) for what, detail, at in m.log if what in CALLBACKS
    )
    for _, index, what, partitions in log:
        for tp in partitions:
            if what == "assigned":
                assert tp not in owned, f"{tp} of {owned[tp]} is given to {index}"
                owned[tp] = index
            else:
                assert owned.pop(tp) == index


async def spread(partitions_count, *members):
    """Wait until all of them have some: the first round gives a newcomer nothing, and is stable too."""
    await until(lambda: all(member.partitions for member in members))
    await shared_out(partitions_count, *members)


async def test_a_newcomer_takes_its_part_and_the_rest_stays_where_it_is(kafka_cluster, topic, group):
    name = topic(4)
    first, second = Cooperative(kafka_cluster, group, name), Cooperative(kafka_cluster, group, name)
    async with running(first):
        await spread(4, first)
        async with running(second):
            await spread(4, first, second)
            assert [what for what, _ in first.callbacks if what != "assigned"] == ["revoked"]
            assert first.callbacks[0] == ("assigned", [0, 1, 2, 3])
            (_, revoked) = first.callbacks[1]
            assert len(revoked) == 2
            assert all(given == [] for what, given in first.callbacks[1:] if what == "assigned")
            assert [given for what, given in second.callbacks if given] == [revoked]
            assert second.callbacks[0] == ("assigned", [])  # told also when it is nothing: its first round
        await spread(4, first)
        one_owner(first, second)
        assert not first.count("lost") + second.count("lost")


async def test_what_is_kept_flows_while_the_round_is_open(kafka_cluster, topic, group):
    name = topic(2)
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        first = Cooperative(kafka_cluster, group, name, bootstrap_servers=proxy.bootstrap_servers)
        second = Cooperative(kafka_cluster, group, name)
        async with running(first):
            await spread(2, first)
            go = asyncio.Event()

            async def hold(_):
                await go.wait()

            proxy.rewrite(JoinGroupRequest, hold)
            starting = asyncio.create_task(second.start())
            await until(lambda: "joining" in first.consumer.health().why, what=first.tail)
            sent = await produce(kafka_cluster, name, 2, 20)
            await until(lambda: first.seen() >= sent, what=first.tail)
            assert "joining" in first.consumer.health().why
            commits = asyncio.create_task(first.consumer.commit())
            await first.beats(0)
            assert not commits.done()  # it would be said under a generation that is over
            proxy.clear()
            go.set()
            await asyncio.wait_for(commits, 10)
            await starting
            await spread(2, first, second)
            assert await first.consumer.committed(*first.consumer.assignment()) == 10
        await second.stop()
        one_owner(first, second)


@pytest.mark.parametrize("way", ["heartbeat", "heartbeat by the thread", "commit"])
async def test_a_connection_that_breaks_beside_a_waiting_join_does_not_end_it(kafka_cluster, topic, group, way):
    name = topic(2)
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        more = {"bootstrap_servers": proxy.bootstrap_servers, "heartbeat_thread": "thread" in way}
        first, second = Cooperative(kafka_cluster, group, name, **more), Cooperative(kafka_cluster, group, name)
        async with running(first):
            await spread(2, first)
            go = asyncio.Event()
            second.in_callback = lambda _: go.wait()  # it rejoins after that, and the coordinator waits for it
            starting = asyncio.create_task(second.start())
            await until(lambda: first.count("revoked") and "joining" in first.consumer.health().why, what=first.tail)
            cut = OffsetFetchRequest if way == "commit" else HeartbeatRequest
            proxy.cut(cut, times=1)
            if way == "commit":
                await first.consumer.committed(*named(name, 0))
            await until(lambda: first.count(events.CoordinatorLost), what=first.tail)
            await first.beats(2)
            go.set()
            await starting
            await spread(2, first, second)
        assert all(each.is_expected for each in first.all(events.RebalanceFailed)), first.tail()
        assert [len(given) for what, given in first.callbacks if what == "revoked"] in ([1], [1, 1])  # and its stop
        await second.stop()
        one_owner(first, second)


async def test_members_come_and_go_and_every_record_is_processed_once(kafka_cluster, topic, group):
    name = topic(6)
    members = [Cooperative(kafka_cluster, group, name) for _ in range(4)]
    sent, is_over = set(), asyncio.Event()

    async def produce_all_the_time():
        while not is_over.is_set():
            sent.update(await produce(kafka_cluster, name, 6, 60, first=len(sent)))

    async with running(members[0]):
        producing = asyncio.create_task(produce_all_the_time())
        for count in (2, 3, 4):
            await members[count - 1].start()
            await spread(6, *members[:count])
        for count in (3, 2, 1):
            await members[count].stop()
            await spread(6, *members[:count])
        is_over.set()
        await producing
        expected = await produce(kafka_cluster, name, 6, 6) | sent
        await until(lambda: set().union(*(member.seen() for member in members)) >= expected)
    seen = [(record.partition, record.offset) for member in members for record in member.records]
    assert len(seen) == len(set(seen)), "a record was handed out twice"
    one_owner(*members)
    assert [member.tail() for member in members if member.count("lost") or member.error] == []


async def test_what_leaves_waits_for_its_record_and_what_stays_does_not(kafka_cluster, topic, group):
    """The application holds a record of a partition that leaves: the callback comes when it asks for the next."""
    name = topic(2)
    first, second = Cooperative(kafka_cluster, group, name), Cooperative(kafka_cluster, group, name)
    await produce(kafka_cluster, name, 2, 2)
    async with running(first):
        await until(lambda: len(first.records) == 2)
        first.hold()
        await produce(kafka_cluster, name, 2, 2)
        await until(lambda: first.in_hand is not None)
        starting = asyncio.create_task(second.start())
        await until(lambda: "adopting" in first.consumer.health().why, what=first.tail)
        await first.beats(3)
        assert not first.count("revoked")
        assert first.partitions == [0, 1]
        first.release()
        await starting
        await spread(2, first, second)
        (left,) = second.partitions
        await until(lambda: len(first.records) + len(second.records) >= 4)
        assert await second.consumer.committed(named(name, left)[0]) is not None
    await second.stop()
    one_owner(first, second)


async def test_a_topic_less_is_revoked_at_once_and_the_other_flows_on(kafka_cluster, topic, group):
    kept, left = topic(1), topic(1)
    member = Cooperative(kafka_cluster, group, kept, left)
    async with running(member):
        await until(lambda: len(member.consumer.assignment()) == 2)
        member.consumer.subscribe([kept], listener=member)
        await until(lambda: member.consumer.assignment() == set(named(kept, 0)))
        await until(lambda: member.is_ready)
        assert [sorted(tps) for tps in member.all("revoked")] == [named(left, 0)]
        sent = await produce(kafka_cluster, kept, 1, 5)
        await until(lambda: member.seen() >= sent)


async def test_a_member_that_was_removed_loses_everything_and_comes_back(kafka_cluster, topic, group):
    name = topic(2)
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        member = Cooperative(kafka_cluster, group, name, bootstrap_servers=proxy.bootstrap_servers)
        async with running(member):
            await spread(2, member)
            proxy.rewrite(JoinGroupRequest, lambda exchange: refuse(proxy, exchange))
            await member.consumer.enforce_rebalance("test")
            await until(lambda: member.count("lost"), what=member.tail)
            await spread(2, member)
            assert member.callbacks == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]
            (lost,) = member.all(events.PartitionsLost)
            assert "UNKNOWN_MEMBER_ID" in lost.why


def refuse(proxy, exchange):
    """The coordinator does not know the member, once."""
    proxy.clear()
    return type(exchange.response)(error_code=25, generation_id=-1)


async def test_a_join_that_was_cut_gives_everything_up_and_nothing_is_lost_or_repeated(kafka_cluster, topic, group):
    name = topic(2)
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        first = Cooperative(kafka_cluster, group, name, bootstrap_servers=proxy.bootstrap_servers)
        second = Cooperative(kafka_cluster, group, name)
        async with running(first):
            await spread(2, first)
            cuts = []

            def cut(_):
                cuts.append(True)
                proxy.clear()
                return CUT

            proxy.rewrite(JoinGroupRequest, cut)
            starting = asyncio.create_task(second.start())
            sent = await produce(kafka_cluster, name, 2, 40)
            await starting
            await spread(2, first, second)
            await until(lambda: first.seen() | second.seen() >= sent)
            assert cuts
            assert "revoked" in [what for what, _ in first.callbacks]
        await second.stop()
    seen = [(record.partition, record.offset) for member in (first, second) for record in member.records]
    assert sorted(set(seen)) == sorted(sent)
    one_owner(first, second)


async def test_stop_in_the_middle_of_a_round_commits_what_is_processed(kafka_cluster, topic, group):
    name = topic(2)
    sent = await produce(kafka_cluster, name, 2, 20)
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "auto_commit_interval_ms": 600_000}
        first = Cooperative(kafka_cluster, group, name, **settings)
        async with running(first):
            await until(lambda: first.seen() >= sent)
            held = asyncio.Event()

            def hold(_):
                held.set()
                return asyncio.sleep(1)  # the answer is late, as it is while others are waited for

            proxy.rewrite(SyncGroupRequest, hold)
            await first.consumer.enforce_rebalance("test")
            await asyncio.wait_for(held.wait(), 10)
            more = await produce(kafka_cluster, name, 2, 2, first=20)
            await until(lambda: first.seen() >= more)
            report = await first.consumer.stop(timeout_ms=10_000)
        assert not report.not_committed
        assert first.callbacks[-1] == ("revoked", [0, 1])
        second = Cooperative(kafka_cluster, group, name)
        async with running(second):
            await spread(2, second)
            positions = [await second.consumer.position(tp) for tp in named(name, 0, 1)]
            assert sum(positions) >= 21  # at most the record that was in hand comes again


async def test_what_is_kept_is_committed_while_the_group_waits_for_a_member_that_is_away(kafka_cluster, topic, group):
    """Its coordinator takes commits under the former generation until everybody has joined, or is dropped."""
    name = topic(4)
    first = Cooperative(kafka_cluster, group, name, enable_auto_commit=False)
    away = Cooperative(kafka_cluster, group, name, group_instance_id="away", session_timeout_ms=20_000)
    newcomer = Cooperative(kafka_cluster, group, name)
    async with running(first), running(away):
        await spread(4, first, away)
        await away.stop()  # a static member stays in the group until its session ends
        joining = asyncio.create_task(newcomer.start())
        try:
            await until(lambda: first.all(events.MemberMoved)[-1].new == "joining", what=first.tail)
            for number in range(3):
                before = len(first.records)
                await produce(kafka_cluster, name, 4, 4)
                await until(lambda: len(first.records) >= before + 2, what=first.tail)  # noqa: B023
                async with asyncio.timeout(5):
                    await first.consumer.commit()
                assert first.all(events.MemberMoved)[-1].new == "joining", number
            committed = {tp: await first.consumer.committed(tp) for tp in first.consumer.assignment()}
            assert sum(committed.values()) >= 6
            report = await first.consumer.stop(timeout_ms=5_000)
            assert (report.not_committed, report.problems) == ({}, ("a join that was running: not done in time",))
            assert first.count("lost") == 0
        finally:
            joining.cancel()
            await asyncio.wait({joining})
            await newcomer.stop()


async def test_a_commit_of_what_left_says_so_and_the_rest_is_committed(kafka_cluster, topic, group):
    name = topic(2)
    first = Cooperative(kafka_cluster, group, name, enable_auto_commit=False)
    second = Cooperative(kafka_cluster, group, name, enable_auto_commit=False)
    sent = await produce(kafka_cluster, name, 2, 4)
    async with running(first):
        await until(lambda: first.seen() >= sent)
        async with running(second):
            await spread(2, first, second)
            (kept,), (left,) = first.consumer.assignment(), second.consumer.assignment()
            with pytest.raises(errors.CommitFailedError) as raised:
                await first.consumer.commit({kept: 2, left: 2})
            assert raised.value.not_owned == frozenset({left})
            assert await first.consumer.committed(kept) == 2


async def test_what_a_static_member_did_not_give_up_is_given_away_after_its_name_came_back(kafka_cluster, topic, group):
    """The coordinator answers the new process without a rebalance, and it has nothing to give up (KIP-345)."""
    name, wait_s = topic(2), 2
    waits = {"heartbeat_interval_ms": 200, "rebalance_timeout_ms": 1_000 * wait_s}
    static = {**waits, "group_instance_id": "one", "registration_timeout_ms": 60_000}
    leader = Cooperative(kafka_cluster, group, topic(1), **waits)
    owner = Cooperative(kafka_cluster, group, name, **static, session_timeout_ms=1_200, max_poll_interval_ms=1_200)
    newcomer, back = Cooperative(kafka_cluster, group, name, **waits), Cooperative(kafka_cluster, group, name, **static)
    async with running(leader, owner):
        await shared_out(2, owner)
        owner.hold()
        await produce(kafka_cluster, name, 2, 2)
        async with running(newcomer):
            await until(lambda: owner.count(events.PollIntervalExceeded), what=owner.tail)
            await owner.stop()
            since = len(leader.log)
            await leader.beats(6 * wait_s)  # longer than the time-out
            assert not leader.count(events.RebalanceStarted, since=since)  # a round would wait for the name
            async with running(back):
                await until(lambda: back.partitions)
                assert len(back.partitions) == 1
                assert newcomer.partitions == []
                await spread(2, back, newcomer)
                (round_,) = leader.all(events.RebalanceStarted, since=since)
                assert "no member claims them any more" in round_.why
