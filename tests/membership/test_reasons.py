"""Each rebalance has its reason as one of eight words, whatever its prose says."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.facts import Reason
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from tests.support.coordinator import COOPERATIVE, ORDERS, SETTINGS, Member, joined, rejoin_wanted


def stable(settings=SETTINGS, name=None):
    member = Member(name, settings=settings)
    member.to_stable()
    return member


def joins():
    return Member()


def was_parked():
    member = stable()
    member.report(f.PollIntervalPassed())
    member.report(f.RecordsWanted())
    return member


def hears(code, **given):
    def member():
        made = stable(**given)
        made.report(f.HeartbeatAnswered(made.identity, code))
        if made.machine.rejoin_why is None:
            assert made.poll() == []
            made.pass_ms(made.wake_at_ms - made.now_ms)
        return made

    return member


def other_topics():
    member = stable()
    member.report(f.SubscriptionChanged(frozenset({"payments"}), "subscribe"))
    return member


def in_a_join_that_keeps():
    member = stable(COOPERATIVE)
    member.report(rejoin_wanted("somebody came"))
    member.ask(f.HandOver)
    member.report(f.HandedOver())
    return member


def unsubscribed_while_it_joins():
    member = in_a_join_that_keeps()
    member.report(f.SubscriptionChanged(frozenset(), "unsubscribe"))
    return member


def lost_its_join():
    member = in_a_join_that_keeps()
    member.ask(JoinGroupRequest)
    member.report(f.RequestLost(member.identity, "node 1 did not answer within 5000 ms"))
    return member


def missed_a_round():
    member = in_a_join_that_keeps()
    member.ask(JoinGroupRequest)
    member.answer_join(joined("m1", 3, leader="another"))
    return member


def asked_by_the_application():
    member = stable()
    member.report(rejoin_wanted("the group rebalances"))
    return member


def test_there_are_eight():
    assert len(Reason) == 8


@pytest.mark.parametrize(
    ("reason", "member"),
    [
        (Reason.JOINING, joins),
        (Reason.GROUP, hears(E.REBALANCE_IN_PROGRESS)),
        (
            Reason.GROUP,
            hears(
                E.REBALANCE_IN_PROGRESS,
                settings=dataclasses.replace(SETTINGS, rejoin_delay_ms=50),
                name="pod-1",
            ),
        ),
        (Reason.SUBSCRIPTION, other_topics),
        (Reason.SUBSCRIPTION, unsubscribed_while_it_joins),
        (Reason.ASKED_AGAIN, was_parked),
        (Reason.MEMBERSHIP, hears(E.UNKNOWN_MEMBER_ID)),
        (Reason.MEMBERSHIP, lost_its_join),
        (Reason.MEMBERSHIP, missed_a_round),
        (Reason.OTHER, asked_by_the_application),
    ],
)
def test_the_hand_over_has_it(reason, member):
    assert member().ask(f.HandOver).why.reason is reason


def test_the_first_reason_stays_until_the_round_begins():
    member = stable()
    member.report(f.SubscriptionChanged(ORDERS | {"payments"}, "subscribe"))
    member.report(f.HeartbeatAnswered(member.identity, E.REBALANCE_IN_PROGRESS))
    assert member.ask(f.HandOver).why == f.Why(Reason.SUBSCRIPTION, "subscribe")
