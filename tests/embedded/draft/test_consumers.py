"""The draft with real consumers in virtual time: its two tables, to within one heartbeat interval, and clients that do
not know the draft.
"""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from aiogroup import Consumer, DuplicateStaticMember, StaticMemberInfoMissing
from aiogroup.embedded import Broker, run_virtual

MINUTE_S = 60
HEARTBEAT_S = 3
NOTICED_S = HEARTBEAT_S + 1
"""The time until all members have rejoined: they learn of a round with their next heartbeat."""
REGISTRATION = {"registration_timeout_ms": 900_000}
EXPANSION = {"registration_timeout_ms": 900_000, "expansion_timeout_ms": 240_000, "rebalance_timeout_ms": 60_000}


class Generations:
    """The generations as their leaders see them, since `begin`: (seconds since then, names of the members)."""

    def __init__(self, broker):
        self._broker = broker
        self._began_ms, self._known = broker.clock.now_ms, 0

    def begin(self):
        self._began_ms, self._known = self._broker.clock.now_ms, self._broker.group("billing").generation

    def _since(self, at_ms):
        return (at_ms - self._began_ms) / 1_000

    @property
    def all(self):
        found = {}
        for each in self._broker.requests("JoinGroup"):
            if each.answer is not None and each.answer.members and each.answer.generation_id > self._known:
                names = " ".join(sorted(member.group_instance_id or "-" for member in each.answer.members))
                found.setdefault(each.answer.generation_id, (self._since(each.answered_at_ms), names))
        return list(found.values())

    @property
    def seen(self):
        return [names for _, names in self.all]

    def join_of(self, client_id):
        """When the client's first JoinGroup came that was not refused."""
        asked = self._broker.requests("JoinGroup", client_id=client_id)
        return self._since(next(each.at_ms for each in asked if each.answer is None or not each.answer.error_code))

    @property
    def now_s(self):
        return self._since(self._broker.clock.now_ms)


