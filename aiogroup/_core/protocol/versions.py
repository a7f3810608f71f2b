"""What some versions of a message need beside its table: another shape, or a check.

Old versions of FindCoordinator, LeaveGroup and OffsetFetch have one key, member or group where newer ones have many.
Callers always see many, and the fields of the single one at their defaults: what `lowering` returns sets those before a
message is written, what `lifting` returns puts what was read back into the many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.constants import FETCH_BY_ID, OFFSETS_BY_ID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic
from aiogroup._core.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiogroup._core.protocol.messages.join_group import JoinGroupResponse
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from aiogroup._core.protocol.schema import LAST, Message
from aiogroup.errors import UnsupportedVersionError

__all__ = ["answered_version", "first_error_code", "lifting", "lowering"]

M = TypeVar("M", bound=Message)
ONE_KEY: Final = 3
"""The last version of FindCoordinator with one key."""
ONE_MEMBER: Final = 2
"""The same of LeaveGroup."""
ONE_GROUP: Final = 7
"""The same of OffsetFetch."""
BY_NAME: Final = 11
"""The last version of Metadata that asks for topics by name only."""
NO_NULL: Final = 6
"""The last version of JoinGroup's answer in which the assignor is not null."""


def lowering(kind: type[M], version: int) -> Callable[[M], M] | None:
    """What makes a message as the table of `version` has it; `None` where each is already.

    Raises (when called):
        UnsupportedVersionError: the version cannot say this.
    """
    return _change(_LOWER, kind, version)


def lifting(kind: type[M], version: int) -> Callable[[M], M] | None:
    """What makes a message as callers have it, of one that was read in `version`; `None` where each is already."""
    return _change(_LIFT, kind, version)


def _change(table: _Table, kind: type[M], version: int) -> Callable[[M], M] | None:
    last, change = table.get(kind, (-1, None))
    return partial(change, version=version) if change is not None and version <= last else None


def first_error_code(response: LeaveGroupResponse) -> int:
    """The request's error, or else the first member's; 0 if all left."""
    return response.error_code or next((one.error_code for one in response.members if one.error_code), 0)


def answered_version(version: int, body: memoryview) -> int:
    """In which version ApiVersions is answered: a broker that does not know the one of the request takes version 0."""
    if version == 0 or len(body) < 6 or int.from_bytes(body[:2], "big") != ErrorCode.UNSUPPORTED_VERSION:
        return version
    count = int.from_bytes(body[2:6], "big")
    return 0 if len(body) == 6 + 6 * count else version


# Topics by name or by id (KIP-516): the version decides which of them is sent.


def _no_id(message: str, version: int, first_by_id: int) -> UnsupportedVersionError:
    """Where one is missing, the broker would answer 100 for that topic."""
    return UnsupportedVersionError(
        f"version {version} of {message} names topics by id, and a topic has none: set topic_id, "
        f"or negotiate(..., at_most={first_by_id - 1})"
    )


def _no_name(message: str, version: int, first_by_id: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"version {version} of {message} names topics by name, by id only since {first_by_id}, "
        "and a topic has none: set the name too"
    )


def _fetch(message: FetchRequest, version: int) -> FetchRequest:
    named: tuple[FetchTopic | ForgottenTopic, ...] = (*message.topics, *message.forgotten_topics_data)
    for topic in named:
        if version >= FETCH_BY_ID and topic.topic_id == ZERO_UUID:
            raise _no_id("FetchRequest", version, FETCH_BY_ID)
        if version < FETCH_BY_ID and topic.topic == "":
            raise _no_name("FetchRequest", version, FETCH_BY_ID)
    return message


def _offset_commit(message: OffsetCommitRequest, version: int) -> OffsetCommitRequest:
    for topic in message.topics:
        if version >= OFFSETS_BY_ID and topic.topic_id == ZERO_UUID:
            raise _no_id("OffsetCommitRequest", version, OFFSETS_BY_ID)
        if version < OFFSETS_BY_ID and topic.name == "":
            raise _no_name("OffsetCommitRequest", version, OFFSETS_BY_ID)
    return message


# One where there may be many.


def _offset_fetch(message: OffsetFetchRequest, version: int) -> OffsetFetchRequest:
    for topic in (topic for group in message.groups for topic in group.topics or ()):
        if version >= OFFSETS_BY_ID and topic.topic_id == ZERO_UUID:
            raise _no_id("OffsetFetchRequest", version, OFFSETS_BY_ID)
        if version < OFFSETS_BY_ID and topic.name == "":
            raise _no_name("OffsetFetchRequest", version, OFFSETS_BY_ID)
    if version > ONE_GROUP:
        return message
    if len(message.groups) != 1:
        raise UnsupportedVersionError(
            f"version {version} of OffsetFetchRequest asks for 1 group, not {len(message.groups)}: "
            "send one request per group"
        )
    (one,) = message.groups
    return replace(message, group_id=one.group_id, topics=one.topics, groups=())


def _offset_fetch_of_many(message: OffsetFetchRequest, version: int) -> OffsetFetchRequest:
    one = OffsetFetchRequestGroup(message.group_id, topics=message.topics)
    return OffsetFetchRequest(groups=(one,), require_stable=message.require_stable)


