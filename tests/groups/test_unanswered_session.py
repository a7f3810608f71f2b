"""KIP-62, 8: while no heartbeat is answered for a session nothing is handed out (kip-62-liveness.md). Virtual clock."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import HealthStatus, TopicPartition
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.telemetry import events
from tests.groups.scripted import BEAT_MS, POLL_MS, SESSION_MS, TICKS_MS, TOPIC, sleep_ms
from tests.support.group_members import until

COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}
OFTEN_MS = 100
MOMENT_MS = 50


class Reading:
    """An application that reads without a pause, one of the ways there are; when it was given what."""

    def __init__(self, group, member, way):
        self.group, self.member, self.way = group, member, way
        self.given = []  # (instant, partition, offset)
        self.empty_at_ms = []  # when a batch was empty
        self.task = group.loop.create_task(member.do(getattr(self, f"_{way}")()))

    def _note(self, record):
        self.given.append((self.group.now_ms, record.partition, record.offset))

    async def _iterate(self):
        async for record in self.member.consumer:
            self._note(record)

    async def _merged(self):
        async for record in self.member.consumer.merged(max_task_idle_ms=-1):
            self._note(record)

    async def _getone(self):
        while True:
            self._note(await self.member.consumer.getone())

    async def _getmany(self, name="getmany"):
        while True:
            batch = await getattr(self.member.consumer, name)(timeout_ms=500)
            for record in (each for records in batch.values() for each in records):
                self._note(record)
            if not batch:
                self.empty_at_ms.append(self.group.now_ms)

    async def _poll(self):
        await self._getmany("poll")

    def between(self, from_ms, to_ms):
        return [each for each in self.given if from_ms < each[0] <= to_ms]


@pytest.fixture
async def flow(group):
    """A record in each partition every so often, until the test ends."""

    async def produce():
        while True:
            group.produce(0, 1)
            await sleep_ms(OFTEN_MS)

    producing = group.loop.create_task(produce())
    yield
    producing.cancel()


@pytest.fixture
async def reading(group):
    made = []

    def begin(member, way="getone"):
        made.append(Reading(group, member, way))
        return made[-1]

    yield begin
    for each in made:
        each.member.thaw()
        each.task.cancel()
    await asyncio.gather(*(each.task for each in made), return_exceptions=True)


async def alone(group, **settings):
    """A member that reads only as a test says, and has just had an answer: since when."""
    member = await group.member("m", reads=False, **settings).start()
    await group.shared_out(member)
    await member.beats(1)
    return member, group.now_ms


def keep(group, member):
    """The coordinator counts it all the time: it was elected in the outage, say, and owes everybody a session."""
    books = group.brokers.books()
    kept = books.members[member.consumer.group_metadata().member_id]
    kept.session_timer.cancel()
    kept.session_timer = kept.session_ends_at_ms = None


WAYS = ["iterate", "merged", "getone", "getmany", "poll"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("flow")
async def test_8_nothing_is_handed_out_until_an_answer_says_that_the_generation_counts(group, reading, way):
    member, answered_ms = await alone(group)
    app = reading(member, way)
    group.network.lose(member.process, [HeartbeatRequest], POLL_MS + 3 * SESSION_MS)
    keep(group, member)
    ends_ms = answered_ms + SESSION_MS + TICKS_MS
    lasts_ms = POLL_MS + SESSION_MS - BEAT_MS  # waiting is no stall of the application
    await sleep_ms(SESSION_MS)
    assert app.between(ends_ms - BEAT_MS, ends_ms)
    health = member.consumer.health()
    assert (health.status, health.is_ready, health.is_alive) == (HealthStatus.UNREACHABLE, False, True)
    assert "session_timeout_ms" in health.why
    await sleep_ms(lasts_ms)
    assert app.between(ends_ms, group.now_ms) == []
    assert member.partitions == [0, 1]
    (told,) = member.all(events.SessionUnanswered)
    assert (told.setting, told.session_timeout_ms) == ("session_timeout_ms", SESSION_MS)
    assert [tp.partition for tp in told.partitions] == [0, 1]
    assert member.at_ms(events.SessionUnanswered) <= ends_ms
    assert not app.task.done()
    if way in ("getmany", "poll"):
        assert len([at for at in app.empty_at_ms if at > ends_ms]) >= lasts_ms // 500 - 2

    group.network.lost.clear()
    since = len(member.log)
    await member.beats(1)
    back_ms = member.at_ms(events.HeartbeatAcknowledged, since)
    assert app.between(ends_ms, back_ms - 1) == []
    await sleep_ms(MOMENT_MS)
    assert len(app.between(back_ms - 1, back_ms + MOMENT_MS)) > 10  # what waited
    assert member.consumer.health().status is HealthStatus.READY
    assert member.count(events.SessionUnanswered) == 1
    assert not member.count("lost", "revoked", events.PollIntervalExceeded, events.PollIntervalWarning)
    assert member.count("assigned") == len(group.generations) == 1
    for number in (0, 1):
        offsets = [offset for _, partition, offset in app.given if partition == number]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))  # each once, in order

    group.network.withheld = (HeartbeatRequest,)  # the next outage is told, too
    await until(lambda: member.count(events.SessionUnanswered) == 2)
    group.network.withheld = ()


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.usefixtures("flow")
async def test_8_when_the_group_went_on_without_it_the_partitions_are_lost(group, reading, settings):
    cut_off, answered_ms = await alone(group, **settings)
    first = reading(cut_off)
    group.network.lose(cut_off.process, [HeartbeatRequest], 4 * SESSION_MS)
    other = await group.member("other", reads=False, **settings).start()
    second = reading(other)
    await until(lambda: other.partitions == [0, 1], 60, other.tail)
    await sleep_ms(SESSION_MS)
    assert second.given
    assert first.between(answered_ms + SESSION_MS + TICKS_MS, group.now_ms) == []
    assert cut_off.partitions == [0, 1]
    assert not cut_off.count("lost")
    await until(lambda: cut_off.count("lost"), 60, cut_off.tail)
    assert first.between(answered_ms + SESSION_MS + TICKS_MS, cut_off.at_ms("lost")) == []
    await group.shared_out(cut_off, other)
    assert cut_off.count("lost") == cut_off.count(events.SessionUnanswered) == 1


@pytest.mark.usefixtures("flow")
async def test_8_of_a_static_member_the_registration_timeout_counts(group, reading):
    registration_ms = 3 * SESSION_MS
    member, answered_ms = await alone(group, member_name="one", registration_timeout_ms=registration_ms)
    app = reading(member)
    group.network.withheld = (HeartbeatRequest,)
    await sleep_ms(registration_ms + 2 * SESSION_MS)
    assert app.given[-1][0] == pytest.approx(answered_ms + registration_ms, abs=OFTEN_MS + TICKS_MS)
    assert app.given[-1][0] <= answered_ms + registration_ms + TICKS_MS
    (told,) = member.all(events.SessionUnanswered)
    assert (told.setting, told.session_timeout_ms) == ("registration_timeout_ms", registration_ms)


@pytest.mark.usefixtures("flow")
async def test_8_javas_way_goes_on_and_says_so(group, reading):
    member, answered_ms = await alone(group, deliver_while_unreachable=True)
    app = reading(member)
    group.network.withheld = (HeartbeatRequest,)
    await sleep_ms(3 * SESSION_MS)
    assert app.between(answered_ms + 2 * SESSION_MS, group.now_ms)
    assert member.count(events.SessionUnanswered) == 1
    assert member.consumer.health().status is HealthStatus.UNREACHABLE


@pytest.mark.parametrize("counts", [True, False], ids=["it counts", "the group went on"])
@pytest.mark.usefixtures("flow")
async def test_13_after_a_blocked_loop_nothing_comes_before_the_answer(group, reading, counts):
    """The deadline passed while nothing of the process ran; its application is the first to run again."""
    member, _ = await alone(group)
    app = reading(member)
    await sleep_ms(2 * OFTEN_MS)
    if counts:
        keep(group, member)
    await member.freeze(2 * SESSION_MS)
    woke_ms = group.now_ms
    await sleep_ms(MOMENT_MS)
    sent = [each for each in group.network.sent if each.at_ms >= woke_ms]
    assert isinstance(sent[0].request, HeartbeatRequest)
    answered_ms = sent[0].arrived_ms + 1
    assert app.between(woke_ms - 1, answered_ms - 1) == []
    if counts:
        assert app.between(answered_ms - 1, group.now_ms)
        assert not member.count("lost")
    else:
        await until(lambda: member.count("lost"))
        assert app.between(woke_ms - 1, member.at_ms("lost")) == []


@pytest.mark.usefixtures("flow")
async def test_8_a_cooperative_member_that_joins_asks_on_and_its_records_flow(group, reading):
    """Somebody else keeps the whole group waiting, for longer than the session."""
    slow = await group.member("slow", **COOPERATIVE).start()
    await group.shared_out(slow)
    keeps, _ = await group.member("keeps", reads=False, **COOPERATIVE).start(), await until(lambda: slow.partitions)
    await group.shared_out(slow, keeps)
    app = reading(keeps)
    group.network.hold(slow.process, JoinGroupRequest.API_KEY, 3 * SESSION_MS, lambda: None, is_up=True)
    await keeps.do(keeps.consumer.enforce_rebalance())
    await until(lambda: group.sent(JoinGroupRequest, "keeps")[-1].at_ms > group.now_ms - MOMENT_MS)
    began_ms = group.now_ms
    await sleep_ms(2 * SESSION_MS)
    assert keeps.rebalances > len(keeps.all(events.RebalanceCompleted))  # it is under way still
    assert app.between(group.now_ms - BEAT_MS, group.now_ms)
    assert not keeps.count(events.SessionUnanswered)
    assert len(group.sent(HeartbeatRequest, "keeps", since_ms=began_ms)) >= 2 * SESSION_MS // BEAT_MS - 2
    await group.shared_out(slow, keeps)
    assert not keeps.count("lost")


@pytest.mark.usefixtures("flow")
async def test_8_a_cooperative_member_that_joins_and_is_not_heard_hands_nothing_out(group, reading):
    """All that it says to the coordinator is lost, and then it is made to join: the claim is nobody's to honour."""
    member, answered_ms = await alone(group, **COOPERATIVE, request_timeout_ms=SESSION_MS, max_poll_interval_ms=7_000)
    app = reading(member)
    group.network.lose(member.process, [HeartbeatRequest, JoinGroupRequest], 3 * SESSION_MS)
    await member.do(member.consumer.enforce_rebalance())
    (other,) = [await group.member("other", **COOPERATIVE).start()]
    await until(lambda: other.partitions == [0, 1], 60, other.tail)
    await sleep_ms(SESSION_MS)
    assert app.between(answered_ms + SESSION_MS + TICKS_MS, group.now_ms) == []
    assert other.records
    await group.shared_out(member, other)


@pytest.mark.parametrize("way", ["assign", "group-less"])
@pytest.mark.usefixtures("flow")
async def test_8_who_sends_no_heartbeats_waits_for_no_answer(group, reading, way):
    group_id = None if way == "group-less" else "billing"
    member = await group.member("m", reads=False, topics=(), group_id=group_id).start()
    member.call("assign", [TopicPartition(TOPIC, 0)])
    app = reading(member)
    group.network.withheld = (HeartbeatRequest,)
    await sleep_ms(3 * SESSION_MS)
    assert app.between(group.now_ms - BEAT_MS, group.now_ms)
    assert not member.count(events.SessionUnanswered)
