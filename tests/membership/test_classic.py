"""The classic group protocol, through the two methods of its machine."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.identity import NO_GENERATION, Identity
from aiogroup._core.membership.states import HEARTBEATING
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)
from tests.support.coordinator import ORDERS, Member, joined, rejoin_wanted, synced

FATAL = [
    (E.FENCED_INSTANCE_ID, FencedInstanceIdError),
    (E.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError),
]


def heartbeat(member, code, identity=None):
    member.report(f.HeartbeatAnswered(identity or member.identity, code))


def refuse_commit(member, code, identity=None):
    member.report(f.CommitAnswered(identity or member.identity, code))


def assert_failed(member, kind):
    assert member.state == "failed"
    (fail,) = [each for each in member.poll() if isinstance(each, f.Fail)]
    assert type(fail.error) is kind
    assert member.machine.failure is fail.error
    assert not member.machine.may_heartbeat
    assert member.poll() == []


# Joining.


def test_member_without_topics_asks_for_nothing():
    member = Member(topics=frozenset())
    assert member.poll() == []
    assert member.state == "left"


def test_member_hands_over_before_it_joins():
    member = Member()
    assert member.ask(f.HandOver).why
    assert member.state == "preparing"
    assert member.poll() == []
    member.report(f.HandedOver())
    assert member.state == "joining"


def test_dynamic_member_takes_the_id_it_is_given_and_joins_again_at_once():
    member = Member()
    request = member.to_joining()
    assert (request.member_id, request.group_instance_id) == ("", None)
    member.answer_join(joined("m1", -1, error_code=E.MEMBER_ID_REQUIRED))
    again = member.ask(JoinGroupRequest)
    assert again.member_id == "m1"
    member.answer_join(joined("m1", 4, leader="another"))
    assert member.state == "syncing"
    assert (member.identity.member_id, member.identity.generation) == ("m1", 4)


def test_id_that_is_required_again_and_again_is_asked_for_after_a_wait():
    member = Member()
    member.to_joining()
    member.answer_join(joined("m1", -1, error_code=E.MEMBER_ID_REQUIRED))
    member.ask(JoinGroupRequest)
    member.answer_join(joined("m2", -1, error_code=E.MEMBER_ID_REQUIRED))
    assert member.poll() == []
    member.pass_ms(member.wake_at_ms - member.now_ms)
    assert member.ask(JoinGroupRequest).member_id == "m1"


def test_request_that_was_not_sent_is_asked_for_again_and_costs_no_coordinator():
    member = Member()
    member.to_joining()
    member.report(f.RequestDropped())
    assert [type(each) for each in member.poll()] == [JoinGroupRequest]


def test_join_carries_the_time_outs_and_every_assignor_in_order():
    request = Member("pod-1").to_joining()
    assert (request.group_id, request.session_timeout_ms, request.rebalance_timeout_ms) == ("billing", 10_000, 300_000)
    assert [(each.name, each.metadata) for each in request.protocols] == [("range", b"orders"), ("roundrobin", b"")]
    assert (request.protocol_type, request.group_instance_id) == ("consumer", "pod-1")


def test_follower_syncs_without_assigning():
    member = Member()
    sync = member.to_syncing(leader="another")
    assert sync.assignments == ()
    assert (sync.generation_id, sync.member_id, sync.protocol_name) == (1, "m1", "range")
    assert not member.machine.leadership.is_leader


def test_leader_assigns_before_it_syncs():
    member = Member()
    member.to_joining()
    member.answer_join(joined("m1", 3))
    compute = member.ask(f.ComputeAssignment)
    assert (compute.generation, compute.assignor) == (3, "range")
    assert [each[0] for each in compute.members] == ["m1"]
    assert member.poll() == []
    member.report(f.AssignmentComputed(3, {"m1": b"mine", "m2": b"theirs"}))
    sync = member.ask(SyncGroupRequest)
    assert {each.member_id: each.assignment for each in sync.assignments} == {"m1": b"mine", "m2": b"theirs"}
    assert member.machine.leadership.is_leader


def test_leader_that_is_to_skip_the_assignment_runs_no_assignor():
    member = Member("pod-1")
    member.to_joining()
    member.answer_join(joined("m1", 3, skip_assignment=True))
    assert member.ask(f.ComputeAssignment).only_watch
    member.report(f.AssignmentComputed(3, {}))
    assert member.ask(SyncGroupRequest).assignments == ()
    member.answer_sync(synced(0))
    assert member.ask(f.Adopt).is_leader


def test_assignment_of_an_older_generation_is_not_sent():
    member = Member()
    member.to_joining()
    member.answer_join(joined("m1", 3))
    member.ask(f.ComputeAssignment)
    member.report(f.AssignmentComputed(2, {"m1": b"old"}))
    assert member.poll() == []


def test_member_is_stable_only_after_it_adopted_its_partitions():
    member = Member()
    adopt = member.to_adopting(generation=7)
    assert [(tp.topic, tp.partition) for tp in adopt.partitions] == [("orders", 0), ("orders", 1)]
    assert adopt.generation == 7
    assert member.machine.is_rebalancing
    member.report(f.Adopted(6))
    assert member.state == "adopting"
    member.report(f.Adopted(7))
    assert member.state == "stable"
    assert not member.machine.is_rebalancing


def test_each_thing_is_asked_for_once():
    member = Member()
    for way in (member.to_joining, member.to_syncing, member.to_adopting, member.to_stable):
        other = Member()
        getattr(other, way.__name__)()
        assert other.poll() == []
        assert other.poll() == []


def test_group_of_another_kind_is_refused():
    member = Member()
    member.to_joining()
    member.answer_join(joined("m1", 1, protocol_type="connect"))
    assert_failed(member, InconsistentGroupProtocolError)


def test_assignor_that_was_not_offered_is_refused():
    member = Member()
    member.to_joining()
    member.answer_join(joined("m1", 1, leader="m1", protocol="sticky"))
    assert_failed(member, InconsistentGroupProtocolError)


def test_group_that_syncs_as_another_kind_is_refused():
    member = Member()
    member.to_syncing()
    member.answer_sync(dataclasses.replace(synced(0), protocol_type="connect"))
    assert_failed(member, InconsistentGroupProtocolError)


def test_group_that_joins_and_syncs_with_different_assignors_is_refused():
    member = Member()
    member.to_syncing()
    member.answer_sync(synced(0, protocol="roundrobin"))
    assert_failed(member, InconsistentGroupProtocolError)


# Rebalances.


def test_heartbeat_that_tells_of_a_rebalance_starts_a_hand_over_and_keeps_the_generation():
    member = Member()
    member.to_stable(generation=5)
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    assert member.machine.is_rebalancing
    member.ask(f.HandOver)
    assert member.state == "preparing"
    assert member.identity.generation == 5
    assert member.machine.may_heartbeat
    member.report(f.HandedOver())
    assert member.ask(JoinGroupRequest).member_id == "m1"
    assert not member.machine.may_heartbeat


def test_rebalance_reported_while_adopting_begins_when_it_is_adopted():
    member = Member()
    member.to_adopting()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    assert member.poll() == []
    member.report(f.Adopted(1))
    member.ask(f.HandOver)


@pytest.mark.parametrize("way", ["to_syncing", "to_stable"])
def test_member_heartbeats_where_silence_would_cost_its_membership(way):
    member = Member()
    getattr(member, way)()
    assert member.machine.state in HEARTBEATING
    assert member.machine.may_heartbeat


def test_unknown_member_on_heartbeat_drops_the_id_and_joins_as_a_newcomer():
    member = Member()
    member.to_stable()
    heartbeat(member, E.UNKNOWN_MEMBER_ID)
    assert not member.machine.may_heartbeat
    assert member.to_joining().member_id == ""


def test_illegal_generation_on_heartbeat_keeps_the_id():
    member = Member()
    member.to_stable()
    heartbeat(member, E.ILLEGAL_GENERATION)
    assert member.identity == Identity("billing", None, "m1", NO_GENERATION)
    assert member.to_joining().member_id == "m1"


@pytest.mark.parametrize(
    ("code", "member_id"), [(E.ILLEGAL_GENERATION, "m1"), (E.REBALANCE_IN_PROGRESS, "m1"), (E.UNKNOWN_MEMBER_ID, "")]
)
def test_sync_that_is_refused_sends_the_member_back_to_joining(code, member_id):
    member = Member()
    member.to_syncing()
    member.answer_sync(synced(error_code=code))
    assert member.state == "joining"
    assert member.ask(JoinGroupRequest).member_id == member_id


@pytest.mark.parametrize(
    ("code", "member_id"), [(E.ILLEGAL_GENERATION, "m1"), (E.GROUP_ID_NOT_FOUND, "m1"), (E.UNKNOWN_MEMBER_ID, "")]
)
def test_commit_that_is_refused_ends_the_generation(code, member_id):
    member = Member()
    member.to_stable()
    refuse_commit(member, code)
    assert not member.identity.is_member
    assert member.to_joining().member_id == member_id


def test_commit_that_meets_a_rebalance_keeps_identity_and_rejoins():
    member = Member()
    member.to_stable(generation=5)
    refuse_commit(member, E.REBALANCE_IN_PROGRESS)
    member.ask(f.HandOver)
    assert member.identity.generation == 5


@pytest.mark.parametrize("code", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID])
def test_generation_that_ends_while_preparing_still_ends_in_a_join(code):
    member = Member()
    member.to_stable()
    member.report(rejoin_wanted("enforced"))
    member.ask(f.HandOver)
    heartbeat(member, code)
    assert not member.identity.is_member
    assert member.state == "preparing"
    member.report(f.HandedOver())
    assert member.ask(JoinGroupRequest).member_id == ("m1" if code == E.ILLEGAL_GENERATION else "")


@pytest.mark.parametrize("code", [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID])
@pytest.mark.parametrize("ending", ["answered", "lost"])
def test_commit_refused_while_a_join_is_under_way_does_not_leave_the_member_waiting_for_ever(code, ending):
    member = Member()
    member.to_stable(generation=5)
    member.report(rejoin_wanted("enforced"))
    member.to_joining()
    sent_as = member.identity
    refuse_commit(member, code)
    member.report(f.RequestLost(sent_as, "closed") if ending == "lost" else f.JoinAnswered(sent_as, joined("m1", 6)))
    member.serve()
    assert member.state == "stable"


def test_enforced_rebalance_tells_why():
    member = Member()
    member.to_stable()
    member.report(rejoin_wanted("enforce_rebalance"))
    assert member.ask(f.HandOver).why.text == "enforce_rebalance"


# Fatal ends.


@pytest.mark.parametrize(("code", "kind"), FATAL)
@pytest.mark.parametrize("where", ["join", "sync", "heartbeat"])
def test_fenced_and_unauthorized_members_fail(where, code, kind):
    member = Member("pod-1")
    if where == "join":
        member.to_joining()
        member.answer_join(joined("", -1, error_code=code))
    elif where == "sync":
        member.to_syncing()
        member.answer_sync(synced(error_code=code))
    else:
        member.to_stable()
        heartbeat(member, code)
    assert_failed(member, kind)


def test_a_commit_fences_too_but_what_it_may_not_do_only_its_caller_hears():
    member = Member("pod-1")
    member.to_stable()
    refuse_commit(member, E.GROUP_AUTHORIZATION_FAILED)
    assert member.state == "stable"
    refuse_commit(member, E.FENCED_INSTANCE_ID)
    assert_failed(member, FencedInstanceIdError)


def test_failure_is_final():
    member = Member("pod-1")
    member.to_stable()
    heartbeat(member, E.FENCED_INSTANCE_ID)
    assert_failed(member, FencedInstanceIdError)
    for fact in (
        f.RecordsWanted(),
        rejoin_wanted("enforced"),
        f.SubscriptionChanged(frozenset({"others"}), "subscribe"),
        f.PollIntervalPassed(),
        f.HandedOver(),
        f.Failed(AiogroupError("another")),
    ):
        member.report(fact)
        assert member.poll() == []
        assert member.state == "failed"
    assert isinstance(member.machine.failure, FencedInstanceIdError)


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        (E.INCONSISTENT_GROUP_PROTOCOL, InconsistentGroupProtocolError, "partition_assignment_strategy"),
        (E.INVALID_SESSION_TIMEOUT, InvalidSessionTimeoutError, "session_timeout_ms=10000"),
        (E.GROUP_MAX_SIZE_REACHED, BrokerError, "GROUP_MAX_SIZE_REACHED"),
        (E.INVALID_GROUP_ID, BrokerError, "INVALID_GROUP_ID"),
    ],
)
def test_join_that_no_retry_mends_says_what_to_change(code, kind, word):
    member = Member()
    member.to_joining()
    member.answer_join(joined("", -1, error_code=code))
    assert word in str(member.machine.failure)
    assert_failed(member, kind)


def test_failure_from_outside_ends_the_member():
    member = Member()
    member.to_joining()
    member.report(f.Failed(GroupAuthorizationError("no rights")))
    assert_failed(member, GroupAuthorizationError)


# Faults.


@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("where", ["join", "sync"])
def test_member_waits_for_the_coordinator_before_it_joins_again(where, code):
    member = Member()
    if where == "join":
        member.to_joining()
        member.answer_join(joined("", -1, error_code=code))
    else:
        member.to_syncing()
        member.answer_sync(synced(error_code=code))
    assert member.poll() == []
    assert member.wake_at_ms == 100
    member.pass_ms(99)
    assert member.poll() == []
    member.pass_ms(1)
    member.ask(JoinGroupRequest)


def test_coordinator_that_moved_costs_no_membership():
    member = Member()
    member.to_stable()
    heartbeat(member, E.NOT_COORDINATOR)
    assert member.poll() == []
    assert member.state == "stable"
    assert member.identity.is_member


@pytest.mark.parametrize("way", ["to_joining", "to_syncing"])
def test_disconnect_keeps_the_member_id(way):
    member = Member()
    member.to_stable()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    getattr(member, way)()
    member.report(f.RequestLost(member.asked_as, "connection closed"))
    assert member.poll() == []
    member.pass_ms(100)
    assert member.ask(JoinGroupRequest).member_id == "m1"


def test_backoff_grows_to_its_bound_and_starts_over_when_partitions_are_assigned():
    member = Member()
    member.to_joining()
    waits = []
    for _ in range(6):
        member.answer_join(joined("", -1, error_code=E.COORDINATOR_LOAD_IN_PROGRESS))
        assert member.poll() == []
        waits.append(member.wake_at_ms - member.now_ms)
        member.now_ms = member.wake_at_ms
        member.ask(JoinGroupRequest)
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    member.answer_join(joined("m1", 1, leader="another"))
    member.ask(SyncGroupRequest)
    member.answer_sync(synced(error_code=E.COORDINATOR_LOAD_IN_PROGRESS))
    member.poll()
    assert member.wake_at_ms - member.now_ms == 1_000
    member.now_ms = member.wake_at_ms
    member.ask(JoinGroupRequest)
    member.answer_join(joined("m1", 2, leader="another"))
    member.ask(SyncGroupRequest)
    member.answer_sync(synced(0))
    member.ask(f.Adopt)
    member.report(f.Adopted(2))
    member.report(rejoin_wanted("enforced"))
    member.to_joining()
    member.answer_join(joined("", -1, error_code=E.COORDINATOR_LOAD_IN_PROGRESS))
    member.poll()
    assert member.wake_at_ms - member.now_ms == 100


def test_backoff_grows_over_assignments_that_cannot_be_read():
    member = Member()
    member.to_joining()
    waits = []
    for generation in range(1, 7):
        member.answer_join(joined("m1", generation, leader="another"))
        member.ask(SyncGroupRequest)
        member.answer_sync(synced(assignment=b"garbage"))
        member.poll()
        waits.append(member.wake_at_ms - member.now_ms)
        member.now_ms = member.wake_at_ms
        member.ask(JoinGroupRequest)
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


def test_first_unknown_member_answer_to_a_join_is_retried_at_once_and_later_ones_are_not():
    member = Member()
    member.to_stable()
    member.report(rejoin_wanted("enforced"))
    member.to_joining()
    member.answer_join(joined("", -1, error_code=E.UNKNOWN_MEMBER_ID))
    assert member.ask(JoinGroupRequest).member_id == ""
    member.answer_join(joined("", -1, error_code=E.UNKNOWN_MEMBER_ID))
    assert member.poll() == []
    assert member.wake_at_ms is not None


@pytest.mark.parametrize("blob", [b"\x00", b"\xff\xff\x00\x00", b"\x00\x01\x7f\xff\xff\xff"])
def test_unreadable_assignment_is_left_to_the_next_round(blob):
    member = Member()
    member.to_syncing()
    member.answer_sync(synced(assignment=blob))
    assert member.state == "joining"
    assert member.poll() == []
    member.now_ms = member.wake_at_ms
    assert member.ask(JoinGroupRequest).member_id == "m1"


def test_no_assignment_at_all_is_an_empty_one():
    member = Member()
    member.to_syncing()
    member.answer_sync(synced(assignment=b""))
    assert member.ask(f.Adopt).partitions == ()


# Late answers.


@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, *dict(FATAL)])
def test_late_answers_to_an_older_self_change_nothing(code):
    member = Member("pod-1")
    member.to_stable(generation=5)
    for older in (
        *(
            [] if code == E.FENCED_INSTANCE_ID else [Identity("billing", "pod-1", "m1", 4)]
        ),  # whoever is fenced stays so
        Identity("billing", "pod-1", "m0", 5),
        Identity("billing", "pod-1"),
    ):
        heartbeat(member, code, older)
        refuse_commit(member, code, older)
        member.answer_join(joined("m0", 9, error_code=code), older)
        member.answer_sync(synced(error_code=code), older)
        member.report(f.RequestLost(older, "closed"))
        assert member.poll() == []
        assert member.state == "stable"
        assert member.identity.generation == 5


def test_answer_to_a_sync_of_an_older_generation_is_not_adopted():
    member = Member()
    member.to_syncing(generation=1)
    older = member.identity
    heartbeat(member, E.ILLEGAL_GENERATION)
    assert member.state == "joining"
    member.ask(JoinGroupRequest)
    member.answer_sync(synced(0), older)
    assert member.state == "joining"
    member.answer_join(joined("m1", 2, leader="another"))
    member.ask(SyncGroupRequest)
    member.answer_sync(synced(0), older)
    assert member.state == "syncing"


def test_join_answered_after_the_member_was_parked_changes_nothing():
    member = Member()
    member.to_joining()
    asked_as = member.asked_as
    member.report(f.PollIntervalPassed())
    member.answer_join(joined("m1", 1), asked_as)
    assert member.state == "parked"
    assert member.identity.member_id == ""


def test_join_answered_to_an_older_self_does_not_end_the_new_join():
    member = Member()
    member.to_stable()
    older = member.identity
    heartbeat(member, E.UNKNOWN_MEMBER_ID)
    member.to_joining()
    for who in (older, older.without_generation()):
        member.answer_join(joined("m1", 9), who)
        assert member.state == "joining"
    assert member.poll() == []


# The application.


def test_member_that_stops_polling_leaves_and_waits():
    member = Member()
    member.to_stable()
    member.report(f.PollIntervalPassed())
    leave = member.ask(LeaveGroupRequest)
    assert [(each.member_id, each.reason) for each in leave.members] == [("m1", "max_poll_interval_ms passed")]
    assert member.state == "parked"
    assert not member.identity.is_member
    for fact in (rejoin_wanted("metadata"), f.SubscriptionChanged(frozenset({"a", "b"}), "pattern"), f.HandedOver()):
        member.report(fact)
        assert member.poll() == []
        assert member.state == "parked"
    member.report(f.RecordsWanted())
    request = member.to_joining()
    assert request.member_id == ""
    assert request.protocols[0].metadata == b"a,b"


def test_static_member_that_stops_polling_goes_silent_without_leaving():
    member = Member("pod-1")
    member.to_stable()
    member.report(f.PollIntervalPassed())
    assert member.poll() == []
    assert member.state == "parked"
    assert not member.machine.may_heartbeat


@pytest.mark.parametrize("way", ["to_joining", "to_syncing", "to_adopting", "to_stable"])
def test_stall_is_noticed_in_every_state(way):
    member = Member()
    member.to_stable()
    heartbeat(member, E.REBALANCE_IN_PROGRESS)
    getattr(member, way)(generation=2) if way != "to_joining" else member.to_joining()
    member.report(f.PollIntervalPassed())
    member.ask(LeaveGroupRequest)
    assert member.state == "parked"


def test_unsubscribing_hands_over_then_leaves_and_a_new_subscription_joins_as_a_newcomer():
    member = Member()
    member.to_stable()
    member.report(f.SubscriptionChanged(frozenset(), "unsubscribe"))
    member.ask(f.HandOver)
    member.report(f.HandedOver())
    assert member.ask(LeaveGroupRequest).members[0].member_id == "m1"
    assert member.state == "left"
    assert member.poll() == []
    member.report(f.SubscriptionChanged(ORDERS, "subscribe"))
    assert member.to_joining().member_id == ""
    member.answer_join(joined("m2", 1, leader="another"))
    assert member.state == "syncing"


def test_unsubscribing_before_anything_was_asked_for_is_as_if_nothing_had_been_subscribed():
    member = Member()
    member.report(f.SubscriptionChanged(ORDERS, "subscribe"))
    member.report(f.SubscriptionChanged(frozenset(), "unsubscribe"))
    assert member.poll() == []
    assert member.state == "left"


def test_unsubscribing_while_a_join_waits_to_be_retried_leaves_at_once():
    member = Member()
    member.to_joining()
    member.answer_join(joined("m1", -1, error_code=E.MEMBER_ID_REQUIRED))
    member.ask(JoinGroupRequest)
    member.report(f.RequestLost(member.asked_as, "closed"))
    member.report(f.SubscriptionChanged(frozenset(), "unsubscribe"))
    member.ask(LeaveGroupRequest)
    assert member.state == "left"


def test_static_member_that_unsubscribes_keeps_its_name_in_the_group():
    member = Member("pod-1")
    member.to_stable()
    member.report(f.SubscriptionChanged(frozenset(), "unsubscribe"))
    member.ask(f.HandOver)
    member.report(f.HandedOver())
    assert member.poll() == []
    assert member.state == "left"


def test_subscription_changed_during_a_join_is_joined_with_afterwards():
    member = Member()
    member.to_joining()
    member.report(f.SubscriptionChanged(frozenset({"payments"}), "subscribe"))
    member.answer_join(joined("m1", 1, leader="another"))
    member.ask(SyncGroupRequest)
    member.answer_sync(synced(0))
    member.ask(f.Adopt)
    member.report(f.Adopted(1))
    assert member.ask(f.HandOver).why.text == "subscribe"
    member.report(f.HandedOver())
    assert member.ask(JoinGroupRequest).protocols[0].metadata == b"payments"


def test_subscription_that_did_not_change_rejoins_nothing():
    member = Member()
    member.to_stable()
    member.report(f.SubscriptionChanged(ORDERS, "subscribe"))
    assert member.poll() == []
    assert not member.machine.is_rebalancing


def test_stopped_member_stays_out_until_it_subscribes_again():
    member = Member()
    member.to_stable()
    member.report(f.LeaveWanted("stop"))
    assert member.state == "left"
    assert member.poll() == []
    member.report(f.RecordsWanted())
    member.report(rejoin_wanted("metadata"))
    assert member.poll() == []
    member.report(f.SubscriptionChanged(ORDERS, "subscribe"))
    assert member.state == "unjoined"


def test_leave_request_names_a_dynamic_member_and_a_static_one_only_when_asked_to():
    dynamic, static = Member(), Member("pod-1")
    assert dynamic.machine.leave_request("stop") is None
    dynamic.to_stable()
    static.to_stable()
    assert dynamic.machine.leave_request("stop").members[0].member_id == "m1"
    assert static.machine.leave_request("stop") is None
    leave = static.machine.leave_request("stop", even_static=True)
    assert leave.members[0].group_instance_id == "pod-1"


def test_blocked_heartbeats_of_a_parked_join_are_not_sent():
    member = Member()
    member.to_joining()
    assert not member.machine.may_heartbeat