def _offsets(message: OffsetFetchResponse, version: int) -> OffsetFetchResponse:
    if len(message.groups) != 1:
        raise UnsupportedVersionError(
            f"version {version} of OffsetFetchResponse carries 1 group, not {len(message.groups)}"
        )
    (one,) = message.groups
    return replace(message, topics=one.topics, error_code=one.error_code, groups=())


def _offsets_of_many(message: OffsetFetchResponse, version: int) -> OffsetFetchResponse:
    one = OffsetFetchResponseGroup("", message.topics, message.error_code)
    return OffsetFetchResponse(message.throttle_time_ms, groups=(one,))


def _find_coordinator(message: FindCoordinatorRequest, version: int) -> FindCoordinatorRequest:
    if len(message.coordinator_keys) != 1:
        raise UnsupportedVersionError(
            f"version {version} of FindCoordinatorRequest asks for 1 key, not {len(message.coordinator_keys)}: "
            "send one request per key"
        )
    return replace(message, key=message.coordinator_keys[0], coordinator_keys=())


def _find_coordinators(message: FindCoordinatorRequest, version: int) -> FindCoordinatorRequest:
    return replace(message, key="", coordinator_keys=(message.key,))


def _coordinator(message: FindCoordinatorResponse, version: int) -> FindCoordinatorResponse:
    if len(message.coordinators) != 1:
        raise UnsupportedVersionError(
            f"version {version} of FindCoordinatorResponse carries 1 key, not {len(message.coordinators)}"
        )
    (one,) = message.coordinators
    return FindCoordinatorResponse(
        message.throttle_time_ms, one.error_code, one.error_message, one.node_id, one.host, one.port
    )


def _coordinators(message: FindCoordinatorResponse, version: int) -> FindCoordinatorResponse:
    one = Coordinator("", message.node_id, message.host, message.port, message.error_code, message.error_message)
    return FindCoordinatorResponse(message.throttle_time_ms, coordinators=(one,))


def _leave(message: LeaveGroupRequest, version: int) -> LeaveGroupRequest:
    if len(message.members) != 1 or message.members[0].group_instance_id is not None:
        raise UnsupportedVersionError(
            f"version {version} of LeaveGroupRequest carries 1 member without an instance id: "
            "send one request per dynamic member; static ones cannot leave such a broker"
        )
    return LeaveGroupRequest(message.group_id, message.members[0].member_id)


def _leave_of_many(message: LeaveGroupRequest, version: int) -> LeaveGroupRequest:
    return LeaveGroupRequest(message.group_id, members=(MemberIdentity(message.member_id),))


def _left(message: LeaveGroupResponse, version: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(message.throttle_time_ms, first_error_code(message))


# Null where a version has none.


def _joined(message: JoinGroupResponse, version: int) -> JoinGroupResponse:
    # Answers with an error name no assignor; versions before 7 have no null, but an empty name.
    return replace(message, protocol_name="") if message.protocol_name is None else message


def _metadata(message: MetadataRequest, version: int) -> MetadataRequest:
    # Brokers accept ids without names since version 12, though the schema has ids since 10 (KIP-516).
    if any(topic.topic_id != ZERO_UUID and topic.name is None for topic in message.topics or ()):
        raise UnsupportedVersionError(f"version {version} of MetadataRequest cannot ask by topic id: name the topics")
    if version > 0:
        return message
    if message.topics == ():
        raise UnsupportedVersionError("version 0 of MetadataRequest cannot ask for no topics: no topics mean all")
    return replace(message, topics=message.topics or ())


def _metadata_of_all(message: MetadataRequest, version: int) -> MetadataRequest:
    return message if message.topics else MetadataRequest(topics=None)


_Change = Callable[..., Any]
_Table = Mapping[type[Message], tuple[int, _Change]]
"""Up to which version a message is changed or checked, and by what."""
_LOWER: Final[_Table] = {
    FetchRequest: (LAST, _fetch),
    MetadataRequest: (BY_NAME, _metadata),
    OffsetCommitRequest: (LAST, _offset_commit),
    OffsetFetchRequest: (LAST, _offset_fetch),
    OffsetFetchResponse: (ONE_GROUP, _offsets),
    FindCoordinatorRequest: (ONE_KEY, _find_coordinator),
    FindCoordinatorResponse: (ONE_KEY, _coordinator),
    JoinGroupResponse: (NO_NULL, _joined),
    LeaveGroupRequest: (ONE_MEMBER, _leave),
    LeaveGroupResponse: (ONE_MEMBER, _left),
}
_LIFT: Final[_Table] = {
    MetadataRequest: (0, _metadata_of_all),
    OffsetFetchRequest: (ONE_GROUP, _offset_fetch_of_many),
    OffsetFetchResponse: (ONE_GROUP, _offsets_of_many),
    FindCoordinatorRequest: (ONE_KEY, _find_coordinators),
    FindCoordinatorResponse: (ONE_KEY, _coordinators),
    LeaveGroupRequest: (ONE_MEMBER, _leave_of_many),
}
