"""Heartbeats and both watchdogs over a coordinator that answers as told; the same code that the thread runs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from aiogroup._core.changes import Changes
from aiogroup._core.cluster import Broker, Cluster
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.membership.thread_member import MemberSnapshot, ThreadMember
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.find_coordinator import Coordinator as Found
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiogroup._core.telemetry import events
from aiogroup._runtime.coordinator import CoordinatorLine
from aiogroup._runtime.loop.clock import Signal, now_ms, sleep_ms, timeout_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.membership.heartbeat import Heartbeat
from aiogroup._runtime.membership.loop_watchdog import LoopWatchdog
from aiogroup._runtime.membership.poll_watchdog import PollWatchdog
from aiogroup._runtime.net.link import COMMIT, HEARTBEAT, Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import KafkaTimeoutError

ME = Identity("billing", None, "m1", 7)
LEAVE = LeaveGroupRequest(group_id="billing", members=(MemberIdentity(member_id="m1"),))
SESSION_MS, BEAT_MS, POLL_MS = 10_000, 3_000, 30_000


class Wire:
    """A connection whose other end answers at once, or not at all while `is_silent`."""

    def __init__(self, place):
        self.place = place
        self.is_open = True

    def version_of(self, _request_type, _at_most=None):
        return 9

    def write(self, request, *, at_most=None, on_answer=None):
        self.place.written.append((now_ms(), request))
        answer = asyncio.get_running_loop().create_future()
        if not self.place.is_silent:
            answer.set_result(self.place.answer_to(request))
        return answer

    async def answer(self, answer, timeout):
        try:
            async with timeout_ms(timeout):
                return await answer
        except TimeoutError as error:
            raise KafkaTimeoutError("no answer") from error

    def close(self):
        self.is_open = False


class WiredLink(Link):
    """Connects at once; what is sent is kept in `written`, with its instant."""

    def __init__(self, config):
        super().__init__(config)
        self.cluster = Cluster({1: Broker(1, "here", 9092)})
        self.written = []
        self.is_silent = False
        self.codes = {}
        self.wires = {}
        self.disconnected = []

    def answer_to(self, request):
        match request:
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=self.codes.get(HeartbeatRequest, 0))
            case LeaveGroupRequest():
                return LeaveGroupResponse()
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(coordinators=(Found(key="billing", node_id=1, host="here", port=9092),))
            case _:
                return MetadataResponse()

    async def connect(self, node_id, channel):
        wire = self.wires.setdefault((node_id, channel), Wire(self))
        if not wire.is_open:
            wire = self.wires[node_id, channel] = Wire(self)
        return wire

    def disconnect(self, node_id, *channels):
        self.disconnected.append((node_id, channels))
        for channel in channels:
            if (wire := self.wires.get((node_id, channel))) is not None:
                wire.close()

    def sent(self, kind):
        return [at for at, request in self.written if isinstance(request, kind)]


class Keeping:
    """The tasks of a member, and what they told."""

    def __init__(self):
        self.config = ConsumerConfig(
            group_id="billing",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=BEAT_MS,
            max_poll_interval_ms=POLL_MS,
        )
        self.link = WiredLink(self.config)
        self.told, self.facts, self.expired = [], [], []
        changes = Changes(Signal)
        emit = self.told.append
        self.supervisor = Supervisor(lambda *_: None)
        self.snapshot = MemberSnapshot(ME, may_heartbeat=True, farewell=LEAVE)
        member = ThreadMember(lambda: self.snapshot, self.facts.append)
        self.line = CoordinatorLine(self.config, self.link, changes, emit, member)
        self.clock = PollClock(POLL_MS, now_ms())
        self.heartbeat = Heartbeat(self.config, changes, emit, self.line)
        self.link.is_heartbeat_late = self.heartbeat.is_late
        self.watchdog = PollWatchdog(
            self.config, changes, emit, self.line, self.clock, lambda: self.expired.append(now_ms())
        )
        membership = SimpleNamespace(session=("session_timeout_ms", SESSION_MS))
        self.loop_watchdog = LoopWatchdog(self.config, emit, SimpleNamespace(membership=membership), ())

    async def start(self):
        await self.supervisor.start()
        for task in (self.heartbeat, self.watchdog, self.loop_watchdog):
            self.supervisor.spawn("task", task.run)
        await sleep_ms(BEAT_MS + 10)
        self.link.written.clear()

    def heard(self, kind):
        return [event for event in self.told if type(event) is kind]


@pytest.fixture
async def keeping():
    made = Keeping()
    await made.start()
    yield made
    await made.supervisor.close()
    assert made.supervisor.failure is None


def block(duration_ms):
    """What `time.sleep` does to the loop."""
    asyncio.get_running_loop().jump(duration_ms / 1000)


async def test_one_heartbeat_an_interval(keeping):
    began = now_ms()
    await sleep_ms(5 * BEAT_MS)
    sent = keeping.link.sent(HeartbeatRequest)
    assert len(sent) == 5
    assert all(abs(at - (began + (number + 1) * BEAT_MS)) < 30 for number, at in enumerate(sent))


async def test_8_a_coordinator_that_never_answers_is_lost_within_the_session(keeping):
    keeping.link.is_silent = True
    answered_at = now_ms()
    while not keeping.heard(events.CoordinatorLost):
        await sleep_ms(100)
    assert now_ms() - answered_at < SESSION_MS + BEAT_MS
    assert keeping.link.disconnected
    keeping.link.is_silent = False
    await sleep_ms(1_000)
    assert keeping.link.sent(FindCoordinatorRequest)
    assert keeping.line.membership.may_heartbeat


@pytest.mark.parametrize("blocked_ms", [3_500, 5_500, 25_000])
async def test_13_after_a_blocked_loop_the_first_thing_sent_is_a_heartbeat(keeping, blocked_ms):
    async def commit():
        await keeping.line.exchange(COMMIT, 1_000, lambda: MetadataRequest())

    send = keeping.link.send
    keeping.supervisor.spawn("wakes early", lambda: asleep_then(1_000, send, 1, MetadataRequest(), "fetch"))
    await sleep_ms(500)
    block(blocked_ms)
    keeping.supervisor.spawn("commit", commit)  # what the application does first
    keeping.supervisor.spawn("fetch", lambda: asleep_then(0, keeping.link.send, 1, MetadataRequest(), "fetch"))
    await sleep_ms(300)
    kinds = [type(request) for _, request in keeping.link.written]
    assert kinds[0] is HeartbeatRequest
    assert kinds.count(HeartbeatRequest) == 1
    assert kinds.count(MetadataRequest) == 3
    assert not keeping.heard(events.CoordinatorLost)


async def asleep_then(duration_ms, work, *args):
    await sleep_ms(duration_ms)
    await work(*args)


@pytest.mark.parametrize(
    ("blocked_ms", "is_reported", "is_warned"),
    [(400, False, False), (1_000, True, False), (5_200, True, False), (5_300, True, True), (60_000, True, True)],
)
async def test_13_a_blocked_loop_is_reported_and_above_half_the_session_a_warning(
    keeping, blocked_ms, is_reported, is_warned
):
    await asyncio.sleep(0)
    woke_at = now_ms()
    while now_ms() - woke_at < 250:  # the watchdog has just looked
        await sleep_ms(1)
    block(blocked_ms)
    await sleep_ms(300)
    told, warned = keeping.heard(events.EventLoopBlocked), keeping.heard(events.SessionEndangered)
    assert [abs(each.blocked_ms - blocked_ms) <= 250 for each in told] == [True] * is_reported
    assert len(warned) == is_warned
    for each in warned:
        assert f"session_timeout_ms={SESSION_MS}" in each.why
        assert "heartbeat_thread=True" in each.why


async def test_a_request_does_not_wait_for_a_heartbeat_that_cannot_be_sent(keeping):
    connect = keeping.link.connect

    async def connect_all_but_heartbeats(node_id, channel):
        if channel == HEARTBEAT:
            await asyncio.Event().wait()
        return await connect(node_id, channel)

    keeping.link.connect = connect_all_but_heartbeats
    block(5_500)
    began = now_ms()
    await keeping.link.send(1, MetadataRequest(), "fetch")
    assert now_ms() == began
    assert not keeping.link.sent(HeartbeatRequest)


async def test_2_the_poll_interval_ends_heartbeats_and_says_good_bye_at_once(keeping):
    keeping.clock.on_assignment(True, now_ms())
    since = now_ms()
    await sleep_ms(POLL_MS + 50)
    (left_at,) = keeping.link.sent(LeaveGroupRequest)
    assert left_at - since <= POLL_MS + 10
    assert keeping.expired == [left_at]
    assert len(keeping.heard(events.PollIntervalWarning)) == 1
    beats = len(keeping.link.sent(HeartbeatRequest))
    await sleep_ms(3 * POLL_MS)  # the main loop does not move
    assert len(keeping.link.sent(HeartbeatRequest)) == beats
    assert len(keeping.link.sent(LeaveGroupRequest)) == 1
    assert len(keeping.facts) == 1


async def test_waiting_for_records_is_never_an_expiry(keeping):
    keeping.clock.on_assignment(True, now_ms())
    keeping.clock.on_request(now_ms())
    await sleep_ms(3 * POLL_MS)
    assert keeping.facts == []
    keeping.clock.on_answer(now_ms())
    await sleep_ms(POLL_MS - 10)
    assert keeping.facts == []
    await sleep_ms(20)
    assert len(keeping.facts) == 1


@pytest.mark.parametrize(("code", "ends"), [(E.UNKNOWN_MEMBER_ID, True), (E.REBALANCE_IN_PROGRESS, False)])
async def test_what_the_coordinator_answers_while_the_main_loop_sleeps(keeping, code, ends):
    keeping.link.codes[HeartbeatRequest] = code
    await sleep_ms(20 * BEAT_MS)
    beats_count = len(keeping.link.sent(HeartbeatRequest))
    assert beats_count == 1 if ends else beats_count >= 19
    assert {each.error_code for each in keeping.facts} == {code}
