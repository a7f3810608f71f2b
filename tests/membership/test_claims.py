"""The cooperative protocol (KIP-429): what is held is claimed, not given up, and no claim is out of date."""

from __future__ import annotations

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from tests.support.coordinator import COOPERATIVE, Member, joined, rejoin_wanted, synced


@pytest.fixture
def member():
    """Stable in generation 1, and asked to rejoin."""
    member = Member(settings=COOPERATIVE)
    member.to_stable()
    member.report(rejoin_wanted("somebody came"))
    return member


def rejoin(member):
    assert member.ask(f.HandOver).keeps
    member.report(f.HandedOver())
    return member.ask(JoinGroupRequest)


def test_the_first_join_claims_nothing():
    member = Member(settings=COOPERATIVE)
    assert not member.ask(f.HandOver).keeps
    member.report(f.HandedOver())
    assert member.machine.claim == -1
    assert not member.machine.may_deliver


def test_an_eager_member_keeps_nothing():
    member = Member()
    member.to_stable()
    member.report(rejoin_wanted("somebody came"))
    assert not member.ask(f.HandOver).keeps
    assert not member.machine.may_deliver
    member.report(f.HandedOver())
    assert member.machine.claim == -1


def test_records_flow_through_the_whole_round(member):
    flows = [member.machine.may_deliver]
    rejoin(member)
    flows.append(member.machine.may_deliver)
    member.answer_join(joined("m1", 2, leader="another"))
    flows.append(member.machine.may_deliver)
    member.ask(SyncGroupRequest)
    member.answer_sync(synced(0))
    flows.append(member.machine.may_deliver)
    assert member.ask(f.Adopt).generation == 2
    member.report(f.Adopted(2))
    assert flows == [True] * 4
    assert member.state == "stable"
    assert member.machine.claim == -1


def test_the_claim_is_that_of_the_round_the_others_know_us_in(member):
    rejoin(member)
    assert member.machine.claim == 1
    member.answer_join(joined("m1", 2, leader="another"))
    member.ask(SyncGroupRequest)
    member.answer_sync(synced(error_code=E.REBALANCE_IN_PROGRESS))
    member.ask(JoinGroupRequest)
    assert member.state == "joining"
    assert member.machine.claim == 2
    assert member.machine.may_deliver


def test_what_is_held_through_a_round_that_went_by_is_lost(member):
    rejoin(member)
    member.answer_join(joined("m1", 3, leader="another"))
    hand_over = member.ask(f.HandOver)
    assert not hand_over.keeps
    assert not member.machine.identity.is_member  # so that it is lost: a commit of generation 3 would be accepted
    member.report(f.HandedOver())
    assert member.ask(JoinGroupRequest).member_id == "m1"
    assert member.machine.claim == -1


@pytest.mark.parametrize("code", [E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.UNKNOWN_SERVER_ERROR])
def test_a_join_that_the_coordinator_did_not_take_keeps_the_claim(member, code):
    rejoin(member)
    member.answer_join(joined("", -1, error_code=code))
    member.pass_ms(2_000)
    member.ask(JoinGroupRequest)
    assert member.machine.claim == 1


@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION])
def test_who_is_not_known_any_more_loses_what_it_claimed(member, code):
    rejoin(member)
    member.answer_join(joined("", -1, error_code=code))
    assert member.state == "preparing"
    assert not member.machine.may_deliver
    assert not member.identity.is_member
    assert not member.ask(f.HandOver).keeps
    member.report(f.HandedOver())
    assert member.ask(JoinGroupRequest).member_id == ("" if code == E.UNKNOWN_MEMBER_ID else "m1")
    assert member.machine.claim == -1


@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION])
@pytest.mark.parametrize("by", ["sync", "heartbeat", "commit"])
def test_the_generation_ends_before_the_round_is_decided(member, code, by):
    rejoin(member)
    member.answer_join(joined("m1", 2, leader="another"))
    member.ask(SyncGroupRequest)
    if by == "sync":
        member.answer_sync(synced(error_code=code))
    else:
        fact = f.HeartbeatAnswered if by == "heartbeat" else f.CommitAnswered
        member.report(fact(member.identity, code))
    assert member.state == "preparing"
    assert not member.ask(f.HandOver).keeps
    assert not member.machine.may_deliver


def test_a_join_without_an_answer_gives_everything_up_while_that_may_still_be_committed(member):
    rejoin(member)
    member.report(f.RequestLost(member.asked_as, "connection lost"))
    assert member.state == "preparing"
    assert (member.identity.member_id, member.identity.generation) == ("m1", 1)
    assert not member.ask(f.HandOver).keeps
    member.report(f.HandedOver())
    assert member.poll() == []
    member.pass_ms(2_000)
    member.ask(JoinGroupRequest)
    assert member.machine.claim == -1


def test_a_sync_without_an_answer_keeps_the_claim(member):
    rejoin(member)
    member.answer_join(joined("m1", 2, leader="another"))
    member.ask(SyncGroupRequest)
    member.report(f.RequestLost(member.asked_as, "connection lost"))
    member.pass_ms(2_000)
    member.ask(JoinGroupRequest)
    assert member.machine.claim == 2


def test_a_generation_that_ends_during_the_hand_over_is_handed_over_once_more(member):
    assert member.ask(f.HandOver).keeps
    member.report(f.HeartbeatAnswered(member.identity, E.UNKNOWN_MEMBER_ID))
    member.report(f.HandedOver())
    assert member.state == "preparing"
    assert not member.ask(f.HandOver).keeps
    member.report(f.HandedOver())
    assert member.ask(JoinGroupRequest).member_id == ""
    assert member.machine.claim == -1


def test_without_topics_what_is_claimed_is_given_up_before_the_member_leaves(member):
    assert member.ask(f.HandOver).keeps
    member.report(f.HandedOver())
    member.report(f.SubscriptionChanged(frozenset(), "unsubscribe"))
    assert not member.ask(f.HandOver).keeps
    assert member.identity.is_member
    member.report(f.HandedOver())
    assert isinstance(member.poll()[0], LeaveGroupRequest)
    assert member.state == "left"


def test_who_stalls_claims_nothing_when_it_comes_back(member):
    rejoin(member)
    member.report(f.PollIntervalPassed())
    assert not member.machine.may_deliver
    member.report(f.RecordsWanted())
    assert not member.ask(f.HandOver).keeps
    member.report(f.HandedOver())
    assert member.machine.claim == -1