class Process:
    """One process of an application: it reads all the time."""

    def __init__(self, broker, name=None, kind=Consumer, **settings):
        named = {} if name is None else {"group_instance_id" if kind is AIOKafkaConsumer else "member_name": name}
        self.events = []
        observed = {"observers": [self]} if kind is Consumer else {}
        self.consumer = kind(
            "orders",
            group_id="billing",
            client_id=name or "nameless",
            bootstrap_servers=broker.bootstrap_servers,
            heartbeat_interval_ms=HEARTBEAT_S * 1_000,
            session_timeout_ms=10_000,
            fetch_max_wait_ms=10_000,
            **observed,
            **named,
            **settings,
        )
        self.error = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def on_event(self, event):
        self.events.append(event)

    async def _run(self):
        try:
            await self.consumer.start()
            while True:
                await self.consumer.getmany(timeout_ms=60_000)
        except Exception as error:  # noqa: BLE001 (a test looks at it)
            self.error = error

    async def end(self):
        """Stop as a process does that will come back."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.consumer.stop()

    @property
    def share(self):
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def told(self, kind):
        return [each for each in self.events if type(each).__name__ == kind]


def played(program, **options):
    """Run `program(broker, generations)` with a broker of two nodes in virtual time."""

    async def run():
        async with Broker(2, seed=1, static_membership="draft", **options) as broker:
            broker.create_topic("orders", 4)
            return await program(broker, Generations(broker))

    return run_virtual(run(), seed=1)


async def group_of(broker, generations, *names, **settings):
    """Processes of a stable group; the first one leads."""
    made = []
    for name in names:
        made.append(Process(broker, name, **settings))
        await broker.clock.pass_s(3 * HEARTBEAT_S + settings.get("expansion_timeout_ms", 0) / 1_000)
    assert generations.seen[-1] == " ".join(sorted(names))
    generations.begin()
    return made


async def ended(*processes):
    for each in processes:
        await each.end()


@pytest.mark.parametrize("moves", [False, True])
def test_scale_down(moves):
    async def program(broker, generations):
        leader, a, b = await group_of(broker, generations, "leader", "A", "B", **REGISTRATION)
        clock, share = broker.clock, a.share
        await a.end()
        await clock.pass_s(10 * MINUTE_S)
        await b.end()
        await clock.pass_s(4 * MINUTE_S)
        a = Process(broker, "A", **REGISTRATION)
        await clock.pass_s(HEARTBEAT_S)
        assert a.share == share
        counted_from_s = 10 * MINUTE_S
        if moves:
            group = broker.group("billing")
            broker.move_coordinator("billing", group.coordinator % 2 + 1, loading_ms=0)
            counted_from_s = 14 * MINUTE_S + HEARTBEAT_S
        await clock.pass_s(counted_from_s + 15 * MINUTE_S - 14 * MINUTE_S - 2 * HEARTBEAT_S)
        assert generations.all == []
        await clock.pass_s(3 * HEARTBEAT_S)
        assert generations.seen == ["A leader"]
        assert generations.all[0][0] == pytest.approx(counted_from_s + 15 * MINUTE_S, abs=NOTICED_S)
        await clock.pass_s(20 * MINUTE_S)
        assert len(generations.all) == 1
        assert a.share | leader.share == {("orders", number) for number in range(4)}
        assert (a.error, leader.error) == (None, None)
        await ended(leader, a)

    played(program)


@pytest.mark.parametrize("moves", [False, True])
def test_scale_up(moves):
    """The table has five minutes. Here they are four, which is the most on Kafka, where the members themselves wait."""

    async def program(broker, generations):
        (leader,) = await group_of(broker, generations, "leader", **EXPANSION)
        clock, share = broker.clock, leader.share
        a = Process(broker, "A", **EXPANSION)
        await clock.pass_s(2 * MINUTE_S)
        if moves:
            broker.move_coordinator("billing", broker.group("billing").coordinator % 2 + 1, loading_ms=0)
        b = Process(broker, "B", **EXPANSION)
        await clock.pass_s(MINUTE_S)
        counted_from_s = generations.join_of("A")
        assert (counted_from_s > 2 * MINUTE_S) == moves
        await clock.pass_s(counted_from_s + 4 * MINUTE_S - 1 - generations.now_s)
        assert (generations.all, leader.share, a.share) == ([], share, set())
        await clock.pass_s(1 + NOTICED_S)
        assert generations.seen == ["A B leader"]
        assert generations.all[0][0] == pytest.approx(counted_from_s + 4 * MINUTE_S, abs=NOTICED_S)
        await clock.pass_s(MINUTE_S)
        c = Process(broker, "C", **EXPANSION)
        await clock.pass_s(4 * MINUTE_S - 1)
        assert len(generations.all) == 1
        await clock.pass_s(1 + 3 * NOTICED_S)
        assert generations.seen[1:] == ["A B C leader"]
        assert generations.all[1][0] == pytest.approx(generations.join_of("C") + 4 * MINUTE_S, abs=NOTICED_S)
        await clock.pass_s(20 * MINUTE_S)
        assert len(generations.all) == 2
        assert [len(each.share) for each in (leader, a, b, c)] == [1, 1, 1, 1]
        failures = [each.told("RebalanceFailed") for each in (a, b, c)]
        assert moves or failures == [[], [], []], "no join has timed out"
        await ended(leader, a, b, c)

    played(program)


def test_a_duplicate_fails_with_the_drafts_error_within_a_heartbeat():
    async def program(broker, generations):
        first, second = await group_of(broker, generations, "leader", "A", **REGISTRATION)
        third = Process(broker, "A", **REGISTRATION)
        await broker.clock.pass_s(2 * HEARTBEAT_S)
        assert isinstance(second.error, DuplicateStaticMember)
        assert (third.error, len(third.share), generations.all) == (None, 2, [])
        await ended(first, second, third)

    played(program)


def test_a_nameless_member_of_a_static_group_cannot_commit_and_goes_on():
    async def program(broker, generations):
        nameless = Process(broker, enable_auto_commit=False)
        await broker.clock.pass_s(HEARTBEAT_S)
        named = Process(broker, "A", **REGISTRATION)
        await broker.clock.pass_s(3 * HEARTBEAT_S)
        assert generations.seen[-1] == "- A"
        for partition in range(4):
            broker.produce("orders", b"1", partition=partition)
        await broker.clock.pass_s(2)
        with pytest.raises(StaticMemberInfoMissing, match="give this process a member_name"):
            await nameless.consumer.commit()
        await named.consumer.commit()
        await broker.clock.pass_s(10 * HEARTBEAT_S)
        assert (nameless.error, len(nameless.share)) == (None, 2)
        await ended(nameless, named)

    played(program)


def test_an_old_broker_downgrades_to_a_dynamic_member_and_the_event_says_so():
    async def program(broker, generations):
        member = Process(broker, "A", **REGISTRATION)
        await broker.clock.pass_s(2 * HEARTBEAT_S)
        assert generations.seen == ["-"]
        (told,) = member.told("StaticMembershipDowngraded")
        assert (told.member_name, told.join_group_version) == ("A", 3)
        await member.end()
        await broker.clock.pass_s(HEARTBEAT_S)
        assert broker.group("billing").members == (), "a dynamic member leaves"

    played(program, api_versions={"JoinGroup": (0, 3)})


def test_a_broker_whose_join_group_has_no_tags_counts_the_registration_as_the_session():
    async def program(broker, generations):
        member = Process(broker, "A", **REGISTRATION)
        await broker.clock.pass_s(2 * HEARTBEAT_S)
        (found,) = broker.group("billing").members
        assert found.session_timeout_ms == 900_000
        await member.end()

    played(program, api_versions={"JoinGroup": (0, 5)})


def test_the_time_outs_are_sent_apart_and_the_features_are_asked_for_only_where_they_are_needed():
    async def program(broker, generations):
        plain = Process(broker, "plain")
        await broker.clock.pass_s(2 * HEARTBEAT_S)
        lookups = [each.version for each in broker.requests("ApiVersions")]
        assert set(lookups) == {0}, "whoever has neither of the settings asks nothing more"
        both = Process(broker, "both", **EXPANSION)
        await broker.clock.pass_s(2 * HEARTBEAT_S)
        asked = [each.version for each in broker.requests("ApiVersions")][len(lookups) :]
        assert [each for each in asked if each] == [4]
        request = broker.requests("JoinGroup", client_id="both")[-1].request
        assert (request.session_timeout_ms, request.registration_timeout_ms) == (10_000, 900_000)
        assert request.expansion_timeout_ms == 240_000
        request = broker.requests("JoinGroup", client_id="plain")[-1].request
        assert (request.registration_timeout_ms, request.expansion_timeout_ms) == (None, None)
        await ended(plain, both)

    played(program)


def test_from_static_to_dynamic_and_back():
    async def program(broker, generations):
        first, second = await group_of(broker, generations, "A", "B", **REGISTRATION)
        await second.end()
        await broker.clock.pass_s(MINUTE_S)
        nameless = Process(broker)
        await broker.clock.pass_s(3 * HEARTBEAT_S)
        assert generations.seen == ["- -"]
        await nameless.end()
        await broker.clock.pass_s(3 * HEARTBEAT_S)
        assert generations.seen[1:] == ["A"], "a process with a name was the first to join"
        second = Process(broker, "B", **REGISTRATION)
        await broker.clock.pass_s(3 * HEARTBEAT_S)
        assert generations.seen[2:] == ["A B"]
        await ended(first, second)

    played(program)


def test_a_client_that_knows_nothing_of_the_draft_is_static_by_its_session():
    async def program(broker, generations):
        foreign = {"kind": AIOKafkaConsumer, "enable_auto_commit": False}
        first, second = await group_of(broker, generations, "A", "B", **foreign)
        share = second.share
        await second.end()
        await broker.clock.pass_s(5)
        second = Process(broker, "B", **foreign)
        await broker.clock.pass_s(HEARTBEAT_S)
        assert (second.share, generations.all) == (share, []), "it was away for less than its session"
        await second.end()
        await broker.clock.pass_s(10 + HEARTBEAT_S)
        assert generations.seen == ["A"]
        assert first.error is None
        with pytest.raises(KafkaError):
            await first.consumer.commit({TopicPartition("orders", 0): 1})
        commits = broker.requests("OffsetCommit")
        assert commits[-1].version < 7, "it has no name: the draft refuses it"
        await ended(first)

    played(program)
