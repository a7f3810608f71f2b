"""What the tasks have to do when the subscription or the metadata changes, situation by situation."""

from __future__ import annotations

import pytest

from aiogroup._core.membership.facts import Reason, Why
from aiogroup._core.membership.following import (
    AskForRound,
    AssignAllOf,
    AssignToSelf,
    BeginAutoCommit,
    BeginMembership,
    Cause,
    ChangeTopics,
    CommitAs,
    MemberView,
    NoteTopics,
    PrepareForSelf,
    RefreshMetadata,
    follow,
    follow_alone,
    follow_metadata,
)
from aiogroup._core.membership.states import MemberState
from aiogroup._core.subscription import Subscription
from aiogroup.structs import TopicPartition

A = TopicPartition("orders", 0)
TPS, NONE = frozenset({A}), frozenset()
ORDERS, PAYMENTS = frozenset({"orders"}), frozenset({"payments"})
LOOK, LOOK_IF_INCOMPLETE = RefreshMetadata(only_if_incomplete=False), RefreshMetadata(only_if_incomplete=True)
PREPARE_NOTHING = PrepareForSelf(NONE)
AS_MEMBER, AS_NOBODY = CommitAs(is_member=True), CommitAs(is_member=False)


def by_topic(*names):
    subscription = Subscription()
    subscription.subscribe(names, None, None)
    return subscription


def by_self():
    subscription = Subscription()
    subscription.assign(TPS)
    return subscription


def by_nothing():
    return Subscription()


def new():
    return MemberView(MemberState.LEFT, NONE, has_begun=False)


def reading(state=MemberState.STABLE):
    return MemberView(state, ORDERS, has_begun=True)


def left():
    return MemberView(MemberState.LEFT, NONE, has_begun=True)


def leaving():
    """`unsubscribe` was called, and what the group gave is not handed over yet."""
    return MemberView(MemberState.PREPARING, NONE, has_begun=True)


def change(topics, cause):
    return ChangeTopics(topics, cause.value, at_once=True)


ASK_AT_ONCE = AskForRound(Why(Reason.SUBSCRIPTION, "subscribe"), at_once=True)
AT_START = ChangeTopics(ORDERS, "start", at_once=False)

