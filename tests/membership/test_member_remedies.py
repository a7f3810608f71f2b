"""Every code that Kafka documents for a group request has a row that somebody thought about."""

from __future__ import annotations

import pytest

from aiogroup._core.membership.remedies import Remedy, Rpc, remedy_for, rows
from aiogroup._core.protocol.errors import ErrorCode as E

# From the javadoc of each *Response.java of Kafka 4.3, where it has one, and the branches of the handlers in
# AbstractCoordinator.java and ConsumerCoordinator.java. Left out: what only transactional requests are answered
# (INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED).
DOCUMENTED = {
    Rpc.FIND_COORDINATOR: {
        E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.GROUP_AUTHORIZATION_FAILED, E.INVALID_REQUEST,
    },
    Rpc.JOIN_GROUP: {
        E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.INCONSISTENT_GROUP_PROTOCOL,
        E.INVALID_GROUP_ID, E.UNKNOWN_MEMBER_ID, E.INVALID_SESSION_TIMEOUT, E.REBALANCE_IN_PROGRESS,
        E.GROUP_AUTHORIZATION_FAILED, E.UNSUPPORTED_VERSION, E.MEMBER_ID_REQUIRED, E.GROUP_MAX_SIZE_REACHED,
        E.FENCED_INSTANCE_ID,
    },
    Rpc.SYNC_GROUP: {
        E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.ILLEGAL_GENERATION,
        E.INCONSISTENT_GROUP_PROTOCOL, E.UNKNOWN_MEMBER_ID, E.REBALANCE_IN_PROGRESS, E.GROUP_AUTHORIZATION_FAILED,
        E.FENCED_INSTANCE_ID,
    },
    Rpc.HEARTBEAT: {
        E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID,
        E.REBALANCE_IN_PROGRESS, E.GROUP_AUTHORIZATION_FAILED, E.FENCED_INSTANCE_ID,
    },
    Rpc.LEAVE_GROUP: {
        E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.UNKNOWN_MEMBER_ID,
        E.GROUP_AUTHORIZATION_FAILED, E.FENCED_INSTANCE_ID,
    },
    Rpc.OFFSET_COMMIT: {
        E.UNKNOWN_TOPIC_OR_PARTITION, E.REQUEST_TIMED_OUT, E.OFFSET_METADATA_TOO_LARGE, E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID,
        E.REBALANCE_IN_PROGRESS, E.INVALID_COMMIT_OFFSET_SIZE, E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED, E.GROUP_ID_NOT_FOUND, E.STALE_MEMBER_EPOCH, E.FENCED_INSTANCE_ID,
    },
    Rpc.OFFSET_FETCH: {
        E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR,
        E.UNKNOWN_MEMBER_ID, E.TOPIC_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED, E.UNSTABLE_OFFSET_COMMIT,
        E.STALE_MEMBER_EPOCH,
    },
}  # fmt: skip
MEMBERSHIP = (Rpc.JOIN_GROUP, Rpc.SYNC_GROUP, Rpc.HEARTBEAT, Rpc.OFFSET_COMMIT)


@pytest.mark.parametrize("rpc", Rpc)
def test_every_documented_code_has_a_row(rpc):
    assert {code.name for code in DOCUMENTED[rpc] if code not in rows(rpc)} == set()


@pytest.mark.parametrize("rpc", Rpc)
def test_success_proceeds_and_nothing_else_does(rpc):
    proceeding = {code for code in E if remedy_for(rpc, code) is Remedy.PROCEED}
    assert proceeding == {E.NONE}


@pytest.mark.parametrize("rpc", Rpc)
def test_missing_rights_are_never_retried(rpc):
    assert remedy_for(rpc, E.GROUP_AUTHORIZATION_FAILED) is Remedy.NOT_AUTHORIZED


@pytest.mark.parametrize("rpc", MEMBERSHIP)
def test_what_the_broker_says_of_a_member_means_the_same_in_every_answer(rpc):
    assert remedy_for(rpc, E.UNKNOWN_MEMBER_ID) is Remedy.FORGET_MEMBER
    assert remedy_for(rpc, E.ILLEGAL_GENERATION) is Remedy.NEXT_GENERATION
    assert remedy_for(rpc, E.FENCED_INSTANCE_ID) is Remedy.FENCED
    assert remedy_for(rpc, E.NOT_COORDINATOR) is Remedy.REDISCOVER


def test_a_member_that_is_gone_already_has_left():
    assert remedy_for(Rpc.LEAVE_GROUP, E.UNKNOWN_MEMBER_ID) is Remedy.DONE


@pytest.mark.parametrize("rpc", Rpc)
def test_code_without_a_row_is_retried_where_kafka_calls_it_retriable(rpc):
    assert remedy_for(rpc, E.NOT_ENOUGH_REPLICAS) is Remedy.RETRY
    assert remedy_for(rpc, E.INVALID_TIMESTAMP) is Remedy.FATAL
    assert remedy_for(rpc, 9_999) is Remedy.FATAL


def test_every_remedy_is_used():
    assert {remedy_for(rpc, code) for rpc in Rpc for code in E} == set(Remedy)
