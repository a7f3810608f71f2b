"""What a cooperative leader leaves out until its owner gives it up, and who asks for the next round (KIP-429)."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.classic.leadership import why_released, withheld_by
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup.assignors import MemberSubscription
from aiogroup.structs import TopicPartition
from tests.support.coordinator import COOPERATIVE, Member, joined, rejoin_wanted, synced

A, B, C = (TopicPartition("orders", number) for number in range(3))
P = TopicPartition("payments", 0)
WAIT_MS = COOPERATIVE.rebalance_timeout_ms
WITHHELD = frozenset({B})


def subscription(*owned, topics=("orders",)):
    return MemberSubscription(topics=topics, owned=owned, generation=1)


# Which they are.


def test_what_is_claimed_and_given_to_nobody_is_withheld():
    members = {"old": subscription(A, B, C), "new": subscription()}
    assert withheld_by({"old": [A]}, members, {"orders": 3}) == {B, C}
    assert withheld_by({"old": [A], "new": [B, C]}, members, {"orders": 3}) == frozenset()


def test_what_nobody_claims_was_left_out_on_purpose():
    assert withheld_by({"old": [A]}, {"old": subscription(A), "new": subscription()}, {"orders": 3}) == frozenset()


def test_what_nobody_reads_or_what_is_gone_is_not_withheld():
    members = {"old": subscription(A, B, P)}
    assert withheld_by({"old": [A]}, members, {"orders": 1}) == frozenset()


def test_while_a_claim_stands_another_round_would_change_nothing():
    assert why_released(WITHHELD, [subscription(A, B), subscription()]) is None


def test_without_its_claim_a_partition_needs_another_round():
    assert why_released(frozenset({B, C}), [subscription(A, C), subscription()]) == (
        "partitions of orders were withheld from other members, and no member claims them any more"
    )


# When they are looked at.


def lead(member, generation, withheld=WITHHELD):
    member.to_joining()
    member.answer_join(joined("m1", generation))
    member.ask(f.ComputeAssignment)
    member.report(f.AssignmentComputed(generation, {}, withheld))
    member.ask(SyncGroupRequest)
    member.answer_sync(synced(0))
    member.ask(f.Adopt)
    member.report(f.Adopted(generation))


@pytest.fixture
def leader():
    member = Member(settings=COOPERATIVE)
    lead(member, 1)
    return member


def test_a_leader_looks_at_the_owners_when_they_had_the_rebalance_time_out(leader):
    assert leader.poll() == []
    assert leader.wake_at_ms == WAIT_MS
    leader.pass_ms(WAIT_MS - 1)
    assert leader.poll() == []
    leader.pass_ms(1)
    assert leader.poll() == [f.CheckWithheld(WITHHELD)]


def test_the_time_out_begins_with_the_assignment_and_not_with_its_adoption():
    member = Member(settings=COOPERATIVE)
    member.to_joining()
    member.answer_join(joined("m1", 1))
    member.ask(f.ComputeAssignment)
    member.report(f.AssignmentComputed(1, {}, WITHHELD))
    member.ask(SyncGroupRequest)
    member.answer_sync(synced(0))
    member.ask(f.Adopt)
    member.pass_ms(WAIT_MS)
    assert member.poll() == []  # its own callback runs
    member.report(f.Adopted(1))
    assert member.poll() == [f.CheckWithheld(WITHHELD)]


def test_a_leader_looks_again_only_after_another_time_out(leader):
    leader.pass_ms(WAIT_MS)
    assert leader.poll() == [f.CheckWithheld(WITHHELD)]
    assert leader.poll() == []
    assert leader.wake_at_ms == 2 * WAIT_MS
    leader.pass_ms(WAIT_MS)
    assert leader.poll() == [f.CheckWithheld(WITHHELD)]


def test_a_leader_that_withheld_nothing_has_nothing_to_look_at():
    member = Member(settings=COOPERATIVE)
    lead(member, 1, frozenset())
    assert member.poll() == []
    assert member.wake_at_ms is None


def test_a_newer_generation_has_its_own_time_out_or_none(leader):
    leader.pass_ms(WAIT_MS - 1)
    leader.report(rejoin_wanted("somebody came"))
    lead(leader, 2)
    assert leader.poll() == []
    assert leader.wake_at_ms == 2 * WAIT_MS - 1
    leader.report(rejoin_wanted("gave up 1 partitions for others"))
    lead(leader, 3, frozenset())
    assert leader.poll() == []
    assert leader.wake_at_ms is None


def test_who_leads_no_more_looks_at_nothing(leader):
    leader.report(rejoin_wanted("somebody came"))
    leader.to_stable(generation=2, leader="another")
    assert leader.wake_at_ms is None
    leader.pass_ms(WAIT_MS)
    assert leader.poll() == []


def test_while_a_leader_delays_its_rejoin_a_round_has_begun():
    delay_ms = WAIT_MS // 2
    member = Member("pod-1", settings=dataclasses.replace(COOPERATIVE, rejoin_delay_ms=delay_ms))
    lead(member, 1)
    member.pass_ms(WAIT_MS - 1)
    member.report(f.HeartbeatAnswered(member.identity, E.REBALANCE_IN_PROGRESS))
    member.pass_ms(1)
    assert member.poll() == []
    assert member.wake_at_ms == WAIT_MS - 1 + delay_ms
