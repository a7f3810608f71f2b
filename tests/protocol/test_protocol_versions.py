"""Choosing a version, what each can carry, and the forms that old versions have."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from aiogroup._core.protocol import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    negotiate,
)
from aiogroup._core.protocol.codec import Reader, Writer
from aiogroup._core.protocol.compiler import decoder, encoder
from aiogroup._core.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)
from aiogroup._core.protocol.messages import REQUESTS
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from aiogroup._core.protocol.schema import INT32, STRING, Nested, Structure, array, structure, wire
from aiogroup._core.protocol.versions import first_error_code
from aiogroup.errors import ProtocolError, UnsupportedVersionError

SOME_ID = UUID(int=7)


def test_the_highest_common_version() -> None:
    assert negotiate(JoinGroupRequest, {11: (0, 9)}) == 9
    assert negotiate(JoinGroupRequest, {11: (0, 5)}) == 5
    assert negotiate(JoinGroupRequest, {11: (0, 99)}) == JoinGroupRequest.MAX_VERSION
    assert negotiate(JoinGroupRequest, {11: (0, 9)}, at_most=4) == 4


@pytest.mark.parametrize(
    ("ranges", "at_most", "says"),
    [
        ({}, None, "does not serve JoinGroup"),
        ({11: (0, 1)}, None, "aiogroup speaks 2 to 9 of JoinGroup .*the broker 0 to 1: upgrade the brokers"),
        ({11: (10, 12)}, None, "the broker 10 to 12: upgrade aiogroup"),
        ({11: (3, 9)}, 2, "aiogroup speaks 2 to 2 .*ceiling"),
    ],
)
def test_no_common_version_says_both_ranges_and_what_to_do(ranges, at_most, says) -> None:
    with pytest.raises(UnsupportedVersionError, match=says):
        negotiate(JoinGroupRequest, ranges, at_most=at_most)


def test_versions_outside_the_range_are_refused() -> None:
    for version in (-1, 5):
        with pytest.raises(UnsupportedVersionError, match="negotiate"):
            encode_request(HeartbeatRequest(), version, 1, "c")
        with pytest.raises(UnsupportedVersionError):
            decode_response(HeartbeatRequest, version, b"")


def test_a_value_that_a_version_would_lose_is_refused_unless_it_is_ignorable() -> None:
    static = HeartbeatRequest("g", 1, "m", group_instance_id="i")
    with pytest.raises(UnsupportedVersionError, match=r"version 2 of HeartbeatRequest cannot carry group_instance_id"):
        encode_request(static, 2, 1, "c")
    assert decode_request(encode_request(static, 3, 1, "c"))[1] == static
    with_reason = JoinGroupRequest("g", reason="because")
    assert decode_request(encode_request(with_reason, 7, 1, "c"))[1] == JoinGroupRequest("g")


def test_null_where_a_version_has_none_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="no null for topics"):
        encode_request(OffsetFetchRequest(groups=(OffsetFetchRequestGroup("g", topics=None),)), 1, 1, "c")


def test_a_value_of_the_wrong_type_names_its_field() -> None:
    with pytest.raises(ValueError, match=r"HeartbeatRequest\.generation_id"):
        encode_request(HeartbeatRequest("g", 1 << 31), 4, 1, "c")
    with pytest.raises(ValueError, match=r"HeartbeatRequest\.group_id"):
        encode_request(HeartbeatRequest(5), 4, 1, "c")  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(7))
def test_one_key_is_found_in_every_version(version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=("g",))
    assert decode_request(encode_request(request, version, 1, None))[1] == request


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (FindCoordinatorRequest(coordinator_keys=("a", "b")), 3),
        (LeaveGroupRequest("g", members=(MemberIdentity("a"), MemberIdentity("b"))), 2),
        (LeaveGroupRequest("g", members=(MemberIdentity("a", "static"),)), 2),
        (OffsetFetchRequest(groups=(OffsetFetchRequestGroup("a"), OffsetFetchRequestGroup("b"))), 7),
        (OffsetFetchRequest(groups=(OffsetFetchRequestGroup("a"),), require_stable=True), 6),
        (MetadataRequest(()), 0),
        (MetadataRequest((MetadataRequestTopic(SOME_ID, None),)), 11),
        (MetadataRequest(None, allow_auto_topic_creation=False), 3),
        (FetchRequest(topics=(FetchTopic("t", partitions=(FetchPartition(0),)),)), 13),
        (FetchRequest(topics=(FetchTopic(topic_id=SOME_ID),)), 12),
        (OffsetCommitRequest("g", topics=(OffsetCommitRequestTopic("t"),)), 10),
        (OffsetCommitRequest("g", topics=(OffsetCommitRequestTopic(topic_id=SOME_ID),)), 9),
    ],
)
def test_what_a_version_has_no_form_for_is_refused(request_, version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        encode_request(request_, version, 1, None)


def test_the_time_outs_of_the_draft_are_sent_only_where_they_are_set() -> None:
    plain = JoinGroupRequest("g", 10_000)
    for version in range(6, 10):
        frame = encode_request(plain, version, 1, "c")
        assert frame.endswith(b"\0"), "no tagged fields"
        both = replace(plain, registration_timeout_ms=900_000, expansion_timeout_ms=300_000)
        sent = encode_request(both, version, 1, "c")
        # Two tags: 34501 and 34502, each with 4 bytes.
        assert sent == frame[:-1] + bytes.fromhex("02 c58d02 04 000dbba0 c68d02 04 000493e0")
        assert decode_request(sent)[1] == both
        one = replace(plain, expansion_timeout_ms=0)
        assert encode_request(one, version, 1, "c") == frame[:-1] + bytes.fromhex("01 c68d02 04 00000000")
    old = replace(plain, registration_timeout_ms=900_000)
    assert decode_request(encode_request(old, 5, 1, "c"))[1] == plain, "before version 6 there are no tags"


def test_leaving_in_old_versions_has_the_error_of_the_one_member() -> None:
    response = LeaveGroupResponse(members=(MemberResponse("m", None, 25),))
    assert first_error_code(response) == 25
    _, old = decode_response(LeaveGroupRequest, 2, encode_response(LeaveGroupRequest, response, 2, 1))
    assert (old.error_code, first_error_code(old)) == (25, 25)


def test_all_topics_and_no_topics_differ() -> None:
    for version in range(14):
        assert decode_request(encode_request(MetadataRequest(None), version, 1, None))[1].topics is None
    for version in range(1, 14):
        assert decode_request(encode_request(MetadataRequest(()), version, 1, None))[1].topics == ()


def test_a_consumer_does_not_pose_as_a_broker() -> None:
    assert ListOffsetsRequest().replica_id == -1
    assert FetchRequest().replica_id == -1
    assert REQUESTS[23]().replica_id == -1


def test_a_header_is_read_where_the_api_or_version_is_unknown() -> None:
    frame = bytes.fromhex("0012 0063 00000001 ffff")
    header = decode_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 99, 1, None)
    with pytest.raises(UnsupportedVersionError):
        decode_request(frame)
    with pytest.raises(UnsupportedVersionError, match="API 999"):
        decode_request(bytes.fromhex("03e7 0000 00000001 ffff"))


def test_the_consumer_protocol_is_read_whatever_its_version() -> None:
    newest = Subscription(("t",), b"u", (TopicPartitions("t", (1, 2)),), 7, "rack")
    raw = bytearray(encode_subscription(newest))
    raw[:2] = (99).to_bytes(2, "big")
    assert decode_subscription(bytes(raw) + b"new fields") == newest
    assert decode_subscription(encode_subscription(newest, 0)) == Subscription(("t",), b"u")
    assert decode_assignment(b"") == Assignment()
    with pytest.raises(ProtocolError):
        decode_subscription(b"")
    with pytest.raises(ProtocolError, match="version -1"):
        decode_subscription(b"\xff\xff")
    with pytest.raises(UnsupportedVersionError):
        encode_subscription(newest, 4)


@structure
class Inner(Structure):
    number: int = wire(INT32, default=-1)
    names: tuple[str, ...] = wire(array(STRING))


@structure
class Outer(Structure):
    inner: Inner | None = wire(Inner, nullable=1)
    after: int = wire(INT32)


@pytest.mark.parametrize("flexible", [False, True])
def test_nullable_structures(flexible: bool) -> None:
    assert isinstance(Outer.__dataclass_fields__["inner"].metadata["wire"].type, Nested)
    for outer in (Outer(None, 5), Outer(Inner(3, ("a",)), 5)):
        writer = Writer()
        encoder(Outer, 1, flexible)(writer, outer)
        assert decoder(Outer, 1, flexible)(Reader(bytes(writer.data))) == outer
    assert writer.data[0] == 1
    with pytest.raises(ProtocolError, match="2 before byte 1"):
        decoder(Outer, 1, flexible)(Reader(b"\x02" + bytes(20)))


def test_decoded_messages_are_frozen() -> None:
    _, heartbeat = decode_request(encode_request(HeartbeatRequest("g", 1, "m"), 4, 1, None))
    assert type(heartbeat) is HeartbeatRequest
    assert hash(heartbeat) == hash(HeartbeatRequest("g", 1, "m"))
    with pytest.raises(AttributeError):
        heartbeat.group_id = "other"
