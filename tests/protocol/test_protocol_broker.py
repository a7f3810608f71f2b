"""Frames recorded from a real 4.3.1 broker: read in every version it speaks, and written again to the same bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocol_golden import BY_NAME, GOLDEN

from aiogroup._core.protocol import decode_request, decode_response, encode_request, encode_response, negotiate
from aiogroup._core.protocol.consumer_protocol import TopicPartitions, decode_assignment
from aiogroup._core.protocol.messages import REQUESTS
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.versions import first_error_code
from tests.support.any_version import ranges_of

ROWS = [json.loads(line) for line in (GOLDEN / "broker_session.jsonl").read_text().splitlines()]
UNKNOWN_VERSION = 99


def _answer(name: str, version: int) -> Any:
    row = next(row for row in ROWS if (row["message"], row["version"]) == (name, version))
    return decode_response(BY_NAME[name], version, bytes.fromhex(row["response"]))[1]


def _versions(name: str) -> range:
    return range(BY_NAME[name].MIN_VERSION, BY_NAME[name].MAX_VERSION + 1)


@pytest.mark.parametrize("name", BY_NAME)
def test_exchange_is_read_and_written_again(name: str) -> None:
    request_type = BY_NAME[name]
    rows = [row for row in ROWS if row["message"] == name and row["version"] != UNKNOWN_VERSION]
    for row in rows:
        header, request = decode_request(bytes.fromhex(row["request"]))
        again = encode_request(request, header.api_version, header.correlation_id, header.client_id)
        assert again.hex() == row["request"], row["version"]
        correlation_id, response = decode_response(request_type, row["version"], bytes.fromhex(row["response"]))
        assert correlation_id == header.correlation_id
        answer = encode_response(request_type, response, row["version"], correlation_id)
        assert answer.hex() == row["response"], row["version"]


def test_every_version_was_recorded() -> None:
    have = {(row["message"], row["version"]) for row in ROWS}
    assert not {(name, version) for name in BY_NAME for version in _versions(name)} - have


def test_the_broker_speaks_every_version_that_aiogroup_does() -> None:
    ranges = ranges_of(_answer("ApiVersions", 4))
    for request_type in REQUESTS.values():
        assert ranges[request_type.API_KEY][0] <= request_type.MIN_VERSION
        assert negotiate(request_type, ranges) == request_type.MAX_VERSION


def test_a_version_the_broker_does_not_know_is_answered_in_version_0() -> None:
    row = next(row for row in ROWS if row["version"] == UNKNOWN_VERSION)
    for version in range(5):
        _, response = decode_response(ApiVersionsRequest, version, bytes.fromhex(row["response"]))
        assert response.error_code == 35
        assert ranges_of(response)[18] == (0, 4)


def test_callers_read_the_same_values_in_every_version() -> None:
    for version in _versions("Metadata"):
        (topic,) = _answer("Metadata", version).topics
        assert (topic.name, topic.error_code, len(topic.partitions)) == ("golden", 0, 1)
        assert topic.partitions[0].leader_id == 1
    for version in _versions("FindCoordinator"):
        (found,) = _answer("FindCoordinator", version).coordinators
        assert (found.error_code, found.node_id, found.host) == (0, 1, "127.0.0.1")
    for version in _versions("SyncGroup"):
        assignment = decode_assignment(_answer("SyncGroup", version).assignment)
        assert assignment.assigned_partitions == (TopicPartitions("golden", (0,)),)
    for version in _versions("OffsetFetch"):
        (group,) = _answer("OffsetFetch", version).groups
        (partition,) = group.topics[0].partitions
        assert (group.error_code, partition.error_code) == (0, 0)
        assert (partition.committed_offset, partition.metadata) == (2, "golden")
    for version in _versions("ListOffsets"):
        (partition,) = _answer("ListOffsets", version).topics[0].partitions
        assert (partition.error_code, partition.offset) == (0, 3)
    for version in _versions("Fetch"):
        (partition,) = _answer("Fetch", version).responses[0].partitions
        assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 3, 3)
        assert bytes(partition.records).count(b"value-") == 3
    for version in _versions("LeaveGroup"):
        assert first_error_code(_answer("LeaveGroup", version)) == 0
    for version in _versions("JoinGroup"):
        # A dynamic member is told its id first (KIP-394); the session of version 5 and above is a static member's.
        assert _answer("JoinGroup", version).error_code == (79 if version == 4 else 0)
