"""Lists and removes the members of a group from outside: for its operators, not for its members (KIP-345)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from aiogroup._core.protocol.consumer_protocol import read_assignment
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.versions import first_error_code
from aiogroup._runtime.net.group_link import GroupLink, check_code, from_outside, only_one
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, GroupNotFoundError, MemberNotFoundError
from aiogroup.structs import TopicPartition

__all__ = ["GroupMember", "described", "list_members", "members_in", "members_of", "remove_members"]

DEAD: Final = "Dead"
"""The state of a group that does not exist, up to version 5 of DescribeGroups."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    `name` is the static name, `None` for a dynamic member. `partitions` are known only while the group is stable.
    """

    name: str | None
    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


async def list_members(group_id: str, **settings: Any) -> tuple[GroupMember, ...]:  # noqa: ANN401 (Consumer's)
    """The members of a group, static ones first; none for a group that has only offsets. `settings` are Consumer's.

    Raises:
        GroupNotFoundError: there is no such group.
        GroupAuthorizationError: grant DESCRIBE on the group.
        ConfigError: a setting is unknown or contradicts another.
        KafkaTimeoutError: not done in `default_api_timeout_ms`.
        AiogroupError: no broker was reached, or it refused.
    """
    async with from_outside(ConsumerConfig.of(**settings, group_id=group_id)) as groups:
        return await members_in(groups, group_id)


async def remove_members(
    group_id: str,
    names: Iterable[str],
    *,
    reason: str = "removed by name",
    **settings: Any,  # noqa: ANN401 (Consumer's)
) -> tuple[GroupMember, ...]:
    """Take static members out of a group at once, so that nobody waits for their registration time-out.

    Stop their processes first: a member that still runs joins again by itself. `reason` goes into the broker's log.

    Returns:
        The removed members.

    Raises:
        MemberNotFoundError: no static member has one of the names; then none is removed.
        GroupNotFoundError: there is no such group.
        GroupAuthorizationError: grant READ on the group.
        ConfigError: a setting is unknown or contradicts another.
        KafkaTimeoutError: not done in `default_api_timeout_ms`.
        AiogroupError: no broker was reached, or it refused.
    """
    wanted = tuple(dict.fromkeys(names))
    async with from_outside(ConsumerConfig.of(**settings, group_id=group_id)) as groups:
        there = {each.name: each for each in await members_in(groups, group_id) if each.name is not None}
        if missing := [name for name in wanted if name not in there]:
            raise _not_found(group_id, missing, there)
        if wanted:
            await _remove(groups, group_id, wanted, reason)
        return tuple(there[name] for name in wanted)


async def _remove(groups: GroupLink, group_id: str, names: tuple[str, ...], reason: str) -> None:
    # With an empty member id the broker removes the member that has the name now (KIP-345).
    leaving = tuple(MemberIdentity(member_id="", group_instance_id=name, reason=reason) for name in names)
    request = LeaveGroupRequest(group_id=group_id, members=leaving)
    response = await groups.ask(group_id, request, lambda answer: (answer.error_code,))
    check_code(response.error_code, group_id, "READ")
    gone = [each.group_instance_id or "" for each in response.members if each.error_code in _GONE]
    if gone:
        raise _not_found(group_id, gone, ())
    check_code(first_error_code(response), group_id, "READ")


def _not_found(group_id: str, missing: Iterable[str], there: Iterable[str]) -> MemberNotFoundError:
    names = ", ".join(repr(name) for name in missing)
    known = ", ".join(sorted(there))
    return MemberNotFoundError(
        f"group {group_id!r} has no static member {names}" + (f"; it has {known}" if known else "")
    )


async def members_in(groups: GroupLink, group_id: str) -> tuple[GroupMember, ...]:
    """The members of the group, as `list_members`. The caller must set a time-out.

    Raises:
        GroupNotFoundError: there is no such group.
        AiogroupError: as `described`.
    """
    group = await described(groups, group_id)
    if isinstance(group, str):
        raise GroupNotFoundError(group)
    return members_of(group)


async def described(groups: GroupLink, group_id: str) -> DescribedGroup | str:
    """The group as its coordinator describes it; or why it cannot, if there is no such group of the classic protocol.

    Raises:
        GroupAuthorizationError: grant DESCRIBE on the group.
        BrokerError: the coordinator refused.
    """
    request = DescribeGroupsRequest(groups=(group_id,))
    response = await groups.ask(group_id, request, lambda answer: [each.error_code for each in answer.groups])
    group = only_one(response.groups, "group", group_id)
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == DEAD:
        return group.error_message or f"there is no group {group_id!r}"
    check_code(group.error_code, group_id, "DESCRIBE")
    return group


def members_of(group: DescribedGroup) -> tuple[GroupMember, ...]:
    """Its members, static ones first."""
    return tuple(sorted(_members(group), key=lambda each: (each.name is None, each.name or each.member_id)))


_GONE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


def _members(group: DescribedGroup) -> Iterable[GroupMember]:
    for each in group.members:
        try:
            partitions = read_assignment(bytes(each.member_assignment)) if each.member_assignment else ()
        except AiogroupError:  # not a group of consumers (but of Connect, say): its assignments are in another format
            partitions = ()
        yield GroupMember(
            each.group_instance_id, each.member_id, each.client_id, each.client_host.lstrip("/"), partitions
        )
