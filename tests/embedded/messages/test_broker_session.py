"""Frames recorded from a real 4.3.1 broker: read in every version it offers, and written again to the same bytes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup.embedded.messages.framing import decode, encode_answer
from aiogroup.embedded.messages.produce import ProduceRequest
from aiogroup.embedded.messages.ranges import LATER, RANGES, REFUSED_PRODUCE
from tests.protocol.protocol_golden import GOLDEN
from tests.support.any_version import decode_any_response, encode_any_request, ranges_of
from tests.support.brokers_differ import HIGHER_VERSIONS

ALL = {**RANGES, **LATER}
BY_NAME = {request.api_name(): request for request in ALL}
UNKNOWN_VERSION = 99


@cache
def exchanges() -> dict[tuple[str, int], tuple[bytes, bytes]]:
    """The recorded requests and answers."""
    found = {}
    for folder in (Path(__file__).parent / "golden", GOLDEN):
        for line in (folder / "broker_session.jsonl").read_text().splitlines():
            row = json.loads(line)
            found[row["message"], row["version"]] = bytes.fromhex(row["request"]), bytes.fromhex(row["response"])
    return found


def answer(name: str, version: int) -> Any:
    return decode_any_response(BY_NAME[name], version, exchanges()[name, version][1])[1]


def test_every_version_has_a_recorded_answer() -> None:
    need = {
        (name, version) for name, request in BY_NAME.items() for version in range(ALL[request][0], ALL[request][1] + 1)
    }
    refused = {("Produce", version) for version in range(REFUSED_PRODUCE + 1)}
    assert need - exchanges().keys() == refused


@pytest.mark.parametrize("request_type", ALL, ids=lambda request: request.api_name())
def test_an_exchange_is_read_and_written_again(request_type) -> None:
    name = request_type.api_name()
    for (message, version), (asked, answered) in exchanges().items():
        if message != name or version == UNKNOWN_VERSION:
            continue
        header, request = decode(asked, ALL)
        assert encode_any_request(request, version, header.correlation_id, header.client_id) == asked, version
        correlation_id, response = decode_any_response(request_type, version, answered)
        assert correlation_id == header.correlation_id
        again = b"".join(encode_answer(request_type, response, version, correlation_id))
        assert again == len(answered).to_bytes(4) + answered, version


def test_the_ranges_are_those_of_the_real_broker() -> None:
    _, answered = exchanges()["ApiVersions", 4]
    real = ranges_of(decode_any_response(ApiVersionsRequest, 4, answered)[1])
    for request, (lowest, highest) in ALL.items():
        offered = lowest, HIGHER_VERSIONS.get(request.api_name(), highest)
        assert real[request.API_KEY] == offered, request.api_name()
    assert list(real) == sorted(real), "in the order of the keys"
    assert RANGES[ProduceRequest][0] == 0


def test_what_the_recorded_answers_say() -> None:
    made = answer("CreateTopics", 7).topics
    assert [each.error_code for each in made] == [0, 0, 17]
    deleted = {each.name: each.error_code for each in answer("DeleteTopics", 6).responses}
    assert deleted == {"gone-6": 0, "no/name": 3}
    produced = answer("Produce", 9).responses[0].partition_responses
    assert {each.index: each.error_code for each in produced} == {0: 0, 1: 87}
    assert answer("DescribeConfigs", 4).results[1].error_code == 3
    assert answer("ListGroups", 0).groups[0].protocol_type == "consumer"
    assert answer("JoinGroup", 0).generation_id == 1
    assert answer("ConsumerGroupHeartbeat", 1).assignment.topic_partitions[0].partitions == (0, 1)
