"""A static member whose new id its coordinator took along into nothing is not fenced: nobody has its name."""

from __future__ import annotations

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from tests.support.coordinator import Member, joined, rejoin_wanted, synced

GONE = "gone"  # heard over another connection: nothing was asked on this one
UNDECIDED = [E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, None, GONE]


def lose_sync(member, code):
    if code == GONE:
        member.report(f.CoordinatorGone())
        member.answer_sync(synced(error_code=E.REBALANCE_IN_PROGRESS))
    elif code is None:
        member.report(f.RequestLost(member.asked_as, "connection lost"))
    else:
        member.answer_sync(synced(error_code=code))
    member.pass_ms(5_000)
    return member.ask(JoinGroupRequest)


@pytest.mark.parametrize("code", UNDECIDED)
def test_an_id_that_no_round_was_decided_with_is_given_up(code):
    member = Member("pod-1")
    member.to_syncing()
    assert lose_sync(member, code).member_id == "m1"
    member.answer_join(joined("", -1, error_code=E.FENCED_INSTANCE_ID))
    member.pass_ms(5_000)
    again = member.ask(JoinGroupRequest)
    assert (again.member_id, again.group_instance_id) == ("", "pod-1")


@pytest.mark.parametrize("code", UNDECIDED)
def test_only_once(code):
    member = Member("pod-1")
    member.to_syncing()
    lose_sync(member, code)
    member.answer_join(joined("", -1, error_code=E.FENCED_INSTANCE_ID))
    member.pass_ms(5_000)
    member.ask(JoinGroupRequest)
    member.answer_join(joined("", -1, error_code=E.FENCED_INSTANCE_ID))
    assert member.state == "failed"


def test_a_late_heartbeat_says_nothing_that_join_group_will_not_say_better():
    member = Member("pod-1")
    member.to_syncing()
    sent_by = member.identity
    lose_sync(member, E.NOT_COORDINATOR)
    member.report(f.HeartbeatAnswered(sent_by, E.FENCED_INSTANCE_ID))
    assert member.state == "joining"


@pytest.mark.parametrize("code", UNDECIDED)
def test_an_id_that_a_round_was_decided_with_is_fenced(code):
    member = Member("pod-1")
    member.to_stable()
    member.report(rejoin_wanted("somebody came"))
    member.to_syncing(generation=2)
    lose_sync(member, code)
    member.answer_join(joined("", -1, error_code=E.FENCED_INSTANCE_ID))
    assert member.state == "failed"


def test_another_coordinator_that_refuses_the_first_thing_it_is_asked():
    member = Member("pod-1")
    member.to_syncing()
    member.report(f.CoordinatorGone())
    member.report(f.HeartbeatAnswered(member.identity, E.FENCED_INSTANCE_ID))
    member.answer_sync(synced(error_code=E.FENCED_INSTANCE_ID))
    again = member.ask(JoinGroupRequest)
    assert (again.member_id, again.group_instance_id) == ("", "pod-1")


def test_a_coordinator_that_was_lost_before_the_id_was_given_or_after_it_was_decided_with_says_nothing():
    member = Member("pod-1")
    member.report(f.CoordinatorGone())
    member.to_stable()
    member.report(f.CoordinatorGone())
    member.report(f.HeartbeatAnswered(member.identity, E.FENCED_INSTANCE_ID))
    assert member.state == "failed"


def test_while_its_coordinator_stays_a_new_id_is_fenced():
    member = Member("pod-1")
    member.to_syncing()
    member.answer_sync(synced(error_code=E.REBALANCE_IN_PROGRESS))
    member.ask(JoinGroupRequest)
    member.answer_join(joined("", -1, error_code=E.FENCED_INSTANCE_ID))
    assert member.state == "failed"