MEMBERS = {
    "starts with topics": (
        by_topic("orders"), new(), False, Cause.START,
        (AS_MEMBER, PREPARE_NOTHING, BeginMembership(), AT_START, NoteTopics(), LOOK_IF_INCOMPLETE),
    ),
    "starts with nothing": (by_nothing(), new(), False, Cause.START, (AS_MEMBER, PREPARE_NOTHING, LOOK_IF_INCOMPLETE)),
    "starts with partitions of its own": (
        by_self(), new(), False, Cause.START,
        (AS_NOBODY, PrepareForSelf(TPS), AssignToSelf(TPS), BeginAutoCommit(), LOOK_IF_INCOMPLETE),
    ),
    "subscribes": (
        by_topic("orders"), new(), False, Cause.SUBSCRIBE,
        (AS_MEMBER, PREPARE_NOTHING, BeginMembership(), change(ORDERS, Cause.SUBSCRIBE), NoteTopics(), LOOK),
    ),
    "subscribes to other topics": (
        by_topic("payments"), reading(), True, Cause.SUBSCRIBE,
        (AS_MEMBER, PREPARE_NOTHING, BeginMembership(), change(PAYMENTS, Cause.SUBSCRIBE), NoteTopics(), LOOK),
    ),
    "subscribes to the same topics, as with another listener": (
        by_topic("orders"), reading(), True, Cause.SUBSCRIBE,
        (AS_MEMBER, PREPARE_NOTHING, BeginMembership(), ASK_AT_ONCE, NoteTopics(), LOOK),
    ),
    "subscribes in the middle of a rebalance": (
        by_topic("payments"), reading(MemberState.JOINING), False, Cause.SUBSCRIBE,
        (AS_MEMBER, PREPARE_NOTHING, BeginMembership(), change(PAYMENTS, Cause.SUBSCRIBE), NoteTopics(), LOOK),
    ),
    "unsubscribes": (
        by_nothing(), reading(), True, Cause.UNSUBSCRIBE,
        (AS_MEMBER, PREPARE_NOTHING, BeginMembership(), change(NONE, Cause.UNSUBSCRIBE), NoteTopics(), LOOK),
    ),
    "unsubscribes in the middle of a rebalance": (
        by_nothing(), reading(MemberState.SYNCING), False, Cause.UNSUBSCRIBE,
        (AS_MEMBER, PREPARE_NOTHING, BeginMembership(), change(NONE, Cause.UNSUBSCRIBE), NoteTopics(), LOOK),
    ),
    "assigns to itself while what the group gave is handed over": (
        by_self(), leaving(), True, Cause.ASSIGN, (AS_MEMBER, PrepareForSelf(TPS)),
    ),
    "has left for what it assigned to itself": (
        by_self(), left(), False, Cause.GROUP_LEFT,
        (AS_NOBODY, PrepareForSelf(TPS), AssignToSelf(TPS), BeginAutoCommit(), LOOK),
    ),
    "assigns other partitions to itself": (
        by_self(), left(), True, Cause.ASSIGN,
        (AS_NOBODY, PrepareForSelf(TPS), AssignToSelf(TPS), BeginAutoCommit(), LOOK),
    ),
    "gives up what it assigned to itself": (
        by_nothing(), left(), True, Cause.UNSUBSCRIBE,
        (AssignToSelf(NONE), AS_MEMBER, PREPARE_NOTHING, BeginMembership(), NoteTopics(), LOOK),
    ),
    "subscribes with partitions of its own, which nobody gave up": (
        by_topic("orders"), new(), True, Cause.SUBSCRIBE,
        (AssignToSelf(NONE), AS_MEMBER, PREPARE_NOTHING, BeginMembership(), change(ORDERS, Cause.SUBSCRIBE),
         NoteTopics(), LOOK),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("subscription", "member", "owns", "cause", "effects"), MEMBERS.values(), ids=MEMBERS)
def test_a_member(subscription, member, owns, cause, effects):
    assert follow(subscription, member, cause, owns=owns) == effects


@pytest.mark.parametrize(
    ("subscription", "cause", "effects"),
    [
        (by_topic("orders"), Cause.START, (AssignAllOf(ORDERS), LOOK_IF_INCOMPLETE)),
        (by_topic("orders"), Cause.SUBSCRIBE, (AssignAllOf(ORDERS), LOOK)),
        (by_nothing(), Cause.UNSUBSCRIBE, (AssignAllOf(NONE), LOOK)),
        (by_self(), Cause.START, (AssignToSelf(TPS), LOOK_IF_INCOMPLETE)),
        (by_self(), Cause.ASSIGN, (AssignToSelf(TPS), LOOK)),
    ],
)
def test_without_a_group(subscription, cause, effects):
    assert follow_alone(subscription, cause) == effects


@pytest.mark.parametrize(
    ("topics", "appeared", "member", "stale_why", "effects"),
    [
        (ORDERS, NONE, new(), None, ()),
        (ORDERS, NONE, reading(), None, (NoteTopics(),)),
        (ORDERS, NONE, reading(), "grew", (NoteTopics(), AskForRound(Why(Reason.METADATA, "grew"), at_once=False))),
        (
            ORDERS | PAYMENTS,
            PAYMENTS,
            reading(),
            "grew",  # a round comes in any case
            (
                NoteTopics(PAYMENTS),
                ChangeTopics(ORDERS | PAYMENTS, "the topics that match the pattern changed", at_once=False),
            ),
        ),
    ],
)
def test_after_a_refresh(topics, appeared, member, stale_why, effects):
    assert follow_metadata(topics, appeared, member, stale_why) == effects
