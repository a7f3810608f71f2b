"""Static membership (KIP-345) in the membership machine: what is announced, held back, kept and never taken over."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.classic.requests import write_assignment
from aiogroup._core.membership.settings import rejoin_delay_ms
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup.errors import FencedInstanceIdError, InvalidSessionTimeoutError
from aiogroup.structs import TopicPartition
from tests.support.coordinator import ORDERS, SETTINGS, Member, apis, joined, rejoin_wanted, synced

REGISTERED = dataclasses.replace(SETTINGS, registration_timeout_ms=900_000)
HOLDING = dataclasses.replace(SETTINGS, rejoin_delay_ms=60_000)
LEAVING = dataclasses.replace(SETTINGS, leave_on_poll_interval=True)


def heartbeat(member, code, identity=None):
    member.report(f.HeartbeatAnswered(identity or member.identity, code))


# What JoinGroup announces.


def test_registration_timeout_is_the_session_timeout_that_a_static_member_announces():
    assert Member("pod-1", settings=REGISTERED).to_joining().session_timeout_ms == 900_000
    assert Member("pod-1").to_joining().session_timeout_ms == 10_000
    assert Member(settings=REGISTERED).to_joining().session_timeout_ms == 10_000


@pytest.mark.parametrize(
    ("settings", "named"), [(REGISTERED, "registration_timeout_ms=900000"), (SETTINGS, "session_timeout_ms=10000")]
)
def test_refused_session_timeout_is_reported_by_the_name_of_its_setting(settings, named):
    member = Member("pod-1", settings=settings)
    member.to_joining()
    member.answer_join(joined("", -1, error_code=E.INVALID_SESSION_TIMEOUT))
    assert member.state == "failed"
    assert isinstance(member.machine.failure, InvalidSessionTimeoutError)
    assert f"refuses {named}:" in str(member.machine.failure)
    assert "30 minutes" in str(member.machine.failure)


# The draft's form, where the coordinator counts both time-outs itself.

DRAFT = dataclasses.replace(
    SETTINGS, registration_timeout_ms=900_000, expansion_timeout_ms=300_000, rejoin_delay_ms=60_000
)
EXPANDING = dataclasses.replace(SETTINGS, expansion_timeout_ms=300_000)


def in_draft(instance_id="pod-1", settings=DRAFT):
    return Member(instance_id, settings=settings, serves=apis(is_draft=True))


def time_outs(request):
    return request.session_timeout_ms, request.registration_timeout_ms, request.expansion_timeout_ms


def test_in_the_draft_join_group_carries_each_time_out_in_its_own_field():
    assert time_outs(in_draft().to_joining()) == (10_000, 900_000, 300_000)
    assert time_outs(in_draft(settings=REGISTERED).to_joining()) == (10_000, 900_000, None), (
        "what is not set is not sent"
    )
    assert time_outs(in_draft(settings=EXPANDING).to_joining()) == (10_000, None, 300_000)
    assert time_outs(Member("pod-1", settings=DRAFT).to_joining()) == (900_000, None, None)
    too_old = Member("pod-1", settings=DRAFT, serves=apis(is_draft=True, join_group=5))
    assert time_outs(too_old.to_joining()) == (900_000, None, None), "JoinGroup 5 has no tags"
    assert time_outs(in_draft(None).to_joining()) == (10_000, None, None), "a dynamic member"


def test_in_the_draft_a_rebalance_is_not_held_back():
    member = in_draft()
    member.to_stable()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    member.ask(f.HandOver)


def test_in_the_draft_the_session_is_what_a_coordinator_may_refuse():
    member = in_draft()
    member.to_joining()
    member.answer_join(joined("", -1, error_code=E.INVALID_SESSION_TIMEOUT))
    assert "refuses session_timeout_ms=10000:" in str(member.machine.failure)


def test_a_join_that_was_made_for_the_other_form_is_made_again():
    member = Member("pod-1", settings=DRAFT)
    assert time_outs(member.to_joining()) == (900_000, None, None)
    for is_draft, expected in ((True, (10_000, 900_000, 300_000)), (False, (900_000, None, None))):
        member.report(f.CoordinatorGone())
        assert member.machine.forms.question(member.identity), "so that the request that is not sent yet is dropped"
        member.serves = apis(is_draft=is_draft)
        member.report(f.RequestDropped())
        assert time_outs(member.ask_to_join()) == expected


@pytest.mark.parametrize(
    ("name", "settings", "asks"),
    [("pod-1", REGISTERED, True), ("pod-1", EXPANDING, True), ("pod-1", SETTINGS, False), (None, DRAFT, False)],
)
def test_a_coordinator_is_asked_for_its_form_once_if_that_makes_a_difference(name, settings, asks):
    member = Member(name, settings=settings)
    member.ask(f.HandOver)
    member.report(f.HandedOver())
    for _ in range(2):
        if asks:
            member.ask(ApiVersionsRequest)
            assert member.poll() == []
            member.report(f.ApisAnswered(member.identity, apis()))
        for _ in range(2):
            member.ask(JoinGroupRequest)
            member.report(f.RequestDropped())
        member.report(f.CoordinatorGone())


def test_a_question_for_the_form_that_is_lost_is_asked_again_after_a_while():
    member = Member("pod-1", settings=REGISTERED)
    member.ask(f.HandOver)
    member.report(f.HandedOver())
    member.ask(ApiVersionsRequest)
    member.report(f.RequestLost(member.identity, "the connection broke"))
    assert member.poll() == []
    member.now_ms = member.wake_at_ms
    member.ask(ApiVersionsRequest)
    member.report(f.NameNotCarried())
    member.report(f.ApisAnswered(member.asked_as, apis(is_draft=True)))
    assert time_outs(member.ask(JoinGroupRequest)) == (10_000, None, None), "a dynamic member by now"


# The expansion time-out.


@pytest.mark.parametrize(
    ("expansion", "rebalance", "heartbeat_ms", "held"),
    [
        (0, 300_000, 3_000, 0),
        (60_000, 300_000, 3_000, 60_000),
        (300_000, 3_600_000, 3_000, 240_000),
        (240_000, 60_000, 3_000, 53_000),
        (60_000, 5_000, 3_000, 0),
    ],
)
def test_rejoin_is_held_back_for_the_least_of_three(expansion, rebalance, heartbeat_ms, held):
    assert rejoin_delay_ms(expansion, rebalance, heartbeat_ms) == held


def test_static_member_rejoins_when_the_expansion_timeout_is_over_and_works_until_then():
    member = Member("pod-1", settings=HOLDING)
    member.to_stable()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    assert member.poll() == []
    assert member.wake_at_ms == 60_000
    assert not member.machine.is_rebalancing
    member.pass_ms(59_999)
    heartbeat(member, E.REBALANCE_IN_PROGRESS)  # counted from the first
    assert member.poll() == []
    assert member.machine.may_heartbeat
    member.pass_ms(1)
    assert "held back for 60000 ms" in member.ask(f.HandOver).why.text
    member.report(f.HandedOver())
    assert member.ask(JoinGroupRequest).member_id == "m1"


def test_next_rebalance_is_held_back_for_its_own_time():
    member = Member("pod-1", settings=HOLDING)
    member.to_stable()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    member.pass_ms(60_000)
    member.to_stable(generation=2)
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    assert member.poll() == []
    assert member.wake_at_ms == 120_000


def test_hold_back_that_began_while_positions_were_looked_up_goes_on():
    member = Member("pod-1", settings=HOLDING)
    member.to_adopting()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    member.pass_ms(1_000)
    member.report(f.Adopted(1))
    assert member.poll() == []
    assert member.wake_at_ms == 60_000


@pytest.mark.parametrize(
    "fact",
    [rejoin_wanted("metadata"), f.SubscriptionChanged(frozenset({"payments"}), "subscribe"), E.ILLEGAL_GENERATION],
    ids=["asked for", "subscribed", "generation over"],
)
def test_other_reasons_to_rejoin_are_not_held_back(fact):
    member = Member("pod-1", settings=HOLDING)
    member.to_stable()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    assert member.poll() == []
    heartbeat(member, fact) if isinstance(fact, E) else member.report(fact)
    member.ask(f.HandOver)
    member.report(f.HandedOver())
    member.ask(JoinGroupRequest)
    member.pass_ms(60_000)
    assert member.poll() == []


def test_dynamic_member_holds_nothing_back():
    member = Member(settings=HOLDING)
    member.to_stable()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    member.ask(f.HandOver)


# The name is never taken over from whoever has it now.


def fenced_by_heartbeat(member, sent_by):
    heartbeat(member, E.FENCED_INSTANCE_ID, sent_by)


def fenced_by_commit(member, sent_by):
    member.report(f.CommitAnswered(sent_by, E.FENCED_INSTANCE_ID))


def stays(_member):
    pass


def prepares(member):
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    member.ask(f.HandOver)


def joins(member):
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    member.to_joining()


def is_in_the_next_generation(member):
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    member.to_stable(generation=2)


def lost_its_generation(member):
    heartbeat(member, E.ILLEGAL_GENERATION)


def is_parked(member):
    member.report(f.PollIntervalPassed())


def unsubscribed(member):
    member.report(f.SubscriptionChanged(frozenset(), "unsubscribe"))
    member.ask(f.HandOver)
    member.report(f.HandedOver())


@pytest.mark.parametrize("answered", [fenced_by_heartbeat, fenced_by_commit])
@pytest.mark.parametrize(
    "since", [stays, prepares, joins, is_in_the_next_generation, lost_its_generation, is_parked, unsubscribed]
)
def test_answer_that_fences_is_fatal_whatever_happened_since_it_was_asked_for(since, answered):
    member = Member("pod-1")
    member.to_stable()
    sent_by = member.identity
    since(member)
    answered(member, sent_by)
    assert member.state == "failed"
    assert isinstance(member.machine.failure, FencedInstanceIdError)
    assert "pod-1" in str(member.machine.failure)
    assert [type(each) for each in member.poll()] == [f.Fail]
    assert not member.machine.may_heartbeat


@pytest.mark.parametrize("answered", [fenced_by_heartbeat, fenced_by_commit])
def test_late_answer_to_an_id_that_we_replaced_ourselves_fences_nobody(answered):
    member = Member("pod-1")
    member.to_stable()
    older = member.identity
    heartbeat(member, E.UNKNOWN_MEMBER_ID)
    member.to_stable("m2", 5)
    answered(member, older)
    assert member.state == "stable"


@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest])
def test_join_or_sync_that_is_fenced_is_fatal(kind):
    member = Member("pod-1")
    if kind is JoinGroupRequest:
        member.to_joining()
        member.answer_join(joined("", -1, error_code=E.FENCED_INSTANCE_ID))
    else:
        member.to_syncing()
        member.answer_sync(synced(error_code=E.FENCED_INSTANCE_ID))
    assert isinstance(member.machine.failure, FencedInstanceIdError)


def test_member_that_was_silent_comes_back_under_its_old_id_so_that_a_successor_fences_it():
    member = Member("pod-1")
    member.to_stable()
    member.report(f.PollIntervalPassed())
    assert member.poll() == []
    member.report(f.RecordsWanted())
    assert member.to_joining().member_id == "m1"
    member.answer_join(joined("", -1, error_code=E.FENCED_INSTANCE_ID))
    assert isinstance(member.machine.failure, FencedInstanceIdError)


def test_member_that_was_silent_for_too_long_comes_back_as_a_newcomer_with_its_name():
    member = Member("pod-1")
    member.to_stable()
    member.report(f.PollIntervalPassed())
    member.report(f.RecordsWanted())
    member.to_joining()
    member.answer_join(joined("", -1, error_code=E.UNKNOWN_MEMBER_ID))
    again = member.ask(JoinGroupRequest)
    assert (again.member_id, again.group_instance_id) == ("", "pod-1")


def test_static_member_that_subscribes_again_comes_back_under_its_id():
    member = Member("pod-1")
    member.to_stable()
    unsubscribed(member)
    member.report(f.SubscriptionChanged(ORDERS, "subscribe"))
    assert member.to_joining().member_id == "m1"


def test_illegal_generation_keeps_the_member_id():
    member = Member("pod-1")
    member.to_stable()
    heartbeat(member, E.ILLEGAL_GENERATION)
    assert member.to_joining().member_id == "m1"


# Leaving.


def test_leave_on_poll_interval_leaves_by_id_and_name():
    member = Member("pod-1", settings=LEAVING)
    member.to_stable()
    member.report(f.PollIntervalPassed())
    (left,) = member.ask(LeaveGroupRequest).members
    assert (left.member_id, left.group_instance_id, left.reason) == ("m1", "pod-1", "max_poll_interval_ms passed")
    assert member.state == "parked"


# A coordinator that knows no names.


@pytest.mark.parametrize("way", ["to_joining", "to_syncing", "to_adopting", "to_stable"])
def test_member_whose_name_is_not_carried_is_dynamic_in_all_it_does(way):
    member = Member("pod-1", settings=dataclasses.replace(REGISTERED, rejoin_delay_ms=60_000))
    getattr(member, way)()
    member.report(f.NameNotCarried())
    assert not member.identity.is_static
    member.recover()
    assert member.state == "stable"
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    member.ask(f.HandOver)
    member.report(f.HandedOver())
    request = member.ask(JoinGroupRequest)
    assert (request.group_instance_id, request.session_timeout_ms) == (None, 10_000)
    member.report(f.PollIntervalPassed())
    (left,) = member.ask(LeaveGroupRequest).members
    assert left.group_instance_id is None


# An assignment that does not fit the subscription.


def strays(*topics):
    return synced(assignment=write_assignment(TopicPartition(topic, 0) for topic in topics))


@pytest.mark.parametrize("instance_id", [None, "pod-1"])
def test_an_assignment_that_does_not_fit_is_asked_for_anew_once(instance_id):
    """What a leader's fault caused in the second round too, a third would not mend."""
    member = Member(instance_id)
    stray = f.Why(f.Reason.MEMBERSHIP, "assigned, but not subscribed to: bills")
    for generation, why in ((1, stray), (2, None)):
        member.to_syncing("m1", generation)
        member.answer_sync(strays("orders", "bills"))
        member.ask(f.Adopt)
        member.report(f.Adopted(generation))
        assert member.machine.rejoin_why == why
    assert member.poll() == []
    member.report(rejoin_wanted("test"))
    member.to_syncing("m1", 3)
    member.answer_sync(synced(0))  # it fits
    member.ask(f.Adopt)
    member.report(f.Adopted(3))
    assert member.poll() == []
    member.report(rejoin_wanted("test"))
    member.to_syncing("m1", 4)
    member.answer_sync(strays("bills"))
    member.ask(f.Adopt)
    member.report(f.Adopted(4))
    assert member.machine.rejoin_why == stray


def test_only_who_came_back_looks_who_reads_its_topics():
    member = Member("pod-1", topics=frozenset({"orders", "bills"}))
    for generation, kinds in ((1, [f.Adopt, f.CheckUnread]), (2, [f.Adopt])):
        member.to_syncing("m1", generation)
        member.answer_sync(synced(0))
        asked = member.poll()
        assert [type(each) for each in asked] == kinds
        member.report(f.Adopted(generation))
        member.report(rejoin_wanted("test"))
    assert [each.topics for each in member.effects if isinstance(each, f.CheckUnread)] == [{"bills"}]


@pytest.mark.parametrize("response", [strays("orders", "bills"), synced()])
def test_in_the_form_of_the_draft_nothing_is_asked(response):
    member = in_draft()
    member.to_syncing()
    member.answer_sync(response)
    assert [type(each) for each in member.poll()] == [f.Adopt]
    member.report(f.Adopted(1))
    assert member.poll() == []
