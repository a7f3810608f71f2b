"""What the coordinator answers to a member that leaves, and what the member is told when it is lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from aiogroup._core.changes import Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.membership import facts as f
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorResponse
from aiogroup._core.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitResponse
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.loop.clock import Signal, sleep_ms
from aiogroup._runtime.net.link import COMMIT, HEARTBEAT, JOIN, Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import BrokerError, KafkaTimeoutError
from tests.support.coordinator import Member

LEAVE = LeaveGroupRequest(group_id="billing", members=(MemberIdentity(member_id="me"),))


class Answering(Coordinator):
    """Takes every request and gives this answer."""

    answer: LeaveGroupResponse | None = None

    async def exchange(self, _channel, _timeout, request, *, at_most=None, written=None):
        assert request() is LEAVE
        return self.answer


class Lost(Coordinator):
    """No broker says where it is."""

    async def find(self):
        return await asyncio.Future()


class Ready(Link):
    """With an open connection to every node, which takes what is written."""

    def __init__(self):
        super().__init__(ConsumerConfig(group_id="billing"))
        self.written = []
        self.refuses_by = None

    def ready(self, node_id, channel):
        return self

    def write(self, message, *, at_most, on_answer):
        if self.refuses_by is not None:
            raise self.refuses_by
        self.written.append(message)
        return asyncio.get_running_loop().create_future()

    def take(self, answer, timeout):
        pass


class Connected(Link):
    """With one connection that is open."""

    def __init__(self):
        super().__init__(ConsumerConfig(group_id="billing"))
        self._slot(1, COMMIT).connection = SimpleNamespace(is_open=True)


def coordinator_of(member, kind=Answering, link=None):
    config = ConsumerConfig(group_id="billing")
    changes = Changes(Signal)
    assignment = Assignment(changes)
    delivery = Delivery(assignment, auto_ack=True, records_per_turn=256, turn_ms=60_000)
    return kind(config, link or Link(config), delivery, changes, lambda event: None, member.machine)


async def leave(answer):
    coordinator = coordinator_of(Member())
    coordinator.answer = answer
    await coordinator.leave(LEAVE)


def of_member(code):
    return LeaveGroupResponse(members=(MemberResponse("me", None, code),))


@pytest.mark.parametrize("code", [E.NONE, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID])
async def test_who_is_out_has_left(code):
    await leave(of_member(code))


@pytest.mark.parametrize("answer", [LeaveGroupResponse(error_code=E.NOT_COORDINATOR), of_member(E.NOT_COORDINATOR)])
async def test_a_refused_leave_is_no_leave(answer):
    with pytest.raises(BrokerError, match="NOT_COORDINATOR") as raised:
        await leave(answer)
    assert raised.value.retriable


async def test_the_member_hears_that_its_coordinator_is_lost_whoever_found_out():
    member = Member("pod-1")
    member.to_syncing()
    coordinator = coordinator_of(member)
    coordinator.lose("not known yet: nothing is lost")
    assert fenced(member) == "failed"
    member = Member("pod-1")
    member.to_syncing()
    coordinator = coordinator_of(member)
    coordinator.node_id = 1
    coordinator.lose("commit: NOT_COORDINATOR")
    assert fenced(member) == "syncing"  # the next one may not know the id yet


async def test_a_coordinator_that_was_never_found_is_not_said_to_be_silent():
    with pytest.raises(KafkaTimeoutError, match="the coordinator of 'billing' was not found within 10 ms"):
        await coordinator_of(Member(), Lost).exchange("commit", 10, lambda: None)


def at_once(coordinator, message=LEAVE):
    return coordinator.write_at_once("commit", 10, lambda: message, on_answer=lambda *_: False)


async def test_what_needs_no_wait_is_written_at_once():
    link = Ready()
    coordinator = coordinator_of(Member(), link=link)
    written = at_once(coordinator)
    assert link.written == [LEAVE]
    assert not written.answer.done()
    assert at_once(coordinator, None) is None


async def test_nothing_is_written_past_the_lock():
    link = Ready()
    coordinator = coordinator_of(Member(), link=link)
    async with coordinator.lock:
        assert at_once(coordinator) is None
    assert link.written == []


async def test_nothing_is_written_before_the_news_of_the_heartbeat_thread_is_heard():
    link = Ready()
    coordinator = coordinator_of(Member(), link=link)
    coordinator.has_news = lambda: True
    assert at_once(coordinator) is None
    assert link.written == []


@pytest.mark.parametrize("error", [ValueError("too long"), RuntimeError("the handler is closed")])
async def test_what_cannot_be_written_is_left_to_the_exchange(error):
    link = Ready()
    coordinator = coordinator_of(Member(), link=link)
    link.refuses_by = error
    assert at_once(coordinator) is None


class Moving(Link):
    """FindCoordinator is answered with this node."""

    def __init__(self):
        super().__init__(ConsumerConfig(group_id="billing"))
        self.found = 1
        self.disconnected = []

    async def ask_any(self, request, timeout=None, *, near=False):
        (key,) = request.coordinator_keys
        found = FoundCoordinator(key=key, node_id=self.found, host="kafka", port=9092, error_code=0, error_message=None)
        return FindCoordinatorResponse(coordinators=(found,))

    def disconnect(self, node_id, *channels):
        self.disconnected += [(node_id, channel) for channel in channels]


async def test_when_one_connection_broke_the_others_stay_until_the_coordinator_is_found_elsewhere():
    link = Moving()
    coordinator = coordinator_of(Member(), link=link)
    for node_id in (1, 1, 2):
        await coordinator.find()
        assert not link.disconnected
        coordinator.lose("the connection broke", by_one_connection=True)
        assert not link.disconnected
        link.found = node_id
    await coordinator.find()
    everything = [(1, JOIN), (1, HEARTBEAT), (1, COMMIT)]
    assert link.disconnected == everything
    link.found = 1
    coordinator.lose("no heartbeat answered")
    assert link.disconnected == [*everything, (2, JOIN), (2, HEARTBEAT), (2, COMMIT)]


async def test_a_throttle_time_that_is_over_holds_nothing_up():
    link = Connected()
    link.note_throttle(1, OffsetCommitResponse(throttle_time_ms=50))
    assert link.ready(1, COMMIT) is None
    await sleep_ms(50)
    assert link.ready(1, COMMIT) is not None


def fenced(member):
    member.report(f.HeartbeatAnswered(member.identity, E.FENCED_INSTANCE_ID))
    return member.state
