"""What the answer to OffsetCommit says about a partition, and the one error for all that were refused."""

from __future__ import annotations

import pytest

from aiogroup._core.offsets.commit_request import AboutMembership, Again, Refused, refusal_of, verdict_of
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup.errors import (
    BrokerError,
    CommitFailedError,
    GroupAuthorizationError,
    RebalanceInProgressError,
    TopicAuthorizationError,
)
from aiogroup.structs import TopicPartition

ORDERS = TopicPartition("orders", 3)
ABOUT_THE_MEMBER = (E.REBALANCE_IN_PROGRESS, E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.FENCED_INSTANCE_ID)


def verdict(code, *, is_member=True, is_gone=False):
    return verdict_of(code, ORDERS, "billing", is_member=is_member, is_gone=is_gone)


@pytest.mark.parametrize(
    ("code", "moved", "stale"),
    [
        (E.COORDINATOR_LOAD_IN_PROGRESS, False, False),
        (E.NOT_COORDINATOR, True, False),
        (E.REQUEST_TIMED_OUT, True, False),
        (E.UNKNOWN_TOPIC_OR_PARTITION, False, True),
        (E.UNKNOWN_TOPIC_ID, False, True),
    ],
)
def test_what_passes_is_sent_again_after_what_the_code_says_was_looked_up(code, moved, stale):
    again = verdict(code)
    assert isinstance(again, Again)
    assert (again.coordinator_moved, again.metadata_is_stale) == (moved, stale)
    assert again.error.retriable


@pytest.mark.parametrize("code", ABOUT_THE_MEMBER)
def test_a_member_hears_what_is_about_it_and_nobody_else_does(code):
    tell = verdict(code)
    assert isinstance(tell, AboutMembership)
    assert isinstance(tell.error, RebalanceInProgressError)
    refused = verdict(code, is_member=False)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, CommitFailedError)
    assert refused.error.not_owned == {ORDERS}


@pytest.mark.parametrize(
    ("code", "is_gone", "kind", "text"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, True, BrokerError, "the topic is deleted"),
        (E.GROUP_AUTHORIZATION_FAILED, False, GroupAuthorizationError, "commit for group 'billing': grant READ"),
        (E.TOPIC_AUTHORIZATION_FAILED, False, TopicAuthorizationError, "orders"),
        (E.OFFSET_METADATA_TOO_LARGE, False, BrokerError, "commit of .*orders"),
        (E.INVALID_GROUP_ID, False, BrokerError, "commit of .*orders"),
    ],
)
def test_what_no_repetition_helps_is_refused(code, is_gone, kind, text):
    refused = verdict(code, is_gone=is_gone)
    assert isinstance(refused, Refused)
    with pytest.raises(kind, match=text):
        raise refused.error


def test_a_deleted_topic_is_no_reason_where_the_code_says_something_else():
    assert isinstance(verdict(E.NOT_COORDINATOR, is_gone=True), Again)


def test_one_error_names_all_topics_that_may_not_be_read():
    first, last = BrokerError(1, "A", "a"), BrokerError(2, "B", "b")
    assert refusal_of([]) is None
    assert refusal_of([first, last]) is last
    both = refusal_of([TopicAuthorizationError(["a"]), TopicAuthorizationError(["b"]), first])
    assert isinstance(both, TopicAuthorizationError)
    assert both.topics == {"a", "b"}
