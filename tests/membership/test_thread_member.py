"""What stands for the membership in the heartbeat thread: it passes facts on, and decides what cannot wait."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.thread_member import MemberSnapshot, ThreadMember
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.support.coordinator import SETTINGS, Member

ME = Identity("billing", None, "m1", 7)
LEAVE = LeaveGroupRequest(group_id="billing", members=(MemberIdentity(member_id="m1"),))


class Border:
    """Both sides of it."""

    def __init__(self, snapshot):
        self.snapshot = snapshot
        self.passed_on = []
        self.thread_member = ThreadMember(lambda: self.snapshot, self.passed_on.append)


@pytest.fixture
def border():
    return Border(MemberSnapshot(ME, may_heartbeat=True, farewell=LEAVE))


@pytest.mark.parametrize(
    ("code", "goes_on"),
    [
        (E.NONE, True),
        (E.REBALANCE_IN_PROGRESS, True),
        (E.NOT_COORDINATOR, True),
        (E.COORDINATOR_LOAD_IN_PROGRESS, True),
        (E.UNKNOWN_MEMBER_ID, False),
        (E.ILLEGAL_GENERATION, False),
        (E.FENCED_INSTANCE_ID, False),
        (E.GROUP_AUTHORIZATION_FAILED, False),
        (E.INVALID_REQUEST, False),
    ],
)
def test_heartbeats_end_with_the_answer_that_ends_the_identity_and_not_with_another(border, code, goes_on):
    fact = f.HeartbeatAnswered(ME, code)
    border.thread_member.handle(fact, 0)
    assert border.passed_on == [fact]
    assert border.thread_member.may_heartbeat is goes_on


def test_an_answer_to_an_older_identity_ends_nothing(border):
    border.thread_member.handle(f.HeartbeatAnswered(dataclasses.replace(ME, generation=6), E.ILLEGAL_GENERATION), 0)
    assert border.thread_member.may_heartbeat


@pytest.mark.parametrize("fact", [f.HeartbeatAnswered(ME, E.UNKNOWN_MEMBER_ID), f.PollIntervalPassed()])
def test_heartbeats_begin_again_with_the_next_era_even_of_the_same_identity(border, fact):
    border.thread_member.handle(fact, 0)
    border.snapshot = dataclasses.replace(border.snapshot, node_id=3)
    assert not border.thread_member.may_heartbeat
    border.snapshot = dataclasses.replace(border.snapshot, era=2)
    assert border.thread_member.may_heartbeat
    assert border.thread_member.identity == ME


def test_it_speaks_for_the_member_that_it_got_last(border):
    border.snapshot = MemberSnapshot(dataclasses.replace(ME, member_id="m2"), may_heartbeat=True, era=1)
    assert border.thread_member.may_heartbeat
    assert border.thread_member.identity.member_id == "m2"


def test_the_poll_interval_ends_the_identity_and_says_good_bye_once(border):
    border.thread_member.handle(f.PollIntervalPassed(), 0)
    assert border.thread_member.farewells.take() == (LEAVE,)
    assert border.thread_member.farewells.take() == ()
    assert not border.thread_member.may_heartbeat
    assert border.passed_on == [f.PollIntervalPassed(left_as="m1")]


def test_a_static_member_goes_silent(border):
    border.snapshot = dataclasses.replace(border.snapshot, farewell=None)
    border.thread_member.handle(f.PollIntervalPassed(), 0)
    assert border.thread_member.farewells.take() == ()
    assert not border.thread_member.may_heartbeat


def test_no_heartbeat_where_the_membership_wants_none(border):
    border.snapshot = dataclasses.replace(border.snapshot, may_heartbeat=False)
    assert not border.thread_member.may_heartbeat


@pytest.mark.parametrize(("left_as", "leaves_count"), [("m1", 0), ("", 1), ("an older one", 1)])
def test_the_member_leaves_itself_unless_the_thread_has_done_so(left_as, leaves_count):
    member = Member()
    member.to_stable("m1", 7)
    member.report(f.PollIntervalPassed(left_as))
    assert member.state == "parked"
    assert sum(isinstance(each, LeaveGroupRequest) for each in member.poll()) == leaves_count


def test_the_farewell_of_a_static_member_is_silence_unless_it_shall_leave():
    quiet, loud = Member("a"), Member("a", settings=dataclasses.replace(SETTINGS, leave_on_poll_interval=True))
    for member in (quiet, loud):
        member.to_stable("m1", 7)
    assert quiet.machine.farewell is None
    assert loud.machine.farewell.members[0].group_instance_id == "a"
