"""Frames at the broker: what is offered, what is refused, and answers whose records are not copied."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiogroup._core.protocol import encode_request, encode_response
from aiogroup._core.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup.embedded.messages.framing import (
    ApiNotOfferedError,
    Batches,
    VersionNotOfferedError,
    decode,
    encode_answer,
)
from aiogroup.embedded.messages.ranges import RANGES, narrowed
from aiogroup.errors import ProtocolError

SOME_ID = UUID(int=5)
SMALL, LARGE, LARGER = b"a" * 10, b"b" * 5000, memoryview(b"c" * 70_000)


def test_a_request_is_decoded() -> None:
    request = HeartbeatRequest("g", 3, "m")
    header, read = decode(encode_request(request, 4, 7, "me"), RANGES)
    assert (header.api_version, header.correlation_id, header.client_id) == (4, 7, "me")
    assert read == request


def test_kinds_of_refused_frames_are_told_apart() -> None:
    with pytest.raises(ApiNotOfferedError, match="API 999") as unknown:
        decode(bytes.fromhex("03e7 0000 00000009 ffff"), RANGES)
    assert unknown.value.header.correlation_id == 9
    with pytest.raises(VersionNotOfferedError, match="versions 0 to 4, not 99") as newer:
        decode(bytes.fromhex("0012 0063 00000001 ffff 00000000"), RANGES)
    assert newer.value.request_type.api_name() == "ApiVersions"
    with pytest.raises(ProtocolError):
        decode(b"GET / HTTP/1.1\r\n\r\n", RANGES)
    whole = encode_request(HeartbeatRequest("g", 3, "m"), 4, 7, "me")
    for length in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode(whole[:length], RANGES)


def test_bytes_after_a_request_are_ignored() -> None:
    """Kafka 4.3.1 answers such a request, in flexible versions and in others."""
    for version in (0, 4):
        heartbeat = HeartbeatRequest("g", 3, "m")
        assert decode(encode_request(heartbeat, version, 7, "me") + b"!!", RANGES)[1] == heartbeat


def test_joining_begins_at_version_0_though_the_consumer_begins_at_2() -> None:
    assert JoinGroupRequest.MIN_VERSION == 2
    frame = bytes.fromhex("000b 0000 00000001 ffff 0001 67 00002710 0000 0008") + b"consumer" + bytes(4)
    _, join = decode(frame, RANGES)
    assert join == JoinGroupRequest("g", 10_000, protocol_type="consumer")


def test_ranges_are_narrowed_by_name() -> None:
    old = narrowed({"JoinGroup": (0, 3)})
    assert old[JoinGroupRequest] == (0, 3)
    assert {**old, JoinGroupRequest: RANGES[JoinGroupRequest]} == RANGES
    with pytest.raises(VersionNotOfferedError):
        decode(encode_request(JoinGroupRequest("g"), 4, 1, None), old)


@pytest.mark.parametrize(
    ("api_versions", "says"),
    [
        ({"Join": (0, 3)}, "no request 'Join'"),
        ({"JoinGroup": (0, 99)}, "not within 0 to 9"),
        ({"JoinGroup": (3, 2)}, "3 to 2"),
        ({"Fetch": (0, 11)}, "not within 4 to 18"),
    ],
)
def test_ranges_cannot_be_widened(api_versions, says) -> None:
    with pytest.raises(ValueError, match=says):
        narrowed(api_versions)


def test_a_request_may_be_left_out() -> None:
    without = {request: versions for request, versions in RANGES.items() if request is not HeartbeatRequest}
    with pytest.raises(ApiNotOfferedError):
        decode(encode_request(HeartbeatRequest("g"), 4, 7, "me"), without)


def fetched(records) -> FetchResponse:
    partitions = (PartitionData(0, records=records), PartitionData(1, records=records))
    return FetchResponse(responses=(FetchableTopicResponse("t", SOME_ID, partitions),))


@pytest.mark.parametrize("batches", [(), (SMALL,), (LARGE, SMALL, LARGER), (SMALL, LARGE), (LARGER,)])
def test_an_answer_in_parts_is_the_answer(batches) -> None:
    for version in range(4, 19):
        buffers = encode_answer(FetchRequest, fetched(Batches.of(batches)), version, 7)
        whole = encode_response(FetchRequest, fetched(b"".join(batches)), version, 7)
        assert b"".join(buffers) == len(whole).to_bytes(4) + whole


def test_large_records_are_not_copied() -> None:
    buffers = encode_answer(FetchRequest, fetched(Batches.of((LARGE, SMALL, LARGER))), 17, 7)
    assert [each for each in buffers if each is LARGE or each is LARGER] == [LARGE, LARGER, LARGE, LARGER]
    alone = encode_answer(FetchRequest, fetched(LARGE), 17, 7)
    assert sum(each is LARGE for each in alone) == 2
    assert len(encode_answer(FetchRequest, fetched(SMALL), 17, 7)) == 1


def test_an_answer_without_records_is_one_buffer() -> None:
    answer = HeartbeatResponse(error_code=25)
    whole = encode_response(HeartbeatRequest, answer, 4, 7)
    assert encode_answer(HeartbeatRequest, answer, 4, 7) == [len(whole).to_bytes(4) + whole]
