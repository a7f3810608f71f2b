"""Every error code of a fetched partition that Kafka's client knows has a row."""

from __future__ import annotations

import pytest

from aiogroup._core.fetching.asking.remedies import FetchRemedy, fetch_remedy_for
from aiogroup._core.protocol.errors import ErrorCode as E

REFRESHED = [
    E.NOT_LEADER_OR_FOLLOWER, E.REPLICA_NOT_AVAILABLE, E.KAFKA_STORAGE_ERROR, E.FENCED_LEADER_EPOCH,
    E.OFFSET_NOT_AVAILABLE, E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE,
]  # fmt: skip


@pytest.mark.parametrize("code", REFRESHED)
def test_stale_metadata_is_refreshed(code):
    assert fetch_remedy_for(code) is FetchRemedy.REFRESH


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (E.NONE, FetchRemedy.PROCEED),
        (E.OFFSET_OUT_OF_RANGE, FetchRemedy.OUT_OF_RANGE),
        (E.TOPIC_AUTHORIZATION_FAILED, FetchRemedy.NOT_AUTHORIZED),
        (E.UNKNOWN_TOPIC_ID, FetchRemedy.REFRESH),
        (E.INCONSISTENT_TOPIC_ID, FetchRemedy.REFRESH),
        (E.UNKNOWN_LEADER_EPOCH, FetchRemedy.BACK_OFF),
        (E.UNKNOWN_SERVER_ERROR, FetchRemedy.BACK_OFF),
    ],
)
def test_rows_are_as_javas(code, remedy):
    assert fetch_remedy_for(code) is remedy


def test_nothing_but_success_proceeds_and_an_unknown_code_backs_off():
    assert [code for code in E if fetch_remedy_for(code) is FetchRemedy.PROCEED] == [E.NONE]
    assert fetch_remedy_for(9_999) is FetchRemedy.BACK_OFF


def test_code_without_a_row_refreshes_where_kafka_calls_the_metadata_stale():
    assert fetch_remedy_for(E.NETWORK_EXCEPTION) is FetchRemedy.REFRESH
    assert fetch_remedy_for(E.INVALID_REQUEST) is FetchRemedy.BACK_OFF


def test_every_remedy_is_used():
    assert {fetch_remedy_for(code) for code in E} == set(FetchRemedy)
